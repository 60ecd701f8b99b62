"""A real Dagster, web server and daemon, on a port and a home of its own.

Why it is started with default signal handlers: a process that was started with SIGINT ignored, as shells do in the background,
passes that on, and nothing but SIGKILL ends Dagster then, which leaves its children behind.
"""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import dagster as dg
import httpx

from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parent.parent
PACKAGED = ROOT / "hypaware_pipeline" / "data"


class ADagster:
    """`dagster dev` for one config, as a context manager. `url` is where it answers, `instance` looks into the same home.

    `packages` is a directory of plugins that it finds installed.
    """

    def __init__(self, directory: Path, config: Path, *, packages: Path | None = None) -> None:
        self._path = os.pathsep.join(str(each) for each in (ROOT, packages) if each)
        self.home = directory / "dagster_home"
        self.home.mkdir(parents=True)
        (self.home / "dagster.yaml").write_text((PACKAGED / "dagster.yaml").read_text())
        self._config = config
        self._log = directory / "dagster.log"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        """Wait until the code location is loaded."""
        command = [sys.executable, "-m", "dagster", "dev", "-w", str(PACKAGED / "workspace.yaml"), "-h", "127.0.0.1"]
        env = {key: value for key, value in os.environ.items() if not key.startswith(("DAGSTER_", "HYP"))}
        env |= {"DAGSTER_HOME": str(self.home), "HYPAWARE_PIPELINE_CONFIG": str(self._config), "PYTHONPATH": self._path}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "-p", str(self._port)],
                env=env,
                cwd=self.home,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_default_signals,
            )
        wait_for("the code location", self._loaded)
        self.instance = dg.DagsterInstance.from_config(str(self.home))
        return self

    def __exit__(self, *_: object) -> None:
        """End all of its processes."""
        self.instance.dispose()
        self._process.terminate()
        try:
            self._process.wait(timeout=60)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def log(self) -> str:
        """What it printed."""
        return self._log.read_text(errors="replace")

    def graphql(self, query: str, **variables: Any) -> dict[str, Any]:
        """Ask what the UI asks."""
        answer = httpx.post(f"{self.url}/graphql", json={"query": query, "variables": variables}, timeout=60).json()
        assert not answer.get("errors"), answer["errors"]
        data: dict[str, Any] = answer["data"]
        return data

    def backfill(self, *key: str, days: list[str]) -> str:
        """Launch a backfill of one asset as the UI does; returns its id."""
        query = (
            "mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) { __typename "
            "... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"
        )
        params = {"assetSelection": [{"path": list(key)}], "partitionNames": days}
        answer = self.graphql(query, params=params)["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return str(answer["backfillId"])

    def backfill_ended(self, backfill: str) -> Any:
        """Wait for a backfill's end."""

        def ended() -> Any:
            found = self.instance.get_backfill(backfill)
            done = found is not None and found.status.value.startswith(("COMPLETED", "FAILED", "CANCELED"))
            return found if done else None

        return wait_for(f"the end of backfill {backfill}", ended)

    def launch(self, job: str, *key: str, day: str, last: str | None = None) -> str:
        """Launch a job for one day of one asset, or for all days to the `last`, as the UI does; returns the run's id."""
        query = (
            "mutation($params: ExecutionParams!) { launchRun(executionParams: $params) { __typename "
            "... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"
        )
        selector = {"repositoryLocationName": "hypaware", "repositoryName": "__repository__", "jobName": job}
        range_ = {"dagster/asset_partition_range_start": day, "dagster/asset_partition_range_end": last}
        tags = {"dagster/partition": day} if last is None else range_
        params = {
            "selector": {**selector, "assetSelection": [{"path": list(key)}], "assetCheckSelection": []},
            "executionMetadata": {"tags": [{"key": name, "value": value} for name, value in tags.items()]},
        }
        answer = self.graphql(query, params=params)["launchRun"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["runId"])

    def terminate(self, run_id: str) -> None:
        """Ask for the end of a run as the UI does."""
        query = (
            "mutation($id: String!) { terminateRun(runId: $id) { __typename ... on TerminateRunFailure { message } "
            "... on PythonError { message } } }"
        )
        answer = self.graphql(query, id=run_id)["terminateRun"]
        assert answer["__typename"] == "TerminateRunSuccess", answer

    def run_ended(self, run_id: str) -> dg.DagsterRun:
        """Wait for a run's end."""

        def ended() -> dg.DagsterRun | None:
            run = self.instance.get_run_by_id(run_id)
            return run if run is not None and run.is_finished else None

        return wait_for(f"the end of run {run_id}", ended)

    def runs(self, **tags: str) -> list[dg.DagsterRun]:
        """Runs with these tags, the newest first."""
        return list(self.instance.get_runs(dg.RunsFilter(tags=tags)))

    def pid(self, run: dg.DagsterRun) -> int:
        """The process of a started run."""

        def found() -> re.Match[str] | None:
            text = "\n".join(entry.message or "" for entry in self.instance.all_logs(run.run_id))
            return re.search(r"pid: (\d+)", text)

        return int(wait_for(f"the process of run {run.run_id}", found)[1])

    def ticks(self, name: str) -> list[Any]:
        """Ended ticks of a schedule or sensor, the newest first."""
        for state in self.instance.all_instigator_state():
            if state.instigator_name == name:
                ticks = self.instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=50)
                return [tick for tick in ticks if tick.status.value != "STARTED"]
        return []

    def _loaded(self) -> bool:
        if self._process.poll() is not None:
            raise AssertionError(f"dagster dev ended: {self.log()[-4000:]}")
        query = "{ workspaceOrError { ... on Workspace { locationEntries { loadStatus locationOrLoadError { __typename } } } } }"
        try:
            entries = self.graphql(query)["workspaceOrError"]["locationEntries"]
        except httpx.HTTPError:
            return False
        return bool(entries) and all(entry["loadStatus"] == "LOADED" for entry in entries)


def _default_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
