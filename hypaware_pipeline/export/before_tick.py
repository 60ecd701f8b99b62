"""The command a sink runs ahead of a scheduled tick, such as one that makes HypAware move its spool into tables.

Why no shell: what a config says is a program and its arguments; a `;` or `$` in one of them must stay what it is.

Why a process group of its own: a command that is out of time is ended with everything it started, or the next tick finds it still
at work.

Why a failure is an answer and no exception: what the cache holds already can be exported all the same.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hypaware_pipeline.config.references import Secrets
from hypaware_pipeline.config.sinks import SinkConfig
from hypaware_pipeline.errors import SinkHalted

_SHOWN_CHARS = 500
"""How much of what a failed command said is quoted: the end of it."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What became of a command. `problem` says what went wrong; None when it ended well."""

    seconds: float
    problem: str | None = None


def run_before_tick(sink: SinkConfig, env: Mapping[str, str]) -> CommandResult | None:
    """Run a sink's command, if it has one.

    Args:
        sink: Whose.
        env: The command's environment, and where the variables are that its arguments refer to.
    """
    if sink.before_tick is None:
        return None
    secrets = Secrets(sink.name, env)
    try:
        command = [secrets.fill(word, "before_tick") for word in sink.before_tick.command]
    except SinkHalted as error:
        return CommandResult(0.0, str(error))
    started = time.monotonic()
    problem = _run(command, env, timeout_seconds=sink.before_tick.timeout_seconds)
    said = None if problem is None else secrets.mask(f"before_tick of sink '{sink.name}', `{command[0]}`, {problem}")
    return CommandResult(round(time.monotonic() - started, 3), said)


def _run(command: Sequence[str], env: Mapping[str, str], *, timeout_seconds: float) -> str | None:
    """Run a command to its end; what went wrong, if anything did."""
    try:
        process = subprocess.Popen(  # noqa: S603  the command is the config's, and no shell reads it
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"cannot be started: {error}; name an absolute path, or check PATH of the code server"
    with process:
        try:
            said, _ = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"was not done after {timeout_seconds:g} s and was ended; before_tick_timeout_seconds gives it more"
    if process.returncode == 0:
        return None
    words = said.decode("utf-8", "replace").strip()[-_SHOWN_CHARS:]
    return f"failed with exit code {process.returncode}" + (f": {words}" if words else "")
