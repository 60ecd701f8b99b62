"""Everything that can happen to a cache, in any order, with exports in between.

Why so few sources, days and rows: what goes wrong goes wrong with two of each, and more examples are worth more than larger ones.

Why every example ends at rest: until deletions have settled and everything due is exported, a sink may still hold what it is to
give up, or not yet hold what it is to get.
"""

import datetime as dt
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.model.account import Mark, Place
from tests.model.world import LOGS, MESSAGES, OLD, SINKS, World

PLACES = [(LOGS, "a"), (LOGS, "b"), (LOGS, OLD), (MESSAGES, "claude"), (MESSAGES, "codex")]
_DATASETS = [LOGS, MESSAGES]
_EXPORTS = [(sink, dataset) for sink, datasets in SINKS.items() for dataset in datasets]

STEPS = 10
"""Of an example, at most. Longer ones find no more in the same time."""

# Most of the time would go into making and removing files; where there is a file system in memory, they lie there.
_MEMORY = Path("/dev/shm")

# Days from today: earlier ones, today, tomorrow, one that is too far ahead to have a day, and none.
_days = st.lists(st.sampled_from([0, -1, -3, 1, 3, None]), min_size=1, max_size=3)
_numbers = st.sampled_from(["next", "backwards", "missing"])
_pick = st.integers(0, 7)


