"""A config to Definitions: every dataset an external asset, every sink a group of assets with its IO manager and its job.

Why a broken entry becomes an asset: one exception here takes the whole code location, and every other sink, with it. An asset
that says what is wrong is seen where people look.

Why the observer is a resource: the CLI runs these very definitions in its own process and wants to be told of each day as it is
done.
"""

from pathlib import Path
from typing import Any

import dagster as dg

from hypaware_pipeline.config import SinkConfig
from hypaware_pipeline.config.names import distinct_slug, slug
from hypaware_pipeline.errors import CacheError, ConfigErrors, PipelineError
from hypaware_pipeline.export.beginnings import Beginnings, beginnings
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.model import DatasetName, Day
from hypaware_pipeline.orchestration.assets import CACHE_IO_MANAGER, broken_asset, cache_asset, io_manager_key, sink_asset
from hypaware_pipeline.orchestration.io_managers import CacheIOManager, Observer, SinkIOManager
from hypaware_pipeline.orchestration.partitions import daily_partitions
from hypaware_pipeline.orchestration.resources import BlobStoreResource, EncoderResource
from hypaware_pipeline.plugins.registry import destination_digest


def build_definitions(installation: Installation, *, observer: Observer | None = None) -> dg.Definitions:
    """Everything the code location shows for one configuration. Needs no network and no secret; reads directory names, no rows.

    Args:
        installation: The configuration and its state.
        observer: Told of every exported day, in the process of the run.
    """
    config = installation.config
    begins = beginnings(installation)
    partitions = daily_partitions(begins.first_day)
    datasets, cache_error = _datasets(installation)
    observe = dg.ResourceDefinition.hardcoded_resource(observer or _nobody)
    parts = [_cache_definitions(installation, datasets, begins.first_day, partitions)]
    parts += [_sink_definitions(installation, sink, datasets, begins, partitions, observe) for sink in config.sinks.values()]
    broken = [
        broken_asset(distinct_slug(name), f"Sink `{name}` cannot be built.", "\n".join(f"- {error}" for error in errors))
        for name, errors in config.broken_sinks.items()
    ]
    if cache_error is not None:
        broken.append(broken_asset("the_cache", "The cache cannot be read.", cache_error))
    notes = {"first_day": begins.first_day, "config": str(config.path), **({"note": begins.note} if begins.note else {})}
    common = dg.Definitions(assets=broken, executor=dg.in_process_executor, metadata=notes)
    return dg.Definitions.merge(*parts, common)


def broken_definitions(error: PipelineError) -> dg.Definitions:
    """What the code location shows when the configuration as a whole cannot be used."""
    reason = "\n".join(f"- {each}" for each in error.errors) if isinstance(error, ConfigErrors) else str(error)
    title = (
        f"The configuration {error.path} cannot be used."
        if isinstance(error, ConfigErrors)
        else "The configuration cannot be used."
    )
    return dg.Definitions(assets=[broken_asset("the_configuration", title, reason)])


def export_job_name(sink_slug: str) -> str:
    """The job that exports one sink."""
    return f"export_{sink_slug}"


def _datasets(installation: Installation) -> tuple[dict[str, DatasetName], str | None]:
    """Dataset names by slug, from the cache's directories alone."""
    from hypaware_pipeline.cache.layout import dataset_names, resolve_root  # light: lists directories

    try:
        return {distinct_slug(name): name for name in dataset_names(resolve_root(installation.config.cache_root))}, None
    except CacheError as error:
        return {}, str(error)


def _cache_definitions(
    installation: Installation, datasets: dict[str, DatasetName], begins: Day, partitions: dg.PartitionsDefinition
) -> dg.Definitions:
    manager = CacheIOManager(
        cache_root=str(installation.config.cache_root),
        index_dir=str(installation.state.index),
        spill_dir=str(installation.state.spill),
        floor_day=installation.config.floor_day,
        first_day=begins,
        datasets={key: str(name) for key, name in datasets.items()},
    )
    return dg.Definitions(
        assets=[cache_asset(name, key, partitions) for key, name in datasets.items()],
        resources={CACHE_IO_MANAGER: manager},
    )


def _sink_definitions(
    installation: Installation,
    sink: SinkConfig,
    datasets: dict[str, DatasetName],
    begins: Beginnings,
    partitions: dg.PartitionsDefinition,
    observe: dg.ResourceDefinition,
) -> dg.Definitions:
    """One sink: an asset per dataset it takes, its IO manager, its job."""
    taken = {key: name for key, name in datasets.items() if sink.takes(name)}
    manager = SinkIOManager(
        sink=sink.name,
        prefix=sink.prefix,
        destination=destination_digest(sink),
        ledger=str(Path(installation.state.ledger)),
        first_day=begins.first_day,
        encoder=EncoderResource(plugin=sink.writer, settings=dict(sink.writer_settings)),
        blob_store=BlobStoreResource(plugin=sink.destination, settings=dict(sink.destination_settings)),
        observer=observe,
    )
    assets = [
        sink_asset(
            sink=sink.name,
            sink_slug=sink.slug,
            dataset=name,
            dataset_slug=key,
            kinds=_kinds(sink),
            description=_description(sink, name),
            partitions=partitions,
            first_seen=begins.sink_starts.get(sink.name),
        )
        for key, name in taken.items()
    ]
    jobs: list[Any] = []
    if assets:
        selection = dg.AssetSelection.assets(*(asset.key for asset in assets))
        jobs = [dg.define_asset_job(export_job_name(sink.slug), selection=selection, tags={"hypaware/sink": sink.slug})]
    return dg.Definitions(assets=assets, jobs=jobs, resources={io_manager_key(sink.slug): manager})


def _kinds(sink: SinkConfig) -> list[str]:
    """`@hypaware/format-parquet` on `@hypaware/local-fs` reads `parquet`, `local_fs`."""
    return [slug(plugin.rsplit("/", 1)[-1].removeprefix("format-")) for plugin in (sink.writer, sink.destination)]


def _description(sink: SinkConfig, dataset: DatasetName) -> str:
    settings = {**sink.writer_settings, **sink.destination_settings, **({"prefix": sink.prefix} if sink.prefix else {})}
    lines = [f"`{dataset}` exported by `{sink.writer}` to `{sink.destination}`, one object per day and source."]
    return "\n".join([*lines, "", *(f"- {key}: `{value}`" for key, value in settings.items())])


def _nobody(_: object) -> None:
    """Nobody watches."""
