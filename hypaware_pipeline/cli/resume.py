"""`hypaware-pipeline resume` and `pause`: have a sink go on, or leave it alone.

Why what vanished is asked about and the rest is not: trying once more costs a moment. What leaves a sink because its loss was
accepted may be nowhere else.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import typer

from hypaware_pipeline.cli.agenda import Selection
from hypaware_pipeline.config import find_config_path
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.export.lineage import fingerprints
from hypaware_pipeline.export.outlook import counted
from hypaware_pipeline.ledger import Ledger
from hypaware_pipeline.ledger.chains import Unproven
from hypaware_pipeline.ledger.retries import Released
from hypaware_pipeline.model import DatasetName, SinkName


def pause_command(config: Path | None, sink: str, *, env: Mapping[str, str]) -> None:
    """Have a sink's schedule and sensor ask for nothing.

    Raises:
        BadRequest, ConfigErrors, StateUnusable: the request cannot be carried out as it stands.
        LedgerError: the ledger cannot be read or written.
    """
    installation, name = _of(config, sink, env)
    with installation.open_ledger() as ledger:
        ledger.retries.pause(name)
    typer.echo(
        f"{name} is paused: its schedule and its sensor ask for nothing until `hypaware-pipeline resume {name}`. Runs that are "
        "in progress go on; `export` and backfills export to it as before"
    )


def resume_command(
    config: Path | None, sink: str, dataset: str | None, *, env: Mapping[str, str], accept_rewind: bool, yes: bool
) -> int:
    """Have a sink go on; returns the exit code, 1 if somebody was asked and said no. Raises as `pause_command` does."""
    installation, name = _of(config, sink, env)
    of_dataset = None if dataset is None else DatasetName(dataset)
    with installation.open_ledger() as ledger:
        if accept_rewind and not _accepted(installation, ledger, name, of_dataset, yes=yes):
            return 1
        released = ledger.retries.resume(name, of_dataset)
    typer.echo(f"{name}: {'; '.join(_said(released, name))}")
    return 0


def _of(config: Path | None, sink: str, env: Mapping[str, str]) -> tuple[Installation, SinkName]:
    """The installation and the sink, which it must have."""
    installation, name = Installation.load(find_config_path(config, env), env), SinkName(sink)
    Selection(sinks=[name]).of_sinks(installation)
    return installation, name


def _accepted(installation: Installation, ledger: Ledger, sink: SinkName, dataset: DatasetName | None, *, yes: bool) -> bool:
    """Let go of what vanished, if somebody says so; whether there is nothing left to say."""
    found = ledger.chains.preview(sink, dataset)
    for name, each in found.items():
        typer.echo(
            f"{sink}/{name}: {counted(each.rows, 'row')} of {counted(each.days, 'day')} are no longer in the cache, and nothing "
            "proves that HypAware removed them. They are deleted from the sink when these days are exported, and may be nowhere "
            "else"
        )
    if not found:
        typer.echo(f"{sink}: nothing vanished without proof")
    elif not (yes or _agreed()):
        typer.echo("nothing was changed; `--yes` accepts without asking", err=True)
        return False
    else:
        _accept(installation, ledger, sink, found)
    return True


def _accept(installation: Installation, ledger: Ledger, sink: SinkName, found: Mapping[DatasetName, Unproven]) -> None:
    cache = installation.cache()
    now = {name: fingerprints(cache, ledger, name, now=installation.clock()) for name in found}
    accepted = ledger.chains.accept(sink, found, now=now)
    if accepted:
        typer.echo(f"{sink}: {counted(accepted, 'day')} will be exported without what vanished")
    if others := sum(each.days for each in found.values()) - accepted:
        typer.echo(
            f"{sink}: {counted(others, 'day')} changed since, in a cache that was replaced once more; export to the sink, then "
            "see again what vanished"
        )


def _agreed() -> bool:
    return sys.stdin.isatty() and typer.confirm("Delete them from the sink?")


def _said(released: Released, sink: SinkName) -> Iterator[str]:
    if released.halted:
        yield "no longer halted"
    if released.paused:
        yield "no longer paused"
    if released.days:
        yield (
            f"{counted(released.days, 'day')} to be tried again: by the daemon within a minute, or now by `hypaware-pipeline "
            f"export {sink}`"
        )
    if not (released.halted or released.paused or released.days):
        yield "nothing stood in its way, and no day waited to be tried again"
