"""The values that `status` says, and how: as JSON, and in a line."""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hypaware_pipeline.cache.spool import Spool
from hypaware_pipeline.errors import ConfigError, SyncStalled
from hypaware_pipeline.export.beginnings import Beginnings
from hypaware_pipeline.export.outlook import Outlook, counted
from hypaware_pipeline.export.verdicts import Verdict
from hypaware_pipeline.ledger import Intent, Unproven
from hypaware_pipeline.ledger.leases import Lease
from hypaware_pipeline.ledger.retries import Hold, Retry
from hypaware_pipeline.ledger.schema import timestamp
from hypaware_pipeline.model import DatasetName, Day, SinkName, SourceName

_NAMED_AT_MOST = 50
"""How many days of a retry queue are named. All are counted."""


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
        retries: Days that failed and are tried again, the newest first.
        stall: What of these was given up, if anything.
        lease: Who writes it now; None when nobody does.
        intents: Exports that began and did not end, when nobody writes.
        unproven: What the cache has no more without proof that it removed it, and what stays at the sink therefore.
    """

    sink: SinkName
    dataset: DatasetName
    outlook: Outlook
    verdict: Verdict
    last_export: DayAt | None
    last_failure: DayAt | None
    unscheduled: int
    retries: Sequence[Retry]
    stall: SyncStalled | None
    lease: Lease | None
    intents: Sequence[Intent]
    unproven: Unproven | None

    @property
    def next_retry(self) -> str | None:
        """When the next of the days that failed is tried again (UTC, ISO-8601), those that were given up aside."""
        turns = (max(each.due_at, each.requested_until or "") for each in self.retries if not each.given_up)
        return min(turns, default=None)

    @property
    def given_up(self) -> int:
        """How many days were given up."""
        return sum(each.given_up for each in self.retries)

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
            "retry_days": len(self.retries),
            "next_retry": self.next_retry,
            "retries": [_retry_json(each) for each in self.retries[:_NAMED_AT_MOST]],
            "given_up_days": self.given_up,
            "stalled": str(self.stall) if self.stall else None,
            "parked_rows": sum(self.verdict.parked.values()),
            "unproven_days": self.unproven.days if self.unproven else 0,
            "unproven_rows": self.unproven.rows if self.unproven else 0,
            "lease": _lease_json(self.lease) if self.lease else None,
            "open_intents": [_intent_json(each) for each in self.intents],
            "unreadable": dict(self.verdict.unreadable),
            "error": self.verdict.error,
        }


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """How one sink stands. `next_tick` is None for one without a schedule; `halted` and `paused` for one that is not."""

    name: SinkName
    schedule: str | None
    next_tick: dt.datetime | None
    halted: Hold | None
    paused: Hold | None
    datasets: Sequence[DatasetStatus]


@dataclass(frozen=True, slots=True)
class BrokenChain:
    """A source of which nothing proves that it still is what it was; `note` says what happened, `since` when (UTC, ISO-8601)."""

    dataset: DatasetName
    source: SourceName
    since: str
    note: str


@dataclass(frozen=True, slots=True)
class Status:
    """How all exports of a configuration stand.

    Attributes:
        broken: The sinks that cannot be used, with what is wrong.
        chains: Sources that were reset, restored or replaced, as far as that is known.
    """

    beginnings: Beginnings
    sinks: Sequence[SinkStatus]
    broken: Mapping[str, Sequence[ConfigError]]
    spools: Sequence[Spool]
    chains: Sequence[BrokenChain]

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
                "halted": asdict(sink.halted) if sink.halted else None,
                "paused_since": sink.paused.since if sink.paused else None,
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
            "broken_chains": [asdict(each) for each in self.chains],
            "summary": self.summary(),
        }

    def summary(self) -> str:
        """What there is to do, in a line."""
        every = list(self.datasets())
        wrong = [
            (len(self.broken), "sink", "unusable"),
            (sum(sink.halted is not None for sink in self.sinks), "sink", "halted"),
            (sum(len(each.verdict.failed) for each in every), "day", "failed"),
            (sum(each.unproven.rows for each in every if each.unproven), "row", "vanished without proof"),
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
        paused = [sink.name for sink in self.sinks if sink.paused]
        if paused:
            said.append(f"{', '.join(paused)} paused")
        waiting = [each for each in self.spools if each.bytes]
        if waiting:
            names = ", ".join(each.dataset for each in waiting)
            said.append(f"rows of {names} wait in HypAware's spool; `hyp cache refresh` moves them into tables")
        return "; ".join(said)


def _retry_json(entry: Retry) -> dict[str, Any]:
    said = asdict(entry)
    return {key: said[key] for key in ("day", "attempt", "reason", "failed_at", "due_at")} | {"given_up": entry.given_up}


def _lease_json(lease: Lease) -> dict[str, Any]:
    return {
        "holder": lease.holder,
        "since": timestamp(lease.taken_at),
        "until": timestamp(lease.expires_at),
        "token": lease.token,
    }


def _intent_json(intent: Intent) -> dict[str, Any]:
    return {"day": intent.day, "opened_at": intent.opened_at, "objects": list(intent.keys)}
