"""What is to become of a day at a sink that keeps objects: the cache's rows against what the sink holds. Pure.

The unit is (source, generation): one object, replaced in place, and additions beside it.

Why rows are followed and not counted: a row may go to another source, or to its day when that comes, and is then not lost; a
count cannot tell that from a purge and a new row.

Why a unit that lost rows stays unless everything speaks for its replacement: retention, a restored backup and a half-finished
copy look like a purge, and what a sink holds may be the last copy. Then only what it lacks is added, in an object of its own.

Why rows that stay somewhere are left out everywhere else: a row in two objects is a row doubled.

Why an unchanged unit is not written again though its day is due: an hourly flush into one source must not rewrite its siblings,
nor a restored cache a year of objects.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from hypaware_pipeline.export.identity import Identified, identify
from hypaware_pipeline.model import (
    FIRST_GENERATION,
    UNSEQUENCED,
    Chain,
    ExportedFile,
    Generation,
    Kept,
    Part,
    Receipt,
    RowSet,
    SetAside,
    SourceName,
)
from hypaware_pipeline.row_sets import NO_DAY, Rows, pack, raw_days_of, unpack

if TYPE_CHECKING:
    from hypaware_pipeline.cache.day_rows import DayRows

T = TypeVar("T")

_DAY_MS = 86_400_000

Unit = tuple[SourceName, Generation]


@dataclass(frozen=True, slots=True)
class SourceState:
    """What is known of a source that can be read.

    Attributes:
        chain: The chain it is on.
        generation: Of its rows that nobody knows.
        cutoff_ms: The highest retention cut-off ever seen of it (UTC, epoch milliseconds); None when there was none.
        settled: Whether its table was left alone by deletions for a while.
    """

    chain: Chain
    generation: Generation
    cutoff_ms: int | None
    settled: bool

    def retires(self, raw_days: np.ndarray) -> np.ndarray:
        """Which raw days begin before the cut-off; rows without a day are never retired."""
        if self.cutoff_ms is None:
            return np.zeros(len(raw_days), bool)
        begun_before = raw_days.astype(np.int64) * _DAY_MS < self.cutoff_ms
        return np.asarray(begun_before & (raw_days != NO_DAY))


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where rows that left a day are now: in the cache on another day, and already exported there.

    A row whose day came is not lost. It leaves its old day once its new one has been exported.
    """

    cached: Sequence[Rows] = ()
    exported: Sequence[Rows] = ()


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that decides about one day of one (sink, dataset).

    Attributes:
        raw_day: The day's raw day; None for undated rows.
        rows: What the pin has of the day, by source that can be read.
        sources: Every pinned source that can be read, with or without rows of the day.
        unreadable: Sources that may hold rows of the day and cannot be read.
        migrated: Sources that HypAware emptied into others.
        standing: What the sink holds of the day.
        held_elsewhere: Rows of the day in files of other days that stay.
        moved: Where rows are that left the day.
        spoiled: Objects that do not lie at the destination as they were put.
        waited: Whether the very same rows were missing for a while, whatever befell their tables since.
        repair: Whether to write again what has not changed.
    """

    raw_day: int | None
    rows: "Mapping[SourceName, DayRows]"
    sources: Mapping[SourceName, SourceState]
    unreadable: Collection[SourceName] = ()
    migrated: Collection[SourceName] = ()
    standing: Receipt | None = None
    held_elsewhere: Sequence[Rows] = ()
    moved: Whereabouts = field(default_factory=Whereabouts)
    spoiled: Collection[str] = ()
    waited: bool = False
    repair: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """An object to be written. It says of its rows no more than an export needs of millions of them.

    Attributes:
        key: Where.
        mask: Which rows of its source go into it, in the order of the source's `DayRows`.
        place_sum: Sum of their places modulo 2^64: which rows they are, whatever their order.
        content: Digest of what they are.
        row_set: Which rows they are.
    """

    key: str
    source: SourceName
    generation: Generation
    chain: Chain
    mask: np.ndarray
    place_sum: int
    content: str
    row_set: RowSet


@dataclass(frozen=True, slots=True)
class Identities:
    """Place, key and token of every row of the source that a write is of, in the order of its mask."""

    places: np.ndarray
    keys: np.ndarray
    tokens: np.ndarray

    def at(self, places: Sequence[int]) -> np.ndarray:
        """The mask of the rows at some places."""
        return np.isin(self.places, np.array(places, dtype=np.int64))

    def row_set(self, mask: np.ndarray) -> RowSet:
        """The rows of a mask, which are of one generation."""
        return pack(Rows.of(self.keys[mask], self.tokens[mask]))

    def narrowed(self, write: Write, mask: np.ndarray) -> Write:
        """A write with fewer rows."""
        return replace(write, mask=mask, place_sum=place_sum(self.places[mask]), row_set=self.row_set(mask))


@dataclass(frozen=True, slots=True)
class DayWork:
    """What there is to do for a day.

    Attributes:
        writes: Objects to write.
        stays: Objects that stay as they are. Every other object of the day is to be removed.
        set_aside: Rows that were not sent before and are not tried again.
        kept_rows: Rows in objects that stay which the cache has no more.
        kept: Why they stay.
        elsewhere_rows: Rows left out because an object of another day has them.
    """

    writes: Sequence[Write]
    stays: Sequence[ExportedFile]
    set_aside: Sequence[SetAside]
    kept_rows: int
    kept: Kept
    elsewhere_rows: int


_MOST_RESOLVABLE = (Kept.SETTLING, Kept.MOVING, Kept.UNPROVEN, Kept.FROZEN, Kept.GONE, Kept.UNREADABLE)


def reconcile(situation: Situation, name: Callable[[Part], str]) -> DayWork:
    """Decide about a day. `name` gives the key of an object by what it holds."""
    return _Reconciliation(situation, name).work()


def identities_of(situation: Situation, name: Callable[[Part], str], source: SourceName) -> Identities:
    """What `reconcile`, asked the same, took the rows of a source for."""
    return _Reconciliation(situation, name).identities(source)


def place_sum(places: np.ndarray) -> int:
    """The sum of places modulo 2^64."""
    return int(places.sum()) % 2**64


class _Reconciliation:
    """One day, judged: first every unit that the sink has, then what to write of those that the cache has."""

    def __init__(self, situation: Situation, name: Callable[[Part], str]) -> None:
        self._situation = situation
        self._name = name
        standing = situation.standing
        self._files = _grouped(() if standing is None else standing.files, lambda file: (file.source, file.generation))
        self._held = {unit: Rows.together(unpack(file.row_set) for file in files) for unit, files in self._files.items()}
        aside = () if standing is None else standing.set_aside
        self._aside = _grouped(aside, lambda each: (each.source, each.generation))
        known = _by_generation(
            [*self._held.items(), *((unit, unpack(e.row_set)) for unit, es in self._aside.items() for e in es)]
        )
        current = {source: situation.sources[source].generation for source in situation.rows}
        self._identified = identify(situation.rows, known, current)
        self._cached = {
            (source, generation): (identified.rows(mask), mask)
            for source, identified in self._identified.items()
            for generation, mask in identified.by_generation()
        }
        self._in_cache = _by_generation([(unit, rows) for unit, (rows, _) in self._cached.items()])
        self._unclaimed: Counter[int] | None = None
        self._why = {unit: self._judge(unit) for unit in sorted(self._held)}
        self._staying = {unit: rows for unit, rows in self._held.items() if self._stays(unit)}

    def work(self) -> DayWork:
        elsewhere = 0
        writes: list[Write] = []
        stays = [file for unit in self._staying for file in self._files[unit]]
        set_aside: list[SetAside] = []
        staying = _by_generation(self._staying.items())
        for unit in sorted(self._cached):
            rows, mask = self._cached[unit]
            source, generation = unit
            identified = self._identified[source]
            left = mask & ~_found([staying.get(generation, Rows.none())], identified)
            abroad = left & _found(self._situation.held_elsewhere, identified)
            elsewhere += int(abroad.sum())
            left &= ~abroad
            if unit in self._staying:
                again = [self._still_aside(each, rows) for each in self._aside.get(unit, ())]
                set_aside += [each for each in again if each.row_set.rows]
                left &= ~_found([unpack(each.row_set) for each in again], identified)
            if not left.any():
                continue
            write = self._write(unit, left)
            unchanged = self._unchanged(write)
            if unchanged is None:
                writes.append(write)
            else:
                stays.append(unchanged)
        lost = {unit: len(held.without(self._in_cache.get(unit[1], Rows.none()))) for unit, held in self._staying.items()}
        whys = {self._why[unit] for unit, rows in lost.items() if rows}
        whys |= {Kept.MOVING} if elsewhere else set()
        kept = next((why for why in _MOST_RESOLVABLE if why in whys), Kept.NOTHING)
        return DayWork(writes, sorted(stays, key=lambda file: file.key), set_aside, sum(lost.values()), kept, elsewhere)

    def identities(self, source: SourceName) -> Identities:
        identified = self._identified[source]
        return Identities(self._situation.rows[source].places, identified.keys, identified.tokens)

    # --- judging what the sink holds -------------------------------------------------------------------------------------------

    def _judge(self, unit: Unit) -> Kept:
        """Why a unit at the sink may not be replaced or removed; NOTHING when it may."""
        source, generation = unit
        if source in self._situation.unreadable:
            return Kept.UNREADABLE
        lost = self._held[unit].without(self._in_cache.get(generation, Rows.none()))
        state = self._situation.sources.get(source)
        arrived = _union_mask(self._situation.moved.exported, lost)
        if state is None:
            return self._judge_gone(unit, Rows(lost.keys[~arrived], lost.tokens[~arrived]))
        moved = _union_mask(self._situation.moved.cached, lost)
        left = ~(moved | arrived)
        vanished = Rows(lost.keys[left], lost.tokens[left])
        if len(vanished):
            if state.retires(raw_days_of(vanished.tokens)).any():
                return Kept.FROZEN
            if any(file.chain != state.chain for file in self._files[unit]):
                return Kept.UNPROVEN
            if not (state.settled or self._situation.waited):
                return Kept.SETTLING
        return Kept.MOVING if (moved & ~arrived).any() else Kept.NOTHING

    def _judge_gone(self, unit: Unit, lost: Rows) -> Kept:
        """A source that is no more: its rows may have gone to another, as they were or, by migration, numbered anew."""
        if not len(lost):
            return Kept.NOTHING
        if unit[0] in self._situation.migrated and self._claim(Counter(lost.tokens.tolist())):
            return Kept.NOTHING
        return Kept.GONE

    def _claim(self, tokens: Counter[int]) -> bool:
        """Whether rows of the cache that the sink has under no identity have these tokens; they are nobody else's then.

        By their tokens and not by their number: what retention took before a migration is none of the rows that came since.
        """
        if self._unclaimed is None:
            held = _by_generation(self._held.items())
            new = (rows.without(held.get(generation, Rows.none())) for (_, generation), (rows, _) in self._cached.items())
            self._unclaimed = Counter(token for rows in new for token in rows.tokens.tolist())
        if tokens - self._unclaimed:
            return False
        self._unclaimed -= tokens
        return True

    def _stays(self, unit: Unit) -> bool:
        """Whether what the sink has of a unit is left as it is, and at most added to."""
        if self._why[unit] is not Kept.NOTHING:
            return True
        if any(file.key in self._situation.spoiled for file in self._files[unit]):
            return False
        state = self._situation.sources.get(unit[0])
        raw_day = self._situation.raw_day
        if state is None or raw_day is None or not state.retires(np.array([raw_day], np.int32))[0]:
            return False
        # A frozen day is added to. Only the very same rows may be written again.
        rows, _ = self._cached.get(unit, (Rows.none(), None))
        return len(rows) != len(self._held[unit]) or bool(len(rows.without(self._held[unit])))

    # --- deciding what to write ------------------------------------------------------------------------------------------------

    def _write(self, unit: Unit, mask: np.ndarray) -> Write:
        source, generation = unit
        identified = self._identified[source]
        keys = identified.keys[mask]
        span = (int(keys.min()), int(keys.max())) if unit in self._staying else None
        rows = self._situation.rows[source]
        return Write(
            key=self._key(unit, span),
            source=source,
            generation=generation,
            chain=self._situation.sources[source].chain,
            mask=mask,
            place_sum=place_sum(rows.places[mask]),
            content=f"{int(mask.sum())}-{int(rows.hashes[mask].sum(dtype=np.uint64)):016x}",
            row_set=pack(identified.rows(mask)),
        )

    def _key(self, unit: Unit, span: tuple[int, int] | None) -> str:
        """Where an object lies: under the name it has. A new one gets the mark of its generation if that must be told."""
        source, generation = unit
        plain, marked = (self._name(Part(source, mark, span)) for mark in (None, generation))
        holders = {file.key: holder for holder, files in self._files.items() for file in files}
        if marked in holders or holders.get(plain, unit) != unit:
            return marked
        unmarked = [(source, FIRST_GENERATION), (source, UNSEQUENCED)]
        first = next((each for each in unmarked if each in self._cached), None)
        return plain if plain in holders or unit == first else marked

    def _unchanged(self, write: Write) -> ExportedFile | None:
        """The object that already holds what would be written, and need not be written again."""
        files = self._files.get((write.source, write.generation), ())
        if self._situation.repair or len(files) != 1:
            return None
        (file,) = files
        if file.key in self._situation.spoiled:
            return None
        if (file.key, file.content) != (write.key, write.content):
            return None
        return replace(file, chain=write.chain) if file.row_set == write.row_set else None

    def _still_aside(self, each: SetAside, rows: Rows) -> SetAside:
        """The part of what was set aside that the cache still has."""
        aside = unpack(each.row_set)
        return replace(each, row_set=pack(aside.without(aside.without(rows))))


def _grouped(items: Iterable[T], unit_of: Callable[[T], Unit]) -> dict[Unit, list[T]]:
    groups: dict[Unit, list[T]] = {}
    for item in items:
        groups.setdefault(unit_of(item), []).append(item)
    return groups


def _by_generation(units: Iterable[tuple[Unit, Rows]]) -> dict[Generation, Rows]:
    parts: dict[Generation, list[Rows]] = {}
    for (_, generation), rows in units:
        parts.setdefault(generation, []).append(rows)
    return {generation: Rows.together(rows) for generation, rows in parts.items()}


def _found(sets: Iterable[Rows], identified: Identified) -> np.ndarray:
    """Which rows are in any of some sets."""
    mask = np.zeros(len(identified.keys), bool)
    for rows in sets:
        mask |= rows.find(identified.keys, identified.tokens)[0]
    return mask


def _union_mask(sets: Iterable[Rows], rows: Rows) -> np.ndarray:
    mask = np.zeros(len(rows), bool)
    for each in sets:
        mask |= each.find(rows.keys, rows.tokens)[0]
    return mask
