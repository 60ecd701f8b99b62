"""A disk or a ledger that gives out in the middle of a day: the error says it, nothing is half-written, the next export lands."""

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from hypaware_pipeline.export.driver import Exporter
from hypaware_pipeline.export.installation import build_sink
from hypaware_pipeline.export.leases import LeaseTerms
from hypaware_pipeline.export.steps import Step
from hypaware_pipeline.ledger import Ledger
from hypaware_pipeline.model import Day, DayOutcome, SinkName
from tests.builders import a_log
from tests.crash_scenes import DAY, LOGS, WAITING, Scene
from tests.disks import little_room, short_files

ROOM_BYTES = 1 << 20
BUSY_TIMEOUT_SECONDS = 0.1


def export(scene: Scene, ledger: Ledger, *, at: Step, act: Callable[[], object]) -> DayOutcome:
    """Export the day, and do something the first time a step is told."""
    acts = [act]

    def reached(step: Step) -> None:
        if step is at and acts:
            acts.pop()()

    installation = scene.installation.installation
    sink = build_sink(installation.config.sinks[SinkName(scene.sink)], scene.installation.env)
    exporter = Exporter(sink, ledger, installation.clock, LeaseTerms("a test", wait_seconds=0), reached)
    (outcome,) = exporter.export(installation.slice(LOGS, [Day(DAY)]))
    return outcome


def assert_failed_and_made_up_for(scene: Scene, outcome: DayOutcome, *said: str) -> None:
    """See that the day failed for the right reason, left nothing half-written, and is whole with the next export."""
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert all(words in outcome.error for words in said), outcome.error
    assert not list(scene.installation.out(scene.sink).rglob(".tmp-*"))
    scene.settle()
    scene.export()
    scene.assert_at_rest()


@pytest.mark.parametrize("waiting", ["a_live_day", "a_frozen_day"])
@pytest.mark.parametrize("at", [Step.STORED, Step.RECEIPTED])
def test_a_ledger_that_is_locked_for_longer_than_is_waited_for_it(place, waiting, at):
    scene = Scene(place)
    WAITING[waiting](scene)
    installation = scene.installation.installation
    other = sqlite3.connect(installation.state.ledger, isolation_level=None)
    with Ledger.open(installation.state.ledger, clock=installation.clock, busy_timeout_seconds=BUSY_TIMEOUT_SECONDS) as ledger:
        outcome = export(scene, ledger, at=at, act=lambda: other.execute("BEGIN IMMEDIATE"))
    other.close()
    assert_failed_and_made_up_for(scene, outcome, str(installation.state.ledger), "locked")


@pytest.mark.parametrize("waiting", ["a_live_day", "a_frozen_day"])
def test_a_ledger_whose_disk_is_full(place, waiting):
    scene = Scene(place)
    WAITING[waiting](scene)
    installation = scene.installation.installation
    with installation.open_ledger() as ledger, ExitStack() as shortage:
        outcome = export(scene, ledger, at=Step.RECEIPTED, act=lambda: shortage.enter_context(short_files(0)))
    assert_failed_and_made_up_for(scene, outcome, str(installation.state.ledger))


@pytest.mark.parametrize("at", [Step.LEASED, Step.STORED])
def test_a_ledger_on_a_server_that_was_made_read_only(place, postgres, at):
    url = postgres.new_database()
    database = url.rpartition("/")[2]
    scene = Scene(place, ledger_url=url)
    WAITING["a_live_day"](scene)

    def make_read_only() -> None:
        postgres.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
        postgres.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'")

    with scene.installation.installation.open_ledger() as ledger:
        outcome = export(scene, ledger, at=at, act=make_read_only)
    postgres.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only")
    scene.installation.let_leases_expire()
    assert_failed_and_made_up_for(scene, outcome, "made read-only")


@contextmanager
def a_day_that_has_no_room(scene: Scene) -> Iterator[None]:
    """As long as it lasts, the destination has room for what lies there, and not for what is to come."""
    out = scene.installation.out(scene.sink)
    out.mkdir(parents=True)
    with little_room(out, bytes_at_most=ROOM_BYTES):
        scene.add(0, 1)
        scene.export()
        noise = random.Random(1)
        rows = [a_log(DAY, number, serviceName=noise.randbytes(2_000).hex()) for number in range(2, 1_002)]
        scene.cache.with_rows("logs", rows, source="a")
        yield


def test_a_destination_whose_disk_is_full(place):
    scene = Scene(place)
    with a_day_that_has_no_room(scene):
        before = scene.installation.objects()
        (outcome,) = scene.installation.export()
        assert outcome.status == "failed"
        assert "free some space or raise the limit, what was there before is intact" in outcome.error
        assert scene.installation.objects() == before
        assert not list(scene.installation.out().rglob(".tmp-*"))
        scene.purge(*range(2, 1_002))
        scene.settle()
        scene.export()
        scene.assert_at_rest()
