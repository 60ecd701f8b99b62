"""Gathers what decides about a day: the pin, the chains, what the sink has of it, and of the days its rows came from or went to.

Why only a row without a day ever changes its day: a token tells the day for good. Rows of the future become dated when their day
comes, and all of a day become undated when the first day a person wants is moved up. Nothing else is looked for.

Why another day is judged as if this one were exported already: the question is whether it will give its rows up then. If it will
not, they stay there and are left out here.
"""

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from hypaware_pipeline.export.lineage import Followed
from hypaware_pipeline.export.plan import has_settled
from hypaware_pipeline.export.reconcile import Situation, SourceState, Whereabouts, reconcile
from hypaware_pipeline.model import UNDATED, Day, Kept, Part, Receipt, SourceName, date_of, day_of
from hypaware_pipeline.row_sets import NO_DAY, Rows, raw_days_of, unpack

_EPOCH_ORDINAL = dt.date(1970, 1, 1).toordinal()
_LAST_RAW_DAY = dt.date.max.toordinal() - _EPOCH_ORDINAL


@dataclass(frozen=True, slots=True)
class Situations:
    """The situations of the days of one pin at one sink.

    Attributes:
        followed: The pin and its chains.
        recorded: Gives what the ledger has of another day at this destination.
        name: Gives the key of an object of a day.
        now: The time, in UTC.
    """

    followed: Followed
    recorded: Callable[[Day], Receipt | None]
    name: Callable[[Day, Part], str]
    now: dt.datetime

    def of(
        self,
        day: Day,
        standing: Receipt | None,
        *,
        broken: Collection[SourceName] = (),
        spoiled: Collection[str] = (),
        repair: bool = False,
    ) -> Situation:
        """The situation of one day.

        Args:
            day: Which.
            standing: What the sink has of it.
            broken: Sources that turned out to be damaged.
            spoiled: Objects that do not lie at the destination as they were put.
            repair: Whether to write again what has not changed.
        """
        situation = self._alone(day, standing, broken)
        moved = self._moved(day, standing)
        held = self._held_elsewhere(day, situation)
        return replace(situation, held_elsewhere=held, moved=moved, spoiled=spoiled, repair=repair)

    def _alone(self, day: Day, standing: Receipt | None, broken: Collection[SourceName]) -> Situation:
        """A day without what other days have to do with it."""
        pin = self.followed.pin
        unreadable = {*pin.summary(day).unreadable, *pin.unreadable, *broken}
        return Situation(
            raw_day=None if day == UNDATED else date_of(day).toordinal() - _EPOCH_ORDINAL,
            rows={source: rows for source, rows in pin.rows_of(day).items() if source not in unreadable},
            sources={source: self._state(source) for source in pin.sources - unreadable},
            unreadable=unreadable,
            migrated=pin.migrated,
            standing=standing,
            waited=standing is not None and self._has_waited(day, standing),
        )

    def _state(self, source: SourceName) -> SourceState:
        chain = self.followed.chains[source]
        removed_at = self.followed.pin.source_pin(source).removed_at
        settled = removed_at is None or has_settled(removed_at, self.now)
        return SourceState(chain.chain, chain.generation, chain.cutoff_ms, settled)

    def _has_waited(self, day: Day, standing: Receipt) -> bool:
        """Whether the day is as it was when its receipt said that rows are missing, a while ago."""
        unchanged = standing.fingerprint == self.followed.pin.summary(day).fingerprint
        return (
            unchanged
            and standing.kept is Kept.SETTLING
            and has_settled(dt.datetime.fromisoformat(standing.exported_at), self.now)
        )

    def _moved(self, day: Day, standing: Receipt | None) -> Whereabouts:
        """Where rows are that the sink has under this day and that belong to another now."""
        cached: list[Rows] = []
        exported: list[Rows] = []
        for home in self._homes(_sets_of(standing)) - {day}:
            for rows in self.followed.pin.rows_of(home).values():
                cached += Rows.layers(rows.keys, rows.tokens)
            receipt = self.recorded(home)
            exported += _sets_of(receipt)
            exported += [] if receipt is None else [unpack(each.row_set) for each in receipt.set_aside]
        return Whereabouts(cached, exported)

    def _held_elsewhere(self, day: Day, situation: Situation) -> Sequence[Rows]:
        """What files of other days hold of this one's rows and will not give up."""
        held: list[Rows] = []
        for other in self._former_homes(day, situation):
            standing = self.recorded(other)
            if standing is None or not _overlap(_sets_of(standing), situation):
                continue
            moved = self._moved(other, standing)
            given = replace(self._alone(other, standing, ()), moved=Whereabouts(moved.cached, moved.cached))
            work = reconcile(given, partial(self.name, other))
            held += [unpack(file.row_set) for file in work.stays]
        return held

    def _homes(self, sets: Iterable[Rows]) -> set[Day]:
        raw = [np.unique(raw_days_of(rows.tokens)) for rows in sets]
        return {self.followed.pin.home_day(int(each)) for each in np.unique(np.concatenate(raw))} if raw else set()

    def _former_homes(self, day: Day, situation: Situation) -> Iterable[Day]:
        """Under which other days rows of this one may have been exported."""
        if day != UNDATED:
            return (UNDATED,)
        raw = [np.unique(raw_days_of(rows.tokens)) for rows in situation.rows.values()]
        days = (int(each) for each in np.unique(np.concatenate(raw))) if raw else ()
        known = (each for each in days if each != NO_DAY and 1 - _EPOCH_ORDINAL <= each <= _LAST_RAW_DAY)
        return [day_of(dt.date.fromordinal(each + _EPOCH_ORDINAL)) for each in known]


def _sets_of(receipt: Receipt | None) -> list[Rows]:
    return [] if receipt is None else [unpack(file.row_set) for file in receipt.files]


def _overlap(sets: Iterable[Rows], situation: Situation) -> bool:
    return any(held.find(rows.keys, rows.tokens)[0].any() for held in sets for rows in situation.rows.values())
