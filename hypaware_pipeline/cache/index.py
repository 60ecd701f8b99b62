"""The row index of one source: which rows its data files hold, by day, without reading them twice.

Why two levels: of every large data file, day and hash of each row are kept in a file of its own; of every data file *under its
deletion vector*, rows and hash sum per day are kept together in one file per source. An unchanged table is judged from the
second alone; a purge re-aggregates the files it touched from the first; only a new data file is read.

Why raw days are stored and not the partition they lead to: which days count as undated depends on today's date. Folded when
asked, a row of the future finds its day when that comes, and nothing stored is wrong.

Why a file that is lost still has days: the index or the manifest's bounds say which days it may touch. Those days list the source
as unreadable and every other day goes on. Only a file that neither knows condemns its whole source.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hypaware_pipeline.cache import index_files
from hypaware_pipeline.cache.deletion_vectors import deleted_positions
from hypaware_pipeline.cache.row_hash import NO_DAY, Recipe, raw_days, row_hashes
from hypaware_pipeline.cache.snapshot import DataFile, DayBounds, SourcePin
from hypaware_pipeline.errors import SourceUnreadable

MANIFESTS_FILE = "manifests"
_TOTALS_FILE = "days"
_TOTALS_FORMAT = "days-2"
_ROWS_FORMAT = "rows-1"
# Reading a smaller data file again costs no more than reading what was kept of it.
_WORTH_KEEPING_ROWS = 4_096
_BATCH_ROWS = 65_536
_HASH_RANGE = 1 << 64
# Wider bounds than a century are one absurd timestamp, and say nothing about which days the other rows are of.
_MAX_BOUND_DAYS = 36_525


@dataclass(frozen=True, slots=True)
class DayTotal:
    """Live rows of one day and the sum of their hashes modulo 2^64, which no order of rows or files changes."""

    rows: int
    hash_sum: int

    def __add__(self, other: "DayTotal") -> "DayTotal":
        """Both together."""
        return DayTotal(self.rows + other.rows, (self.hash_sum + other.hash_sum) % _HASH_RANGE)


@dataclass(frozen=True, slots=True)
class FileRows:
    """Raw day (int32) and hash (uint64) of each row of a data file, deleted ones included."""

    days: np.ndarray
    hashes: np.ndarray


@dataclass(frozen=True, slots=True)
class LostFile:
    """A data file that cannot be read: why, and the raw days its rows may be of (None: nobody knows)."""

    name: str
    reason: str
    days: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class SourceIndex:
    """What is known of one pinned source.

    Attributes:
        totals: Per readable data file: raw day -> live rows and hash sum.
        lost: Data files that cannot be read.
    """

    pin: SourcePin
    totals: Mapping[str, Mapping[int, DayTotal]]
    lost: tuple[LostFile, ...]
    _recipe: Recipe
    _directory: Path | None

    def by_day(self) -> dict[int, DayTotal]:
        """Live rows and hash sum per raw day, over all readable files."""
        rows: Counter[int] = Counter()
        sums: Counter[int] = Counter()
        for file_days in self.totals.values():
            for day, total in file_days.items():
                rows[day] += total.rows
                sums[day] += total.hash_sum
        return {day: DayTotal(rows[day], sums[day] % _HASH_RANGE) for day in rows}

    def live_rows(self, file: DataFile) -> tuple[np.ndarray, np.ndarray]:
        """0-based positions (int64, ascending) and raw days (int32) of the live rows of a readable data file.

        Raises:
            FileNotFoundError: the data file or its deletion vector is gone.
            SourceUnreadable: it is damaged.
        """
        totals = self.totals[file.name]
        if len(totals) == 1 and file.deletion is None:
            # One day: every row is of it. A flush of conversations is such a file, and there are thousands.
            return np.arange(file.rows), np.full(file.rows, next(iter(totals)), dtype=np.int32)
        days = _rows_of(self.pin, file, self._recipe, self._directory).days
        positions = np.flatnonzero(_live(file))
        return positions, days[positions]


@dataclass(frozen=True, slots=True)
class _FileTotals:
    """What is kept of a data file under one deletion vector (by identity; empty without one).

    Kept as text: a table has thousands, a plan compares them all and changes one.
    """

    deletion: str
    days: Mapping[int, DayTotal]

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `to_text` wrote."""
        days, _, deletion = text.partition("|")
        return cls(deletion, {int(day): DayTotal(int(rows), int(total)) for day, rows, total in map(_split, days.split())})

    def to_text(self) -> str:
        """`day:rows:sum day:rows:sum|deletion`."""
        return " ".join(f"{day}:{total.rows}:{total.hash_sum}" for day, total in self.days.items()) + f"|{self.deletion}"


