"""The plugins there are: judges a sink's plugins and options, and makes the parts of a sink.

Why a plugin that is wrong breaks the sinks that use it and nothing else: an entry nobody uses is nobody's problem, and one bad
entry or package must not stop the others.

Why a plugin of HypAware's that this project has no code for is known: a config that names one is told that, and what of it does
not fit, as HypAware would say it.

Why a bundled name is never looked for among installed packages: a package that takes the name of one of ours cannot replace it.

Why whatever a plugin's options raise is an error of the sink: their code is the plugin's, and it runs wherever a config is read.
Its text is left out, as it may quote an option.

Why the digest is over settings and not over options: two spellings of one thing make the same objects. The schedule and the
choice of datasets are not in it: they change when and which, never what lies in an object.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, TypeVar

from hypaware_pipeline.config.active import PluginEntries
from hypaware_pipeline.config.catalog import BLOB_STORE, ENCODER, HYPAWARE_PLUGINS, TABLE_FORMAT, Catalog, CatalogPlugin
from hypaware_pipeline.config.document import PluginEntry
from hypaware_pipeline.config.entries import BlobEntry, RequestEntry
from hypaware_pipeline.config.paths import PathRules
from hypaware_pipeline.config.references import Secrets
from hypaware_pipeline.config.rules import pair_errors, request_errors
from hypaware_pipeline.config.shape import check_shape
from hypaware_pipeline.config.sinks import ResolvedPair, Settings, SinkConfig
from hypaware_pipeline.errors import ConfigError, SinkHalted
from hypaware_pipeline.plugins.bundled import BUNDLED_PLUGINS
from hypaware_pipeline.plugins.contracts import BlobStore, Encoder, TableFormat
from hypaware_pipeline.plugins.installed import Unusable, find_installed
from hypaware_pipeline.plugins.manifest import Plugin, StoreOptions
from hypaware_pipeline.plugins.pairing import Pair, read_section, resolve_options, version_errors

LAYOUT_VERSION = 1
"""Of the names of objects at a destination. Another one makes what was exported so far another copy."""

DEFAULT_INNER_ENCODER = "@hypaware/format-parquet"
"""What a table format writes its data files with unless the sink says otherwise; HypAware's default."""


