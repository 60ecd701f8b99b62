"""How the exports stand: what was exported last, what is due, what failed, what waits. The answer of `status`.

Why it is the plan of an export's dry run and no record of its own: a second opinion on what is due would sooner or later be
another one.
"""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hypaware_pipeline.cache.layout import resolve_root
from hypaware_pipeline.cache.spool import Spool, spools
from hypaware_pipeline.config import SinkConfig
from hypaware_pipeline.config.cron import next_firing
from hypaware_pipeline.errors import ConfigError
from hypaware_pipeline.export.beginnings import Beginnings, beginnings, begins
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.export.outlook import Outlook, counted
from hypaware_pipeline.export.survey import survey
from hypaware_pipeline.export.verdicts import Records, Verdict, verdict_of
from hypaware_pipeline.ledger import Ledger
from hypaware_pipeline.ledger.schema import timestamp
from hypaware_pipeline.model import UNDATED, DatasetName, Day, SinkName, day_of


@dataclass(frozen=True, slots=True)
class DayAt:
    """A day, when something became of it (UTC, ISO-8601), and why if it failed."""

    day: Day
    at: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class DatasetStatus:
    """How one (sink, dataset) stands.

    Attributes:
        outlook: What is due, and what is not.
        verdict: What is wrong with it, if anything.
        last_export: The day that was recorded last.
        last_failure: Of the days whose last export failed, and that are still due, the last one.
        unscheduled: How many due days lie before the sink's start, so that no schedule asks for them.
    """

    sink: SinkName
    dataset: DatasetName
    outlook: Outlook
    verdict: Verdict
    last_export: DayAt | None
    last_failure: DayAt | None
    unscheduled: int

    @property
    def oldest_due(self) -> Day | None:
        """The first day that is due."""
        return self.outlook.due[0].day if self.outlook.due else None

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        due, last_export = self.outlook.due, self.last_export
        return {
            "dataset": self.dataset,
            "last_export": {"day": last_export.day, "at": last_export.at} if last_export else None,
            "due_days": len(due),
            "due_rows": sum(entry.rows for entry in due),
            "oldest_due": self.oldest_due,
            "unscheduled_days": self.unscheduled,
            "early_days": len(self.outlook.early),
            "failed_days": len(self.verdict.failed),
            "last_failure": asdict(self.last_failure) if self.last_failure else None,
            "parked_rows": sum(self.verdict.parked.values()),
            "unreadable": dict(self.verdict.unreadable),
            "error": self.verdict.error,
        }


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """How one sink stands. `next_tick` is None for one without a schedule."""

    name: SinkName
    schedule: str | None
    next_tick: dt.datetime | None
    datasets: Sequence[DatasetStatus]


@dataclass(frozen=True, slots=True)
class Status:
    """How all exports of a configuration stand. `broken` are the sinks that cannot be used, with what is wrong."""

    beginnings: Beginnings
    sinks: Sequence[SinkStatus]
    broken: Mapping[str, Sequence[ConfigError]]
    spools: Sequence[Spool]

    def datasets(self) -> Iterator[DatasetStatus]:
        """Of every sink."""
        for sink in self.sinks:
            yield from sink.datasets

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        working = [
            {
                "sink": sink.name,
                "schedule": sink.schedule,
                "next_tick": timestamp(sink.next_tick) if sink.next_tick else None,
                "errors": [],
                "datasets": [each.to_json() for each in sink.datasets],
            }
            for sink in self.sinks
        ]
        broken = [
            {"sink": name, "schedule": None, "next_tick": None, "errors": [str(error) for error in errors], "datasets": []}
            for name, errors in self.broken.items()
        ]
        waiting = [
            {"dataset": each.dataset, "bytes": each.bytes, "since": timestamp(each.since) if each.since else None}
            for each in self.spools
        ]
        return {
            "first_day": self.beginnings.first_day,
            "note": self.beginnings.note,
            "sinks": [*working, *broken],
            "spool": waiting,
            "summary": self.summary(),
        }

    def summary(self) -> str:
        """What there is to do, in a line."""
        every = list(self.datasets())
        wrong = [
            (len(self.broken), "sink", "unusable"),
            (sum(len(each.verdict.failed) for each in every), "day", "failed"),
            (sum(each.verdict.error is not None for each in every), "dataset", "unreadable"),
            (len({(each.dataset, source) for each in every for source in each.verdict.unreadable}), "source", "unreadable"),
        ]
        said = [f"{counted(count, what)} {how}" for count, what, how in wrong if count]
        said += ["mend what is said above; `hypaware-pipeline check` looks further"] if said else []
        due = sum(len(each.outlook.due) for each in every)
        if due:
            said.append(f"{counted(due, 'day')} due: run `hypaware-pipeline export`")
        elif not said:
            said.append("everything that is in the cache's tables is exported" if every else "there is nothing to export")
        waiting = [each for each in self.spools if each.bytes]
        if waiting:
            names = ", ".join(each.dataset for each in waiting)
            said.append(f"rows of {names} wait in HypAware's spool; `hyp cache refresh` moves them into tables")
        return "; ".join(said)


