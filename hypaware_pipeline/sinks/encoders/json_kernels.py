"""JSON, whole columns at a time.

Why DuckDB: quoting a string, printing a number and checking a JSON text look at every byte, and DuckDB brings a fast JSON
library for all three; Arrow has no such kernels, and Python would make an object of every value.

What does DuckDB take for JSON that is none? The bare words `NaN` and `Infinity` in any spelling, and a comma behind the
last element. Both are looked for separately, on the raw bytes; only a text that seems to hold one is looked at by itself.
"""

import re
from types import TracebackType
from typing import Self

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

_STRING_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"')
_LENIENT = re.compile(r"nan|inf|,\s*[\]}]", re.IGNORECASE)
_SEPARATORS = np.frombuffer(b"[:,- \t\n\r", np.uint8)
_BLANKS = np.frombuffer(b" \t\n\r", np.uint8)
_BLANKS_LOOKED_BACK = 8
_NUMBER = """
CASE WHEN value = 0 THEN '0'
     WHEN NOT isfinite(value) THEN NULL
     WHEN suffix(to_json(value)::VARCHAR, '.0') THEN left(to_json(value)::VARCHAR, -2)
     ELSE replace(replace(to_json(value)::VARCHAR, 'e', 'e+'), 'e+-', 'e-')
END
"""
"""JavaScript's digits are DuckDB's; but JavaScript has no `.0`, no negative zero, and a plus sign in exponents."""


class JsonKernels:
    """Functions from columns to columns; holds a private DuckDB instance, closed with the context."""

    def __init__(self) -> None:
        self._duckdb = duckdb.connect(config={"autoinstall_known_extensions": "false"})

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the DuckDB instance."""
        self._duckdb.close()

    def quoted(self, values: pa.StringArray) -> pa.StringArray:
        """Each string as a JSON string literal; null stays null."""
        return self._apply("to_json(value)::VARCHAR", values)

    def numbers(self, values: pa.DoubleArray) -> pa.StringArray:
        """Each number as JavaScript prints it; null, NaN and the infinities become null."""
        return self._apply(_NUMBER, values)

    def invalid(self, texts: pa.StringArray) -> npt.NDArray[np.bool_]:
        """Which of the texts are not JSON (RFC 8259); null is none of them."""
        bad = np.asarray(self._apply("NOT json_valid(value)", texts).fill_null(False).to_numpy(zero_copy_only=False))
        for position in _perhaps_lenient(texts):
            bad[position] |= _LENIENT.search(_STRING_LITERAL.sub('""', texts[position].as_py() or "")) is not None
        return bad

    def _apply(self, expression: str, values: pa.Array) -> pa.Array:
        table = pa.table({"value": values})
        result = self._duckdb.from_arrow(table).project(f"{expression} AS result").to_arrow_table()
        return result.column(0).combine_chunks()


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


def _perhaps_lenient(texts: pa.StringArray) -> list[int]:
    """Positions of the texts that may hold what only a lenient reader takes for JSON."""
    offsets, data = text_bytes(texts)
    data = data[offsets[0] : offsets[-1]]
    starts = offsets[:-1] - offsets[0]
    found = np.concatenate([_bare_words(data, starts), _closers_behind_commas(data)])
    return [int(row) for row in np.unique(np.searchsorted(starts, found, side="right") - 1)]


def _bare_words(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Where `nan` or `inf` in any case follows a separator or begins a text, within a string or not."""
    lower = data | 0x20
    first, second, third = lower[:-2], lower[1:-1], lower[2:]
    found = (first == ord("n")) & (second == ord("a")) & (third == ord("n"))
    found |= (first == ord("i")) & (second == ord("n")) & (third == ord("f"))
    at = np.flatnonzero(found)
    return at[np.isin(data[at - 1], _SEPARATORS) | np.isin(at, starts)]


def _closers_behind_commas(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Where `]` or `}` follows a comma; behind many blanks it is only taken to."""
    closers = np.flatnonzero((data == ord("]")) | (data == ord("}")))
    found = []
    for distance in range(1, _BLANKS_LOOKED_BACK + 1):
        before = data[np.maximum(closers - distance, 0)]
        found.append(closers[before == ord(",")])
        closers = closers[np.isin(before, _BLANKS)]
    return np.concatenate([*found, closers])
