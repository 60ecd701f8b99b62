"""Which rows of a flush go where, and which rows of a data file a condition is about."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from hypaware_pipeline.demo.parquet_files import read_data_file
from hypaware_pipeline.demo.table import LiveFile
from hypaware_pipeline.demo.table_schema import REQUIRED_PARTITION_COLUMNS, TableSchema
from hypaware_pipeline.model import ColumnType

Rows: TypeAlias = pa.Table | Sequence[Mapping[str, Any]]
"""Rows to append: mappings with values as `json.loads` yields them (timestamps as ISO text, milliseconds or datetimes), or an
Arrow table whose JSON columns are text. Columns may be dictionary-encoded."""


def flushable(rows: Rows, partition_columns: Sequence[str]) -> Rows:
    """Rows that have what their partition requires; HypAware drops the others."""
    required = [name for name in partition_columns if name in REQUIRED_PARTITION_COLUMNS]
    if not required:
        return rows
    if isinstance(rows, pa.Table):
        complete = [
            i for i, values in enumerate(zip(*(rows.column(name).to_pylist() for name in required), strict=True)) if all(values)
        ]
        return rows if len(complete) == rows.num_rows else rows.take(pa.array(complete, pa.int64()))
    return [row for row in rows if all(row.get(name) for name in required)]


def partitions(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """The rows of each combination of partition values, in the order in which they first appear."""
    if not names:
        if table.num_rows:
            yield {}, table
        return
    groups: dict[tuple[str | None, ...], list[int]] = {}
    for position, values in enumerate(zip(*(table.column(name).to_pylist() for name in names), strict=True)):
        groups.setdefault(values, []).append(position)
    for values, positions in groups.items():
        first, count = positions[0], len(positions)
        together = positions[-1] - first + 1 == count
        rows = table.slice(first, count) if together else table.take(pa.array(positions, pa.int64()))
        yield dict(zip(names, values, strict=True)), rows


def live_rows(file: LiveFile, schema: TableSchema) -> Iterator[pa.Table]:
    """The live rows of a data file, each batch last row first."""
    start = 0
    for rows in read_data_file(file.path, schema):
        kept = [position for position in range(rows.num_rows - 1, -1, -1) if start + position not in file.deleted]
        start += rows.num_rows
        if kept:
            yield rows.take(pa.array(kept, pa.int64()))


def matching(file: LiveFile, schema: TableSchema, where: pc.Expression) -> BitMap:
    """The positions of the live rows of a data file that match."""
    found = BitMap()
    start = 0
    plain = TableSchema(schema.schema_id, tuple(column for column in schema.columns if column.type is not ColumnType.JSON))
    for rows in read_data_file(file.path, plain):
        numbered = rows.append_column("_position", pa.array(range(start, start + rows.num_rows), pa.int64()))
        found.update(numbered.filter(where).column("_position").to_pylist())
        start += rows.num_rows
    return found - file.deleted


def split(rows: pa.Table, where: pc.Expression) -> tuple[pa.Table, pa.Table]:
    """The rows a condition matches, and the others, those of which it says nothing among them."""
    matched = pc.coalesce(where, pc.scalar(False))
    return rows.filter(matched), rows.filter(~matched)


def in_commits(matches: Iterable[tuple[LiveFile, BitMap]], at_most: int) -> Iterator[dict[str, BitMap]]:
    """Deleted positions by data file URL, cut into commits of at most so many."""
    commit: dict[str, BitMap] = {}
    room = at_most
    for file, positions in matches:
        rest = positions
        while rest:
            part = BitMap(rest[:room])
            commit[file.record["file_path"]] = part
            rest = rest - part
            room -= len(part)
            if not room:
                yield commit
                commit, room = {}, at_most
    if commit:
        yield commit
