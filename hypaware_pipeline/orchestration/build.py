"""A config to Definitions: every dataset an external asset, every sink a group of assets with its IO manager, job and schedule.

Why a broken entry becomes an asset: one exception here takes the whole code location, and every other sink, with it. An asset
that says what is wrong is seen where people look. Only `dagster definitions validate`, which asks whether all is well, is told.

Why the executor is set per job: the default one belongs to the deployment these definitions are merged into.

Why the observer is a resource: the CLI runs these very definitions in its own process and wants to be told of each day as it is
done.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from hypaware_pipeline.config import SinkConfig, find_config_path
from hypaware_pipeline.config.names import distinct_slug, slug
from hypaware_pipeline.errors import BadRequest, ConfigErrors, PipelineError
from hypaware_pipeline.export.beginnings import begins
from hypaware_pipeline.export.blueprint import Blueprint
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.export.leases import RUN_WAITS_SECONDS
from hypaware_pipeline.model import Dataset, DatasetName, Day
from hypaware_pipeline.orchestration.assets import SinkAssetTexts, broken_asset, cache_asset, sink_asset
from hypaware_pipeline.orchestration.checks import sink_checks
from hypaware_pipeline.orchestration.io_managers import CacheIOManager, Observer, SinkIOManager
from hypaware_pipeline.orchestration.naming import Names
from hypaware_pipeline.orchestration.partitions import daily_partitions
from hypaware_pipeline.orchestration.pinning import pinned_text
from hypaware_pipeline.orchestration.requeue import requeue_sensor
from hypaware_pipeline.orchestration.resources import BlobStoreResource, EncoderResource, TableFormatResource
from hypaware_pipeline.orchestration.run_requests import SINK_TAG
from hypaware_pipeline.orchestration.schedules import sink_schedule
from hypaware_pipeline.orchestration.sensors import cache_sensor, check_sensor
from hypaware_pipeline.orchestration.sink_assets import SinkAssets
from hypaware_pipeline.plugins.registry import destination_digest

_VALIDATING = "DAGSTER_IS_DEFS_VALIDATION_CLI"
"""Set by `dagster definitions validate`."""


def build_definitions(
    config: Path | str | None = None, *, key_prefix: Sequence[str] | str = (), env: Mapping[str, str] = os.environ
) -> dg.Definitions:
    """Everything one configuration shows, to be a code location or merged into one. Needs no network and no secret.

    A configuration that cannot be used shows as an asset that says why.

    Args:
        config: The config file; by default the one the environment leads to.
        key_prefix: Put before every asset key, and with `_` before every other name; a text alone is its only part.
        env: The environment.

    Raises:
        ConfigErrors: something in the file is wrong, and `dagster definitions validate` asks.
    """
    names = Names((key_prefix,) if isinstance(key_prefix, str) else tuple(key_prefix))

    def draw() -> str:
        path = find_config_path(None if config is None else Path(config), env)
        return Blueprint.draw(Installation.load(path, env)).to_text()

    try:
        text = pinned_text(names.plain("hypaware_pipeline"), draw)
    except (BadRequest, ConfigErrors) as error:
        if _VALIDATING in env:
            raise
        return broken_definitions(error, names)
    try:
        blueprint = Blueprint.from_text(text, env=env)
    except ValueError:  # a run that an older version of this program queued
        blueprint = Blueprint.from_text(draw(), env=env)
    problems = blueprint.installation.config.problems
    if problems and _VALIDATING in env:
        raise ConfigErrors(str(blueprint.installation.config.path), list(problems))
    return definitions_of(blueprint, names=names, env=env)


def definitions_of(
    blueprint: Blueprint,
    *,
    names: Names | None = None,
    observer: Observer | None = None,
    lease_wait_seconds: float = RUN_WAITS_SECONDS,
    env: Mapping[str, str] = os.environ,
) -> dg.Definitions:
    """What a blueprint shows.

    Args:
        blueprint: All that shapes it.
        names: How things are called.
        observer: Told of every exported day, in the process of the run.
        lease_wait_seconds: How long a run waits for another export of the same (sink, dataset).
        env: For the commands that run ahead of a tick.
    """
    observe = dg.ResourceDefinition.hardcoded_resource(observer or _nobody)
    plan = _Plan(blueprint, names or Names(), observe, env, lease_wait_seconds)
    config, beginnings = blueprint.installation.config, blueprint.beginnings
    broken = [
        broken_asset(
            plan.names, distinct_slug(name), f"Sink `{name}` cannot be built.", "\n".join(f"- {each}" for each in errors)
        )
        for name, errors in config.broken_sinks.items()
    ]
    if blueprint.cache_error is not None:
        broken.append(broken_asset(plan.names, "the_cache", "The cache cannot be read.", blueprint.cache_error))
    notes = "\n".join([*([beginnings.note] if beginnings.note else []), *config.notes])
    metadata = {"first_day": beginnings.first_day, "config": str(config.path), **({"notes": notes} if notes else {})}
    return dg.Definitions.merge(
        _cache_definitions(plan),
        *(_sink_definitions(plan, sink) for sink in config.sinks.values()),
        _check_sensor_definitions(plan),
        dg.Definitions(assets=broken, metadata=metadata),
    )


def broken_definitions(error: PipelineError, names: Names | None = None) -> dg.Definitions:
    """What the code location shows when the configuration as a whole cannot be used."""
    title, reason = "The configuration cannot be used.", str(error)
    if isinstance(error, ConfigErrors):
        title = f"The configuration {error.path} cannot be used."
        reason = "\n".join(f"- {each}" for each in error.errors)
    return dg.Definitions(assets=[broken_asset(names or Names(), "the_configuration", title, reason)])


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the parts share."""

    blueprint: Blueprint
    names: Names
    observe: dg.ResourceDefinition
    env: Mapping[str, str]
    lease_wait_seconds: float

    @property
    def first_day(self) -> Day:
        return self.blueprint.beginnings.first_day

    @property
    def datasets(self) -> dict[str, Dataset]:
        """By slug."""
        return {distinct_slug(dataset.name): dataset for dataset in self.blueprint.datasets}

    @property
    def dataset_names(self) -> dict[str, DatasetName]:
        """Raw names by slug."""
        return {slug: dataset.name for slug, dataset in self.datasets.items()}

    def assets_of(self, sink: SinkConfig) -> SinkAssets:
        """The datasets a sink takes, and where its schedule begins with each."""
        taken = {key: name for key, name in self.dataset_names.items() if sink.takes(name)}
        first_seen = self.blueprint.beginnings.sink_starts.get(sink.name, self.first_day)
        starts = {name: begins(sink, name, first_seen) or self.first_day for name in taken.values()}
        return SinkAssets(sink, taken, starts, self.first_day, daily_partitions(self.first_day))


