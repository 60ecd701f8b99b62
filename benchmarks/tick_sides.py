"""A tick of every sink's schedule, as the code server evaluates it, as a side."""

import time

import dagster as dg

from benchmarks.caches import append_logs
from benchmarks.installations import open_installation
from hypaware_pipeline.export.blueprint import Blueprint
from hypaware_pipeline.orchestration.build import definitions_of


def tick(home: str, cache: str, *, sinks: dict[str, str], times: int, flush_before_last: int | None) -> dict[str, float]:
    """Every sink's schedule `times` over; the first and the last time are told by themselves, in seconds over all sinks.

    The definitions are there before, as they are in a code server. The first tick may have to look; the last has nothing new,
    unless one file is flushed before it, with this seed.
    """
    installation = open_installation(home, cache, sinks=sinks)
    schedules = list(definitions_of(Blueprint.draw(installation)).get_repository_def().schedule_defs)
    elapsed, asked = [], 0
    with dg.instance_for_test() as instance:
        for number in range(times):
            if flush_before_last is not None and number == times - 1:
                append_logs(cache, rows=20, seed=flush_before_last)
            started = time.perf_counter()
            asked = 0
            for schedule in schedules:
                with dg.build_schedule_context(instance=instance) as context:
                    asked += len(schedule.evaluate_tick(context).run_requests or ())
            elapsed.append(time.perf_counter() - started)
    return {"runs": asked, "schedules": len(schedules), "first_seconds": elapsed[0], "last_seconds": elapsed[-1]}
