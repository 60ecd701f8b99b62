"""What is due: the row index against the ledger. Pure; the same input gives the same plan.

Why a frozen day that was exported is never due: retention deletes a day in several commits, and a half-deleted day looks like any
other. What the cache no longer provably holds whole must not overwrite the whole copy at the destination.

Why a day that lost rows waits: retention takes six commits for one day and moves its cut-off only after the last. A day that
shrank is written anew once its table has been left alone for a while; until then it cannot be told from a day being retired.

Why a changed sink makes days due: a receipt speaks of the destination it was written for. Another place, format or codec is
another copy, and nothing of it exists yet. Such days are *stale*; days whose rows changed in the cache *drifted*. The two are
told apart wherever days are counted, since a person who changed a config by mistake can take back the one and not the other.

Why bytes are guessed from rows: what a day will weigh is known only once it is encoded. The last copy of the day is the best
guess, then those of the dataset's other days; without either there is none.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from hypaware_pipeline.model import UNDATED, DatasetName, Day, Fingerprint, PartitionSummary, SinkName, SourceName

REMOVAL_SETTLES_AFTER = dt.timedelta(minutes=15)
"""How long a table must have been left alone by deletions before a day that lost rows is written anew. A whole retention pass
took 1.4 s when measured; a machine that sleeps in the middle of one takes longer."""


class Reason(StrEnum):
    """Why a day is due, or why it is not."""

    NEW = "new"
    CHANGED = "drift: its rows changed in the cache since its last export"
    SINK_CHANGED = "stale: the sink's place or settings changed since its last export"
    UNREADABLE = "a source cannot be read"
    ASKED = "asked for"
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
    Reason.UNREADABLE: "unreadable",
    Reason.ASKED: "asked",
    Reason.SETTLING: "settling",
    Reason.FROZEN: "kept",
    Reason.UNCHANGED: "unchanged",
}

_DUE = frozenset({Reason.NEW, Reason.CHANGED, Reason.SINK_CHANGED, Reason.UNREADABLE, Reason.ASKED})


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of an exported day: of which content, at which destination, and how many rows it holds there.

    `future_rows`, `exported_rows` and `bytes` as in `Receipt`.
    """

    fingerprint: Fingerprint
    destination: str
    rows: int
    future_rows: int = 0
    exported_rows: int = 0
    bytes: int = 0


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
    every: bool = False,
) -> tuple[PlannedDay, ...]:
    """Judge every day that the cache or the ledger knows of one (sink, dataset), oldest first, `UNDATED` last.

    Args:
        sink: For whom.
        dataset: Of what.
        summaries: One for every day of `standing` too, with zero rows where the cache has none.
        standing: What was exported, by day.
        destination: Digest of the destination as it is configured now.
        now: The time now, in UTC.
        every: Whether unchanged days are due as well.
    """
    planned = []
    of_dataset = sum(each.bytes for each in standing.values()), sum(each.exported_rows for each in standing.values())
    for day in sorted({*summaries, *standing}, key=_order):
        summary, copy = summaries[day], standing.get(day)
        reason = _judge(summary, copy, destination, now=now, every=every)
        size = _guess(summary.rows, (copy.bytes, copy.exported_rows) if copy and copy.exported_rows else of_dataset)
        again = copy is not None
        planned.append(PlannedDay(sink, dataset, day, summary.rows, reason, summary.unreadable, size, again))
    return tuple(planned)


def _guess(rows: int, like: tuple[int, int]) -> int | None:
    """What so many rows weigh if they are like these bytes of rows."""
    size, of_rows = like
    if rows == 0:
        return 0
    return rows * size // of_rows if of_rows else None


def _judge(summary: PartitionSummary, standing: Standing | None, destination: str, *, now: dt.datetime, every: bool) -> Reason:
    if standing is None:
        if summary.unreadable:
            return Reason.UNREADABLE
        return Reason.NEW if summary.rows else Reason.UNCHANGED
    if standing.destination != destination:
        # A moved sink starts over with what the cache has; whether that may replace an object is judged where the object lies.
        return Reason.SINK_CHANGED if summary.rows else Reason.FROZEN
    if standing.fingerprint == summary.fingerprint:
        return Reason.ASKED if every else Reason.UNCHANGED
    return keep_reason(summary, standing, now=now) or Reason.CHANGED


def keep_reason(summary: PartitionSummary, standing: Standing, *, now: dt.datetime) -> Reason | None:
    """Why an exported day may not be written anew from what the cache holds now; None when it may.

    What the cache holds of the same content may always be written again: that repairs an object somebody removed. Undated rows
    have no day whose retention could be judged, so they are replaced only while they do not shrink; rows of the future do not
    count, since they leave for their day when it comes.
    """
    if summary.fingerprint == standing.fingerprint:
        return None
    shrinks = summary.rows < standing.rows
    settled_shrink = summary.rows - summary.future_rows < standing.rows - standing.future_rows
    if not summary.live or (summary.day == UNDATED and settled_shrink):
        return Reason.FROZEN
    if shrinks and summary.removed_at is not None and now - summary.removed_at < REMOVAL_SETTLES_AFTER:
        return Reason.SETTLING
    return None


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