def _cache_definitions(plan: _Plan) -> dg.Definitions:
    installation, partitions = plan.blueprint.installation, daily_partitions(plan.first_day)
    manager = CacheIOManager(
        cache_root=str(installation.config.cache_root),
        index_dir=str(installation.state.index),
        spill_dir=str(installation.state.spill),
        floor_day=installation.config.floor_day,
        first_day=plan.first_day,
        datasets={key: str(name) for key, name in plan.dataset_names.items()},
    )
    return dg.Definitions(
        assets=[cache_asset(plan.names, dataset, key, partitions) for key, dataset in plan.datasets.items()],
        sensors=[cache_sensor(installation, plan.dataset_names, partitions, plan.names)] if plan.datasets else [],
        resources={plan.names.cache_io_manager: manager},
    )


def _sink_definitions(plan: _Plan, sink: SinkConfig) -> dg.Definitions:
    """One sink: an asset and a check per dataset it takes, its IO manager, its job, its schedule and its requeue sensor."""
    installation, mine, datasets = plan.blueprint.installation, plan.assets_of(sink), plan.datasets
    texts = SinkAssetTexts(sink.name, _kinds(sink), sink.owners, plan.blueprint.beginnings.sink_starts.get(sink.name))
    assets = [
        sink_asset(
            plan.names,
            sink.slug,
            key,
            dataset=datasets[key],
            texts=texts,
            description=_description(sink, name),
            partitions=mine.partitions,
        )
        for key, name in mine.datasets.items()
    ]
    resources: dict[str, Any] = {plan.names.io_manager(sink.slug): _sink_io_manager(plan, sink)}
    if not assets:
        return dg.Definitions(resources=resources)
    job = dg.define_asset_job(
        plan.names.job(sink.slug),
        selection=dg.AssetSelection.assets(*(asset.key for asset in assets)).without_checks(),
        tags={SINK_TAG: sink.slug},
        executor_def=dg.in_process_executor,
        description=f"Exports days of sink `{sink.name}`.",
    )
    return dg.Definitions(
        assets=assets,
        asset_checks=sink_checks(installation, mine, plan.names),
        jobs=[job],
        schedules=[sink_schedule(installation, mine, plan.names, cron=sink.cron, env=plan.env)] if sink.cron else [],
        sensors=[requeue_sensor(installation, mine, plan.names)],
        resources=resources,
    )


def _check_sensor_definitions(plan: _Plan) -> dg.Definitions:
    """One sensor for the checks of all sinks."""
    sinks = [plan.assets_of(sink) for sink in plan.blueprint.installation.config.sinks.values()]
    judged = [sink for sink in sinks if sink.datasets]
    return dg.Definitions(sensors=[check_sensor(plan.blueprint.installation, judged, plan.names)] if judged else [])


def _sink_io_manager(plan: _Plan, sink: SinkConfig) -> SinkIOManager:
    encoder, encoder_settings = sink.encoding
    table_format = TableFormatResource()
    if sink.encoder is not None:
        table_format = TableFormatResource(plugin=sink.writer, settings=dict(sink.writer_settings))
    return SinkIOManager(
        sink=sink.name,
        prefix=sink.prefix,
        destination=destination_digest(sink),
        ledger=plan.blueprint.installation.ledger.shown,
        first_day=plan.first_day,
        takeover=sink.takeover,
        lease_wait_seconds=plan.lease_wait_seconds,
        encoder=EncoderResource(plugin=encoder, settings=dict(encoder_settings)),
        blob_store=BlobStoreResource(plugin=sink.destination, settings=dict(sink.destination_settings)),
        table_format=table_format,
        observer=plan.observe,
    )


def _kinds(sink: SinkConfig) -> list[str]:
    """`@hypaware/format-parquet` on `@hypaware/local-fs` reads `parquet`, `local_fs`."""
    return [slug(plugin.rsplit("/", 1)[-1].removeprefix("format-")) for plugin in (sink.writer, sink.destination)]


def _description(sink: SinkConfig, dataset: DatasetName) -> str:
    settings = {**sink.writer_settings, **sink.destination_settings, **({"prefix": sink.prefix} if sink.prefix else {})}
    lines = [f"`{dataset}` exported by `{sink.writer}` to `{sink.destination}`, one object per day and source."]
    return "\n".join([*lines, "", *(f"- {key}: `{value}`" for key, value in settings.items())])


def _nobody(_: object) -> None:
    """Nobody watches."""
