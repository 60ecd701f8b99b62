"""Loading the definitions in a new process, next to a process that only imports Dagster; wanted below 4 s.

The first load chooses the first day and so reads the cache; later ones do not. "New process" means just that: the machine's file
cache is warm, except where it was not in the first round.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.configs import write_config
from benchmarks.lab import Lab, Sample, Side, cpu_seconds, peak_megabytes, ratio, seconds, table

_HEADER = ("side", "seconds", "CPU s", "times the floor", "peak MB")
_SINKS = {"archive": "parquet", "feed": "jsonl", "copy": "parquet"}


def run(lab: Lab) -> Iterator[str]:
    """One table: the floor, a first and a later load."""
    samples: dict[str, list[Sample]] = {"floor: import dagster": [], "first load": [], "later load": []}
    with lab.scratch() as directory:
        cache = str(directory / "cache")
        days = {"datasets": 5, "days": lab.size(1_000, 50), "rows_per_day": 2, "files": 10}
        lab.run(Side("benchmarks.caches:fill_days", {"cache": cache, **days}))
        for _ in range(lab.size(5, 1)):
            with lab.scratch() as home:
                write_config(home, cache, sinks=_SINKS)
                samples["floor: import dagster"].append(lab.run_command([sys.executable, "-c", "import dagster"]))
                for name in ("first load", "later load"):
                    samples[name].append(_load(lab, home))
    floor = next(iter(samples.values()))
    lines = [
        [
            name,
            f"{seconds(runs):.2f}",
            f"{cpu_seconds(runs):.2f}",
            f"{1 / ratio(runs, floor):.1f}",
            f"{peak_megabytes(runs):.0f}",
        ]
        for name, runs in samples.items()
    ]
    yield table("Loading the definitions", _HEADER, lines)


def _load(lab: Lab, home: Path) -> Sample:
    code = "from hypaware_pipeline.definitions import defs; defs().get_repository_def()"
    return lab.run_command([sys.executable, "-c", code], {"HYPAWARE_PIPELINE_CONFIG": str(home / "hypaware-pipeline.json")})
