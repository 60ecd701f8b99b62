import datetime as dt

import pytest

from hypaware_pipeline.export.plan import Reason, Standing, contiguous_ranges, plan_days
from hypaware_pipeline.model import UNDATED, DatasetName, Day, Fingerprint, PartitionSummary, SinkName, SourceName

NOW = dt.datetime(2026, 6, 10, 12, tzinfo=dt.UTC)
DAY = Day("2026-06-05")


def summary(day=DAY, rows=3, fingerprint="f", **changes):
    return PartitionSummary(
        DatasetName("logs"), day, {SourceName("a"): rows} if rows else {}, Fingerprint(fingerprint), **changes
    )


def plan(*summaries, standing=None, every=False):
    return plan_days(
        sink=SinkName("archive"),
        dataset=DatasetName("logs"),
        summaries={summary.day: summary for summary in summaries},
        standing=standing or {},
        destination="d",
        now=NOW,
        every=every,
    )


def reason(summary, standing=None, *, every=False):
    (planned,) = plan(summary, standing={summary.day: standing} if standing else {}, every=every)
    return planned.reason


def standing(fingerprint="f", destination="d", rows=3):
    return Standing(Fingerprint(fingerprint), destination, rows)


def test_a_day_never_exported_is_new():
    assert reason(summary()) is Reason.NEW


def test_a_day_without_rows_that_was_never_exported_is_not_due():
    assert reason(summary(rows=0)) is Reason.UNCHANGED


def test_a_day_whose_only_source_cannot_be_read_is_due_so_that_somebody_is_told():
    assert reason(summary(rows=0, unreadable={SourceName("a"): "torn"})) is Reason.UNREADABLE


def test_a_day_with_the_recorded_fingerprint_is_due_only_when_every_day_is_asked_for():
    assert reason(summary(), standing()) is Reason.UNCHANGED
    assert reason(summary(), standing(), every=True) is Reason.ASKED


def test_a_live_day_with_another_fingerprint_is_due():
    assert reason(summary(fingerprint="g"), standing()) is Reason.CHANGED


def test_a_day_behind_the_retention_cut_off_is_not_written_anew_from_what_is_left():
    assert reason(summary(fingerprint="g", rows=1, live=False), standing()) is Reason.FROZEN
    assert reason(summary(fingerprint="g", rows=1, live=False), standing(), every=True) is Reason.FROZEN


def test_a_live_day_that_lost_rows_a_moment_ago_waits():
    ago = dt.timedelta(minutes=14)
    assert reason(summary(fingerprint="g", rows=1, removed_at=NOW - ago), standing()) is Reason.SETTLING


def test_a_live_day_that_lost_rows_long_ago_is_written_anew():
    ago = dt.timedelta(minutes=16)
    assert reason(summary(fingerprint="g", rows=1, removed_at=NOW - ago), standing()) is Reason.CHANGED


def test_a_day_that_gained_rows_does_not_wait_for_a_removal_to_settle():
    assert reason(summary(fingerprint="g", rows=4, removed_at=NOW), standing()) is Reason.CHANGED


def test_undated_rows_are_replaced_only_while_they_do_not_shrink():
    assert reason(summary(day=UNDATED, fingerprint="g", rows=4), standing()) is Reason.CHANGED
    assert reason(summary(day=UNDATED, fingerprint="g", rows=2), standing()) is Reason.FROZEN


def test_a_receipt_of_another_destination_does_not_count_as_exported():
    assert reason(summary(), standing(destination="elsewhere")) is Reason.SINK_CHANGED


def test_a_live_day_that_became_empty_is_due_so_that_its_object_goes():
    assert reason(summary(rows=0, fingerprint="0"), standing()) is Reason.CHANGED


def test_days_come_oldest_first_and_undated_last():
    days = [UNDATED, Day("2026-06-07"), Day("2026-06-05")]
    planned = plan(*(summary(day=day) for day in days))
    assert [entry.day for entry in planned] == ["2026-06-05", "2026-06-07", UNDATED]


def test_days_are_grouped_into_contiguous_ranges():
    keys = [Day(f"2026-06-{day:02}") for day in range(1, 11)]
    days = [keys[0], keys[2], keys[1], keys[5], keys[9], keys[8]]
    assert contiguous_ranges(days, keys) == ((keys[0], keys[2]), (keys[5], keys[5]), (keys[8], keys[9]))


def test_a_day_that_is_no_partition_is_named():
    with pytest.raises(ValueError, match="2026-07-01"):
        contiguous_ranges([Day("2026-07-01")], [DAY])


def test_the_same_content_of_a_frozen_day_may_be_written_again_to_repair_it():
    assert reason(summary(live=False), standing(), every=True) is Reason.ASKED


def test_ranges_are_made_from_any_iterable():
    assert contiguous_ranges(iter([DAY]), [DAY]) == ((DAY, DAY),)


def test_drift_and_a_changed_sink_are_told_apart_in_a_word():
    assert reason(summary(fingerprint="g"), standing()).word == "drift"
    assert reason(summary(), standing(destination="elsewhere")).word == "stale"
    assert len({each.word for each in Reason}) == len(Reason)


def test_a_day_is_guessed_to_weigh_what_its_rows_weighed_in_its_last_copy_else_in_those_of_other_days():
    other, copied, emptied = Day("2026-06-06"), Day("2026-06-07"), Day("2026-06-08")
    known = {
        copied: Standing(Fingerprint("f"), "d", 10, exported_rows=10, bytes=1_000),
        emptied: Standing(Fingerprint("f"), "d", 30, exported_rows=30, bytes=7_000),
    }
    planned = plan(summary(rows=5), summary(other, 0), summary(copied, 20), summary(emptied, 0), standing=known)
    assert [(entry.day, entry.bytes, entry.again) for entry in planned] == [
        (DAY, 5 * 8_000 // 40, False),
        (other, 0, False),
        (copied, 2_000, True),
        (emptied, 0, True),
    ]


def test_what_a_day_will_weigh_is_unknown_where_nothing_was_exported():
    assert [entry.bytes for entry in plan(summary(rows=5))] == [None]
    parked = Standing(Fingerprint("f"), "d", 3)
    assert [entry.bytes for entry in plan(summary(rows=5), standing={DAY: parked})] == [None]
