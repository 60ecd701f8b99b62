"""Data files as HypAware writes them, and the statistics its manifests carry of them.

Why a footer is patched: VARIANT is an annotation on a group, and Arrow can read it but not write it. The footer lies at the end
of the file, so a few bytes more in it move nothing else.

Why there are no statistics in the files: HypAware's footers carry no usable minima. A reader must get its bounds from the
manifests.
"""

import json
import struct
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hypaware_pipeline.demo.table_schema import TableColumn, TableSchema, nulls
from hypaware_pipeline.demo.variant_encoding import VARIANT_NULL, VARIANT_STORAGE, count_absent, encode_metadata
from hypaware_pipeline.model import ColumnType

# HypAware truncates bounds to so many characters.
_BOUND_CHARACTERS = 16
_ROW_GROUP_ROWS = 50_000
_READ_ROWS = 8_192
# `logicalType` (field 10) = union member VARIANT (field 16), an empty struct, in Thrift's compact form.
_VARIANT_ANNOTATION = bytes.fromhex("1c0c200000")
_PACK = {
    ColumnType.INT32: struct.Struct("<i"),
    ColumnType.INT64: struct.Struct("<q"),
    ColumnType.DOUBLE: struct.Struct("<d"),
    ColumnType.BOOLEAN: struct.Struct("<?"),
    ColumnType.TIMESTAMP: struct.Struct("<q"),
}

Bound = Any
"""A minimum or maximum as Python compares it: text, number, or microseconds since the epoch."""


@dataclass(slots=True)
class DataFile:
    """One data file as a manifest describes it. Bounds and counts are by field id; `size` is in bytes."""

    path: Path
    partition: dict[str, str | None]
    rows: int = 0
    size: int = 0
    nulls: dict[int, int] = field(default_factory=dict)
    lower: dict[int, bytes] = field(default_factory=dict)
    upper: dict[int, bytes] = field(default_factory=dict)


