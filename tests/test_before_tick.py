"""The command ahead of a tick: real processes, and what is said of those that go wrong."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hypaware_pipeline.config import SinkConfig
from hypaware_pipeline.export.before_tick import CommandResult, run_before_tick
from hypaware_pipeline.model import SinkName
from tests.installations import JSONL, AnInstallation

ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture
def sink(tmp_path: Path) -> Any:
    def make(command: Any, **options: Any) -> SinkConfig:
        config = {"feed": {**JSONL, "config": {"dir": "out", "before_tick": command, **options}}}
        return AnInstallation(tmp_path, tmp_path / "cache", sinks=config).installation.config.sinks[SinkName("feed")]

    return make


def problem(sink: SinkConfig, env: dict[str, str] = ENV) -> str:
    result = run_before_tick(sink, env)
    assert result is not None
    assert result.problem is not None
    return result.problem


def test_a_sink_without_a_command_runs_none(tmp_path: Path) -> None:
    installation = AnInstallation(tmp_path, tmp_path / "cache").installation
    assert run_before_tick(installation.config.sinks[SinkName("feed")], ENV) is None


@pytest.mark.parametrize("as_one_text", [True, False])
def test_a_command_runs_without_a_shell_in_the_given_environment(sink: Any, tmp_path: Path, as_one_text: bool) -> None:
    command = ["sh", "-c", 'printf "%s" "$GREETING $1" > "$0"', str(tmp_path / "said"), "$HOME; ls"]
    text = f"sh -c 'printf \"%s\" \"$GREETING $1\" > \"$0\"' '{tmp_path / 'said'}' '$HOME; ls'"
    result = run_before_tick(sink(text if as_one_text else command), {**ENV, "GREETING": "hello"})
    assert isinstance(result, CommandResult)
    assert result.problem is None
    assert (tmp_path / "said").read_text() == "hello $HOME; ls"


def test_a_command_that_fails_is_quoted_with_its_exit_code(sink: Any) -> None:
    said = problem(sink(["sh", "-c", "echo the spool is locked >&2; exit 3"]))
    assert said == "before_tick of sink 'feed', `sh`, failed with exit code 3: the spool is locked"


def test_a_program_that_is_not_there_is_said_with_the_mend(sink: Any) -> None:
    said = problem(sink("no-such-program --now"))
    assert "`no-such-program`, cannot be started" in said
    assert "check PATH" in said


def test_a_command_out_of_time_is_ended_with_everything_it_started(sink: Any, tmp_path: Path) -> None:
    child = tmp_path / "child"
    command = ["sh", "-c", f"sleep 600 & echo $! > {child}; wait"]
    said = problem(sink(command, before_tick_timeout_seconds=1))
    assert "was not done after 1 s" in said
    deadline = time.monotonic() + 30
    while runs(int(child.read_text())):
        assert time.monotonic() < deadline
    assert not runs(int(child.read_text()))


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_secret_argument_is_looked_up_when_the_command_runs_and_never_quoted(sink: Any) -> None:
    configured = sink([sys.executable, "-c", "import sys; sys.exit(sys.argv[1])", "${ENV:TOKEN}"])
    assert "hunter2" not in repr(configured)
    assert problem(configured, {**ENV, "TOKEN": "hunter2-hunter2"}).endswith("failed with exit code 1: ${ENV:TOKEN}")
    assert "environment variable TOKEN is not set" in problem(configured)


@pytest.mark.parametrize("command", ["", [], [""], 5, ["ls", 5], "echo 'unfinished"])
def test_what_is_no_command_is_said_where_it_stands(tmp_path: Path, command: Any) -> None:
    config = {"feed": {**JSONL, "config": {"dir": "out", "before_tick": command}}}
    (error, *_) = AnInstallation(tmp_path, tmp_path / "cache", sinks=config).installation.config.broken_sinks["feed"]
    assert error.kind == "sink_config_invalid"
    assert error.pointer.startswith("/sinks/feed/config/before_tick")
