"""`hypaware-pipeline first-day`: where partitions begin."""

from collections.abc import Mapping
from pathlib import Path

import typer

from hypaware_pipeline.config import find_config_path
from hypaware_pipeline.errors import BadRequest
from hypaware_pipeline.export.first_day import first_day, move_first_day
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.model import day_of, parse_day


def first_day_command(config: Path | None, day: str | None, *, env: Mapping[str, str]) -> None:
    """Show the first day, or move it to `day`.

    Raises:
        BadRequest: `day` is no day, lies before the floor, or in the future.
        ConfigErrors, StateUnusable, LedgerError: the installation cannot be used.
    """
    installation = Installation.load(find_config_path(config, env), env)
    if day is None:
        begins = first_day(installation)
        typer.echo(begins.day if begins.note is None else f"{begins.day}  ({begins.note})")
        return
    try:
        wanted = parse_day(day)
    except ValueError:
        raise BadRequest(f"'{day}' is no day; days are written YYYY-MM-DD") from None
    with installation.open_ledger() as ledger:
        today = day_of(installation.clock().date())
        move_first_day(ledger, wanted, floor=installation.config.floor_day, today=today)
    typer.echo(f"partitions begin on {wanted} now; reload the code location, or restart `hypaware-pipeline dev`, to see it")