class DataFileWriter:
    """Writes one data file, table by table, so that a file larger than memory can be written."""

    def __init__(self, directory: Path, schema: TableSchema, partition: dict[str, str | None], *, name: uuid.UUID) -> None:
        self._schema = schema
        self._file = DataFile(directory / f"{name}.parquet", partition, nulls={column.id: 0 for column in schema.columns})
        self._bounds: dict[int, tuple[Bound, Bound]] = {}
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Add rows; `table` has the columns of the schema, strings plain or dictionary-encoded."""
        if self._writer is None:
            # HypAware counts nulls in the footer and gives no bounds; Arrow gives both or neither, but none for no values.
            unused = [
                name for name, column in zip(table.column_names, table.columns, strict=True) if column.null_count == len(column)
            ]
            self._writer = pq.ParquetWriter(
                self._file.path, table.schema, compression="snappy", write_statistics=unused or False, store_schema=False
            )
            self._writer.add_key_value_metadata({"iceberg.schema": _compact(self._schema.to_json())})
        self._writer.write_table(_without_unused_entries(table), row_group_size=_ROW_GROUP_ROWS)
        self._file.rows += table.num_rows
        for column in self._schema.columns:
            self._observe(column, table.column(column.name))

    def close(self) -> DataFile:
        """Finish the file; returns what its manifest says of it."""
        if self._writer is None:
            raise ValueError(f"{self._file.path}: no rows were given")
        self._writer.close()
        annotate_variants(self._file.path, self._schema)
        self._file.size = self._file.path.stat().st_size
        for column in self._schema.columns:
            if column.id in self._bounds:
                low, high = self._bounds[column.id]
                self._file.lower[column.id] = lower_bound(low, column.type)
                upper = upper_bound(high, column.type)
                if upper is not None:
                    self._file.upper[column.id] = upper
        return self._file

    def _observe(self, column: TableColumn, array: pa.ChunkedArray) -> None:
        if column.type is ColumnType.JSON:
            self._file.nulls[column.id] += sum(count_absent(chunk) for chunk in array.chunks)
            return
        self._file.nulls[column.id] += array.null_count
        if array.null_count == len(array):
            return
        bounds = _min_max(array)
        known = self._bounds.get(column.id)
        self._bounds[column.id] = bounds if known is None else (min(known[0], bounds[0]), max(known[1], bounds[1]))


def _without_unused_entries(table: pa.Table) -> pa.Table:
    """The same rows without what only other rows use: Arrow writes a dictionary whole, and a slice has its parent's."""
    columns = [pa.chunked_array([_trimmed(chunk) for chunk in column.chunks], column.type) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _trimmed(array: pa.Array) -> pa.Array:
    if pa.types.is_struct(array.type):
        children = [_trimmed(array.field(at)) for at in range(array.type.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(array.type), mask=array.is_null())
    if not pa.types.is_dictionary(array.type):
        return array
    used = array.indices.unique().drop_null()
    if len(used) == len(array.dictionary):
        return array
    return pa.DictionaryArray.from_arrays(pc.index_in(array.indices, value_set=used), array.dictionary.take(used))


def shred(path: Path, schema: TableSchema) -> None:
    """Replace a data file by one with shredded VARIANT columns, which HypAware never writes and a reader must take."""
    _through_duckdb(path, path, ", ".join(f"{_quoted(column.name)}: {column.id}" for column in schema.columns), "")


def read_data_file(path: Path, schema: TableSchema) -> Iterator[pa.Table]:
    """The rows of a data file in the columns of `schema`, those the file lacks null, a few thousand at a time.

    Shredded VARIANT columns are put together again.
    """
    if any(_is_shredded(element) for element in pq.read_schema(path)):
        variants = [column.name for column in schema.columns if column.type is ColumnType.JSON]
        with tempfile.TemporaryDirectory() as directory:
            plain = Path(directory) / "plain.parquet"
            shredding = ", ".join(f"{_quoted(name)}: 'VARIANT'" for name in variants)
            _through_duckdb(path, plain, "", f", SHREDDING {{{shredding}}}")
            yield from _batches(plain, schema)
    else:
        yield from _batches(path, schema)


def _batches(path: Path, schema: TableSchema) -> Iterator[pa.Table]:
    with pq.ParquetFile(path) as file:
        wanted = [name for name in file.schema_arrow.names if name in schema.names]
        for batch in file.iter_batches(_READ_ROWS, columns=wanted):
            yield _conform(pa.Table.from_batches([batch]), schema)


def _through_duckdb(source: Path, target: Path, field_ids: str, options: str) -> None:
    temporary = target.with_name(f".{target.name}.shredding")
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (FROM read_parquet($source, hive_partitioning = false)) TO $target"
            f" (FORMAT parquet{f', FIELD_IDS {{{field_ids}}}' if field_ids else ''}{options})",
            {"source": str(source), "target": str(temporary)},
        )
    temporary.replace(target)


def _is_shredded(element: pa.Field) -> bool:
    return bool(pa.types.is_struct(element.type)) and element.type.get_field_index("typed_value") >= 0


def _conform(table: pa.Table, schema: TableSchema) -> pa.Table:
    arrays = []
    for column in schema.columns:
        target = column.arrow.type
        if column.name not in table.schema.names:
            arrays.append(nulls(column, table.num_rows))
        elif column.type is ColumnType.JSON:
            arrays.append(pa.chunked_array([_variant_storage(chunk) for chunk in table.column(column.name).chunks], target))
        else:
            arrays.append(table.column(column.name).cast(target))
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


def _variant_storage(chunk: pa.StructArray) -> pa.StructArray:
    # DuckDB writes a null group where HypAware writes a VARIANT null.
    dictionaries = pc.fill_null(chunk.field("metadata"), encode_metadata([]))
    values = pc.if_else(chunk.is_valid(), chunk.field("value"), VARIANT_NULL)
    return pa.StructArray.from_arrays([dictionaries, values], fields=list(VARIANT_STORAGE))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def annotate_variants(path: Path, schema: TableSchema) -> None:
    """Say in the footer of a closed file that its JSON columns are VARIANT."""
    variants = [column for column in schema.columns if column.type is ColumnType.JSON]
    if not variants:
        return
    with path.open("r+b") as file:
        file.seek(-8, 2)
        length = int.from_bytes(file.read(4), "little")
        start = file.seek(-8 - length, 2)
        footer = file.read(length)
        for column in variants:
            element = _group_element(column)
            if footer.count(element + b"\x00") != 1:
                raise ValueError(
                    f"{path}: the footer does not show column '{column.name}' as expected; Arrow writes it otherwise now"
                )
            footer = footer.replace(element + b"\x00", element + _VARIANT_ANNOTATION + b"\x00")
        file.seek(start)
        file.write(footer + struct.pack("<I", len(footer)) + b"PAR1")


def _group_element(column: TableColumn) -> bytes:
    """The Thrift bytes of a group's schema element, less the stop byte: repetition, name, two children, field id."""
    name = column.name.encode()
    repetition = 0 if column.required else 2
    return bytes([0x35, repetition, 0x18]) + _varint(len(name)) + name + b"\x15\x04\x45" + _varint(column.id * 2)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _min_max(array: pa.ChunkedArray) -> tuple[Bound, Bound]:
    if pa.types.is_dictionary(array.type):
        array = pa.chunked_array(list(_used_values(array)))
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    bounds = pc.min_max(array).as_py()
    return bounds["min"], bounds["max"]


def _used_values(array: pa.ChunkedArray) -> Iterator[pa.Array]:
    for chunk in array.chunks:
        yield chunk.dictionary.take(chunk.indices.unique().drop_null())


def lower_bound(value: Bound, column_type: ColumnType) -> bytes:
    """A lower bound in Iceberg's binary form; text is truncated."""
    if column_type is ColumnType.STRING:
        return str(value)[:_BOUND_CHARACTERS].encode()
    return _PACK[column_type].pack(value)


def upper_bound(value: Bound, column_type: ColumnType) -> bytes | None:
    """An upper bound in Iceberg's binary form; truncated text ends in the next character, None when there is none."""
    if column_type is not ColumnType.STRING:
        return _PACK[column_type].pack(value)
    text = str(value)
    if len(text) <= _BOUND_CHARACTERS:
        return text.encode()
    for end in range(_BOUND_CHARACTERS, 0, -1):
        following = ord(text[end - 1]) + 1
        if following < 0x110000 and not 0xD800 <= following < 0xE000:
            return (text[: end - 1] + chr(following)).encode()
    return None


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
