"""What is to be tried again, and when; and which sinks are left alone until somebody looks.

Why the attempt is counted when a run is asked for and not when it fails: a run that is cancelled, or dies, fails nowhere. The
count is raised by who names the one it read, so that of two that ask only one does.

Why a claim expires: between asking for a run and its being there a daemon may die, and a run that is there may be cancelled.
Whoever asks next sees by Dagster's own runs that one is on its way.

Why the back-off is drawn anew from nothing to its bound: what failed together, because a destination was away, would otherwise
come back together for ever.

Why days are given up: a destination that is dead for good is not asked every hour for ever. Whoever leaves the queue shows that
the destination lives; then the others of its dataset that were given up are tried again.

Why a halted sink is released by whatever is recorded of it: that it took something is the only proof that it is mended.

Why the time is the caller's clock: a day that is tried some minutes early or late costs nothing.
"""

import datetime as dt
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from hypaware_pipeline.ledger.schema import timestamp
from hypaware_pipeline.ledger.text import storable
from hypaware_pipeline.ledger.transactions import Transactions, matches, upsert
from hypaware_pipeline.ledger.turns import holds, retries
from hypaware_pipeline.model import UNDATED, DatasetName, Day, SinkName

ATTEMPTS = 8
"""After so many a day is given up. With the bounds below that takes an hour or so, in which a server is started again."""
FIRST_BACK_OFF_SECONDS = 30.0
"""The bound of the first back-off, which doubles with every attempt: what a full disk or a lost connection takes at least."""
LONGEST_BACK_OFF_SECONDS = 3_600.0
"""The bound of every back-off: the usual interval of a schedule, which asks for what was given up."""
CLAIM_SECONDS = 60.0
"""How long a day that was asked for is asked for by nobody else. Dagster makes runs of what a sensor answers in seconds."""

_CHANCE = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Retry:
    """A day that is to be tried again. Times are UTC, ISO-8601.

    Attributes:
        attempt: How often it was asked for since it failed first.
        reason: Of its last failure.
        due_at: Not before.
        requested_until: Until when it counts as asked for; None when it is not.
        hopeless: Whether trying again mends nothing.
    """

    sink: SinkName
    dataset: DatasetName
    day: Day
    attempt: int
    reason: str
    failed_at: str
    due_at: str
    requested_until: str | None
    hopeless: bool

    @property
    def given_up(self) -> bool:
        """Whether it waits for a scheduled tick, or for somebody."""
        return (self.hopeless or self.attempt >= ATTEMPTS) and self.requested_until is None


@dataclass(frozen=True, slots=True)
class Hold:
    """Why and since when (UTC, ISO-8601) a sink is left alone."""

    since: str
    reason: str


@dataclass(frozen=True, slots=True)
class Released:
    """What was released: the days that are tried again at once, and what the sink was until then."""

    days: int
    halted: bool
    paused: bool


