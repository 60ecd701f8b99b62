"""Columns as a data file has them, turned into columns as the dataset declares them.

Why files differ: HypAware adds columns over time, third-party tables choose other widths, and one column may be
dictionary-encoded in one file and plain in the next. Behind this module every batch of a dataset has the same columns and the
same meaning.

Why a conversion never loses anything quietly: a value its declared type cannot hold costs its row a reason in the problem
column, and only that row. The one exception is stated: digits of a timestamp below the microsecond are cut off.

Why text is checked for UTF-8 here: nothing on the way validates what a file claims to be text, and every destination would fail
on it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hypaware_pipeline.arrow_types import ARROW_TYPES
from hypaware_pipeline.cache import variant
from hypaware_pipeline.cache.batches import encoded
from hypaware_pipeline.cache.halves import attempt
from hypaware_pipeline.cache.variant_value import js_number
from hypaware_pipeline.model import PROBLEM_COLUMN, SEQ_COLUMN, TEXT_CHECKED, Column, ColumnType, Dataset

_SEQ = Column(SEQ_COLUMN, ColumnType.INT64)


@dataclass(slots=True)
class _Problems:
    """Reasons per row, collected over the columns of a batch."""

    reasons: dict[int, list[str]] = field(default_factory=dict)

    def add(self, column: str, row: int, reason: str) -> None:
        self.reasons.setdefault(row, []).append(f"column '{column}': {reason}")

    def to_array(self, rows: int) -> pa.Array:
        if not self.reasons:
            return pa.nulls(rows)
        return pa.array(["; ".join(self.reasons[row]) if row in self.reasons else None for row in range(rows)], pa.string())


def file_columns(dataset: Dataset, schema: pa.Schema) -> list[str]:
    """The columns of a file that the dataset wants, the sequence among them."""
    wanted = {column.name for column in dataset.columns} | {SEQ_COLUMN}
    return [name for name in dict.fromkeys(schema.names) if name in wanted]


@dataclass(frozen=True, slots=True)
class Decoded:
    """A batch of a data file whose VARIANT columns are text already: the other columns as stored, the texts, what was wrong."""

    stored: pa.RecordBatch
    texts: Mapping[str, pa.Array]
    problems: _Problems


def decode(raws: Sequence[pa.RecordBatch], dataset: Dataset, connection: duckdb.DuckDBPyConnection) -> list[Decoded]:
    """The first half of the way: batches of data files, the VARIANT columns of all decoded in one query.

    Args:
        raws: Columns as the files have them.
        dataset: Says which columns are JSON.
        connection: Any DuckDB connection.
    """
    encoded = [
        (at, name, raw.column(name))
        for at, raw in enumerate(raws)
        for name in (column.name for column in dataset.columns if column.type is ColumnType.JSON)
        if name in raw.schema.names and variant.is_variant(raw.schema.field(name).type)
    ]
    texts: list[dict[str, pa.Array]] = [{} for _ in raws]
    problems = [_Problems() for _ in raws]
    for (at, name, _), found in zip(encoded, variant.decode([array for _, _, array in encoded], connection), strict=True):
        texts[at][name] = found.array
        for row, reason in found.problems.items():
            problems[at].add(name, row, reason)
    # What was decoded is let go of: as stored it can be large.
    stored = [raw.drop_columns(list(found)) for raw, found in zip(raws, texts, strict=True)]
    return list(map(Decoded, stored, texts, problems))


def typed(decoded: Decoded, dataset: Dataset) -> pa.RecordBatch:
    """The second half: the dataset's columns in order, then the sequence, then the problems.

    A column without a value has Arrow's null type until it is `finished`.
    """
    stored, problems = decoded.stored, decoded.problems
    names = set(stored.schema.names)
    columns = [*dataset.columns, _SEQ]
    arrays = [
        decoded.texts[column.name]
        if column.name in decoded.texts
        else _typed(stored.column(column.name) if column.name in names else None, column, stored.num_rows, problems)
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(
        [*arrays, problems.to_array(stored.num_rows)], names=[*(column.name for column in columns), PROBLEM_COLUMN]
    )


def finished(batch: pa.RecordBatch, dataset: Dataset) -> pa.RecordBatch:
    """The same rows as they leave this module: with a type for every column, and marked as checked."""
    types = {column.name: ARROW_TYPES[column.type] for column in (*dataset.columns, _SEQ)} | {PROBLEM_COLUMN: pa.string()}
    arrays = [
        pa.nulls(batch.num_rows, types[name]) if pa.types.is_null(array.type) else array
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    ]
    fields = [pa.field(name, array.type) for name, array in zip(batch.schema.names, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=TEXT_CHECKED))


def _typed(array: pa.Array | None, column: Column, rows: int, problems: _Problems) -> pa.Array:
    if array is None or array.null_count == rows:
        return pa.nulls(rows)
    if pa.types.is_dictionary(array.type):
        return _typed_dictionary(array, column, problems)
    typed = _converted(array, column, problems.add)
    return encoded(typed) if pa.types.is_string(typed.type) else typed


def _typed_dictionary(array: pa.DictionaryArray, column: Column, problems: _Problems) -> pa.Array:
    """Convert the dictionary instead of the rows, and blame each row for the value it points at."""
    bad: dict[int, str] = {}
    dictionary = _converted(array.dictionary, column, lambda _column, code, reason: bad.update({code: reason}))
    indices = array.indices.cast(pa.int32())
    if bad:
        by_row = indices.fill_null(-1).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(np.isin(by_row, list(bad))):
            problems.add(column.name, int(row), bad[int(by_row[row])])
    if dictionary.null_count or column.type not in (ColumnType.STRING, ColumnType.JSON):
        return dictionary.take(indices)
    return pa.DictionaryArray.from_arrays(indices, dictionary)


def _converted(array: pa.Array, column: Column, blame: Callable[[str, int, str], None]) -> pa.Array:
    """Convert a plain array; a row that cannot be converted becomes null and is blamed."""
    kernel = _kernel(array.type, column.type)
    target = ARROW_TYPES[column.type]
    if kernel is None:
        for row in np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False)):
            blame(column.name, int(row), f"stored as {_name(array.type)}, which cannot become {column.type}")
        return pa.nulls(len(array), target)

    def give_up(start: int, stop: int, reason: str) -> pa.Array:
        blame(column.name, start, f"stored as {_name(array.type)}, cannot become {column.type}: {reason}")
        return pa.nulls(stop - start, target)

    pieces = attempt(
        len(array), lambda start, stop: kernel(array.slice(start, stop - start)), give_up, failures=(pa.ArrowInvalid, ValueError)
    )
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)


def _name(data_type: pa.DataType) -> str:
    """A type as a message names it; a struct by its kind, since its fields would fill a page."""
    return "VARIANT" if variant.is_variant(data_type) else str(data_type)


Kernel = Callable[[pa.Array], pa.Array]


def _kernel(stored: pa.DataType, wanted: ColumnType) -> Kernel | None:
    """What converts an array of one type to the other; None where no meaning would survive."""
    match wanted:
        case ColumnType.STRING:
            return _text_kernel(stored)
        case ColumnType.JSON:
            return _json_kernel(stored)
        case ColumnType.TIMESTAMP:
            return _timestamp_kernel(stored)
        case ColumnType.BOOLEAN:
            return _as_is if pa.types.is_boolean(stored) else None
        case ColumnType.INT32 | ColumnType.INT64 | ColumnType.DOUBLE:
            target = ARROW_TYPES[wanted]
            return (lambda array: array.cast(target)) if _is_number(stored) else None


def _is_number(stored: pa.DataType) -> bool:
    return bool(pa.types.is_integer(stored) or pa.types.is_floating(stored) or pa.types.is_decimal(stored))


def _as_is(array: pa.Array) -> pa.Array:
    return array


def _text_kernel(stored: pa.DataType) -> Kernel | None:
    if _is_text(stored) or _is_binary(stored):
        return _valid_text
    if pa.types.is_floating(stored):
        return _number_text
    if pa.types.is_timestamp(stored):
        return lambda array: pc.strftime(_timestamps(array).cast(pa.timestamp("ms", "UTC"), safe=False), "%Y-%m-%dT%H:%M:%SZ")
    if pa.types.is_integer(stored) or pa.types.is_boolean(stored) or pa.types.is_date32(stored) or pa.types.is_decimal(stored):
        return lambda array: array.cast(pa.string())
    return None


def _json_kernel(stored: pa.DataType) -> Kernel | None:
    """A column that is JSON by declaration and a plain type in this file: each value is a JSON scalar."""
    if _is_text(stored):
        return lambda array: _mapped(_valid_text(array), lambda text: json.dumps(text, ensure_ascii=False))
    if pa.types.is_floating(stored):
        return _number_text
    if pa.types.is_integer(stored) or pa.types.is_boolean(stored):
        return lambda array: array.cast(pa.string())
    return None


def _timestamp_kernel(stored: pa.DataType) -> Kernel | None:
    if pa.types.is_timestamp(stored) or pa.types.is_date32(stored):
        return _timestamps
    return None


def _timestamps(array: pa.Array) -> pa.Array:
    """To microseconds in UTC. A timestamp without a zone is UTC, as everything in the cache is."""
    target = ARROW_TYPES[ColumnType.TIMESTAMP]
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        micros = pc.floor_temporal(array, unit="microsecond")
        return micros.cast(pa.timestamp("us", array.type.tz)).cast(target)
    return array.cast(target)


def _is_text(stored: pa.DataType) -> bool:
    return bool(pa.types.is_string(stored) or pa.types.is_large_string(stored) or pa.types.is_string_view(stored))


def _is_binary(stored: pa.DataType) -> bool:
    return bool(pa.types.is_binary(stored) or pa.types.is_large_binary(stored))


def _valid_text(array: pa.Array) -> pa.Array:
    """As `string`, having looked at every byte."""
    text = array if pa.types.is_string(array.type) else array.cast(pa.string())
    text.validate(full=True)
    return text


def _number_text(array: pa.Array) -> pa.Array:
    return _mapped(array.cast(pa.float64()), js_number)


def _mapped(array: pa.Array, text_of: Callable[..., str]) -> pa.Array:
    """Value by value, each distinct one once: for storage types that hardly ever occur."""
    encoded = array.dictionary_encode()
    dictionary = pa.array([text_of(value) for value in encoded.dictionary.to_pylist()], pa.string())
    return dictionary.take(encoded.indices)
