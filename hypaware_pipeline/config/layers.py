"""HypAware's two layers, one that a central server writes and the local one, merged as HypAware merges them.

Why a local entry can be dropped: the central layer is an administrator's. What collides with it, or would make the whole config
invalid, gives way; what the central layer itself gets wrong is never held against a local entry.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hypaware_pipeline.config.document import PluginEntry, Query
from hypaware_pipeline.errors import ConfigError, ConfigErrorKind

Section = Literal["plugins", "sinks", "disambiguate"]


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer, or what several came to: HypAware's v2 file of sound shape.

    Attributes:
        sinks: Entries by instance name, as written.
        query: None where the layer has none.
        disambiguate: Plugin names by capability.
    """

    plugins: tuple[PluginEntry, ...] = ()
    sinks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    query: Query | None = None
    disambiguate: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dropped:
    """An entry of the local layer that was dropped. `detail` is the kind of error it would have added."""

    section: Section
    key: str
    reason: Literal["collides_with_central", "invalid_merge"]
    detail: ConfigErrorKind | None = None


@dataclass(frozen=True, slots=True)
class Merged:
    """What two layers came to."""

    layer: Layer
    dropped: tuple[Dropped, ...] = ()
    central_query_ignored: bool = False


def merge_layers(central: Layer | None, local: Layer | None, errors_of: Callable[[Layer], list[ConfigError]]) -> Merged:
    """Merge two layers. Without a central one the local one counts as it is, valid or not.

    Args:
        central: The administrator's layer; its entries win, and it has no say in `query`.
        local: The user's.
        errors_of: Judges a merged config.
    """
    local = local or Layer()
    if central is None:
        return Merged(local)
    merged, dropped = replace(central, query=None), []
    known = _marks(errors_of(merged))
    for addition in _additions(local):
        if addition.collides(central):
            dropped.append(Dropped(addition.section, addition.key, "collides_with_central"))
            continue
        tried = addition.onto(merged)
        new = next((error for error in errors_of(tried) if (error.kind, error.pointer) not in known), None)
        if new is None:
            merged = tried
        else:
            dropped.append(Dropped(addition.section, addition.key, "invalid_merge", new.kind))
    return Merged(replace(merged, query=local.query), tuple(dropped), central.query is not None)


@dataclass(frozen=True, slots=True)
class _Addition:
    """One entry of the local layer."""

    section: Section
    key: str
    value: Any

    def collides(self, central: Layer) -> bool:
        if self.section == "plugins":
            return any(entry.name == self.key for entry in central.plugins)
        return self.key in (central.sinks if self.section == "sinks" else central.disambiguate)

    def onto(self, layer: Layer) -> Layer:
        if self.section == "plugins":
            return replace(layer, plugins=(*layer.plugins, self.value))
        if self.section == "sinks":
            return replace(layer, sinks={**layer.sinks, self.key: self.value})
        return replace(layer, disambiguate={**layer.disambiguate, self.key: self.value})


def _additions(local: Layer) -> Iterator[_Addition]:
    for entry in local.plugins:
        yield _Addition("plugins", entry.name, entry)
    for name, sink in local.sinks.items():
        yield _Addition("sinks", name, sink)
    for capability, plugin in local.disambiguate.items():
        yield _Addition("disambiguate", capability, plugin)


def _marks(errors: list[ConfigError]) -> set[tuple[str, str]]:
    return {(error.kind, error.pointer) for error in errors}