def status_of(installation: Installation) -> Status:
    """Look at everything now.

    Raises:
        CacheMissing: there is no cache.
        StateUnusable, LedgerError: the ledger cannot be opened or read.
    """
    begin = beginnings(installation)
    sinks = list(installation.config.sinks.values())
    now = installation.clock()
    found: dict[SinkName, list[DatasetStatus]] = {sink.name: [] for sink in sinks}
    with installation.open_ledger() as ledger:
        for each in _dataset_statuses(installation, ledger, begin):
            found[each.sink].append(each)
    return Status(
        beginnings=begin,
        sinks=[
            SinkStatus(sink.name, sink.schedule, next_firing(sink.schedule, now) if sink.schedule else None, found[sink.name])
            for sink in sinks
        ],
        broken=installation.config.broken_sinks,
        spools=spools(resolve_root(installation.config.cache_root)),
    )


def _dataset_statuses(installation: Installation, ledger: Ledger, begin: Beginnings) -> Iterator[DatasetStatus]:
    sinks = installation.config.sinks
    records = {name: Records.of(ledger, name) for name in sinks}
    today = day_of(installation.clock().astimezone(dt.UTC).date())
    datasets = installation.cache().dataset_names()
    for plan in survey(installation, ledger, sinks=sinks.values(), datasets=datasets):
        since = _since(sinks[plan.sink], plan.dataset, begin)
        verdict = verdict_of(plan, records[plan.sink], since=since, today=today)
        outlook = Outlook.of(plan, first_day=begin.first_day, today=today)
        yield DatasetStatus(
            sink=plan.sink,
            dataset=plan.dataset,
            outlook=outlook,
            verdict=verdict,
            last_export=_last_export(records[plan.sink], plan.dataset),
            last_failure=_last_failure(records[plan.sink], plan.dataset, verdict),
            unscheduled=sum(entry.day != UNDATED and entry.day < since for entry in outlook.due),
        )


def _since(sink: SinkConfig, dataset: DatasetName, begin: Beginnings) -> Day:
    return begins(sink, dataset, begin.sink_starts.get(sink.name, begin.first_day)) or begin.first_day


def _last_export(records: Records, dataset: DatasetName) -> DayAt | None:
    found = (DayAt(day, key.exported_at) for (of, day), key in records.receipts.items() if of == dataset)
    return max(found, key=lambda each: (each.at, each.day), default=None)


def _last_failure(records: Records, dataset: DatasetName, verdict: Verdict) -> DayAt | None:
    failures = {day: records.failures[dataset, day] for day in verdict.failed}
    found = (DayAt(day, failure.failed_at, failure.reason) for day, failure in failures.items())
    return max(found, key=lambda each: (each.at, each.day), default=None)
