"""Who writes a dataset at a destination: markers, and what is found where there is none."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hypaware_pipeline.errors import SinkRetryable
from hypaware_pipeline.export.installation import build_sink
from hypaware_pipeline.model import DatasetName, SinkName
from hypaware_pipeline.sinks.claims import Claim, DatasetClaim
from hypaware_pipeline.sinks.stores.local_fs import LocalFsStore
from tests.builders import a_cache
from tests.installations import JSONL, AnInstallation

DAY = "2026-06-05"


class Place:
    """A cache, and installations with ledgers of their own that export it to one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cache = a_cache(root / "cache").with_day(DAY)
        self.out = root / "out"

    def installation(self, home: str = "one", *, sink: str = "feed", **options: Any) -> AnInstallation:
        config = {sink: {**JSONL, "config": {"dir": str(self.out), **options}}}
        return AnInstallation(self.root / home, self.cache.root, sinks=config)

    def export(self, home: str = "one", *, sink: str = "feed", **options: Any) -> str | None:
        """Export the day; why it failed, if it did."""
        (outcome,) = self.installation(home, sink=sink, **options).export([DAY], sink=sink)
        assert (outcome.status == "failed") == (outcome.error is not None)
        return outcome.error

    @property
    def marker(self) -> Path:
        return self.out / "logs" / "_claim.json"

    def data(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.out.rglob("*.gz")}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_first_export_puts_a_marker_that_readers_of_data_pass_over(place: Place) -> None:
    assert place.export() is None
    with place.installation().installation.open_ledger() as ledger:
        assert json.loads(place.marker.read_text()) == {"version": 1, "ledger_id": ledger.id, "sink": "feed", "layout": 1}
    assert place.export() is None


def test_another_ledger_is_stopped_before_it_writes_and_told_whose_place_it_is(place: Place) -> None:
    place.export("one")
    before = place.data()
    reason = place.export("two", sink="copy") or ""
    assert f"{place.marker.as_uri()} says that sink 'feed' of another ledger" in reason
    assert "set takeover to true in /sinks/copy/config" in reason
    assert place.data() == before
    assert not list(place.out.rglob("_receipt.copy.json"))


def test_a_takeover_is_for_good_until_the_other_takes_over_in_turn(place: Place) -> None:
    place.export("one")
    assert place.export("two", takeover=True) is None
    assert place.export("two") is None
    assert "another ledger" in (place.export("one") or "")


def test_a_sink_that_was_renamed_is_told_its_old_name(place: Place) -> None:
    place.export(sink="feed")
    assert "sink 'feed' of this ledger" in (place.export(sink="copy") or "")
    assert place.export(sink="copy", takeover=True) is None


def test_a_newer_layout_is_taken_over_by_nobody(place: Place) -> None:
    place.export()
    marker = json.loads(place.marker.read_text())
    place.marker.write_text(json.dumps({**marker, "layout": 2}))
    for takeover in (False, True):
        assert "newer version of hypaware-pipeline (layout 2" in (place.export(takeover=takeover) or "")


def test_somebody_elses_files_stop_the_sink_and_are_named(place: Place) -> None:
    foreign = place.out / "logs" / "2026" / "events.json"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    reason = place.export() or ""
    assert foreign.as_uri() in reason
    assert not place.marker.exists()
    assert place.export(takeover=True) is None
    assert foreign.read_text() == "mine"


def test_somebody_elses_files_beside_the_dataset_stop_nothing(place: Place) -> None:
    (place.out / "logs2").mkdir(parents=True)
    (place.out / "logs2" / "x").write_text("mine")
    (place.out / "readme.txt").write_text("mine")
    assert place.export() is None


def test_an_export_of_before_there_were_markers_gets_one(place: Place) -> None:
    place.export()
    place.marker.unlink()
    assert place.export() is None
    assert place.marker.exists()


def test_an_export_of_another_ledger_of_before_there_were_markers_is_left_alone(place: Place) -> None:
    place.export("one")
    place.marker.unlink()
    assert "was written by another ledger" in (place.export("two") or "")


def test_a_marker_that_is_none_counts_for_nothing_and_the_receipts_decide(place: Place) -> None:
    place.export("one")
    place.marker.write_text("{")
    assert "another ledger" in (place.export("two") or "")
    assert place.export("one") is None
    assert json.loads(place.marker.read_text())["sink"] == "feed"


def test_a_lost_ledger_stops_the_sink_until_it_is_told_to_go_on(place: Place) -> None:
    installation = place.installation()
    installation.export([DAY])
    shutil.rmtree(installation.installation.state.root)
    assert "a lost ledger" in (place.export() or "")
    assert place.export(takeover=True) is None


def test_a_place_that_another_takes_between_check_and_write_is_not_written(tmp_path: Path) -> None:
    store = LocalFsStore(tmp_path)
    mine, theirs = (
        DatasetClaim(store, "p", DatasetName("logs"), Claim(ledger, SinkName("feed")), takeover=False) for ledger in ("a", "b")
    )
    mine.check()
    theirs.hold()
    with pytest.raises(SinkRetryable, match="at this moment"):
        mine.hold()


def test_two_runs_of_one_sink_may_claim_at_once(tmp_path: Path) -> None:
    store = LocalFsStore(tmp_path)
    one, other = (DatasetClaim(store, "", DatasetName("logs"), Claim("a", SinkName("feed")), takeover=False) for _ in range(2))
    one.check()
    other.hold()
    one.hold()


def test_a_run_looks_at_the_marker_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    days = [DAY, "2026-06-06", "2026-06-07"]
    for day in days[1:]:
        place.cache.with_day(day)
    installation = place.installation()
    installation.export(days)
    sink = build_sink(installation.installation.config.sinks[SinkName("feed")], installation.env)
    read: list[str] = []
    original = type(sink.store).get
    monkeypatch.setattr(type(sink.store), "get", lambda self, key: (read.append(key), original(self, key))[1])
    installation.export(days)
    assert [key for key in read if "_claim" in key] == ["logs/_claim.json"]
