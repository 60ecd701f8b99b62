"""A writer of caches in HypAware's on-disk format: the demo, tests and benchmarks fill caches with it.

Why it imitates a process and not a file format: what makes a cache hard to export is how it changes. One `CacheWriter` is one
process with its own block of sequence numbers; two of them on one cache commit lower numbers after higher ones, as HypAware's
daemon and its CLI do. Compaction swaps generations, purge and retention delete in several commits, a spool holds rows no reader
sees.

Why it also continues caches that HypAware itself wrote: everything it needs is read from the table's metadata, so a test can
flush into, compact or purge a copy of a real cache.
"""

import datetime as dt
import random
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from hypaware_pipeline.datasets import resolve_dataset
from hypaware_pipeline.demo import cursor as cursors
from hypaware_pipeline.demo import spool as spools
from hypaware_pipeline.demo.cursor import Clock, Cursor, SequenceAllocator, epoch_millis, iso_millis, locked, utc_now
from hypaware_pipeline.demo.manifests import TableHead
from hypaware_pipeline.demo.parquet_files import DataFile, DataFileWriter, read_data_file, shred
from hypaware_pipeline.demo.table import LiveFile, Table
from hypaware_pipeline.demo.table_schema import (
    PARTITION_COLUMNS,
    REQUIRED_PARTITION_COLUMNS,
    TableSchema,
    declared_columns,
    infer_columns,
    new_schema,
    to_physical,
)
from hypaware_pipeline.model import SEQ_COLUMN, Column, ColumnType, DatasetName

Rows: TypeAlias = pa.Table | Sequence[Mapping[str, Any]]
"""Rows to append: mappings with values as `json.loads` yields them (timestamps as ISO text, milliseconds or datetimes), or an
Arrow table whose JSON columns are text. Columns may be dictionary-encoded."""
Step: TypeAlias = Callable[[], None]

POSITIONS_PER_COMMIT: Final = 5000
_WRITER_GENERATION: Final = 2


