import datetime as dt

import pytest

from hypaware_pipeline.export.plan import Reason, Standing, contiguous_ranges, plan_days
from hypaware_pipeline.model import UNDATED, DatasetName, Day, Fingerprint, Kept, PartitionSummary, SinkName, SourceName

NOW = dt.datetime(2026, 6, 10, 12, tzinfo=dt.UTC)
DAY = Day("2026-06-05")


def summary(day=DAY, rows=3, fingerprint="f", **changes):
    return PartitionSummary(
        DatasetName("logs"), day, {SourceName("a"): rows} if rows else {}, Fingerprint(fingerprint), **changes
    )


def plan(*summaries, standing=None, **changes):
    return plan_days(
        sink=SinkName("archive"),
        dataset=DatasetName("logs"),
        summaries={summary.day: summary for summary in summaries},
        standing=standing or {},
        destination="d",
        now=NOW,
        **changes,
    )


def reason(summary, standing=None, **changes):
    (planned,) = plan(summary, standing={summary.day: standing} if standing else {}, **changes)
    return planned.reason


def standing(fingerprint="f", destination="d", rows=3, **changes):
    return Standing(Fingerprint(fingerprint), destination, rows, **changes)


def test_a_day_never_exported_is_new():
    assert reason(summary()) is Reason.NEW


def test_a_day_whose_export_was_cut_off_is_due_although_its_rows_are_those_of_the_last_one_or_none():
    """What it had written before the change was taken back stayed at the sink."""
    cut_off = [summary().day]
    assert reason(summary(), standing(), unfinished=cut_off) is Reason.UNFINISHED
    assert reason(summary(rows=0), unfinished=cut_off) is Reason.UNFINISHED
    assert reason(summary(), standing(), unfinished=cut_off, mounted=False) is Reason.FROZEN
    assert reason(summary(), standing(), unfinished=cut_off, retries={summary().day: NOW + dt.timedelta(1)}) is Reason.WAITING


def test_a_day_without_rows_that_was_never_exported_is_not_due():
    assert reason(summary(rows=0)) is Reason.UNCHANGED


def test_a_day_whose_only_source_cannot_be_read_is_due_so_that_somebody_is_told():
    assert reason(summary(rows=0, unreadable={SourceName("a"): "torn"})) is Reason.UNREADABLE


def test_a_day_with_the_recorded_fingerprint_is_due_only_when_every_day_is_asked_for():
    assert reason(summary(), standing()) is Reason.UNCHANGED
    assert reason(summary(), standing(), every=True) is Reason.ASKED


@pytest.mark.parametrize("rows", [0, 1, 3, 4])
@pytest.mark.parametrize("day", [DAY, UNDATED])
def test_a_day_with_another_fingerprint_is_due_however_many_rows_it_has(day, rows):
    """What may be done about it is decided where its rows are known, and stands in the receipt with the new fingerprint."""
    assert reason(summary(day=day, fingerprint="g", rows=rows), standing()) is Reason.CHANGED
    kept = standing(kept=Kept.FROZEN)
    assert reason(summary(day=day, fingerprint="g", rows=rows), kept) is Reason.CHANGED


@pytest.mark.parametrize("kept", [Kept.FROZEN, Kept.UNPROVEN, Kept.GONE, Kept.UNREADABLE])
def test_a_day_whose_lost_rows_are_kept_is_not_due_at_every_tick(kept):
    assert reason(summary(rows=1), standing(kept=kept)) is Reason.FROZEN
    assert reason(summary(rows=1), standing(kept=kept), every=True) is Reason.ASKED


@pytest.mark.parametrize(
    ("removed", "due"),
    [(dt.timedelta(minutes=14), Reason.SETTLING), (dt.timedelta(minutes=15), Reason.SETTLED), (None, Reason.SETTLED)],
)
def test_what_is_kept_until_a_removal_has_settled_is_due_when_it_has(removed, due):
    lost = summary(rows=1, removed_at=None if removed is None else NOW - removed)
    assert reason(lost, standing(kept=Kept.SETTLING)) is due


def test_a_day_that_also_gained_rows_does_not_wait_for_a_removal_to_settle():
    assert reason(summary(fingerprint="g", rows=4, removed_at=NOW), standing(kept=Kept.SETTLING)) is Reason.CHANGED


def test_rows_that_moved_leave_their_old_day_once_another_was_exported_after_it():
    other = Day("2026-06-06")
    known = {UNDATED: standing(kept=Kept.MOVING, version=2), other: standing(version=1)}
    days = [summary(day=UNDATED, rows=1), summary(day=other)]
    assert [entry.reason for entry in plan(*days, standing=known)] == [Reason.UNCHANGED, Reason.FROZEN]
    known[other] = standing(version=3)
    assert [entry.reason for entry in plan(*days, standing=known)] == [Reason.UNCHANGED, Reason.SETTLED]


def test_a_loss_that_was_accepted_makes_its_day_due_at_once():
    assert reason(summary(rows=1, removed_at=NOW), standing(kept=Kept.ACCEPTED)) is Reason.SETTLED


def test_of_a_dataset_without_any_source_nothing_is_due():
    """A disk that is not mounted would have emptied the sinks."""
    gone = summary(rows=0, fingerprint="0")
    for copy in (standing(), standing(destination="elsewhere"), standing(kept=Kept.ACCEPTED)):
        assert reason(gone, copy, mounted=False, every=True) is Reason.FROZEN
    assert reason(gone, standing()) is Reason.CHANGED


def test_a_day_in_the_retry_queue_waits_for_its_time_whatever_else_it_is():
    for minutes, due in ((1, Reason.WAITING), (0, Reason.RETRY)):
        later = {DAY: NOW + dt.timedelta(minutes=minutes)}
        assert reason(summary(fingerprint="g"), standing(), retries=later) is due
        assert reason(summary(), retries=later) is due
    assert reason(summary(), retries={DAY: NOW + dt.timedelta(minutes=1)}, every=True) is Reason.NEW


def test_a_person_who_asks_need_not_wait_for_the_time_of_a_day_that_failed():
    """A day that failed when it was exported once more, by a backfill or `--all`, was told to come back and never did."""
    later = {DAY: NOW + dt.timedelta(minutes=1)}
    assert reason(summary(), standing(), retries=later, patient=False) is Reason.RETRY
    assert reason(summary(rows=0), retries=later, patient=False) is Reason.RETRY
    assert reason(summary(fingerprint="g"), standing(), retries=later, patient=False) is Reason.CHANGED
    assert reason(summary(), retries=later, patient=False) is Reason.NEW
    assert reason(summary(rows=0), standing(), retries=later, patient=False, mounted=False) is Reason.FROZEN


def test_a_receipt_of_another_destination_does_not_count_as_exported():
    assert reason(summary(), standing(destination="elsewhere")) is Reason.SINK_CHANGED


def test_a_day_that_is_gone_from_the_cache_cannot_be_copied_to_another_destination():
    assert reason(summary(rows=0, fingerprint="0"), standing(destination="elsewhere")) is Reason.FROZEN


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
