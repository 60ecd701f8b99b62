"""A writer of caches in HypAware's on-disk format: the demo, tests and benchmarks fill caches with it.

Why it imitates a process and not a file format: what makes a cache hard to export is how it changes. One `CacheWriter` is one
process with its own block of sequence numbers; two of them on one cache commit lower numbers after higher ones, as HypAware's
daemon and its CLI do. Compaction swaps generations and may settle rows, maintenance moves them between sources, purge and
retention delete in several commits, a spool holds rows no reader sees. What befalls a cache from outside is in `mishaps`.

Why it also continues caches that HypAware itself wrote: everything it needs is read from the table's metadata, so a test can
flush into, compact or purge a copy of a real cache.
"""

import datetime as dt
import itertools
import random
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from hypaware_pipeline.datasets import resolve_dataset
from hypaware_pipeline.demo import cursor as cursors
from hypaware_pipeline.demo import spool as spools
from hypaware_pipeline.demo.cursor import Clock, Cursor, SequenceAllocator, epoch_millis, iso_millis, locked, utc_now
from hypaware_pipeline.demo.manifests import TableHead
from hypaware_pipeline.demo.parquet_files import DataFile, DataFileWriter, shred
from hypaware_pipeline.demo.selections import Rows, flushable, in_commits, live_rows, matching, partitions, split
from hypaware_pipeline.demo.table import LiveFile, Table
from hypaware_pipeline.demo.table_schema import (
    PARTITION_COLUMNS,
    TableSchema,
    declared_columns,
    infer_columns,
    new_schema,
    to_physical,
)
from hypaware_pipeline.model import SEQ_COLUMN, Column, DatasetName

