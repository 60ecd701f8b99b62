"""The rows of one source for a set of days, each row group read once.

Why rows of other days are put aside: after a compaction one row group holds rows of many days. It is decoded once, for the
first of them that is asked for, and the rest waits on disk.

Why the size of a read follows what the last one gave: a file says how large its pages are, not how large they become. A key
dictionary of some KB repeats on every row of a VARIANT column once read, and a single value can have 70 KB.

Why a failure makes the other days begin anew: what was read for them is lost half-way, and what stopped one day (a damaged row
group, a full disk) need not stop the next.

Why what small files hold is decoded together: a flush is a file of some hundred rows, and a query for them costs as much as one
for thousands. They are put together only afterwards: as read, a large value takes its size on every row.

Why reading and decoding have threads of their own: each of them, and sorting, is about a third of the work.

Why columns without a value are not read: most rows of a conversation use less than half of its columns, and the footer tells.

Why pyarrow reads and not DuckDB: it keeps dictionaries as dictionaries. A VARIANT whose values are partly kept in typed columns
is the exception: DuckDB first rewrites such a file without them, row for row, into the private directory.
"""

import glob
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hypaware_pipeline.cache import spill, variant
from hypaware_pipeline.cache.batches import compact, take
from hypaware_pipeline.cache.columns import convert, file_columns, finished
from hypaware_pipeline.cache.sorting import Sorter
from hypaware_pipeline.errors import SourceUnreadable
from hypaware_pipeline.model import SEQ_COLUMN, Dataset, Day

T = TypeVar("T")

_ORDER = "_hyp_order"
"""Place of a row: file and position in it. The last resort of the sort order."""
_ROWS_PER_FILE = 2**40

_READ_BYTES = 16 * 1024 * 1024
_FIRST_READ_ROWS = 1024
_MOST_READ_ROWS = 4096
_PAGE_BUFFER_BYTES = 64 * 1024
_SMALL_CHUNK_BYTES = 1024 * 1024
_UNSHREDDED_GROUP_ROWS = 4096  # DuckDB holds a row group in memory until it is full


@dataclass(frozen=True, slots=True)
class FileSlice:
    """The rows of a data file that are wanted: home day -> ascending 0-based positions within the file, deletions left out."""

    path: Path
    rows: Mapping[Day, np.ndarray]


@dataclass(frozen=True, slots=True)
class _Footer:
    """What a footer tells: columns, rows of each row group, columns to read as dictionaries, columns without a value."""

    metadata: pq.FileMetaData
    schema: pa.Schema
    group_rows: list[int]
    dictionaries: list[str]
    empty: frozenset[str]


@dataclass(slots=True)
class _File:
    """A data file after its footer was read: where and how to read it, and what is wanted of each row group not yet read."""

    ordinal: int
    path: Path
    metadata: pq.FileMetaData | None
    columns: list[str]
    dictionaries: list[str]
    groups: dict[int, "_Group"]


