"""One entry of `sinks` to a typed config, or everything that is wrong with it.

Why which keys a plugin takes is asked of a resolver: the config knows the shape of a file, the plugins know what they need; so a
plugin that is installed later needs no change here.

Why a resolved sink is plain data: it can be pinned as JSON for a run, and whoever uses it imports no plugin.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from hypaware_pipeline.config.active import PluginEntries
from hypaware_pipeline.config.catalog import Catalog
from hypaware_pipeline.config.cron import cron_problem, plain_cron
from hypaware_pipeline.config.document import NonEmpty, PluginEntry
from hypaware_pipeline.config.entries import BlobEntry, RequestEntry, read_entry
from hypaware_pipeline.config.names import is_reserved, slug
from hypaware_pipeline.config.paths import PathRules
from hypaware_pipeline.config.references import has_reference, reference_problems
from hypaware_pipeline.config.rules import schedule_errors
from hypaware_pipeline.config.shape import Shape, check_shape
from hypaware_pipeline.errors import ConfigError, ConfigErrorKind
from hypaware_pipeline.model import DatasetName, SinkName, parse_day

NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9._-]{0,59}"
"""What a sink's name looks like."""

Settings = Mapping[str, str | int]
"""A plugin's effective settings for one sink, defaults filled in, references to variables left as they are written."""


def file_place(path: Path) -> tuple[str, ...]:
    """A local directory as a `place`."""
    return ("file", *path.parts)


@dataclass(frozen=True, slots=True)
class BeforeTick:
    """A command, its arguments still with references to variables, and how long it may take."""

    command: tuple[str, ...]
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class SinkConfig:
    """A configured blob sink.

    Attributes:
        slug: The name as asset keys, groups and jobs carry it; unique among the sinks of a file.
        writer: Name of the plugin that encodes, or of a table format.
        destination: Name of the plugin that stores.
        place: Where it writes, from the outermost part to the innermost: a kind of store, then what leads to the prefix.
            Two sinks overlap if one's place begins with the other's.
        prefix: Under which everything lies, relative to the store; may be empty.
        datasets: Names and globs; the sink takes what one of them matches.
        schedule: 5-field cron as written; None when the sink has none.
        supports: Tags of what the pair supports, such as `queryable`.
        start: Where schedules begin: `earliest`, `now`, or a day; None leaves it to the dataset.
        before_tick: What runs ahead of a scheduled tick.
        encoder: Name of the plugin that encodes for a table format; None when the writer encodes.
        takeover: Whether to export although another ledger, HypAware, or somebody's objects are at the destination.
        owners: Whom to ask about what it exports: e-mail addresses, and teams as `team:name`.
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
    supports: tuple[str, ...] = ()
    start: str | None = None
    before_tick: BeforeTick | None = None
    encoder: str | None = None
    encoder_settings: Settings = field(default_factory=dict)
    takeover: bool = False
    owners: tuple[str, ...] = ()

    @property
    def cron(self) -> str | None:
        """The schedule in the form that Dagster fires when HypAware would (UTC)."""
        return None if self.schedule is None else plain_cron(self.schedule)

    @property
    def encoding(self) -> tuple[str, Settings]:
        """The plugin that encodes, whether for itself or for a table format, and its settings."""
        return (self.writer, self.writer_settings) if self.encoder is None else (self.encoder, self.encoder_settings)

    def takes(self, dataset: DatasetName) -> bool:
        """Whether the sink wants a dataset."""
        return any(fnmatchcase(dataset, pattern) for pattern in self.datasets)

    def overlaps(self, other: "SinkConfig") -> bool:
        """Whether one of the two writes where the other does, or below it."""
        shared = min(len(self.place), len(other.place))
        return self.place[:shared] == other.place[:shared]


@dataclass(frozen=True, slots=True)
class ResolvedPair:
    """What the plugins of a blob sink made of its settings. The attributes are those of `SinkConfig`."""

    writer_settings: Settings
    destination_settings: Settings
    place: tuple[str, ...]
    prefix: str
    supports: tuple[str, ...]
    encoder: str | None
    encoder_settings: Settings


class PluginResolver(Protocol):
    """What the config asks of the plugins."""

    def catalog(self, names: Iterable[str]) -> Catalog:
        """All plugins there are, HypAware's included; of those installed beside, the ones named."""
        ...

    def resolve(
        self, entry: BlobEntry, options: Mapping[str, Any], plugins: PluginEntries, paths: PathRules
    ) -> ResolvedPair | list[ConfigError]:
        """Judge a blob sink by its plugins.

        Args:
            entry: The sink.
            options: What of its `config` is the plugins' to judge; every key of it.
            plugins: Which are on, and what their own entries say.
            paths: How to read paths.
        """
        ...

    def refuse_request(self, entry: RequestEntry) -> list[ConfigError]:
        """Why a request sink cannot be built."""
        ...

    def section_errors(self, entry: PluginEntry, pointer: str, paths: PathRules) -> list[ConfigError]:
        """What is wrong with the `config` of a plugin's own entry, which stands at `pointer`."""
        ...

    def inherit(self, entry: PluginEntry, paths: PathRules) -> PluginEntry:
        """An entry of HypAware's with what of its `config` our plugin takes; without any of it if that is not sound."""
        ...

    def place(self, destination: str, config: Mapping[str, Any], paths: PathRules) -> tuple[str, ...] | None:
        """Where a sink of HypAware's with this destination writes; None if that cannot be said."""
        ...


