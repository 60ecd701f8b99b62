"""What is tried again and when, and which sinks are left alone: in the ledger, on SQLite and on a PostgreSQL server."""

import datetime as dt
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hypaware_pipeline.errors import CursorSuperseded
from hypaware_pipeline.ledger import Ledger
from hypaware_pipeline.ledger.retries import ATTEMPTS, CLAIM_SECONDS, LONGEST_BACK_OFF_SECONDS, Retry, longest_back_off
from hypaware_pipeline.model import UNDATED, DatasetName, Day, Fingerprint, Kept, Receipt, SinkName
from tests.clocks import AClock

FEED, ARCHIVE, LOGS, TRACES = SinkName("feed"), SinkName("archive"), DatasetName("logs"), DatasetName("traces")
DAY, NEXT = Day("2026-05-30"), Day("2026-05-31")


@pytest.fixture
def clock() -> AClock:
    return AClock()


@pytest.fixture(params=["file", "server"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path, clock: AClock) -> Iterator[Ledger]:
    server = request.param == "server"
    place = request.getfixturevalue("postgres").new_database() if server else tmp_path / "ledger.db"
    with Ledger.open(place, clock=clock) as found:
        yield found


def give_back(ledger: Ledger, day: str = DAY, dataset: DatasetName = LOGS, reason: str = "away", **options: Any) -> Retry:
    ledger.retries.give_back(FEED, dataset, Day(day), reason, **options)
    return ledger.retries.queue(FEED)[dataset, Day(day)]


def record(ledger: Ledger, day: Day = DAY, dataset: DatasetName = LOGS) -> None:
    """An export of the day succeeds."""
    receipt = Receipt(
        sink=FEED,
        dataset=dataset,
        day=day,
        destination="d",
        ledger_id=ledger.id,
        fingerprint=Fingerprint("f"),
        rows=0,
        kept_rows=0,
        kept=Kept.NOTHING,
        elsewhere_rows=0,
        files=(),
        set_aside=(),
        parked=(),
        unreadable={},
        exported_at="2026-06-01T12:00:00.000Z",
        seconds=0.0,
    )
    ledger.record(receipt, replaces=ledger.recorded(FEED, dataset, day))


def exhaust(ledger: Ledger, clock: AClock, *days: Day, dataset: DatasetName = LOGS) -> None:
    """The days fail as often as they are tried."""
    for day in days:
        give_back(ledger, day, dataset)
    for _ in range(ATTEMPTS):
        clock.move(seconds=LONGEST_BACK_OFF_SECONDS)
        for entry in ledger.retries.request([each for each in ledger.retries.due(FEED) if each.dataset == dataset]):
            give_back(ledger, entry.day, dataset, "dead for good")


def days(entries: Any) -> list[str]:
    return [entry.day for entry in entries]


# --- the queue -----------------------------------------------------------------------------------------------------------------


def test_a_day_that_failed_is_due_after_a_back_off_that_is_drawn_from_nothing_to_its_bound(ledger: Ledger, clock: AClock) -> None:
    waits = []
    for number in range(30):
        entry = give_back(ledger, f"2026-04-{number + 1:02d}")
        waits.append((dt.datetime.fromisoformat(entry.due_at) - clock.now).total_seconds())
    assert 0 <= min(waits) < max(waits) <= 30
    assert len(set(waits)) > 20
    clock.move(seconds=30)
    assert len(ledger.retries.due(FEED)) == 30


def test_the_bound_doubles_with_every_attempt_up_to_an_hour() -> None:
    assert [longest_back_off(attempt) for attempt in (0, 1, 2, 6, 7, 1_000)] == [30, 60, 120, 1_920, 3_600, 3_600]


def test_a_day_is_never_due_sooner_than_its_destination_wished(ledger: Ledger, clock: AClock) -> None:
    give_back(ledger, retry_after_seconds=7_200)
    clock.move(seconds=7_199)
    assert ledger.retries.due(FEED) == []
    clock.move(seconds=1)
    assert days(ledger.retries.due(FEED)) == [DAY]


def test_the_newest_day_comes_first_and_undated_rows_last_and_other_sinks_have_their_own(ledger: Ledger, clock: AClock) -> None:
    for day in (DAY, UNDATED, NEXT):
        give_back(ledger, day)
    give_back(ledger, NEXT, TRACES)
    ledger.retries.give_back(ARCHIVE, LOGS, DAY, "away")
    clock.move(minutes=1)
    assert [(each.day, each.dataset) for each in ledger.retries.due(FEED)] == [
        (NEXT, LOGS),
        (NEXT, TRACES),
        (DAY, LOGS),
        (UNDATED, LOGS),
    ]


def test_the_attempt_is_counted_when_a_run_is_asked_for_and_kept_when_it_fails(ledger: Ledger, clock: AClock) -> None:
    assert give_back(ledger).attempt == 0
    clock.move(minutes=1)
    (asked,) = ledger.retries.request(ledger.retries.due(FEED))
    assert asked.attempt == 1
    failed = give_back(ledger, reason="still away")
    assert (failed.attempt, failed.reason, failed.requested_until) == (1, "still away", None)


def test_a_day_that_was_asked_for_is_not_asked_again_until_the_claim_expired(ledger: Ledger, clock: AClock) -> None:
    """Its run was cancelled, or the daemon died before it made one: nothing else says so."""
    give_back(ledger)
    clock.move(minutes=1)
    assert len(ledger.retries.request(ledger.retries.due(FEED))) == 1
    clock.move(seconds=CLAIM_SECONDS - 1)
    assert ledger.retries.due(FEED) == []
    clock.move(seconds=1)
    assert [(entry.day, entry.attempt) for entry in ledger.retries.due(FEED)] == [(DAY, 1)]


def test_of_two_that_ask_at_once_one_has_each_day(ledger: Ledger, clock: AClock) -> None:
    for number in range(20):
        give_back(ledger, f"2026-04-{number + 1:02d}")
    clock.move(minutes=1)
    seen = ledger.retries.due(FEED)
    with ThreadPoolExecutor(4) as pool:
        had = [day for found in pool.map(lambda _: ledger.retries.request(seen), range(4)) for day in days(found)]
    assert sorted(had) == sorted(days(seen))


def test_a_day_that_failed_anew_or_was_exported_since_it_was_read_is_not_asked_for(ledger: Ledger, clock: AClock) -> None:
    give_back(ledger)
    give_back(ledger, NEXT)
    clock.move(minutes=1)
    seen = ledger.retries.due(FEED)
    give_back(ledger)
    record(ledger, NEXT)
    assert ledger.retries.request(seen) == []


def test_a_success_leaves_the_queue_with_its_receipt_or_not_at_all(ledger: Ledger) -> None:
    give_back(ledger)
    give_back(ledger, NEXT)
    record(ledger)
    assert list(ledger.retries.queue(FEED)) == [(LOGS, NEXT)]
    standing = ledger.recorded(FEED, LOGS, DAY)
    assert standing is not None
    give_back(ledger)
    with pytest.raises(CursorSuperseded):
        ledger.record(standing.receipt, replaces=None)
    assert list(ledger.retries.queue(FEED)) == [(LOGS, NEXT), (LOGS, DAY)]


def test_a_day_with_nothing_left_to_do_is_forgotten(ledger: Ledger) -> None:
    """Retention removed it from the cache before it was exported: nothing is ever recorded of it."""
    give_back(ledger)
    ledger.retries.forget(FEED, LOGS, DAY)
    ledger.retries.forget(FEED, LOGS, NEXT)
    assert ledger.retries.queue(FEED) == {}


def test_a_reason_that_no_database_takes_is_kept(ledger: Ledger) -> None:
    assert give_back(ledger, reason="file \udcff\0").reason == "file \\udcff\\x00"


# --- given up ------------------------------------------------------------------------------------------------------------------


def test_a_day_that_failed_so_often_is_given_up_and_no_other(ledger: Ledger, clock: AClock) -> None:
    exhaust(ledger, clock, DAY)
    give_back(ledger, NEXT)
    clock.move(days=1)
    assert days(ledger.retries.due(FEED)) == [NEXT]
    assert [entry.given_up for entry in ledger.retries.queue(FEED).values()] == [False, True]
    give_back(ledger)
    clock.move(days=1)
    assert days(ledger.retries.due(FEED)) == [NEXT], "a scheduled tick tried it, in vain"


def test_a_day_that_trying_again_does_not_mend_is_given_up_at_once_until_it_fails_otherwise(
    ledger: Ledger, clock: AClock
) -> None:
    assert give_back(ledger, retry_after_seconds=None).given_up
    clock.move(days=1)
    assert ledger.retries.due(FEED) == []
    give_back(ledger, NEXT)
    record(ledger, NEXT)
    assert days(ledger.retries.due(FEED)) == [DAY], "the destination lives"
    give_back(ledger, retry_after_seconds=None)
    assert not give_back(ledger).given_up


def test_the_last_attempt_is_under_way_and_not_yet_given_up(ledger: Ledger, clock: AClock) -> None:
    give_back(ledger)
    for _ in range(ATTEMPTS):
        clock.move(seconds=CLAIM_SECONDS)
        ledger.retries.request(ledger.retries.due(FEED))
    (entry,) = ledger.retries.queue(FEED).values()
    assert (entry.attempt, entry.given_up) == (ATTEMPTS, False)
    clock.move(seconds=CLAIM_SECONDS)
    (entry,) = ledger.retries.queue(FEED).values()
    assert entry.given_up, "nobody answered"


def test_one_day_that_leaves_the_queue_has_the_others_of_its_dataset_tried_again(ledger: Ledger, clock: AClock) -> None:
    exhaust(ledger, clock, DAY, NEXT)
    exhaust(ledger, clock, DAY, dataset=TRACES)
    record(ledger, Day("2026-05-29"))
    assert ledger.retries.due(FEED) == [], "it never waited: it says nothing of those that do"
    record(ledger, NEXT)
    assert [(each.day, each.dataset, each.attempt) for each in ledger.retries.due(FEED)] == [(DAY, LOGS, 0)]


def test_resume_has_everything_tried_again_at_once(ledger: Ledger, clock: AClock) -> None:
    exhaust(ledger, clock, DAY)
    give_back(ledger, NEXT, retry_after_seconds=86_400)
    give_back(ledger, NEXT, TRACES, retry_after_seconds=86_400)
    ledger.retries.give_back(ARCHIVE, LOGS, DAY, "away", retry_after_seconds=86_400)
    assert ledger.retries.resume(FEED, LOGS).days == 2
    assert [(each.day, each.dataset, each.attempt) for each in ledger.retries.due(FEED)] == [(NEXT, LOGS, 0), (DAY, LOGS, 0)]
    assert ledger.retries.resume(FEED).days == 3
    assert len(ledger.retries.due(FEED)) == 3
    assert ledger.retries.due(ARCHIVE) == []


# --- sinks that are left alone -------------------------------------------------------------------------------------------------


def test_a_sink_is_halted_since_it_halted_first_for_the_last_reason(ledger: Ledger, clock: AClock) -> None:
    ledger.retries.halt(FEED, "the bucket is gone")
    clock.move(hours=1)
    ledger.retries.halt(FEED, "the key is wrong")
    (hold,) = ledger.retries.halted().values()
    assert (hold.since, hold.reason) == ("2026-06-01T12:00:00.000Z", "the key is wrong")
    assert ledger.retries.paused() == {}


def test_what_a_halted_sink_takes_releases_it_and_no_other(ledger: Ledger) -> None:
    ledger.retries.halt(FEED, "the bucket is gone")
    ledger.retries.halt(ARCHIVE, "the disk is read-only")
    ledger.retries.pause(FEED)
    record(ledger)
    assert list(ledger.retries.halted()) == [ARCHIVE]
    assert list(ledger.retries.paused()) == [FEED], "somebody wanted it so"


def test_resume_ends_both_unless_it_is_for_one_dataset_alone(ledger: Ledger) -> None:
    ledger.retries.halt(FEED, "the bucket is gone")
    ledger.retries.pause(FEED)
    released = ledger.retries.resume(FEED, LOGS)
    assert (released.halted, released.paused, len(ledger.retries.halted())) == (False, False, 1)
    released = ledger.retries.resume(FEED)
    assert (released.halted, released.paused) == (True, True)
    assert (ledger.retries.halted(), ledger.retries.paused()) == ({}, {})
