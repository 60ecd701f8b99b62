"""Rows on their way into a file: which can be encoded, and how many belong together.

Why rows are checked here and not by the writers: both formats must refuse the same rows, and a writer that meets a bad one
in the middle of a file can no longer leave it out. Whole columns are checked; single values are looked at only where a
column failed.

What is refused: text that is no UTF-8 (Parquet readers do not check it, and every reader of the copy would fail), JSON
columns whose text is no JSON, timestamps outside the years 0001 to 9999 (ISO-8601 has no agreed form for them, and Python
readers refuse them).

Why groups are cut by the bytes of each row alone: the same rows must give the same bytes however they were batched and
whether a column came dictionary-encoded. So a row counts what it would take decoded.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hypaware_pipeline.arrow_types import ARROW_TYPES
from hypaware_pipeline.model import TEXT_CHECKED, Column, ColumnType
from hypaware_pipeline.plugins.contracts import RefusedRow
from hypaware_pipeline.sinks.encoders.json_kernels import JsonKernels

_FIRST_MICROSECOND = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z
_LAST_MICROSECOND = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999Z
_OFFSET_BYTES = 4  # what Arrow keeps per string beside its text


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows: one array per column, plain or dictionary-encoded, and the decoded size of each row in bytes."""

    arrays: tuple[pa.Array, ...]
    sizes: npt.NDArray[np.int64]

    @classmethod
    def of(cls, arrays: Sequence[pa.Array]) -> "Rows":
        """Rows of these arrays, at least one."""
        sizes = np.zeros(len(arrays[0]), np.int64)
        for array in arrays:
            sizes += _value_bytes(array)
        return cls(tuple(arrays), sizes)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.sizes)

    def slice(self, start: int, stop: int) -> "Rows":
        """The rows from `start` to before `stop`, without a copy."""
        return Rows(tuple(array.slice(start, stop - start) for array in self.arrays), self.sizes[start:stop])


class RowGate:
    """Passes on the rows that can be encoded, in order, and remembers the others in `refused`; `passed` counts the good ones."""

    def __init__(self, columns: Sequence[Column], kernels: JsonKernels) -> None:
        if not columns:
            raise ValueError("a dataset without columns cannot be encoded")
        self.refused: list[RefusedRow] = []
        self.passed = 0
        self._columns = columns
        self._kernels = kernels

    def pass_on(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Rows]:
        """The good rows of each batch; batches without one are skipped."""
        seen = 0
        for batch in batches:
            arrays = [_as_declared(batch.column(column.name), column) for column in self._columns]
            refused = self._refusals(arrays, text_checked=_is_checked(batch))
            if refused:
                keep = np.ones(batch.num_rows, np.bool_)
                keep[list(refused)] = False
                arrays = [array.filter(pa.array(keep)) for array in arrays]
                self.refused += [RefusedRow(seen + position, reason) for position, reason in sorted(refused.items())]
            seen += batch.num_rows
            self.passed += batch.num_rows - len(refused)
            if batch.num_rows > len(refused):
                yield Rows.of(arrays)

    def _refusals(self, arrays: Sequence[pa.Array], *, text_checked: bool) -> dict[int, str]:
        """Positions of the bad rows, each with the first thing that was found wrong with it."""
        found: dict[int, str] = {}
        for column, array, bad_values, reason in self._checks(arrays, text_checked=text_checked):
            for position in _positions(array, bad_values):
                found.setdefault(position, f"column '{column.name}': {reason}")
        return found

    def _checks(
        self, arrays: Sequence[pa.Array], *, text_checked: bool
    ) -> Iterator[tuple[Column, pa.Array, npt.NDArray[np.bool_], str]]:
        """Every check of every column: which of its distinct values fail it, and what that means."""
        json_columns: list[tuple[Column, pa.Array, pa.Array]] = []
        for column, array in zip(self._columns, arrays, strict=True):
            values = distinct_values(array)
            if column.type is ColumnType.TIMESTAMP:
                yield column, array, _outside_calendar(values), "timestamp outside the years 0001 to 9999"
            elif pa.types.is_string(values.type) and not text_checked:
                bad = _invalid_utf8(values)
                yield column, array, bad, "not valid UTF-8"
                if column.type is ColumnType.JSON:
                    json_columns.append((column, array, _without(values, bad)))
        answers = self._kernels.invalid([texts for _, _, texts in json_columns])
        for (column, array, _), bad in zip(json_columns, answers, strict=True):
            yield column, array, bad, "not valid JSON"