class Retries:
    """The part of a ledger that keeps these."""

    def __init__(self, transactions: Transactions) -> None:
        self._in = transactions

    # --- the queue -------------------------------------------------------------------------------------------------------------

    def give_back(
        self, sink: SinkName, dataset: DatasetName, day: Day, reason: str, *, retry_after_seconds: float | None = 0.0
    ) -> None:
        """Put a day that failed into the queue, or back into it.

        Args:
            sink: It was to go to.
            dataset: Its dataset.
            day: The day.
            reason: Why it failed.
            retry_after_seconds: The destination's own wish: not sooner. None when trying again mends nothing; then it is given up
                at once.
        """
        key, now = _key(sink, dataset, day), self._in.clock()
        with self._in.writing() as connection:
            attempt = connection.execute(sa.select(retries.c.attempt).where(matches(retries, key))).scalar() or 0
            wait = max(_CHANCE.uniform(0, longest_back_off(attempt)), retry_after_seconds or 0)
            due_at = timestamp(now + dt.timedelta(seconds=wait))
            values = {"attempt": attempt, "reason": storable(reason), "failed_at": timestamp(now), "due_at": due_at}
            hopeless = retry_after_seconds is None
            upsert(connection, retries, key, {**values, "requested_until": None, "hopeless": hopeless})

    def queue(self, sink: SinkName) -> Mapping[tuple[DatasetName, Day], Retry]:
        """All days of a sink that are to be tried again, the newest first and undated rows last. An expired claim is none."""
        now = self._in.now()
        c = retries.c
        query = sa.select(retries).where(c.sink == sink).order_by(c.day == UNDATED, c.day.desc(), c.dataset)
        with self._in.reading() as connection:
            entries = [Retry(**row) for row in connection.execute(query).mappings()]
        return {(entry.dataset, entry.day): _as_of(entry, now) for entry in entries}

    def due(self, sink: SinkName) -> list[Retry]:
        """Those whose time has come, in the order of `queue`."""
        now = self._in.now()
        return [
            entry
            for entry in self.queue(sink).values()
            if entry.due_at <= now and entry.requested_until is None and not entry.given_up
        ]

    def request(self, entries: Iterable[Retry]) -> list[Retry]:
        """Claim days to ask for them; returns those that were had, which are asked for by nobody else for a while.

        The others changed since they were read: somebody else asked for them, or they were exported or failed once more.
        """
        until = timestamp(self._in.clock() + dt.timedelta(seconds=CLAIM_SECONDS))
        had = []
        with self._in.writing() as connection:
            for entry in entries:
                read = {**_key(entry.sink, entry.dataset, entry.day), "attempt": entry.attempt, "failed_at": entry.failed_at}
                values = {"attempt": entry.attempt + 1, "requested_until": until}
                if connection.execute(retries.update().where(matches(retries, read)).values(values)).rowcount:
                    had.append(replace(entry, attempt=entry.attempt + 1, requested_until=until))
        return had

    def forget(self, sink: SinkName, dataset: DatasetName, day: Day) -> None:
        """Nothing is left to do for a day of which nothing was recorded: the cache has it no more, or it is kept as it is."""
        key = _key(sink, dataset, day)
        with self._in.reading() as connection:
            if connection.execute(sa.select(retries.c.attempt).where(matches(retries, key))).first() is None:
                return
        with self._in.writing() as connection:
            connection.execute(retries.delete().where(matches(retries, key)))

    # --- sinks that are left alone ---------------------------------------------------------------------------------------------

    def halt(self, sink: SinkName, reason: str) -> None:
        """Leave a sink alone, but for a probe at every scheduled tick, until it takes something or somebody resumes it."""
        key = {"sink": sink, "kind": "halted"}
        with self._in.writing() as connection:
            since = connection.execute(sa.select(holds.c.since).where(matches(holds, key))).scalar()
            upsert(connection, holds, key, {"since": since or self._in.now(), "reason": storable(reason)})

    def pause(self, sink: SinkName) -> None:
        """Have a sink's schedule and sensor ask for nothing until somebody resumes it."""
        key = {"sink": sink, "kind": "paused"}
        with self._in.writing() as connection:
            since = connection.execute(sa.select(holds.c.since).where(matches(holds, key))).scalar()
            upsert(connection, holds, key, {"since": since or self._in.now(), "reason": ""})

    def halted(self) -> Mapping[SinkName, Hold]:
        """Every halted sink."""
        return self._holds("halted")

    def paused(self) -> Mapping[SinkName, Hold]:
        """Every paused sink."""
        return self._holds("paused")

    def resume(self, sink: SinkName, dataset: DatasetName | None = None) -> Released:
        """Have days of a sink tried again at once and from the beginning; without a dataset, end what the sink is left alone for.

        Args:
            sink: Which sink.
            dataset: Only days of this one; the sink stays halted or paused then.
        """
        again = _again(self._in.now())
        which = {"sink": sink, **({"dataset": dataset} if dataset is not None else {})}
        with self._in.writing() as connection:
            days = connection.execute(retries.update().where(matches(retries, which)).values(again)).rowcount
            ended = set()
            if dataset is None:
                ended = set(connection.scalars(sa.select(holds.c.kind).where(holds.c.sink == sink)))
                connection.execute(holds.delete().where(holds.c.sink == sink))
        return Released(days, "halted" in ended, "paused" in ended)

    def _holds(self, kind: str) -> dict[SinkName, Hold]:
        c = holds.c
        with self._in.reading() as connection:
            rows = connection.execute(sa.select(c.sink, c.since, c.reason).where(c.kind == kind).order_by(c.sink)).all()
        return {SinkName(sink): Hold(since, reason) for sink, since, reason in rows}


def longest_back_off(attempt: int) -> float:
    """Seconds: the bound of the back-off of a day that was asked for so often."""
    return min(FIRST_BACK_OFF_SECONDS * 2.0 ** min(attempt, 32), LONGEST_BACK_OFF_SECONDS)


def day_recorded(connection: sa.Connection, sink: SinkName, dataset: DatasetName, day: Day, *, now: str) -> None:
    """A day was exported: it leaves the queue, its sink works, and what was given up of its dataset is tried again."""
    connection.execute(holds.delete().where(matches(holds, {"sink": sink, "kind": "halted"})))
    if connection.execute(retries.delete().where(matches(retries, _key(sink, dataset, day)))).rowcount:
        given_up = sa.or_(retries.c.attempt >= ATTEMPTS, retries.c.hopeless)
        of_dataset = matches(retries, {"sink": sink, "dataset": dataset})
        connection.execute(retries.update().where(of_dataset, given_up).values(_again(now)))


def _again(now: str) -> dict[str, Any]:
    """From the beginning, at once."""
    return {"attempt": 0, "due_at": now, "hopeless": False}


def _key(sink: SinkName, dataset: DatasetName, day: Day) -> dict[str, Any]:
    return {"sink": sink, "dataset": dataset, "day": day}


def _as_of(entry: Retry, now: str) -> Retry:
    claimed = entry.requested_until is not None and entry.requested_until > now
    return entry if claimed else replace(entry, requested_until=None)
