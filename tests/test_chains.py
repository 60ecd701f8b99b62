"""Chains: whether a source is the one that was seen before, on real directories, through all that befalls a cache."""

import json
import random
import shutil
from pathlib import Path

import pyarrow.compute as pc
import pytest

from hypaware_pipeline.cache.chains import Link, Remembered, link
from hypaware_pipeline.cache.layout import SourceLocation
from hypaware_pipeline.cache.manifests import ManifestMemory
from hypaware_pipeline.cache.snapshot import SourcePin, pin_source
from hypaware_pipeline.demo import mishaps
from hypaware_pipeline.demo.writer import CacheWriter
from hypaware_pipeline.model import DatasetName, SourceName
from tests.builders import CacheBuilder, a_cache, a_log

LOGS, UNKNOWN = DatasetName("logs"), SourceName("unknown")


@pytest.fixture
def cache(tmp_path: Path) -> CacheBuilder:
    return a_cache(tmp_path / "cache").with_day("2026-06-01").with_day("2026-06-02")


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    return tmp_path / "backup"


def a_pin(cache: CacheBuilder) -> SourcePin:
    return pin_source(SourceLocation(LOGS, UNKNOWN, cache.source_directory()), ManifestMemory(None))


def seen(cache: CacheBuilder) -> Remembered:
    pin = a_pin(cache)
    return Remembered(pin.table_dir.name, pin.table_uuid, pin.snapshot_id, pin.sequence_number)


def linked(remembered: Remembered | None, cache: CacheBuilder) -> Link:
    return link(remembered, a_pin(cache))


def restored(cache: CacheBuilder, backup: Path) -> CacheBuilder:
    """The cache as its backup has it, and a new writer that knows nothing of what came after."""
    mishaps.restore(cache.root, backup)
    cache.writer = CacheWriter(cache.root, clock=cache.clock, rng=random.Random(7))
    return cache


def set_current(cache: CacheBuilder, snapshot_id: int | None) -> None:
    path = max(cache.table_directory().glob("metadata/v*.metadata.json"), key=lambda item: int(item.name[1:].split(".")[0]))
    path.write_text(json.dumps({**json.loads(path.read_text()), "current-snapshot-id": snapshot_id}))


# --- what is proven -------------------------------------------------------------------------------------------------------------


def test_a_source_never_seen_is_the_first_of_its_chain(cache: CacheBuilder) -> None:
    assert linked(None, cache) is Link.FIRST
    assert Link.FIRST.proven


def test_a_source_that_did_not_change_is_the_same(cache: CacheBuilder) -> None:
    before = seen(cache)
    assert linked(before, cache) is Link.SAME


@pytest.mark.parametrize("flushes", [1, 2, 5])
def test_a_source_that_grew_by_flushes_goes_on(cache: CacheBuilder, flushes: int) -> None:
    before = seen(cache)
    for _ in range(flushes):
        cache.with_day("2026-06-03")
    assert linked(before, cache) is Link.GROWN


def test_a_source_whose_rows_were_deleted_goes_on(cache: CacheBuilder) -> None:
    before = seen(cache)
    assert cache.writer.retention(cache.clock(), datasets=["logs"])
    assert linked(before, cache) is Link.GROWN


def test_an_empty_table_goes_on_with_its_first_rows(cache: CacheBuilder) -> None:
    cache.writer.retention(cache.clock(), datasets=["logs"])
    cache.writer.compact("logs", "unknown")
    before = seen(cache)
    assert before.snapshot_id is None
    assert linked(before, cache) is Link.SAME
    assert linked(before, cache.with_day("2026-06-03")) is Link.GROWN


def test_a_source_that_had_no_table_yet_begins_with_its_first(cache: CacheBuilder) -> None:
    nothing = Remembered("table", "", None, 0)
    assert linked(nothing, cache) is Link.FIRST


def test_a_snapshot_that_expired_is_followed_by_younger_ones_only(cache: CacheBuilder) -> None:
    before = seen(cache)
    for _ in range(4):
        cache.with_day("2026-06-03")
    cache.writer.expire_snapshots("logs", "unknown", keep=2)
    assert linked(before, cache) is Link.EXPIRED
    assert Link.EXPIRED.proven


