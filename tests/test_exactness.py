"""One scenario for every rule about which row is which and what may be removed; `tests/model` looks for the others."""

import datetime as dt
import json
import random

import pyarrow.compute as pc
import pytest

from hypaware_pipeline.demo import mishaps
from hypaware_pipeline.demo.writer import CacheWriter
from hypaware_pipeline.export.plan import Reason
from hypaware_pipeline.model import Kept
from tests.builders import a_log, a_message
from tests.installations import AnInstallation

DAY = "2026-06-05"
AFTER_IT = dt.datetime(2026, 6, 6, tzinfo=dt.UTC)
AT_NOON = dt.datetime(2026, 6, 5, 12, tzinfo=dt.UTC)
HOURS = 3600


@pytest.fixture
def installation(cache, home):
    """Exports the cache, an hour after it begins."""
    return AnInstallation(home, cache.root, now=cache.clock.moment + dt.timedelta(hours=1))


def logs(*numbers, day=DAY, **changes):
    return [a_log(day, number, **changes) for number in numbers]


def numbered(installation):
    """The numbers of the rows at the sink."""
    return sorted(json.loads(row)["body"]["number"] for row in installation.rows().elements())


def names(installation, day=DAY):
    prefix = f"logs/day={day}/"
    return sorted(name.removeprefix(prefix) for name in installation.objects() if name.startswith(prefix))


def only(*numbers):
    """The rows of these sequence numbers."""
    return pc.field("_hyp_ingest_seq").isin(list(numbers))


def let_deletions_settle(installation, cache):
    installation.now = cache.clock.moment + dt.timedelta(minutes=16)


def begin_anew(cache):
    """Other processes of HypAware write to the cache from here on."""
    cache.writer = CacheWriter(cache.root, clock=cache.clock, rng=random.Random(9))
    return cache


def assert_nothing_is_due(installation):
    assert installation.due() == []


# --- which row is which ---------------------------------------------------------------------------------------------------------


def test_a_cache_that_was_reset_and_uses_the_same_numbers_on_the_same_day_adds_its_rows(cache, installation):
    cache.with_rows("logs", logs(0, 1, 2))
    installation.export()
    mishaps.wipe(cache.root)
    begin_anew(cache).with_rows("logs", logs(10, 11))
    (outcome,) = installation.export()

    assert numbered(installation) == [0, 1, 2, 10, 11]
    marked, plain = names(installation)
    assert plain == "unknown.jsonl.gz"
    assert marked.startswith("unknown.g")
    assert (outcome.receipt.rows, outcome.receipt.kept_rows, outcome.receipt.kept) == (2, 3, Kept.UNPROVEN)
    let_deletions_settle(installation, cache)
    assert_nothing_is_due(installation)


def test_a_row_of_the_new_generation_goes_as_rows_do_and_those_of_the_old_one_stay(cache, installation):
    cache.with_rows("logs", logs(0, 1, 2))
    installation.export()
    mishaps.wipe(cache.root)
    begin_anew(cache).with_rows("logs", logs(10, 11))
    installation.export()
    cache.writer.delete("logs", "unknown", only(1))
    let_deletions_settle(installation, cache)
    installation.export()

    assert numbered(installation) == [0, 1, 2, 11]


def test_a_counter_that_was_lost_makes_rows_of_one_table_tell_two_generations(cache, installation):
    cache.with_rows("logs", logs(0, 1, 2))
    installation.export()
    mishaps.lose_sequence(cache.root)
    begin_anew(cache).with_rows("logs", logs(10, 11))
    installation.export()

    assert numbered(installation) == [0, 1, 2, 10, 11]
    assert_nothing_is_due(installation)


@pytest.mark.parametrize("mishap", [mishaps.wipe, mishaps.lose_sequence], ids=["reset", "counter lost"])
def test_rows_without_a_timestamp_are_others_than_those_that_had_their_numbers_before(cache, installation, mishap):
    """Numbers and moments were all that told them apart, so that the new rows took the place of the old ones."""
    cache.with_rows("logs", logs(0, 1, timestamp=None))
    installation.export()
    mishap(cache.root)
    begin_anew(cache).with_rows("logs", logs(10, 11, timestamp=None))
    installation.export()

    assert numbered(installation) == [0, 1, 10, 11]
    assert_nothing_is_due(installation)


