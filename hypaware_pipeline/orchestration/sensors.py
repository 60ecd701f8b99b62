"""What nobody runs for: changes of the cache, and how the exports stand.

Why a cursor is one digest: Dagster stores it with every tick, those that did nothing included. It names the state of things that
was reported whole; a tick that finds it again reads a few directories and is done.

Why what was reported is asked of Dagster and not remembered here: its history is disposable. Where it was pruned, and in another
home, what is missing is reported with the next change, at the latest tomorrow.

Why a tick is bounded: a cache of a thousand days takes a thousand events, ten milliseconds each, the first time. It goes on at
the next tick; the cursor stays where it was until all is said.
"""

import datetime as dt
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b

import dagster as dg

from hypaware_pipeline.cache.layout import resolve_root
from hypaware_pipeline.cache.versions import dataset_version
from hypaware_pipeline.errors import BadRequest, CacheError
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.export.plan import partition_of
from hypaware_pipeline.export.verdicts import judge
from hypaware_pipeline.model import UNDATED, DatasetName, Day, PartitionSummary
from hypaware_pipeline.orchestration.checks import report_verdicts
from hypaware_pipeline.orchestration.naming import Names
from hypaware_pipeline.orchestration.partitions import last_partition
from hypaware_pipeline.orchestration.sink_assets import SinkAssets

DATA_VERSION_TAG = "dagster/data_version"
EVENTS_PER_TICK = 200
"""Two seconds of a tick, of which Dagster allows sixty."""
_INTERVAL_SECONDS = 60


def cache_sensor(
    installation: Installation, datasets: Mapping[str, DatasetName], partitions: dg.DailyPartitionsDefinition, names: Names
) -> dg.SensorDefinition:
    """Reports changed days of the cache as materializations of its assets. `datasets` are names by slug."""

    def evaluate(context: dg.SensorEvaluationContext) -> str | None:
        last_partition(partitions)  # there is one at least
        keys = [Day(key) for key in partitions.get_partition_keys()]
        left = EVENTS_PER_TICK
        for slug, dataset in datasets.items():
            asset = names.cache_key(slug)
            changed = _changed_days(context.instance, installation, dataset, asset, keys)
            for event in changed[:left]:
                context.instance.report_runless_asset_event(event)
            if len(changed) > left:
                return f"{dataset}: {len(changed) - left} more changed days are reported at the next tick"
            left -= len(changed)
        return None

    return _sensor(
        names.plain("report_cache_changes"),
        "Reports which days of HypAware's cache changed, with their fingerprint as data version.",
        lambda: _state(installation, datasets.values()),
        evaluate,
    )


def check_sensor(installation: Installation, sinks: Sequence[SinkAssets], names: Names) -> dg.SensorDefinition:
    """Reports the verdict of every asset check that changed."""

    def evaluate(context: dg.SensorEvaluationContext) -> str | None:
        slugs = {(each.sink.name, name): (each.sink.slug, slug) for each in sinks for slug, name in each.datasets.items()}
        begins = {each.sink.name: each.begins for each in sinks}
        with installation.open_ledger() as ledger:
            verdicts = {
                names.sink_key(*slugs[verdict.sink, verdict.dataset]): verdict
                for verdict in judge(installation, ledger, [each.sink for each in sinks], begins=begins)
            }
        report_verdicts(context.instance, verdicts)
        return None

    def state() -> str | None:
        known = _state(installation, {name for each in sinks for name in each.datasets.values()})
        if known is None:
            return None
        with installation.open_ledger() as ledger:
            memories = {each.sink.name: ledger.plan_memory(each.sink.name) for each in sinks}
            alone = [[sink, hold.since, hold.reason] for sink, hold in ledger.retries.halted().items()]
            given_up = [[sink, *of] for sink in memories for of, retry in ledger.retries.queue(sink).items() if retry.given_up]
        revisions = [[sink, dataset, memory.revision] for sink, of in memories.items() for dataset, memory in sorted(of.items())]
        return _digest([known, revisions, alone, given_up])

    return _sensor(
        names.plain("judge_exports"),
        "Judges what was exported, and reports the asset checks whose verdict changed.",
        state,
        evaluate,
    )


def _sensor(
    name: str,
    description: str,
    state: Callable[[], str | None],
    evaluate: Callable[[dg.SensorEvaluationContext], str | None],
) -> dg.SensorDefinition:
    """A sensor that evaluates when the state of things is another than when it was last done.

    Args:
        name: Its name.
        description: What it does.
        state: A digest; None when nothing can be said, and it is evaluated in any case.
        evaluate: Does it; returns what is left to do, None when nothing is.
    """

    @dg.sensor(
        name=name,
        description=description,
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            now = state()
            if now is not None and context.cursor == now:
                return dg.SkipReason("nothing changed")
            left = evaluate(context)
        except (BadRequest, CacheError) as error:
            return dg.SkipReason(str(error))
        return dg.SensorResult(skip_reason=dg.SkipReason(left or "reported"), cursor=None if left else now)

    return sensor


def _state(installation: Installation, datasets: Iterable[DatasetName]) -> str | None:
    """A digest of the cache and the date; None when a source cannot be read."""
    root = resolve_root(installation.config.cache_root)
    versions = {name: dataset_version(root, name) for name in datasets}
    if None in versions.values():
        return None
    return _digest([installation.clock().astimezone(dt.UTC).date().isoformat(), sorted(versions.items())])


def _changed_days(
    instance: dg.DagsterInstance, installation: Installation, dataset: DatasetName, asset: dg.AssetKey, keys: Sequence[Day]
) -> list[dg.AssetMaterialization]:
    """The days whose fingerprint is not the one Dagster has, oldest first; days that left the cache have no rows."""
    pin = installation.cache().pin(dataset)
    of_partition: dict[Day, list[PartitionSummary]] = {}
    for day, summary in pin.partitions().items():
        of_partition.setdefault(partition_of(day, keys[0]), []).append(summary)
    known = instance.event_log_storage.get_latest_tags_by_partition(
        asset, dg.DagsterEventType.ASSET_MATERIALIZATION, [DATA_VERSION_TAG]
    )
    versions = {Day(key): tags.get(DATA_VERSION_TAG) for key, tags in known.items()}
    days = sorted((of_partition.keys() | versions.keys()) & set(keys))
    events = [_event(asset, day, of_partition.get(day) or [pin.summary(day)]) for day in days]
    return [event for event in events if (event.tags or {})[DATA_VERSION_TAG] != versions.get(Day(str(event.partition)))]


def _event(asset: dg.AssetKey, day: Day, summaries: Sequence[PartitionSummary]) -> dg.AssetMaterialization:
    version = "+".join(summary.fingerprint for summary in summaries)
    unreadable = {str(source): reason for summary in summaries for source, reason in summary.unreadable.items()}
    rows = {summary.day: summary.rows for summary in summaries}
    return dg.AssetMaterialization(
        asset,
        partition=day,
        tags={DATA_VERSION_TAG: version},
        metadata={
            "dagster/partition_row_count": sum(rows.values()),
            "undated": rows.get(UNDATED, 0),
            **({"unreadable": dg.MetadataValue.json(unreadable)} if unreadable else {}),
        },
    )


def _digest(value: object) -> str:
    return blake2b(json.dumps(value).encode(), digest_size=16).hexdigest()
