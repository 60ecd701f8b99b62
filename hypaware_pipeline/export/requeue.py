"""Days that failed: how they come into the retry queue, and who asks for which of them when.

Why every day that failed is queued, also at a sink that halted: once the sink takes something again, what failed meanwhile comes
back by itself. While it is halted nobody asks for it.

Why a day of which a source could not be read is not queued: its readable rows are exported, and when the source can be read again
the day is due.

Why a scheduled tick asks for what was given up, one day of a dataset: somebody has to find out that the destination lives again.
The day whose last attempt was longest ago goes first, so that one that can never be exported does not keep the others from it.

Why a tick asks for one day of a halted sink: retrying mends nothing, and a thousand days would only say so a thousand times.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hypaware_pipeline.errors import LedgerError, SyncStalled
from hypaware_pipeline.export.outlook import counted
from hypaware_pipeline.export.plan import PlannedDay
from hypaware_pipeline.ledger import Ledger
from hypaware_pipeline.ledger.retries import Retry
from hypaware_pipeline.model import DatasetName, Day, DayOutcome, SinkName

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Turn:
    """What a scheduled tick asks for of the days that are due.

    Attributes:
        days: Those.
        said: What a person should know about the others, one sentence each.
    """

    days: Sequence[PlannedDay]
    said: Sequence[str]


def settle(ledger: Ledger, outcome: DayOutcome) -> None:
    """Remember what became of a day: one that failed is tried again, one of which nothing is left to do is not.

    A ledger that does not take it must not cost the days that follow: the run says it as well.
    """
    of = outcome.sink, outcome.dataset, outcome.day
    reason = outcome.error or outcome.status
    try:
        if outcome.done:
            ledger.retries.forget(*of)
        else:
            ledger.record_failure(*of, reason)
        if outcome.status == "failed":
            ledger.retries.give_back(*of, reason, retry_after_seconds=outcome.retry_after_seconds)
    except LedgerError as error:
        log.warning("%s/%s %s: what became of it was not recorded: %s", *of, error)


def scheduled(ledger: Ledger, sink: SinkName, due: Sequence[PlannedDay]) -> Turn:
    """What a scheduled tick asks for of a sink's due days, most urgent first.

    Days in the retry queue are left to the sensor that asks for them in their time.
    """
    queue = ledger.retries.queue(sink)
    halted = ledger.retries.halted().get(sink)
    if halted is not None:
        probe = _longest_ago(due, queue)
        return Turn(probe, [f"the sink is halted since {halted.since} and {_tried(probe)}: {halted.reason}"])
    fresh = [entry for entry in due if (entry.dataset, entry.day) not in queue]
    given_up: dict[DatasetName, list[PlannedDay]] = {}
    waiting = 0
    for entry in due:
        retry = queue.get((entry.dataset, entry.day))
        if retry is not None and retry.given_up:
            given_up.setdefault(entry.dataset, []).append(entry)
        elif retry is not None:
            waiting += 1
    probes = [probe for entries in given_up.values() for probe in _longest_ago(entries, queue)]
    said = [f"{counted(waiting, 'day')} that failed are tried again in their time"] if waiting else []
    return Turn([*fresh, *probes], [*said, *(str(each) for each in stalls(queue.values()))])


def stalls(queue: Iterable[Retry]) -> list[SyncStalled]:
    """What was given up of a sink's queue, by dataset."""
    by_dataset: dict[DatasetName, list[Retry]] = {}
    for entry in queue:
        if entry.given_up:
            by_dataset.setdefault(entry.dataset, []).append(entry)
    return [
        SyncStalled(last.sink, dataset, restarts=last.attempt, reason=f"{_days(entries)}: {last.reason}")
        for dataset, entries in sorted(by_dataset.items())
        for last in [max(entries, key=lambda entry: entry.failed_at)]
    ]


def _longest_ago(due: Sequence[PlannedDay], queue: Mapping[tuple[DatasetName, Day], Retry]) -> list[PlannedDay]:
    """The day that was not tried for the longest time, if there is any."""

    def tried(entry: PlannedDay) -> str:
        retry = queue.get((entry.dataset, entry.day))
        return retry.failed_at if retry is not None else ""

    return sorted(due, key=tried)[:1]


def _days(entries: Sequence[Retry]) -> str:
    return entries[0].day if len(entries) == 1 else f"{counted(len(entries), 'day')}, last {entries[0].day}"


def _tried(probe: Sequence[PlannedDay]) -> str:
    return f"only {probe[0].dataset} {probe[0].day} is tried" if probe else "nothing is tried"
