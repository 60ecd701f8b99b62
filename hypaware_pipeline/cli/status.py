"""`hypaware-pipeline status`: what was exported last, what is due, when the next tick is, what failed."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hypaware_pipeline.config import find_config_path
from hypaware_pipeline.export.health import waiting_text
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.export.outlook import span
from hypaware_pipeline.export.status import DatasetStatus, SinkStatus, Status, status_of

_FIGURES = ("days due", "failed", "parked rows")


def status_command(config: Path | None, *, env: Mapping[str, str], as_json: bool) -> None:
    """Say how the exports stand.

    Raises:
        BadRequest, ConfigErrors, CacheMissing, StateUnusable: it cannot be said.
        LedgerError: the ledger cannot be read.
    """
    installation = Installation.load(find_config_path(config, env), env)
    status = status_of(installation)
    if as_json:
        typer.echo(json.dumps({"config": str(installation.config.path), **status.to_json()}, ensure_ascii=False))
        return
    console = Console(file=sys.stdout, highlight=False)
    if status.sinks:
        console.print(_table(status))
    for line in _lines(status, installation):
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"\n{status.summary()}", markup=False, soft_wrap=True)


def _table(status: Status) -> Table:
    table = Table("sink", "dataset", "last export", "of day", "oldest due", "next tick (UTC)", box=None, pad_edge=False)
    for heading in _FIGURES:
        table.add_column(heading, justify="right")
    for sink in status.sinks:
        for each in sink.datasets:
            table.add_row(*(escape(cell) for cell in _row(sink, each)))
    return table


def _row(sink: SinkStatus, each: DatasetStatus) -> Iterator[str]:
    yield from (sink.name, each.dataset)
    yield from (_minute(each.last_export.at), each.last_export.day) if each.last_export else ("never", "-")
    yield each.oldest_due or "-"
    yield _minute(sink.next_tick.isoformat()) if sink.next_tick else "no schedule"
    yield str(len(each.outlook.due))
    yield str(len(each.verdict.failed))
    yield str(sum(each.verdict.parked.values()))


def _lines(status: Status, installation: Installation) -> Iterator[str]:
    """What a table has no room for."""
    for name, errors in status.broken.items():
        yield f"sink {name} cannot be used: {'; '.join(str(error) for error in errors)}"
    for each in status.datasets():
        yield from (f"{each.sink}/{each.dataset}{said}" for said in _said_of(each))
    if status.beginnings.note:
        yield status.beginnings.note
    for spool in status.spools:
        if spool.since is not None:
            yield f"spool of {spool.dataset}: {waiting_text(spool.bytes, spool.since, installation.clock())}"


def _said_of(each: DatasetStatus) -> Iterator[str]:
    if each.verdict.error:
        yield f": {each.verdict.error}"
    if each.last_failure:
        yield f" {each.last_failure.day} failed at {_minute(each.last_failure.at)}: {each.last_failure.reason}"
    for source, reason in sorted(each.verdict.unreadable.items()):
        yield f": source '{source}' cannot be read: {reason}"
    if each.unscheduled:
        yield f": {each.unscheduled} of the due days lie before the sink's start; its schedule leaves them alone"
    if each.outlook.early:
        early = [entry.day for entry in each.outlook.early]
        yield f": {span(early)} lie before the first day; `hypaware-pipeline first-day {early[0]}` moves it"


def _minute(at: str) -> str:
    """`2026-06-10T12:00:00.000Z` as `2026-06-10 12:00`."""
    return at[:16].replace("T", " ")
