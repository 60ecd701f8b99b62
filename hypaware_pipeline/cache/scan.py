"""The rows of one source for a set of days, each row group read once.

Why rows of other days are put aside: after a compaction one row group holds rows of many days. It is decoded once, for the
first of them that is asked for, and the rest waits on disk.

Why a failure makes the other days begin anew: what was read for them is lost half-way, and what stopped one day (a damaged row
group, a full disk) need not stop the next.

Why what small files hold is put together before it is decoded: a flush is a file of some hundred rows, and looking at each of
its columns costs as much as for thousands.

Why reading and decoding have threads of their own: each of them, and sorting, is about a third of the work.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Self, TypeVar

import numpy as np
import pyarrow as pa

from hypaware_pipeline.cache import duck, spill
from hypaware_pipeline.cache.batches import compact, take
from hypaware_pipeline.cache.columns import Decoded, decode, file_columns, finished, typed
from hypaware_pipeline.cache.data_file import MOST_READ_ROWS, READ_BYTES, DataFile, Habits
from hypaware_pipeline.cache.day_rows import PLACE_BITS
from hypaware_pipeline.cache.sorting import Sorter
from hypaware_pipeline.cache.whole_file import whole_file
from hypaware_pipeline.model import PLACE_COLUMN, SEQ_COLUMN, Dataset, Day

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileSlice:
    """The rows of a data file that are wanted: home day -> ascending 0-based positions within the file, deletions left out."""

    path: Path
    rows: Mapping[Day, np.ndarray]


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
        slices: The wanted rows, file by file; which file it is makes a row's place.
        spill_dir: Where a private directory may be made.
        memory_bytes: How much of a day is sorted in memory.
        between: Called before every batch that is read; what it raises ends the reading.
    """

    def __init__(
        self,
        dataset: Dataset,
        slices: Sequence[FileSlice],
        *,
        spill_dir: Path,
        memory_bytes: int,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self._dataset = dataset
        self._between = between
        self._slices = slices
        self._spill_dir = spill_dir
        self._memory_bytes = memory_bytes
        self._groups: dict[int, dict[int, _Group]] = {}
        self._asked: set[Day] = set()
        self._habits = Habits()
        self._resources = ExitStack()
        names = {column.name for column in dataset.columns}
        lookup, natural = ([name for name in key if name in names] for key in (dataset.lookup_key, dataset.natural_key))
        self._sort_key = list(dict.fromkeys([*lookup, SEQ_COLUMN, *natural, PLACE_COLUMN]))

    def __enter__(self) -> Self:
        """Make the private directory."""
        self._directory = self._resources.enter_context(spill.private_directory(self._spill_dir))
        self._connection = self._resources.enter_context(duck.cursor())
        return self

    def __exit__(self, *_: object) -> None:
        """Remove it, also after an error."""
        self._resources.close()
        pa.default_memory_pool().release_unused()

    def batches(self, day: Day) -> Iterator[pa.RecordBatch]:
        """The rows of a day, sorted by lookup key, sequence, natural key and place; nulls last. Each day once.

        Batches carry the dataset's columns in order (text plain or dictionary-encoded), then the sequence, the problem (why a row
        could not be read whole, else null) and the place (see `DayRows`).

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
            self._groups.clear()
            raise
        finally:
            self._asked.add(day)
        for batch in _ahead(sorter.sorted_batches()):
            yield finished(batch, self._dataset)

    def _collected(self, day: Day) -> Sorter:
        """All rows of a day; what else their row groups hold waits."""
        sorter = Sorter(self._sort_key, self._connection.cursor(), directory=self._directory, memory_bytes=self._memory_bytes)
        waiting = self._waiting_room(day)
        # Closed in any case: a thread that went on reading would change what is known to be left.
        with (
            closing(_ahead(_gathered(self._pieces(day)))) as gathered,
            closing(_ahead(self._decoded(pieces) for pieces in gathered)) as groups,
        ):
            for decoded in groups:
                for rows_day, rows in self._by_day(decoded):
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

    def _pieces(self, day: Day) -> Iterator[_Piece]:
        """All wanted rows of the row groups that hold rows of the day and were not read before."""
        for ordinal, piece in enumerate(self._slices):
            left = self._groups.get(ordinal)
            if not len(piece.rows.get(day, ())) or (left is not None and not any(day in group.wanted for group in left.values())):
                continue
            with self._whole(ordinal, piece.path) as file:
                if left is None:
                    wanted = {each: rows for each, rows in piece.rows.items() if each not in self._asked}
                    left = self._groups[ordinal] = _groups(file.group_rows, wanted)
                columns = file_columns(self._dataset, file.schema)
                for at in [at for at, group in left.items() if day in group.wanted]:
                    group = left.pop(at)
                    position = group.first
                    for raw in file.batches(at, columns):
                        self._between()
                        yield from _wanted_rows(raw, group, position, ordinal)
                        position += raw.num_rows

    def _whole(self, ordinal: int, path: Path) -> AbstractContextManager[DataFile]:
        """A data file with every VARIANT in one piece."""
        copy = self._directory / f"unshredded-{ordinal}.parquet"
        return whole_file(path, self._dataset, self._habits, copy=copy, connection=self._connection)

    def _decoded(self, pieces: Sequence[_Piece]) -> list[tuple[_Piece, Decoded]]:
        joined = list(_joined(pieces))
        return list(zip(joined, decode([piece.raw for piece in joined], self._dataset, self._connection), strict=True))

    def _by_day(self, decoded: Sequence[tuple[_Piece, Decoded]]) -> Iterator[tuple[Day, pa.RecordBatch]]:
        """The rows of some pieces as the dataset has them, each with its place, shared out by day."""
        for piece, half in decoded:
            placed = typed(half, self._dataset).append_column(PLACE_COLUMN, piece.raw.column(PLACE_COLUMN))
            for day, own in piece.by_day.items():
                whole = len(own) == placed.num_rows
                yield day, compact(placed) if whole else take(placed, pa.array(own))


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
    place = pa.array(positions + (ordinal << PLACE_BITS), pa.int64())
    placed = pa.RecordBatch.from_arrays([*raw.columns, place], names=[*raw.schema.names, PLACE_COLUMN])
    yield _Piece(placed, {day: np.searchsorted(positions, own) for day, own in by_day.items()})


def _joined(pieces: Sequence[_Piece]) -> Iterator[_Piece]:
    """Fewer pieces with the same rows: neighbours whose columns agree become one."""
    for _, alike in groupby(pieces, key=lambda piece: piece.raw.schema):
        together = list(alike)
        if len(together) == 1:
            yield together[0]
            continue
        by_day: dict[Day, list[np.ndarray]] = {}
        start = 0
        for piece in together:
            for day, own in piece.by_day.items():
                by_day.setdefault(day, []).append(own + start)
            start += piece.raw.num_rows
        (raw,) = pa.Table.from_batches([piece.raw for piece in together]).combine_chunks().to_batches()
        yield _Piece(raw, {day: np.concatenate(parts) for day, parts in by_day.items()})


def _gathered(pieces: Iterator[_Piece]) -> Iterator[list[_Piece]]:
    """Small pieces in groups that are decoded together."""
    group: list[_Piece] = []
    rows = size = 0
    for piece in pieces:
        piece_bytes = piece.raw.nbytes
        if group and (rows + piece.raw.num_rows > MOST_READ_ROWS or size + piece_bytes > READ_BYTES):
            yield group
            group, rows, size = [], 0, 0
        group.append(piece)
        rows += piece.raw.num_rows
        size += piece_bytes
    if group:
        yield group


def _ahead(rows: Iterator[T]) -> Generator[T, None, None]:
    """The same, each made in a thread of its own while the one before it is worked on.

    One thread for all files and columns: several of them wait for each other more than they win. Each gives memory back after
    each item, because the allocator keeps what a thread freed for that thread: 100 MB in all.
    """

    def made() -> T | None:
        item = next(rows, None)
        pa.default_memory_pool().release_unused()
        return item

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="scan") as maker:
        coming = maker.submit(made)
        while (ready := coming.result()) is not None:
            coming = maker.submit(made)
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