@dataclass(frozen=True, slots=True)
class _Group:
    """A row group: position of its first row, number of rows, and the wanted positions by day (within the file)."""

    first: int
    rows: int
    wanted: Mapping[Day, np.ndarray]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Wanted rows as their file has them, the place of each appended, and by day which of them are of that day (ascending)."""

    raw: pa.RecordBatch
    by_day: Mapping[Day, np.ndarray]


class Scan:
    """One pass over a source's data files for a set of days. A context manager; what it put aside is removed at its end.

    Args:
        dataset: Columns and order of the rows.
        slices: The wanted rows, file by file.
        spill_dir: Where a private directory may be made.
        memory_bytes: How much of a day is sorted in memory.
    """

    def __init__(self, dataset: Dataset, slices: Sequence[FileSlice], *, spill_dir: Path, memory_bytes: int) -> None:
        self._dataset = dataset
        self._slices = slices
        self._spill_dir = spill_dir
        self._memory_bytes = memory_bytes
        self._files: dict[int, _File] = {}
        self._asked: set[Day] = set()
        self._read_rows = _FIRST_READ_ROWS
        self._resources = ExitStack()
        names = {column.name for column in dataset.columns}
        lookup, natural = ([name for name in key if name in names] for key in (dataset.lookup_key, dataset.natural_key))
        self._sort_key = list(dict.fromkeys([*lookup, SEQ_COLUMN, *natural, _ORDER]))

    def __enter__(self) -> Self:
        """Make the private directory."""
        self._directory = self._resources.enter_context(spill.private_directory(self._spill_dir))
        self._connection = self._resources.enter_context(duckdb.connect())
        return self

    def __exit__(self, *_: object) -> None:
        """Remove it, also after an error."""
        self._resources.close()
        pa.default_memory_pool().release_unused()

    def batches(self, day: Day) -> Iterator[pa.RecordBatch]:
        """The rows of a day, sorted by lookup key, sequence, natural key and place; nulls last. Each day once.

        Batches carry the dataset's columns in order (text plain or dictionary-encoded), then the sequence, then the problem: why
        a row could not be read whole, else null.

        Raises:
            FileNotFoundError: a data file is gone.
            SourceUnreadable: a data file is damaged.
            SpillFailed: the disk has no room for what must be put aside.
        """
        self._remove("run-*")  # of a day before this one, which nobody read to its end
        try:
            sorter = self._collected(day)
        except Exception:
            # Rows of other days were on their way, and some of them have arrived: those days begin anew.
            self._remove("day-*")
            self._files.clear()
            raise
        finally:
            self._asked.add(day)
        for batch in _ahead(sorter.sorted_batches()):
            yield finished(batch.drop_columns([_ORDER]), self._dataset)

    def _collected(self, day: Day) -> Sorter:
        """All rows of a day; what else their row groups hold waits."""
        sorter = Sorter(self._sort_key, self._connection.cursor(), directory=self._directory, memory_bytes=self._memory_bytes)
        waiting = self._waiting_room(day)
        for decoded in _ahead(map(self._decoded, _ahead(_gathered(self._pieces(day))))):
            for rows_day, rows in decoded:
                if rows_day == day:
                    sorter.add(rows)
                else:
                    spill.append(self._waiting_room(rows_day), [rows])
        for batch in spill.read(waiting):
            sorter.add(batch)
        waiting.unlink(missing_ok=True)
        return sorter

    def _remove(self, pattern: str) -> None:
        for path in self._directory.glob(pattern):
            path.unlink()

    def _waiting_room(self, day: Day) -> Path:
        """Where rows of a day wait until it is asked for."""
        return self._directory / f"day-{day}"

    def _files_with(self, day: Day) -> Iterator[_File]:
        for ordinal, piece in enumerate(self._slices):
            if len(piece.rows.get(day, ())):
                if ordinal not in self._files:
                    self._files[ordinal] = self._open(ordinal, piece)
                yield self._files[ordinal]

    def _open(self, ordinal: int, piece: FileSlice) -> _File:
        """Read the footer and share the wanted rows out among the row groups."""
        path = piece.path
        wanted_rows = {day: rows for day, rows in piece.rows.items() if day not in self._asked}
        footer = _footer(path)
        wanted = file_columns(self._dataset, footer.schema)
        shredded = [name for name in wanted if variant.is_shredded(footer.schema.field(name).type)]
        if shredded:
            path = self._directory / f"unshredded-{ordinal}.parquet"
            _unshred(piece.path, path, wanted, shredded, self._connection)
            footer = _footer(path)
        columns = [name for name in wanted if name not in footer.empty]
        return _File(ordinal, path, footer.metadata, columns, footer.dictionaries, _groups(footer.group_rows, wanted_rows))

    def _pieces(self, day: Day) -> Iterator[_Piece]:
        """All wanted rows of the row groups that hold rows of the day and were not read before."""
        for file in self._files_with(day):
            due = [at for at, group in file.groups.items() if day in group.wanted]
            if not due:
                continue
            with _opened(file.path, file.dictionaries, file.metadata) as parquet:
                for at in due:
                    group = file.groups.pop(at)
                    position = group.first
                    for raw in self._raw_batches(parquet, file.columns, at, group.rows):
                        yield from _wanted_rows(raw, group, position, file.ordinal)
                        position += raw.num_rows
            if not file.groups:
                file.metadata = None  # 100 KB; a day can lie in thousands of files

    def _raw_batches(self, parquet: pq.ParquetFile, columns: list[str], at: int, rows: int) -> Iterator[pa.RecordBatch]:
        """All rows of a row group. Begins anew behind what was given out when another batch size fits much better."""
        given = 0
        while given < rows:
            position = 0
            for batch in parquet.iter_batches(batch_size=self._read_rows, row_groups=[at], columns=columns, use_threads=False):
                stop = position + batch.num_rows
                if stop > given:
                    fresh = batch.slice(max(given - position, 0))
                    given = stop
                    yield fresh
                    if self._resize(fresh, given, rows - given):
                        break
                position = stop

    def _resize(self, batch: pa.RecordBatch, given: int, left: int) -> bool:
        """Judge the batch size by what it gave; true when the change is worth decoding the first `given` rows again."""
        best = int(_READ_BYTES * batch.num_rows / max(batch.nbytes, 1))
        best = min(max(best, 1), _MOST_READ_ROWS)
        too_large, too_small = best * 4 < self._read_rows, best > self._read_rows * 2
        if too_large or (too_small and left > 8 * given):
            self._read_rows = best
            return left > 0
        return False

    def _decoded(self, pieces: Sequence[_Piece]) -> list[tuple[Day, pa.RecordBatch]]:
        """The rows of some pieces as the dataset has them, shared out by day."""
        shared = []
        for piece, rows in zip(pieces, convert([piece.raw for piece in pieces], self._dataset, self._connection), strict=True):
            placed = rows.append_column(_ORDER, piece.raw.column(_ORDER))
            for day, own in piece.by_day.items():
                whole = len(own) == placed.num_rows
                shared.append((day, compact(placed) if whole else take(placed, pa.array(own))))
        return shared


def _wanted_rows(raw: pa.RecordBatch, group: _Group, position: int, ordinal: int) -> Iterator[_Piece]:
    """The wanted rows of a batch that begins at `position` of its file; nothing when there are none."""
    by_day = {
        day: positions[slice(*np.searchsorted(positions, (position, position + raw.num_rows)))]
        for day, positions in group.wanted.items()
    }
    by_day = {day: positions for day, positions in by_day.items() if len(positions)}
    if not by_day:
        return
    positions = np.sort(np.concatenate(list(by_day.values())))
    if len(positions) < raw.num_rows:
        raw = raw.take(pa.array(positions - position))
    place = pa.array(positions + ordinal * _ROWS_PER_FILE, pa.int64())
    placed = pa.RecordBatch.from_arrays([*raw.columns, place], names=[*raw.schema.names, _ORDER])
    yield _Piece(placed, {day: np.searchsorted(positions, own) for day, own in by_day.items()})


def _gathered(pieces: Iterator[_Piece]) -> Iterator[list[_Piece]]:
    """Small pieces in groups that are decoded together."""
    group: list[_Piece] = []
    rows = size = 0
    for piece in pieces:
        if group and (rows + piece.raw.num_rows > _MOST_READ_ROWS or size + piece.raw.nbytes > _READ_BYTES):
            yield group
            group, rows, size = [], 0, 0
        group.append(piece)
        rows += piece.raw.num_rows
        size += piece.raw.nbytes
    if group:
        yield group


def _ahead(rows: Iterator[T]) -> Iterator[T]:
    """The same, each made in a thread of its own while the one before it is worked on.

    One thread for all columns: threads of their own for single columns doubled the processor time and halved nothing.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="scan") as reader:
        coming = reader.submit(next, rows, None)
        while (ready := coming.result()) is not None:
            coming = reader.submit(next, rows, None)
            yield ready


