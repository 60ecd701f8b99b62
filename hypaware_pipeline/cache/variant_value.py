"""One VARIANT value as the text JavaScript's `JSON.stringify` prints, read byte by byte.

Why a second renderer beside the bulk one (`variant`): the bulk one is fast and differs from JavaScript in a few forms (numbers
with an exponent, big integers, timestamps, binary). Values that may hold one of these come here, where every rule is spelled
out.

Why everything is bounds-checked: the bytes come from a file that may be damaged. A value either renders exactly or raises; it
never reads past its end, never loops, and never allocates by a count it has not checked.

Decisions where JSON or JavaScript leave a choice:
- Keys come in the order of their UTF-8 bytes, the order the format stores them in; a key that occurs twice is an error.
- An integer beyond 2^53 - 1 is a decimal string: what HypAware prints of a BigInt. A decimal is a number without trailing zeros.
- NaN and the infinities are `null`. A timestamp has milliseconds and `Z`, as a JavaScript Date prints; finer digits are cut off.
- Binary is base64. A time of day keeps its microseconds, since no Date could hold it.
"""

import base64
import datetime as dt
import itertools
import json
import math
import struct
import uuid
from collections.abc import Callable
from functools import lru_cache

_MAX_SAFE_INTEGER = 2**53 - 1
_JS_EXPONENT_FROM, _JS_EXPONENT_BELOW = 21, -6  # JavaScript: exponent form at and above 1e21, and below 1e-6
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MAX_DATE_MS = 8_640_000_000_000_000  # the range of a JavaScript Date, either side of the epoch

_SHORT_STRING, _OBJECT, _ARRAY = 1, 2, 3


class VariantError(ValueError):
    """The bytes are no valid VARIANT. Says what is wrong with them."""


def render(metadata: bytes, value: bytes) -> str:
    """The JSON text of one value.

    Raises:
        VariantError: the bytes are damaged, use an unknown type, hold invalid UTF-8, or a key twice.
    """
    names = _field_names(metadata)
    pieces: list[str] = []
    todo: list[int | str] = [0]  # positions still to render and literal text between them, last first
    visits = 0
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            pieces.append(item)
            continue
        visits += 1
        if visits > max(len(value), 1):
            raise VariantError("values overlap")
        kind = _take(value, item, 1)[0] & 0b11
        if kind == _OBJECT:
            todo.extend(reversed(_object(names, value, item)))
        elif kind == _ARRAY:
            todo.extend(reversed(_array(value, item)))
        else:
            pieces.append(_scalar(value, item))
    return "".join(pieces)


def is_null(value: bytes) -> bool:
    """Whether the value as a whole is the VARIANT null, which HypAware's own reader returns as an absent value."""
    return value == b"\x00"


def js_number(number: float) -> str:
    """A double as JavaScript prints it: shortest digits that read back, `null` for what JSON cannot say."""
    if not math.isfinite(number):
        return "null"
    if number == 0:
        return "0"
    text = repr(number)
    mantissa, _, power = text.partition("e")
    if not power:
        return text.removesuffix(".0")
    exponent = int(power)
    if exponent >= _JS_EXPONENT_FROM or exponent < _JS_EXPONENT_BELOW:
        return f"{mantissa}e{exponent:+d}"
    sign = "-" if number < 0 else ""
    digits = mantissa.removeprefix("-").replace(".", "")
    if exponent > 0:
        return sign + digits.ljust(exponent + 1, "0")
    return f"{sign}0.{'0' * (-exponent - 1)}{digits}"


def js_string(text: str) -> str:
    """A string as JSON, non-ASCII characters as they are."""
    return json.dumps(text, ensure_ascii=False)


def _take(data: bytes, start: int, size: int) -> bytes:
    """`size` bytes from `start`, or an error: a slice would be silently short."""
    if start < 0 or start + size > len(data):
        raise VariantError("the value ends too early")
    return data[start : start + size]


def _unsigned(data: bytes, start: int, size: int) -> int:
    return int.from_bytes(_take(data, start, size), "little")


def _offsets(data: bytes, start: int, count: int, size: int) -> list[int]:
    """`count` little-endian integers of `size` bytes each."""
    raw = _take(data, start, count * size)
    return [int.from_bytes(raw[at : at + size], "little") for at in range(0, count * size, size)]


@lru_cache(maxsize=64)
def _field_names(metadata: bytes) -> tuple[str, ...]:
    """The dictionary of keys. Cached because all values of a column chunk share one."""
    header = _take(metadata, 0, 1)[0]
    if header & 0b1111 != 1:
        raise VariantError(f"metadata of unknown version {header & 0b1111}")
    size = (header >> 6) + 1
    count = _unsigned(metadata, 1, size)
    bounds = _offsets(metadata, 1 + size, count + 1, size)
    base = 1 + size * (count + 2)
    return tuple(
        _text(_take(metadata, base + start, end - start)) if end >= start else _damaged_dictionary()
        for start, end in itertools.pairwise(bounds)
    )


def _damaged_dictionary() -> str:
    raise VariantError("the dictionary of keys is damaged")


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise VariantError(f"a string is not valid UTF-8 ({error.reason} at byte {error.start})") from error


