"""HypAware rewrites its tables all the time; what it rewrites is not what changed."""

import datetime as dt
import json
import multiprocessing
import os
import random
import time
from collections import Counter
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from hypaware_pipeline.demo.writer import CacheWriter
from tests.builders import a_cache, a_log
from tests.installations import NOW, AnInstallation


def _days(count: int, last: dt.date) -> list[str]:
    return [(last - dt.timedelta(days=back)).isoformat() for back in reversed(range(count))]


def test_compacting_ninety_unchanged_days_into_one_file_makes_no_day_due(cache, tmp_path):
    for day in _days(90, NOW.date()):
        cache.with_day(day, rows=2)
    installation = AnInstallation(tmp_path / "home", cache.root)
    installation.export()
    before = installation.objects()
    cache.writer.compact("logs", "unknown")
    assert len(list((cache.table_directory() / "data").glob("*.parquet"))) == 1
    assert installation.due() == []
    installation.export(_days(90, NOW.date()))
    assert installation.objects() == before, "and its days are the same objects, byte for byte"


def test_of_hourly_flushes_with_an_hourly_compaction_only_the_days_with_new_rows_are_due(cache, tmp_path):
    installation = AnInstallation(tmp_path / "home", cache.root)
    start = NOW - dt.timedelta(hours=72)
    for hour in range(72):
        moment = start + dt.timedelta(hours=hour)
        installation.now = moment
        cache.with_rows("logs", [a_log(moment.date().isoformat(), moment.hour * 3600)])
        cache.writer.compact("logs", "unknown")
        assert installation.due() == [moment.date().isoformat()]
        installation.export()
    assert sum(installation.rows().values()) == 72


def test_a_late_row_of_an_old_day_makes_that_day_due_and_no_other(cache, tmp_path):
    for day in _days(5, NOW.date()):
        cache.with_day(day)
    installation = AnInstallation(tmp_path / "home", cache.root)
    installation.export()
    cache.with_day("2026-06-07", rows=1)
    assert installation.due() == ["2026-06-07"]


def test_rows_committed_late_with_lower_sequence_numbers_are_exported(cache, tmp_path):
    """HypAware's own driver skips them: its watermark has passed their numbers by then."""
    first, second = cache.writer, cache.another_writer()
    first.append("logs", "unknown", [a_log("2026-06-05", 0)])
    second.append("logs", "unknown", [a_log("2026-06-05", 1)])
    installation = AnInstallation(tmp_path / "home", cache.root)
    installation.export()
    first.append("logs", "unknown", [a_log("2026-06-05", 2)])
    installation.export()
    assert sum(installation.rows().values()) == 3


def _write_like_hypaware(root: Path, day: str, first: int, stop: Event, seed: int) -> None:
    """A process that flushes all the time, compacts now and then, and removes retired generations at once."""
    rng = random.Random(seed)
    writer = CacheWriter(root)
    number = first
    while not stop.is_set():
        rows = [
            a_log(day, (number + offset) % 86_400, body={"number": number + offset}) for offset in range(rng.randrange(1, 20))
        ]
        writer.append("logs", "unknown", rows)
        number += len(rows)
        if rng.random() < 0.1 and seed == 1:
            writer.compact("logs", "unknown")
            writer.expire_retired("logs", "unknown")
    (root.parent / f"written-{seed}").write_text(str(number - first))


def _export_while_written(tmp_path: Path, seconds: float) -> None:
    cache = a_cache(tmp_path / "cache").with_day("2026-06-05", rows=1, body={"number": -1})
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    writers = [
        context.Process(target=_write_like_hypaware, args=(cache.root, "2026-06-05", seed * 10_000_000, stop, seed))
        for seed in (1, 2)
    ]
    for writer in writers:
        writer.start()
    installation = AnInstallation(tmp_path / "home", cache.root, now=dt.datetime.now(dt.UTC))
    seen: Counter[str] = Counter()
    exports = 0
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            outcomes = installation.export(["2026-06-05"])
            assert [outcome.status for outcome in outcomes] == ["exported"], outcomes
            rows = installation.rows()
            assert max(rows.values()) == 1, "no row is doubled"
            assert not seen - rows, "no row that was there is gone"
            seen = rows
            exports += 1
    finally:
        stop.set()
        for writer in writers:
            writer.join(timeout=60)
    assert [writer.exitcode for writer in writers] == [0, 0]
    installation.export(["2026-06-05"])
    numbers = Counter(json.loads(row)["body"]["number"] for row in installation.rows())
    written = {seed: int((tmp_path / f"written-{seed}").read_text()) for seed in (1, 2)}
    expected = {-1, *(seed * 10_000_000 + number for seed, count in written.items() for number in range(count))}
    assert numbers == Counter(expected), f"after {exports} exports of {os.fspath(cache.root)}"
    assert exports > 1


@pytest.mark.slow
def test_no_row_is_lost_or_doubled_while_two_processes_flush_and_compact(tmp_path):
    _export_while_written(tmp_path, seconds=10)


@pytest.mark.long
def test_no_row_is_lost_or_doubled_during_a_minute_of_flushing_and_compacting(tmp_path):
    _export_while_written(tmp_path, seconds=60)
