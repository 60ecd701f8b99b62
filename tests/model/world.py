"""A cache, the processes that write it, sinks and a clock, all real but the clock; and the account of what happens to them.

Why the cache itself is read at rest: a mistake of the account must not look like a mistake of the engine.

Why what the sinks hold is looked at after every export: what was there once is never to be missing, at rest or not.
"""

import datetime as dt
import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from hypaware_pipeline.demo import mishaps
from hypaware_pipeline.demo.generate import SimulatedClock
from hypaware_pipeline.demo.writer import CacheWriter
from hypaware_pipeline.export.driver import Exporter
from hypaware_pipeline.export.installation import Installation, build_sink
from hypaware_pipeline.export.survey import survey
from hypaware_pipeline.model import DatasetName, Day, SinkName
from tests.builders import a_log, a_message
from tests.installations import JSONL, write_config
from tests.model import inspection
from tests.model.account import Account, Mark, Place, dataset_of

LOGS, MESSAGES = "logs", "ai_gateway_messages"
MARKED = {LOGS: "traceId", MESSAGES: "content_text"}
"""The column that carries a row's mark."""
OLD = "old"
"""A source whose table is from before the sequence column."""
SINKS = {"feed": (LOGS, MESSAGES), "second": (LOGS,)}
START = dt.datetime(2026, 6, 10, 9, tzinfo=dt.UTC)
SETTLES = dt.timedelta(minutes=16)
"""After so long a removal has settled."""
ROUNDS = 3
"""After so many exports of all that is due nothing may be."""

Row = dict[str, Any]
Step = Callable[[], object]


class WrongAtSink(AssertionError):
    """A sink does not hold what it must, or is to be given what it has."""


