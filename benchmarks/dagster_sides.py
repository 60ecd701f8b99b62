"""What goes through Dagster, as sides: a module of its own, so that sides without Dagster do not load it."""

import os
from pathlib import Path
from typing import Any

import dagster as dg

from benchmarks.installations import open_installation
from hypaware_pipeline.model import DatasetName, Day, SinkName
from hypaware_pipeline.orchestration.runner import Request, run_requests
from hypaware_pipeline.state import dagster_home


def export_day(home: str, cache: str, *, dataset: str, day: str, kind: str) -> dict[str, float]:
    """Export a day in a Dagster run in this process, recorded in an instance of its own."""
    installation = open_installation(home, cache, sinks={"bench": kind})
    os.environ["DAGSTER_HOME"] = str(dagster_home({"DAGSTER_HOME": str(Path(home) / "dagster")}, None))
    outcomes: list[Any] = []
    request = Request(SinkName("bench"), DatasetName(dataset), [Day(day)])
    with dg.DagsterInstance.get() as instance:
        reports = list(run_requests(installation, [request], instance=instance, observer=outcomes.append))
    if [outcome.status for outcome in outcomes] != ["exported"]:
        raise RuntimeError(f"not exported: {[outcome.error for outcome in outcomes]}, {[report.error for report in reports]}")
    return {"rows": outcomes[0].receipt.rows, "bytes": outcomes[0].receipt.bytes}
