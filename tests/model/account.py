"""What a cache holds, and what a sink must hold therefore: the model that the engine is compared with.

It knows rows by a mark that each carries, and of every row nothing but how often the cache holds it, whether somebody purged it,
and whether a sink was ever seen to have it. It promises:

- *at any time* a row that a sink was seen to have is still there, unless somebody purged it;
- *at rest* (deletions have settled, nothing is due) a row that the cache holds is at the sink as often, and no row is there more
  often than the cache ever held it at once. So a row that left the cache stays there once, whatever took it: retention, a reset,
  a restored backup, a lost source;
- *at rest* a row that was purged is gone, if it can be proved that it was purged. It cannot once the history of the dataset has a
  gap, nor must it on a day that retention has reached.

What it does not know: days, sources of objects, sequence numbers, generations, chains. They are how the engine keeps the promise.
"""

import copy
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

Mark = str
Place = tuple[str, str]
"""A dataset and one of its sources."""


@dataclass(slots=True)
class Account:
    """Of one cache.

    Attributes:
        live: How often each place of the cache holds each row.
        most: How often the cache ever held a row at once.
        purged: Rows that somebody purged: they may leave a sink.
        proven: Those of them that must.
        broken: Datasets whose history has a gap.
        unseen: Compactions of a place since its dataset was last looked at. The second leaves nothing to prove the first by.
    """

    live: dict[Place, Counter[Mark]] = field(default_factory=dict)
    most: Counter[Mark] = field(default_factory=Counter)
    purged: set[Mark] = field(default_factory=set)
    proven: set[Mark] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    unseen: Counter[Place] = field(default_factory=Counter)

    # --- what happens to the cache ------------------------------------------------------------------------------------------

    def add(self, place: Place, marks: Iterable[Mark]) -> None:
        """Rows were committed."""
        self.live.setdefault(place, Counter()).update(marks)
        self._hold()

    def take(self, place: Place, marks: Iterable[Mark]) -> None:
        """Rows left a place."""
        for mark in marks:
            self.live[place].pop(mark, None)

    def remove(self, dataset: str, marks: Collection[Mark]) -> None:
        """Rows left a dataset without anybody having purged them."""
        for place in self.places(dataset):
            self.take(place, marks)

    def purge(self, place: Place, marks: Collection[Mark], *, frozen: Collection[Mark]) -> None:
        """Somebody deleted rows; retention had reached the days of the `frozen` ones before."""
        self.take(place, marks)
        gone = {mark for mark in marks if not self.copies(mark)}
        self.purged |= gone
        if place[0] not in self.broken:
            self.proven |= gone.difference(frozen)

    def freeze(self, marks: Collection[Mark]) -> None:
        """Retention reached the days of these rows."""
        self.proven.difference_update(marks)

    def compact(self, place: Place) -> None:
        """A table was written anew."""
        self.unseen[place] += 1
        if self.unseen[place] > 1:
            self.break_off([place[0]])

    def look(self, dataset: str) -> None:
        """The engine looked at a dataset."""
        for place in self.places(dataset):
            self.unseen[place] = 0

    def break_off(self, datasets: Iterable[str]) -> None:
        """From here on nothing can be proved of these datasets, not even what was purged a moment ago."""
        self.broken.update(datasets)
        self.proven = {mark for mark in self.proven if dataset_of(mark) not in self.broken}

    def copied(self) -> Mapping[Place, Counter[Mark]]:
        """What a backup made now holds."""
        return copy.deepcopy(self.live)

    def replace(self, live: Mapping[Place, Counter[Mark]]) -> None:
        """The whole cache is another now: reset, or restored from a backup."""
        self.break_off({dataset for dataset, _ in [*self.live, *live]})
        self.live = {place: Counter(marks) for place, marks in live.items()}
        self.unseen.clear()
        self._hold()

    # --- what it comes to ---------------------------------------------------------------------------------------------------

    def places(self, dataset: str | None = None) -> list[Place]:
        """All places, or those of a dataset."""
        return sorted(place for place in self.live if dataset in (None, place[0]))

    def copies(self, mark: Mark) -> int:
        """How often the cache holds a row."""
        return sum(marks[mark] for marks in self.live.values())

    def lost(self, held: Mapping[Mark, int], before: Iterable[Mark]) -> set[Mark]:
        """What a sink has no more though nobody purged it, of the rows it had `before`."""
        return {mark for mark in before if not held.get(mark) and mark not in self.purged}

    def wrong(self, dataset: str, held: Mapping[Mark, int]) -> dict[Mark, str]:
        """What is wrong with what a sink holds of a dataset at rest, by row; nothing when all is well."""
        wrong = {}
        for mark in sorted({mark for mark in [*self.most, *held] if dataset_of(mark) == dataset}):
            fewest, most = self.copies(mark), 0 if mark in self.proven else self.most[mark]
            if not fewest <= held.get(mark, 0) <= most:
                wrong[mark] = f"held {held.get(mark, 0)} times, not {fewest} to {most}"
        return wrong

    def _hold(self) -> None:
        """Rows are in the cache (again): what was purged before is no concern of theirs any more."""
        now: Counter[Mark] = Counter()
        for marks in self.live.values():
            now.update(marks)
        self.most |= now
        self.purged -= now.keys()
        self.proven -= now.keys()


def dataset_of(mark: Mark) -> str:
    """The dataset of a row, which its mark begins with."""
    return mark.partition(":")[0]