@pytest.mark.parametrize("kept", ["some", "none"])
def test_what_expired_long_ago_is_told_by_numbers_alone(cache: CacheBuilder, kept: str) -> None:
    before = seen(cache)
    for _ in range(4):
        cache.with_day("2026-06-03")
    cache.writer.expire_snapshots("logs", "unknown", keep=2)
    for path in (cache.table_directory() / "metadata").glob("v*.metadata.json"):
        if int(path.name[1:].split(".")[0]) < (5 if kept == "some" else 8):
            path.unlink()
    assert linked(before, cache) is Link.EXPIRED


def test_a_snapshot_that_has_only_just_expired_is_still_named_by_the_next(cache: CacheBuilder) -> None:
    before = seen(cache)
    cache.with_day("2026-06-03").with_day("2026-06-03")
    cache.writer.expire_snapshots("logs", "unknown", keep=2)
    assert before.snapshot_id not in {snapshot.id for snapshot in a_pin(cache).snapshots}
    assert linked(before, cache) is Link.GROWN


@pytest.mark.parametrize("old_table", ["there", "gone"])
@pytest.mark.parametrize("flushed", ["before", "after", "never"])
def test_a_compacted_source_goes_on(cache: CacheBuilder, flushed: str, old_table: str) -> None:
    before = seen(cache)
    if flushed == "before":
        cache.with_day("2026-06-03")
    cache.writer.compact("logs", "unknown")
    if flushed == "after":
        cache.with_day("2026-06-03")
    if old_table == "gone":
        cache.writer.expire_retired("logs", "unknown")
    assert a_pin(cache).previous_table == before.table_dir
    assert linked(before, cache) is Link.COMPACTED
    assert Link.COMPACTED.proven


def test_each_of_many_compactions_goes_on_when_all_are_seen(cache: CacheBuilder) -> None:
    before = seen(cache)
    for _ in range(3):
        cache.writer.compact("logs", "unknown")
        assert linked(before, cache) is Link.COMPACTED
        before = seen(cache)


@pytest.mark.parametrize("meanwhile", ["same", "grown", "compacted"])
def test_a_cache_that_was_moved_goes_on(cache: CacheBuilder, tmp_path: Path, meanwhile: str) -> None:
    before = seen(cache)
    if meanwhile == "grown":
        cache.with_day("2026-06-03")
    if meanwhile == "compacted":
        cache.writer.compact("logs", "unknown")
    cache.root = cache.root.rename(tmp_path / "moved")
    assert linked(before, cache) == meanwhile


def test_an_epoch_names_the_one_it_was_compacted_from(cache: CacheBuilder) -> None:
    source = cache.source_directory()
    (source / "table").rename(source / "epoch=3")
    (source / "cursor.json").write_text('{"epoch": 3, "rowCount": 6}')
    before = seen(cache)
    another = a_cache(cache.root.parent / "other", seed=3).with_day("2026-06-01")
    shutil.copytree(another.table_directory(), source / "epoch=4")
    cursor = {"epoch": 4, "rowCount": 3, "compaction": {"previousEpoch": 3, "compactedAt": "2026-06-10T00:00:00.000Z"}}
    (source / "cursor.json").write_text(json.dumps(cursor))
    assert linked(before, cache) is Link.COMPACTED


# --- what is not ----------------------------------------------------------------------------------------------------------------


def test_an_older_copy_of_a_table_is_rewound(cache: CacheBuilder, backup: Path) -> None:
    """Believed, its missing rows would be removed from the sinks."""
    mishaps.back_up(cache.root, backup)
    before = seen(cache.with_day("2026-06-03"))
    assert linked(before, restored(cache, backup)) is Link.REWOUND
    assert not Link.REWOUND.proven