def _check_start(text: str) -> str:
    if text in ("earliest", "now"):
        return text
    try:
        return parse_day(text)
    except ValueError:
        raise ValueError("must be 'earliest', 'now' or a day, written YYYY-MM-DD") from None


def _words(value: Any) -> Any:
    """A command written as one string, split like a shell would, without anything else a shell does."""
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as error:
        raise ValueError(f"is no command: {error}") from None


def _no_reference(text: str) -> str:
    if has_reference(text):
        raise ValueError("cannot refer to a variable: what it says is shown and stored")
    return text


# What Dagster takes: one that it refuses would cost the whole code location.
_OWNER_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9._%+-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}|team:.+"


def _check_owner(text: str) -> str:
    if not re.fullmatch(_OWNER_PATTERN, text):
        raise ValueError("must be an e-mail address, or a team written team:name")
    return _no_reference(text)


_Owner = Annotated[str, AfterValidator(_check_owner), WithJsonSchema({"type": "string", "pattern": f"^({_OWNER_PATTERN})$"})]
_Words = Annotated[list[NonEmpty], Field(min_length=1)]
_Command = Annotated[_Words, BeforeValidator(_words, json_schema_input_type=_Words | NonEmpty)]
_Pattern = Annotated[str, Field(min_length=1), AfterValidator(_no_reference)]

BEFORE_TICK_SECONDS = 30.0
"""How long a command before a tick may take unless told otherwise. Dagster gives a tick 60 s."""


class CommonOptions(Shape):
    """The keys of a sink's `config` that every sink has. `schedule` is judged by rules of its own."""

    schedule: Annotated[Any, WithJsonSchema({"type": "string"})] = Field(
        default=None, description="When to export: 5-field cron, UTC, as HypAware reads it."
    )
    datasets: Annotated[list[_Pattern], Field(min_length=1)] = Field(
        default_factory=lambda: ["*"], description="Names and globs of the datasets the sink takes."
    )
    start: Annotated[str, AfterValidator(_check_start)] | None = Field(
        default=None,
        description="Where schedules begin: 'earliest', 'now' (the UTC day the sink was first seen) or a day; else by dataset.",
    )
    before_tick: _Command | None = Field(default=None, description="A program and its arguments, run ahead of a scheduled tick.")
    before_tick_timeout_seconds: float = Field(
        default=BEFORE_TICK_SECONDS, gt=0, le=3600, description="After which the command is ended."
    )
    owners: list[_Owner] = Field(
        default_factory=list, description="Whom to ask: e-mail addresses, and teams as team:name. Shown in Dagster."
    )
    takeover: bool = Field(
        default=False, description="Export although another ledger, HypAware, or somebody's objects are at the destination."
    )


def read_sink(
    name: str, raw: Any, *, resolver: PluginResolver, plugins: PluginEntries, paths: PathRules
) -> SinkConfig | list[ConfigError]:
    """One entry of `sinks`, or everything that is wrong with it."""
    entry = _name_errors(name) or read_entry(name, raw)
    if isinstance(entry, RequestEntry):
        return resolver.refuse_request(entry) + schedule_errors(entry.pointer, entry.config, cron_problem)
    if not isinstance(entry, BlobEntry):
        return entry
    mine = {key: value for key, value in entry.config.items() if key in CommonOptions.model_fields}
    rest = {key: value for key, value in entry.config.items() if key not in CommonOptions.model_fields}
    common = check_shape(CommonOptions, mine, kind="sink_config_invalid", pointer=f"{entry.pointer}/config")
    pair = resolver.resolve(entry, rest, plugins, paths)
    errors = [
        *(pair if isinstance(pair, list) else ()),
        *schedule_errors(entry.pointer, entry.config, cron_problem),
        *(common if isinstance(common, list) else ()),
        *reference_errors(entry.config, f"{entry.pointer}/config", "sink_config_invalid"),
    ]
    if errors or isinstance(common, list) or isinstance(pair, list):
        return errors
    command = common.before_tick
    return SinkConfig(
        name=SinkName(name),
        slug=slug(name),
        writer=entry.writer,
        destination=entry.destination,
        writer_settings=pair.writer_settings,
        destination_settings=pair.destination_settings,
        place=pair.place,
        prefix=pair.prefix,
        datasets=tuple(common.datasets),
        schedule=common.schedule,
        supports=pair.supports,
        start=common.start,
        before_tick=BeforeTick(tuple(command), common.before_tick_timeout_seconds) if command else None,
        encoder=pair.encoder,
        encoder_settings=pair.encoder_settings,
        takeover=common.takeover,
        owners=tuple(common.owners),
    )


def reference_errors(config: Mapping[str, Any], pointer: str, kind: ConfigErrorKind) -> list[ConfigError]:
    """References to variables in a `config` that are malformed. What they refer to is not looked at."""
    return [ConfigError(kind, place, problem) for place, problem in reference_problems(config, pointer)]


def _name_errors(name: str) -> list[ConfigError]:
    """Our rule for names: they become file names, keys and groups as they are."""
    pointer = f"/sinks/{name}"
    if not re.fullmatch(NAME_PATTERN, name):
        what = "a sink's name is 1 to 60 letters, digits, '.', '_' or '-', the first a letter or digit; choose another"
        return [ConfigError("sink_config_invalid", pointer, what)]
    if is_reserved(name):
        what = f"the name '{name}' is taken: it is a word of Python's, or a group of assets of our own; choose another"
        return [ConfigError("sink_config_invalid", pointer, what)]
    return []
