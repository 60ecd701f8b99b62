"""`hypaware-pipeline config`: the schema of a config file, and whether one is right."""

import json
from collections.abc import Mapping
from pathlib import Path

import typer

from hypaware_pipeline.config import find_config_path, load_config
from hypaware_pipeline.plugins.bundled import BUNDLED_PLUGINS
from hypaware_pipeline.plugins.registry import BUNDLED
from hypaware_pipeline.plugins.schema import config_schema


def schema_command() -> None:
    """Print the JSON Schema of a config file."""
    typer.echo(json.dumps(config_schema(BUNDLED_PLUGINS), indent=2))


def validate_command(config: Path | None, *, env: Mapping[str, str]) -> bool:
    """Say everything that is wrong with a config file; returns whether nothing is.

    Notes on HypAware's own file go to stderr, and make nothing wrong.

    Raises:
        ConfigErrors: the file as a whole cannot be used.
        BadRequest: a directory named by the environment is not absolute.
    """
    read = load_config(find_config_path(config, env), env, BUNDLED)
    for note in read.notes:
        typer.echo(f"note: {note}", err=True)
    if not read.problems:
        typer.echo(f"{read.path} is right: {len(read.sinks)} sinks")
        return True
    typer.echo(f"{read.path}:", err=True)
    for problem in read.problems:
        typer.echo(f"  {problem}", err=True)
    typer.echo(f"sinks that work: {', '.join(read.sinks) or 'none'}", err=True)
    return False