def _groups(sizes: Sequence[int], rows: Mapping[Day, np.ndarray]) -> dict[int, _Group]:
    """Cut the wanted positions at the borders of the row groups; row groups with none are left out.

    Raises:
        IndexError: a position lies beyond the last row.
    """
    borders = np.cumsum([0, *sizes])
    cuts = {day: np.searchsorted(positions, borders) for day, positions in rows.items()}
    if any(cut[-1] < len(rows[day]) for day, cut in cuts.items()):
        raise IndexError(f"a wanted row lies beyond the {borders[-1]} rows of the file")
    groups = {}
    for at, size in enumerate(sizes):
        wanted = {day: rows[day][cut[at] : cut[at + 1]] for day, cut in cuts.items() if cut[at] < cut[at + 1]}
        if wanted:
            groups[at] = _Group(int(borders[at]), size, wanted)
    return groups


@contextmanager
def _opened(path: Path, dictionaries: list[str], metadata: pq.FileMetaData | None = None) -> Iterator[pq.ParquetFile]:
    """A data file for reading, `dictionaries` naming the columns to keep as such; `metadata` is its footer, once that was read.

    Raises:
        FileNotFoundError: it is gone.
        SourceUnreadable: it is damaged, which may show only while it is read.
    """
    try:
        options = {"read_dictionary": dictionaries, "buffer_size": _PAGE_BUFFER_BYTES, "pre_buffer": False}
        with pq.ParquetFile(path, metadata=metadata, **options) as parquet:
            yield parquet
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise SourceUnreadable(
            f"{path}: the data file cannot be read ({error}); it is damaged, restore it or purge its rows"
        ) from error


