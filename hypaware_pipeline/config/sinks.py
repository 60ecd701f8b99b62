"""One entry of `sinks` to a typed config, or everything that is wrong with it.

Why which keys a plugin takes is asked of a resolver: the config knows the shape of a file, the plugins know what they need; so a
plugin that is installed later needs no change here.

Why a resolved sink is plain data: it can be pinned as JSON for a run, and whoever uses it imports no plugin.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Protocol

from pydantic import Field

from hypaware_pipeline.config.cron import cron_problem
from hypaware_pipeline.config.document import JsonObject, NonEmpty, PluginEntry
from hypaware_pipeline.config.names import slug
from hypaware_pipeline.config.paths import PathRules
from hypaware_pipeline.config.shape import Shape, check_shape
from hypaware_pipeline.errors import ConfigError
from hypaware_pipeline.model import DatasetName, SinkName

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")

Settings = Mapping[str, str | int]
"""A plugin's effective settings for one sink, defaults filled in, nothing secret."""


def file_place(path: Path) -> tuple[str, ...]:
    """A local directory as a `place`."""
    return ("file", *path.parts)


@dataclass(frozen=True, slots=True)
class SinkConfig:
    """A configured blob sink.

    Attributes:
        slug: The name as asset keys, groups and jobs carry it; unique among the sinks of a file.
        writer: Name of the plugin that encodes.
        destination: Name of the plugin that stores.
        place: Where it writes, from the outermost part to the innermost: a kind of store, then what leads to the prefix.
            Two sinks overlap if one's place begins with the other's.
        prefix: Under which everything lies, relative to the store; may be empty.
        datasets: Names and globs; the sink takes what one of them matches.
        schedule: 5-field cron; None when the sink has none.
    """

    name: SinkName
    slug: str
    writer: str
    destination: str
    writer_settings: Settings
    destination_settings: Settings
    place: tuple[str, ...]
    prefix: str = ""
    datasets: tuple[str, ...] = ("*",)
    schedule: str | None = None

    def takes(self, dataset: DatasetName) -> bool:
        """Whether the sink wants a dataset."""
        return any(fnmatchcase(dataset, pattern) for pattern in self.datasets)

    def overlaps(self, other: "SinkConfig") -> bool:
        """Whether one of the two writes where the other does, or below it."""
        shared = min(len(self.place), len(other.place))
        return self.place[:shared] == other.place[:shared]


@dataclass(frozen=True, slots=True)
class BlobEntry:
    """An entry of sound shape that names a writer and a destination. `pointer` is where it stands in the file."""

    name: SinkName
    pointer: str
    writer: str
    destination: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RequestEntry:
    """An entry of sound shape that names one plugin. `pointer` is where it stands in the file."""

    pointer: str
    plugin: str


@dataclass(frozen=True, slots=True)
class ResolvedPair:
    """What the plugins of a blob sink made of its settings. The attributes are those of `SinkConfig`."""

    writer_settings: Settings
    destination_settings: Settings
    place: tuple[str, ...]
    prefix: str


class PluginResolver(Protocol):
    """What the config asks of the plugins."""

    def resolve(
        self, entry: BlobEntry, options: Mapping[str, Any], plugins: Sequence[PluginEntry] | None, paths: PathRules
    ) -> ResolvedPair | list[ConfigError]:
        """Judge a blob sink by its plugins.

        Args:
            entry: The sink.
            options: What of its `config` is the plugins' to judge; every key of it.
            plugins: The file's `plugins`; None when it has none, and the bundled ones count as enabled.
            paths: How to read paths.
        """
        ...

    def refuse_request(self, entry: RequestEntry) -> list[ConfigError]:
        """Why a request sink cannot be built."""
        ...


class CommonOptions(Shape):
    """The keys of a sink's `config` that every sink has."""

    schedule: Any = None
    datasets: Annotated[list[NonEmpty], Field(min_length=1)] = Field(default_factory=lambda: ["*"])


