"""A receipt is read again after it was put: what a destination does not have is not recorded."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from hypaware_pipeline.export.driver import Exporter
from hypaware_pipeline.export.installation import build_sink
from hypaware_pipeline.model import DatasetName, Day, DayOutcome, SinkName
from hypaware_pipeline.plugins.contracts import Blob
from hypaware_pipeline.sinks.blob import BlobSink
from hypaware_pipeline.sinks.naming import is_receipt
from tests.builders import CacheBuilder
from tests.installations import JSONL, AnInstallation

DAYS = ["2026-06-05", "2026-06-06", "2026-06-07"]

Lie = Callable[["LyingStore", str], bytes | None]
"""What a store gives back of a receipt; None for nothing."""


class LyingStore:
    """A store that takes everything, and gives receipts back as it pleases."""

    def __init__(self, store: Any, lie: Lie) -> None:
        self._store = store
        self._lie = lie
        self._taken: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def true(self, key: str) -> bytes:
        """What was put last."""
        with self._store.get(key) as blob:
            return bytes(blob.body.read())

    def put(self, key: str, write: Any, **options: Any) -> Any:
        self._taken.add(key)
        return self._store.put(key, write, **options)

    def get(self, key: str) -> AbstractContextManager[Blob | None]:
        return self._receipt(key) if is_receipt(key) and key in self._taken else self._store.get(key)

    @contextmanager
    def _receipt(self, key: str) -> Iterator[Blob | None]:
        body = self._lie(self, key)
        yield None if body is None else Blob(BytesIO(body), len(body), "etag")


@pytest.fixture
def feed(cache: CacheBuilder, home: Path) -> AnInstallation:
    for day in DAYS:
        cache.with_day(day)
    return AnInstallation(home, cache.root, sinks={"feed": {**JSONL, "config": {"dir": "out/feed"}}})


def export_through(feed: AnInstallation, lie: Lie, days: list[str]) -> list[DayOutcome]:
    sink = build_sink(feed.installation.config.sinks[SinkName("feed")], feed.env)
    assert isinstance(sink.writer, BlobSink)
    lying = replace(sink, writer=replace(sink.writer, store=LyingStore(sink.store, lie)))
    with feed.installation.open_ledger() as ledger:
        rows = feed.installation.slice(DatasetName("logs"), [Day(day) for day in days])
        return list(Exporter(lying, ledger, feed.installation.clock).export(rows))


def nothing(store: LyingStore, key: str) -> bytes | None:
    return None


def torn(store: LyingStore, key: str) -> bytes | None:
    return store.true(key)[:-20]


def bent(store: LyingStore, key: str) -> bytes | None:
    return store.true(key).replace(b'"rows": 3', b'"rows": 2')


@pytest.mark.parametrize(
    ("lie", "reason"),
    [(nothing, "does not have it"), (torn, "is no receipt to be believed"), (bent, "its parts do not add up")],
)
def test_what_a_store_lost_or_changed_is_not_recorded_and_stops_the_sink(feed: AnInstallation, lie: Lie, reason: str) -> None:
    outcomes = export_through(feed, lie, DAYS)
    assert [outcome.status for outcome in outcomes] == ["failed"] * 3
    assert all(reason in (outcome.error or "") for outcome in outcomes)
    assert not (feed.out() / f"logs/day={DAYS[2]}").exists(), "the third day was not tried"
    assert feed.due() == DAYS
    assert {outcome.status for outcome in feed.export()} == {"exported"}


def test_an_older_receipt_than_the_one_just_put_is_not_taken_for_it(feed: AnInstallation) -> None:
    feed.export(DAYS[:1])
    feed.now = feed.now.replace(hour=13)

    def stale(store: LyingStore, key: str) -> bytes | None:
        return store.true(key).replace(b"T13:", b"T12:")

    (outcome,) = export_through(feed, stale, DAYS[:1])
    assert outcome.status == "failed"
    assert "which is of 2026-06-10T12:00:00.000Z" in (outcome.error or "")
    with feed.installation.open_ledger() as ledger:
        receipt = ledger.receipt(SinkName("feed"), DatasetName("logs"), Day(DAYS[0]))
    assert receipt is not None
    assert receipt.exported_at == "2026-06-10T12:00:00.000Z"


def test_an_export_overtaken_between_its_receipt_and_its_look_at_it_judges_the_day_anew(feed: AnInstallation) -> None:
    overtaken = []

    def another_export(store: LyingStore, key: str) -> bytes | None:
        if not overtaken:
            overtaken.append(key)
            feed.now = feed.now.replace(hour=13)
            feed.export(DAYS[:1])
        return store.true(key)

    (outcome,) = export_through(feed, another_export, DAYS[:1])
    assert outcome.status == "exported"
    assert feed.due() == DAYS[1:]
    with feed.installation.open_ledger() as ledger:
        recorded = ledger.receipt(SinkName("feed"), DatasetName("logs"), Day(DAYS[0]))
    assert recorded == outcome.receipt