def test_a_number_that_a_table_has_twice_is_two_rows(cache, installation):
    cache.with_rows("logs", logs(0, 1, 2), sequence=[7, 7, 8])
    installation.export()
    assert numbered(installation) == [0, 1, 2]
    cache.writer.compact("logs", "unknown")
    cache.with_rows("logs", logs(3), sequence=[7])
    installation.export()

    assert numbered(installation) == [0, 1, 2, 3]
    assert_nothing_is_due(installation)


@pytest.mark.parametrize("with_sequence", [False, True], ids=["no column", "no value"])
def test_rows_without_a_number_are_told_apart_by_what_they_say(cache, installation, with_sequence):
    unnumbered = {"with_sequence": with_sequence, "sequence": [None] * 2}
    cache.with_rows("logs", logs(0, 1), **unnumbered)
    installation.export()
    cache.writer.compact("logs", "unknown")
    assert_nothing_is_due(installation)
    cache.with_rows("logs", logs(2, 3), **unnumbered)
    installation.export()

    assert numbered(installation) == [0, 1, 2, 3]
    assert len(names(installation)) == 1


def test_two_rows_without_a_number_that_are_alike_in_everything_are_two_rows(cache, installation):
    cache.with_rows("logs", logs(0, 0, 1), with_sequence=False)
    installation.export()
    assert numbered(installation) == [0, 0, 1]
    cache.writer.compact("logs", "unknown")
    cache.with_rows("logs", logs(0), with_sequence=False)
    installation.export()

    assert numbered(installation) == [0, 0, 0, 1]
    assert_nothing_is_due(installation)


def test_a_settled_row_replaces_itself(cache, installation):
    dataset = "ai_gateway_messages"
    cache.with_rows(dataset, [a_message(DAY, number) for number in range(2)], source="claude")
    installation.export(dataset=dataset)
    cache.writer.settle(dataset, "claude", only(1), part_id="settled")
    (outcome,) = installation.export(dataset=dataset)

    rows = [json.loads(row) for row in installation.rows(dataset=dataset).elements()]
    assert sorted((row["message_index"], row["part_id"]) for row in rows) == [(0, "settled"), (1, f"msg-{DAY}-1#0")]
    assert outcome.receipt.kept_rows == 0


def test_two_writers_with_blocks_of_their_own_lose_nothing_when_exported_between_their_commits(cache, installation):
    """HypAware's own watermark passes the numbers of the first writer with the commit of the second."""
    first, second = cache.writer, cache.another_writer()
    early = first.reserve(2)
    for number, (writer, sequence) in enumerate([(second, None), (first, early[:1]), (second, None), (first, early[1:])]):
        writer.append("logs", "unknown", logs(number), sequence=sequence)
        installation.export()
        assert numbered(installation) == list(range(number + 1))
    assert names(installation) == ["unknown.jsonl.gz"]


# --- where rows are -------------------------------------------------------------------------------------------------------------


def test_rows_that_go_to_another_source_are_in_one_object_at_a_time(cache, installation):
    cache.with_rows("logs", logs(0, 1, 2), source="a").with_rows("logs", logs(3), source="b")
    installation.export()
    cache.writer.move("logs", "a", "b", only(1, 2))
    (outcome,) = installation.export()

    assert numbered(installation) == [0, 1, 2, 3]
    assert outcome.receipt.kept_rows == 0
    rows = {file.source: file.rows for file in outcome.receipt.files}
    assert rows == {"a": 1, "b": 3}


def test_rows_that_lie_in_two_sources_for_a_moment_are_in_one_afterwards(cache, installation):
    cache.with_rows("logs", logs(0, 1), source="a")
    installation.export()
    cache.writer.move("logs", "a", "b", only(1), on_commit=installation.export)
    let_deletions_settle(installation, cache)
    installation.export()

    assert numbered(installation) == [0, 1]
    assert_nothing_is_due(installation)


def test_rows_that_go_from_a_source_that_cannot_be_followed_are_not_doubled(cache, installation):
    cache.with_rows("logs", logs(0, 1, 2), source="a")
    installation.export()
    cache.writer.move("logs", "a", "b", only(1))
    cache.writer.compact("logs", "a")  # a second time since the last export: nothing tells what the first left out
    cache.writer.delete("logs", "a", only(2))
    let_deletions_settle(installation, cache)
    (outcome,) = installation.export()

    assert numbered(installation) == [0, 1, 2]
    assert outcome.receipt.kept is Kept.UNPROVEN
    assert_nothing_is_due(installation)


