"""JSON values to VARIANT, by HypAware's rules.

Why an encoder of our own and not DuckDB's: a reader is proved by what HypAware writes, and the two differ where it hurts.
HypAware makes every integer above 32 bits a double (JavaScript has no other number) and shares one sorted dictionary of keys
among all rows of a column chunk; DuckDB keeps 64-bit integers and a dictionary per row. DuckDB also costs several milliseconds
a file, and a cache has thousands of small ones.

Why a value that is not there is a VARIANT null and no null group: so HypAware writes it, whether a row lacked the column or had
JSON's `null` in it; its manifests count it as null. The two cannot be told apart in a real cache.

Why distinct texts only: the same 4 KB list of tools stands on every row of a conversation. It is parsed and encoded once.
"""

import datetime as dt
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

VARIANT_STORAGE: Final = pa.struct([pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary())])
"""How an unshredded VARIANT column lies in Parquet."""
VARIANT_NULL: Final = b"\x00"
"""The value of a row that has none."""


class BigInt(int):
    """An integer HypAware got as a `bigint` (a 64-bit OTLP counter, say): stays an int64 whatever its size."""


_TRUE = b"\x04"
_FALSE = b"\x08"
_INT8 = struct.Struct("<Bb")
_INT16 = struct.Struct("<Bh")
_INT32 = struct.Struct("<Bi")
_INT64 = struct.Struct("<Bq")
_DOUBLE = struct.Struct("<Bd")
_LONG_STRING = struct.Struct("<BI")
_SHORT_STRING_BYTES = 63
_SMALL_CONTAINER = 255
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

# Tags of the VARIANT format: primitive type number shifted past the two bits of the basic type.
_TAG_INT8, _TAG_INT16, _TAG_INT32, _TAG_INT64, _TAG_DOUBLE = 3 << 2, 4 << 2, 5 << 2, 6 << 2, 7 << 2
_TAG_TIMESTAMP_NTZ, _TAG_STRING = 13 << 2, 16 << 2
_OBJECT, _ARRAY = 2, 3


def encode_values(values: Sequence[Any]) -> tuple[bytes, list[bytes]]:
    """Encode the values of one column chunk; returns the dictionary they share and one value each.

    Values are what `json.loads` yields, plus `BigInt` and `datetime`.
    """
    keys: set[str] = set()
    for value in values:
        _collect_keys(value, keys)
    ordered = sorted(keys)
    ids = {key: position for position, key in enumerate(ordered)}
    return encode_metadata(ordered), [_encode(value, ids) for value in values]


def encode_metadata(keys: Sequence[str]) -> bytes:
    """The dictionary of sorted keys: header, count, offsets, names."""
    names = [_utf8(key) for key in keys]
    width = _width(max(sum(map(len, names)), len(names)))
    offsets = [0]
    for name in names:
        offsets.append(offsets[-1] + len(name))
    # Version 1, sorted, width of the offsets.
    header = bytes([0x11 | (width - 1) << 6])
    return header + _ints([len(names), *offsets], width) + b"".join(names)


def variant_from_text(texts: pa.Array | pa.ChunkedArray) -> pa.StructArray:
    """A column of JSON text (plain or dictionary-encoded) as one VARIANT column chunk."""
    column = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    # A slice keeps its parent's dictionary: only what this chunk uses goes into its metadata.
    used = column.indices.unique().drop_null()
    documents = column.dictionary.take(used).to_pylist()
    metadata, encoded = encode_values([json.loads(text) for text in documents])
    return _variant_array(metadata, encoded, pc.index_in(column.indices, value_set=used))


def variant_from_values(values: Sequence[Any]) -> pa.StructArray:
    """Python values as one VARIANT column chunk. The same object on many rows is encoded once."""
    distinct = {id(value): value for value in values if value is not None}
    place = {identity: position for position, identity in enumerate(distinct)}
    metadata, encoded = encode_values(list(distinct.values()))
    return _variant_array(metadata, encoded, pa.array([place.get(id(value)) for value in values], pa.int32()))


