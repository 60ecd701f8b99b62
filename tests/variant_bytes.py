"""VARIANT bytes by hand, every type and size of the format, so that tests choose what a writer would not."""

import datetime as dt
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

NULL = b"\x00"
STRUCT = pa.struct([pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary())])


def primitive(kind: int, payload: bytes = b"") -> bytes:
    return bytes([kind << 2]) + payload


def integer(value: int, size: int = 8) -> bytes:
    return primitive({1: 3, 2: 4, 4: 5, 8: 6}[size], value.to_bytes(size, "little", signed=True))


def double(value: float) -> bytes:
    return primitive(7, struct.pack("<d", value))


def decimal(unscaled: int, scale: int, size: int = 16) -> bytes:
    return primitive({4: 8, 8: 9, 16: 10}[size], bytes([scale]) + unscaled.to_bytes(size, "little", signed=True))


def timestamp_micros(value: int, *, zoned: bool = False) -> bytes:
    return primitive(12 if zoned else 13, value.to_bytes(8, "little", signed=True))


def date(value: dt.date) -> bytes:
    return primitive(11, (value - dt.date(1970, 1, 1)).days.to_bytes(4, "little", signed=True))


def binary(value: bytes) -> bytes:
    return primitive(15, len(value).to_bytes(4, "little") + value)


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return bytes([len(data) << 2 | 1]) + data if len(data) < 64 else primitive(16, len(data).to_bytes(4, "little") + data)


def metadata(keys: Sequence[str]) -> bytes:
    names = [key.encode() for key in keys]
    size = 1 if sum(map(len, names)) < 256 and len(names) < 256 else 4
    return bytes([(size - 1) << 6 | 1]) + len(names).to_bytes(size, "little") + _offsets(names, size) + b"".join(names)


def array(items: Sequence[bytes]) -> bytes:
    size, large = _sizes(items)
    header = (size - 1) | (large << 2)
    return bytes([header << 2 | 3]) + len(items).to_bytes(4 if large else 1, "little") + _offsets(items, size) + b"".join(items)


def obj(fields: Sequence[tuple[int, bytes]]) -> bytes:
    """An object of (id of the key, value), in this order."""
    values = [value for _, value in fields]
    size, large = _sizes(values)
    id_size = 1 if all(key < 256 for key, _ in fields) else 4
    header = (size - 1) | (id_size - 1) << 2 | large << 4
    ids = b"".join(key.to_bytes(id_size, "little") for key, _ in fields)
    return (
        bytes([header << 2 | 2])
        + len(fields).to_bytes(4 if large else 1, "little")
        + ids
        + _offsets(values, size)
        + b"".join(values)
    )


def encode(value: Any, keys: Sequence[str]) -> bytes:
    """A JSON-like value; objects store their fields in the order of `keys`, which must be sorted by UTF-8 bytes."""
    match value:
        case None:
            return NULL
        case bool():
            return primitive(1 if value else 2)
        case int():
            return integer(value, next(size for size in (1, 2, 4, 8) if -(1 << (8 * size - 1)) <= value < 1 << (8 * size - 1)))
        case float():
            return double(value)
        case str():
            return text(value)
        case list():
            return array([encode(item, keys) for item in value])
        case dict():
            return obj([(at, encode(value[key], keys)) for at, key in enumerate(keys) if key in value])
        case _:
            raise TypeError(type(value))


def keys_of(values: Iterable[Any]) -> list[str]:
    """All keys of all values, sorted by UTF-8 bytes, as a writer puts them into a column chunk's dictionary."""
    found: set[str] = set()
    todo = list(values)
    while todo:
        match todo.pop():
            case list() as items:
                todo += items
            case dict() as fields:
                found |= fields.keys()
                todo += fields.values()
            case _:
                pass
    return sorted(found, key=str.encode)


def column(pairs: Sequence[tuple[bytes, bytes | None] | None]) -> pa.StructArray:
    """Rows of (metadata, value); None is a null row."""
    metadata_column = pa.array([pair[0] if pair else b"" for pair in pairs], pa.binary())
    value_column = pa.array([pair[1] if pair else None for pair in pairs], pa.binary())
    mask = pa.array([pair is None for pair in pairs], pa.bool_())
    return pa.StructArray.from_arrays([metadata_column, value_column], fields=list(STRUCT), mask=mask)


def _sizes(items: Sequence[bytes]) -> tuple[int, int]:
    return 1 if sum(map(len, items)) < 256 else 4, int(len(items) > 255)


def _offsets(items: Sequence[bytes], size: int) -> bytes:
    at, out = 0, [(0).to_bytes(size, "little")]
    for item in items:
        at += len(item)
        out.append(at.to_bytes(size, "little"))
    return b"".join(out)
