"""Processes that were stopped for longer than their lease lasts, and go on when another has done their work."""

from functools import cache
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

import pytest

from hypaware_pipeline.export.steps import Step
from tests.crash_scenes import DAY, HOURS, WAITING, Scene, in_memory
from tests.faults import AnExport, Fault

# Waiting for the ledger's own clock takes its time.
SHORT_LEASE_SECONDS = 1.0
LONGER_SECONDS = 60.0

WRITES = {Step.WRITTEN, Step.STORED, Step.REMOVED, Step.RECEIPTED, Step.RECORDED}


def a_scene(place: Path, waiting: str, **options: str) -> Scene:
    scene = Scene(place, **options)
    WAITING[waiting](scene)
    return scene


def a_zombie(scene: Scene, after: int, **options: float) -> AnExport:
    """An export that stops itself after so many steps."""
    return scene.exporting(fault=Fault(after, SIGSTOP), **options)


@cache
def steps_of(waiting: str) -> list[Step]:
    """The steps of an export that nothing stops."""
    with in_memory() as place, a_scene(place, waiting).exporting() as export:
        return export.ended().steps


def lying(scene: Scene) -> dict[str, bytes]:
    return scene.installation.objects(scene.sink)


@pytest.mark.parametrize("waiting", ["a_live_day", "a_frozen_day"])
def test_one_that_was_stopped_at_any_step_writes_nothing_of_what_it_had_in_mind(place, waiting):
    for after, step in enumerate(steps_of(waiting), start=1):
        if step is Step.WRITTEN:
            continue
        scene = a_scene(place / f"step-{after}", waiting)
        with a_zombie(scene, after) as zombie:
            zombie.stopped()
            scene.add(19 * HOURS)
            scene.settle()
            scene.export()
            scene.assert_at_rest()
            newer = lying(scene)
            zombie.send(SIGCONT)
            zombie.ended()
        assert_ended_its_attempt(zombie, after)
        assert_done(zombie)
        assert lying(scene) == newer, step
        scene.assert_at_rest()


def assert_done(export: AnExport) -> None:
    assert export.answers[DAY][0] in ("exported", "kept"), export.answers


def assert_ended_its_attempt(zombie: AnExport, after: int) -> None:
    """See that it wrote nothing more until it had taken the lease once more."""
    then = zombie.steps[after:]
    attempt = then[: then.index(Step.LEASED)] if Step.LEASED in then else then
    assert not WRITES & set(attempt), (zombie.steps, after)


@pytest.mark.parametrize("ends", [SIGCONT, SIGKILL], ids=["continued", "killed"])
@pytest.mark.parametrize("waiting", ["a_live_day", "a_frozen_day"])
def test_one_that_was_stopped_between_check_and_rename_keeps_others_waiting_who_say_so(place, waiting, ends):
    after = 1 + steps_of(waiting).index(Step.WRITTEN)
    scene = a_scene(place / "stopped", waiting)
    with a_zombie(scene, after) as zombie:
        zombie.stopped()
        before = lying(scene)
        scene.add(19 * HOURS)
        scene.settle()
        with scene.exporting(lock_wait_seconds=0.1) as newcomer:
            status, error = newcomer.ended().answers[DAY]
        assert status == "failed"
        assert ".lock' was locked by another process" in error
        assert "continue or end it" in error
        assert lying(scene) == before
        zombie.send(ends)
        zombie.ended()
    scene.settle()
    scene.export()
    scene.assert_at_rest()


@pytest.mark.parametrize("waiting", ["a_live_day", "a_frozen_day"])
def test_what_another_puts_as_soon_as_it_goes_on_stands(place, waiting):
    after = 1 + steps_of(waiting).index(Step.WRITTEN)
    scene = a_scene(place / "stopped", waiting)
    with a_zombie(scene, after) as zombie:
        zombie.stopped()
        scene.add(19 * HOURS)
        scene.settle()
        with scene.exporting(wait_seconds=LONGER_SECONDS) as newcomer:  # the other takes the lease again, too
            newcomer.waiting_for(scene.lock)
            zombie.send(SIGCONT)
            assert_done(newcomer.ended())
            zombie.ended()
    assert_ended_its_attempt(zombie, after + 1)  # the rename, of which it had been told that it may make it
    scene.assert_at_rest()


def test_an_addition_that_appears_when_it_is_no_longer_wanted_is_removed(place):
    """Who had only to remove it found nothing there, and did not wait."""
    after = 1 + steps_of("a_frozen_day").index(Step.WRITTEN)
    scene = a_scene(place / "stopped", "a_frozen_day")
    with a_zombie(scene, after) as zombie:
        zombie.stopped()
        scene.take_back()
        scene.settle()
        with scene.exporting(wait_seconds=LONGER_SECONDS) as newcomer:  # the other takes the lease again, too
            newcomer.waiting_for(scene.lock)
            zombie.send(SIGCONT)
            assert_done(newcomer.ended())
            zombie.ended()
    scene.assert_at_rest()


def test_what_appears_late_under_a_name_that_is_to_stay_is_found(place):
    """It had the rows that the newcomer had added beside it."""
    after = 1 + steps_of("a_live_day").index(Step.WRITTEN)
    scene = a_scene(place / "stopped", "a_live_day")
    with a_zombie(scene, after) as zombie:
        zombie.stopped()
        scene.purge(15 * HOURS)
        scene.let_leases_expire()
        with scene.exporting(wait_seconds=LONGER_SECONDS) as newcomer:  # the other takes the lease again, too
            newcomer.waiting_for(scene.lock)
            zombie.send(SIGCONT)
            assert_done(newcomer.ended())
            zombie.ended()
    scene.assert_nothing_doubled()
    scene.settle()
    scene.export()
    scene.assert_at_rest()


@pytest.mark.parametrize("step", [Step.INTENDED, Step.STORED, Step.RECEIPTED])
def test_on_a_server_it_is_the_servers_clock_that_ends_a_lease(place, postgres, step):
    after = 1 + steps_of("a_frozen_day").index(step)
    scene = a_scene(place / "stopped", "a_frozen_day", ledger_url=postgres.new_database())
    with a_zombie(scene, after, lease_seconds=SHORT_LEASE_SECONDS, wait_seconds=LONGER_SECONDS) as zombie:
        zombie.stopped()
        scene.add(19 * HOURS)
        with scene.exporting(wait_seconds=LONGER_SECONDS) as newcomer:
            assert_done(newcomer.ended())
        scene.assert_at_rest()
        newer = lying(scene)
        zombie.send(SIGCONT)
        zombie.ended()
    assert_ended_its_attempt(zombie, after)
    assert lying(scene) == newer
    scene.assert_at_rest()
