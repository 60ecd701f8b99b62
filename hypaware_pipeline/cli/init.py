"""`hypaware-pipeline init`: a first config file, what there is to export, and what comes next."""

import shlex
from collections.abc import Mapping
from pathlib import Path

import typer

from hypaware_pipeline.cli.reporting import FindingsReport
from hypaware_pipeline.config import find_config_path
from hypaware_pipeline.config.beside import advice
from hypaware_pipeline.config.first import DEFAULT_DIRECTORY, write_first_config
from hypaware_pipeline.config.hypaware import read_hypaware
from hypaware_pipeline.export.health import cache_findings, state_findings
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.plugins.registry import BUNDLED

_NEXT = (
    ("check", "is everything as it should be?"),
    ("export", "export what is due now"),
    ("dev", "the UI, and the schedule: every hour, on the hour"),
)


def init_command(config: Path | None, to: str | None, *, env: Mapping[str, str]) -> None:
    """Write the config file and say what was found.

    Raises:
        BadRequest: there is a file already, or it cannot be written.
        ConfigErrors: the rules refuse the directory.
    """
    path = find_config_path(config, env)
    name = write_first_config(path, env, BUNDLED, to=DEFAULT_DIRECTORY if to is None else to)
    installation = Installation.load(path, env)
    (sink,) = installation.config.sinks.values()
    typer.echo(f"wrote {path}: sink '{name}' exports everything as Parquet to {Path(*sink.place[1:])}\n")
    report = FindingsReport(as_json=False)
    for finding in (*state_findings(installation), *cache_findings(installation)):
        report.show(finding)
    for sentence in advice(read_hypaware(env), env):
        typer.echo(f"\n{sentence}")
    named = "" if path == find_config_path(None, env) else f" --config {shlex.quote(str(path))}"
    typer.echo("\nNext:")
    for command, what in _NEXT:
        typer.echo(f"  hypaware-pipeline {command:<6}{named}  # {what}")
