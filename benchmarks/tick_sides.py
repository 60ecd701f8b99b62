"""Ticks of schedules and of the requeue sensor, as the code server evaluates them, as sides."""

import time
from collections.abc import Iterable
from statistics import median

import dagster as dg

from benchmarks.caches import append_logs
from benchmarks.installations import open_installation
from hypaware_pipeline.export.blueprint import Blueprint
from hypaware_pipeline.ledger import turns
from hypaware_pipeline.model import UNDATED
from hypaware_pipeline.orchestration.build import definitions_of
from hypaware_pipeline.orchestration.naming import Names

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


def requeue(home: str, cache: str, *, sinks: dict[str, str], times: int) -> dict[str, float]:
    """The requeue sensor of the first sink so many times, with every day of every dataset waiting to be tried again."""
    installation = open_installation(home, cache, sinks=sinks)
    blueprint = Blueprint.draw(installation)
    sink = next(iter(installation.config.sinks.values()))
    reader, long_ago = installation.cache(), "2026-01-01T00:00:00.000Z"
    entries = [
        {"dataset": name, "day": day}
        for name in reader.dataset_names()
        for day in reader.pin(name).partitions()
        if day != UNDATED
    ]
    common = {"sink": sink.name, "attempt": 0, "reason": "away", "failed_at": long_ago, "due_at": long_ago, "hopeless": False}
    with installation.open_ledger() as ledger, ledger.retries._in.writing() as connection:
        connection.execute(turns.retries.delete())
        connection.execute(turns.retries.insert(), [{**common, **entry} for entry in entries])
    sensor = definitions_of(blueprint).resolve_sensor_def(Names().requeue_sensor(sink.slug))
    elapsed, asked = [], []
    with dg.instance_for_test() as instance:
        for _ in range(times):
            started = time.perf_counter()
            with dg.build_sensor_context(instance=instance) as context:
                asked.append(len(sensor.evaluate_tick(context).run_requests or ()))
            elapsed.append(time.perf_counter() - started)
    return {"waiting": len(entries), "runs": max(asked), "first_seconds": elapsed[0], "later_seconds": median(elapsed[1:])}


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
