"""A tick of every sink's schedule, as the code server evaluates it, as a side."""

import time
from collections.abc import Iterable
from statistics import median

import dagster as dg

from benchmarks.caches import append_logs
from benchmarks.installations import open_installation
from hypaware_pipeline.export.blueprint import Blueprint
from hypaware_pipeline.orchestration.build import definitions_of

_Cost = tuple[float, float]
"""Wall time and processor time in seconds."""


def tick(home: str, cache: str, *, sinks: dict[str, str], times: int, flush_from: int | None) -> dict[str, float]:
    """Every sink's schedule so many times; what that took over all sinks: the first time, later ones (the median), the floor.

    The definitions are there before, as they are in a code server. The first tick may have to look; a later one has nothing new,
    unless a file is flushed before each, with seeds from `flush_from` on. The floor is as many schedules that skip at once.
    """
    installation = open_installation(home, cache, sinks=sinks)
    schedules = list(definitions_of(Blueprint.draw(installation)).get_repository_def().schedule_defs)
    floor: list[_Cost] = []
    ticks: list[_Cost] = []
    asked = 0
    with dg.instance_for_test() as instance:
        for number in range(times):
            if flush_from is not None and number:
                append_logs(cache, rows=20, seed=flush_from + number)
            floor.append(_evaluated(instance, [_idle] * len(schedules))[0])
            cost, asked = _evaluated(instance, schedules)
            ticks.append(cost)
    figures: dict[str, float] = {"runs": asked, "schedules": len(schedules)}
    for part, costs in (("first", ticks[:1]), ("later", ticks[1:]), ("floor", floor[1:])):
        figures[f"{part}_seconds"] = median(wall for wall, _ in costs)
        figures[f"{part}_cpu_seconds"] = median(cpu for _, cpu in costs)
    return figures


@dg.schedule(cron_schedule="0 0 * * *", job_name="idle")
def _idle() -> dg.SkipReason:
    return dg.SkipReason("nothing to do")


def _evaluated(instance: dg.DagsterInstance, schedules: Iterable[dg.ScheduleDefinition]) -> tuple[_Cost, int]:
    """What it took, and how many runs were asked for."""
    started, cpu_started, asked = time.perf_counter(), time.process_time(), 0
    for schedule in schedules:
        with dg.build_schedule_context(instance=instance) as context:
            asked += len(schedule.evaluate_tick(context).run_requests or ())
    return (time.perf_counter() - started, time.process_time() - cpu_started), asked