@pytest.mark.parametrize("renumbered", [False, True], ids=["same numbers", "new numbers"])
def test_a_migrated_source_gives_its_objects_up_to_the_new_one(cache, installation, renumbered):
    cache.with_rows("logs", logs(0, 1, 2), source="old")
    installation.export()
    if renumbered:
        cache.with_rows("logs", logs(0, 1, 2), source="new")
        cache.writer.delete("logs", "old", only(1, 2, 3))
        cache.writer.migrate("logs", "old", "new")
        let_deletions_settle(installation, cache)
    else:
        cache.writer.migrate("logs", "old", "new")
    installation.export()

    assert numbered(installation) == [0, 1, 2]
    assert names(installation) == ["new.jsonl.gz"]
    assert_nothing_is_due(installation)


def test_what_retention_took_from_a_source_before_it_was_migrated_stays(cache, installation):
    """A new row of the day was taken for the one that was gone, and its copy removed."""
    cache.with_rows("logs", logs(0, 20 * HOURS), source="old")
    installation.export()
    cache.writer.retention(AT_NOON)
    cache.writer.migrate("logs", "old", "new")
    cache.with_rows("logs", logs(21 * HOURS), source="new")
    let_deletions_settle(installation, cache)
    installation.export()

    assert numbered(installation) == [0, 20 * HOURS, 21 * HOURS]
    assert_nothing_is_due(installation)


def test_two_days_that_wait_for_the_same_undated_object_do_not_ask_for_each_other_for_ever(cache, installation):
    cache.with_rows("logs", logs(1, 2, day="2026-06-20") + logs(3, day="2026-06-21"))
    installation.export()
    mishaps.wipe(cache.root)
    begin_anew(cache).with_rows("logs", logs(1, day="2026-06-20"))
    cache.with_rows("logs", logs(3, day="2026-06-21"), sequence=[3])
    installation.export()
    installation.now = dt.datetime(2026, 6, 21, 12, tzinfo=dt.UTC)
    cache.with_rows("logs", logs(4, day="2026-06-20") + logs(5, day="2026-06-21"))
    for _ in range(3):
        installation.export()
    assert_nothing_is_due(installation)
    assert numbered(installation) == [1, 2, 3, 4, 5]


def test_an_undated_row_goes_to_its_day_when_that_comes(cache, installation):
    cache.with_rows("logs", [*logs(0, timestamp=None), *logs(1, 2, day="2026-06-12")])
    installation.export()
    assert len(names(installation, "__HIVE_DEFAULT_PARTITION__")) == 1
    assert names(installation, "2026-06-12") == []
    installation.now += dt.timedelta(days=1)
    while installation.due():
        installation.export(installation.due())

    assert numbered(installation) == [0, 1, 2]
    assert len(names(installation, "2026-06-12")) == 1


def test_a_row_that_reached_its_day_leaves_the_undated_ones_though_the_cache_was_reset_in_between(cache, installation):
    """It stayed in both objects for good: nothing proved that it was not lost."""
    cache.with_day("2026-06-20", rows=2)
    installation.export()
    installation.now = installation.now.replace(day=20)
    installation.export(["2026-06-20"])
    mishaps.wipe(cache.root)
    CacheWriter(cache.root).append("logs", "unknown", [a_log("2026-06-20", 900)])
    for _ in range(2):
        installation.export()
    assert sum(installation.rows().values()) == 3
    assert max(installation.rows().values()) == 1
    assert installation.due() == []


def test_an_undated_row_whose_day_is_exported_later_stays_where_it_is_until_then(cache, installation):
    cache.with_rows("logs", logs(1, day="2026-06-12"))
    installation.export()
    installation.now += dt.timedelta(days=1)
    (outcome,) = installation.export(["undated"])
    assert (outcome.receipt.kept, numbered(installation)) == (Kept.MOVING, [1])
    installation.export(["2026-06-12"])
    installation.export(["undated"])

    assert numbered(installation) == [1]
    assert names(installation, "__HIVE_DEFAULT_PARTITION__") == []
    assert_nothing_is_due(installation)


def test_a_day_whose_rows_an_undated_object_will_not_give_up_is_due_once(cache, installation):
    cache.with_rows("logs", logs(1, 2, day="2026-06-20"))
    installation.export()
    mishaps.wipe(cache.root)
    begin_anew(cache).with_rows("logs", logs(1, day="2026-06-20"))
    installation.export()
    installation.now = dt.datetime(2026, 6, 20, 12, tzinfo=dt.UTC)
    outcomes = {outcome.day: outcome.receipt for outcome in installation.export()}
    day = outcomes["2026-06-20"]
    assert (day.rows, day.elsewhere_rows, day.kept, day.files) == (1, 1, Kept.MOVING, ())

    cache.with_rows("logs", logs(3, day="2026-06-19") + logs(4, day="2026-06-18"))
    installation.export()
    installation.export()
    assert_nothing_is_due(installation)
    assert numbered(installation) == [1, 2, 3, 4]


