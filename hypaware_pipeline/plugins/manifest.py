"""What a plugin is: what it provides and requires, which options it takes, and where its code is. HypAware's manifest, in Python.

Why the code is named and not imported: encoders pull in libraries that cost a second and 90 MB, and every Dagster process
resolves every sink. Options and pairs are judged without them.

Why options, settings and arguments are three things: options are what a person writes, with defaults and other spellings;
settings are all that changes the objects, plain enough to be pinned and digested; arguments are what the code takes.
"""

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, Field

from hypaware_pipeline.config.catalog import BLOB_STORE, ENCODER, TABLE_FORMAT, CatalogPlugin
from hypaware_pipeline.config.references import has_reference
from hypaware_pipeline.config.semver import is_valid_range, parse_version
from hypaware_pipeline.config.shape import Shape
from hypaware_pipeline.config.sinks import Settings


class Options(Shape):
    """What a sink's `config` may say to a plugin. The fields are the keys of the file."""

    @classmethod
    def combine(cls, inherited: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the plugin's own entry says, overridden by what the sink says."""
        return {**inherited, **given}

    @abstractmethod
    def settings(self) -> Settings:
        """Everything that shapes the objects, defaults filled in, references to variables left as they are written."""

    @classmethod
    def arguments(cls, settings: Settings) -> Mapping[str, Any]:
        """The arguments of the plugin's code, from settings whose references are filled in.

        Raises:
            ValueError: what a variable holds does not fit; the text must not quote it.
        """
        return settings


class EncoderOptions(Options):
    """Options of an encoder."""


class TableFormatOptions(Options):
    """Options of a table format."""


def _is_shown(text: str) -> str:
    if has_reference(text):
        raise ValueError("cannot refer to a variable: it is part of every object's name, and those are shown and stored")
    return text


class StoreOptions(Options):
    """Options of a blob store."""

    prefix: Annotated[str, AfterValidator(_is_shown)] = Field(default="", description="A path below which everything lies.")

    @abstractmethod
    def place(self) -> tuple[str, ...]:
        """Where the sink writes; see `SinkConfig.place`."""


class NoSection(Shape):
    """The own entry of a plugin that takes no `config`."""


O_co = TypeVar("O_co", bound=Options, covariant=True)


@dataclass(frozen=True, slots=True)
class Provided(Generic[O_co]):
    """One capability of a plugin. `code` names what implements it: `package.module:Class`; `version` is the capability's."""

    options: type[O_co]
    code: str
    version: str = "1.0.0"


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin.

    Attributes:
        name: Under which configs name it.
        version: Its own.
        section: The shape of its own entry's `config`. Fields it shares with an options class are inherited by the sinks.
        requires: Version ranges of the capabilities its partners in a sink must provide.
        supports: Tags of what it writes or stores; a sink supports what all its parts do.
    """

    name: str
    version: str
    section: type[Shape] = NoSection
    encoder: Provided[EncoderOptions] | None = None
    store: Provided[StoreOptions] | None = None
    table_format: Provided[TableFormatOptions] | None = None
    requires: Mapping[str, str] = field(default_factory=dict)
    supports: frozenset[str] = frozenset()

    @property
    def parts(self) -> Mapping[str, Provided[Options]]:
        """What it provides, by capability."""
        parts = {ENCODER: self.encoder, BLOB_STORE: self.store, TABLE_FORMAT: self.table_format}
        return {capability: part for capability, part in parts.items() if part is not None}

    @property
    def provides(self) -> Mapping[str, str]:
        """Versions of its capabilities."""
        return {capability: part.version for capability, part in self.parts.items()}

    def in_catalog(self) -> CatalogPlugin:
        """What a config is judged by."""
        return CatalogPlugin(self.name, self.version, self.provides, self.requires, self.supports)


def _wrong_types(plugin: Plugin) -> Iterator[str]:
    """What no type checker was asked about: a manifest is written elsewhere, and its parts run when a config is read."""
    yield from (f"{what} is no text" for what in ("name", "version") if not isinstance(getattr(plugin, what), str))
    if not isinstance(plugin.section, type) or not issubclass(plugin.section, Shape):
        yield "section is no Shape"
    if not isinstance(plugin.requires, Mapping) or not _all_text([*plugin.requires, *plugin.requires.values()]):
        yield "requires is no mapping of texts"
    if not isinstance(plugin.supports, frozenset) or not _all_text(plugin.supports):
        yield "supports is no frozenset of texts"
    for capability, part in plugin.parts.items():
        if not isinstance(part, Provided):
            yield f"{capability} is no Provided"
        elif not isinstance(part.options, type) or not _all_text([part.code, part.version]):
            yield f"{capability} needs a class of options, and code and version as text"


def _all_text(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


_CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_KINDS: Mapping[str, Any] = {ENCODER: EncoderOptions, BLOB_STORE: StoreOptions, TABLE_FORMAT: TableFormatOptions}


def manifest_problems(plugin: object, name: str) -> Iterator[str]:
    """What is wrong with what calls itself the plugin `name`; nothing if it is one."""
    if not isinstance(plugin, Plugin):
        yield f"it is of type {type(plugin).__name__}, no Plugin"
        return
    wrong = list(_wrong_types(plugin))
    if wrong:
        yield from wrong
        return
    if plugin.name != name:
        yield f"it calls itself '{plugin.name}'"
    versions = {"its version": plugin.version, **plugin.provides}
    yield from (f"{what} is '{number}'; write X.Y.Z" for what, number in versions.items() if parse_version(number) is None)
    yield from (f"'{wanted}' is no range for {cap}" for cap, wanted in plugin.requires.items() if not is_valid_range(wanted))
    if not plugin.parts:
        yield "it provides nothing"
    for capability, part in plugin.parts.items():
        if not issubclass(part.options, _KINDS[capability]):
            yield f"the options of {capability} are no {_KINDS[capability].__name__}"
        if not _CODE.fullmatch(part.code):
            yield f"the code of {capability} is '{part.code}'; write package.module:Class"
