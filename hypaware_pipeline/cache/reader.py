"""The facade over a cache: its datasets, the pin of one, what each day holds, and the rows.

Why a pin indexes at once: what a day holds and where its rows lie must be said of the same files. Whoever holds a pin can plan
and read without meeting a half of each.

Why all cursors are read again after the last table: HypAware moves rows between sources of a dataset. A swap in between would
show such a row twice or not at all, and it always changes a cursor.

Why a source that lost a file of a day gives none of that day: what it still has would replace the whole at a destination.

Why a fingerprint does not hold the date before which future rows count as undated: when a future row's day comes, the row leaves
`undated` and joins its day, which changes count and hash sum of both; with the date in it, `undated` would change every midnight.

Why a subset of a day's rows is chosen by masks over `rows_of`: who decides which rows go into an object knows them by their
identities, and has them in that order already. The rows themselves come in the order of the whole day.

Why only what vanished becomes `PinLost`: pinning again helps when HypAware removed a generation, never when a file is damaged.
"""

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from hypaware_pipeline.cache import index_files
from hypaware_pipeline.cache.day_rows import DayRows
from hypaware_pipeline.cache.index import MANIFESTS_FILE, DayTotal, SourceIndex, index_source
from hypaware_pipeline.cache.layout import SourceLocation, dataset_names, migrated_sources, resolve_root, source_locations
from hypaware_pipeline.cache.manifests import ManifestMemory
from hypaware_pipeline.cache.row_hash import Recipe
from hypaware_pipeline.cache.snapshot import SourcePin, SourceVersion, pin_source, source_version
from hypaware_pipeline.datasets import resolve_dataset
from hypaware_pipeline.errors import PinLost, SourceUnreadable
from hypaware_pipeline.model import UNDATED, Dataset, DatasetName, Day, Fingerprint, PartitionSummary, SourceName, date_of, day_of

if TYPE_CHECKING:
    import pyarrow as pa

    from hypaware_pipeline.cache.scan import FileSlice, Scan

FLOOR = Day("2023-01-01")
"""Rows before this day are undated: one absurd timestamp must not make thousands of empty partitions."""
_PIN_ATTEMPTS = 5
_INDEX_GENERATION = "v2"
_EPOCH_ORDINAL = dt.date(1970, 1, 1).toordinal()
# A clock may be wrong by a time zone; a row more than a day ahead is of no day yet.
_DAYS_AHEAD = 1


@dataclass(frozen=True, slots=True)
class HomeDays:
    """Which raw days are partitions of their own: from `first` to `last`, in days since 1970-01-01; all others are undated."""

    first: int
    last: int

    @classmethod
    def at(cls, now: dt.datetime, floor: Day) -> Self:
        """The window at an instant."""
        today = now.astimezone(dt.UTC).date().toordinal() - _EPOCH_ORDINAL
        return cls(date_of(floor).toordinal() - _EPOCH_ORDINAL, today + _DAYS_AHEAD)

    def of(self, raw: int) -> Day:
        """The home day of a raw day."""
        return day_of(dt.date.fromordinal(raw + _EPOCH_ORDINAL)) if self.first <= raw <= self.last else UNDATED


