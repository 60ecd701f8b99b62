"""What a validation found, in this project's words.

Why pydantic's own report is never shown or chained: it quotes the offending values, and a misspelt key may hold a password.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from hypaware_pipeline.errors import ConfigError, ConfigErrorKind

M = TypeVar("M", bound=BaseModel)


class Shape(BaseModel):
    """Base of everything read from a config file: exact types, no unknown keys, no infinities, no changes afterwards."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


def check_shape(
    model: type[M],
    value: Mapping[str, Any],
    *,
    kind: ConfigErrorKind,
    pointer: str = "",
    messages: Mapping[str, str] | None = None,
    context: object = None,
    unknown_keys: Literal["forbid", "ignore"] = "forbid",
) -> M | list[ConfigError]:
    """The value as `model`, or everything that is wrong with it.

    Args:
        model: What it should be.
        value: What the file says.
        kind: Of the errors.
        pointer: Where the value stands in the file. As in HypAware, names in pointers are not escaped.
        messages: Words for an error at a place below `pointer`, array positions written `*`, in place of pydantic's.
        context: Handed to the model's validators.
        unknown_keys: Whether keys that no model has are errors, at any depth.
    """
    try:
        return model.model_validate(value, context=context, extra=unknown_keys)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
    errors: dict[str, ConfigError] = {}
    for problem in found:
        place = "".join(f"/{part}" for part in problem["loc"])
        pattern = "".join("/*" if isinstance(part, int) else f"/{part}" for part in problem["loc"])
        message = (messages or {}).get(pattern) or _message(
            problem["type"], problem["msg"], problem["loc"], model=model, at_top=not pointer
        )
        errors.setdefault(place, ConfigError(kind, f"{pointer}{place}", message))
    return list(errors.values())


def _message(kind: str, words: str, place: tuple[int | str, ...], *, model: type[BaseModel], at_top: bool) -> str:
    if kind == "extra_forbidden":
        key = "top-level key" if at_top and len(place) == 1 else "key"
        known = f"; known are {', '.join(sorted(model.model_fields))}" if len(place) == 1 else ""
        return f"unrecognized {key} '{place[-1]}'{known}"
    if kind == "missing":
        return f"{place[-1]} is required"
    return words.removeprefix("Value error, ").replace("Input should", "should")
