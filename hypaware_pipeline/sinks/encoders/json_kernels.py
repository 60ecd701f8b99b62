"""JSON, whole columns at a time.

Why DuckDB: quoting a string, printing a number and checking a JSON text look at every byte, and DuckDB brings a fast JSON
library for all three; Arrow has no such kernels, and Python would make an object of every value.

What does DuckDB take for JSON that is none? The bare words `NaN` and `Infinity` in any spelling, and a comma behind the
last element. Both are looked for separately, on the raw bytes; only a text that seems to hold one is looked at by itself.
"""

import itertools
import re
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache, cached_property
from types import TracebackType
from typing import Self

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_PERHAPS_LENIENT = r"(^|[\[:,\s-])(?i:nan|inf)|,\s*[\]}]"
_LENIENT = re.compile(r"nan|inf|,\s*[\]}]", re.IGNORECASE)
_STRING_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"')
_NUMBER = """
CASE WHEN value = 0 THEN '0'
     WHEN NOT isfinite(value) THEN NULL
     WHEN suffix(to_json(value)::VARCHAR, '.0') THEN left(to_json(value)::VARCHAR, -2)
     ELSE replace(replace(to_json(value)::VARCHAR, 'e', 'e+'), 'e+-', 'e-')
END
"""
"""JavaScript's digits are DuckDB's; but JavaScript has no `.0`, no negative zero, and a plus sign in exponents."""


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """One for the process: starting it takes longer than encoding a small day."""
    return duckdb.connect(config={"autoinstall_known_extensions": "false"})


class JsonKernels:
    """Functions from columns to columns; holds a connection of its own once one was used, closed with the context."""

    def __init__(self) -> None:
        self._resources = ExitStack()

    @cached_property
    def _duckdb(self) -> duckdb.DuckDBPyConnection:
        return self._resources.enter_context(_database().cursor())

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the connection."""
        self._resources.close()

    def quoted(self, columns: Sequence[pa.StringArray]) -> list[pa.StringArray]:
        """Each string as a JSON string literal; null stays null."""
        return self._apply("to_json(value)::VARCHAR", columns)

    def numbers(self, columns: Sequence[pa.DoubleArray]) -> list[pa.StringArray]:
        """Each number as JavaScript prints it; null, NaN and the infinities become null."""
        return self._apply(_NUMBER, columns)

    def invalid(self, columns: Sequence[pa.StringArray]) -> list[npt.NDArray[np.bool_]]:
        """Which of the texts are not JSON (RFC 8259); null is none of them."""
        answers = self._apply("coalesce(NOT json_valid(value), false)", columns)
        return [
            _less_lenient(texts, answer.to_numpy(zero_copy_only=False)) for texts, answer in zip(columns, answers, strict=True)
        ]

    def _apply(self, expression: str, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """An expression over `value`, for all columns in one query: a query costs as much as a megabyte of text."""
        if not columns:
            return []
        table = pa.table({"value": pa.concat_arrays(columns)})
        result = self._duckdb.from_arrow(table).project(f"{expression} AS result").to_arrow_table().column(0).combine_chunks()
        ends = itertools.accumulate(len(column) for column in columns)
        return [result.slice(end - len(column), len(column)) for end, column in zip(ends, columns, strict=True)]


def text_bytes(values: pa.StringArray) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Offsets (one more than values) and bytes of a string array, without a copy; the first offset may not be 0."""
    _, offsets, data = values.buffers()
    if len(values) == 0 or data is None:
        return np.zeros(len(values) + 1, np.int32), np.zeros(0, np.uint8)
    return np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1], np.frombuffer(data, np.uint8)


def holds_byte(values: pa.StringArray, byte: int) -> bool:
    """Whether any of the values holds this byte."""
    offsets, data = text_bytes(values)
    return bool((data[offsets[0] : offsets[-1]] == byte).any())


def _less_lenient(texts: pa.StringArray, invalid: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """`invalid`, and besides the texts that only a lenient reader takes for JSON."""
    suspects = pc.match_substring_regex(texts, _PERHAPS_LENIENT).fill_null(False).to_numpy(zero_copy_only=False)
    lenient = [bool(_LENIENT.search(_STRING_LITERAL.sub('""', text))) for text in texts.filter(pa.array(suspects)).to_pylist()]
    answer = invalid.copy()
    answer[suspects] |= np.array(lenient, np.bool_)
    return answer