class Registry:
    """A set of plugins by name. Meets `config.sinks.PluginResolver`.

    Args:
        plugins: Those that are always there.
        find: Looks for another one by name; may raise `Unusable`.
    """

    def __init__(self, plugins: Iterable[Plugin], find: Callable[[str], Plugin | None] = lambda _: None) -> None:
        self._found: dict[str, Plugin | Unusable | None] = {plugin.name: plugin for plugin in plugins}
        self._find = find

    # --- judging ---------------------------------------------------------------------------------------------------------------

    def catalog(self, names: Iterable[str]) -> Catalog:
        """See `PluginResolver.catalog`. A plugin that is installed and unusable is in it, and provides nothing."""
        for name in names:
            self._lookup(name)
        here = [plugin for plugin in self._found.values() if isinstance(plugin, Plugin)]
        unusable = [CatalogPlugin(name) for name, found in self._found.items() if isinstance(found, Unusable)]
        return Catalog(
            [*HYPAWARE_PLUGINS, *unusable, *(plugin.in_catalog() for plugin in here)], offered=(plugin.name for plugin in here)
        )

    def resolve(
        self, entry: BlobEntry, options: Mapping[str, Any], plugins: PluginEntries, paths: PathRules
    ) -> ResolvedPair | list[ConfigError]:
        """See `PluginResolver.resolve`."""
        pinned = options.get("encoder")
        named = {"writer": entry.writer, "destination": entry.destination, "config/encoder": pinned}
        names = {f"{entry.pointer}/{place}": name for place, name in named.items() if isinstance(name, str)}
        catalog = self.catalog(names.values())
        unusable = [error for place, name in names.items() for error in self._unusable(place, name)]
        if unusable:
            return unusable
        errors = pair_errors(entry.pointer, entry.writer, entry.destination, pinned, catalog)
        if errors:
            return errors  # whether these are on is beside the point: others have to be named
        pair = self._pair(entry, pinned)
        if isinstance(pair, list):
            return pair
        places = {f"{entry.pointer}/{place}": plugin.name for place, plugin in pair.parts()}
        inactive = [error for place, name in places.items() for error in plugins.inactivity(place, name)]
        return (
            inactive
            or version_errors(entry.pointer, pair)
            or _judged(entry.pointer, places.values(), lambda: resolve_options(entry, options, pair, plugins, paths))
        )

    def refuse_request(self, entry: RequestEntry) -> list[ConfigError]:
        """See `PluginResolver.refuse_request`."""
        pointer = f"{entry.pointer}/plugin"
        catalog = self.catalog([entry.plugin])
        return (
            self._unusable(pointer, entry.plugin)
            or request_errors(entry.pointer, entry.plugin, catalog)
            or [self._not_here(pointer, entry.plugin, "request sink")]
        )

    def section_errors(self, entry: PluginEntry, pointer: str, paths: PathRules) -> list[ConfigError]:
        """See `PluginResolver.section_errors`."""
        plugin = self._lookup(entry.name)
        if not isinstance(plugin, Plugin):
            return self._unusable(pointer, entry.name)
        section = _judged(pointer, [plugin.name], lambda: read_section(plugin, entry.config, pointer, paths))
        return section if isinstance(section, list) else []

    def inherit(self, entry: PluginEntry, paths: PathRules) -> PluginEntry:
        """See `PluginResolver.inherit`."""
        plugin = self._lookup(entry.name)
        fields = plugin.section.model_fields if isinstance(plugin, Plugin) else {}
        kept = entry.model_copy(update={"config": {key: value for key, value in entry.config.items() if key in fields}})
        return entry.model_copy(update={"config": {}}) if self.section_errors(kept, "", paths) else kept

    def place(self, destination: str, config: Mapping[str, Any], paths: PathRules) -> tuple[str, ...] | None:
        """See `PluginResolver.place`."""
        plugin = self._lookup(destination)
        if not isinstance(plugin, Plugin) or plugin.store is None:
            return None
        fields = plugin.store.options.model_fields
        given = {key: value for key, value in config.items() if key in fields}
        store = plugin.store

        def place() -> tuple[str, ...] | None:
            options = check_shape(store.options, given, kind="sink_config_invalid", context=paths)
            return options.place() if isinstance(options, StoreOptions) else None

        found = _judged("", [plugin.name], place)
        return None if isinstance(found, list) else found

    # --- making ----------------------------------------------------------------------------------------------------------------

    def encoder(self, name: str, settings: Settings, secrets: Secrets) -> Encoder:
        """Make an encoder from a sink's settings for it. Loads the plugin's code.

        Raises:
            SinkHalted: the plugin is gone, provides no encoder, its code cannot be loaded, or a variable is missing.
        """
        encoder: Encoder = self._make(name, ENCODER, "encoder", settings, secrets)
        return encoder

    def store(self, name: str, settings: Settings, secrets: Secrets) -> BlobStore:
        """Make a blob store from a sink's settings for its destination. Loads the plugin's code.

        Raises:
            SinkHalted: as `encoder` does.
        """
        store: BlobStore = self._make(name, BLOB_STORE, "blob store", settings, secrets)
        return store

    def table_format(self, name: str, settings: Settings, secrets: Secrets) -> TableFormat:
        """Make a table format from a sink's settings for its writer. Loads the plugin's code.

        Raises:
            SinkHalted: as `encoder` does.
        """
        table_format: TableFormat = self._make(name, TABLE_FORMAT, "table format", settings, secrets)
        return table_format

    def _make(self, name: str, capability: str, what: str, settings: Settings, secrets: Secrets) -> Any:
        plugin = self._lookup(name)
        part = plugin.parts.get(capability) if isinstance(plugin, Plugin) else None
        if part is None:
            reason = str(plugin) if isinstance(plugin, Unusable) else f"there is no {what} plugin '{name}' any more"
            raise SinkHalted(f"{reason}; {self.catalog(()).providers(capability)}")
        filled = secrets.fill_settings(settings)
        module, _, attribute = part.code.partition(":")
        try:
            code = getattr(import_module(module), attribute)
        except (Exception, SystemExit) as error:  # a foreign module may raise anything when it is imported
            reason = f"{type(error).__name__}: {error}"
            raise SinkHalted(f"plugin '{name}' cannot be loaded: {reason}; install its package again") from error
        arguments = _guarded(name, secrets, lambda: part.options.arguments(filled), in_words=(ValueError,))
        made = _guarded(name, secrets, lambda: code(**arguments))
        lacking = sorted(member for member in _CONTRACTS[capability] if not hasattr(made, member))
        if lacking:
            raise SinkHalted(f"plugin '{name}' cannot be used: its {what} has no {', '.join(lacking)}; upgrade its package")
        return made

    # --- finding ---------------------------------------------------------------------------------------------------------------

    def _pair(self, entry: BlobEntry, pinned: Any) -> Pair | list[ConfigError]:
        """The plugins of a sink whose names fit together, as far as they are here."""
        inner = None
        names = {"writer": entry.writer, "destination": entry.destination}
        writer, destination = self._lookup(entry.writer), self._lookup(entry.destination)
        if isinstance(writer, Plugin) and writer.encoder is None:
            names["config/encoder"] = pinned if isinstance(pinned, str) else DEFAULT_INNER_ENCODER
            inner = self._lookup(names["config/encoder"])
        missing = [
            self._not_here(f"{entry.pointer}/{role}", name, "plugin of that name")
            for role, name in names.items()
            if not isinstance(self._lookup(name), Plugin)
        ]
        if missing or not isinstance(writer, Plugin) or not isinstance(destination, Plugin):
            return missing
        return Pair(writer, destination, inner if isinstance(inner, Plugin) else None)

    def _lookup(self, name: str) -> Plugin | Unusable | None:
        if name not in self._found:
            try:
                self._found[name] = self._find(name)
            except Unusable as error:
                self._found[name] = error
        return self._found[name]

    def _unusable(self, pointer: str, name: str) -> list[ConfigError]:
        found = self._lookup(name)
        return [ConfigError(found.kind, pointer, str(found))] if isinstance(found, Unusable) else []

    def _not_here(self, pointer: str, name: str, what: str) -> ConfigError:
        offered = self.catalog(()).offered
        message = f"HypAware has '{name}', this project has no {what} yet; there are {offered}"
        return ConfigError("sink_plugin_not_active", pointer, message)


