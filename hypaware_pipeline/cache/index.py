"""The row index of one source: which rows its data files hold, by day, without reading them twice.

Why two levels: of every data file, the identity and the hash of each row are kept in a file of its own; of every data file *under
its deletion vector*, rows and hash sum per day are kept together in one file per source. An unchanged table is judged from the
second alone; a purge re-aggregates the files it touched from the first, and who asks which rows a day has finds that day there;
only a new data file is read.

Why raw days (within tokens) are stored and not the partition they lead to: which days count as undated depends on today's date.
Folded when asked, a row of the future finds its day when that comes, and nothing stored is wrong.

Why a row without a sequence number has its content for a hash, and one without a timestamp for a token: nothing else of it says
that it is still what it was, or that its number is not another row's by now. Files with such rows are read whole, by what reads
rows for an export; all others in the few columns the recipe names.

Why a file that is lost still has days: the index or the manifest's bounds say which days it may touch. Those days list the source
as unreadable and every other day goes on. Only a file that neither knows condemns its whole source.
"""

import json
import os
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hypaware_pipeline.cache import index_files
from hypaware_pipeline.cache.day_rows import PLACE_BITS, DayRows
from hypaware_pipeline.cache.deletion_vectors import deleted_positions
from hypaware_pipeline.cache.row_hash import Recipe, row_hashes, sequences, tokens, untimed_tokens
from hypaware_pipeline.cache.snapshot import DataFile, DayBounds, SourcePin
from hypaware_pipeline.datasets import resolve_dataset
from hypaware_pipeline.errors import SourceUnreadable
from hypaware_pipeline.model import Day
from hypaware_pipeline.row_sets import NO_DAY, UNTIMED, raw_days_of

MANIFESTS_FILE = "manifests"
_TOTALS_FILE = "days"
_TOTALS_FORMAT = "days-3"
_ROWS_FORMAT = "rows-2"
_KEPT_OF_A_ROW = [np.dtype(kind) for kind in ("<u4", "<u8", "<i8", "<u8", "?")]
_BATCH_ROWS = 65_536
_HASH_RANGE = 1 << 64
# Wider bounds than a century are one absurd timestamp, and say nothing about which days the other rows are of.
_MAX_BOUND_DAYS = 36_525

_Identities: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Keys, tokens, hashes, and which rows have a sequence number, in the order of a file."""


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
    """The rows of one raw day in a data file, deleted ones included: ascending positions, the rest as in `DayRows`."""

    positions: np.ndarray
    keys: np.ndarray
    tokens: np.ndarray
    hashes: np.ndarray
    sequenced: np.ndarray

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what `to_bytes` wrote."""
        rows = len(content) // sum(kind.itemsize for kind in _KEPT_OF_A_ROW)
        borders = accumulate((kind.itemsize * rows for kind in _KEPT_OF_A_ROW), initial=0)
        return cls(*(np.frombuffer(content, kind, rows, start) for kind, start in zip(_KEPT_OF_A_ROW, borders, strict=False)))

    def to_bytes(self) -> bytes:
        """One array after the other."""
        arrays = (self.positions, self.keys, self.tokens, self.hashes, self.sequenced)
        return b"".join(array.astype(kind, copy=False).tobytes() for array, kind in zip(arrays, _KEPT_OF_A_ROW, strict=True))

    def placed(self, ordinal: int, live: np.ndarray) -> DayRows:
        """The live ones among them, in the pin's file of this number."""
        places = self.positions.astype(np.int64) | (ordinal << PLACE_BITS)
        rows = DayRows(self.keys, self.tokens, self.hashes, self.sequenced, places)
        return rows if live.all() else rows.where(live[self.positions])


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

    def live_positions(self, file: DataFile, wanted: Mapping[Day, Collection[int]]) -> dict[Day, np.ndarray]:
        """0-based positions (int64, ascending) of live rows in a readable data file, by what their raw days are called.

        Raises:
            FileNotFoundError: the data file or its deletion vector is gone.
            SourceUnreadable: it is damaged.
        """
        if not wanted:
            return {}
        if len(self.totals[file.name]) == 1 and file.deletion is None:
            # One day: every row is of it. A flush of conversations is such a file, and there are thousands.
            return {day: np.arange(file.rows) for day in wanted}
        live = _live(file)
        rows = _rows_of(self.pin, file, self._recipe, self._directory, {raw for days in wanted.values() for raw in days})
        found = {day: np.concatenate([rows[raw].positions for raw in days]).astype(np.int64) for day, days in wanted.items()}
        return {day: np.sort(positions[live[positions]]) for day, positions in found.items()}

    def live_rows(self, file: DataFile, ordinal: int, days: Collection[int]) -> DayRows:
        """The live rows that a readable data file has of some raw days, by position; `ordinal` is its place in the pin.

        Raises:
            FileNotFoundError, SourceUnreadable: as for `live_positions`.
        """
        live = _live(file)
        by_day = _rows_of(self.pin, file, self._recipe, self._directory, days)
        parts = [by_day[raw].placed(ordinal, live) for raw in days]
        if len(parts) == 1:
            return parts[0]
        rows = DayRows.together(parts)
        return rows.where(np.argsort(rows.places))


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
        recipe: From which columns tokens and hashes come.
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
        if not known.keys() <= kept.keys() or not known:
            index_files.keep_only(directory, {MANIFESTS_FILE, _TOTALS_FILE, *kept})
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


