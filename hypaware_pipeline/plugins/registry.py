"""The plugins there are: judges a sink's pair and options, and makes the parts of a sink.

Why a plugin entry that is wrong breaks the sinks that use it and nothing else: an entry nobody uses is nobody's problem, and one
bad entry must not stop the others.

Why the digest is over settings and not over options: two spellings of one thing make the same objects. The schedule and the
choice of datasets are not in it: they change when and which, never what lies in an object.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from hypaware_pipeline.config.document import PluginEntry
from hypaware_pipeline.config.paths import PathRules
from hypaware_pipeline.config.shape import Shape, check_shape
from hypaware_pipeline.config.sinks import BlobEntry, CommonOptions, RequestEntry, ResolvedPair, Settings, SinkConfig
from hypaware_pipeline.errors import ConfigError, SinkHalted
from hypaware_pipeline.plugins.bundled import BUNDLED_PLUGINS
from hypaware_pipeline.plugins.contracts import BlobStore, Encoder
from hypaware_pipeline.plugins.manifest import (
    BLOB_STORE,
    ENCODER,
    HTTP_ENDPOINT,
    EncoderOptions,
    Options,
    Plugin,
    Provided,
    StoreOptions,
)

LAYOUT_VERSION = 1
"""Of the names of objects at a destination. Another one makes what was exported so far another copy."""

OptionsT = TypeVar("OptionsT", bound=Options)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two plugins that fit together."""

    writer: Plugin
    destination: Plugin
    encoder: Provided[EncoderOptions]
    store: Provided[StoreOptions]


class Registry:
    """A set of plugins by name. Meets `config.sinks.PluginResolver`."""

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        self._plugins = {plugin.name: plugin for plugin in plugins}

    def resolve(
        self, entry: BlobEntry, options: Mapping[str, Any], plugins: Sequence[PluginEntry] | None, paths: PathRules
    ) -> ResolvedPair | list[ConfigError]:
        """See `PluginResolver.resolve`."""
        roles = {"writer": entry.writer, "destination": entry.destination}
        unknown = [self._unknown(f"{entry.pointer}/{role}", name) for role, name in roles.items() if name not in self._plugins]
        if unknown:
            return unknown
        inactive = [error for role, name in roles.items() for error in _inactivity(f"{entry.pointer}/{role}", name, plugins)]
        pair = self._pair(entry.pointer, **roles)
        if not isinstance(pair, _Pair) or inactive:
            return inactive + (pair if isinstance(pair, list) else [])
        return _resolve_options(entry, options, pair, plugins or (), paths)

    def refuse_request(self, entry: RequestEntry) -> list[ConfigError]:
        """See `PluginResolver.refuse_request`."""
        pointer = f"{entry.pointer}/plugin"
        if entry.plugin not in self._plugins:
            return [self._unknown(pointer, entry.plugin)]
        provides = _listed(self._plugins[entry.plugin].provides)
        choices = self._choices(HTTP_ENDPOINT)
        message = f"'{entry.plugin}' is no request sink: it provides {provides}, a request sink {HTTP_ENDPOINT}; {choices}"
        return [ConfigError("sink_pair_incompatible", pointer, message)]

    def encoder(self, name: str, settings: Settings) -> Encoder:
        """Make an encoder from a sink's settings for its writer. Loads the plugin's code.

        Raises:
            SinkHalted: the plugin is gone, provides no encoder, or its code cannot be loaded.
        """
        plugin = self._plugins.get(name)
        if plugin is None or plugin.encoder is None:
            raise SinkHalted(f"there is no encoder plugin '{name}' any more; {self._choices(ENCODER)}")
        encoder: Encoder = _load(plugin.encoder, name)(**plugin.encoder.options.arguments(settings))
        return encoder

    def store(self, name: str, settings: Settings) -> BlobStore:
        """Make a blob store from a sink's settings for its destination. Loads the plugin's code.

        Raises:
            SinkHalted: the plugin is gone, provides no blob store, or its code cannot be loaded.
        """
        plugin = self._plugins.get(name)
        if plugin is None or plugin.store is None:
            raise SinkHalted(f"there is no blob store plugin '{name}' any more; {self._choices(BLOB_STORE)}")
        store: BlobStore = _load(plugin.store, name)(**plugin.store.options.arguments(settings))
        return store

    def _pair(self, pointer: str, *, writer: str, destination: str) -> _Pair | list[ConfigError]:
        """The two as a pair, or why they are none. What a writer cannot do is said first: the rest follows from it."""
        one, other = self._plugins[writer], self._plugins[destination]
        if one.encoder is None:
            message = (
                f"'{writer}' cannot write: it provides {_listed(one.provides)}, a writer {ENCODER}; {self._choices(ENCODER)}"
            )
            return [ConfigError("sink_writer_invalid", f"{pointer}/writer", message)]
        lacking = (one.requires | {BLOB_STORE}) - other.provides
        if other.store is None or lacking:
            message = (
                f"writer '{writer}' requires {_listed(lacking)}, destination '{destination}' provides {_listed(other.provides)}; "
                f"{self._choices(BLOB_STORE)}"
            )
            return [ConfigError("sink_pair_incompatible", f"{pointer}/destination", message)]
        return _Pair(one, other, one.encoder, other.store)

    def _unknown(self, pointer: str, name: str) -> ConfigError:
        return ConfigError("sink_plugin_unknown", pointer, f"there is no plugin '{name}'; there are {_listed(self._plugins)}")

    def _choices(self, capability: str) -> str:
        """Which plugins have a capability, as the end of a message."""
        having = [plugin.name for plugin in self._plugins.values() if capability in plugin.provides]
        return f"use {' or '.join(having)}" if having else "there is none yet"