class Machine(RuleBasedStateMachine):
    """A small world, and what is done to it."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = Path(tempfile.mkdtemp(prefix="hypaware-model-", dir=_MEMORY if _MEMORY.is_dir() else None))
        self.world = World(self._directory)

    def teardown(self) -> None:
        """Every example ends at rest, but one that failed on its way."""
        try:
            if sys.exception() is None:
                self.world.rest()
        finally:
            self.world.close()
            shutil.rmtree(self._directory)

    # --- writing ------------------------------------------------------------------------------------------------------------

    @initialize(exported=st.booleans())
    def begin(self, exported: bool) -> None:
        """A cache has something to lose from the start."""
        self._fill()
        if exported:
            self.world.export_all()

    @rule(place=st.sampled_from(PLACES), days=_days, writer=st.integers(0, 1), numbers=_numbers)
    def append(self, place: Place, days: list[int | None], writer: int, numbers: str) -> None:
        """A flush, by one of two processes that have each their block of numbers."""
        rows = self.world.rows(place[0], days)
        sequence = None
        if numbers == "missing":
            sequence = [None] * len(rows)
        elif numbers == "backwards":
            sequence = self.world.writers[writer].reserve(len(rows))[::-1]
        self.world.append(place, rows, writer=writer, sequence=sequence)

    @rule(place=st.sampled_from(PLACES), day=st.sampled_from([0, -1]), export=st.sampled_from(_EXPORTS))
    def commit_late(self, place: Place, day: int, export: tuple[str, str]) -> None:
        """Rows get their numbers, others are committed and exported, then they are."""
        early, late = self.world.rows(place[0], [day]), self.world.rows(place[0], [day])
        number = self.world.writers[0].reserve(1)
        self.world.append(place, early)
        self._export(export, order=0, share=7)
        self.world.append(place, late, sequence=number)

    @rule(place=st.sampled_from(PLACES), day=st.sampled_from([0, -1]))
    def append_twice(self, place: Place, day: int) -> None:
        """A process dies between a commit and the note that it was made: the rows are flushed again, with new numbers."""
        rows = self.world.rows(place[0], [day])
        self.world.append(place, rows)
        self.world.append(place, rows)

    # --- maintenance --------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self._places())
    @rule(place=_pick, times=st.sampled_from([1, 1, 2]))
    def compact(self, place: int, times: int) -> None:
        for _ in range(times):
            self.world.compact(self._place(place))

    @precondition(lambda self: self._places())
    @rule(place=_pick, retired=st.booleans())
    def expire(self, place: int, retired: bool) -> None:
        self.world.expire(self._place(place), retired=retired)

    @precondition(lambda self: self._places(MESSAGES, rows=True))
    @rule(place=_pick, row=_pick)
    def settle(self, place: int, row: int) -> None:
        """A message gets another identity; one without a number would be another message then."""
        chosen = self._place(place, MESSAGES, rows=True)
        (mark,) = self._marks(chosen, row, 1)
        if mark in self.world.numbered:
            self.world.settle(chosen, mark)

    @precondition(lambda self: self._places(rows=True))
    @rule(place=_pick, row=_pick, count=st.integers(1, 2), exporting=st.booleans())
    def purge(self, place: int, row: int, count: int, exporting: bool) -> None:
        chosen = self._place(place, rows=True)
        self.world.purge(chosen, self._marks(chosen, row, count), self._between(exporting))

    @rule(dataset=st.sampled_from(_DATASETS), days=st.sampled_from([2, 1, 0]), exporting=st.booleans())
    def retain(self, dataset: str, days: int, exporting: bool) -> None:
        self.world.retain(dataset, days, self._between(exporting))

    @precondition(lambda self: self._places(rows=True))
    @rule(place=_pick, to=_pick, row=_pick, count=st.integers(1, 2), exporting=st.booleans())
    def move(self, place: int, to: int, row: int, count: int, exporting: bool) -> None:
        """Rows go to another source with their numbers."""
        chosen = self._place(place, rows=True)
        self.world.move(chosen, self._other(chosen, to), self._marks(chosen, row, count), self._between(exporting))

    @precondition(lambda self: self._places(rows=True))
    @rule(place=_pick, to=_pick)
    def migrate(self, place: int, to: int) -> None:
        chosen = self._place(place, rows=True)
        if chosen not in self.world.migrated:
            self.world.migrate(chosen, self._other(chosen, to))

    # --- mishaps ------------------------------------------------------------------------------------------------------------

    @rule()
    def lose_sequence(self) -> None:
        """The rows that come next take the numbers of the first ones."""
        self.world.lose_sequence()
        self._fill()

    @rule()
    def reset(self) -> None:
        """And begun anew, as it began."""
        self.world.reset()
        self._fill()

    @rule()
    def back_up(self) -> None:
        self.world.back_up()

    @precondition(lambda self: self.world.backed_up)
    @rule(cut_off=st.none() | st.sampled_from([0.2, 0.5, 0.9]))
    def restore(self, cut_off: float | None) -> None:
        self.world.restore(cut_off=cut_off, between=self._between(True))

    @rule()
    def relocate(self) -> None:
        self.world.relocate()

    # --- time and exports ---------------------------------------------------------------------------------------------------

    @rule(time=st.sampled_from([dt.timedelta(minutes=5), dt.timedelta(minutes=20), dt.timedelta(days=1), dt.timedelta(days=3)]))
    def wait(self, time: dt.timedelta) -> None:
        self.world.wait(time)

    @rule(which=st.sampled_from(_EXPORTS), order=st.integers(0, 3), share=st.integers(1, 7), every=st.booleans())
    def export(self, which: tuple[str, str], order: int, share: int, every: bool) -> None:
        """Some of the days that are due, or of all days, in some order."""
        self._export(which, order=order, share=share, every=every)

    @rule()
    def rest(self) -> None:
        self.world.rest()

    def _fill(self) -> None:
        for place in (PLACES[0], PLACES[3]):
            self.world.append(place, self.world.rows(place[0], [0, 0]))

    # --- choosing -----------------------------------------------------------------------------------------------------------

    def _export(self, which: tuple[str, str], *, order: int, share: int, every: bool = False) -> None:
        days = self.world.due(*which, every=every)
        turned = days[order % len(days) :] + days[: order % len(days)] if days else []
        self.world.export(*which, turned[:share])

    def _between(self, exporting: bool) -> Callable[[], object] | None:
        return self.world.export_all if exporting else None

    def _places(self, dataset: str | None = None, *, rows: bool = False) -> list[Place]:
        """The places there are; with `rows` those that hold any."""
        return [place for place in self.world.account.places(dataset) if self.world.account.live[place] or not rows]

    def _place(self, pick: int, dataset: str | None = None, *, rows: bool = False) -> Place:
        places = self._places(dataset, rows=rows)
        return places[pick % len(places)]

    def _marks(self, place: Place, pick: int, count: int) -> list[Mark]:
        marks = sorted(self.world.account.live[place])
        return [marks[(pick + number) % len(marks)] for number in range(min(count, len(marks)))]

    def _other(self, place: Place, pick: int) -> str:
        """Another source, whose table takes numbers."""
        others = [source for dataset, source in PLACES if dataset == place[0] and source not in (place[1], OLD)]
        return others[pick % len(others)]
