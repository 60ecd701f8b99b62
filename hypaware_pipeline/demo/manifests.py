"""Manifests and manifest lists, field for field as HypAware's.

Why entries of added files carry no sequence number: they inherit it from the manifest list, so that a commit that lost a race
is tried again without writing its manifests again.
"""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

import fastavro

from hypaware_pipeline.demo.parquet_files import DataFile, lower_bound, upper_bound
from hypaware_pipeline.demo.puffin import VectorPlace
from hypaware_pipeline.demo.table_schema import TableSchema
from hypaware_pipeline.model import ColumnType

Record = dict[str, Any]
Content = Literal["data", "deletes"]

STATUS_EXISTING: Final = 0
STATUS_ADDED: Final = 1
STATUS_DELETED: Final = 2

CONTENT_DATA: Final = 0
CONTENT_DELETES: Final = 1

FIRST_PARTITION_FIELD_ID: Final = 1000


@dataclass(frozen=True, slots=True)
class TableHead:
    """What every manifest of a table repeats: the schema it was written under and the identity partition columns."""

    schema: TableSchema
    partition_columns: tuple[str, ...]

    def partition_fields(self) -> list[Record]:
        """The partition spec's fields as JSON."""
        return [
            {"source-id": self.schema.column(name).id, "field-id": field_id, "name": name, "transform": "identity"}
            for field_id, name in enumerate(self.partition_columns, start=FIRST_PARTITION_FIELD_ID)
        ]


def data_entry(snapshot_id: int, file: DataFile, url: str) -> Record:
    """The entry of an added data file."""
    described = {
        "content": CONTENT_DATA,
        "file_path": url,
        "file_format": "PARQUET",
        "partition": file.partition,
        "record_count": file.rows,
        "file_size_in_bytes": file.size,
        "value_counts": _pairs(dict.fromkeys(file.nulls, file.rows)),
        "null_value_counts": _pairs(file.nulls),
        "lower_bounds": _pairs(file.lower),
        "upper_bounds": _pairs(file.upper),
        "sort_order_id": 0,
    }
    return {"status": STATUS_ADDED, "snapshot_id": snapshot_id, "data_file": described}


def vector_entry(snapshot_id: int, url: str, place: VectorPlace, data_file: Record) -> Record:
    """The entry of an added deletion vector of a data file (its manifest record)."""
    described = {
        "content": CONTENT_DELETES,
        "file_path": url,
        "file_format": "PUFFIN",
        "partition": data_file["partition"],
        "record_count": place.cardinality,
        "file_size_in_bytes": place.file_bytes,
        "referenced_data_file": data_file["file_path"],
        "content_offset": place.offset,
        "content_size_in_bytes": place.length,
    }
    return {"status": STATUS_ADDED, "snapshot_id": snapshot_id, "data_file": described}


def write_manifest(
    path: Path, url: str, head: TableHead, content: Content, snapshot_id: int, entries: Sequence[Record]
) -> Record:
    """Write a manifest; returns its entry for a manifest list, without sequence numbers and first row id."""
    metadata = {
        "format-version": "3",
        "schema-id": str(head.schema.schema_id),
        "content": content,
        "schema": _compact(head.schema.to_json()),
        "partition-spec": _compact(head.partition_fields()),
        "partition-spec-id": "0",
    }
    length = _write_avro(path, _manifest_schema(content, head.partition_columns), entries, metadata)
    counts = {status: [entry for entry in entries if entry["status"] == status] for status in range(3)}
    return {
        "manifest_path": url,
        "manifest_length": length,
        "partition_spec_id": 0,
        "content": CONTENT_DATA if content == "data" else CONTENT_DELETES,
        "added_snapshot_id": snapshot_id,
        "added_files_count": len(counts[STATUS_ADDED]),
        "existing_files_count": len(counts[STATUS_EXISTING]),
        "deleted_files_count": len(counts[STATUS_DELETED]),
        "added_rows_count": _rows(counts[STATUS_ADDED]),
        "existing_rows_count": _rows(counts[STATUS_EXISTING]),
        "deleted_rows_count": _rows(counts[STATUS_DELETED]),
        "partitions": _partition_summaries(head.partition_columns, entries),
        "first_row_id": None,
    }


def write_manifest_list(path: Path, snapshot_id: int, sequence_number: int, entries: Sequence[Record]) -> None:
    """Write a manifest list."""
    metadata = {"format-version": "3", "snapshot-id": str(snapshot_id), "sequence-number": str(sequence_number)}
    _write_avro(path, _manifest_list_schema(), entries, metadata)


def read_records(path: Path) -> list[Record]:
    """All records of a manifest or manifest list."""
    with path.open("rb") as file:
        return [record for record in fastavro.reader(file) if isinstance(record, dict)]


def _write_avro(path: Path, schema: Any, records: Iterable[Record], metadata: Mapping[str, str]) -> int:
    buffer = io.BytesIO()
    fastavro.writer(buffer, schema, records, codec="null", metadata=dict(metadata), sync_interval=1 << 30)
    return path.write_bytes(buffer.getbuffer())


