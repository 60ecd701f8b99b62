"""Days that are wanted as run requests.

Why one run per contiguous range, shared by the datasets that have exactly that range: a run costs seconds and 130 KB of history.

Why a request names no asset check: Dagster adds the checks of the selected assets unless it is told otherwise, and checks are
judged by their own sensor.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from hypaware_pipeline.export.plan import contiguous_ranges, partition_of
from hypaware_pipeline.model import DatasetName, Day
from hypaware_pipeline.orchestration.naming import Names
from hypaware_pipeline.orchestration.partitions import range_tags
from hypaware_pipeline.orchestration.sink_assets import SinkAssets

SINK_TAG = "hypaware/sink"
"""On every run of a sink's job: the sink's slug."""

Wanted = tuple[DatasetName, Day]
"""A day of a dataset that is to be exported."""


@dataclass(frozen=True, slots=True)
class WantedRange:
    """Partitions from `first` to `last`, both included, of the datasets that want exactly these."""

    first: Day
    last: Day
    datasets: Sequence[DatasetName]

    def covers(self, wanted: Wanted, first_day: Day) -> bool:
        """Whether a run over it exports that day."""
        dataset, day = wanted
        return dataset in self.datasets and self.first <= partition_of(day, first_day) <= self.last


def ranges_of(wanted: Sequence[Wanted], keys: Sequence[Day]) -> list[WantedRange]:
    """Ranges that cover exactly the wanted days, most urgent first, which is the order of `wanted`.

    Args:
        wanted: The days.
        keys: All partition keys, in order.

    Raises:
        ValueError: a day has no partition.
    """
    places: dict[DatasetName, dict[Day, int]] = {}
    for place, (dataset, day) in enumerate(wanted):
        places.setdefault(dataset, {}).setdefault(partition_of(day, keys[0]), place)
    shared: dict[tuple[Day, Day], list[DatasetName]] = {}
    best: dict[tuple[Day, Day], int] = {}
    for dataset, days in places.items():
        for first, last in contiguous_ranges(days, keys):
            shared.setdefault((first, last), []).append(dataset)
            place = min(place for day, place in days.items() if first <= day <= last)
            best[first, last] = min(place, best.get((first, last), place))
    return [WantedRange(*ends, sorted(shared[ends])) for ends in sorted(shared, key=lambda ends: best[ends])]


def requests_of(
    ranges: Iterable[WantedRange], assets: SinkAssets, names: Names, *, keyed: bool, tags: Mapping[str, str] | None = None
) -> list[dg.RunRequest]:
    """One request per range.

    Args:
        ranges: What to run.
        assets: The sink's.
        names: How things are called.
        keyed: Whether Dagster is to launch each range once only, as far as it asks with keys: a schedule's keys are those of its
            tick, a sensor's are never launched again, not even after a cancel.
        tags: Beside those that every run has.
    """
    slugs = {name: slug for slug, name in assets.datasets.items()}
    return [
        dg.RunRequest(
            run_key=f"{each.first}..{each.last} {' '.join(each.datasets)}" if keyed else None,
            asset_selection=[names.sink_key(assets.sink.slug, slugs[name]) for name in each.datasets],
            asset_check_keys=[],
            tags={**range_tags(assets.partitions, each.first, each.last), SINK_TAG: assets.sink.slug, **(tags or {})},
        )
        for each in ranges
    ]


def partition_keys(assets: SinkAssets) -> list[Day]:
    """All of them; making a thousand takes ten milliseconds, so that a tick which asks for nothing does without."""
    return [Day(key) for key in assets.partitions.get_partition_keys()]
