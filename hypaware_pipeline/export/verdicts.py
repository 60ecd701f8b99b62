"""Whether one (sink, dataset) is as it should be: the plan and the ledger, judged.

Why days of today and yesterday may be due: they change while they are written, and are exported by the next tick. An older day
that is still due is one that no tick took.

Why parked rows are a warning and unreadable sources an error: a parked row is accounted for, with its reason in the receipt; of a
source that cannot be read nobody knows what is missing. Rows that vanished without proof are at the sink; somebody has to say
whether they are to stay.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypaware_pipeline.config import SinkConfig
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.export.outlook import counted, span
from hypaware_pipeline.export.survey import DatasetPlan, survey
from hypaware_pipeline.ledger import Failure, Ledger, ReceiptKey
from hypaware_pipeline.ledger.retries import Hold, Retry
from hypaware_pipeline.model import UNDATED, DatasetName, Day, Kept, SinkName, date_of, day_of

_NAMED_AT_MOST = 50
"""How many days or reasons a verdict names. It counts all."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with one (sink, dataset), if anything.

    Attributes:
        error: Why nothing can be said.
        failed: Due days whose last export failed, with the reason.
        waiting: Days before yesterday that are due, and have not failed, in order.
        parked: Rows at the sink's account that were refused, by day.
        unreadable: Sources whose rows are missing, with the reason.
        halted: Why and since when the sink is halted; None when it is not.
        given_up: Days that failed so often that only a scheduled tick tries them, in order.
        unproven: Rows that vanished from the cache without proof that it removed them, and stay at the sink, by day.
    """

    sink: SinkName
    dataset: DatasetName
    error: str | None = None
    failed: Mapping[Day, str] = field(default_factory=dict)
    waiting: Sequence[Day] = ()
    parked: Mapping[Day, int] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    halted: Hold | None = None
    given_up: Sequence[Day] = ()
    unproven: Mapping[Day, int] = field(default_factory=dict)

    @property
    def severe(self) -> bool:
        """Whether rows may be missing at the sink that no later tick will bring by itself."""
        return bool(self.error or self.failed or self.unreadable or self.halted)

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.severe or self.waiting or self.parked or self.unproven)

    def sentence(self) -> str:
        """What there is to say, in a line. It names dates: a relative one would be read on another day."""
        if self.error is not None:
            return self.error
        said = [
            f"halted since {self.halted.since}: {self.halted.reason}" if self.halted else "",
            f"failed: {span(sorted(self.failed))}" if self.failed else "",
            f"given up: {span(self.given_up)}" if self.given_up else "",
            f"waiting for an export: {span(self.waiting)}" if self.waiting else "",
            f"parked: {counted(sum(self.parked.values()), 'row')}" if self.parked else "",
            f"unreadable: {counted(len(self.unreadable), 'source')}" if self.unreadable else "",
            f"vanished without proof: {counted(sum(self.unproven.values()), 'row')}" if self.unproven else "",
        ]
        return "; ".join(filter(None, said)) or "everything that is due was exported"

    def to_json(self) -> dict[str, Any]:
        """What there is to say, in full."""
        said = {
            "error": self.error,
            "failed": _first(self.failed),
            "failed_days": len(self.failed),
            "waiting": list(self.waiting[:_NAMED_AT_MOST]),
            "waiting_days": len(self.waiting),
            "parked": _first(self.parked),
            "parked_rows": sum(self.parked.values()),
            "unreadable": _first(self.unreadable),
            "halted_since": self.halted.since if self.halted else None,
            "halted": self.halted.reason if self.halted else None,
            "given_up": list(self.given_up[:_NAMED_AT_MOST]),
            "given_up_days": len(self.given_up),
            "unproven": _first(self.unproven),
            "unproven_rows": sum(self.unproven.values()),
        }
        return {key: value for key, value in said.items() if value}


@dataclass(frozen=True, slots=True)
class Records:
    """What the ledger has of one sink, by dataset and day."""

    failures: Mapping[tuple[DatasetName, Day], Failure]
    receipts: Mapping[tuple[DatasetName, Day], ReceiptKey]
    queue: Mapping[tuple[DatasetName, Day], Retry]
    halted: Hold | None

    @classmethod
    def of(cls, ledger: Ledger, sink: SinkName) -> "Records":
        """Read them.

        Raises:
            LedgerUnreadable: the ledger cannot be read.
        """
        retries = ledger.retries
        return cls(ledger.failures(sink), ledger.fingerprints(sink), retries.queue(sink), retries.halted().get(sink))

    def given_up(self, dataset: DatasetName, day: Day) -> bool:
        """Whether only a scheduled tick tries a day."""
        return (dataset, day) in self.queue and self.queue[dataset, day].given_up


def judge(
    installation: Installation,
    ledger: Ledger,
    sinks: Sequence[SinkConfig],
    *,
    begins: Mapping[SinkName, Mapping[DatasetName, Day]],
) -> Iterable[Verdict]:
    """Judge every (sink, dataset) of some sinks.

    Args:
        installation: Where everything is.
        ledger: What was recorded.
        sinks: Which ones.
        begins: By sink and dataset, the day before which days are nobody's but a backfill's.

    Raises:
        CacheMissing: there is no cache.
        LedgerUnreadable: the ledger cannot be read.
    """
    datasets = sorted({dataset for of_sink in begins.values() for dataset in of_sink})
    records = {sink.name: Records.of(ledger, sink.name) for sink in sinks}
    today = day_of(installation.clock().astimezone(dt.UTC).date())
    for plan in survey(installation, ledger, sinks=sinks, datasets=datasets):
        since = begins[plan.sink].get(plan.dataset)
        if since is not None:
            yield verdict_of(plan, records[plan.sink], since=since, today=today)


def verdict_of(plan: DatasetPlan, records: Records, *, since: Day, today: Day) -> Verdict:
    """Judge one (sink, dataset) by its plan and what was recorded of its sink. `since` as `begins` of `judge`."""
    if plan.error is not None:
        return Verdict(plan.sink, plan.dataset, error=plan.error)
    due = [entry for entry in plan.days if entry.due and (entry.rows or not entry.unreadable)]
    failed = {
        entry.day: records.failures[plan.dataset, entry.day].reason
        for entry in due
        if (plan.dataset, entry.day) in records.failures
    }
    yesterday = day_of(date_of(today) - dt.timedelta(days=1))
    waiting = [entry.day for entry in due if entry.day != UNDATED and since <= entry.day < yesterday and entry.day not in failed]
    receipts = {day: key for (dataset, day), key in records.receipts.items() if dataset == plan.dataset}
    unreadable: dict[str, str] = {str(source): reason for source, reason in plan.unreadable.items()}
    for entry in plan.days:
        unreadable.update((str(source), reason) for source, reason in entry.unreadable.items())
    return Verdict(
        plan.sink,
        plan.dataset,
        failed=failed,
        waiting=waiting,
        parked={day: key.parked_rows for day, key in receipts.items() if key.parked_rows},
        unreadable=unreadable,
        halted=records.halted,
        given_up=[day for day in sorted(failed) if records.given_up(plan.dataset, day)],
        unproven={day: key.kept_rows for day, key in receipts.items() if key.kept is Kept.UNPROVEN},
    )


def _first(found: Mapping[Any, Any]) -> dict[Any, Any]:
    return dict(sorted(found.items())[:_NAMED_AT_MOST])