BUNDLED = Registry(BUNDLED_PLUGINS)
"""What comes with this project."""


def destination_digest(sink: SinkConfig) -> str:
    """16 hex digits that change with everything that shapes the objects: place, format, codec, layout."""
    shaping = {
        "layout": LAYOUT_VERSION,
        "destination": [sink.destination, dict(sink.destination_settings), sink.prefix],
        "writer": [sink.writer, dict(sink.writer_settings)],
    }
    return hashlib.sha256(json.dumps(shaping, sort_keys=True).encode()).hexdigest()[:16]


def _inactivity(pointer: str, name: str, plugins: Sequence[PluginEntry] | None) -> list[ConfigError]:
    """Why a plugin a sink uses is not active."""
    if plugins is None:
        return []
    places = [place for place, entry in enumerate(plugins) if entry.name == name]
    if not places:
        message = f"plugin '{name}' is not listed in plugins; add it, or leave plugins out to have all that are bundled"
        return [ConfigError("sink_plugin_not_active", pointer, message)]
    if len(places) > 1:
        message = f"plugin '{name}' is listed twice (also at /plugins/{places[0]}); remove one of the two"
        return [ConfigError("duplicate_plugin", f"/plugins/{places[1]}", message)]
    if not plugins[places[0]].enabled:
        return [
            ConfigError("sink_plugin_not_active", pointer, f"plugin '{name}' is switched off at /plugins/{places[0]}/enabled")
        ]
    return []


def _resolve_options(
    entry: BlobEntry, options: Mapping[str, Any], pair: _Pair, plugins: Sequence[PluginEntry], paths: PathRules
) -> ResolvedPair | list[ConfigError]:
    """The settings of both plugins, or everything that is wrong with their entries and the sink's options."""
    errors = _unknown_options(entry, options, pair)
    written = _options(entry, options, pair.writer, pair.encoder, plugins, paths)
    stored = _options(entry, options, pair.destination, pair.store, plugins, paths)
    errors += [error for found in (written, stored) if isinstance(found, list) for error in found]
    if errors or isinstance(written, list) or isinstance(stored, list):
        return errors
    return ResolvedPair(written.settings(), stored.settings(), stored.place(), stored.prefix)


def _unknown_options(entry: BlobEntry, options: Mapping[str, Any], pair: _Pair) -> list[ConfigError]:
    taken = {**CommonOptions.model_fields, **pair.encoder.options.model_fields, **pair.store.options.model_fields}
    return [
        ConfigError(
            "sink_config_invalid", f"{entry.pointer}/config/{key}", f"unrecognized key '{key}'; known are {_listed(taken)}"
        )
        for key in options
        if key not in taken
    ]


def _options(
    entry: BlobEntry,
    options: Mapping[str, Any],
    plugin: Plugin,
    part: Provided[OptionsT],
    plugins: Sequence[PluginEntry],
    paths: PathRules,
) -> OptionsT | list[ConfigError]:
    """A plugin's options for one sink: what its own entry says, overridden by the sink's `config`."""
    section = _section(plugin, plugins, paths)
    if isinstance(section, list):
        return section
    fields = set(part.options.model_fields)
    inherited = section.model_dump(include=fields, exclude_unset=True)
    given = {key: value for key, value in options.items() if key in fields}
    return check_shape(
        part.options,
        part.options.combine(inherited, given),
        kind="sink_config_invalid",
        pointer=f"{entry.pointer}/config",
        context=paths,
    )


def _section(plugin: Plugin, plugins: Sequence[PluginEntry], paths: PathRules) -> Shape | list[ConfigError]:
    place, config = next(((place, entry.config) for place, entry in enumerate(plugins) if entry.name == plugin.name), (0, {}))
    return check_shape(plugin.section, config, kind="plugin_config_invalid", pointer=f"/plugins/{place}/config", context=paths)


def _load(part: Provided[Any], plugin: str) -> Any:
    module, _, name = part.code.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SinkHalted(f"plugin '{plugin}' cannot be loaded: {error}; install hypaware-pipeline again") from error


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
