"""VARIANT columns as JSON text, a whole batch at a time.

Why each distinct value once: a 4 KB tool list repeats on every row of a conversation. Hashing its bytes is fifty times cheaper
than decoding them.

Why DuckDB and then Python: DuckDB decodes in C, tells damaged bytes apart, and prints what JavaScript prints except in a few
forms. Values whose text may hold one of those forms are rendered again, exactly, by `variant_value`. A needless second
rendering costs time only, so the patterns below may match too much and never too little.

Why some values never reach DuckDB: it reserves memory for as many elements as a large array claims to have before it looks
whether they are there, so a few damaged bytes could take the process down. Python checks first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hypaware_pipeline.cache.halves import attempt
from hypaware_pipeline.cache.variant_value import VariantError, is_null, render
from hypaware_pipeline.cache.variant_walk import survey

_VARIANT_MARK = {"ARROW:extension:name": "arrow.parquet.variant", "ARROW:extension:metadata": ""}
"""Field metadata by which DuckDB takes an Arrow struct for a VARIANT."""

_NULL = b"\x00"
"""The VARIANT null."""

_CHUNK_ROWS = 2048
"""DuckDB's vector size: smaller chunks would waste it, larger ones would leave the second core idle."""

_PIECE_FOR_PYTHON = 32
"""A failing piece of so few values goes to Python, which names the damage of each: as quick as another query."""

_CONTROL_FOR_PYTHON = r"\\u00[01][A-F]"
"""JavaScript escapes control characters in lower case."""
_NEEDS_ESCAPE = r'["\\\x00-\x1f]'
_INTEGRAL_DOUBLE_OR_STRING = r'("(?:[^"\\]|\\.)*")|(-?[0-9]+)\.0([,\]}]|$)'


@dataclass(frozen=True, slots=True)
class Texts:
    """One decoded column: JSON text, plain or dictionary-encoded, and the reason per row that has none because of damage."""

    array: pa.Array
    problems: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class _Distinct:
    """The distinct (metadata, value) pairs of a column, and per row the index of its pair, -1 where the row is null."""

    metadata: pa.Array
    value: pa.Array
    codes: np.ndarray


def is_variant(data_type: pa.DataType) -> bool:
    """Whether a Parquet column read by pyarrow is an unshredded VARIANT."""
    return pa.types.is_struct(data_type) and {field.name for field in data_type} == {"metadata", "value"}


def is_shredded(data_type: pa.DataType) -> bool:
    """Whether it is a VARIANT that keeps a part of its values in typed columns."""
    return pa.types.is_struct(data_type) and "typed_value" in {field.name for field in data_type}


def decode(columns: Sequence[pa.StructArray], connection: duckdb.DuckDBPyConnection) -> list[Texts]:
    """Decode VARIANT columns to JSON text.

    A null row and a row that holds the VARIANT null both become null, as HypAware's own reader returns them.
    """
    wanted = [column for column in columns if not _has_no_value(column)]
    decoded = iter(_decode(wanted, connection))
    return [Texts(pa.nulls(len(column)), {}) if _has_no_value(column) else next(decoded) for column in columns]


def _has_no_value(column: pa.StructArray) -> bool:
    """Whether every row is null or holds the VARIANT null, as in a column that nothing used."""
    value = column.field("value")
    if value.null_count == len(value):
        return True
    if pa.types.is_dictionary(value.type):
        value = value.dictionary
    return bool(pc.all(pc.equal(value, pa.scalar(_NULL, value.type)), skip_nulls=True, min_count=0).as_py())


def _decode(columns: Sequence[pa.StructArray], connection: duckdb.DuckDBPyConnection) -> list[Texts]:
    distinct = [_distinct_of(column) for column in columns]
    if not distinct:
        return []
    metadata = _concat([part.metadata for part in distinct], pa.dictionary(pa.int32(), pa.binary()))
    texts, problems = _texts_of(metadata, pa.concat_arrays([part.value for part in distinct]), connection)
    out, start = [], 0
    for part in distinct:
        stop = start + len(part.value)
        own = {index - start: reason for index, reason in problems.items() if start <= index < stop}
        out.append(_spread(texts.slice(start, stop - start), own, part.codes))
        start = stop
    return out