class CacheWriter:
    """One HypAware process writing to the cache at `root` (the directory that holds `datasets/`).

    Several may write to one cache, also from several processes: no commit is lost.

    Args:
        root: Created when it is not there.
        clock: The time of commits, in UTC.
        rng: Randomness of file names and ids; give a seeded one for a cache that is the same each time.
        shredded: Write VARIANT columns shredded, which HypAware does not do but a reader takes.
    """

    def __init__(self, root: Path, *, clock: Clock = utc_now, rng: random.Random | None = None, shredded: bool = False) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._root = root.resolve()
        self._clock = clock
        self._rng = rng or random.SystemRandom()
        self._shredded = shredded
        self._sequence = SequenceAllocator(self._root, clock)
        self._tables: dict[Path, Table] = {}

    # --- adding -------------------------------------------------------------------------------------------------------------

    def append(
        self,
        dataset: str,
        source: str,
        rows: Rows,
        *,
        columns: Sequence[Column] | None = None,
        with_sequence: bool = True,
        max_rows_per_file: int | None = None,
    ) -> int:
        """One flush: one commit, with one file per partition. Returns the rows written; those without a partition are dropped.

        Args:
            dataset: Its name, known or not.
            source: The source as HypAware gets it; its directory's name is sanitised.
            rows: At least one.
            columns: The columns of the flush, where they are not those HypAware declares: fewer, to make an older table; more,
                to make a younger one. A partitioned table takes new ones; any other silently drops them.
            with_sequence: False makes a new table as before the sequence column existed: it never gets one.
            max_rows_per_file: As if so many rows had been flushed at a time, but in one commit: many small files, quickly.
        """
        wanted = tuple(columns or declared_columns(dataset) or infer_columns(rows))
        directory = self._source_directory(dataset, source)
        if not directory.exists():
            self._create_source(directory, dataset, wanted, with_sequence=with_sequence)
        with locked(directory, exclusive=False):
            table = self._live_table(directory)
            if dataset in PARTITION_COLUMNS:
                table.evolve(wanted)
            files = list(self._write_rows(table, rows, max_rows_per_file))
            if files:
                table.append(files)
        written = sum(file.rows for file in files)
        with locked(directory, exclusive=True):
            cursor = cursors.read_cursor(directory)
            cursors.write_json(directory / "cursor.json", {**cursor, "rowCount": cursor["rowCount"] + written})
        spools.record_flush(self._root, dataset, self._clock(), rows=written, size=sum(file.size for file in files))
        return written

    def spool(self, dataset: str, rows: Sequence[Mapping[str, Any]], *, columns: Sequence[Column] | None = None) -> None:
        """Leave rows in the spool, where HypAware collects them until the next flush and no reader of tables sees them."""
        declared = tuple(columns or declared_columns(dataset) or infer_columns(rows))
        spools.append(self._root, dataset, new_schema(dataset, declared, with_sequence=False), rows)

    # --- deleting -----------------------------------------------------------------------------------------------------------

    def delete(self, dataset: str, source: str, where: pc.Expression, *, on_commit: Step | None = None) -> int:
        """Delete the live rows an expression over their plain columns matches; returns how many.

        In as many commits as HypAware makes, each of at most 5000 rows; `on_commit` is called after each.
        """
        directory = self._source_directory(dataset, source)
        deleted, finished = 0, False
        while not finished:
            finished = True
            table = self._live_table(directory)
            for positions in _in_commits((file, _matching(file, table.schema, where)) for file in table.live_files()):
                with locked(directory, exclusive=False):
                    if self._live_table(directory) is not table:
                        # Compacted meanwhile: the positions are those of a retired generation.
                        finished = False
                        break
                    table.delete(positions)
                deleted += sum(map(len, positions.values()))
                if on_commit:
                    on_commit()
        self._count_again(directory)
        return deleted

    def purge(self, session_id: str, *, dataset: str = "ai_gateway_messages", on_commit: Step | None = None) -> int:
        """What `hyp purge --session` does: delete a session wherever it is; returns how many rows went."""
        sources = self._sources(dataset)
        return sum(self.delete(dataset, name, pc.field("session_id") == session_id, on_commit=on_commit) for name in sources)

    def retention(self, cutoff: dt.datetime, *, datasets: Iterable[str] | None = None, on_commit: Step | None = None) -> int:
        """Delete rows older than the cut-off, then say so in the cursors; returns how many went. Undated rows stay."""
        names = datasets if datasets is not None else self._datasets()
        return sum(self._retain(dataset, source, cutoff, on_commit) for dataset in names for source in self._sources(dataset))

    # --- maintenance --------------------------------------------------------------------------------------------------------

    def compact(self, dataset: str, source: str, *, before_swap: Step | None = None, swap: bool = True) -> None:
        """Write the live rows into a new generation, swap the cursor to it and retire the old one.

        Sequence numbers stay, the order of rows does not. With `swap=False` it stops before the swap, as a killed HypAware would.
        The source is locked throughout: `before_swap` may read it, not write to it.
        """
        directory = self._source_directory(dataset, source)
        with locked(directory, exclusive=True):
            cursor = cursors.read_cursor(directory)
            old = self._live_table(directory)
            live = old.live_files()
            name = self._generation_name(directory)
            new = self._create_table(directory / name, old.head)
            groups: dict[tuple[str | None, ...], list[LiveFile]] = {}
            for file in reversed(live):
                if file.rows:
                    groups.setdefault(tuple(file.record["partition"].values()), []).append(file)
            files = [self._rewrite(new, group) for group in groups.values()]
            if files:
                new.append(files)
            if before_swap:
                before_swap()
            if swap:
                self._swap(directory, cursor, name, files_before=len(live), files=files)

    def expire_snapshots(self, dataset: str, source: str, *, keep: int = 10) -> None:
        """Forget all but the newest snapshots. Files stay, as with HypAware."""
        directory = self._source_directory(dataset, source)
        with locked(directory, exclusive=False):
            self._live_table(directory).expire_snapshots(keep)

    def expire_retired(self, dataset: str, source: str) -> None:
        """Delete every generation but the live one."""
        directory = self._source_directory(dataset, source)
        with locked(directory, exclusive=True):
            live = cursors.read_cursor(directory)["tableDir"]
            for generation in directory.iterdir():
                if generation.is_dir() and generation.name != live:
                    shutil.rmtree(generation)
                    self._tables.pop(generation, None)

    # --- writing data files -------------------------------------------------------------------------------------------------

    def _write_rows(self, table: Table, rows: Rows, max_rows_per_file: int | None) -> Iterator[DataFile]:
        schema = table.schema
        physical = to_physical(_flushable(rows, table.head.partition_columns), schema)
        if SEQ_COLUMN in schema.names:
            physical = physical.append_column(schema.column(SEQ_COLUMN).arrow, self._sequence.take(physical.num_rows))
            physical = physical.select([column.name for column in schema.columns])
        for partition, part in _partitions(physical, table.head.partition_columns):
            size = max_rows_per_file or part.num_rows
            for start in range(0, part.num_rows, size):
                writer = table.new_file(partition)
                writer.write(part.slice(start, size))
                yield self._closed(writer, schema)

    def _rewrite(self, table: Table, files: Sequence[LiveFile]) -> DataFile:
        writer = table.new_file(files[0].record["partition"])
        for file in files:
            for rows in _live_rows(file, table.schema):
                writer.write(rows)
        return self._closed(writer, table.schema)

    def _closed(self, writer: DataFileWriter, schema: TableSchema) -> DataFile:
        file = writer.close()
        if self._shredded:
            shred(file.path, schema)
            file.size = file.path.stat().st_size
        return file

    # --- deleting, in steps -------------------------------------------------------------------------------------------------

    def _retain(self, dataset: str, source: str, cutoff: dt.datetime, on_commit: Step | None) -> int:
        directory = self._source_directory(dataset, source)
        table = self._live_table(directory)
        columns = [Column(column.name, column.type) for column in table.schema.columns]
        primary = resolve_dataset(DatasetName(dataset), columns).primary_timestamp
        if primary is None:
            return 0
        deleted = self.delete(
            dataset, source, pc.field(primary) < pa.scalar(cutoff, pa.timestamp("us", tz="UTC")), on_commit=on_commit
        )
        record = {
            "lastCutoffDate": cutoff.date().isoformat(),
            "lastCutoffMs": epoch_millis(cutoff),
            "lastDeletedAt": iso_millis(self._clock()),
            "rowsDeleted": deleted,
            "lastSnapshotId": str(table.snapshot_id),
        }
        with locked(directory, exclusive=True):
            cursors.write_json(directory / "cursor.json", {**cursors.read_cursor(directory), "retention": record})
        return deleted

    def _count_again(self, directory: Path) -> None:
        with locked(directory, exclusive=True):
            rows = sum(file.rows for file in self._live_table(directory).live_files())
            cursors.write_json(directory / "cursor.json", {**cursors.read_cursor(directory), "rowCount": rows})

    # --- directories and tables ---------------------------------------------------------------------------------------------

    def _datasets(self) -> list[str]:
        return sorted(path.name for path in (self._root / "datasets").iterdir())

    def _sources(self, dataset: str) -> list[str]:
        return sorted(path.name.removeprefix("source=") for path in (self._root / "datasets" / dataset).glob("source=*"))

    def _source_directory(self, dataset: str, source: str) -> Path:
        return self._root / "datasets" / dataset / f"source={sanitised(source)}"

    def _live_table(self, source_directory: Path) -> Table:
        directory = source_directory / cursors.read_cursor(source_directory)["tableDir"]
        if directory not in self._tables:
            self._tables[directory] = Table(directory, clock=self._clock, rng=self._rng)
        return self._tables[directory]

    def _create_source(self, directory: Path, dataset: str, columns: Sequence[Column], *, with_sequence: bool) -> None:
        """Make a source with an empty table appear whole: no reader sees a cursor without its table or the reverse."""
        head = TableHead(new_schema(dataset, columns, with_sequence=with_sequence), PARTITION_COLUMNS.get(dataset, ()))
        with self._prepared(directory) as temporary:
            cursor = cursors.new_cursor()
            location = f"file://{directory / cursor['tableDir']}"
            Table.create(temporary / cursor["tableDir"], head, location=location, clock=self._clock, rng=self._rng)
            cursors.write_json(temporary / "cursor.json", cursor)

    def _create_table(self, directory: Path, head: TableHead) -> Table:
        return Table.create(directory, head, location=f"file://{directory}", clock=self._clock, rng=self._rng)

    @contextmanager
    def _prepared(self, directory: Path) -> Iterator[Path]:
        temporary = self._root / f".new-{self._rng.getrandbits(64):x}"
        yield temporary
        directory.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.rename(directory)
        except OSError:
            if not directory.exists():
                raise
            # Another writer was faster; its table serves as well.
            shutil.rmtree(temporary)

    def _generation_name(self, directory: Path) -> str:
        moment = epoch_millis(self._clock())
        while (directory / f"table-{moment}").exists():
            moment += 1
        return f"table-{moment}"

    def _swap(self, directory: Path, cursor: Cursor, name: str, *, files_before: int, files: Sequence[DataFile]) -> None:
        now = iso_millis(self._clock())
        compaction = {
            "previousTableDir": cursor["tableDir"],
            "compactedAt": now,
            "resettleBaselineFiles": len(files),
            "dataFilesBefore": files_before,
            "writerGeneration": _WRITER_GENERATION,
        }
        swapped = {**cursor, "rowCount": sum(file.rows for file in files), "compaction": compaction, "tableDir": name}
        cursors.write_json(directory / "cursor.json", swapped)
        (directory / cursor["tableDir"] / ".retired").write_text(now, encoding="utf-8")


