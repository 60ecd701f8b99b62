"""The shape of one entry of `sinks`: HypAware's rules, in HypAware's words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import Field

from hypaware_pipeline.config.document import JsonObject, NonEmpty
from hypaware_pipeline.config.shape import Shape, check_shape
from hypaware_pipeline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class BlobEntry:
    """An entry of sound shape that names a writer and a destination. `pointer` is where it stands in the file."""

    pointer: str
    writer: str
    destination: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RequestEntry:
    """An entry of sound shape that names one plugin. `pointer` is where it stands in the file."""

    pointer: str
    plugin: str
    config: Mapping[str, Any]


class _BlobShape(Shape):
    writer: NonEmpty
    destination: NonEmpty
    config: JsonObject = Field(default_factory=dict)


class _RequestShape(Shape):
    plugin: NonEmpty
    config: JsonObject = Field(default_factory=dict)


_BOTH = "sink instance cannot combine writer/destination with plugin"
_NEITHER = "sink must specify either writer+destination (blob) or plugin (request)"
_MESSAGES = {
    "/writer": "writer (plugin name) is required for blob sinks",
    "/destination": "destination (plugin name) is required for blob sinks",
    "/plugin": "plugin (plugin name) is required for request sinks",
    "/config": "config must be an object when present",
}

S = TypeVar("S", bound=Shape)


def read_entry(
    name: str, raw: Any, *, unknown_keys: Literal["forbid", "ignore"] = "forbid"
) -> BlobEntry | RequestEntry | list[ConfigError]:
    """One entry of `sinks` by its shape alone; `unknown_keys` says what is done with keys HypAware does not have."""
    pointer = f"/sinks/{name}"
    if not isinstance(raw, dict):
        return [ConfigError("config_invalid_shape", pointer, "sink entry must be an object")]
    blob, request = "writer" in raw or "destination" in raw, "plugin" in raw
    if blob == request:
        return [ConfigError("config_invalid_shape", pointer, _BOTH if blob else _NEITHER)]

    def checked(model: type[S]) -> S | list[ConfigError]:
        return check_shape(
            model, raw, kind="config_invalid_shape", pointer=pointer, messages=_MESSAGES, unknown_keys=unknown_keys
        )

    if blob:
        one = checked(_BlobShape)
        return one if isinstance(one, list) else BlobEntry(pointer, one.writer, one.destination, one.config)
    other = checked(_RequestShape)
    return other if isinstance(other, list) else RequestEntry(pointer, other.plugin, other.config)
