"""A sink's schedule: at every tick, the days that changed since their last export.

Why not "the day of this tick": Dagster does not catch up on ticks that were missed, a day changes long after it ended, and most
days change at no tick at all. What is due is a matter of state, and the plan knows it.

Why one run per contiguous range, shared by the datasets that have exactly that range: a run costs seconds and 130 KB of history.

Why a request names no asset check: Dagster adds the checks of the selected assets unless it is told otherwise, and checks are
judged by their own sensor.
"""

from collections.abc import Mapping, Sequence
from functools import cache

import dagster as dg

from hypaware_pipeline.errors import BadRequest, CacheMissing
from hypaware_pipeline.export.before_tick import run_before_tick
from hypaware_pipeline.export.due import Asked, Scope, ask
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.export.plan import contiguous_ranges, partition_of
from hypaware_pipeline.model import DatasetName, Day
from hypaware_pipeline.orchestration.coverage import covered_partitions
from hypaware_pipeline.orchestration.naming import Names
from hypaware_pipeline.orchestration.partitions import last_partition, range_tags
from hypaware_pipeline.orchestration.sink_assets import SinkAssets

SINK_TAG = "hypaware/sink"
"""On every run of a sink's job: the sink's slug."""

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
        keys = _keys(assets)
        found = covered_partitions(context.instance, list(of_dataset.values()), job=names.job(assets.sink.slug), keys=keys)
        return {name: found[asset] for name, asset in of_dataset.items()}

    try:
        scope = Scope(assets.begins, assets.first_day, last_partition(assets.partitions), covered)
        with installation.open_ledger() as ledger:
            asked = ask(installation, ledger, assets.sink, scope)
    except (BadRequest, CacheMissing) as error:
        return dg.SkipReason(str(error))
    ranges, left = _ranges(asked, _keys(assets)) if asked.days else ([], 0)
    said = [*said_before, *asked.said, *([f"{left} more ranges of days are due and left to the next tick"] if left else [])]
    if not ranges:
        return dg.SkipReason("; ".join(["no day changed since its last export", *said]))
    for sentence in said:
        context.log.warning(sentence)
    return [
        dg.RunRequest(
            run_key=f"{first}..{last} {' '.join(sorted(datasets))}",
            asset_selection=[of_dataset[name] for name in sorted(datasets)],
            asset_check_keys=[],
            tags={**range_tags(assets.partitions, first, last), SINK_TAG: assets.sink.slug},
        )
        for (first, last), datasets in ranges
    ]


def _keys(assets: SinkAssets) -> list[Day]:
    """All partition keys; a tick that asks for nothing does without the ten milliseconds a thousand of them take."""
    return [Day(key) for key in assets.partitions.get_partition_keys()]


_Range = tuple[Day, Day]


def _ranges(asked: Asked, keys: Sequence[Day]) -> tuple[list[tuple[_Range, list[DatasetName]]], int]:
    """Ranges with the datasets that share them, the most urgent first, and how many are left to the next tick."""
    places: dict[DatasetName, dict[Day, int]] = {}
    for place, entry in enumerate(asked.days):
        places.setdefault(entry.dataset, {}).setdefault(partition_of(entry.day, keys[0]), place)
    shared: dict[_Range, list[DatasetName]] = {}
    best: dict[_Range, int] = {}
    for dataset, days in places.items():
        for first, last in contiguous_ranges(days, keys):
            shared.setdefault((first, last), []).append(dataset)
            place = min(place for day, place in days.items() if first <= day <= last)
            best[first, last] = min(place, best.get((first, last), place))
    ordered = sorted(shared.items(), key=lambda item: best[item[0]])
    return ordered[:RUNS_PER_TICK], len(ordered[RUNS_PER_TICK:])
