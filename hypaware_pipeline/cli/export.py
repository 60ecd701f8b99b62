"""`hypaware-pipeline export`: what is due now, through Dagster in this process."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from hypaware_pipeline.cli.reporting import Report
from hypaware_pipeline.config import SinkConfig, find_config_path
from hypaware_pipeline.errors import BadRequest, RunStorageFailed
from hypaware_pipeline.export.beginnings import beginnings
from hypaware_pipeline.export.installation import Installation, build_sink
from hypaware_pipeline.export.outlook import Outlook, span
from hypaware_pipeline.export.plan import PlannedDay, partition_of
from hypaware_pipeline.export.survey import DatasetPlan, survey
from hypaware_pipeline.model import DatasetName, Day, DayOutcome, SinkName, day_of, parse_day
from hypaware_pipeline.sinks.configured import ConfiguredSink
from hypaware_pipeline.state import checkout_root, dagster_home


@dataclass(frozen=True, slots=True)
class Selection:
    """What of everything that is due was asked for."""

    sinks: Sequence[SinkName] = ()
    dataset: str = "*"
    first: Day | None = None
    last: Day | None = None
    every: bool = False

    @classmethod
    def parse(cls, sinks: Sequence[str], *, dataset: str, first: str | None, last: str | None, every: bool) -> "Selection":
        """Read the command line's words.

        Raises:
            BadRequest: a day is no day, or the range is reversed.
        """
        days = []
        for option, text in (("--from", first), ("--to", last)):
            try:
                days.append(None if text is None else parse_day(text))
            except ValueError:
                raise BadRequest(f"{option} is '{text}'; days are written YYYY-MM-DD") from None
        if days[0] and days[1] and days[0] > days[1]:
            raise BadRequest(f"--from {days[0]} lies after --to {days[1]}; the earlier day comes first")
        return cls(tuple(SinkName(name) for name in sinks), dataset, days[0], days[1], every)

    def of_sinks(self, installation: Installation) -> tuple[SinkConfig, ...]:
        """The sinks asked for that can be built.

        Raises:
            BadRequest: a name is no sink, or no sink is configured.
        """
        config = installation.config
        known = [*config.sinks, *config.broken_sinks]
        if not known:
            raise BadRequest(f"{config.path} configures no sink; add one under 'sinks'")
        unknown = [name for name in self.sinks if name not in known]
        if unknown:
            raise BadRequest(f"no sink named {', '.join(unknown)}; the config has {', '.join(sorted(known))}")
        return tuple(sink for name, sink in config.sinks.items() if not self.sinks or name in self.sinks)

    def of_datasets(self, names: Sequence[DatasetName]) -> list[DatasetName]:
        """The datasets asked for.

        Raises:
            BadRequest: none matches.
        """
        matching = [name for name in names if fnmatchcase(name, self.dataset)]
        if names and not matching:
            raise BadRequest(f"no dataset matches '{self.dataset}'; the cache has {', '.join(names)}")
        return matching

    def check_today(self, today: Day) -> None:
        """Refuse a range that lies in the future.

        Raises:
            BadRequest: an end of the range is later than `today`.
        """
        for option, day in (("--from", self.first), ("--to", self.last)):
            if day is not None and day > today:
                raise BadRequest(f"{option} {day} lies in the future; today is {today} (UTC)")

    def wants(self, partition: Day) -> bool:
        """Whether a partition lies in the range asked for."""
        return (self.first is None or partition >= self.first) and (self.last is None or partition <= self.last)


def export_command(
    config: Path | None, selection: Selection, *, env: Mapping[str, str], dry_run: bool = False, as_json: bool = False
) -> int:
    """Export what is due and was asked for; returns the exit code.

    Raises:
        BadRequest, ConfigErrors, CacheMissing, StateUnusable: the request cannot be carried out as it stands.
        LedgerError: the ledger cannot be read.
    """
    installation = Installation.load(find_config_path(config, env), env)
    return export_due(installation, selection, Report(as_json=as_json), env=env, dry_run=dry_run)


def export_due(
    installation: Installation, selection: Selection, report: Report, *, env: Mapping[str, str], dry_run: bool = False
) -> int:
    """Export what is due of an installation; returns the exit code. Raises as `export_command` does."""
    today = day_of(installation.clock().date())
    selection.check_today(today)
    sinks = selection.of_sinks(installation)
    datasets = selection.of_datasets(installation.cache().dataset_names())
    begins = beginnings(installation)
    if begins.note:
        report.note(begins.note)
    with installation.open_ledger() as ledger:
        plans = list(survey(installation, ledger, sinks=sinks, datasets=datasets, every=selection.every))
    _report_what_cannot_be(installation, selection, plans, report)
    due: list[PlannedDay] = []
    for plan in plans:
        wanted = _due(plan, selection, begins.first_day, today, report)
        _report_unreadable(plan, wanted, selection, begins.first_day, report)
        due += wanted
    if dry_run:
        report.planned(due)
        return report.exit_code
    if due:
        try:
            _run(installation, due, report, env=env)
        except RunStorageFailed as error:
            report.runs_broke(str(error))
    report.finish()
    return report.exit_code


def _report_what_cannot_be(
    installation: Installation, selection: Selection, plans: Sequence[DatasetPlan], report: Report
) -> None:
    for name, errors in installation.config.broken_sinks.items():
        if not selection.sinks or name in selection.sinks:
            report.sink_broken(name, errors)
    for plan in plans:
        if plan.error is not None:
            report.dataset_failed(plan.sink, plan.dataset, plan.error)


def _due(plan: DatasetPlan, selection: Selection, begins: Day, today: Day, report: Report) -> list[PlannedDay]:
    """What is due and was asked for. Days before the first partition, or after today, cannot run; they are said."""
    outlook = Outlook.of(plan, first_day=begins, today=today)
    if outlook.coming:
        rows = sum(entry.rows for entry in outlook.coming)
        report.note(f"{plan.sink}/{plan.dataset}: {rows} rows of {_span(outlook.coming)} are exported when that day comes (UTC)")
    if outlook.early:
        report.note(
            f"{plan.sink}/{plan.dataset}: {sum(entry.rows for entry in outlook.early)} rows of {_span(outlook.early)} lie before "
            f"the first day {begins}; `hypaware-pipeline first-day {outlook.early[0].day}` moves it"
        )
    if selection.every:  # who asks for every day is told which they do not get, and why
        for kept in (outlook.settling, outlook.frozen):
            wanted = [entry for entry in kept if selection.wants(partition_of(entry.day, begins))]
            if wanted:
                report.note(f"{plan.sink}/{plan.dataset}: not exported again: {_span(wanted)}; {wanted[0].reason}")
    return [entry for entry in outlook.due if selection.wants(partition_of(entry.day, begins))]


def _span(entries: Sequence[PlannedDay]) -> str:
    return span([entry.day for entry in entries])


def _report_unreadable(plan: DatasetPlan, due: Sequence[PlannedDay], selection: Selection, begins: Day, report: Report) -> None:
    """Say which sources' rows are missing although no due day will: their days are unknown, or were exported without them."""
    reasons = dict(plan.unreadable)
    for entry in plan.days:
        if selection.wants(partition_of(entry.day, begins)):
            reasons.update(entry.unreadable)
    said = {source for entry in due for source in entry.unreadable}
    for source in sorted(reasons.keys() - said):
        report.dataset_failed(plan.sink, plan.dataset, f"source '{source}' could not be read: {reasons[source]}")


