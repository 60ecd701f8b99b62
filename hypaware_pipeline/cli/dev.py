"""`hypaware-pipeline dev`: the UI and the daemon on localhost.

Why this process is replaced: signals then reach Dagster itself, which ends all of its children on one of them.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import typer

from hypaware_pipeline.config import find_config_path
from hypaware_pipeline.config.loading import CONFIG_VARIABLE
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.state import checkout_root, dagster_home


def dev_command(config: Path | None, *, port: int, env: Mapping[str, str]) -> NoReturn:
    """Become `dagster dev` for one configuration.

    Raises:
        ConfigErrors, BadRequest: the configuration cannot be used; nothing was started.
    """
    path = find_config_path(config, env)
    Installation.load(path, env)  # say what is wrong here rather than in the UI
    home = dagster_home(env, checkout_root())
    arguments = ["-m", "dagster", "dev", "-m", "hypaware_pipeline.definitions", "-h", "127.0.0.1", "-p", str(port)]
    typer.echo(f"Dagster on http://127.0.0.1:{port} for {path}, state in {home}; Ctrl-C ends it")
    os.execve(sys.executable, [sys.executable, *arguments], {**env, CONFIG_VARIABLE: str(path), "DAGSTER_HOME": str(home)})  # noqa: S606  no shell wanted