def _is_checked(batch: pa.RecordBatch) -> bool:
    """Whether whoever made the batch has looked at its text already: looking twice would double the cost of the checks."""
    return (batch.schema.metadata or {}).items() >= TEXT_CHECKED.items()


def groups(stream: Iterable[Rows], *, limit_bytes: int, limit_rows: int) -> Iterator[list[Rows]]:
    """Consecutive rows that fit the limits together, as a list of pieces; a row that is larger makes a group of its own.

    Where a group ends depends on the rows alone, not on how `stream` cuts them.
    """
    group: list[Rows] = []
    free_bytes, free_rows = limit_bytes, limit_rows
    for rows in stream:
        ends = np.cumsum(rows.sizes)
        start = 0
        while start < len(rows):
            taken = int(ends[start - 1]) if start else 0
            stop = min(int(np.searchsorted(ends, taken + free_bytes, side="right")), start + free_rows)
            if stop <= start and not group:
                stop = start + 1
            if stop > start:
                group.append(rows.slice(start, stop))
                free_bytes -= int(ends[stop - 1]) - taken
                free_rows -= stop - start
                start = stop
            if start < len(rows):
                yield group
                group, free_bytes, free_rows = [], limit_bytes, limit_rows
    if group:
        yield group


def distinct_values(array: pa.Array) -> pa.Array:
    """The dictionary of a dictionary-encoded array, else the array itself."""
    return array.dictionary if pa.types.is_dictionary(array.type) else array


def map_distinct(array: pa.Array, values: pa.Array) -> pa.Array:
    """An array like `array` with `values` in the place of its distinct values."""
    return pa.DictionaryArray.from_arrays(array.indices, values) if pa.types.is_dictionary(array.type) else values


def decoded(array: pa.Array) -> pa.Array:
    """The array without its dictionary."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def arrow_type(column: Column) -> pa.DataType:
    """The Arrow type in which the values of a column travel."""
    return ARROW_TYPES[column.type]


def _as_declared(array: pa.Array, column: Column) -> pa.Array:
    wanted = arrow_type(column)
    if pa.types.is_dictionary(array.type) and array.type.value_type == wanted == pa.string():
        return array
    array = decoded(array)
    return array if array.type == wanted else array.cast(wanted)


def _value_bytes(array: pa.Array) -> npt.NDArray[np.int64] | int:
    """Decoded bytes of each value, or the one number that holds for all."""
    values = distinct_values(array)
    if not pa.types.is_string(values.type):
        return 1 if pa.types.is_boolean(values.type) else int(values.type.byte_width)
    lengths = pc.binary_length(values)
    if pa.types.is_dictionary(array.type):
        lengths = lengths.take(array.indices)
    return np.asarray(lengths.fill_null(0).to_numpy(zero_copy_only=False)).astype(np.int64) + _OFFSET_BYTES


def _positions(array: pa.Array, bad_values: npt.NDArray[np.bool_]) -> list[int]:
    """Where the bad ones among the distinct values of `array` stand in it."""
    if not bad_values.any():
        return []
    bad: Any = pa.array(bad_values)
    if pa.types.is_dictionary(array.type):
        bad = bad.take(array.indices).fill_null(False)
    return [int(position) for position in np.flatnonzero(bad.to_numpy(zero_copy_only=False))]


def _invalid_utf8(values: pa.StringArray) -> npt.NDArray[np.bool_]:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return np.array([not _is_utf8(value) for value in values.cast(pa.binary()).to_pylist()], np.bool_)
    return np.zeros(len(values), np.bool_)


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _without(values: pa.StringArray, unwanted: npt.NDArray[np.bool_]) -> pa.StringArray:
    return pc.if_else(pa.array(unwanted), pa.scalar(None, pa.string()), values) if unwanted.any() else values


def _outside_calendar(array: pa.TimestampArray) -> npt.NDArray[np.bool_]:
    microseconds = array.cast(pa.int64()).fill_null(0).to_numpy()
    return np.asarray((microseconds < _FIRST_MICROSECOND) | (microseconds > _LAST_MICROSECOND))