def _split(numbers: str) -> list[str]:
    return numbers.split(":")


def index_source(pin: SourcePin, recipe: Recipe, directory: Path | None) -> SourceIndex:
    """Index one pinned source; reads only data files and deletion vectors not seen before.

    Args:
        pin: What to index.
        recipe: From which columns days and hashes come.
        directory: Where this source's index files are kept; None keeps nothing.
    """
    known = _load_totals(directory)
    sizes = _sizes(pin)
    totals: dict[str, Mapping[int, DayTotal]] = {}
    kept: dict[str, str] = {}
    lost = []
    for file in pin.files:
        key = _key(pin, file, recipe)
        text = known.get(key)
        entry = None if text is None else _FileTotals.from_text(text)
        try:
            _ensure_whole(file, sizes.get(file.name))
            if entry is None or entry.deletion != _deletion_identity(file):
                entry = _FileTotals(_deletion_identity(file), _total(file, _rows_of(pin, file, recipe, directory)))
                text = entry.to_text()
            totals[file.name] = entry.days
        except (FileNotFoundError, SourceUnreadable) as error:
            lost.append(LostFile(file.name, _reason(file, error), _days_of_lost(pin, file, recipe, directory, entry)))
        if text is not None:
            kept[key] = text
    if directory is not None and kept != known:
        _store_totals(directory, kept)
    return SourceIndex(pin, totals, tuple(lost), recipe, directory)


def _sizes(pin: SourcePin) -> dict[str, int]:
    """Bytes of the files that are there, by listing their directories: a table has thousands of files and one directory."""
    sizes: dict[str, int] = {}
    for parent in {file.name.rpartition("/")[0] for file in pin.files}:
        try:
            with os.scandir(pin.table_dir / parent) as entries:
                sizes.update((f"{parent}/{entry.name}" if parent else entry.name, entry.stat().st_size) for entry in entries)
        except OSError:
            continue
    return sizes


def _ensure_whole(file: DataFile, size: int | None) -> None:
    """A cut or replaced file is found before anything is planned on what was once read of it."""
    if size is None:
        raise FileNotFoundError
    if size != file.bytes:
        raise _damaged(file, f"it has {size} bytes, its manifest says {file.bytes}")


def _deletion_identity(file: DataFile) -> str:
    return file.deletion.identity if file.deletion is not None else ""