def _object(names: tuple[str, ...], data: bytes, start: int) -> list[int | str]:
    """`{`, then key, position of the value and `,` by turns, then `}`."""
    header = data[start] >> 2
    offset_size, id_size, count_size = (header & 0b11) + 1, (header >> 2 & 0b11) + 1, 4 if header & 0b10000 else 1
    count = _unsigned(data, start + 1, count_size)
    ids_at = start + 1 + count_size
    ids = _offsets(data, ids_at, count, id_size)
    offsets_at = ids_at + count * id_size
    offsets = _offsets(data, offsets_at, count + 1, offset_size)
    values_at = offsets_at + (count + 1) * offset_size
    if any(key >= len(names) for key in ids):
        raise VariantError("an object uses a key its dictionary does not have")
    fields = {names[key]: values_at + offset for key, offset in zip(ids, offsets, strict=False)}
    if len(fields) != count:
        raise VariantError("an object holds a key twice")
    out: list[int | str] = []
    for name in sorted(fields):  # code points sort as UTF-8 bytes do
        out += [f"{',' if out else '{'}{js_string(name)}:", fields[name]]
    return [*out, "}"] if out else ["{}"]


def _array(data: bytes, start: int) -> list[int | str]:
    """`[`, then positions of the elements and `,` by turns, then `]`."""
    header = data[start] >> 2
    offset_size, count_size = (header & 0b11) + 1, 4 if header & 0b100 else 1
    count = _unsigned(data, start + 1, count_size)
    offsets_at = start + 1 + count_size
    offsets = _offsets(data, offsets_at, count + 1, offset_size)
    values_at = offsets_at + (count + 1) * offset_size
    out: list[int | str] = []
    for offset in offsets[:count]:
        out += ["," if out else "[", values_at + offset]
    return [*out, "]"] if out else ["[]"]


def _scalar(data: bytes, start: int) -> str:
    header = data[start] >> 2
    if data[start] & 0b11 == _SHORT_STRING:
        return js_string(_text(_take(data, start + 1, header)))
    reader = _PRIMITIVES.get(header)
    if reader is None:
        raise VariantError(f"unknown primitive type {header}")
    return reader(data, start + 1)


def _integer(size: int) -> Callable[[bytes, int], str]:
    def read(data: bytes, start: int) -> str:
        number = int.from_bytes(_take(data, start, size), "little", signed=True)
        return str(number) if abs(number) <= _MAX_SAFE_INTEGER else f'"{number}"'

    return read


def _floating(size: int, layout: str) -> Callable[[bytes, int], str]:
    def read(data: bytes, start: int) -> str:
        return js_number(struct.unpack(layout, _take(data, start, size))[0])

    return read


def _decimal(size: int) -> Callable[[bytes, int], str]:
    def read(data: bytes, start: int) -> str:
        scale = _take(data, start, 1)[0]
        unscaled = int.from_bytes(_take(data, start + 1, size), "little", signed=True)
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
        whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :].rstrip("0")
        return f"{'-' if unscaled < 0 else ''}{whole}{'.' if fraction else ''}{fraction}"

    return read


def _date(data: bytes, start: int) -> str:
    days = int.from_bytes(_take(data, start, 4), "little", signed=True)
    return f'"{_iso(days * 86_400_000).partition("T")[0]}"'


def _timestamp(units_per_ms: int) -> Callable[[bytes, int], str]:
    def read(data: bytes, start: int) -> str:
        return f'"{_iso(int.from_bytes(_take(data, start, 8), "little", signed=True) // units_per_ms)}"'

    return read


def _iso(ms: int) -> str:
    """Milliseconds since the epoch as a JavaScript Date prints them, years outside 0..9999 with sign and six digits."""
    if abs(ms) > _MAX_DATE_MS:
        raise VariantError("a point in time lies outside what a date can hold")
    # A Gregorian cycle is 400 years of 146,097 days: shift into the range Python knows, and the year back.
    cycles, rest = divmod(ms, 146_097 * 86_400_000)
    moment = _EPOCH + dt.timedelta(milliseconds=rest)
    year = moment.year + 400 * cycles
    written = f"{year:04d}" if 0 <= year <= 9999 else f"{'-' if year < 0 else '+'}{abs(year):06d}"
    return f"{written}-{moment:%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _time(data: bytes, start: int) -> str:
    micros = int.from_bytes(_take(data, start, 8), "little", signed=True)
    if not 0 <= micros < 86_400_000_000:
        raise VariantError("a time of day lies outside the day")
    moment = _EPOCH + dt.timedelta(microseconds=micros)
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    return f'"{moment:%H:%M:%S}{fraction}"'


def _sized(data: bytes, start: int) -> bytes:
    return _take(data, start + 4, _unsigned(data, start, 4))


_PRIMITIVES: dict[int, Callable[[bytes, int], str]] = {
    0: lambda _data, _start: "null",
    1: lambda _data, _start: "true",
    2: lambda _data, _start: "false",
    3: _integer(1),
    4: _integer(2),
    5: _integer(4),
    6: _integer(8),
    7: _floating(8, "<d"),
    8: _decimal(4),
    9: _decimal(8),
    10: _decimal(16),
    11: _date,
    12: _timestamp(1000),  # microseconds, with and without a time zone: HypAware writes a Date without
    13: _timestamp(1000),
    14: _floating(4, "<f"),
    15: lambda data, start: f'"{base64.b64encode(_sized(data, start)).decode("ascii")}"',
    16: lambda data, start: js_string(_text(_sized(data, start))),
    17: _time,
    18: _timestamp(1_000_000),  # nanoseconds
    19: _timestamp(1_000_000),
    20: lambda data, start: f'"{uuid.UUID(bytes=_take(data, start, 16))}"',
}
"""Primitive type of the Parquet VARIANT encoding -> how its bytes become text."""