def _footer(path: Path) -> _Footer:
    with _opened(path, []) as parquet:
        group_rows = [parquet.metadata.row_group(at).num_rows for at in range(parquet.num_row_groups)]
        return _Footer(parquet.metadata, parquet.schema_arrow, group_rows, _dictionary_columns(parquet), _empty_columns(parquet))


def _dictionary_columns(parquet: pq.ParquetFile) -> list[str]:
    """Flat text columns to read as dictionaries: those whose every chunk is one, or is small.

    Where a writer began a large chunk with a dictionary and then gave it up, the reader would go on collecting distinct values
    until the chunk ends. The footer cannot tell such a chunk from one that kept to its dictionary unless no page is plain.
    """
    text = {
        field.name for field in parquet.schema_arrow if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
    }
    groups = [parquet.metadata.row_group(at) for at in range(parquet.num_row_groups)]
    paths = {parquet.schema.column(at).path: at for at in range(len(parquet.schema))}
    return [path for path, at in paths.items() if path in text and all(_keeps_dictionary(group.column(at)) for group in groups)]


def _empty_columns(parquet: pq.ParquetFile) -> frozenset[str]:
    """Flat columns that, by the footer, have no value in any row. Reading them would cost as much as reading others."""
    groups = [parquet.metadata.row_group(at) for at in range(parquet.num_row_groups)]
    flat = {at: path for at in range(len(parquet.schema)) if "." not in (path := parquet.schema.column(at).path)}
    return frozenset(path for at, path in flat.items() if all(_is_empty(group.column(at)) for group in groups))


def _is_empty(chunk: pq.ColumnChunkMetaData) -> bool:
    statistics = chunk.statistics
    return statistics is not None and statistics.has_null_count and statistics.null_count == chunk.num_values


def _keeps_dictionary(chunk: pq.ColumnChunkMetaData) -> bool:
    if not chunk.has_dictionary_page:
        return False
    small = chunk.total_uncompressed_size <= _SMALL_CHUNK_BYTES + 2 * chunk.num_values
    return small or "PLAIN" not in chunk.encodings


def _unshred(source: Path, target: Path, columns: list[str], shredded: list[str], connection: duckdb.DuckDBPyConnection) -> None:
    """Write the same rows in the same order with every VARIANT in one piece.

    Raises:
        FileNotFoundError: the source is gone.
        SourceUnreadable: DuckDB cannot read the source.
    """
    names = ", ".join(map(_quoted, columns))
    whole = ", ".join(f"{_quoted(name)}: 'VARIANT'" for name in shredded)
    try:
        connection.execute(
            f"COPY (SELECT {names} FROM read_parquet($source, hive_partitioning = false)) TO {_literal(str(target))} "
            f"(FORMAT parquet, COMPRESSION lz4_raw, ROW_GROUP_SIZE {_UNSHREDDED_GROUP_ROWS}, SHREDDING {{{whole}}})",
            {"source": glob.escape(str(source))},
        )
    except duckdb.Error as error:
        if not source.exists():
            raise FileNotFoundError(str(source)) from error
        raise SourceUnreadable(f"{source}: the data file cannot be read ({error}); restore it or purge its rows") from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
