"""`hypaware-pipeline dev`: the real command, asked over HTTP."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from tests.builders import a_cache
from tests.installations import write_config
from tests.waiting import wait_for

ASSETS = """
{ workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError {
    ... on RepositoryLocation { repositories { assetNodes { assetKey { path } } } }
    ... on PythonError { message }
} } } } }
"""

HANGS_AFTER = 240
"""Seconds; a server that was to end and did not would hold up the suite for ever."""


@pytest.fixture
def config(tmp_path):
    return write_config(tmp_path / "home", a_cache(tmp_path / "cache").with_day("2026-06-05").root)


@pytest.fixture
def dev(tmp_path, config):
    """Starts the command; returns the process, which leads a group of its own. None of the group outlives the test."""
    here = tmp_path / "here"
    here.mkdir()
    started = []

    def start(*arguments):
        environment = {**os.environ, "DAGSTER_HOME": str(tmp_path / "dagster"), "HOME": str(tmp_path)}
        command = [sys.executable, "-c", "from hypaware_pipeline.cli import main; main()", "dev", "--config", config, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        started.append(
            subprocess.Popen(command, cwd=here, env=environment, start_new_session=True, preexec_fn=ignore_sigint, **pipes)
        )
        return started[-1]

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def ignore_sigint():
    """As shells do for what a script starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def a_free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(port, query):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/graphql", json.dumps({"query": query}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["data"]


def ask_once_it_listens(process, port, query):
    def look():
        try:
            return ask(port, query)
        except OSError:
            assert process.poll() is None, process.communicate()[0]
            return None

    return wait_for(f"an answer on port {port}", look)


@pytest.mark.slow
def test_dev_shows_the_assets_wherever_it_was_started_alone_on_its_home_and_ends_on_a_signal(dev, tmp_path):
    # Dagster imports from the directory it was started in: `gql` would have been this one, and the UI would not have come up.
    (tmp_path / "here" / "gql.py").write_text("raise SystemExit('this is not the library')\n")
    port = a_free_port()
    process = dev("--port", str(port))
    (location,) = ask_once_it_listens(process, port, ASSETS)["workspaceOrError"]["locationEntries"]
    assert location["name"] == "hypaware"
    (repository,) = location["locationOrLoadError"]["repositories"]
    assert ["archive", "logs"] in [node["assetKey"]["path"] for node in repository["assetNodes"]]

    second = dev("--port", str(a_free_port()))
    refused, _ = second.communicate(timeout=HANGS_AFTER)
    assert second.returncode == 2
    assert f"already runs on Dagster's home {tmp_path / 'dagster'}; stop that one" in refused

    process.terminate()
    printed, _ = process.communicate(timeout=HANGS_AFTER)
    assert "Warning: Function" not in printed
    with (tmp_path / "dagster" / ".dev.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nothing that outlives it for a moment holds up its successor
    with pytest.raises(OSError, match="refused"):
        ask(port, ASSETS)


def test_a_taken_port_is_said_before_anything_is_started(dev, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        process = dev("--port", port)
        printed, _ = process.communicate(timeout=HANGS_AFTER)
    assert process.returncode == 2
    assert f"127.0.0.1:{port}" in printed
    assert "--port" in printed
    assert not (tmp_path / "dagster").exists()


def test_a_port_that_is_none_is_bad_input(dev):
    process = dev("--port", "65536")
    process.communicate(timeout=HANGS_AFTER)
    assert process.returncode == 2
