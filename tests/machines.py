"""Machines that share a ledger and a destination: each has a home, a state directory and a Dagster of its own."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from signal import Signals
from typing import Any, Self

from hypaware_pipeline.cli import main
from tests.command_line import VARIABLES
from tests.faults import PROCESSES
from tests.installations import AnInstallation


class ACommand:
    """`hypaware-pipeline` in a process; a context manager that leaves none behind."""

    def __init__(self, *arguments: str, env: Mapping[str, str], log: Path) -> None:
        self._log = log
        self._process = PROCESSES.Process(target=_command, args=(arguments, env, log))
        self._process.start()

    def __enter__(self) -> Self:
        """It runs already."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it if it runs still."""
        self._process.kill()
        self._process.join()

    @property
    def pid(self) -> int:
        """Its number."""
        assert self._process.pid is not None
        return self._process.pid

    def runs_after(self, seconds: float) -> bool:
        """Let it run for so long at most; whether it still does."""
        self._process.join(seconds)
        return self._process.is_alive()

    def ended(self, *, within: float) -> int:
        """Wait for its end; its exit code, which is negative after a signal."""
        assert not self.runs_after(within), self.said()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def send(self, number: Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def said(self) -> str:
        """What it printed by now."""
        return self._log.read_text(errors="replace")

    def answers(self) -> dict[str, str]:
        """The status of each day, as `--json` says it."""
        documents = [json.loads(line) for line in self.said().splitlines() if line.startswith("{")]
        return {each["day"]: each["status"] for each in documents}


class AMachine:
    """A machine that exports a cache with the command line."""

    def __init__(self, home: Path, cache: Path, **options: Any) -> None:
        self.home = home
        self.installation = AnInstallation(home, cache, **options)
        kept = {key: value for key, value in os.environ.items() if key not in VARIABLES and not key.startswith("DAGSTER_")}
        (home / "dagster").mkdir()
        self._env = kept | self.installation.env | {"DAGSTER_HOME": str(home / "dagster")}
        self._commands = 0

    def export(self, *arguments: str) -> ACommand:
        """Begin an export of what is due."""
        self._commands += 1
        config = str(self.installation.installation.config.path)
        log = self.home / f"export-{self._commands}.log"
        return ACommand("export", "--json", "--config", config, *arguments, env=self._env, log=log)


def _command(arguments: tuple[str, ...], env: Mapping[str, str], log: Path) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(log.parent)
    with log.open("wb") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    sys.argv = ["hypaware-pipeline", *arguments]
    main()