class Cache:
    """HypAware's cache, read only.

    Args:
        root: The directory that holds `datasets/`, or the one that holds `cache/datasets/`; need not exist yet.
        index_dir: Where the row index is kept; private to this cache. May be removed at any time.
        clock: The current time, with a time zone.
        floor: The first day that is a partition.
    """

    def __init__(self, root: Path, *, index_dir: Path, clock: Callable[[], dt.datetime], floor: Day = FLOOR) -> None:
        self._root = root
        self._index_dir = index_dir / _INDEX_GENERATION
        self._clock = clock
        self._floor = floor

    def dataset_names(self) -> tuple[DatasetName, ...]:
        """Datasets with at least one source, sorted; reads directories only.

        Raises:
            CacheMissing: there is no cache.
        """
        return dataset_names(resolve_root(self._root))

    def pin(self, name: DatasetName) -> "DatasetPin":
        """Pin and index all sources of a dataset as they are now. A dataset the cache does not have is pinned as empty.

        Sources that cannot be read are listed in the pin and stop no other.

        Raises:
            CacheMissing: there is no cache.
            PinLost: HypAware kept swapping tables while they were pinned.
        """
        root = resolve_root(self._root)
        for attempt in range(_PIN_ATTEMPTS):
            pin = self._pin_once(root, name)
            # A file may be missing because a table was swapped meanwhile. On the last attempt it is reported as it is.
            if pin.has_losses and attempt + 1 < _PIN_ATTEMPTS and not pin.still_current():
                continue
            if pin.same_tables():
                return pin
        raise PinLost(f"dataset '{name}': its tables were swapped {_PIN_ATTEMPTS} times while they were pinned; try again")

    def earliest_day(self) -> Day | None:
        """The first dated day with rows over all datasets; None when there is none. What cannot be read is left out.

        Raises:
            CacheMissing: there is no cache.
        """
        days: list[Day] = []
        for name in self.dataset_names():
            try:
                days.extend(day for day, summary in self.pin(name).partitions().items() if day != UNDATED and summary.rows)
            except PinLost:
                continue
        return min(days, default=None)

    def _pin_once(self, root: Path, name: DatasetName) -> "DatasetPin":
        locations = source_locations(root, name)
        pins: dict[SourceName, SourcePin] = {}
        unreadable: dict[SourceName, str] = {}
        for location in locations:
            directory = self._source_dir(location)
            try:
                pins[location.source] = pin_source(location, ManifestMemory(directory / MANIFESTS_FILE))
            except SourceUnreadable as error:
                unreadable[location.source] = str(error)
        if locations:
            # With no source at all the disk may just not be mounted.
            known = {self._source_dir(location).name for location in locations}
            index_files.keep_only(self._index_dir / _digest(name), known)
        dataset = resolve_dataset(name, (column for pin in pins.values() for column in pin.columns))
        recipe = Recipe.of(dataset)
        return DatasetPin(
            root=root,
            dataset=dataset,
            indexes={source: index_source(pin, recipe, self._source_dir(pin.location)) for source, pin in pins.items()},
            unreadable=unreadable,
            migrated=migrated_sources(root, name),
            home_days=HomeDays.at(self._clock(), self._floor),
        )

    def _source_dir(self, location: SourceLocation) -> Path:
        """Names are other people's text; their digests are safe directory names."""
        return self._index_dir / _digest(location.dataset) / _digest(location.source)


