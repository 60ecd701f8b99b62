"""The rules between the parts of a config: HypAware's, with its kinds and pointers, in its order.

Why the rules look at entries and not at a file: HypAware's own file, each of its layers, and ours are judged by the same ones.

Why a rule asks a catalog what plugins provide, and never a plugin: a file may name plugins whose code is not here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hypaware_pipeline.config.catalog import BLOB_STORE, ENCODER, HTTP_ENDPOINT, TABLE_FORMAT, Catalog, listed
from hypaware_pipeline.config.cron import cron_grammar_problem
from hypaware_pipeline.config.document import PluginEntry
from hypaware_pipeline.errors import ConfigError, ConfigErrorKind

SectionJudge = Callable[[PluginEntry, str], list[ConfigError]]
"""What is wrong with a plugin entry's `config`, by the plugin's own rules; the text is the pointer of that `config`."""


def plugin_errors(plugins: Sequence[PluginEntry], catalog: Catalog) -> list[ConfigError]:
    """Plugins that are listed twice, then those nobody knows."""
    first: dict[str, int] = {}
    errors: list[ConfigError] = []
    for place, entry in enumerate(plugins):
        if first.setdefault(entry.name, place) != place:
            errors.append(duplicate_plugin(entry.name, place, first[entry.name]))
    for place, entry in enumerate(plugins):
        if entry.name not in catalog:
            message = f"plugin '{entry.name}' is not a known first-party plugin and is not installed; there are {catalog.offered}"
            errors.append(ConfigError("plugin_unknown", f"/plugins/{place}/name", message))
    return errors


def duplicate_plugin(name: str, place: int, prior: int) -> ConfigError:
    """A plugin that stands at two places of `plugins`."""
    message = f"plugin '{name}' is listed twice (also at /plugins/{prior}); remove one of the two"
    return ConfigError("duplicate_plugin", f"/plugins/{place}", message)


def sink_errors(name: str, entry: Mapping[str, Any], catalog: Catalog) -> list[ConfigError]:
    """What is wrong with one sink of HypAware's: its shape, its plugins, its schedule."""
    pointer = f"/sinks/{name}"
    config = entry.get("config")
    options: Mapping[str, Any] = config if isinstance(config, Mapping) else {}
    return [*_plugins_of_sink(pointer, entry, options, catalog), *schedule_errors(pointer, options, cron_grammar_problem)]


def _plugins_of_sink(pointer: str, entry: Mapping[str, Any], options: Mapping[str, Any], catalog: Catalog) -> list[ConfigError]:
    blob = "writer" in entry or "destination" in entry
    if blob and "plugin" in entry:
        message = "a sink names writer and destination, or a plugin; pick one shape"
        return [ConfigError("request_sink_invalid_keys", pointer, message)]
    if "plugin" in entry:
        return request_errors(pointer, entry["plugin"], catalog)
    if "writer" in entry and "destination" in entry:
        return pair_errors(pointer, entry["writer"], entry["destination"], options.get("encoder"), catalog)
    message = "a sink names a writer and a destination (blob), or a plugin (request)"
    return [ConfigError("sink_pair_incompatible", pointer, message)]


def schedule_errors(pointer: str, config: Mapping[str, Any], problem_of: Callable[[str], str | None]) -> list[ConfigError]:
    """What is wrong with a sink's schedule, if it has one."""
    if "schedule" not in config:
        return []
    text = config["schedule"]
    problem = problem_of(text) if isinstance(text, str) and text.strip() else "schedule must be a 5-field cron string"
    return [ConfigError("sink_schedule_invalid", f"{pointer}/config/schedule", problem)] if problem else []


def request_errors(pointer: str, plugin: str, catalog: Catalog) -> list[ConfigError]:
    """Why a plugin is none for a request sink."""
    if plugin not in catalog:
        return [_unknown(f"{pointer}/plugin", plugin, catalog)]
    if HTTP_ENDPOINT in catalog[plugin].provides:
        return []
    provides = listed(catalog[plugin].provides)
    message = (
        f"'{plugin}' is no request sink: it provides {provides}, a request sink {HTTP_ENDPOINT}; "
        f"{catalog.providers(HTTP_ENDPOINT)}"
    )
    return [ConfigError("sink_pair_incompatible", f"{pointer}/plugin", message)]