def _concat(arrays: list[pa.Array], data_type: pa.DataType) -> pa.Array:
    return pa.chunked_array(arrays, type=data_type).unify_dictionaries().combine_chunks()


def _distinct_of(column: pa.StructArray) -> _Distinct:
    """Find the distinct values of a column by the hash of their bytes."""
    names = [field.name for field in column.type]
    children = column.flatten()  # carries the struct's own nulls into its children
    metadata, value = (_encoded(children[names.index(part)]) for part in ("metadata", "value"))
    value_codes = _codes(value)
    if len(metadata.dictionary) == 1 and not metadata.null_count and len(value.dictionary) <= len(value):
        only = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(value.dictionary), np.int32)), metadata.dictionary)
        return _Distinct(only, value.dictionary, value_codes)
    metadata_codes = _codes(metadata)
    dictionaries = max(len(metadata.dictionary), 1)
    pairs = np.where((value_codes < 0) | (metadata_codes < 0), -1, value_codes * dictionaries + metadata_codes)
    present, codes = np.unique(pairs, return_inverse=True)
    if len(present) and present[0] < 0:
        present, codes = present[1:], codes - 1
    return _Distinct(
        metadata=pa.DictionaryArray.from_arrays(pa.array((present % dictionaries).astype(np.int32)), metadata.dictionary),
        value=value.dictionary.take(pa.array(present // dictionaries)),
        codes=codes,
    )


def _encoded(part: pa.Array) -> pa.DictionaryArray:
    return part if pa.types.is_dictionary(part.type) else part.cast(pa.binary()).dictionary_encode()


def _codes(column: pa.DictionaryArray) -> np.ndarray:
    """The index of each row's entry, -1 where it is null."""
    indices = column.indices.fill_null(-1) if column.null_count else column.indices
    return np.asarray(indices.to_numpy(zero_copy_only=False)).astype(np.int64)


def _spread(texts: pa.Array, problems: Mapping[int, str], codes: np.ndarray) -> Texts:
    """Give every row the text of its value; dictionary-encoded where values repeat."""
    indices = pa.array(codes.astype(np.int32), mask=codes < 0)
    by_row = {int(row): reason for code, reason in problems.items() for row in np.flatnonzero(codes == code)}
    if len(texts) * 2 > len(codes):
        return Texts(texts.take(indices), by_row)
    texts = pa.concat_arrays([texts, pa.array([], pa.string())])  # its own memory: a slice would keep the whole batch's texts
    if texts.null_count:  # a dictionary without nulls in it, so that nulls are counted in one place only
        indices = pc.if_else(texts.is_valid().take(indices), indices, pa.scalar(None, pa.int32()))
        texts = texts.fill_null("")
    return Texts(pa.DictionaryArray.from_arrays(indices, texts), by_row)


def _texts_of(
    metadata: pa.DictionaryArray, value: pa.Array, connection: duckdb.DuckDBPyConnection
) -> tuple[pa.Array, dict[int, str]]:
    """The JSON text of each value, null where it is the VARIANT null or damaged; and what the damage is."""
    found = survey(value)
    strings = _plain_strings(value, found.text_start)
    bulk = np.flatnonzero(~(found.exact | strings.places))
    printed = _bulk(metadata.take(pa.array(bulk)), value.take(pa.array(bulk)), connection)
    printed = _without_integral_fractions(printed, found.integral[bulk])
    # DuckDB says null for what Python is to judge: damaged pieces.
    undecided = printed.is_null().to_numpy(zero_copy_only=False) | _flags(printed, _CONTROL_FOR_PYTHON)
    found.exact[bulk[undecided]] = True
    by_python = np.flatnonzero(found.exact)
    problems: dict[int, str] = {}
    exact = [_render_one(metadata[int(at)].as_py(), value[int(at)].as_py(), int(at), problems) for at in by_python]
    order = np.empty(len(value), np.int64)
    start = 0
    for places in (np.flatnonzero(strings.places), bulk, by_python):
        order[places] = start + np.arange(len(places))
        start += len(places)
    texts = pa.concat_arrays([strings.texts, printed, pa.array(exact, pa.string())]).take(pa.array(order))
    nulls = pc.equal(value, pa.scalar(_NULL, pa.binary()))
    return pc.if_else(nulls, pa.scalar(None, pa.string()), texts), problems


@dataclass(frozen=True, slots=True)
class _Strings:
    """Which values are strings that need no escape, and the JSON text of those."""

    places: np.ndarray
    texts: pa.Array


def _plain_strings(value: pa.Array, text_start: np.ndarray) -> _Strings:
    """Strings need no decoder: their bytes stand in the value as they are."""
    places = text_start > 0
    bare = _tails(value, text_start, np.flatnonzero(places))
    plain = ~_flags(bare, _NEEDS_ESCAPE)
    places[places] = plain
    try:
        text = bare.filter(pa.array(plain)).cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8: who decodes value by value will name the culprit
        return _Strings(np.zeros(len(value), np.bool_), pa.array([], pa.string()))
    return _Strings(places, pc.binary_join_element_wise('"', text, '"', ""))


def _tails(value: pa.Array, start: np.ndarray, wanted: np.ndarray) -> pa.Array:
    """Some of the values, each from a position on."""
    _, offsets, data = value.buffers()
    ends = np.frombuffer(offsets, np.int32, len(value) + 1, value.offset * 4)
    borders = np.empty(2 * len(value) + 1, np.int32)
    borders[0::2] = ends
    borders[1::2] = ends[:-1] + start
    # Heads and tails in turn, over the bytes of the values.
    both = pa.Array.from_buffers(pa.binary(), 2 * len(value), [None, pa.py_buffer(borders), data])
    return both.take(pa.array(2 * wanted + 1))


def _render_one(metadata: bytes, value: bytes, position: int, problems: dict[int, str]) -> str | None:
    if is_null(value):
        return None
    try:
        return render(metadata, value)
    except VariantError as error:
        problems[position] = f"VARIANT cannot be decoded: {error}"
        return None


def _bulk(metadata: pa.DictionaryArray, value: pa.Array, connection: duckdb.DuckDBPyConnection) -> pa.Array:
    """What DuckDB prints of each value; null where a value near it is damaged."""

    def convert(start: int, stop: int) -> pa.Array:
        if stop == start:
            return pa.array([], pa.string())
        return _print(metadata.slice(start, stop - start), value.slice(start, stop - start), connection)

    def leave(start: int, stop: int, _reason: str) -> pa.Array:
        return pa.nulls(stop - start, pa.string())

    return pa.concat_arrays(attempt(len(value), convert, leave, failures=(duckdb.Error,), smallest=_PIECE_FOR_PYTHON))


def _print(metadata: pa.DictionaryArray, value: pa.Array, connection: duckdb.DuckDBPyConnection) -> pa.Array:
    fields = [pa.field("metadata", metadata.type, nullable=False), pa.field("value", pa.binary())]
    column = pa.StructArray.from_arrays([metadata, value], fields=fields)
    schema = pa.schema([pa.field("v", column.type, metadata=_VARIANT_MARK)])
    # Chunks of their own, so that DuckDB spreads them over its threads.
    chunks = [pa.record_batch([column.slice(start, _CHUNK_ROWS)], schema=schema) for start in range(0, len(column), _CHUNK_ROWS)]
    relation = connection.from_arrow(pa.Table.from_batches(chunks, schema))
    printed = relation.project('CAST("v" AS JSON)::VARCHAR AS "text"').to_arrow_table().column(0)
    return printed.cast(pa.string()).combine_chunks()


def _flags(array: pa.Array, pattern: str) -> np.ndarray:
    """Where `pattern` occurs; false for null. The array is writable."""
    found = pc.fill_null(pc.match_substring_regex(array, pattern), False)
    return np.array(found.to_numpy(zero_copy_only=False), dtype=bool)


def _without_integral_fractions(texts: pa.Array, concerned: np.ndarray) -> pa.Array:
    """Print integral doubles as JavaScript does, `12345` for `12345.0`; what stands inside strings is left alone."""
    if not concerned.any():
        return texts
    shortened = pc.replace_substring_regex(texts.filter(pa.array(concerned)), _INTEGRAL_DOUBLE_OR_STRING, r"\1\2\3")
    return pc.replace_with_mask(texts, pa.array(concerned), shortened)