class DatasetPin:
    """All sources of a dataset at one moment, and what each day holds. Built by `Cache.pin`.

    Attributes:
        dataset: Declared columns united with those of all pinned tables.
        unreadable: Sources of which nothing can be said, with the reason; each may hold rows of any day.
        migrated: What sources were called whose rows HypAware moved into others, as a new layout demanded.
    """

    def __init__(
        self,
        *,
        root: Path,
        dataset: Dataset,
        indexes: Mapping[SourceName, SourceIndex],
        unreadable: Mapping[SourceName, str],
        migrated: frozenset[SourceName],
        home_days: HomeDays,
    ) -> None:
        self.dataset = dataset
        condemned = {source: lost.reason for source, index in indexes.items() for lost in index.lost if lost.days is None}
        self.unreadable: Mapping[SourceName, str] = {**unreadable, **condemned}
        self.migrated = migrated
        self._root = root
        self._indexes = indexes
        self._home_days = home_days
        self._unpinned = frozenset(unreadable)
        self._totals: dict[Day, dict[SourceName, DayTotal]] = {}
        self._partitions = self._summarise()

    @property
    def sources(self) -> frozenset[SourceName]:
        """The sources that were pinned; what is known of any other is only that it cannot be read."""
        return frozenset(self._indexes.keys() - self.unreadable.keys())

    @property
    def has_losses(self) -> bool:
        """Whether a file of a pinned source could not be read."""
        return any(index.lost for index in self._indexes.values())

    def partitions(self) -> Mapping[Day, PartitionSummary]:
        """Every day with live rows, or with a file that may hold some and cannot be read; `UNDATED` included."""
        return self._partitions

    def summary(self, day: Day) -> PartitionSummary:
        """One day; zero rows when the dataset has none of it."""
        return self._partitions.get(day) or self._summary(day, {}, {})

    def without(self, day: Day, broken: Mapping[SourceName, str]) -> PartitionSummary:
        """One day less the sources that turned out to be damaged while they were read, each with the reason.

        Its fingerprint is not the day's: what was exported of it stays due until the sources can be read.
        """
        return self._summary(day, self._totals.get(day, {}), {**self.summary(day).unreadable, **broken})

    def source_pin(self, source: SourceName) -> SourcePin:
        """The pin of a source, also of one that lost a file.

        Raises:
            KeyError: it was not pinned.
        """
        return self._indexes[source].pin

    def home_day(self, raw: int) -> Day:
        """The day that a raw day (days since 1970-01-01) leads to."""
        return self._home_days.of(raw)

    def rows_of(self, day: Day) -> Mapping[SourceName, DayRows]:
        """The rows of a day by readable source: those that `summary` counts.

        Raises:
            PinLost: a file vanished and HypAware changed the dataset meanwhile; pin again.
            SourceUnreadable: a file is gone or damaged.
        """
        return {source: self._rows(source, day) for source in self.summary(day).rows_by_source}

    def table_rows(self, source: SourceName) -> DayRows:
        """All live rows of a pinned source, whatever their day, as far as its files can be read.

        Raises:
            PinLost, SourceUnreadable: as for `rows_of`.
            KeyError: it was not pinned.
        """
        return self._rows(source, None)

    def _rows(self, source: SourceName, day: Day | None) -> DayRows:
        index = self._indexes[source]
        parts = []
        with self.losses_explained(source):
            for ordinal, file in enumerate(index.pin.files):
                days = [raw for raw in index.totals.get(file.name, ()) if day is None or self._home_days.of(raw) == day]
                if days:
                    parts.append(index.live_rows(file, ordinal, days))
        return DayRows.together(parts)

    @contextmanager
    def losses_explained(self, source: SourceName) -> Iterator[None]:
        """Say of a file that turns out to be gone whether pinning again helps.

        Raises:
            PinLost: HypAware changed the dataset meanwhile.
            SourceUnreadable: it did not.
        """
        try:
            yield
        except FileNotFoundError as error:
            gone = f"dataset '{self.dataset.name}', source '{source}': a file is gone ({error})"
            if self.still_current():
                raise SourceUnreadable(f"{gone} though its table references it; restore it from a backup") from None
            raise PinLost(f"{gone}: HypAware changed the tables while they were read; pin again") from None

    def read(
        self,
        days: Sequence[Day],
        *,
        spill_dir: Path,
        memory_bytes: int,
        only: Mapping[SourceName, np.ndarray] | None = None,
        between: Callable[[], None] = lambda: None,
    ) -> AbstractContextManager["PinReader"]:
        """Open the rows of some days for reading; each row group that holds any of them is read once.

        Args:
            days: The days that will be asked for.
            spill_dir: Where rows of days not asked yet may wait.
            memory_bytes: What sorting may hold at a time.
            only: With a single day: which of its rows, as masks over `rows_of`. A source that is not named gives all of them.
            between: Called again and again while files are read, in any thread; what it raises ends the reading.

        Raises:
            ValueError: `only` does not fit the days.
        """
        if only is not None and (len(days) != 1 or not self._fits(days[0], only)):
            raise ValueError(f"masks of {sorted(only)} are not over the rows of {', '.join(days)}")
        return PinReader(self, days, spill_dir=spill_dir, memory_bytes=memory_bytes, only=only or {}, between=between)

    def _fits(self, day: Day, only: Mapping[SourceName, np.ndarray]) -> bool:
        rows = self.summary(day).rows_by_source
        return all(len(mask) == rows.get(source, 0) for source, mask in only.items())

    def same_tables(self) -> bool:
        """Whether the dataset still has these sources with these live tables; flushes into them do not matter."""
        return self._unchanged(lambda version: (version.table_dir, version.retention_cutoff_ms))

    def still_current(self) -> bool:
        """Whether nothing at all changed since the pin: then what is missing now was not swapped away, it is gone."""
        return self._unchanged(lambda version: version)

    def _unchanged(self, view: Callable[[SourceVersion], object]) -> bool:
        now = {location.source: location for location in source_locations(self._root, self.dataset.name)}
        try:
            return now.keys() == self._indexes.keys() | self._unpinned and all(
                view(source_version(now[source])) == view(index.pin.version) for source, index in self._indexes.items()
            )
        except SourceUnreadable:
            return False

    def _summarise(self) -> dict[Day, PartitionSummary]:
        unreadable: dict[Day, dict[SourceName, str]] = {}
        for source, index in self._indexes.items():
            for raw, total in index.by_day().items():
                of_day = self._totals.setdefault(self._home_days.of(raw), {})
                of_day[source] = of_day[source] + total if source in of_day else total
            for lost in index.lost:
                for raw in lost.days or ():
                    unreadable.setdefault(self._home_days.of(raw), {})[source] = lost.reason
        days = sorted(self._totals.keys() | unreadable.keys())
        return {day: self._summary(day, self._totals.get(day, {}), unreadable.get(day, {})) for day in days}

    def _summary(self, day: Day, totals: Mapping[SourceName, DayTotal], lost: Mapping[SourceName, str]) -> PartitionSummary:
        unreadable = {**lost, **self.unreadable}
        readable = {source: total for source, total in sorted(totals.items()) if source not in unreadable}
        return PartitionSummary(
            dataset=self.dataset.name,
            day=day,
            rows_by_source={source: total.rows for source, total in readable.items()},
            fingerprint=_fingerprint(readable, sorted(unreadable)),
            removed_at=self._removed_at(),
            unreadable=unreadable,
        )

    def _removed_at(self) -> dt.datetime | None:
        return max((index.pin.removed_at for index in self._indexes.values() if index.pin.removed_at is not None), default=None)

    def slices(self, source: SourceName, days: frozenset[Day], mask: np.ndarray | None) -> "list[FileSlice]":
        """Where live rows of some days lie in each of a source's files; of one day those a mask chooses. For `PinReader`.

        Raises:
            FileNotFoundError: a file is gone.
            SourceUnreadable: a file is damaged.
        """
        from hypaware_pipeline.cache.scan import FileSlice

        index = self._indexes[source]
        slices = []
        passed = 0
        for file in index.pin.files:
            by_home: dict[Day, list[int]] = {}
            for raw in index.totals.get(file.name, ()):
                by_home.setdefault(self._home_days.of(raw), []).append(raw)
            wanted = index.live_positions(file, {day: raws for day, raws in by_home.items() if day in days})
            if mask is not None:
                for day, positions in wanted.items():
                    wanted[day] = positions[mask[passed : passed + len(positions)]]
                    passed += len(positions)
            slices.append(FileSlice(file.path, wanted))
        return slices