# --- what may be removed --------------------------------------------------------------------------------------------------------


def test_what_is_purged_leaves_the_sink_a_quarter_of_an_hour_later(cache, installation):
    cache.with_rows("logs", logs(0, 1, 2))
    installation.export()
    cache.writer.delete("logs", "unknown", only(2))
    installation.now = cache.clock.moment + dt.timedelta(minutes=14)
    installation.export()
    assert numbered(installation) == [0, 1, 2]
    assert [entry.reason for entry in installation.plan()] == [Reason.SETTLING]
    let_deletions_settle(installation, cache)
    installation.export()

    assert numbered(installation) == [0, 2]
    assert_nothing_is_due(installation)


def test_what_is_purged_leaves_the_sink_though_the_table_is_compacted_before_every_look(cache, installation):
    """HypAware compacts every hour. Where that fell shortly before an hourly tick, a purge waited for ever."""
    cache.with_day(DAY, rows=3).with_day(DAY, rows=1, serviceName="secret")
    installation.export()
    cache.writer.delete("logs", "unknown", pc.field("serviceName") == "secret")
    for _ in range(3):
        cache.clock.moment += dt.timedelta(hours=1)
        cache.writer.compact("logs", "unknown")
        installation.now = cache.clock.moment + dt.timedelta(minutes=10)
        installation.export()
    assert not [row for row in installation.rows() if "secret" in row]
    assert sum(installation.rows().values()) == 3
    assert installation.due() == []


def test_new_rows_of_a_day_that_waits_for_a_deletion_to_settle_are_exported_at_once(cache, installation):
    cache.with_rows("logs", logs(0, 1, 2))
    installation.export()
    cache.writer.delete("logs", "unknown", only(2))
    cache.with_rows("logs", logs(3))
    installation.now = cache.clock.moment
    installation.export()
    assert numbered(installation) == [0, 1, 2, 3]
    assert names(installation) == ["unknown.4-4.jsonl.gz", "unknown.jsonl.gz"]
    let_deletions_settle(installation, cache)
    installation.export()

    assert numbered(installation) == [0, 2, 3]
    assert names(installation) == ["unknown.jsonl.gz"]


def test_what_is_purged_and_compacted_away_is_purged_all_the_same(cache, installation):
    cache.with_rows("logs", logs(0, 1, 2))
    installation.export()
    cache.writer.delete("logs", "unknown", only(2))
    cache.writer.compact("logs", "unknown")
    cache.writer.expire_retired("logs", "unknown")
    let_deletions_settle(installation, cache)
    installation.export()

    assert numbered(installation) == [0, 2]


def test_what_vanished_between_two_compactions_that_nobody_saw_stays(cache, installation):
    cache.with_rows("logs", logs(0, 1, 2))
    installation.export()
    cache.writer.compact("logs", "unknown")
    cache.writer.delete("logs", "unknown", only(2))
    cache.writer.compact("logs", "unknown")
    let_deletions_settle(installation, cache)
    (outcome,) = installation.export()

    assert numbered(installation) == [0, 1, 2]
    assert (outcome.receipt.kept, outcome.receipt.kept_rows) == (Kept.UNPROVEN, 1)
    assert_nothing_is_due(installation)


def test_retention_takes_nothing_from_a_sink_at_any_of_its_steps(cache, installation):
    cache.with_rows("logs", logs(*range(0, 24 * HOURS, 4 * HOURS)))
    whole = [*range(0, 24 * HOURS, 4 * HOURS)]
    installation.export()
    steps = []

    def look():
        let_deletions_settle(installation, cache)
        cache.clock.moment += dt.timedelta(minutes=1)
        installation.now = cache.clock.moment
        installation.export()
        steps.append(numbered(installation))

    cache.writer.retention(AFTER_IT, rows_per_commit=2, on_commit=look)
    assert steps == [whole] * 3
    let_deletions_settle(installation, cache)
    installation.export()
    assert numbered(installation) == whole
    assert_nothing_is_due(installation)