def _total(file: DataFile, by_day: Mapping[int, FileRows]) -> dict[int, DayTotal]:
    live = _live(file)
    kept = {day: rows.hashes[live[rows.positions]] for day, rows in by_day.items()}
    return {day: DayTotal(len(hashes), int(hashes.sum())) for day, hashes in kept.items() if len(hashes)}


def _days_of_lost(
    pin: SourcePin, file: DataFile, recipe: Recipe, directory: Path | None, entry: _FileTotals | None
) -> frozenset[int] | None:
    if entry is not None:
        return frozenset(entry.days)
    rows = _load_rows(directory, _key(pin, file, recipe), None)
    if rows is not None:
        return frozenset(rows)
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


def _rows_of(
    pin: SourcePin, file: DataFile, recipe: Recipe, directory: Path | None, days: Collection[int] | None = None
) -> Mapping[int, FileRows]:
    """The rows of a data file by raw day (None: of all days), from its index file if there is one."""
    key = _key(pin, file, recipe)
    rows = _load_rows(directory, key, days)
    if rows is None:
        every = _by_day(*_with_content(pin, file, *_read_rows(file, recipe)))
        if directory is not None:
            index_files.write_parts(directory / key, _ROWS_FORMAT, {day: rows.to_bytes() for day, rows in every.items()})
        rows = {day: rows for day, rows in every.items() if days is None or day in days}
    return rows


def _by_day(keys: np.ndarray, moments: np.ndarray, hashes: np.ndarray, sequenced: np.ndarray) -> dict[int, FileRows]:
    days = raw_days_of(moments)
    order = np.argsort(days, kind="stable")
    distinct, starts = np.unique(days[order], return_index=True)
    return {
        int(day): FileRows(at, keys[at], moments[at], hashes[at], sequenced[at])
        for day, at in zip(distinct, np.split(order, starts)[1:], strict=True)
    }


def _read_rows(file: DataFile, recipe: Recipe) -> _Identities:
    """Read the few columns the recipe names, a batch at a time. What only the content of a row tells is left open."""
    try:
        with pq.ParquetFile(file.path, pre_buffer=False) as parquet:
            present = set(parquet.schema_arrow.names)
            names = [name for name in recipe.columns if name in present]
            batches = parquet.iter_batches(batch_size=_BATCH_ROWS, columns=names, use_threads=False)
            parts = [(*sequences(batch), tokens(batch, recipe), row_hashes(batch, recipe)) for batch in batches]
    except FileNotFoundError:
        raise
    except UnicodeEncodeError:
        raise SourceUnreadable(f"data file '{file.path}' cannot be opened: its path is not UTF-8; rename the directory") from None
    # A damaged column name is no Arrow error: it is met when pyarrow makes text of it.
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise _damaged(file, str(error)) from None
    kinds = (np.uint64, bool, np.int64, np.uint64)
    nothing = tuple(np.empty(0, kind) for kind in kinds)
    keys, sequenced, moments, hashes = (np.concatenate(arrays) for arrays in zip(nothing, *parts, strict=True))
    if len(keys) != file.rows:
        raise _damaged(file, f"it holds {len(keys)} rows, its manifest says {file.rows}")
    return keys, moments, hashes, sequenced


def _with_content(
    pin: SourcePin, file: DataFile, keys: np.ndarray, moments: np.ndarray, hashes: np.ndarray, sequenced: np.ndarray
) -> _Identities:
    """The same, rows without a sequence number or without a timestamp known by their content."""
    untimed = moments < UNTIMED
    bare = untimed | ~sequenced
    if not bare.any():
        return keys, moments, hashes, sequenced
    from hypaware_pipeline.cache.content_hash import content_hashes

    # The columns of this source alone: another that comes or goes changes no row.
    dataset = resolve_dataset(pin.location.dataset, pin.columns)
    content = content_hashes(file.path, dataset, bare)
    known = np.where(sequenced, hashes, np.uint64(0)) + content  # which is 0 for those that need none
    return np.where(sequenced, keys, content), np.where(untimed, untimed_tokens(content), moments), known, sequenced


def _damaged(file: DataFile, what: str) -> SourceUnreadable:
    return SourceUnreadable(f"data file '{file.path}' is damaged: {what}; restore it from a backup")


def _load_rows(directory: Path | None, key: str, days: Collection[int] | None) -> dict[int, FileRows] | None:
    parts = index_files.read_parts(directory / key, _ROWS_FORMAT, days) if directory is not None else None
    return None if parts is None else {day: FileRows.from_bytes(part) for day, part in parts.items()}


def _load_totals(directory: Path | None) -> dict[str, str]:
    """What is kept of each data file, by its key, as text."""
    content = index_files.read(directory / _TOTALS_FILE, _TOTALS_FORMAT) if directory is not None else None
    return {} if content is None else dict(json.loads(content))


def _store_totals(directory: Path, kept: Mapping[str, str]) -> None:
    index_files.write(directory / _TOTALS_FILE, _TOTALS_FORMAT, json.dumps(kept, separators=(",", ":")).encode())
