"""HypAware's own config: what it says of plugins, of its query block, and which sinks HypAware itself exports.

Why nothing in it ever stops us: it is another program's file, and a newer HypAware may write what this version does not know.
What cannot be read, and what HypAware would complain of, becomes a note.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from hypaware_pipeline.config.catalog import HYPAWARE_CATALOG, Catalog
from hypaware_pipeline.config.document import MESSAGES, NonEmpty, PluginEntry, Query, is_two
from hypaware_pipeline.config.entries import read_entry
from hypaware_pipeline.config.environment import file_variable, hyp_home
from hypaware_pipeline.config.layers import Layer, Merged, merge_layers
from hypaware_pipeline.config.reading import read_object
from hypaware_pipeline.config.rules import (
    SectionJudge,
    ambiguity_errors,
    plugin_errors,
    retention_errors,
    section_errors,
    sink_errors,
)
from hypaware_pipeline.config.shape import Shape, check_shape
from hypaware_pipeline.errors import ConfigError, ConfigErrors

HYPAWARE_VARIABLE = "HYP_CONFIG"


@dataclass(frozen=True, slots=True)
class HypAwareConfig:
    """What HypAware's own files come to; nothing, where there are none.

    Attributes:
        path: The local file, which need not exist.
        layer: Both layers, merged.
        notes: What a person should know about the files; none of it stops anything.
    """

    path: Path
    layer: Layer = field(default_factory=Layer)
    notes: tuple[str, ...] = ()


class _Document(Shape):
    """A whole file of HypAware's; keys it does not know below the top are dropped there, and so here."""

    version: Annotated[Any, AfterValidator(is_two)]
    plugins: list[PluginEntry] = Field(default_factory=list)
    sinks: dict[NonEmpty, Any] = Field(default_factory=dict)
    query: Query | None = None
    disambiguate: dict[NonEmpty, NonEmpty] = Field(default_factory=dict)


def read_hypaware(env: Mapping[str, str]) -> HypAwareConfig:
    """Read HypAware's own config, local and central.

    Raises:
        BadRequest: `HYP_HOME` is not absolute.
    """
    chosen = file_variable(env, HYPAWARE_VARIABLE)
    path = chosen or hyp_home(env) / "hypaware-config.json"
    control = hyp_home(env) / "hypaware" / "config-control"
    notes: list[str] = []
    local = _read_layer(path, notes, expected=chosen is not None)
    central_path = next((place for place in (control / "active", control / "seed.json") if os.path.lexists(place)), None)
    central = _read_layer(central_path, notes, expected=True) if central_path else None
    merged = merge_layers(central, local, layer_errors)
    notes += _notes_of(path, merged)
    return HypAwareConfig(path, merged.layer, tuple(notes))


def read_layer(value: Mapping[str, Any]) -> Layer | list[ConfigError]:
    """A file of HypAware's as a layer, or everything that is wrong with its shape."""
    known = ", ".join(sorted(_Document.model_fields))
    errors = [
        ConfigError("config_invalid_shape", f"/{key}", f"unrecognized top-level key '{key}'; known are {known}")
        for key in value
        if key not in _Document.model_fields
    ]
    document = check_shape(_Document, value, kind="config_invalid_shape", messages=MESSAGES, unknown_keys="ignore")
    sinks = value.get("sinks")
    named = sinks.items() if isinstance(sinks, dict) else ()
    entries = [read_entry(name, raw, unknown_keys="ignore") for name, raw in named]
    errors += document if isinstance(document, list) else []
    errors += [error for entry in entries if isinstance(entry, list) for error in entry]
    if errors or isinstance(document, list):
        return errors
    return Layer(tuple(document.plugins), document.sinks, document.query, document.disambiguate)


def no_sections(_entry: PluginEntry, _pointer: str) -> list[ConfigError]:
    """Judges no plugin's own entry: HypAware's plugins validate theirs with code of their own."""
    return []


def layer_errors(layer: Layer, catalog: Catalog = HYPAWARE_CATALOG, sections: SectionJudge = no_sections) -> list[ConfigError]:
    """Everything HypAware's validation says of a file of sound shape, in its order."""
    retention = layer.query.cache.retention if layer.query else None
    return [
        *plugin_errors(layer.plugins, catalog),
        *(error for name, entry in layer.sinks.items() for error in sink_errors(name, entry, catalog)),
        *retention_errors(retention.datasets if retention else (), catalog),
        *ambiguity_errors(layer.plugins, layer.disambiguate, catalog),
        *section_errors(layer.plugins, sections),
    ]


def _read_layer(path: Path, notes: list[str], *, expected: bool) -> Layer | None:
    try:
        layer = read_layer(read_object(path))
    except ConfigErrors as error:
        if expected or error.errors[0].kind != "config_missing":
            problem = "there is no such file" if error.errors[0].kind == "config_missing" else error.errors[0].message
            notes.append(f"HypAware's {path} is not used: {problem}")
        return None
    if isinstance(layer, list):
        notes.append(f"HypAware's {path} is not used: {'; '.join(str(error) for error in layer)}")
        return None
    return layer


def _notes_of(path: Path, merged: Merged) -> list[str]:
    notes = [f"HypAware's {path}: {error}" for error in layer_errors(merged.layer)]
    for entry in merged.dropped:
        reason = f"{entry.reason}: {entry.detail}" if entry.detail else entry.reason
        notes.append(f"HypAware's {path}: {entry.section}/{entry.key} gives way to the central config ({reason})")
    if merged.central_query_ignored:
        notes.append("HypAware's central config has a query block, which HypAware ignores")
    return notes
