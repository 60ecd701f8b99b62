"""`hypaware-pipeline dev`: the UI and the daemon on localhost.

Why this process is replaced: signals then reach Dagster itself, which ends all of its children on one of them.

Why SIGINT is heeded again first: shells have what a script starts with `&` ignore it, Dagster does with SIGTERM what it does with
SIGINT, and nothing but SIGKILL, which leaves its children behind, would end it.

Why it runs in Dagster's home: Dagster puts the directory it was started in on the import path of each of its processes, where
any `queue.py` of somebody's would take the place of a library. What the environment says relative to here is made absolute first.

Why the port is tried first: Dagster's web server meets a taken one half a minute later, and the daemon goes on without it.

Why a home is locked: a second daemon on it does everything a second time, and both complain twice a minute. The lock goes on with
the process that takes this one's place, and ends with it; Dagster hands it to none of its children. Where a lock cannot be had it
is forgone.
"""

import fcntl
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import typer

from hypaware_pipeline.config import find_config_path
from hypaware_pipeline.config.environment import file_variable
from hypaware_pipeline.config.hypaware import HYPAWARE_VARIABLE
from hypaware_pipeline.config.loading import CONFIG_VARIABLE
from hypaware_pipeline.errors import BadRequest
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.state import PACKAGE_DIR, checkout_root, dagster_home

_HOST = "127.0.0.1"
_WORKSPACE = PACKAGE_DIR / "data" / "workspace.yaml"
_LOCK_NAME = ".dev.lock"
_DEV_IS_OLD = "ignore:Function `dev_command` is superseded:FutureWarning"
"""Dagster's advice to its own users to take another of its tools."""


def dev_command(config: Path | None, *, port: int, env: Mapping[str, str]) -> NoReturn:
    """Become `dagster dev` for one configuration.

    Raises:
        ConfigErrors, BadRequest: the configuration or the port cannot be used, or Dagster's home is in use; nothing was started.
    """
    path = find_config_path(config, env)
    Installation.load(path, env)  # say what is wrong here rather than in the UI
    _check_port(port)
    home = dagster_home(env, checkout_root())
    _lock(home)
    arguments = ["-W", _DEV_IS_OLD, "-m", "dagster", "dev", "-w", str(_WORKSPACE), "-h", _HOST, "-p", str(port)]
    settings = {CONFIG_VARIABLE: str(path), "DAGSTER_HOME": str(home)}
    if (hypaware := file_variable(env, HYPAWARE_VARIABLE)) is not None:
        settings[HYPAWARE_VARIABLE] = str(hypaware)
    typer.echo(f"Dagster on http://{_HOST}:{port} for {path}, its home {home}; ready in half a minute, Ctrl-C ends it")
    sys.stdout.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.chdir(home)
    os.execve(sys.executable, [sys.executable, *arguments], {**env, **settings})  # noqa: S606  no shell wanted


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: a port just left is free
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise BadRequest(f"cannot listen on {_HOST}:{port}: {error.strerror}; choose another port with --port") from None


def _lock(home: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(home / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        os.set_inheritable(descriptor, True)  # by what takes this process's place
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            remedy = "stop that one, or set DAGSTER_HOME to another directory"
            raise BadRequest(f"`hypaware-pipeline dev` already runs on Dagster's home {home}; {remedy}") from None
