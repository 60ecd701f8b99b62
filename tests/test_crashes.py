"""What is killed at any step of a day: nothing is lost, doubled or left unlisted."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hypaware_pipeline.export.steps import Step
from tests.crash_scenes import DAY, MEANWHILE, WAITING, Scene
from tests.faults import Fault


def steps_of(scene: Scene) -> list[Step]:
    """The steps that the export takes when nothing stops it."""
    with scene.exporting() as export:
        assert export.ended().answers[DAY][0] == "exported", export.answers
    scene.assert_at_rest()
    assert export.steps[-1] is Step.RECORDED
    return export.steps


def kill_after(scene: Scene, steps: int) -> None:
    """Begin an export, which dies after so many steps."""
    with scene.exporting(fault=Fault(steps)) as export:
        assert export.ended().killed
        assert export.answers == {}


def make_up(place: Path, sink: str, waiting: Callable[[Scene], None], meanwhile: Iterator[Callable[[Scene], None]]) -> None:
    """Kill the export of a day at every step it takes, each time in a world of its own, and export it again."""
    scene = Scene(place / "whole", sink=sink)
    waiting(scene)
    for number, step in enumerate(steps_of(scene), start=1):
        scene = Scene(place / f"step-{number}", sink=sink)
        waiting(scene)
        kill_after(scene, number)
        happens = next(meanwhile)
        happens(scene)
        scene.let_leases_expire()
        try:
            scene.export()
            scene.assert_nothing_doubled()
            scene.settle()
            scene.export()
            scene.assert_at_rest()
        except AssertionError as error:
            raise AssertionError(f"killed after step {number}, {step.name}; meanwhile {happens.__name__}") from error


@pytest.mark.parametrize("waiting", WAITING.values(), ids=WAITING)
def test_an_export_that_was_killed_at_any_step_is_made_up_for(place, waiting):
    first = list(WAITING).index(waiting.__name__)
    make_up(place, "feed", waiting, itertools.islice(itertools.cycle(MEANWHILE.values()), first, None))


@pytest.mark.parametrize("waiting", [WAITING["a_live_day"]], ids=["a_live_day"])
def test_it_is_in_parquet_too(place, waiting):
    make_up(place, "archive", waiting, itertools.cycle(MEANWHILE.values()))


@pytest.mark.long
@pytest.mark.parametrize("meanwhile", MEANWHILE.values(), ids=MEANWHILE)
@pytest.mark.parametrize("waiting", WAITING.values(), ids=WAITING)
@pytest.mark.parametrize("sink", ["feed", "archive"])
def test_an_export_that_was_killed_at_any_step_is_made_up_for_whatever_happens_meanwhile(place, waiting, meanwhile, sink):
    make_up(place, sink, waiting, itertools.repeat(meanwhile))