def _run(installation: Installation, due: Sequence[PlannedDay], report: Report, *, env: Mapping[str, str]) -> None:
    # Dagster, 2 s; a dry run, or a cron job with nothing to do, does without.
    from hypaware_pipeline.orchestration.instance import opened_instance
    from hypaware_pipeline.orchestration.runner import Request, run_requests

    home = dagster_home(env, checkout_root())
    os.environ["DAGSTER_HOME"] = str(home)
    days: dict[tuple[SinkName, DatasetName], list[Day]] = {}
    for entry in due:
        days.setdefault((entry.sink, entry.dataset), []).append(entry.day)

    @cache
    def built(name: SinkName) -> ConfiguredSink:
        return build_sink(installation.config.sinks[name], env)

    with report.progress(total=len(due)) as bar, opened_instance(home) as instance:

        def observe(outcome: DayOutcome) -> None:
            uris = [built(outcome.sink).uri(file.key) for file in outcome.receipt.files] if outcome.receipt else []
            report.day_done(outcome, uris)
            bar.advance(bar.task_ids[0])

        requests = [Request(sink, dataset, wanted) for (sink, dataset), wanted in days.items()]
        for run in run_requests(installation, requests, instance=instance, observer=observe):
            if run.error is not None:
                for day in run.days:
                    report.day_failed(run.request.sink, run.request.dataset, day, run.error)
