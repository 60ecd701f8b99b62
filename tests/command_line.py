"""The command line in this process, for a user with a home of their own."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hypaware_pipeline.cli import main

VARIABLES = ("HYP_HOME", "HYP_CONFIG", "HYPAWARE_PIPELINE_CONFIG", "HYPAWARE_STATE_DIR", "HYPAWARE_LEDGER_URL")


class ACommandLine:
    """Runs commands. `home` is the user's; Dagster's lies in it."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self.dagster_home = home / "dagster"
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("DAGSTER_HOME", str(self.dagster_home))
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.chdir(home)

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a command."""
        self._monkeypatch.setattr(sys, "argv", ["hypaware-pipeline", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = self._capsys.readouterr()
        return int(stopped.value.code or 0), printed.out, printed.err

    def documents(self, *arguments: str) -> list[Any]:
        """What a command says with `--json`, a document per line."""
        _, out, err = self(*arguments, "--json")
        assert out, err
        return [json.loads(line) for line in out.splitlines()]
