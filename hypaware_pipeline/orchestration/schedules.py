"""A sink's schedule: at every tick, the days that changed since their last export.

Why not "the day of this tick": Dagster does not catch up on ticks that were missed, a day changes long after it ended, and most
days change at no tick at all. What is due is a matter of state, and the plan knows it.

Why a sink that is paused is not even looked at: its command before the tick may be what somebody wants to have stopped.
"""

from collections.abc import Mapping, Sequence
from functools import cache

import dagster as dg

from hypaware_pipeline.errors import BadRequest, CacheMissing
from hypaware_pipeline.export.before_tick import run_before_tick
from hypaware_pipeline.export.due import Scope, ask
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.model import DatasetName, Day
from hypaware_pipeline.orchestration.coverage import covered_partitions
from hypaware_pipeline.orchestration.naming import Names
from hypaware_pipeline.orchestration.partitions import last_partition
from hypaware_pipeline.orchestration.requeue import paused_text
from hypaware_pipeline.orchestration.run_requests import partition_keys, ranges_of, requests_of
from hypaware_pipeline.orchestration.sink_assets import SinkAssets

RUNS_PER_TICK = 25
"""At most so many ranges: each is a run of some seconds, and scattered days make as many ranges."""


def sink_schedule(
    installation: Installation, assets: SinkAssets, names: Names, *, cron: str, env: Mapping[str, str]
) -> dg.ScheduleDefinition:
    """The schedule of a sink, running unless somebody stops it: the config is the switch.

    Args:
        installation: Where everything is.
        assets: What it exports.
        names: How things are called.
        cron: When, as Dagster reads it.
        env: For the command that runs ahead of a tick.
    """
    slug = assets.sink.slug

    @dg.schedule(
        name=names.schedule(slug),
        job_name=names.job(slug),
        cron_schedule=cron,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Exports the days of sink `{assets.sink.name}` that changed since their last export; times are in UTC.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        with installation.open_ledger() as ledger:
            paused = ledger.retries.paused().get(assets.sink.name)
        if paused is not None:
            return dg.SkipReason(paused_text(assets, paused.since))
        command = run_before_tick(assets.sink, env)
        problem = command.problem if command is not None else None
        return _tick(context, installation, assets, names, said_before=[problem] if problem else [])

    return schedule


def _tick(
    context: dg.ScheduleEvaluationContext,
    installation: Installation,
    assets: SinkAssets,
    names: Names,
    *,
    said_before: Sequence[str],
) -> list[dg.RunRequest] | dg.SkipReason:
    of_dataset = {name: names.sink_key(assets.sink.slug, slug) for slug, name in assets.datasets.items()}

    @cache
    def covered() -> Mapping[DatasetName, set[Day]]:
        keys = partition_keys(assets)
        found = covered_partitions(context.instance, list(of_dataset.values()), job=names.job(assets.sink.slug), keys=keys)
        return {name: found[asset] for name, asset in of_dataset.items()}

    try:
        scope = Scope(assets.begins, assets.first_day, last_partition(assets.partitions), covered)
        with installation.open_ledger() as ledger:
            asked = ask(installation, ledger, assets.sink, scope)
    except (BadRequest, CacheMissing) as error:
        return dg.SkipReason(str(error))
    ranges = ranges_of([(entry.dataset, entry.day) for entry in asked.days], partition_keys(assets)) if asked.days else []
    left = len(ranges[RUNS_PER_TICK:])
    said = [*said_before, *asked.said, *([f"{left} more ranges of days are due and left to the next tick"] if left else [])]
    if not ranges:
        return dg.SkipReason("; ".join(["no day changed since its last export", *said]))
    for sentence in said:
        context.log.warning(sentence)
    return requests_of(ranges[:RUNS_PER_TICK], assets, names, keyed=True)