def without_duplicates(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """The same values by a dictionary that has each once.

    Given a dictionary with duplicates, Arrow's Parquet writer leaves uninitialised memory in the dictionary page.
    """
    unified = array.dictionary.dictionary_encode()
    return pa.DictionaryArray.from_arrays(unified.indices.take(array.indices), unified.dictionary)


def absent_variants(count: int) -> pa.StructArray:
    """A VARIANT column without any value, in its plain storage."""
    dictionaries, values = (pa.repeat(pa.scalar(content, pa.binary()), count) for content in (encode_metadata([]), VARIANT_NULL))
    return pa.StructArray.from_arrays([dictionaries, values], fields=list(VARIANT_STORAGE))


def count_absent(array: pa.StructArray) -> int:
    """How many rows of a VARIANT column have no value."""
    values = array.field("value")
    absent = (
        pc.equal(values.dictionary, VARIANT_NULL).take(values.indices)
        if pa.types.is_dictionary(values.type)
        else pc.equal(values, VARIANT_NULL)
    )
    return pc.sum(absent).as_py() or 0


def _variant_array(metadata: bytes, distinct: list[bytes], indices: pa.Array) -> pa.StructArray:
    """Both children dictionary-encoded, so that a large value that repeats is held and written once."""
    if indices.null_count:
        indices = indices.fill_null(len(distinct))
        distinct = [*distinct, VARIANT_NULL]
    zeros = pa.repeat(pa.scalar(0, pa.int32()), len(indices))
    shared = pa.DictionaryArray.from_arrays(zeros, pa.array([metadata], pa.binary()))
    values = without_duplicates(pa.DictionaryArray.from_arrays(indices, pa.array(distinct, pa.binary())))
    fields = [pa.field("metadata", shared.type, nullable=False), pa.field("value", values.type)]
    return pa.StructArray.from_arrays([shared, values], fields=fields)


# Below it is asked for exact types: `json.loads` yields no others, and asking what is a mapping takes longer than encoding it.


def _collect_keys(value: Any, keys: set[str]) -> None:
    kind = type(value)
    if kind is dict:
        keys.update(value)
        for item in value.values():
            _collect_keys(item, keys)
    elif kind is list:
        for item in value:
            _collect_keys(item, keys)


def _encode(value: Any, ids: Mapping[str, int]) -> bytes:
    kind = type(value)
    if kind is dict:
        return _encode_object(value, ids)
    if kind is list:
        return _encode_array([_encode(item, ids) for item in value])
    encoder = _SCALARS.get(kind)
    if encoder is None:
        raise TypeError(f"a JSON column cannot hold {value!r} of type {kind.__name__}")
    return encoder(value)


def _encode_object(value: dict[str, Any], ids: Mapping[str, int]) -> bytes:
    # Ids are positions in a sorted dictionary: sorting by key is sorting by id.
    names = sorted(value)
    fields = [ids[name] for name in names]
    body, offsets = _join([_encode(value[name], ids) for name in names])
    id_width = _width(fields[-1] if fields else 0)
    offset_width = _width(len(body))
    large = len(fields) > _SMALL_CONTAINER
    header = _OBJECT | (offset_width - 1) << 2 | (id_width - 1) << 4 | large << 6
    count = len(fields).to_bytes(4 if large else 1, "little")
    return b"".join((bytes((header,)), count, _ints(fields, id_width), _ints(offsets, offset_width), body))


def _encode_array(items: list[bytes]) -> bytes:
    body, offsets = _join(items)
    width = _width(len(body))
    large = len(items) > _SMALL_CONTAINER
    header = _ARRAY | (width - 1) << 2 | large << 4
    return b"".join((bytes((header,)), len(items).to_bytes(4 if large else 1, "little"), _ints(offsets, width), body))


def _join(parts: list[bytes]) -> tuple[bytes, list[int]]:
    """The parts in a row, and where each begins, with the end as the last offset."""
    return b"".join(parts), list(accumulate(map(len, parts), initial=0))


def _encode_string(value: str) -> bytes:
    data = _utf8(value)
    if len(data) <= _SHORT_STRING_BYTES:
        return bytes([len(data) << 2 | 1]) + data
    return _LONG_STRING.pack(_TAG_STRING, len(data)) + data


def _encode_int(value: int) -> bytes:
    if -0x80 <= value < 0x80:
        return _INT8.pack(_TAG_INT8, value)
    if -0x8000 <= value < 0x8000:
        return _INT16.pack(_TAG_INT16, value)
    if -0x80000000 <= value < 0x80000000:
        return _INT32.pack(_TAG_INT32, value)
    return _DOUBLE.pack(_TAG_DOUBLE, float(value))


def _encode_float(value: float) -> bytes:
    # JavaScript has one number type: 3.0 is the integer 3.
    return _encode_int(int(value)) if value.is_integer() else _DOUBLE.pack(_TAG_DOUBLE, value)


def _encode_datetime(value: dt.datetime) -> bytes:
    return _INT64.pack(_TAG_TIMESTAMP_NTZ, (value - _EPOCH) // dt.timedelta(microseconds=1))


_SCALARS: Final[dict[type, Callable[[Any], bytes]]] = {
    str: _encode_string,
    int: _encode_int,
    float: _encode_float,
    bool: lambda value: _TRUE if value else _FALSE,
    BigInt: lambda value: _INT64.pack(_TAG_INT64, value),
    dt.datetime: _encode_datetime,
    type(None): lambda _: VARIANT_NULL,
}


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # A lone surrogate, which JavaScript strings may hold: its encoder writes U+FFFD.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _width(largest: int) -> int:
    """Bytes needed for an unsigned integer, at least one."""
    return 1 if largest < 0x100 else (largest.bit_length() + 7) // 8


def _ints(values: Sequence[int], width: int) -> bytes:
    if width == 1:
        return bytes(values)
    return b"".join(value.to_bytes(width, "little") for value in values)