_CONTRACTS: Mapping[str, frozenset[str]] = {
    ENCODER: frozenset({"spec", "encode"}),
    BLOB_STORE: frozenset({"put", "get", "list", "delete", "uri"}),
    TABLE_FORMAT: frozenset({"writer"}),
}
"""What each part must have: the members of its protocol in `contracts`."""

T = TypeVar("T")


def _guarded(plugin: str, secrets: Secrets, make: Callable[[], T], *, in_words: tuple[type[Exception], ...] = ()) -> T:
    """What a plugin's own code makes, which may raise anything, and quote what it was given.

    Raises:
        SinkHalted: it raised something; `in_words` are errors whose text is meant for the user.
    """
    try:
        return make()
    except (Exception, SystemExit) as error:
        reason = (
            str(error) if isinstance(error, in_words) else f"plugin '{plugin}' cannot be used: {type(error).__name__}: {error}"
        )
        raise SinkHalted(f"sink '{secrets.sink}': {secrets.mask(reason)}") from None


def _judged(pointer: str, plugins: Iterable[str], judge: Callable[[], T]) -> T | list[ConfigError]:
    """What the options of some plugins, whose config stands at `pointer`, are found to be."""
    try:
        return judge()
    except (Exception, SystemExit) as error:
        names = ", ".join(f"'{name}'" for name in plugins)
        message = f"the options of {names} cannot be judged: code of theirs raised {type(error).__name__}; upgrade the plugin"
        return [ConfigError("manifest_invalid", pointer, message)]


BUNDLED = Registry(BUNDLED_PLUGINS, find_installed)
"""What comes with this project, and beside it what installed packages have."""


def destination_digest(sink: SinkConfig) -> str:
    """16 hex digits that change with everything that shapes the objects: place, format, codec, layout."""
    shaping: dict[str, Any] = {
        "layout": LAYOUT_VERSION,
        "destination": [sink.destination, dict(sink.destination_settings), sink.prefix],
        "writer": [sink.writer, dict(sink.writer_settings)],
    }
    if sink.encoder is not None:
        shaping["encoder"] = [sink.encoder, dict(sink.encoder_settings)]
    return hashlib.sha256(json.dumps(shaping, sort_keys=True).encode()).hexdigest()[:16]
