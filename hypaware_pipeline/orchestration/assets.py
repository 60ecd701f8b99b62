"""Datasets and sinks as assets.

Why cache assets are external: a step that fails for one day makes Dagster skip every downstream day of the run. The cache is
HypAware's; nothing here produces it.

Why one asset per (sink, dataset): it is the grain at which a person asks, retries and is told.

Why owners stand on assets alone: on jobs and schedules they are beta in Dagster.

Why the column schema stands on the definition: on every event it would be 12 KB per day of Dagster's database.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from hypaware_pipeline.export.slices import CacheSlice
from hypaware_pipeline.model import Dataset, SinkName
from hypaware_pipeline.orchestration.naming import BROKEN, CACHE, Names

_PRODUCED_ELSEWHERE = (
    "It cannot be materialized from here: leave `{key}` out of a backfill, and choose the assets of a sink, which read it."
)


_CACHE_SLICE = dg.PythonObjectDagsterType(
    CacheSlice,
    name="CacheSlice",
    description=(
        "Days of one dataset of HypAware's cache. It holds no rows: the sink's IO manager reads the days, one after the other, "
        "while it writes them."
    ),
)
"""What the UI shows as the type of a sink's assets; without it, Dagster would say that it made one from a type hint."""


@dataclass(frozen=True, slots=True)
class SinkAssetTexts:
    """What all assets of a sink say of it.

    Attributes:
        owners: E-mail addresses, and teams as `team:name`.
        first_seen: The UTC day the sink was first seen, if that is known.
    """

    sink: SinkName
    kinds: Sequence[str]
    owners: Sequence[str]
    first_seen: str | None


def cache_asset(names: Names, dataset: Dataset, slug: str, partitions: dg.PartitionsDefinition) -> dg.AssetSpec:
    """The cache of one dataset, as HypAware keeps it."""
    key = names.cache_key(slug)
    what = f"HypAware's cache of `{dataset.name}`: live rows by UTC day. Written by HypAware alone; only ever read here."
    return dg.AssetSpec(
        key=key,
        group_name=names.plain(CACHE),
        partitions_def=partitions,
        kinds={"iceberg", "hypaware"},
        description=f"{what}\n\n{_PRODUCED_ELSEWHERE.format(key=key.to_user_string())}",
        metadata={"dataset": dataset.name, **_column_schema(dataset)},
    ).with_io_manager_key(names.cache_io_manager)


def sink_asset(
    names: Names,
    sink: str,
    slug: str,
    *,
    dataset: Dataset,
    texts: SinkAssetTexts,
    description: str,
    partitions: dg.PartitionsDefinition,
) -> dg.AssetsDefinition:
    """The copy of one dataset at one sink; `sink` and `slug` are the two slugs of its key."""

    def export(rows: CacheSlice) -> CacheSlice:
        return rows

    first_seen = {"first_seen": texts.first_seen} if texts.first_seen else {}
    with warnings.catch_warnings():
        # Backfill policies are marked beta; without one, a backfill of a year is 365 runs.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.asset(
            key=names.sink_key(sink, slug),
            ins={"rows": dg.AssetIn(key=names.cache_key(slug), dagster_type=_CACHE_SLICE)},
            dagster_type=_CACHE_SLICE,
            io_manager_key=names.io_manager(sink),
            partitions_def=partitions,
            backfill_policy=dg.BackfillPolicy.single_run(),
            group_name=names.plain(sink),
            kinds=set(texts.kinds),
            owners=texts.owners,
            tags={"hypaware/sink": sink, "hypaware/dataset": slug},
            pool=names.plain(f"sink_{sink}"),
            description=description,
            metadata={"dataset": dataset.name, "sink": texts.sink, **first_seen, **_column_schema(dataset)},
        )(export)


def broken_asset(names: Names, slug: str, title: str, reason: str) -> dg.AssetSpec:
    """Something that could not be built: an asset that says why, and cannot be run."""
    return dg.AssetSpec(
        key=names.broken_key(slug), group_name=names.plain(BROKEN), kinds={"error"}, description=f"{title}\n\n{reason}"
    )


def _column_schema(dataset: Dataset) -> dict[str, Any]:
    """The columns; nothing while an open dataset has no table that can be read."""
    columns = [dg.TableColumn(column.name, str(column.type)) for column in dataset.columns]
    return {"dagster/column_schema": dg.TableSchema(columns)} if columns else {}