def sanitised(segment: str) -> str:
    """A source's name as HypAware spells it in a directory name."""
    replaced = re.sub(r'[\x00-\x1f\x7f/\\:*?"<>|]', "_", segment)
    return {"": "_empty_", ".": "_._", "..": "_.._"}.get(replaced, replaced)


def _flushable(rows: Rows, partition_columns: Sequence[str]) -> Rows:
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


def _partitions(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
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


def _live_rows(file: LiveFile, schema: TableSchema) -> Iterator[pa.Table]:
    """The live rows of a data file, each batch last row first."""
    start = 0
    for rows in read_data_file(file.path, schema):
        kept = [position for position in range(rows.num_rows - 1, -1, -1) if start + position not in file.deleted]
        start += rows.num_rows
        if kept:
            yield rows.take(pa.array(kept, pa.int64()))


def _matching(file: LiveFile, schema: TableSchema, where: pc.Expression) -> BitMap:
    """The positions of the live rows of a data file that match."""
    found = BitMap()
    start = 0
    plain = TableSchema(schema.schema_id, tuple(column for column in schema.columns if column.type is not ColumnType.JSON))
    for rows in read_data_file(file.path, plain):
        numbered = rows.append_column("_position", pa.array(range(start, start + rows.num_rows), pa.int64()))
        found.update(numbered.filter(where).column("_position").to_pylist())
        start += rows.num_rows
    return found - file.deleted


def _in_commits(matches: Iterable[tuple[LiveFile, BitMap]]) -> Iterator[dict[str, BitMap]]:
    """Deleted positions by data file URL, cut into commits of at most 5000."""
    commit: dict[str, BitMap] = {}
    room = POSITIONS_PER_COMMIT
    for file, positions in matches:
        rest = positions
        while rest:
            part = BitMap(rest[:room])
            commit[file.record["file_path"]] = part
            rest = rest - part
            room -= len(part)
            if not room:
                yield commit
                commit, room = {}, POSITIONS_PER_COMMIT
    if commit:
        yield commit
