"""What a schedule asks of one sink now.

Why most ticks read nothing: a plan that found nothing due stays true until the cache changes, something is recorded, the date
changes, or the sink does. All of that together is a *state*; the ledger remembers the state in which nothing was due, and a tick
that finds it again is done. No index and no receipt is read, however many days were exported.

Why a dataset is looked at although nothing changed: an export of one of its days began and did not end. Only another one looks at
what it left.

Why a plan is remembered only when it is clean: days that wait for a removal to settle, or to be tried again, become due by time
alone, and a source that cannot be read may become readable without a trace.

Why days in the retry queue are not asked for: the sink's requeue sensor asks for them, each in its time.

Why the number of days is bounded: a run that dies takes the work of its last minutes with it, and the first tick of a new sink
may find a thousand days. The rest is asked for by the next tick.

Why a day without readable rows is not asked for because of a source that cannot be read: the run would export nothing and fail,
at every tick. The asset check says it once.
"""

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from hypaware_pipeline.cache.layout import dataset_names, resolve_root
from hypaware_pipeline.cache.versions import dataset_version
from hypaware_pipeline.config import SinkConfig
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.export.order import urgency
from hypaware_pipeline.export.plan import PlannedDay, Reason, partition_of
from hypaware_pipeline.export.requeue import scheduled
from hypaware_pipeline.export.survey import DatasetPlan, survey
from hypaware_pipeline.ledger import Ledger, PlanMemory
from hypaware_pipeline.model import UNDATED, DatasetName, Day, day_of
from hypaware_pipeline.plugins.registry import destination_digest

DAYS_PER_TICK = 1_000
"""At most so many days, over all datasets of a sink: some minutes of work."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a schedule may ask for.

    Attributes:
        datasets: The sink's, each with the day at which it begins; what lies before is left to backfills. Undated rows belong to
            no time and are asked for in any case.
        first_day: The first partition.
        last_day: The last one. The cache may have rows of tomorrow already.
        covered: Gives the partitions that runs in progress will export, by dataset. Called only when a day is due.
    """

    datasets: Mapping[DatasetName, Day]
    first_day: Day
    last_day: Day
    covered: Callable[[], Mapping[DatasetName, Collection[Day]]] = dict


@dataclass(frozen=True, slots=True)
class Asked:
    """The answer.

    Attributes:
        days: What to export now, most urgent first.
        said: What a person should know about the rest, one sentence each.
    """

    days: Sequence[PlannedDay]
    said: Sequence[str]


def ask(installation: Installation, ledger: Ledger, sink: SinkConfig, scope: Scope) -> Asked:
    """What a sink's schedule asks for at a tick.

    Raises:
        CacheMissing: there is no cache.
        LedgerError: the ledger cannot be read or written.
    """
    today = day_of(installation.clock().astimezone(dt.UTC).date())
    root = resolve_root(installation.config.cache_root)
    states = _states(root, installation, sink, scope, today)
    memory = ledger.plan_memory(sink.name)
    cut_off = {intent.dataset for intent in ledger.intents.all(sink.name)}
    unclear = [
        name
        for name, state in states.items()
        if state is None or name in cut_off or memory.get(name, _NEW).nothing_due_at != state
    ]
    found: list[PlannedDay] = []
    tally = _Tally()
    for plan in survey(installation, ledger, sinks=[sink], datasets=unclear, patient=True) if unclear else ():
        wanted, clean = tally.sift(plan, scope)
        found += wanted
        state = states[plan.dataset]
        if clean and state is not None:
            revision = memory.get(plan.dataset, _NEW).revision
            ledger.remember_nothing_due(sink.name, plan.dataset, state=state, revision=revision)
    key = urgency(today, installation.config.retention)
    found.sort(key=lambda entry: (key(entry.dataset, entry.day), entry.dataset))
    turn = scheduled(ledger, sink.name, found)
    chosen, rest = turn.days[:DAYS_PER_TICK], turn.days[DAYS_PER_TICK:]
    return Asked(chosen, [*turn.said, *tally.sentences(left=len(rest)), *_newcomers(root, sink, scope)])


_NEW = PlanMemory()


def _states(root: Path, installation: Installation, sink: SinkConfig, scope: Scope, today: Day) -> dict[DatasetName, str | None]:
    """All a plan depends on but the receipts, per dataset; None where that cannot be told."""
    common = [today, destination_digest(sink), scope.first_day, installation.config.floor_day]
    states: dict[DatasetName, str | None] = {}
    for dataset, begins in scope.datasets.items():
        version = dataset_version(root, dataset)
        text = json.dumps([version, begins, *common])
        states[dataset] = None if version is None else blake2b(text.encode(), digest_size=16).hexdigest()
    return states


def _newcomers(root: Path, sink: SinkConfig, scope: Scope) -> list[str]:
    """Datasets the sink takes that the cache did not have when the definitions were made."""
    names = (name for name in dataset_names(root) if sink.takes(name) and name not in scope.datasets)
    return [f"dataset '{name}' is new in the cache; reload the code location to export it" for name in names]


class _Tally:
    """Counts what is not asked for, by why."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._errors: list[str] = []

    def sift(self, plan: DatasetPlan, scope: Scope) -> tuple[list[PlannedDay], bool]:
        """The days of a plan to ask for, and whether the plan says that there is nothing to do until something changes."""
        if plan.error is not None:
            self._errors.append(f"{plan.dataset}: {plan.error}")
            return [], False
        self._errors += [f"{plan.dataset}: source '{source}': {reason}" for source, reason in sorted(plan.unreadable.items())]
        clean = not plan.unreadable
        wanted = []
        for entry in plan.days:
            obstacle = _obstacle(entry, scope)
            if obstacle is not None:
                self._counts[obstacle] += 1
            elif entry.due or entry.reason is Reason.WAITING:
                wanted.append(entry)
            clean = clean and not entry.unreadable and obstacle not in (_COVERED, _SETTLING)
        return wanted, clean and not wanted

    def sentences(self, *, left: int) -> list[str]:
        """What was counted, for a person."""
        said = [f"{count} days {what}" for what, count in sorted(self._counts.items())]
        if left:
            said.append(f"{left} more days are due and left to the next tick")
        return [*said, *self._errors]


_COVERED = "are covered by runs that wait or run"
_NO_PARTITION = "lie before the first day; `hypaware-pipeline first-day` moves it"
_AHEAD = "lie in the future"
_EARLY = "before the sink's start are left to backfills"
_SETTLING = "wait until a removal of rows has settled"
_UNREADABLE = "hold nothing readable"


def _obstacle(entry: PlannedDay, scope: Scope) -> str | None:
    """Why a day that may be due is not asked for at this tick; None for one that is, and where there is nothing to say."""
    if entry.reason is Reason.SETTLING:
        return _SETTLING
    if not entry.due and entry.reason is not Reason.WAITING:
        return None
    partition = partition_of(entry.day, scope.first_day)
    if partition < scope.first_day:
        return _NO_PARTITION
    if partition > scope.last_day:
        return _AHEAD
    if entry.day != UNDATED and entry.day < scope.datasets[entry.dataset]:
        return _EARLY
    if partition in scope.covered().get(entry.dataset, ()):
        return _COVERED
    return _UNREADABLE if entry.unreadable and not entry.rows else None
