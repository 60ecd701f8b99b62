"""Who may write: leases in the ledger, on SQLite and on a PostgreSQL server, and held by an export."""

import datetime as dt
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hypaware_pipeline.errors import LeaseHeld, LeaseLost
from hypaware_pipeline.export.leases import HeldLease, LeaseTerms
from hypaware_pipeline.ledger import Ledger
from hypaware_pipeline.ledger.leases import Lease
from hypaware_pipeline.model import DatasetName, SinkName
from tests.clocks import AClock
from tests.daemon import ROOT
from tests.waiting import wait_for

FEED, LOGS, TRACES = SinkName("feed"), DatasetName("logs"), DatasetName("traces")
LONG, SHORT = 3_600.0, 0.05


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@pytest.fixture(params=["file", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    if request.param == "file":
        return tmp_path / "ledger.db"
    url: str = request.getfixturevalue("postgres").new_database()
    return url


@pytest.fixture
def ledger(place: Path | str) -> Iterator[Ledger]:
    with Ledger.open(place, clock=now) as found:
        yield found


@pytest.fixture
def clock() -> AClock:
    return AClock()


@pytest.fixture
def timed(tmp_path: Path, clock: AClock) -> Iterator[Ledger]:
    """A ledger in a file, which goes by this process's clock."""
    with Ledger.open(tmp_path / "timed.db", clock=clock) as found:
        yield found


def take(ledger: Ledger, holder: str, seconds: float = LONG, dataset: DatasetName = LOGS) -> Lease:
    return ledger.leases.take(FEED, dataset, holder, seconds)


def take_in_the_end(ledger: Ledger, holder: str) -> Lease:
    """Take a lease as soon as it can be taken."""

    def tried() -> Lease | None:
        try:
            return take(ledger, holder)
        except LeaseHeld:
            return None

    return wait_for("the lease", tried, every=0.01)


# --- in the ledger, on both databases ------------------------------------------------------------------------------------------


def test_one_has_it_and_the_other_is_told_who_since_when_and_until_when(ledger: Ledger) -> None:
    lease = take(ledger, "run 1, process 7 on ada")
    with pytest.raises(LeaseHeld, match="feed/logs is being written by run 1, process 7 on ada, since 2") as told:
        take(ledger, "run 2")
    assert (told.value.holder, told.value.since[:19]) == ("run 1, process 7 on ada", lease.taken_at.isoformat()[:19])
    assert told.value.until[:19] == lease.expires_at.isoformat()[:19]
    take(ledger, "run 2", dataset=TRACES)
    assert [(each.dataset, each.holder) for each in ledger.leases.held()] == [(LOGS, lease.holder), (TRACES, "run 2")]


def test_a_token_grows_with_every_taking_and_never_goes_back(ledger: Ledger) -> None:
    tokens = []
    for holder in ("one", "two", "one"):
        lease = take(ledger, holder)
        tokens.append(lease.token)
        ledger.leases.give_back(lease)
    assert tokens == [1, 2, 3]
    assert ledger.leases.held() == []


def test_after_it_expired_another_takes_it_and_the_first_is_told_before_its_next_write(ledger: Ledger) -> None:
    first = take(ledger, "one", SHORT)
    second = take_in_the_end(ledger, "two")
    assert second.token == first.token + 1
    for use in (ledger.leases.ensure, ledger.leases.renew):
        with pytest.raises(LeaseLost, match="feed/logs: this export lost the right to write"):
            use(first)
    ledger.leases.give_back(first)
    ledger.leases.ensure(second)


def test_one_that_expired_and_that_nobody_took_can_be_used_and_renewed(ledger: Ledger) -> None:
    lease = take(ledger, "one", SHORT)
    wait_for("its end", lambda: not ledger.leases.held(), every=0.01)
    ledger.leases.ensure(lease)
    ledger.leases.renew(lease)


def test_one_that_was_given_back_covers_nothing_more(ledger: Ledger) -> None:
    lease = take(ledger, "one")
    ledger.leases.give_back(lease)
    for use in (ledger.leases.ensure, ledger.leases.renew):
        with pytest.raises(LeaseLost):
            use(lease)


def test_of_many_that_ask_at_once_one_gets_it(place: Path | str) -> None:
    start = threading.Barrier(8)

    def ask(number: int) -> int | None:
        with Ledger.open(place, clock=now) as ledger:
            start.wait(60)
            try:
                return take(ledger, f"asker {number}").token
            except LeaseHeld:
                return None

    with ThreadPoolExecutor(8) as pool:
        assert [token for token in pool.map(ask, range(8)) if token is not None] == [1]


def test_a_servers_clock_counts_and_not_that_of_a_machine(postgres: Any) -> None:
    """By its own clock, which is a day ahead, the second machine would find it expired."""
    url = postgres.new_database()
    with Ledger.open(url, clock=now) as one, Ledger.open(url, clock=lambda: now() + dt.timedelta(days=1)) as other:
        take(one, "one")
        with pytest.raises(LeaseHeld):
            take(other, "other")


def test_a_holder_whose_name_no_database_takes_is_told_all_the_same(ledger: Ledger) -> None:
    take(ledger, "host \udcff\0")
    with pytest.raises(LeaseHeld, match=r"host \\udcff\\x00"):
        take(ledger, "another")


# --- by the clock of a file's machine ------------------------------------------------------------------------------------------


def test_it_lasts_its_seconds_from_the_last_renewal_on(timed: Ledger, clock: AClock) -> None:
    lease = take(timed, "one", 45)
    clock.move(seconds=40)
    timed.leases.renew(lease)
    clock.move(seconds=44)
    with pytest.raises(LeaseHeld):
        take(timed, "two")
    clock.move(seconds=1)
    assert take(timed, "two").token == 2


def test_a_clock_that_was_set_back_keeps_it_for_nobody(timed: Ledger, clock: AClock) -> None:
    """A process that died just before would have held it for the hour by which the clock was wrong."""
    take(timed, "one", 45)
    clock.move(hours=-1)
    assert take(timed, "two").token == 2


def test_who_had_it_last_lets_one_who_waits_go_first(timed: Ledger, clock: AClock) -> None:
    """A backfill returns it between two days for a moment only, in which nobody who looks once a second would ever find it."""
    timed.leases.give_back(take(timed, "backfill"))
    lease = take(timed, "backfill")
    with pytest.raises(LeaseHeld):
        take(timed, "schedule")
    timed.leases.give_back(lease)
    with pytest.raises(LeaseHeld, match="by schedule"):
        take(timed, "backfill")
    lease = take(timed, "schedule")
    with pytest.raises(LeaseHeld):
        take(timed, "backfill")
    timed.leases.give_back(lease)
    assert take(timed, "backfill").token == 4


def test_one_who_waited_and_went_away_is_waited_for_no_longer(timed: Ledger, clock: AClock) -> None:
    lease = take(timed, "backfill")
    with pytest.raises(LeaseHeld):
        take(timed, "schedule")
    timed.leases.give_back(lease)
    clock.move(seconds=3)
    assert take(timed, "backfill").token == 2


# --- held by an export ---------------------------------------------------------------------------------------------------------


def held(ledger: Ledger, holder: str = "one", *, wait: float = 0, seconds: float = LONG, **options: Any) -> HeldLease:
    return HeldLease(ledger.leases, FEED, LOGS, LeaseTerms(holder, wait, seconds), **options)


def test_an_export_holds_it_while_it_is_inside_and_returns_it_whatever_happens(ledger: Ledger) -> None:
    def export() -> None:
        with held(ledger) as lease:
            lease.ensure_held()
            assert [each.holder for each in ledger.leases.held()] == ["one"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        export()
    assert ledger.leases.held() == []


def test_it_is_renewed_for_as_long_as_it_is_held(timed: Ledger, clock: AClock) -> None:
    with held(timed, seconds=0.3):
        clock.move(days=1)

        def renewed() -> bool:
            return [each.renewed_at for each in timed.leases.held()] == [clock.now]

        wait_for("a renewal", renewed, every=0.01)


def test_an_export_that_lost_it_is_stopped_before_it_writes_and_takes_it_from_nobody(ledger: Ledger) -> None:
    with held(ledger) as lease:
        with ledger.leases._in.writing() as connection:
            connection.exec_driver_sql("UPDATE leases SET renewed_at = '2001-01-01T00:00:00.000Z'")
        theirs = take(ledger, "two")
        with pytest.raises(LeaseLost):
            lease.ensure_held()
    ledger.leases.ensure(theirs)


def test_an_export_waits_for_its_turn(ledger: Ledger) -> None:
    theirs = take(ledger, "two")
    with ThreadPoolExecutor(1) as pool:

        def export() -> int:
            with held(ledger, wait=60) as lease:
                return lease.token

        waiting = pool.submit(export)
        wait_for("the one who waits", lambda: wants(ledger), every=0.01)
        ledger.leases.give_back(theirs)
        assert waiting.result(60) == theirs.token + 1


def wants(ledger: Ledger) -> Any:
    with ledger.leases._in.reading() as connection:
        return connection.exec_driver_sql("SELECT wanted_by FROM leases").scalar()


def test_an_export_that_waited_long_enough_says_who_has_it(ledger: Ledger) -> None:
    take(ledger, "two")
    with pytest.raises(LeaseHeld, match="by two"), held(ledger, wait=0.3):
        pass


def test_an_export_that_is_ended_waits_no_longer(ledger: Ledger) -> None:
    take(ledger, "two")
    ended = threading.Event()
    ended.set()
    with pytest.raises(LeaseHeld), held(ledger, wait=3_600, ended=ended):
        pass


def test_two_that_export_day_by_day_take_turns(ledger: Ledger) -> None:
    """The one that came second was left waiting until the first was through with all of its days."""
    order: list[str] = []
    first_began = threading.Event()

    def export(name: str, days: int) -> None:
        for _ in range(days):
            with held(ledger, name, wait=60):
                order.append(name)
                first_began.set()
                if name == "long" and len(order) == 1:
                    wait_for("the other", lambda: wants(ledger), every=0.01)

    with ThreadPoolExecutor(2) as pool:
        long = pool.submit(export, "long", 6)
        first_began.wait(60)
        short = pool.submit(export, "short", 1)
        long.result(60)
        short.result(60)
    assert order[-1] == "long", order


HOLDER = """
import datetime as dt, sys, time
from pathlib import Path
from hypaware_pipeline.export.leases import HeldLease, LeaseTerms
from hypaware_pipeline.ledger import Ledger

place = sys.argv[1]
with Ledger.open(place if "://" in place else Path(place), clock=lambda: dt.datetime.now(dt.UTC)) as ledger:
    with HeldLease(ledger.leases, "feed", "logs", LeaseTerms.of("a test", wait_seconds=0)) as lease:
        print(lease.token, flush=True)
        sys.stdin.readline()
        lease.ensure_held()
"""


def test_a_process_that_was_stopped_for_too_long_finds_that_it_lost_it(ledger: Ledger, place: Path | str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        with pytest.raises(LeaseHeld, match=f"a test, process {process.pid} on "):
            take(ledger, "two")
        process.send_signal(signal.SIGSTOP)
        with ledger.leases._in.writing() as connection:  # the time that passes
            connection.exec_driver_sql("UPDATE leases SET renewed_at = '2001-01-01T00:00:00.000Z'")
        ours = take(ledger, "two")
        process.send_signal(signal.SIGCONT)
        _, said = process.communicate("write\n", timeout=60)
    assert "LeaseLost: feed/logs: this export lost the right to write" in said
    ledger.leases.ensure(ours)
