"""Wall time of `hypaware-pipeline export` as cron would run it, next to a process that only imports Dagster.

With nothing due it does without Dagster; with one day due it makes a Dagster run. The first export of all makes the ledger and
Dagster's databases.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.configs import write_config
from benchmarks.lab import Lab, Sample, Side, cpu_seconds, peak_megabytes, ratio, seconds, table

_HEADER = ("side", "seconds", "CPU s", "times the floor", "peak MB")
_FLOOR, _NOTHING, _ONE = "floor: import dagster", "nothing due", "one day due"


def run(lab: Lab) -> Iterator[str]:
    """One table."""
    samples: dict[str, list[Sample]] = {_FLOOR: [], _NOTHING: [], _ONE: []}
    with lab.scratch() as directory, lab.scratch() as home:
        cache = str(directory / "cache")
        write_config(home, cache, sinks={"archive": "parquet"})
        days = {"datasets": 2, "days": 5, "rows_per_day": 100, "files": 5}
        lab.run(Side("benchmarks.caches:fill_days", {"cache": cache, **days}))
        first = _export(lab, home)
        for number in range(lab.size(5, 1)):
            samples[_FLOOR].append(lab.run_command([sys.executable, "-c", "import dagster"]))
            samples[_NOTHING].append(_export(lab, home))
            lab.run(Side("benchmarks.caches:append_logs", {"cache": cache, "rows": 100, "seed": 100 + number}))
            samples[_ONE].append(_export(lab, home))
    lines = [
        [
            name,
            f"{seconds(runs):.2f}",
            f"{cpu_seconds(runs):.2f}",
            f"{1 / ratio(runs, samples[_FLOOR]):.1f}",
            f"{peak_megabytes(runs):.0f}",
        ]
        for name, runs in samples.items()
    ]
    lines.append(
        ["first export, ten days due", f"{first.seconds:.2f}", f"{first.cpu_seconds:.2f}", "", f"{peak_megabytes([first]):.0f}"]
    )
    yield table("hypaware-pipeline export", _HEADER, lines)


def _export(lab: Lab, home: Path) -> Sample:
    config = str(home / "hypaware-pipeline.json")
    command = [sys.executable, "-m", "hypaware_pipeline.cli", "export", "--config", config]
    return lab.run_command(command, {"DAGSTER_HOME": str(home / "dagster")})
