"""Due days through Dagster, in this process, recorded in its instance.

Why one run per contiguous range: a run of its own costs Dagster seconds and 130 KB of history; a range costs it milliseconds
per day.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import dagster as dg

from hypaware_pipeline.config.names import distinct_slug
from hypaware_pipeline.errors import ExportEnded
from hypaware_pipeline.export.blueprint import Blueprint
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.export.leases import RUN_WAITS_SECONDS
from hypaware_pipeline.export.plan import contiguous_ranges, partition_of
from hypaware_pipeline.model import DatasetName, Day, DayOutcome, SinkName
from hypaware_pipeline.orchestration.build import definitions_of
from hypaware_pipeline.orchestration.io_managers import Observer
from hypaware_pipeline.orchestration.naming import Names
from hypaware_pipeline.orchestration.partitions import daily_partitions, last_partition, range_tags

_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""The observer reports; Dagster's own event log would bury it. Everything stays in the instance, for the UI."""


@dataclass(frozen=True, slots=True)
class Request:
    """Days of one (sink, dataset) to export."""

    sink: SinkName
    dataset: DatasetName
    days: Sequence[Day]


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run answered.

    Attributes:
        days: The requested days it covered.
        error: Set only when the run itself broke, rather than a day in it.
    """

    request: Request
    days: Sequence[Day]
    run_id: str
    error: str | None


def run_requests(
    installation: Installation,
    requests: Iterable[Request],
    *,
    instance: dg.DagsterInstance,
    observer: Observer,
    lease_wait_seconds: float = RUN_WAITS_SECONDS,
) -> Iterator[RunReport]:
    """Run every request, one run per contiguous range of partitions; the observer is told of each day.

    A day that another export of the same (sink, dataset) is writing is waited for.

    Raises:
        BadRequest: a day has no partition, or the clock stands before all of them.
        ExportEnded: a signal ended a run; what it did was reported, and no other was begun.
    """
    counted = _Counting(observer)
    blueprint, names = Blueprint.draw(installation), Names()
    defs = definitions_of(blueprint, names=names, observer=counted, lease_wait_seconds=lease_wait_seconds)
    begins = blueprint.beginnings.first_day
    partitions = daily_partitions(begins)
    last_partition(partitions)  # there is one at least
    keys = [Day(key) for key in partitions.get_partition_keys()]
    for request in requests:
        sink = installation.config.sinks[request.sink]
        job = defs.resolve_job_def(names.job(sink.slug))
        asset = names.sink_key(sink.slug, distinct_slug(request.dataset))
        for first, last in contiguous_ranges((partition_of(day, begins) for day in request.days), keys):
            counted.days = 0
            # An asset chosen by name would bring its check along.
            result = job.get_subset(asset_selection={asset}, asset_check_selection=set()).execute_in_process(
                instance=instance,
                tags=range_tags(partitions, first, last),
                run_config=_QUIET,
                raise_on_error=False,
            )
            # A run that failed before its first day has told nobody.
            broke = not result.success and counted.days == 0
            covered = [day for day in request.days if first <= partition_of(day, begins) <= last]
            yield RunReport(request, covered, result.run_id, _first_error(result) if broke else None)
            if _interrupted(result):
                raise ExportEnded("the export was ended by a signal; what is not exported is due as before")


class _Counting:
    """An observer that counts the days it passes on."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.days = 0

    def __call__(self, outcome: DayOutcome) -> None:
        self.days += 1
        self._observer(outcome)


def _interrupted(result: dg.ExecuteInProcessResult) -> bool:
    """Whether a signal ended a run. Dagster reports that as a failure like any other."""
    errors = (getattr(event.event_specific_data, "error", None) for event in result.all_events if event.is_failure)
    return any(error.cls_name == dg.DagsterExecutionInterruptedError.__name__ for error in errors if error is not None)


def _first_error(result: dg.ExecuteInProcessResult) -> str:
    for event in result.all_events:
        failure = event.event_specific_data if event.is_failure else None
        ours = getattr(failure, "user_failure_data", None)  # of a `Failure`, whose message would begin with its class
        if ours is not None and ours.description:
            return str(ours.description)
        error = getattr(failure, "error", None)
        if error is not None:
            return str((error.cause or error).message).strip()
    return f"the run failed; look at run {result.run_id} in the UI"