def _rows(entries: Iterable[Record]) -> int:
    return sum(entry["data_file"]["record_count"] for entry in entries)


def _pairs(values: Mapping[int, Any]) -> list[Record]:
    """A map with integer keys, as Avro knows none."""
    return [{"key": key, "value": values[key]} for key in sorted(values)]


def _partition_summaries(columns: Sequence[str], entries: Sequence[Record]) -> list[Record]:
    summaries = []
    for name in columns:
        values = [entry["data_file"]["partition"][name] for entry in entries]
        present = [value for value in values if value is not None]
        summaries.append(
            {
                "contains_null": len(present) < len(values),
                "lower_bound": lower_bound(min(present), ColumnType.STRING) if present else None,
                "upper_bound": upper_bound(max(present), ColumnType.STRING) if present else None,
            }
        )
    return summaries


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


# --- Avro schemas ---------------------------------------------------------------------------------------------------------------


def _field(name: str, field_id: int, avro_type: Any) -> Record:
    return {"name": name, "type": avro_type, "field-id": field_id}


def _optional(name: str, field_id: int, avro_type: Any) -> Record:
    return {"name": name, "type": ["null", avro_type], "default": None, "field-id": field_id}


def _map(name: str, field_id: int, key_id: int, value_type: str) -> Record:
    """An optional map from field id to `value_type`, spelled as an array of pairs."""
    pair = {
        "type": "record",
        "name": f"k{key_id}_v{key_id + 1}",
        "fields": [_field("key", key_id, "int"), _field("value", key_id + 1, value_type)],
    }
    return _optional(name, field_id, {"type": "array", "logicalType": "map", "items": pair})


@lru_cache
def _manifest_schema(content: Content, partition_columns: tuple[str, ...]) -> Any:
    partition = {
        "type": "record",
        "name": "r102",
        "fields": [
            _optional(name, field_id, "string") for field_id, name in enumerate(partition_columns, FIRST_PARTITION_FIELD_ID)
        ],
    }
    deletes = [
        _optional("equality_ids", 135, {"type": "array", "items": "int", "element-id": 136}),
        _optional("referenced_data_file", 143, "string"),
        _optional("content_offset", 144, "long"),
        _optional("content_size_in_bytes", 145, "long"),
    ]
    data_file = {
        "type": "record",
        "name": "r2",
        "fields": [
            _field("content", 134, "int"),
            _field("file_path", 100, "string"),
            _field("file_format", 101, "string"),
            _field("partition", 102, partition),
            _field("record_count", 103, "long"),
            _field("file_size_in_bytes", 104, "long"),
            _map("column_sizes", 108, 117, "long"),
            _map("value_counts", 109, 119, "long"),
            _map("null_value_counts", 110, 121, "long"),
            _map("nan_value_counts", 137, 138, "long"),
            _map("lower_bounds", 125, 126, "bytes"),
            _map("upper_bounds", 128, 129, "bytes"),
            _optional("split_offsets", 132, {"type": "array", "items": "long", "element-id": 133}),
            _optional("sort_order_id", 140, "int"),
            *(deletes if content == "deletes" else []),
            _optional("first_row_id", 142, "long"),
        ],
    }
    return fastavro.parse_schema(
        {
            "type": "record",
            "name": "manifest_entry",
            "fields": [
                _field("status", 0, "int"),
                _optional("snapshot_id", 1, "long"),
                _optional("sequence_number", 3, "long"),
                _optional("file_sequence_number", 4, "long"),
                _field("data_file", 2, data_file),
            ],
        }
    )


@lru_cache
def _manifest_list_schema() -> Any:
    summary = {
        "type": "record",
        "name": "r508",
        "fields": [
            _field("contains_null", 509, "boolean"),
            _optional("contains_nan", 518, "boolean"),
            _optional("lower_bound", 510, "bytes"),
            _optional("upper_bound", 511, "bytes"),
        ],
    }
    return fastavro.parse_schema(
        {
            "type": "record",
            "name": "manifest_file",
            "fields": [
                _field("manifest_path", 500, "string"),
                _field("manifest_length", 501, "long"),
                _field("partition_spec_id", 502, "int"),
                _field("content", 517, "int"),
                _field("sequence_number", 515, "long"),
                _field("min_sequence_number", 516, "long"),
                _field("added_snapshot_id", 503, "long"),
                _field("added_files_count", 504, "int"),
                _field("existing_files_count", 505, "int"),
                _field("deleted_files_count", 506, "int"),
                _field("added_rows_count", 512, "long"),
                _field("existing_rows_count", 513, "long"),
                _field("deleted_rows_count", 514, "long"),
                _optional("partitions", 507, {"type": "array", "element-id": 508, "items": summary}),
                _optional("first_row_id", 520, "long"),
            ],
        }
    )
