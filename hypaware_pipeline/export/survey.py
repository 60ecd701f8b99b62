"""What is due now at every sink: each dataset is pinned once, and every sink that takes it is planned from that pin.

Why every exception ends at the dataset: a defect that one of them meets must not keep the others from being exported.
"""

import datetime as dt
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hypaware_pipeline.config import SinkConfig
from hypaware_pipeline.errors import LedgerUnreadable, LedgerWriteFailed, PipelineError
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.export.lineage import follow
from hypaware_pipeline.export.plan import PlannedDay, Standing, plan_days
from hypaware_pipeline.ledger import Ledger
from hypaware_pipeline.model import DatasetName, Day, SinkName, SourceName
from hypaware_pipeline.plugins.registry import destination_digest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DatasetPlan:
    """The plan of one (sink, dataset).

    Attributes:
        error: Why there is none.
        unreadable: Sources of which nothing can be said, with the reason; no day of theirs need be in the plan.
    """

    sink: SinkName
    dataset: DatasetName
    days: Sequence[PlannedDay]
    error: str | None = None
    unreadable: Mapping[SourceName, str] = field(default_factory=dict)


def survey(
    installation: Installation,
    ledger: Ledger,
    *,
    sinks: Iterable[SinkConfig],
    datasets: Iterable[DatasetName],
    every: bool = False,
    patient: bool = False,
) -> Iterator[DatasetPlan]:
    """Plan every (sink, dataset) pair, dataset by dataset.

    Args:
        installation: Whose.
        ledger: Its ledger.
        sinks: For which sinks.
        datasets: Of which datasets.
        every: Whether unchanged days are due as well.
        patient: Whether days that failed are due in their time only, and not at once, as for a person who asks.

    Raises:
        CacheMissing: there is no cache.
        LedgerUnreadable: the ledger cannot be read.
        LedgerWriteFailed: it does not take what was seen of the cache.
    """
    cache = installation.cache()
    sinks = tuple(sinks)
    standing = {sink.name: _standing(ledger, sink.name) for sink in sinks}
    retries = {sink.name: _retries(ledger, sink.name) for sink in sinks}
    unfinished = {sink.name: _unfinished(ledger, sink.name) for sink in sinks}
    for dataset in datasets:
        takers = [sink for sink in sinks if sink.takes(dataset)]
        if not takers:
            continue
        try:
            pin = follow(cache, ledger, dataset, now=installation.clock()).pin
            summaries = dict(pin.partitions())
        except (LedgerUnreadable, LedgerWriteFailed):
            raise
        except Exception as error:
            reason = _explained(dataset, error)
            yield from (DatasetPlan(sink.name, dataset, (), reason) for sink in takers)
            continue
        for sink in takers:
            known = standing[sink.name].get(dataset, {})
            failed = retries[sink.name].get(dataset, {})
            cut_off = unfinished[sink.name].get(dataset, set())
            days = plan_days(
                sink=sink.name,
                dataset=dataset,
                summaries={day: summaries.get(day) or pin.summary(day) for day in {*summaries, *known, *failed, *cut_off}},
                standing=known,
                destination=destination_digest(sink),
                now=installation.clock(),
                retries=failed,
                patient=patient,
                unfinished=cut_off,
                mounted=bool(pin.sources or pin.unreadable),
                every=every,
            )
            yield DatasetPlan(sink.name, dataset, days, unreadable=pin.unreadable)


def _explained(dataset: DatasetName, error: Exception) -> str:
    if isinstance(error, PipelineError):
        return str(error)
    log.error("planning %s", dataset, exc_info=error)
    return f"unexpected {type(error).__name__}: {error}"


def _standing(ledger: Ledger, sink: SinkName) -> dict[DatasetName, dict[Day, Standing]]:
    found: dict[DatasetName, dict[Day, Standing]] = {}
    for (dataset, day), key in ledger.fingerprints(sink).items():
        standing = Standing(
            key.fingerprint, key.destination, key.rows, key.exported_rows, key.bytes, key.kept, key.version, key.exported_at
        )
        found.setdefault(dataset, {})[day] = standing
    return found


def _retries(ledger: Ledger, sink: SinkName) -> dict[DatasetName, dict[Day, dt.datetime]]:
    """When each day in the retry queue is due."""
    found: dict[DatasetName, dict[Day, dt.datetime]] = {}
    for (dataset, day), retry in ledger.retries.queue(sink).items():
        found.setdefault(dataset, {})[day] = dt.datetime.fromisoformat(retry.due_at)
    return found


def _unfinished(ledger: Ledger, sink: SinkName) -> dict[DatasetName, set[Day]]:
    """The days of which an export began and did not end."""
    found: dict[DatasetName, set[Day]] = {}
    for intent in ledger.intents.all(sink):
        found.setdefault(intent.dataset, set()).add(intent.day)
    return found
