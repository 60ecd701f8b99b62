"""Columns of a cache table: HypAware's types as Iceberg, Arrow and Parquet spell them.

Why required columns are listed here: a destination takes every column as nullable, so the rest of the project does not know
which ones HypAware declares as required. Its Parquet files and its metadata say so, and a reader has to cope with both.
"""

import datetime as dt
import decimal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from hypaware_pipeline.datasets import KNOWN_DATASETS
from hypaware_pipeline.demo.variant_encoding import (
    VARIANT_STORAGE,
    absent_variants,
    variant_from_text,
    variant_from_values,
    without_duplicates,
)
from hypaware_pipeline.model import SEQ_COLUMN, Column, ColumnType, DatasetName

PARTITION_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "ai_gateway_messages": ("session_id", "conversation_id", "cwd", "date"),
}
"""Identity partitions; every other dataset is unpartitioned. Also the datasets whose tables take new columns later."""

REQUIRED_PARTITION_COLUMNS: Final = frozenset({"session_id", "date"})
"""HypAware drops a row at the flush that lacks one of these."""

_REQUIRED: Final[dict[str, str]] = {
    "ai_gateway_messages": "gateway_id schema_version session_id provider conversation_started_at message_id message_index"
    " message_created_at role part_id part_index part_type date",
    "logs": "serviceName",
    "traces": "serviceName",
    "metrics": "serviceName",
    "claude_telemetry_events": "event_name",
    "gascity_messages": "city provider_session_id event_time event_kind",
    "node": "node_id node_type natural_key source_dataset projector projector_version",
    "edge": "edge_id edge_type src_id dst_id src_type dst_type source_dataset projector projector_version",
    "enrichment_prospects": "prospect_id prospect_type label anchor_type anchor_key source_dataset extractor extractor_version",
    "enrichment_resolutions": "prospect_id decision curator curator_version",
    "enrichment_committed": "item_id item_type label anchor_type anchor_key source_dataset curator curator_version",
}

