"""`hypaware-pipeline status`: what was exported last, what is due, when the next tick is, what failed.

Why words and no columns of figures: most of these would be zero. What is not as it should be stands out only where what is says
nothing.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hypaware_pipeline.cli.answer import answer_console, answer_table
from hypaware_pipeline.config import find_config_path
from hypaware_pipeline.export.health import waiting_text
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.export.outlook import counted, span
from hypaware_pipeline.export.status import status_of
from hypaware_pipeline.export.status_values import DatasetStatus, SinkStatus, Status
from hypaware_pipeline.ledger.schema import timestamp


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
    console = answer_console()
    if status.sinks:
        console.print(_table(status))
        console.print()
    lines = list(_lines(status, installation))
    for line in [*lines, *([""] if lines else []), status.summary()]:
        console.print(line, markup=False, soft_wrap=True)


def _table(status: Status) -> Table:
    """A line per sink, and one per dataset of it; where a terminal is too narrow, a cell goes on below itself."""
    table = answer_table("", "times in UTC", "")
    table.columns[1].no_wrap = True
    for sink in status.sinks:
        tick = f"next tick {_minute(sink.next_tick.isoformat())}" if sink.next_tick else "no schedule"
        alone = ", ".join(how for how, hold in (("halted", sink.halted), ("paused", sink.paused)) if hold)
        table.add_row(Text(sink.name, "bold"), tick, Text(alone, "red" if sink.halted else "yellow"))
        for each in sink.datasets:
            exported = f"exported {_minute(each.last_export.at)}" if each.last_export else "never exported"
            table.add_row(Padding(Text(each.dataset), (0, 0, 0, 2)), exported, _standing(each))
    return table


def _standing(each: DatasetStatus) -> Text:
    """How a dataset stands at a sink, in a few words."""
    verdict, due = each.verdict, len(each.outlook.due)
    given_up = len(verdict.given_up)
    failed = len(verdict.failed) - given_up
    said = [
        "unreadable" if verdict.error else "",
        f"{due} days due from {each.oldest_due}" if due > 1 else "",
        f"{each.oldest_due} due" if due == 1 else "",
        f"{counted(failed, 'day')} failed" if failed else "",
        f"{counted(given_up, 'day')} given up" if given_up else "",
        f"{counted(sum(verdict.parked.values()), 'row')} parked" if verdict.parked else "",
        f"{counted(len(verdict.unreadable), 'source')} unreadable" if verdict.unreadable else "",
        f"{counted(each.unproven.rows, 'row')} vanished without proof" if each.unproven else "",
    ]
    text = ", ".join(filter(None, said)) or "up to date"
    return Text(text, "red" if verdict.severe else "" if verdict.passed else "yellow")


def _lines(status: Status, installation: Installation) -> Iterator[str]:
    """What a table has no room for."""
    for name, errors in status.broken.items():
        yield f"sink {name} cannot be used: {'; '.join(str(error) for error in errors)}"
    for sink in status.sinks:
        yield from _said_of_sink(sink)
    for chain in status.chains:
        yield f"source '{chain.source}' of {chain.dataset}, {_minute(chain.since)}: {chain.note}"
    for sink in status.sinks:
        for each in sink.datasets:
            said = [*_said_of_failures(each), *_said_of(each)] if sink.halted is None else _said_of(each)
            yield from (f"{each.sink}/{each.dataset}{text}" for text in said)
    if status.beginnings.note:
        yield status.beginnings.note
    for spool in status.spools:
        if spool.since is not None:
            yield f"spool of {spool.dataset}: {waiting_text(spool.bytes, spool.since, installation.clock())}"


def _said_of_sink(sink: SinkStatus) -> Iterator[str]:
    if sink.halted:
        yield (
            f"{sink.name} is halted since {_minute(sink.halted.since)}: {sink.halted.reason}; when that is mended, run "
            f"`hypaware-pipeline resume {sink.name}`. Until then a tick tries one day"
        )
    if sink.paused:
        yield (
            f"{sink.name} is paused since {_minute(sink.paused.since)}, so nothing is exported by itself; "
            f"`hypaware-pipeline resume {sink.name}` ends that"
        )


def _said_of(each: DatasetStatus) -> Iterator[str]:
    if each.verdict.error:
        yield f": {each.verdict.error}"
    if each.lease:
        yield f" is being written by {each.lease.holder}, since {_minute(timestamp(each.lease.taken_at))}"
    if each.intents:
        begun = span(sorted({intent.day for intent in each.intents}))
        yield f": what an export began to write of {begun} is not recorded; the next one puts that in order"
    if each.unproven:
        yield (
            f": {counted(each.unproven.rows, 'row')} of {counted(each.unproven.days, 'day')} that the cache has no more stay at "
            "the sink, as is right after a reset. If they are to go, "
            f"`hypaware-pipeline resume {each.sink} --accept-rewind` lets them"
        )
    for source, reason in sorted(each.verdict.unreadable.items()):
        yield f": source '{source}' cannot be read: {reason}"
    if each.unscheduled:
        yield f": before the sink's start: {counted(each.unscheduled, 'due day')}; its schedule asks for none of them"
    if each.outlook.early:
        early = [entry.day for entry in each.outlook.early]
        yield f": before the first day: {span(early)}; `hypaware-pipeline first-day {early[0]}` moves it"


def _said_of_failures(each: DatasetStatus) -> Iterator[str]:
    """What a sink that is halted says once for all of its datasets."""
    if each.stall:
        yield f" {str(each.stall).removeprefix(f'{each.sink}/{each.dataset} ')}"
    elif each.last_failure:
        yield f" {each.last_failure.day} failed at {_minute(each.last_failure.at)}: {each.last_failure.reason}"
    waiting = len(each.retries) - each.given_up
    if waiting and each.next_retry:
        yield f": {counted(waiting, 'day')} to be tried again, the next at {_minute(each.next_retry)}; an export tries them now"


def _minute(at: str) -> str:
    """`2026-06-10T12:00:00.000Z` as `2026-06-10 12:00`."""
    return at[:16].replace("T", " ")