class World:
    """Whatever is done to its cache is done to its account."""

    def __init__(self, directory: Path) -> None:
        self.account = Account()
        self.clock = SimulatedClock(START)
        self.migrated: set[Place] = set()
        self.numbered: set[Mark] = set()
        self._directory = directory
        self._randomness = random.Random(1)
        self._numbers = itertools.count()
        self._homes = (directory / f"cache-{number}" for number in itertools.count())
        self._moments: dict[Mark, dt.datetime | None] = {}
        self._cutoffs: dict[str, dt.datetime] = {}
        self._identities: dict[Mark, str] = {}
        self._seen: dict[str, set[Mark]] = {sink: set() for sink in SINKS}
        self._backup: tuple[Path, Mapping[Place, Counter[Mark]]] | None = None
        self._still = False
        self._live_in(next(self._homes))
        self._ledger = self._installation.open_ledger()

    def close(self) -> None:
        """Let go of the ledger."""
        self._ledger.close()

    # --- writing ------------------------------------------------------------------------------------------------------------

    def rows(self, dataset: str, days: Sequence[int | None]) -> list[Row]:
        """New rows, each so many days after today; None for one without a timestamp, which only logs can be."""
        return [self._row(dataset, ahead) for ahead in days]

    def append(self, place: Place, rows: Sequence[Row], *, writer: int = 0, sequence: Sequence[int | None] | None = None) -> None:
        """One flush."""
        self._still = False
        dataset, source = place
        self.writers[writer].append(dataset, source, rows, with_sequence=source != OLD, sequence=sequence)
        marks = [row[MARKED[dataset]] for row in rows]
        self.account.add(place, marks)
        self.numbered |= {mark for mark, number in zip(marks, sequence or [1] * len(marks), strict=True) if number is not None}

    def purge(self, place: Place, marks: Sequence[Mark], between: Step | None = None) -> None:
        """Somebody deletes rows, one a commit."""
        self._still = False
        cutoff = self._cutoffs.get(place[0])
        frozen = [mark for mark in marks if cutoff and (moment := self._moments[mark]) and _midnight(moment) < cutoff]
        self.account.purge(place, marks, frozen=frozen)
        self.writers[0].delete(*place, _marked(place, marks), on_commit=between, rows_per_commit=1)

    def retain(self, dataset: str, days: int, between: Step | None = None) -> None:
        """Retention deletes what is more than so many days old, a few rows a commit.

        Not less than it deleted before: a cursor tells its last cut-off alone, and one that nobody saw is as if it had not been.
        """
        self._still = False
        cutoff = max(self.clock.moment - dt.timedelta(days=days), self._cutoffs.get(dataset, START - dt.timedelta(days=9)))
        self._cutoffs[dataset] = cutoff
        dated = {mark: moment for mark, moment in self._moments.items() if moment and dataset_of(mark) == dataset}
        self.account.freeze([mark for mark, moment in dated.items() if _midnight(moment) < cutoff])
        self.writers[0].retention(cutoff, datasets=[dataset], on_commit=between, rows_per_commit=2)
        self.account.remove(dataset, [mark for mark, moment in dated.items() if moment < cutoff])

    def compact(self, place: Place) -> None:
        """A table is written anew."""
        self.writers[0].compact(*place)
        self.account.compact(place)

    def settle(self, place: Place, mark: Mark) -> None:
        """A compaction gives a message another identity."""
        self._still = False
        identity = f"{mark}#{next(self._numbers)}"
        self.writers[0].settle(*place, _marked(place, [mark]), part_id=identity)
        self.account.compact(place)
        self._identities[mark] = identity

    def expire(self, place: Place, *, retired: bool) -> None:
        """Old snapshots are forgotten, or replaced generations deleted."""
        if retired:
            self.writers[0].expire_retired(*place)
        else:
            self.writers[0].expire_snapshots(*place, keep=1)

    def move(self, place: Place, source: str, marks: Sequence[Mark], between: Step | None = None) -> None:
        """Rows go to another source, which holds them for a moment as well as the first, which is then written anew."""
        self._still = False
        to = (place[0], source)
        rows = Counter({mark: self.account.live[place][mark] for mark in marks})

        def copied() -> None:
            self.account.add(to, rows.elements())
            if between:
                between()

        self.writers[0].move(*place, source, _marked(place, marks), on_commit=copied)
        self.account.take(place, marks)
        self.account.compact(place)

    def migrate(self, place: Place, source: str) -> None:
        """A whole source goes to another. HypAware does so once with the sources of an old layout."""
        self._still = False
        self.writers[0].migrate(*place, source)
        self.account.add((place[0], source), self.account.live.pop(place).elements())
        self.account.break_off([place[0]])
        self.migrated.add(place)

    # --- what befalls the cache -----------------------------------------------------------------------------------------------

    def lose_sequence(self) -> None:
        """Numbers begin at 1 again."""
        mishaps.lose_sequence(self.root)
        self._restart()

    def reset(self) -> None:
        """The cache is wiped and begun anew."""
        mishaps.wipe(self.root)
        self._ensure_there()
        self._replace({})

    def back_up(self) -> None:
        """A copy is made."""
        path = self._directory / f"backup-{next(self._numbers)}"
        mishaps.back_up(self.root, path)
        self._backup = (path, self.account.copied())

    @property
    def backed_up(self) -> bool:
        """Whether there is a copy."""
        return self._backup is not None

    def restore(self, *, cut_off: float | None = None, between: Step | None = None) -> None:
        """The copy is put back; at first only a part of its files (a share between 0 and 1), if it is cut off."""
        assert self._backup
        self._still = False
        path, live = self._backup
        if cut_off is not None:
            files = sum(entry.is_file() for entry in path.rglob("*"))
            mishaps.restore(self.root, path, files=round(files * cut_off))
            self._ensure_there()
            if between:
                between()
        mishaps.restore(self.root, path)
        self._ensure_there()
        self._replace(live)

    def relocate(self) -> None:
        """The cache lies elsewhere from now on."""
        root = next(self._homes)
        self.root.rename(root)
        self._live_in(root)

    def wait(self, time: dt.timedelta) -> None:
        """Time passes."""
        before = self.clock.moment.date()
        self.clock.moment += time
        self._still = self._still and self.clock.moment.date() == before

    # --- exporting ------------------------------------------------------------------------------------------------------------

    def due(self, sink: str, dataset: str, *, every: bool = False) -> list[str]:
        """The days that are due."""
        config = self._installation.config.sinks[SinkName(sink)]
        (plan,) = survey(self._installation, self._ledger, sinks=[config], datasets=[DatasetName(dataset)], every=every)
        assert plan.error is None, plan.error
        due = [entry.day for entry in plan.days if entry.due]
        self.account.look(dataset)
        if self._still and due and not every:
            raise WrongAtSink(f"{due} of {dataset} are due at {sink}, though only files were rewritten")
        return due

    def export(self, sink: str, dataset: str, days: Sequence[str]) -> None:
        """Export these days, in this order."""
        if not days:
            return
        exporter = Exporter(build_sink(self._installation.config.sinks[SinkName(sink)], {}), self._ledger, self._now)
        outcomes = list(exporter.export(self._installation.slice(DatasetName(dataset), [Day(day) for day in days])))
        assert not (failed := [outcome for outcome in outcomes if outcome.status == "failed"]), failed
        self._look_at(sink)

    def export_all(self) -> bool:
        """Export what is due everywhere; whether anything was."""
        due = {(sink, dataset): self.due(sink, dataset) for sink, datasets in SINKS.items() for dataset in datasets}
        for (sink, dataset), days in due.items():
            self.export(sink, dataset, days)
        return any(due.values())

    def rest(self) -> None:
        """Let deletions settle, export until nothing is due, and see that everything is as it must be."""
        self.wait(SETTLES)
        for _ in range(ROUNDS):
            if not self.export_all():
                break
        if self.export_all():
            raise WrongAtSink("after every export something is due again")
        self._still = True
        found = inspection.rows_in_cache(self.root, MARKED)
        assert found == {place: marks for place, marks in self.account.live.items() if marks}, "the account is wrong"
        for sink in SINKS:
            inspection.verify(self._out(sink), sink, SINKS[sink])
            held = self._look_at(sink)
            for dataset in SINKS[sink]:
                if wrong := self.account.wrong(dataset, held):
                    raise WrongAtSink(f"{sink}: {wrong}")
        self._verify_identities()

    # --- inside ---------------------------------------------------------------------------------------------------------------

    def _live_in(self, root: Path) -> None:
        self.root = root
        self._ensure_there()
        sinks = {sink: {**JSONL, "config": {"dir": f"out/{sink}", "datasets": list(sets)}} for sink, sets in SINKS.items()}
        path = write_config(self._directory / "home", root, sinks=sinks)
        self._installation = Installation.load(path, {"HOME": str(path.parent)}, clock=self._now)
        self._restart()

    def _now(self) -> dt.datetime:
        return self.clock.moment

    def _out(self, sink: str) -> Path:
        return self._directory / "home" / "out" / sink

    def _ensure_there(self) -> None:
        """A cache without any row is one all the same."""
        (self.root / "datasets").mkdir(parents=True, exist_ok=True)

    def _restart(self) -> None:
        """HypAware's processes end, and others begin."""
        self.writers = [CacheWriter(self.root, clock=self.clock, rng=self._randomness) for _ in range(2)]
        self.reserved: list[int] = []

    def _replace(self, live: Mapping[Place, Counter[Mark]]) -> None:
        self._restart()
        self.account.replace(live)
        self._still = False

    def _row(self, dataset: str, ahead: int | None) -> Row:
        number = next(self._numbers)
        mark = f"{dataset}:{number}"
        day = (self.clock.moment + dt.timedelta(days=ahead or 0)).date().isoformat()
        seconds = number + number % 3 * 8 * 3600  # in every third of the day
        row = (a_log if dataset == LOGS else a_message)(day, seconds, **{MARKED[dataset]: mark})
        moment = row["timestamp" if dataset == LOGS else "message_created_at"]
        if dataset == LOGS and ahead is None:
            row["timestamp"] = moment = None
        self._moments[mark] = moment
        return row

    def _look_at(self, sink: str) -> Counter[Mark]:
        """What a sink holds now. What it held before is still there."""
        held = inspection.rows_at(self._out(sink), MARKED)
        if lost := self.account.lost(held, self._seen[sink]):
            raise WrongAtSink(f"{sink} had {sorted(lost)}, and has them no more")
        self._seen[sink] = set(held)
        return held

    def _verify_identities(self) -> None:
        """A settled message has its new identity at the sink, too, unless its day may not be touched."""
        cutoff = self._cutoffs.get(MESSAGES, START - dt.timedelta(days=365))
        held = inspection.values_at(self._out("feed"), MESSAGES, MARKED[MESSAGES], "part_id")
        for mark, identity in self._identities.items():
            moment = self._moments[mark]
            provable = MESSAGES not in self.account.broken and moment and _midnight(moment) >= cutoff
            if provable and self.account.copies(mark) and held[mark] != {identity}:
                raise WrongAtSink(f"{mark} was settled as {identity}, not {held[mark]}")


def _midnight(moment: dt.datetime) -> dt.datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _marked(place: Place, marks: Sequence[Mark]) -> pc.Expression:
    return pc.field(MARKED[place[0]]).isin(list(marks))