def test_late_rows_of_a_day_that_retention_reached_are_added_in_an_object_of_their_own(cache, installation):
    cache.with_rows("logs", logs(0, 20 * HOURS))
    installation.export()
    cache.writer.retention(AT_NOON)
    cache.with_rows("logs", logs(21 * HOURS, 22 * HOURS))
    let_deletions_settle(installation, cache)
    (outcome,) = installation.export()

    assert numbered(installation) == [0, 20 * HOURS, 21 * HOURS, 22 * HOURS]
    assert names(installation) == ["unknown.3-4.jsonl.gz", "unknown.jsonl.gz"]
    assert (outcome.receipt.kept, outcome.receipt.kept_rows) == (Kept.FROZEN, 1)
    assert_nothing_is_due(installation)


def test_late_rows_without_a_number_are_added_to_a_day_that_retention_reached(cache, installation):
    cache.with_rows("logs", logs(0, 20 * HOURS), with_sequence=False)
    installation.export()
    cache.writer.retention(AT_NOON)
    cache.with_rows("logs", logs(21 * HOURS), with_sequence=False)
    let_deletions_settle(installation, cache)
    installation.export()
    assert numbered(installation) == [0, 20 * HOURS, 21 * HOURS]
    cache.writer.compact("logs", "unknown")
    cache.with_rows("logs", logs(22 * HOURS), with_sequence=False)
    let_deletions_settle(installation, cache)
    installation.export()

    assert numbered(installation) == [0, 20 * HOURS, 21 * HOURS, 22 * HOURS]
    assert_nothing_is_due(installation)


def test_a_backup_of_last_week_takes_nothing_away_and_can_be_gone_on_with(cache, installation, tmp_path):
    cache.with_rows("logs", logs(0, 1))
    mishaps.back_up(cache.root, tmp_path / "backup")
    cache.with_rows("logs", logs(2, 3)).with_rows("logs", logs(4, day="2026-06-06"))
    installation.export()
    mishaps.restore(cache.root, tmp_path / "backup")
    let_deletions_settle(installation, cache)
    installation.export()
    assert numbered(installation) == [0, 1, 2, 3, 4]
    # The counter is last week's as well: these take the numbers that 1,025 and on have had.
    begin_anew(cache).with_rows("logs", logs(12, 13))
    installation.export()

    assert numbered(installation) == [0, 1, 2, 3, 4, 12, 13]
    let_deletions_settle(installation, cache)
    assert_nothing_is_due(installation)


def test_a_backup_that_was_gone_on_with_past_the_point_at_which_it_was_restored_is_still_another(cache, installation, tmp_path):
    """By then its sequence number is higher than the remembered one again."""
    cache.with_rows("logs", logs(0, 1))
    mishaps.back_up(cache.root, tmp_path / "backup")
    cache.with_rows("logs", logs(2))
    installation.export()
    mishaps.restore(cache.root, tmp_path / "backup")
    begin_anew(cache)
    for number in range(10, 14):
        cache.with_rows("logs", logs(number))
    let_deletions_settle(installation, cache)
    installation.export()

    assert numbered(installation) == [0, 1, 2, 10, 11, 12, 13]


def test_a_cache_that_is_half_copied_takes_nothing_away_at_any_point(cache, installation, tmp_path):
    for source in ("a", "b"):
        cache.with_rows("logs", logs(0, 1), source=source).with_rows("logs", logs(2), source=source)
        cache.writer.delete("logs", source, pc.field("severityNumber") < 0)
    mishaps.back_up(cache.root, tmp_path / "backup")
    installation.export()
    files = sum(path.is_file() for path in (tmp_path / "backup").rglob("*"))
    for copied in range(1, files, 3):
        mishaps.restore(cache.root, tmp_path / "backup", files=copied)
        (cache.root / "datasets").mkdir(exist_ok=True)
        let_deletions_settle(installation, cache)
        installation.export()
        assert numbered(installation) == [0, 0, 1, 1, 2, 2], f"after {copied} of {files} files"
    mishaps.restore(cache.root, tmp_path / "backup")
    installation.export()

    assert numbered(installation) == [0, 0, 1, 1, 2, 2]
    assert names(installation) == ["a.jsonl.gz", "b.jsonl.gz"]
    assert_nothing_is_due(installation)


def test_a_cache_that_lies_elsewhere_is_the_same_cache(cache, installation, home):
    cache.with_rows("logs", logs(0, 1, 2))
    installation.export()
    elsewhere = cache.root.rename(cache.root.with_name("elsewhere"))
    moved = AnInstallation(home, elsewhere, now=installation.now)
    assert_nothing_is_due(moved)
    CacheWriter(elsewhere, clock=cache.clock).delete("logs", "unknown", only(2))
    let_deletions_settle(moved, cache)
    moved.export()

    assert numbered(moved) == [0, 2]