def _reason(file: DataFile, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"'{error.filename or file.path}' is gone though its table references it; restore it from a backup"
    return str(error)


def _key(pin: SourcePin, file: DataFile, recipe: Recipe) -> str:
    """Names a data file's knowledge. Names are random ids, so with table and size they are one file's in any cache."""
    identity = f"{pin.table_uuid} {file.bytes} {file.rows} {recipe.identity} {file.name}"
    return blake2b(identity.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _live(file: DataFile) -> np.ndarray:
    live = np.ones(file.rows, dtype=bool)
    if file.deletion is not None:
        positions = deleted_positions(file.deletion)
        if len(positions) and positions[-1] >= file.rows:
            raise SourceUnreadable(f"deletion vector '{file.deletion.path}' deletes rows that '{file.path}' does not have")
        live[positions] = False
    return live


def _total(file: DataFile, rows: FileRows) -> dict[int, DayTotal]:
    live = _live(file)
    days, hashes = rows.days[live], rows.hashes[live]
    if not len(days):
        return {}
    order = np.argsort(days, kind="stable")
    distinct, starts, counts = np.unique(days[order], return_index=True, return_counts=True)
    sums = np.add.reduceat(hashes[order], starts)
    return {int(day): DayTotal(int(count), int(total)) for day, count, total in zip(distinct, counts, sums, strict=True)}


def _days_of_lost(
    pin: SourcePin, file: DataFile, recipe: Recipe, directory: Path | None, entry: _FileTotals | None
) -> frozenset[int] | None:
    if entry is not None:
        return frozenset(entry.days)
    rows = _load_rows(directory, _key(pin, file, recipe), file.rows)
    if rows is not None:
        return frozenset(np.unique(rows.days).tolist())
    bounds = pin.day_bounds(file, recipe.primary_timestamp) if recipe.primary_timestamp is not None else None
    return _days_between(bounds)


def _days_between(bounds: DayBounds | None) -> frozenset[int] | None:
    if bounds is None:
        return None
    undated = frozenset({NO_DAY}) if bounds.nulls else frozenset()
    if bounds.days is None:
        return undated
    first, last = bounds.days
    return frozenset(range(first, last + 1)) | undated if last - first <= _MAX_BOUND_DAYS else None


def _rows_of(pin: SourcePin, file: DataFile, recipe: Recipe, directory: Path | None) -> FileRows:
    """Days and hashes of a data file's rows, from its index file if there is one."""
    key = _key(pin, file, recipe)
    rows = _load_rows(directory, key, file.rows)
    if rows is None:
        rows = _read_rows(file, recipe)
        if directory is not None and file.rows >= _WORTH_KEEPING_ROWS:
            index_files.write(directory / key, _ROWS_FORMAT, rows.days.tobytes() + rows.hashes.tobytes())
    return rows


def _read_rows(file: DataFile, recipe: Recipe) -> FileRows:
    """Read the few columns the recipe names, a batch at a time."""
    try:
        with pq.ParquetFile(file.path, pre_buffer=False) as parquet:
            present = set(parquet.schema_arrow.names)
            names = [name for name in recipe.columns if name in present]
            batches = parquet.iter_batches(batch_size=_BATCH_ROWS, columns=names, use_threads=False)
            parts = [(raw_days(batch, recipe), row_hashes(batch, recipe)) for batch in batches]
    except FileNotFoundError:
        raise
    except UnicodeEncodeError:
        raise SourceUnreadable(f"data file '{file.path}' cannot be opened: its path is not UTF-8; rename the directory") from None
    # A damaged column name is no Arrow error: it is met when pyarrow makes text of it.
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise _damaged(file, str(error)) from None
    days = np.concatenate([np.empty(0, dtype="<i4"), *(days for days, _ in parts)], dtype="<i4")
    hashes = np.concatenate([np.empty(0, dtype="<u8"), *(hashes for _, hashes in parts)], dtype="<u8")
    if len(days) != file.rows:
        raise _damaged(file, f"it holds {len(days)} rows, its manifest says {file.rows}")
    return FileRows(days, hashes)


def _damaged(file: DataFile, what: str) -> SourceUnreadable:
    return SourceUnreadable(f"data file '{file.path}' is damaged: {what}; restore it from a backup")


def _load_rows(directory: Path | None, key: str, rows: int) -> FileRows | None:
    content = index_files.read(directory / key, _ROWS_FORMAT) if directory is not None else None
    if content is None:
        return None
    split = rows * np.dtype("<i4").itemsize
    return FileRows(np.frombuffer(content[:split], dtype="<i4"), np.frombuffer(content[split:], dtype="<u8"))


def _load_totals(directory: Path | None) -> dict[str, str]:
    """What is kept of each data file, by its key, as text."""
    content = index_files.read(directory / _TOTALS_FILE, _TOTALS_FORMAT) if directory is not None else None
    return {} if content is None else dict(json.loads(content))


def _store_totals(directory: Path, kept: Mapping[str, str]) -> None:
    """Keep what is known of these files and forget the files that are no longer part of the table."""
    index_files.write(directory / _TOTALS_FILE, _TOTALS_FORMAT, json.dumps(kept, separators=(",", ":")).encode())
    index_files.keep_only(directory, {MANIFESTS_FILE, _TOTALS_FILE, *kept})