Step: TypeAlias = Callable[[], None]
Change: TypeAlias = Callable[[pa.Table], pa.Table]

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
        sequence: Sequence[int | None] | None = None,
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
            sequence: The number of each row, None for one without; by default the next ones of this writer's block.
            max_rows_per_file: As if so many rows had been flushed at a time, but in one commit: many small files, quickly.
        """
        wanted = tuple(columns or declared_columns(dataset) or infer_columns(rows))
        directory = self._source_directory(dataset, source)
        if not directory.exists():
            self._create_source(directory, dataset, new_schema(dataset, wanted, with_sequence=with_sequence))
        with locked(directory, exclusive=False):
            table = self._live_table(directory)
            if dataset in PARTITION_COLUMNS:
                table.evolve(wanted)
            physical = self._numbered(to_physical(flushable(rows, table.head.partition_columns), table.schema), table, sequence)
            files = self._append_files(table, physical, max_rows_per_file)
        self._count_more(directory, files)
        written = sum(file.rows for file in files)
        spools.record_flush(self._root, dataset, self._clock(), rows=written, size=sum(file.size for file in files))
        return written

    def reserve(self, count: int) -> list[int]:
        """Take so many numbers of this writer's block now, for an `append` that comes later, after commits of other writers."""
        numbers: list[int] = self._sequence.take(count).to_pylist()
        return numbers

    def spool(self, dataset: str, rows: Sequence[Mapping[str, Any]], *, columns: Sequence[Column] | None = None) -> None:
        """Leave rows in the spool, where HypAware collects them until the next flush and no reader of tables sees them."""
        declared = tuple(columns or declared_columns(dataset) or infer_columns(rows))
        spools.append(self._root, dataset, new_schema(dataset, declared, with_sequence=False), rows)

    # --- deleting -----------------------------------------------------------------------------------------------------------

    def delete(
        self,
        dataset: str,
        source: str,
        where: pc.Expression,
        *,
        on_commit: Step | None = None,
        rows_per_commit: int = POSITIONS_PER_COMMIT,
    ) -> int:
        """Delete the live rows an expression over their plain columns matches; returns how many.

        In as many commits as HypAware makes, each of at most 5000 rows, or of fewer, so that a small deletion has several steps
        too; `on_commit` is called after each.
        """
        directory = self._source_directory(dataset, source)
        deleted, finished = 0, False
        while not finished:
            finished = True
            table = self._live_table(directory)
            matches = ((file, matching(file, table.schema, where)) for file in table.live_files())
            for positions in in_commits(matches, rows_per_commit):
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

    def retention(
        self,
        cutoff: dt.datetime,
        *,
        datasets: Iterable[str] | None = None,
        on_commit: Step | None = None,
        rows_per_commit: int = POSITIONS_PER_COMMIT,
    ) -> int:
        """Delete rows older than the cut-off, then say so in the cursors; returns how many went. Undated rows stay.

        `on_commit` and `rows_per_commit` as in `delete`.
        """
        return sum(
            self._retain(dataset, source, cutoff, on_commit, rows_per_commit)
            for dataset in (datasets if datasets is not None else self._datasets())
            for source in self._sources(dataset)
        )

    # --- moving -------------------------------------------------------------------------------------------------------------

    def settle(self, dataset: str, source: str, where: pc.Expression, **changes: Any) -> None:
        """A compaction that re-identifies rows: those that match get these values in plain columns, and keep their numbers."""

        def settled(rows: pa.Table) -> pa.Table:
            matched, others = split(rows, where)
            for name, value in changes.items():
                at = matched.schema.get_field_index(name)
                values = pa.repeat(pa.scalar(value, matched.schema.types[at]), matched.num_rows)
                matched = matched.set_column(at, matched.schema.field(at), values)
            return pa.concat_tables([matched, others])

        self._rewrite_table(self._source_directory(dataset, source), settled)

    def move(self, dataset: str, source: str, to: str, where: pc.Expression, *, on_commit: Step | None = None) -> int:
        """Move rows to another source with their numbers; returns how many.

        As maintenance of a derived dataset does it: they are appended there, then the source is compacted without them.
        `on_commit` is called between the two. Nobody else may write to the source meanwhile.
        """
        moved = self._copy(dataset, source, to, where)
        if on_commit:
            on_commit()
        self._rewrite_table(self._source_directory(dataset, source), lambda rows: split(rows, where)[1])
        return moved

    def migrate(self, dataset: str, source: str, to: str, *, on_commit: Step | None = None) -> int:
        """Move a whole source as HypAware migrates an old layout; returns how many rows.

        They are appended to the new source with their numbers, then the old directory goes to `.retired/`. `on_commit` is called
        between the two.
        """
        moved = self._copy(dataset, source, to, pc.scalar(True))
        if on_commit:
            on_commit()
        directory = self._source_directory(dataset, source)
        retired = directory.parent / ".retired"
        retired.mkdir(exist_ok=True)
        directory.rename(retired / directory.name)
        self._tables.clear()
        return moved

    # --- maintenance --------------------------------------------------------------------------------------------------------

    def compact(self, dataset: str, source: str, *, before_swap: Step | None = None, swap: bool = True) -> None:
        """Write the live rows into a new generation, swap the cursor to it and retire the old one.

        Sequence numbers stay, the order of rows does not. With `swap=False` it stops before the swap, as a killed HypAware would.
        The source is locked throughout: `before_swap` may read it, not write to it.
        """
        self._rewrite_table(self._source_directory(dataset, source), _unchanged, before_swap=before_swap, swap=swap)

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

    def _numbered(self, rows: pa.Table, table: Table, sequence: Sequence[int | None] | None) -> pa.Table:
        schema = table.schema
        if SEQ_COLUMN not in schema.names:
            return rows
        numbers = self._sequence.take(rows.num_rows) if sequence is None else pa.array(sequence, pa.int64())
        numbered = rows.append_column(schema.column(SEQ_COLUMN).arrow, numbers)
        return numbered.select([column.name for column in schema.columns])

    def _append_files(self, table: Table, rows: pa.Table, max_rows_per_file: int | None = None) -> list[DataFile]:
        """Commit rows in the columns of the table, in one file per partition or several."""
        files = []
        for partition, part in partitions(rows, table.head.partition_columns):
            size = max_rows_per_file or part.num_rows
            for start in range(0, part.num_rows, size):
                writer = table.new_file(partition)
                writer.write(part.slice(start, size))
                files.append(self._closed(writer, table.schema))
        if files:
            table.append(files)
        return files

    def _copy(self, dataset: str, source: str, to: str, where: pc.Expression) -> int:
        """Append the live rows that match to another source, as they are; columns its table lacks are dropped, as in a flush."""
        old = self._live_table(self._source_directory(dataset, source))
        directory = self._source_directory(dataset, to)
        if not directory.exists():
            self._create_source(directory, dataset, old.schema)
        with locked(directory, exclusive=False):
            table = self._live_table(directory)
            found = [split(rows, where)[0] for file in old.live_files() for rows in live_rows(file, table.schema)]
            rows = pa.concat_tables([*found, table.schema.arrow.empty_table()])
            files = self._append_files(table, rows)
        self._count_more(directory, files)
        return int(rows.num_rows)

    def _rewrite_table(self, directory: Path, change: Change, *, before_swap: Step | None = None, swap: bool = True) -> None:
        """See `compact`; `change` is applied to every batch of rows."""
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
            files = [file for group in groups.values() for file in self._rewritten(new, group, change)]
            if files:
                new.append(files)
            if before_swap:
                before_swap()
            if swap:
                self._swap(directory, cursor, name, files_before=len(live), files=files)

    def _rewritten(self, table: Table, files: Sequence[LiveFile], change: Change) -> Iterator[DataFile]:
        """One file with the rows of several, or none when no row is left."""
        batches = (change(rows) for file in files for rows in live_rows(file, table.schema))
        kept = (rows for rows in batches if rows.num_rows)
        first = next(kept, None)
        if first is None:
            return
        writer = table.new_file(files[0].record["partition"])
        for rows in itertools.chain([first], kept):
            writer.write(rows)
        yield self._closed(writer, table.schema)

    def _closed(self, writer: DataFileWriter, schema: TableSchema) -> DataFile:
        file = writer.close()
        if self._shredded:
            shred(file.path, schema)
            file.size = file.path.stat().st_size
        return file

    # --- deleting, in steps -------------------------------------------------------------------------------------------------

    def _retain(self, dataset: str, source: str, cutoff: dt.datetime, on_commit: Step | None, rows_per_commit: int) -> int:
        directory = self._source_directory(dataset, source)
        table = self._live_table(directory)
        columns = [Column(column.name, column.type) for column in table.schema.columns]
        primary = resolve_dataset(DatasetName(dataset), columns).primary_timestamp
        if primary is None:
            return 0
        old = pc.field(primary) < pa.scalar(cutoff, pa.timestamp("us", tz="UTC"))
        deleted = self.delete(dataset, source, old, on_commit=on_commit, rows_per_commit=rows_per_commit)
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

    def _count_more(self, directory: Path, files: Sequence[DataFile]) -> None:
        with locked(directory, exclusive=True):
            cursor = cursors.read_cursor(directory)
            rows = cursor["rowCount"] + sum(file.rows for file in files)
            cursors.write_json(directory / "cursor.json", {**cursor, "rowCount": rows})

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

    def _create_source(self, directory: Path, dataset: str, schema: TableSchema) -> None:
        """Make a source with an empty table appear whole: no reader sees a cursor without its table or the reverse."""
        head = TableHead(schema, PARTITION_COLUMNS.get(dataset, ()))
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


def _unchanged(rows: pa.Table) -> pa.Table:
    return rows
