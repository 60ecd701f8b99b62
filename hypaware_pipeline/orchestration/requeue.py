"""The requeue sensor of a sink: asks for exactly the days that failed, each in its time.

Why a request carries no run key: Dagster launches a sensor's key once and never again, also when that run was cancelled before it
did anything. What keeps a day from being asked for twice is its claim in the ledger.

Why a day is claimed before its run is asked for: of two daemons that share a ledger one asks. A claim that comes to nothing
expires.

Why what waits or runs is read off Dagster's runs all the same: a run may wait for longer than a claim lasts, and a day may be on
its way by a backfill.

Why an evaluation is bounded: a destination that was away for a night gives thousands of days back at once. What is left follows
half a minute later.
"""

from collections.abc import Sequence

import dagster as dg

from hypaware_pipeline.errors import BadRequest
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.export.outlook import counted
from hypaware_pipeline.export.plan import partition_of
from hypaware_pipeline.export.requeue import stalls
from hypaware_pipeline.ledger import Ledger
from hypaware_pipeline.ledger.retries import Retry
from hypaware_pipeline.model import Day
from hypaware_pipeline.orchestration.coverage import covered_partitions
from hypaware_pipeline.orchestration.naming import Names
from hypaware_pipeline.orchestration.partitions import last_partition
from hypaware_pipeline.orchestration.run_requests import WantedRange, partition_keys, ranges_of, requests_of
from hypaware_pipeline.orchestration.sink_assets import SinkAssets

REQUEUED_TAG = "hypaware/requeued"
"""On every run that the sensor asks for; what runs are searched by in the UI."""

DAYS_PER_EVALUATION = 200
"""At most so many days are claimed at once, the newest first."""
RUNS_PER_EVALUATION = 10
"""At most so many runs are asked for at once: each takes some seconds, and four are in progress at a time."""
_INTERVAL_SECONDS = 30


def requeue_sensor(installation: Installation, assets: SinkAssets, names: Names) -> dg.SensorDefinition:
    """The sensor of a sink, running unless somebody stops it."""
    name, slug = assets.sink.name, assets.sink.slug

    @dg.sensor(
        name=names.requeue_sensor(slug),
        job_name=names.job(slug),
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Asks for the days of sink `{name}` that failed, each after its back-off.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        with installation.open_ledger() as ledger:
            reason = _left_alone(ledger, assets)
            if reason is not None:
                return dg.SkipReason(reason)
            try:
                ranges = _claimed(context.instance, ledger, assets, names) if ledger.retries.due(name) else []
            except BadRequest as error:
                return dg.SkipReason(str(error))
            requests = requests_of(ranges, assets, names, keyed=False, tags={REQUEUED_TAG: "true"})
            return requests or dg.SkipReason(_waiting(ledger, assets))

    return sensor


def _left_alone(ledger: Ledger, assets: SinkAssets) -> str | None:
    """Why nothing is asked for whatever waits; None when nothing stands in the way."""
    paused = ledger.retries.paused().get(assets.sink.name)
    if paused is not None:
        return paused_text(assets, paused.since)
    halted = ledger.retries.halted().get(assets.sink.name)
    if halted is not None:
        return f"the sink is halted since {halted.since}; only its schedule tries it: {halted.reason}"
    return None


def paused_text(assets: SinkAssets, since: str) -> str:
    """Why a paused sink asks for nothing."""
    return f"the sink is paused since {since}; `hypaware-pipeline resume {assets.sink.name}` ends that"


def _claimed(instance: dg.DagsterInstance, ledger: Ledger, assets: SinkAssets, names: Names) -> list[WantedRange]:
    """The ranges whose time has come. Their days are claimed."""
    last_partition(assets.partitions)  # there is one at least
    keys = partition_keys(assets)
    chosen = _askable(instance, ledger.retries.due(assets.sink.name), assets, names, keys)[:DAYS_PER_EVALUATION]
    ranges = ranges_of([(entry.dataset, entry.day) for entry in chosen], keys)[:RUNS_PER_EVALUATION]
    within = [entry for entry in chosen if any(each.covers((entry.dataset, entry.day), keys[0]) for each in ranges)]
    return ranges_of([(entry.dataset, entry.day) for entry in ledger.retries.request(within)], keys)


def _askable(
    instance: dg.DagsterInstance, due: Sequence[Retry], assets: SinkAssets, names: Names, keys: Sequence[Day]
) -> list[Retry]:
    """Those that have an asset and a partition, and that no run in progress exports."""
    of_dataset = {name: names.sink_key(assets.sink.slug, slug) for slug, name in assets.datasets.items()}
    covered = covered_partitions(instance, list(of_dataset.values()), job=names.job(assets.sink.slug), keys=keys)
    known = set(keys)
    return [
        entry
        for entry in due
        if entry.dataset in of_dataset
        and (partition := partition_of(entry.day, keys[0])) in known
        and partition not in covered[of_dataset[entry.dataset]]
    ]


def _waiting(ledger: Ledger, assets: SinkAssets) -> str:
    """Why nothing is asked for."""
    queue = list(ledger.retries.queue(assets.sink.name).values())
    given_up = stalls(queue)
    turns = [max(entry.due_at, entry.requested_until or "") for entry in queue if not entry.given_up]
    said = [f"{counted(len(turns), 'day')} to be tried again, the next at {min(turns)}"] if turns else []
    return "; ".join([*said, *map(str, given_up)]) or "no day waits to be tried again"
