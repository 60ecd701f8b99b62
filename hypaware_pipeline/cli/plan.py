"""`hypaware-pipeline plan`: what is due, and why. To a person it says what a dry run of an export says.

Why a program is told in one document and not a line per day: what the days come to, and what stands in the way, belong to it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import typer

from hypaware_pipeline.cli.agenda import Selection, agenda_of
from hypaware_pipeline.cli.reporting import Report, due_document
from hypaware_pipeline.config import find_config_path
from hypaware_pipeline.export.installation import Installation


def plan_command(config: Path | None, selection: Selection, *, env: Mapping[str, str], as_json: bool) -> int:
    """Say what an export would do; returns the exit code, that of a dry run.

    Raises:
        BadRequest, ConfigErrors, CacheMissing, StateUnusable: the request cannot be carried out as it stands.
        LedgerError: the ledger cannot be read.
    """
    agenda = agenda_of(Installation.load(find_config_path(config, env), env), selection)
    if as_json:
        document = {
            "due": [due_document(entry) for entry in agenda.due],
            "sinks": [total.to_json() for total in agenda.totals],
            "notes": list(agenda.notes),
            "obstacles": [asdict(each) for each in agenda.obstacles],
        }
        typer.echo(json.dumps(document, ensure_ascii=False))
        return 1 if agenda.obstacles else 0
    report = Report(as_json=False)
    report.beforehand(agenda)
    report.planned(agenda)
    return report.exit_code
