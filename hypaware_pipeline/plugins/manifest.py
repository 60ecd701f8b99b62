"""What a plugin is: what it provides, which options it takes, and where its code is.

Why the code is named and not imported: encoders pull in libraries that cost a second and 90 MB, and every Dagster process
resolves every sink. Options and pairs are judged without them.

Why options, settings and arguments are three things: options are what a person writes, with defaults and other spellings;
settings are all that changes the objects, plain enough to be pinned and digested; arguments are what the code takes.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hypaware_pipeline.config.shape import Shape
from hypaware_pipeline.config.sinks import Settings

ENCODER = "hypaware.encoder"
BLOB_STORE = "hypaware.blob-store"
HTTP_ENDPOINT = "hypaware.http-endpoint"


class Options(Shape):
    """What a sink's `config` may say to a plugin. The fields are the keys of the file."""

    @classmethod
    def combine(cls, inherited: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the plugin's own entry says, overridden by what the sink says."""
        return {**inherited, **given}

    @abstractmethod
    def settings(self) -> Settings:
        """Everything that shapes the objects, defaults filled in."""

    @classmethod
    def arguments(cls, settings: Settings) -> Mapping[str, Any]:
        """The arguments of the plugin's code."""
        return settings


class EncoderOptions(Options):
    """Options of an encoder."""


class StoreOptions(Options):
    """Options of a blob store."""

    prefix: str = ""

    @abstractmethod
    def place(self) -> tuple[str, ...]:
        """Where the sink writes; see `SinkConfig.place`."""


O_co = TypeVar("O_co", bound=Options, covariant=True)


@dataclass(frozen=True, slots=True)
class Provided(Generic[O_co]):
    """One capability of a plugin. `code` names what implements it: `package.module:Class`."""

    options: type[O_co]
    code: str


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin.

    Attributes:
        name: HypAware's name for it.
        section: The shape of its own entry's `config`. Fields it shares with an options class are inherited by the sinks.
        requires: Capabilities its partner in a sink must provide.
    """

    name: str
    section: type[Shape]
    encoder: Provided[EncoderOptions] | None = None
    store: Provided[StoreOptions] | None = None
    requires: frozenset[str] = frozenset()

    @property
    def provides(self) -> frozenset[str]:
        """Its capabilities."""
        return frozenset(name for name, part in ((ENCODER, self.encoder), (BLOB_STORE, self.store)) if part is not None)
