"""What commands say.

To a person, an export and a plan say a table, a check a line per finding; to a program, they say JSON documents on stdout: an
export one per (sink, dataset, day), a check one per finding, a plan one in all.

Why everything else goes to stderr: the documents, and the table, are the answer. Progress, notes and reasons are not.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from hypaware_pipeline.cli.agenda import Agenda
from hypaware_pipeline.cli.answer import answer_console, answer_table
from hypaware_pipeline.export.findings import Finding, Level
from hypaware_pipeline.export.outlook import SinkTotal, counted, span
from hypaware_pipeline.export.plan import PlannedDay
from hypaware_pipeline.model import DatasetName, Day, DayOutcome, Kept, Receipt, SinkName


class Report:
    """Collects what became of every day; knows the exit code."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._stdout = sys.stdout  # as it is now: while the work is done it leads elsewhere
        self._out = answer_console()
        self._err = Console(file=sys.stderr, highlight=False)
        self._totals: dict[tuple[str, str], dict[str, int]] = {}
        self._kept: dict[tuple[SinkName, DatasetName, Kept], list[Receipt]] = {}
        self._failures: list[str] = []

    @property
    def exit_code(self) -> int:
        """0: all exported, 1: some not."""
        return 1 if self._failures else 0

    def note(self, text: str) -> None:
        """Something a person should know that is no failure."""
        self._err.print(f"note: {text}", markup=False, soft_wrap=True)

    def beforehand(self, agenda: Agenda) -> None:
        """What is to be said before anything is done: what a person should know, and what cannot be exported."""
        for note in agenda.notes:
            self.note(note)
        for each in agenda.obstacles:
            self._failed(each.sink, each.dataset, None, each.error)

    def day_failed(self, sink: SinkName, dataset: DatasetName, day: Day, error: str) -> None:
        """A day that no run reached."""
        self._failed(sink, dataset, day, error)

    def runs_broke(self, error: str) -> None:
        """Runs could not go on; the days they had not reached are still due."""
        self._failures.append(error)
        self._document(sink=None, dataset=None, day=None, status="failed", error=error)

    def day_done(self, outcome: DayOutcome, uris: Sequence[str]) -> None:
        """A day that was worked on; `uris` are its objects."""
        receipt = outcome.receipt
        if not outcome.done:
            self._failures.append(f"{outcome.sink}/{outcome.dataset} {outcome.day}: {outcome.error}")
        totals = self._totals.setdefault(
            (outcome.sink, outcome.dataset), {"days": 0, "rows": 0, "bytes": 0, "parked": 0, "not": 0}
        )
        totals["not"] += not outcome.done
        if outcome.status in ("exported", "partial") and receipt is not None:
            totals["days"] += 1
            totals["rows"] += receipt.exported_rows
            totals["bytes"] += receipt.bytes
            totals["parked"] += receipt.parked_rows
        if receipt is not None and receipt.kept_rows:
            self._kept.setdefault((outcome.sink, outcome.dataset, receipt.kept), []).append(receipt)
        self._document(
            sink=outcome.sink,
            dataset=outcome.dataset,
            day=outcome.day,
            status=outcome.status,
            rows=receipt.exported_rows if receipt else 0,
            bytes=receipt.bytes if receipt else 0,
            parked=[record.to_json() for record in receipt.parked] if receipt else [],
            parked_rows=receipt.parked_rows if receipt else 0,
            files=list(uris),
            seconds=round(outcome.seconds, 3),
            error=outcome.error,
            receipt=receipt.shown() if receipt else None,
        )

    def planned(self, agenda: Agenda) -> None:
        """What an export would do."""
        for entry in agenda.due:
            self._document(**due_document(entry))
        if not self._as_json:
            self._out.print(_due_table(agenda.due) if agenda.due else "nothing is due")
            for total in agenda.totals:
                if total.days or total.held:
                    self._out.print(_total_line(total), soft_wrap=True)
        for total in agenda.totals:
            if total.warning:
                self._err.print(Text(f"warning: {total.warning}", "yellow"), soft_wrap=True)
        self._say_failures()

    @contextmanager
    def progress(self, total: int) -> "Iterator[Progress]":
        """A bar on stderr, if that is a terminal."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("days"), TimeRemainingColumn())
        with Progress(*columns, console=self._err, transient=True, disable=self._as_json or not self._err.is_terminal) as bar:
            bar.add_task("exporting", total=total)
            yield bar

    def finish(self) -> None:
        """Say what became of everything."""
        if not self._as_json:
            nothing = "nothing was exported" if self._failures else "nothing was due"
            self._out.print(self._table() if self._totals else nothing)
        for (sink, dataset, kept), receipts in self._kept.items():
            rows = counted(sum(receipt.kept_rows for receipt in receipts), "row")
            days = span([receipt.day for receipt in receipts])
            self.note(f"{sink}/{dataset}: {rows} of {days} that the cache has no more: {kept.sentence(sink)}")
        self._say_failures()

    def _table(self) -> Table:
        table = answer_table("sink", "dataset")
        for heading in ("days", "rows", "size", "parked", "not exported"):
            table.add_column(heading, justify="right")
        for (sink, dataset), totals in self._totals.items():
            figures = (totals["days"], totals["rows"], decimal(totals["bytes"]), totals["parked"], totals["not"])
            table.add_row(escape(sink), escape(dataset), *(str(figure) for figure in figures))
        return table

    def _say_failures(self) -> None:
        for failure in self._failures:
            self._err.print(f"not exported: {failure}", markup=False, soft_wrap=True)

    def _failed(self, sink: str, dataset: str | None, day: str | None, error: str) -> None:
        self._failures.append(f"{'/'.join(part for part in (sink, dataset) if part)}{f' {day}' if day else ''}: {error}")
        self._document(sink=sink, dataset=dataset, day=day, status="failed", error=error)

    def _document(self, **fields: Any) -> None:
        if self._as_json:
            typer.echo(json.dumps(fields, ensure_ascii=False), file=self._stdout)


_CAUSES = {
    "new": "green",
    "drift": "yellow",
    "stale": "magenta",
    "settled": "yellow",
    "retry": "yellow",
    "unfinished": "yellow",
    "unreadable": "bold red",
    "asked": "cyan",
}
_HELD = {
    "settling": "waiting until a removal of rows has settled",
    "kept": "kept at the sink as exported, because the cache no longer holds them whole",
    "early": "before the first day",
    "coming": "to come",
}


def due_document(entry: PlannedDay) -> dict[str, Any]:
    """A day that is due, for a program."""
    return {
        "sink": entry.sink,
        "dataset": entry.dataset,
        "day": entry.day,
        "status": "due",
        "rows": entry.rows,
        "bytes": entry.bytes,
        "again": entry.again,
        "cause": entry.reason.word,
        "reason": str(entry.reason),
    }


def _due_table(due: Sequence[PlannedDay]) -> Table:
    table = answer_table("sink", "dataset", "day")
    for heading in ("rows", "about"):
        table.add_column(heading, justify="right")
    table.add_column("reason")
    for entry in due:
        size = "?" if entry.bytes is None else decimal(entry.bytes)
        reason = Text(str(entry.reason), _CAUSES[entry.reason.word])
        table.add_row(escape(entry.sink), escape(entry.dataset), entry.day, str(entry.rows), size, reason)
    return table


def _total_line(total: SinkTotal) -> Text:
    """What the days of a sink come to, in a sentence."""
    line = Text(f"{total.sink}: {counted(total.days, 'day')} due")
    if total.days:
        line.append(f", {counted(total.rows, 'row')}, ")
        known = total.days - total.unknown_days
        line.append(f"about {decimal(total.bytes)}" if known else "of unknown size")
        if known and total.unknown_days:
            line.append(f" and {counted(total.unknown_days, 'day')} of unknown size")
        line.append(": ")
        line.append(Text(", ").join(Text(f"{days} {word}", _CAUSES[word]) for word, days in total.causes.items()))
    for word, days in total.held.items():
        line.append(f"; {counted(days, 'day')} {_HELD[word]}")
    return line


_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}


class FindingsReport:
    """Says each finding as it comes; knows the exit code."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._out = answer_console()
        self._counts = dict.fromkeys(Level, 0)

    @property
    def exit_code(self) -> int:
        """0: nothing stops an export, 1: something does."""
        return 1 if self._counts[Level.PROBLEM] else 0

    def show(self, finding: Finding) -> None:
        """Say one."""
        self._counts[finding.level] += 1
        if self._as_json:
            typer.echo(json.dumps(finding.to_json(), ensure_ascii=False))
            return
        line = f"{finding.where}: {' '.join(finding.text.split())}"
        self._out.print(Text(f"{finding.level:<8}", _STYLES[finding.level]), line, markup=False, soft_wrap=True)

    def finish(self) -> None:
        """Say what it comes to."""
        if not self._as_json:
            self._out.print(f"\nproblems: {self._counts[Level.PROBLEM]}, warnings: {self._counts[Level.WARNING]}")
