"""How the exports stand: what was exported last, what is due, what failed, what waits. The answer of `status`.

Why it is the plan of an export's dry run and no record of its own: a second opinion on what is due would sooner or later be
another one.
"""

import datetime as dt
from collections.abc import Iterator

from hypaware_pipeline.cache.layout import resolve_root
from hypaware_pipeline.cache.spool import spools
from hypaware_pipeline.config import SinkConfig
from hypaware_pipeline.config.cron import next_firing
from hypaware_pipeline.export.beginnings import Beginnings, beginnings, begins
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.export.outlook import Outlook
from hypaware_pipeline.export.requeue import stalls
from hypaware_pipeline.export.status_values import BrokenChain, DatasetStatus, DayAt, SinkStatus, Status
from hypaware_pipeline.export.survey import survey
from hypaware_pipeline.export.verdicts import Records, Verdict, verdict_of
from hypaware_pipeline.ledger import Ledger
from hypaware_pipeline.model import UNDATED, DatasetName, Day, SinkName, day_of


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
        halted, paused = ledger.retries.halted(), ledger.retries.paused()
        chains = [
            BrokenChain(dataset, source, chain.since, chain.note)
            for (dataset, source), chain in ledger.chains.all().items()
            if chain.note
        ]
    return Status(
        beginnings=begin,
        sinks=[
            SinkStatus(
                sink.name,
                sink.schedule,
                next_firing(sink.schedule, now) if sink.schedule else None,
                halted.get(sink.name),
                paused.get(sink.name),
                found[sink.name],
            )
            for sink in sinks
        ],
        broken=installation.config.broken_sinks,
        spools=spools(resolve_root(installation.config.cache_root)),
        chains=chains,
    )


def _dataset_statuses(installation: Installation, ledger: Ledger, begin: Beginnings) -> Iterator[DatasetStatus]:
    sinks = installation.config.sinks
    records = {name: Records.of(ledger, name) for name in sinks}
    today = day_of(installation.clock().astimezone(dt.UTC).date())
    datasets = installation.cache().dataset_names()
    leases = {(lease.sink, lease.dataset): lease for lease in ledger.leases.held()}
    intents = {name: ledger.intents.all(name) for name in sinks}
    unproven = {name: ledger.chains.preview(name) for name in sinks}
    for plan in survey(installation, ledger, sinks=sinks.values(), datasets=datasets):
        since = _since(sinks[plan.sink], plan.dataset, begin)
        verdict = verdict_of(plan, records[plan.sink], since=since, today=today)
        outlook = Outlook.of(plan, first_day=begin.first_day, today=today)
        lease = leases.get((plan.sink, plan.dataset))
        retries = [entry for (dataset, _), entry in records[plan.sink].queue.items() if dataset == plan.dataset]
        yield DatasetStatus(
            sink=plan.sink,
            dataset=plan.dataset,
            outlook=outlook,
            verdict=verdict,
            last_export=_last_export(records[plan.sink], plan.dataset),
            last_failure=_last_failure(records[plan.sink], plan.dataset, verdict),
            unscheduled=sum(entry.day != UNDATED and entry.day < since for entry in outlook.due),
            retries=retries,
            stall=next(iter(stalls(retries)), None),
            lease=lease,
            intents=[each for each in intents[plan.sink] if each.dataset == plan.dataset and lease is None],
            unproven=unproven[plan.sink].get(plan.dataset),
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
