"""Datasets and sinks as assets.

Why cache assets are external: a step that fails for one day makes Dagster skip every downstream day of the run. The cache is
HypAware's; nothing here produces it.

Why one asset per (sink, dataset): it is the grain at which a person asks, retries and is told.
"""

import warnings
from collections.abc import Sequence

import dagster as dg

from hypaware_pipeline.export.slices import CacheSlice

CACHE = "cache"
"""First part of every cache asset's key, and the name of their group."""

CACHE_IO_MANAGER = "cache_io_manager"


def cache_asset(dataset: str, slug: str, partitions: dg.PartitionsDefinition) -> dg.AssetSpec:
    """The cache of one dataset, as HypAware keeps it."""
    return dg.AssetSpec(
        key=[CACHE, slug],
        group_name=CACHE,
        partitions_def=partitions,
        kinds={"iceberg", "hypaware"},
        description=f"HypAware's cache of `{dataset}`: live rows by UTC day. Written by HypAware alone; only ever read here.",
        metadata={"dataset": dataset},
    ).with_io_manager_key(CACHE_IO_MANAGER)


def sink_asset(
    *,
    sink: str,
    sink_slug: str,
    dataset: str,
    dataset_slug: str,
    kinds: Sequence[str],
    description: str,
    partitions: dg.PartitionsDefinition,
    first_seen: str | None,
) -> dg.AssetsDefinition:
    """The copy of one dataset at one sink. `first_seen` is the UTC day the sink was first seen, if that is known."""

    def export(rows: CacheSlice) -> CacheSlice:
        return rows

    with warnings.catch_warnings():
        # Backfill policies are marked beta; without one, a backfill of a year is 365 runs.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.asset(
            key=[sink_slug, dataset_slug],
            ins={"rows": dg.AssetIn(key=[CACHE, dataset_slug])},
            io_manager_key=io_manager_key(sink_slug),
            partitions_def=partitions,
            backfill_policy=dg.BackfillPolicy.single_run(),
            group_name=sink_slug,
            kinds=set(kinds),
            pool=f"sink_{sink_slug}",
            description=description,
            metadata={"dataset": dataset, "sink": sink, **({"first_seen": first_seen} if first_seen else {})},
        )(export)


def broken_asset(slug: str, title: str, reason: str) -> dg.AssetSpec:
    """Something that could not be built: an asset that says why, and cannot be run."""
    return dg.AssetSpec(key=["broken", slug], group_name="broken", kinds={"error"}, description=f"{title}\n\n{reason}")


def io_manager_key(sink_slug: str) -> str:
    """Under which a sink's IO manager is bound."""
    return f"{sink_slug}_io_manager"
