"""Rows as Parquet.

How does memory stay small? A row group is collected as it comes (dictionaries kept), decoded and written as one table,
column after column, and forgotten. One more is collected and decoded while it is written.

Why row groups are cut by decoded bytes, 32 MiB by default: decoded is what a row group takes here and in many readers, and
it depends on the rows alone, so that the same rows give the same bytes. Rows are not batched further: pages are cut at the
borders of what the writer is given, so it is given one piece.

Why columns are decoded before they are written: a dictionary that came with the rows depends on how they were batched, and
Arrow's writer refuses dictionaries of JSON. It builds its own, in order of appearance.

Why microseconds: HypAware's own timestamps are whole milliseconds, those of other writers need not be, and every engine
reads both.

Why the Arrow schema is not stored: it would only repeat what the Parquet types say, and change with Arrow's version.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq

from hypaware_pipeline.model import Column, ColumnType
from hypaware_pipeline.plugins.contracts import Encoded, EncoderSpec, Writable
from hypaware_pipeline.sinks.encoders.json_kernels import JsonKernels
from hypaware_pipeline.sinks.encoders.rows import RowGate, Rows, arrow_type, decoded, groups

DEFAULT_ROW_GROUP_BYTES = 32 * 1024 * 1024
_LARGEST_ROW_GROUP_BYTES = 1024 * 1024 * 1024  # Arrow's string arrays end at 2 GiB
_LARGEST_ROW_GROUP_ROWS = 1024 * 1024
_VALUES_BETWEEN_CHECKS = 64
"""The writer looks at the size of page and dictionary after so many values. Arrow's 1024 makes pages, and dictionaries that are
given up again, of 70 MB where values have 70 KB; with 64 narrow columns take no longer."""

_BUFFER_BYTES = 256 * 1024
"""What is handed on at a time: pages of narrow columns have some hundred bytes, and there are thousands."""

_LEVELS = {"zstd": (1, 3, 22), "snappy": None, "gzip": (1, 6, 9), "none": None}
"""Codecs, each with its lowest, default and highest level where it has levels."""


class ParquetEncoder:
    """An `Encoder` for `.parquet`.

    Args:
        codec: `zstd`, `snappy`, `gzip` or `none`.
        level: Compression level of zstd (1 to 22, default 3) or gzip (1 to 9, default 6).
        row_group_bytes: A row group is closed before the decoded size of its rows passes this; a larger row has one to itself.

    Raises:
        ValueError: an unknown codec, a level the codec does not have, or a row group size out of bounds.
    """

    def __init__(self, codec: str = "zstd", level: int | None = None, row_group_bytes: int = DEFAULT_ROW_GROUP_BYTES) -> None:
        if not 1 <= row_group_bytes <= _LARGEST_ROW_GROUP_BYTES:
            raise ValueError(f"row_group_bytes {row_group_bytes} is not between 1 and {_LARGEST_ROW_GROUP_BYTES}")
        self._codec = codec
        self._level = _level(codec, level)
        self._row_group_bytes = row_group_bytes

    @property
    def spec(self) -> EncoderSpec:
        """What this encoder is."""
        settings: dict[str, str | int] = {"codec": self._codec, "row_group_bytes": self._row_group_bytes}
        if self._level is not None:
            settings["level"] = self._level
        return EncoderSpec("parquet", "parquet", "application/vnd.apache.parquet", frozenset({"queryable"}), settings)

    def encode(self, batches: Iterable[pa.RecordBatch], columns: Sequence[Column], out: Writable) -> Encoded:
        """Write all rows as one Parquet file; see `Encoder.encode`."""
        schema = pa.schema([pa.field(column.name, _file_type(column)) for column in columns])
        with JsonKernels() as kernels:
            gate = RowGate(columns, kernels)
            row_groups = groups(gate.pass_on(batches), limit_bytes=self._row_group_bytes, limit_rows=_LARGEST_ROW_GROUP_ROWS)
            with (
                pa.PythonFile(_Stream(out), mode="w") as stream,
                pa.BufferedOutputStream(stream, _BUFFER_BYTES) as buffered,
                self._writer(buffered, schema) as writer,
            ):
                _write_behind(writer, schema, row_groups)
        return Encoded(gate.passed, gate.refused)

    def _writer(self, stream: pa.NativeFile, schema: pa.Schema) -> pq.ParquetWriter:
        return pq.ParquetWriter(
            stream,
            schema,
            compression=self._codec,
            compression_level=self._level,
            store_schema=False,
            write_page_index=True,
            write_batch_size=_VALUES_BETWEEN_CHECKS,
        )


def _level(codec: str, level: int | None) -> int | None:
    if codec not in _LEVELS:
        raise ValueError(f"unknown codec '{codec}': one of {', '.join(_LEVELS)}")
    bounds = _LEVELS[codec]
    if bounds is None:
        if level is not None:
            raise ValueError(f"codec '{codec}' has no levels; leave 'level' out")
        return None
    lowest, default, highest = bounds
    if level is None:
        return default
    if not lowest <= level <= highest:
        raise ValueError(f"level {level} of codec '{codec}' is not between {lowest} and {highest}")
    return level


def _file_type(column: Column) -> pa.DataType:
    return pa.json_() if column.type is ColumnType.JSON else arrow_type(column)


def _write_behind(writer: pq.ParquetWriter, schema: pa.Schema, row_groups: Iterator[list[Rows]]) -> None:
    """Write each row group while the next one is collected. A failure of either side ends both."""
    with ThreadPoolExecutor(1, thread_name_prefix="parquet-writer") as thread:
        writing: Future[None] | None = None
        for group in row_groups:
            table = _table(schema, group)
            if writing is not None:
                writing.result()
            writing = thread.submit(_write_table, writer, table)
        if writing is not None:
            writing.result()


def _table(schema: pa.Schema, group: list[Rows]) -> pa.Table:
    arrays = []
    for index, field in enumerate(schema):
        values = _joined([rows.arrays[index] for rows in group])
        arrays.append(pa.ExtensionArray.from_storage(field.type, values) if field.type == pa.json_() else values)
    return pa.Table.from_arrays(arrays, schema=schema)


def _write_table(writer: pq.ParquetWriter, table: pa.Table) -> None:
    writer.write_table(table, row_group_size=table.num_rows)


def _joined(pieces: list[pa.Array]) -> pa.Array:
    """One array of all pieces, without dictionary. Where dictionaries can be united they are, so that text is copied once."""
    if len({piece.type for piece in pieces}) == 1 and all(_can_be_united(piece) for piece in pieces):
        return decoded(pa.concat_arrays(pieces))
    return pa.concat_arrays([decoded(piece) for piece in pieces])


def _can_be_united(piece: pa.Array) -> bool:
    return not pa.types.is_dictionary(piece.type) or piece.dictionary.null_count == 0


class _Stream:
    """What Arrow expects of a file, over the one method a `Writable` has. Closing is the owner's business."""

    closed = False

    def __init__(self, out: Writable) -> None:
        self._out = out

    def write(self, data: bytes | pa.Buffer) -> int:
        return self._out.write(data if isinstance(data, bytes) else data.to_pybytes())

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """The stream below stays open."""
