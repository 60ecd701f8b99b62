"""Which days the runs in progress will export anyway.

Why it is read off the runs and not off what was asked: a day can be on its way by a schedule, by a backfill or by hand, and a
backfill's runs carry none of our tags. Every one of them says which assets and which partitions it covers.
"""

from collections.abc import Mapping, Sequence

import dagster as dg

from hypaware_pipeline.model import Day
from hypaware_pipeline.orchestration.partitions import RANGE_END_TAG, RANGE_START_TAG

_PARTITION_TAG = "dagster/partition"
_IN_PROGRESS = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
]


def covered_partitions(
    instance: dg.DagsterInstance, assets: Sequence[dg.AssetKey], *, job: str, keys: Sequence[Day]
) -> Mapping[dg.AssetKey, set[Day]]:
    """The partitions that queued and started runs will export, by asset.

    Args:
        instance: Where the runs are.
        assets: Those of one sink.
        job: The sink's; a run of it that selects no asset covers all of them.
        keys: All partition keys, in order.
    """
    covered: dict[dg.AssetKey, set[Day]] = {asset: set() for asset in assets}
    for run in instance.get_runs(dg.RunsFilter(statuses=_IN_PROGRESS)):
        selected = covered.keys() & run.asset_selection if run.asset_selection else covered.keys() if run.job_name == job else ()
        if selected:
            days = _partitions(run.tags, keys)
            for asset in selected:
                covered[asset] |= days
    return covered


def _partitions(tags: Mapping[str, str], keys: Sequence[Day]) -> set[Day]:
    if _PARTITION_TAG in tags:
        return {Day(tags[_PARTITION_TAG])}
    if RANGE_START_TAG not in tags or RANGE_END_TAG not in tags:
        return set()
    return {key for key in keys if tags[RANGE_START_TAG] <= key <= tags[RANGE_END_TAG]}
