"""`hypaware-pipeline export`: what is due now, through Dagster in this process."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

from hypaware_pipeline.cli.agenda import Selection, agenda_of
from hypaware_pipeline.cli.reporting import Report
from hypaware_pipeline.config import find_config_path
from hypaware_pipeline.errors import ExportEnded, RunStorageFailed
from hypaware_pipeline.export.installation import Installation, build_sink
from hypaware_pipeline.export.leases import RUN_WAITS_SECONDS
from hypaware_pipeline.export.plan import PlannedDay
from hypaware_pipeline.model import DatasetName, Day, DayOutcome, SinkName
from hypaware_pipeline.sinks.configured import ConfiguredSink
from hypaware_pipeline.state import checkout_root, dagster_home


def export_command(
    config: Path | None,
    selection: Selection,
    *,
    env: Mapping[str, str],
    dry_run: bool = False,
    as_json: bool = False,
    wait_seconds: float,
) -> int:
    """Export what is due and was asked for; returns the exit code.

    Raises:
        BadRequest, ConfigErrors, CacheMissing, StateUnusable: the request cannot be carried out as it stands.
        LedgerError: the ledger cannot be read.
    """
    report = Report(as_json=as_json)
    with redirect_stdout(sys.stderr):  # the answer is the report's alone, whatever a plugin prints
        installation = Installation.load(find_config_path(config, env), env)
        return export_due(installation, selection, report, env=env, dry_run=dry_run, wait_seconds=wait_seconds)


def export_due(
    installation: Installation,
    selection: Selection,
    report: Report,
    *,
    env: Mapping[str, str],
    dry_run: bool = False,
    wait_seconds: float = RUN_WAITS_SECONDS,
) -> int:
    """Export what is due of an installation; returns the exit code. Raises as `export_command` does.

    A day that another process is writing is waited for, for so many seconds.
    """
    agenda = agenda_of(installation, selection)
    report.beforehand(agenda)
    if dry_run:
        report.planned(agenda)
        return report.exit_code
    if agenda.due:
        try:
            _run(installation, agenda.due, report, env=env, wait_seconds=wait_seconds)
        except (RunStorageFailed, ExportEnded) as error:
            report.runs_broke(str(error))
    report.finish()
    return report.exit_code


def _run(
    installation: Installation, due: Sequence[PlannedDay], report: Report, *, env: Mapping[str, str], wait_seconds: float
) -> None:
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
        runs = run_requests(installation, requests, instance=instance, observer=observe, lease_wait_seconds=wait_seconds)
        for run in runs:
            if run.error is not None:
                for day in run.days:
                    report.day_failed(run.request.sink, run.request.dataset, day, run.error)