@pytest.mark.parametrize("flushes", [1, 2, 3, 7])
@pytest.mark.parametrize("expired", [False, True])
def test_a_table_that_went_another_way_after_a_restore_is_rewound(
    cache: CacheBuilder, backup: Path, flushes: int, expired: bool
) -> None:
    """It has the sequence numbers of the table it was, or higher ones."""
    mishaps.back_up(cache.root, backup)
    before = seen(cache.with_day("2026-06-03"))
    restored(cache, backup)
    for _ in range(flushes):
        cache.with_day("2026-06-03")
    if expired:
        cache.writer.expire_snapshots("logs", "unknown", keep=2)
    assert (a_pin(cache).sequence_number >= before.sequence_number) == (flushes >= 1)
    assert linked(before, cache) is Link.REWOUND


def test_damage_proves_no_expiry(cache: CacheBuilder) -> None:
    before = seen(cache)
    for _ in range(4):
        cache.with_day("2026-06-03")
    cache.writer.expire_snapshots("logs", "unknown", keep=2)
    paths = sorted(
        (cache.table_directory() / "metadata").glob("v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0])
    )
    for path in paths[:-1]:
        path.write_text("{")
    assert linked(before, cache) is Link.REWOUND


def test_a_table_set_back_to_an_earlier_snapshot_is_rewound(cache: CacheBuilder) -> None:
    before = seen(cache)
    set_current(cache, a_pin(cache).snapshots[0].id)
    assert linked(before, cache) is Link.REWOUND
    set_current(cache, None)
    assert linked(before, cache) is Link.REWOUND


def test_a_restored_copy_from_before_a_compaction_is_replaced(cache: CacheBuilder, backup: Path) -> None:
    mishaps.back_up(cache.root, backup)
    cache.writer.compact("logs", "unknown")
    before = seen(cache)
    assert linked(before, restored(cache, backup)) is Link.REPLACED
    assert not Link.REPLACED.proven


def test_a_cache_that_was_reset_is_replaced(cache: CacheBuilder) -> None:
    before = seen(cache)
    mishaps.wipe(cache.root)
    assert linked(before, a_cache(cache.root, seed=3).with_day("2026-06-01")) is Link.REPLACED


def test_two_compactions_unseen_are_one_too_many(cache: CacheBuilder) -> None:
    before = seen(cache)
    cache.writer.compact("logs", "unknown")
    cache.writer.compact("logs", "unknown")
    assert linked(before, cache) is Link.REPLACED


def test_a_compaction_of_a_table_that_was_rewound_is_replaced(cache: CacheBuilder, backup: Path) -> None:
    """The cursor names a directory of the remembered name; what lies there is not what was remembered."""
    mishaps.back_up(cache.root, backup)
    before = seen(cache.with_day("2026-06-03"))
    restored(cache, backup).writer.compact("logs", "unknown")
    assert a_pin(cache).previous_table == before.table_dir
    assert linked(before, cache) is Link.REPLACED


def test_a_compaction_of_a_table_that_was_reset_is_replaced(cache: CacheBuilder) -> None:
    before = seen(cache)
    mishaps.wipe(cache.root)
    new = a_cache(cache.root, seed=3).with_day("2026-06-01")
    new.writer.compact("logs", "unknown")
    assert linked(before, new) is Link.REPLACED


def test_a_damaged_table_proves_no_compaction(cache: CacheBuilder) -> None:
    before = seen(cache)
    cache.writer.compact("logs", "unknown")
    for path in (cache.source_directory() / "table" / "metadata").glob("v*.metadata.json"):
        path.write_text("{")
    assert linked(before, cache) is Link.REPLACED


def test_a_source_that_lost_its_table_is_replaced(cache: CacheBuilder) -> None:
    before = seen(cache)
    mishaps.wipe(cache.root)
    cache.source_directory().mkdir(parents=True)
    (cache.source_directory() / "cursor.json").write_text('{"epoch": 0, "rowCount": 0}')
    assert linked(before, cache) is Link.REPLACED


def test_a_settled_row_breaks_no_chain(cache: CacheBuilder) -> None:
    before = seen(cache.with_rows("logs", [a_log("2026-06-03")]))
    cache.writer.settle("logs", "unknown", pc.field("severityNumber") == 9, severityText="WARN")
    assert linked(before, cache) is Link.COMPACTED