_ICEBERG: Final = {
    ColumnType.STRING: "string",
    ColumnType.INT32: "int",
    ColumnType.INT64: "long",
    ColumnType.DOUBLE: "double",
    ColumnType.BOOLEAN: "boolean",
    ColumnType.TIMESTAMP: "timestamptz",
    ColumnType.JSON: "variant",
}
_FROM_ICEBERG: Final = {iceberg: column_type for column_type, iceberg in _ICEBERG.items()}
_ARROW: Final[dict[ColumnType, pa.DataType]] = {
    ColumnType.STRING: pa.string(),
    ColumnType.INT32: pa.int32(),
    ColumnType.INT64: pa.int64(),
    ColumnType.DOUBLE: pa.float64(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    ColumnType.JSON: VARIANT_STORAGE,
}
_INFERRED: Final[tuple[tuple[Callable[[pa.DataType], bool], ColumnType], ...]] = (
    (pa.types.is_boolean, ColumnType.BOOLEAN),
    (pa.types.is_int64, ColumnType.INT64),
    (pa.types.is_integer, ColumnType.INT32),
    (pa.types.is_floating, ColumnType.DOUBLE),
    (pa.types.is_timestamp, ColumnType.TIMESTAMP),
)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as a table has it; `id` is its Iceberg field id."""

    id: int
    name: str
    type: ColumnType
    required: bool

    @property
    def arrow(self) -> pa.Field:
        """The column as a field that writes the field id where HypAware has it: on the column, not inside a VARIANT."""
        return pa.field(self.name, _ARROW[self.type], nullable=not self.required, metadata={"PARQUET:field_id": str(self.id)})


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of a table in order, one state of their evolution."""

    schema_id: int
    columns: tuple[TableColumn, ...]

    def to_json(self) -> dict[str, Any]:
        """As table metadata and manifests hold it."""
        fields = [
            {"id": column.id, "name": column.name, "required": column.required, "type": _ICEBERG[column.type]}
            for column in self.columns
        ]
        return {"type": "struct", "schema-id": self.schema_id, "fields": fields}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "TableSchema":
        """Read what `to_json` wrote."""
        return cls(
            value["schema-id"],
            tuple(TableColumn(f["id"], f["name"], _FROM_ICEBERG[f["type"]], f["required"]) for f in value["fields"]),
        )

    def column(self, name: str) -> TableColumn:
        """The column of a name. Raises KeyError when there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"the table has no column '{name}'")

    @property
    def names(self) -> frozenset[str]:
        """The names of all columns."""
        return frozenset(column.name for column in self.columns)

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of a data file."""
        return pa.schema([column.arrow for column in self.columns])

    def evolved(self, columns: Sequence[Column], *, last_column_id: int) -> "TableSchema":
        """With those of `columns` it lacks, nullable, in the declared order; the sequence stays the last column."""
        known = {column.name: column for column in self.columns}
        declared = [column.name for column in columns]
        next_id = last_column_id
        united = []
        for column in columns:
            if column.name not in known:
                next_id += 1
                united.append(TableColumn(next_id, column.name, column.type, required=False))
            else:
                united.append(known[column.name])
        rest = [column for column in self.columns if column.name not in declared]
        return TableSchema(self.schema_id + 1, (*united, *rest))


def declared_columns(dataset: str) -> tuple[Column, ...] | None:
    """The columns HypAware declares for a dataset; None for an open one."""
    known = KNOWN_DATASETS.get(DatasetName(dataset))
    return known.columns if known else None


def new_schema(dataset: str, columns: Sequence[Column], *, with_sequence: bool) -> TableSchema:
    """The schema of a new table: ids from 1 in order, `_hyp_ingest_seq` last."""
    required = frozenset(_REQUIRED.get(dataset, "").split())
    fields = [TableColumn(n, column.name, column.type, column.name in required) for n, column in enumerate(columns, start=1)]
    if with_sequence:
        fields.append(TableColumn(len(fields) + 1, SEQ_COLUMN, ColumnType.INT64, required=False))
    return TableSchema(0, tuple(fields))


def infer_columns(rows: "pa.Table | Sequence[Mapping[str, Any]]") -> tuple[Column, ...]:
    """The columns of rows of an open dataset.

    In an Arrow table JSON columns are those whose field metadata says `json`; in mappings those that hold a list or an object.
    """
    if isinstance(rows, pa.Table):
        return tuple(Column(field.name, _type_of_field(field)) for field in rows.schema)
    types: dict[str, ColumnType] = {}
    for row in rows:
        for name, value in row.items():
            if value is not None and types.get(name) is not ColumnType.JSON:
                types[name] = _type_of_value(value)
    return tuple(Column(name, column_type) for name, column_type in types.items())


def to_physical(rows: "pa.Table | Sequence[Mapping[str, Any]]", schema: TableSchema) -> pa.Table:
    """Rows as a data file of this table holds them, less the sequence: columns the table lacks are dropped, JSON is VARIANT.

    Raises:
        ValueError: a required column is null somewhere.
    """
    columns = [column for column in schema.columns if column.name != SEQ_COLUMN]
    arrays = [_from_table(rows, column) if isinstance(rows, pa.Table) else _from_rows(rows, column) for column in columns]
    for column, array in zip(columns, arrays, strict=True):
        if column.required and array.null_count:
            raise ValueError(f"column '{column.name}' is required and null in {array.null_count} of {len(array)} rows")
    return pa.Table.from_arrays(
        arrays, schema=pa.schema([_plain_or_dictionary(c, a) for c, a in zip(columns, arrays, strict=True)])
    )


def _plain_or_dictionary(column: TableColumn, array: pa.Array | pa.ChunkedArray) -> pa.Field:
    return column.arrow.with_type(array.type)


def nulls(column: TableColumn, count: int) -> pa.Array:
    """Rows that have nothing in a column."""
    return absent_variants(count) if column.type is ColumnType.JSON else pa.nulls(count, _ARROW[column.type])


def _from_rows(rows: Iterable[Mapping[str, Any]], column: TableColumn) -> pa.Array:
    values = [row.get(column.name) for row in rows]
    if column.type is ColumnType.JSON:
        return variant_from_values(values)
    if column.type is ColumnType.TIMESTAMP:
        values = [_instant(value) for value in values]
    return pa.array(values, _ARROW[column.type])


def _from_table(rows: pa.Table, column: TableColumn) -> pa.Array | pa.ChunkedArray:
    if column.name not in rows.schema.names:
        return nulls(column, rows.num_rows)
    array = rows.column(column.name)
    if column.type is ColumnType.JSON:
        return variant_from_text(array)
    if pa.types.is_dictionary(array.type):
        return pa.chunked_array([without_duplicates(chunk) for chunk in array.chunks])
    return array.cast(_ARROW[column.type])


def _instant(value: Any) -> dt.datetime | None:
    """A timestamp cell: ISO text as a spool has it, milliseconds since the epoch, or a datetime."""
    if isinstance(value, str):
        return dt.datetime.fromisoformat(value)
    if isinstance(value, int):
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=value)
    if value is None or isinstance(value, dt.datetime):
        return value
    raise TypeError(f"a TIMESTAMP column cannot hold {value!r}")


def _type_of_field(field: pa.Field) -> ColumnType:
    if (field.metadata or {}).get(b"type") == b"json":
        return ColumnType.JSON
    return next((column_type for matches, column_type in _INFERRED if matches(field.type)), ColumnType.STRING)


def _type_of_value(value: Any) -> ColumnType:
    if isinstance(value, bool):
        return ColumnType.BOOLEAN
    if isinstance(value, int):
        return ColumnType.INT64
    if isinstance(value, float | decimal.Decimal):
        return ColumnType.DOUBLE
    if isinstance(value, dt.datetime):
        return ColumnType.TIMESTAMP
    return ColumnType.STRING if isinstance(value, str) else ColumnType.JSON