def read_sink(
    name: str, raw: Any, *, resolver: PluginResolver, plugins: Sequence[PluginEntry] | None, paths: PathRules
) -> SinkConfig | list[ConfigError]:
    """One entry of `sinks`, or everything that is wrong with it."""
    entry = _read_entry(name, raw)
    if isinstance(entry, RequestEntry):
        return resolver.refuse_request(entry)
    if not isinstance(entry, BlobEntry):
        return entry
    mine = {key: value for key, value in entry.config.items() if key in CommonOptions.model_fields}
    rest = {key: value for key, value in entry.config.items() if key not in CommonOptions.model_fields}
    common = check_shape(CommonOptions, mine, kind="sink_config_invalid", pointer=f"{entry.pointer}/config")
    pair = resolver.resolve(entry, rest, plugins, paths)
    errors = [*_schedule_errors(entry), *(common if isinstance(common, list) else ()), *(pair if isinstance(pair, list) else ())]
    if errors or isinstance(common, list) or isinstance(pair, list):
        return errors
    return SinkConfig(
        name=entry.name,
        slug=slug(name),
        writer=entry.writer,
        destination=entry.destination,
        writer_settings=pair.writer_settings,
        destination_settings=pair.destination_settings,
        place=pair.place,
        prefix=pair.prefix,
        datasets=tuple(common.datasets),
        schedule=common.schedule,
    )


def _schedule_errors(entry: BlobEntry) -> list[ConfigError]:
    if "schedule" not in entry.config:
        return []
    text = entry.config["schedule"]
    problem = cron_problem(text) if isinstance(text, str) and text.strip() else "schedule must be a 5-field cron string"
    return [ConfigError("sink_schedule_invalid", f"{entry.pointer}/config/schedule", problem)] if problem else []


class _BlobShape(Shape):
    writer: NonEmpty
    destination: NonEmpty
    config: JsonObject = Field(default_factory=dict)


class _RequestShape(Shape):
    plugin: NonEmpty
    config: JsonObject = Field(default_factory=dict)


_BOTH = "sink instance cannot combine writer/destination with plugin"
_NEITHER = "sink must specify either writer+destination (blob) or plugin (request)"
_ENTRY_MESSAGES = {
    "/writer": "writer (plugin name) is required for blob sinks",
    "/destination": "destination (plugin name) is required for blob sinks",
    "/plugin": "plugin (plugin name) is required for request sinks",
    "/config": "config must be an object when present",
}


def _read_entry(name: str, raw: Any) -> BlobEntry | RequestEntry | list[ConfigError]:
    """The shape rules of a sink entry, HypAware's, and our rule for names."""
    pointer = f"/sinks/{name}"
    if not _NAME.fullmatch(name):
        what = "a sink's name is 1 to 60 letters, digits, '.', '_' or '-', the first a letter or digit; choose another"
        return [ConfigError("sink_config_invalid", pointer, what)]
    if not isinstance(raw, dict):
        return [ConfigError("config_invalid_shape", pointer, "sink entry must be an object")]
    blob, request = "writer" in raw or "destination" in raw, "plugin" in raw
    if blob == request:
        return [ConfigError("config_invalid_shape", pointer, _BOTH if blob else _NEITHER)]
    return _read_blob(SinkName(name), pointer, raw) if blob else _read_request(pointer, raw)


def _read_blob(name: SinkName, pointer: str, raw: Mapping[str, Any]) -> BlobEntry | list[ConfigError]:
    shape = check_shape(_BlobShape, raw, kind="config_invalid_shape", pointer=pointer, messages=_ENTRY_MESSAGES)
    if isinstance(shape, list):
        return shape
    return BlobEntry(name, pointer, shape.writer, shape.destination, shape.config)


def _read_request(pointer: str, raw: Mapping[str, Any]) -> RequestEntry | list[ConfigError]:
    shape = check_shape(_RequestShape, raw, kind="config_invalid_shape", pointer=pointer, messages=_ENTRY_MESSAGES)
    return shape if isinstance(shape, list) else RequestEntry(pointer, shape.plugin)