class PinReader:
    """The rows of some days of a pin, as a context manager. Built by `DatasetPin.read`."""

    def __init__(
        self,
        pin: DatasetPin,
        days: Sequence[Day],
        *,
        spill_dir: Path,
        memory_bytes: int,
        only: Mapping[SourceName, np.ndarray],
        between: Callable[[], None],
    ) -> None:
        self._pin = pin
        self._between = between
        self._days = frozenset(days)
        self.spill_dir = spill_dir
        self._memory_bytes = memory_bytes
        self._only = only
        self._scans: dict[SourceName, Scan] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Nothing is read before the first `batches`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Close all scans and remove what they spilled."""
        return self._open.__exit__(kind, error, traceback)

    def batches(self, day: Day, source: SourceName) -> "Iterator[pa.RecordBatch]":
        """The wanted rows of one day of one source, each once, sorted by the lookup key. Each pair is asked once.

        Batches carry the dataset's columns, then the sequence, problem and place columns.

        Raises:
            PinLost: a file vanished and HypAware changed the dataset meanwhile; pin again.
            SourceUnreadable: a file is gone or damaged, or the day of this source was unreadable from the start.
        """
        summary = self._pin.summary(day)
        if source in summary.unreadable:
            raise SourceUnreadable(summary.unreadable[source])
        if source not in summary.rows_by_source:
            return
        with self._pin.losses_explained(source):
            yield from self._scan(source).batches(day)

    def _scan(self, source: SourceName) -> "Scan":
        """One scan per source for all days, so that a file is read once whatever the order of the days."""
        from hypaware_pipeline.cache.scan import Scan

        if source not in self._scans:
            days = frozenset(day for day in self._days if source in self._pin.summary(day).rows_by_source)
            slices = self._pin.slices(source, days, self._only.get(source))
            scan = Scan(
                self._pin.dataset,
                slices,
                spill_dir=self.spill_dir,
                memory_bytes=self._memory_bytes,
                between=self._between,
            )
            self._scans[source] = self._open.enter_context(scan)
        return self._scans[source]


def _fingerprint(totals: Mapping[SourceName, DayTotal], unreadable: Sequence[SourceName]) -> Fingerprint:
    """Rows, and a digest of rows and hash sum per source: moving rows between sources changes it, moving files does not."""
    content = [[[source, total.rows, total.hash_sum] for source, total in totals.items()], list(unreadable)]
    return Fingerprint(f"{sum(total.rows for total in totals.values())}-{_digest(json.dumps(content))}")


def _digest(text: str) -> str:
    # surrogateescape: a directory name need not be valid UTF-8.
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