def pair_errors(pointer: str, writer: str, destination: str, pinned_encoder: Any, catalog: Catalog) -> list[ConfigError]:
    """Why a writer and a destination are no pair. What a writer is not is said alone: the rest follows from it."""
    roles = {"writer": writer, "destination": destination}
    unknown = [_unknown(f"{pointer}/{role}", name, catalog) for role, name in roles.items() if name not in catalog]
    if unknown:
        return unknown
    provides = catalog[writer].provides
    if ENCODER in provides:
        return _writes(pointer, writer, "sink_pair_incompatible", catalog) + _stores(
            pointer, writer, destination, "sink_pair_incompatible", catalog
        )
    if TABLE_FORMAT in provides:
        return (
            _writes(pointer, writer, "sink_writer_invalid", catalog)
            + _stores(pointer, writer, destination, "sink_destination_invalid", catalog)
            + _inner_encoder(pointer, pinned_encoder, catalog)
        )
    wanted = f"{ENCODER} or {TABLE_FORMAT}"
    message = f"'{writer}' cannot write: it provides {listed(provides)}, a writer {wanted}; {catalog.providers(ENCODER)}"
    return [ConfigError("sink_writer_invalid", f"{pointer}/writer", message)]


def _writes(pointer: str, writer: str, kind: ConfigErrorKind, catalog: Catalog) -> list[ConfigError]:
    if BLOB_STORE in catalog[writer].requires:
        return []
    message = f"'{writer}' writes to no store: its manifest does not require {BLOB_STORE}; {catalog.providers(ENCODER)}"
    return [ConfigError(kind, f"{pointer}/writer", message)]


def _stores(pointer: str, writer: str, destination: str, kind: ConfigErrorKind, catalog: Catalog) -> list[ConfigError]:
    provides = catalog[destination].provides
    if BLOB_STORE in provides:
        return []
    hint = f" (a request sink: name it as plugin, without {writer})" if HTTP_ENDPOINT in provides else ""
    message = (
        f"writer '{writer}' requires {BLOB_STORE}, destination '{destination}' provides {listed(provides)}{hint}; "
        f"{catalog.providers(BLOB_STORE)}"
    )
    return [ConfigError(kind, f"{pointer}/destination", message)]


def _inner_encoder(pointer: str, pinned: Any, catalog: Catalog) -> list[ConfigError]:
    if not isinstance(pinned, str):
        return []
    place = f"{pointer}/config/encoder"
    if pinned not in catalog:
        return [_unknown(place, pinned, catalog)]
    if ENCODER in catalog[pinned].provides:
        return []
    message = f"'{pinned}' is no encoder: it provides {listed(catalog[pinned].provides)}; {catalog.providers(ENCODER)}"
    return [ConfigError("sink_encoder_invalid", place, message)]


def _unknown(pointer: str, name: str, catalog: Catalog) -> ConfigError:
    return ConfigError("sink_plugin_unknown", pointer, f"there is no plugin '{name}'; there are {catalog.offered}")


def retention_errors(datasets: Iterable[str], catalog: Catalog) -> list[ConfigError]:
    """Datasets a retention names that no plugin declares."""
    known = catalog.datasets()
    return [
        ConfigError(
            "dataset_unknown",
            f"/query/cache/retention/datasets/{name}",
            f"no plugin declares dataset '{name}'; known are {listed(known)}",
        )
        for name in datasets
        if name not in known
    ]


def ambiguity_errors(plugins: Sequence[PluginEntry], disambiguate: Mapping[str, str], catalog: Catalog) -> list[ConfigError]:
    """Capabilities that several active plugins provide and `disambiguate` pins to none of them."""
    providers: dict[str, list[str]] = {}
    for name in dict.fromkeys(entry.name for entry in plugins if entry.enabled and entry.name in catalog):
        for capability in catalog[name].provides:
            providers.setdefault(capability, []).append(name)
    return [
        ConfigError(
            "capability_ambiguous",
            f"/disambiguate/{capability}",
            f"{capability} is provided by {' and '.join(names)}; name one of them here, or switch the others off",
        )
        for capability, names in providers.items()
        if len(names) > 1 and disambiguate.get(capability) not in names
    ]


def section_errors(plugins: Sequence[PluginEntry], judge: SectionJudge) -> list[ConfigError]:
    """What the plugins say of their own entries."""
    return [error for place, entry in enumerate(plugins) for error in judge(entry, f"/plugins/{place}/config")]
