"""What is due: the row index against the ledger. Pure; the same input gives the same plan.

Why a day is due by its fingerprint alone: which of its rows a sink lacks, and what may be written anew, is decided where the rows
are known (`reconcile`). What it decides stands in the receipt with the fingerprint it was decided by, so that a day of which
nothing can be done is due once and not at every tick.

Why some days are due although nothing changed: what stays at a sink until a removal has settled, until another day is exported,
or until someone accepts its loss, leaves when that has happened. Only the receipt knows.

Why a day is due whose export began and did not end: what that left at the sink may be of a state that has been taken back since,
and only an export looks at it and removes it.

Why a day that failed is due although it is as it was exported last: somebody asked for it (a backfill, `--all`), and was told
that it is tried again.

Why a day whose rows are missing settles by itself, too: HypAware compacts its tables every hour, which counts as a removal since
nothing tells what it left out. A purge would otherwise wait for an hour in which that happens at another time.

Why a changed sink makes days due: a receipt speaks of the destination it was written for. Another place, format or codec is
another copy, and nothing of it exists yet. Such days are *stale*; days whose rows changed in the cache *drifted*. The two are
told apart wherever days are counted, since a person who changed a config by mistake can take back the one and not the other.

Why a dataset without any source makes nothing due: a disk that is not mounted looks like that.

Why bytes are guessed from rows: what a day will weigh is known only once it is encoded. The last copy of the day is the best
guess, then those of the dataset's other days; without either there is none.
"""

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from hypaware_pipeline.model import UNDATED, DatasetName, Day, Fingerprint, Kept, PartitionSummary, SinkName, SourceName

REMOVAL_SETTLES_AFTER = dt.timedelta(minutes=15)
"""How long a table must have been left alone by deletions before a day that lost rows is written anew. A whole retention pass
took 1.4 s when measured; a machine that sleeps in the middle of one takes longer."""


class Reason(StrEnum):
    """Why a day is due, or why it is not."""

    NEW = "new"
    CHANGED = "drift: its rows changed in the cache since its last export"
    SINK_CHANGED = "stale: the sink's place or settings changed since its last export"
    SETTLED = "rows that were removed from the cache may leave the sink now"
    UNREADABLE = "a source cannot be read"
    ASKED = "asked for"
    RETRY = "its last export failed; it is to be tried again"
    UNFINISHED = "its last export was cut off; what it left at the sink has to be looked at"
    WAITING = "its last export failed; it is tried again later"
    SETTLING = "rows were removed a moment ago; the copy at the sink stays until the removal has settled"
    FROZEN = "the cache no longer holds the day whole; the copy at the sink stays as it is"
    UNCHANGED = "unchanged"

    @property
    def word(self) -> str:
        """The reason in a word, to count by."""
        return _WORDS[self]


_WORDS = {
    Reason.NEW: "new",
    Reason.CHANGED: "drift",
    Reason.SINK_CHANGED: "stale",
    Reason.SETTLED: "settled",
    Reason.UNREADABLE: "unreadable",
    Reason.ASKED: "asked",
    Reason.RETRY: "retry",
    Reason.UNFINISHED: "unfinished",
    Reason.WAITING: "waiting",
    Reason.SETTLING: "settling",
    Reason.FROZEN: "kept",
    Reason.UNCHANGED: "unchanged",
}

