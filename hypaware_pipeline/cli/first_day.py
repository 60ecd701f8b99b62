"""`hypaware-pipeline first-day`: where partitions begin."""

from collections.abc import Mapping
from pathlib import Path

import typer

from hypaware_pipeline.config import find_config_path
from hypaware_pipeline.errors import BadRequest
from hypaware_pipeline.export.beginnings import beginnings, move_first_day
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.model import parse_day


def first_day_command(config: Path | None, day: str | None, *, env: Mapping[str, str]) -> None:
    """Show the first day, or move it to `day`.

    Raises:
        BadRequest: `day` is no day, lies before the floor, or in the future.
        ConfigErrors, StateUnusable, LedgerError: the installation cannot be used.
    """
    installation = Installation.load(find_config_path(config, env), env)
    if day is None:
        begins = beginnings(installation)
        typer.echo(begins.first_day if begins.note is None else f"{begins.first_day}  ({begins.note})")
        return
    try:
        wanted = parse_day(day)
    except ValueError:
        raise BadRequest(f"'{day}' is no day; days are written YYYY-MM-DD") from None
    with installation.open_ledger() as ledger:
        move_first_day(installation, ledger, wanted)
    typer.echo(f"partitions begin on {wanted} now; reload the code location, or restart `hypaware-pipeline dev`, to see it")
