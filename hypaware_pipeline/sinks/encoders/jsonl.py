"""Rows as compressed lines of JSON, one object per line, all columns in order, nulls kept.

How are values written? As HypAware's own JSONL has them, so that one reader reads both: JSON columns as JSON, INT64 as
decimal text, other numbers as JavaScript prints them (`1`, `1e+21`; NaN and the infinities have no JSON and become null),
timestamps as `2026-06-02T00:00:00.000Z`; digits below the millisecond are cut off, towards the past, because HypAware's
reader has none.

How is it fast without an object per row? Every column becomes a column of JSON texts (of a dictionary-encoded one each
distinct value once), and Arrow joins them to lines.

What of a line break inside a JSON text? It would end the line. Valid JSON has raw line breaks only between its tokens,
where a space means the same.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from hypaware_pipeline.model import Column, ColumnType
from hypaware_pipeline.plugins.contracts import Encoded, EncoderSpec, Writable
from hypaware_pipeline.sinks.encoders.compression import BlockCompressor, CompressedStream, GzipBlocks, ZstdBlocks
from hypaware_pipeline.sinks.encoders.json_kernels import JsonKernels, holds_byte, text_bytes
from hypaware_pipeline.sinks.encoders.rows import RowGate, Rows, decoded, distinct_values, groups, map_distinct

_PIECE_BYTES = 8 * 1024 * 1024  # lines joined at a time
_PIECE_ROWS = 64 * 1024

_COMPRESSIONS: Mapping[str, tuple[str, tuple[int, int, int], Callable[[Writable, int], BlockCompressor]]] = {
    "gzip": ("jsonl.gz", (1, 6, 9), GzipBlocks),
    "zstd": ("jsonl.zst", (1, 3, 22), ZstdBlocks),
}
"""Extension; lowest, default and highest level; how to make one."""


class JsonlEncoder:
    """An `Encoder` for `.jsonl.gz` and `.jsonl.zst`.

    Args:
        compression: `gzip` or `zstd`.
        level: Of gzip 1 to 9 (default 6), of zstd 1 to 22 (default 3).

    Raises:
        ValueError: an unknown compression or a level it does not have.
    """

    def __init__(self, compression: str = "gzip", level: int | None = None) -> None:
        if compression not in _COMPRESSIONS:
            raise ValueError(f"unknown compression '{compression}': one of {', '.join(_COMPRESSIONS)}")
        self._extension, (lowest, default, highest), self._compressor = _COMPRESSIONS[compression]
        self._compression = compression
        self._level = default if level is None else level
        if not lowest <= self._level <= highest:
            raise ValueError(f"level {level} of compression '{compression}' is not between {lowest} and {highest}")

    @property
    def spec(self) -> EncoderSpec:
        """What this encoder is."""
        settings: dict[str, str | int] = {"compression": self._compression, "level": self._level}
        return EncoderSpec("jsonl", self._extension, "application/jsonl", frozenset(), settings)

    def encode(self, batches: Iterable[pa.RecordBatch], columns: Sequence[Column], out: Writable) -> Encoded:
        """Write all rows as lines of JSON; see `Encoder.encode`."""
        with JsonKernels() as kernels, CompressedStream(self._compressor(out, self._level)) as stream:
            gate = RowGate(columns, kernels)
            names = [json.dumps(column.name, ensure_ascii=False) for column in columns]
            texts = (_json_texts(rows, columns, kernels) for rows in gate.pass_on(batches))
            for group in groups(texts, limit_bytes=_PIECE_BYTES, limit_rows=_PIECE_ROWS):
                for piece in group:
                    stream.write(_lines(piece, names))
        return Encoded(gate.passed, gate.refused)


def _json_texts(rows: Rows, columns: Sequence[Column], kernels: JsonKernels) -> Rows:
    """The same rows, every value as its JSON text."""
    values = [distinct_values(array) for array in rows.arrays]
    texts = [_simple_texts(array, column.type) for array, column in zip(values, columns, strict=True)]
    for column_type, function in ((ColumnType.STRING, kernels.quoted), (ColumnType.DOUBLE, kernels.numbers)):
        places = [place for place, column in enumerate(columns) if column.type is column_type]
        for place, result in zip(places, function([values[place] for place in places]), strict=True):
            texts[place] = result
    return Rows.of([map_distinct(array, text) for array, text in zip(rows.arrays, texts, strict=True)])


def _simple_texts(values: pa.Array, column_type: ColumnType) -> pa.StringArray:
    """The JSON texts of a column that Arrow can write; others as they are."""
    match column_type:
        case ColumnType.JSON:
            return _on_one_line(values)
        case ColumnType.INT64:
            return _in_quotes(values.cast(pa.string()))
        case ColumnType.TIMESTAMP:
            return _in_quotes(_iso_texts(values))
        case ColumnType.INT32 | ColumnType.BOOLEAN:
            return values.cast(pa.string())
        case _:
            return values


def _lines(rows: Rows, names: Sequence[str]) -> memoryview:
    """The rows as lines; `names` are the columns' names as JSON."""
    parts: list[pa.Array | str] = []
    for index, (array, name) in enumerate(zip(rows.arrays, names, strict=True)):
        parts += [f"{',' if index else '{'}{name}:", decoded(array).fill_null("null")]
    lines = pc.binary_join_element_wise(*parts, "}\n", "")
    offsets, data = text_bytes(lines)
    return data[offsets[0] : offsets[-1]].data


def _in_quotes(values: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise('"', values, '"', "")


def _on_one_line(values: pa.StringArray) -> pa.StringArray:
    for line_break in "\n\r":
        if holds_byte(values, ord(line_break)):
            values = pc.replace_substring(values, line_break, " ")
    return values


def _iso_texts(values: pa.TimestampArray) -> pa.StringArray:
    """`2026-06-02T00:00:00.000Z`."""
    milliseconds = pc.floor_temporal(values, unit="millisecond").cast(pa.timestamp("ms", "UTC"))
    # Arrow writes a space where ISO-8601 has a T, always behind the ten characters of the date.
    return pc.utf8_replace_slice(milliseconds.cast(pa.string()), 10, 11, "T")