_DUE = frozenset(
    {
        Reason.NEW,
        Reason.CHANGED,
        Reason.SINK_CHANGED,
        Reason.SETTLED,
        Reason.UNREADABLE,
        Reason.ASKED,
        Reason.RETRY,
        Reason.UNFINISHED,
    }
)


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of an exported day: of which content, at which destination, and how many rows it holds there.

    `version` is higher than that of every day that was exported before; the rest as in `Receipt`.
    """

    fingerprint: Fingerprint
    destination: str
    rows: int
    exported_rows: int = 0
    bytes: int = 0
    kept: Kept = Kept.NOTHING
    version: int = 0
    exported_at: str = ""


@dataclass(frozen=True, slots=True)
class PlannedDay:
    """One day of one (sink, dataset), with what there is to do and why.

    Attributes:
        unreadable: As in `PartitionSummary`.
        bytes: What its objects will weigh, as far as the last copies tell; None when there are none to tell.
        again: Whether the day was exported before.
    """

    sink: SinkName
    dataset: DatasetName
    day: Day
    rows: int
    reason: Reason
    unreadable: Mapping[SourceName, str] = field(default_factory=dict)
    bytes: int | None = None
    again: bool = False

    @property
    def due(self) -> bool:
        """Whether the day is to be exported."""
        return self.reason in _DUE


def plan_days(
    *,
    sink: SinkName,
    dataset: DatasetName,
    summaries: Mapping[Day, PartitionSummary],
    standing: Mapping[Day, Standing],
    destination: str,
    now: dt.datetime,
    retries: Mapping[Day, dt.datetime] | None = None,
    patient: bool = True,
    unfinished: Collection[Day] = (),
    mounted: bool = True,
    every: bool = False,
) -> tuple[PlannedDay, ...]:
    """Judge every day that the cache or the ledger knows of one (sink, dataset), oldest first, `UNDATED` last.

    Args:
        sink: For whom.
        dataset: Of what.
        summaries: One for every day of `standing`, `retries` and `unfinished` too, with zero rows where the cache has none.
        standing: What was exported, by day.
        destination: Digest of the destination as it is configured now.
        now: The time now, in UTC.
        retries: Days in the retry queue, each with the time at which it is due.
        patient: Whether these are due in their time only, and not at once.
        unfinished: Days of which an export began and did not end.
        mounted: Whether the cache has any source of the dataset.
        every: Whether unchanged days are due as well.
    """
    planned = []
    of_dataset = sum(each.bytes for each in standing.values()), sum(each.exported_rows for each in standing.values())
    newest = max((each.version for each in standing.values()), default=0)
    moment = _Moment(destination, now, newest, patient, unfinished, mounted, every)
    for day in sorted({*summaries, *standing}, key=_order):
        summary, copy = summaries[day], standing.get(day)
        reason = _judge(summary, copy, (retries or {}).get(day), moment)
        size = _guess(summary.rows, (copy.bytes, copy.exported_rows) if copy and copy.exported_rows else of_dataset)
        again = copy is not None
        planned.append(PlannedDay(sink, dataset, day, summary.rows, reason, summary.unreadable, size, again))
    return tuple(planned)


@dataclass(frozen=True, slots=True)
class _Moment:
    """What is the same for all days of a plan; `newest` is the version of the last export of any of them."""

    destination: str
    now: dt.datetime
    newest: int
    patient: bool
    unfinished: Collection[Day]
    mounted: bool
    every: bool


def _guess(rows: int, like: tuple[int, int]) -> int | None:
    """What so many rows weigh if they are like these bytes of rows."""
    size, of_rows = like
    if rows == 0:
        return 0
    return rows * size // of_rows if of_rows else None


def _judge(summary: PartitionSummary, standing: Standing | None, retry_at: dt.datetime | None, moment: _Moment) -> Reason:
    if retry_at is not None and moment.patient and not moment.every:
        return Reason.RETRY if moment.now >= retry_at else Reason.WAITING
    reason = _judge_rows(summary, standing, moment)
    if reason in _DUE or not moment.mounted:
        return reason
    if retry_at is not None:
        return Reason.RETRY
    return Reason.UNFINISHED if summary.day in moment.unfinished else reason


def _judge_rows(summary: PartitionSummary, standing: Standing | None, moment: _Moment) -> Reason:
    """A day by its rows, and by where its copy lies."""
    if standing is None:
        if summary.unreadable:
            return Reason.UNREADABLE
        return Reason.NEW if summary.rows else Reason.UNCHANGED
    if not moment.mounted:
        return Reason.FROZEN
    if standing.destination != moment.destination:
        # A moved sink starts over with what the cache has; whether that may replace an object is judged where the object lies.
        return Reason.SINK_CHANGED if summary.rows else Reason.FROZEN
    if standing.fingerprint != summary.fingerprint:
        return Reason.CHANGED
    return Reason.ASKED if moment.every else _judge_kept(summary, standing, moment)


def _judge_kept(summary: PartitionSummary, standing: Standing, moment: _Moment) -> Reason:
    """A day whose rows are those of its last export: what the sink holds beyond them may have to go."""
    if standing.kept is Kept.ACCEPTED:
        return Reason.SETTLED
    if standing.kept is Kept.MOVING:
        return Reason.SETTLED if moment.newest > standing.version else Reason.FROZEN
    if standing.kept is Kept.SETTLING:
        since = dt.datetime.fromisoformat(standing.exported_at) if standing.exported_at else moment.now
        quiet = summary.removed_at is None or has_settled(summary.removed_at, moment.now)
        return Reason.SETTLED if quiet or has_settled(since, moment.now) else Reason.SETTLING
    return Reason.UNCHANGED if standing.kept is Kept.NOTHING else Reason.FROZEN


def has_settled(since: dt.datetime, now: dt.datetime) -> bool:
    """Whether what was seen then lies far enough back to be no part of a retention pass that still goes on."""
    return now - since >= REMOVAL_SETTLES_AFTER


def partition_of(day: Day, first_day: Day) -> Day:
    """The partition that stands for a day in Dagster, whose partitions are calendar days: undated rows ride with the first."""
    return first_day if day == UNDATED else day


def contiguous_ranges(days: Iterable[Day], keys: Sequence[Day]) -> tuple[tuple[Day, Day], ...]:
    """Group days into inclusive ranges that are contiguous within `keys` (the ordered partition keys).

    Raises:
        ValueError: a day is not among the keys.
    """
    position = {key: index for index, key in enumerate(keys)}
    wanted = set(days)
    unknown = sorted(day for day in wanted if day not in position)
    if unknown:
        raise ValueError(f"no partition for {', '.join(unknown)}")
    ranges: list[tuple[int, int]] = []
    for index in sorted(position[day] for day in wanted):
        if ranges and ranges[-1][1] + 1 == index:
            ranges[-1] = (ranges[-1][0], index)
        else:
            ranges.append((index, index))
    return tuple((keys[first], keys[last]) for first, last in ranges)


def _order(day: Day) -> tuple[bool, str]:
    return day == UNDATED, day
