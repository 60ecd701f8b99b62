"""A tick of every sink's schedule, as the code server evaluates it, as a side."""

import time
from collections.abc import Iterable
from statistics import median

import dagster as dg

from benchmarks.caches import append_logs
from benchmarks.installations import open_installation
from hypaware_pipeline.export.blueprint import Blueprint
from hypaware_pipeline.orchestration.build import definitions_of


def tick(home: str, cache: str, *, sinks: dict[str, str], times: int, flush_from: int | None) -> dict[str, float]:
    """Every sink's schedule so many times, in seconds over all sinks: the first time, the median of the later ones, the floor.

    The definitions are there before, as they are in a code server. The first tick may have to look; a later one has nothing new,
    unless a file is flushed before each, with seeds from `flush_from` on. The floor is as many schedules that skip at once.
    """
    installation = open_installation(home, cache, sinks=sinks)
    schedules = list(definitions_of(Blueprint.draw(installation)).get_repository_def().schedule_defs)
    floor, elapsed, asked = [], [], 0
    with dg.instance_for_test() as instance:
        for number in range(times):
            if flush_from is not None and number:
                append_logs(cache, rows=20, seed=flush_from + number)
            floor.append(_evaluated(instance, [_idle] * len(schedules))[0])
            seconds, asked = _evaluated(instance, schedules)
            elapsed.append(seconds)
    figures = {"first_seconds": elapsed[0], "later_seconds": median(elapsed[1:]), "floor_seconds": median(floor[1:])}
    return {"runs": asked, "schedules": len(schedules), **figures}


@dg.schedule(cron_schedule="0 0 * * *", job_name="idle")
def _idle() -> dg.SkipReason:
    return dg.SkipReason("nothing to do")


def _evaluated(instance: dg.DagsterInstance, schedules: Iterable[dg.ScheduleDefinition]) -> tuple[float, int]:
    """Seconds, and how many runs were asked for."""
    started, asked = time.perf_counter(), 0
    for schedule in schedules:
        with dg.build_schedule_context(instance=instance) as context:
            asked += len(schedule.evaluate_tick(context).run_requests or ())
    return time.perf_counter() - started, asked
