"""What planning costs: the first index, a plan with nothing new, one more file in a large table, a plan over thousands of days.

The floor of the first index is DuckDB counting rows and adding up a hash of the same columns of the same files per day. Wanted:
one more file in a table of 5,000 below 500 ms. These are whole plans; what a tick does instead is measured by `ticks`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.lab import Lab, Sample, Side, cpu_seconds, peak_megabytes, seconds, table

_HEADER = ("what", "ms", "CPU s", "peak MB")
_PLAN = "benchmarks.installations:plan"
_ONE_SINK = {"archive": "parquet"}
_THREE_SINKS = {"archive": "parquet", "feed": "jsonl", "copy": "parquet"}


def run(lab: Lab) -> Iterator[str]:
    """One table."""
    samples: dict[str, list[Sample]] = {}
    _first_index(lab, samples)
    _one_more_file(lab, samples)
    _thousands_of_days(lab, samples)
    lines = [
        [name, f"{seconds(runs) * 1000:,.0f}", f"{cpu_seconds(runs):.2f}", f"{peak_megabytes(runs):.0f}"]
        for name, runs in samples.items()
    ]
    yield table("Planning", _HEADER, lines)


def _first_index(lab: Lab, samples: dict[str, list[Sample]]) -> None:
    rows = lab.size(300_000, 20_000)
    with lab.scratch() as directory:
        cache = str(directory / "cache")
        _fill(lab, "fill_conversations", cache, rows=rows, text_bytes=60, one_file=False, rows_per_file=375)
        files = len(list(Path(cache).glob("datasets/*/*/*/data/*.parquet")))
        name = f"{rows:,} rows in {files:,} files"
        for _ in range(lab.size(3, 1)):
            floor = lab.run(Side("benchmarks.installations:duckdb_index", {"cache": cache, "dataset": "ai_gateway_messages"}))
            samples.setdefault(f"{name}: floor, DuckDB", []).append(floor)
            with lab.scratch() as home:
                for what in ("first index", "nothing new"):
                    samples.setdefault(f"{name}: {what}", []).append(_plan(lab, home, cache, _ONE_SINK))


def _one_more_file(lab: Lab, samples: dict[str, list[Sample]]) -> None:
    files = lab.size(5_000, 200)
    with lab.scratch() as directory, lab.scratch() as home:
        cache = str(directory / "cache")
        _fill(lab, "fill_many_files", cache, files=files, rows_per_file=20, flushes=files // 20)
        _plan(lab, home, cache, _ONE_SINK)
        for number in range(lab.size(5, 1)):
            _fill(lab, "append_logs", cache, rows=20, seed=files + number)
            samples.setdefault(f"table of {files:,} files: one more", []).append(_plan(lab, home, cache, _ONE_SINK))
            samples.setdefault(f"table of {files:,} files: nothing new", []).append(_plan(lab, home, cache, _ONE_SINK))


def _thousands_of_days(lab: Lab, samples: dict[str, list[Sample]]) -> None:
    days = lab.size(1_000, 50)
    with lab.scratch() as directory, lab.scratch() as home:
        cache = str(directory / "cache")
        _fill(lab, "fill_days", cache, datasets=5, days=days, rows_per_day=4, files=100)
        lab.run(Side("benchmarks.installations:record_all", {"home": str(home), "cache": cache, "sinks": _THREE_SINKS}))
        for _ in range(lab.size(3, 1)):
            sample = _plan(lab, home, cache, _THREE_SINKS, times=5)
            if sample.figures["due"]:
                raise RuntimeError(f"{sample.figures['due']} days are due though nothing is new")
            name = f"nothing new, 5 datasets x {days:,} days x 3 sinks"
            samples.setdefault(f"{name}: first of a process", []).append(sample.taking("first_seconds"))
            samples.setdefault(f"{name}: later", []).append(sample.taking("last_seconds"))


def _fill(lab: Lab, function: str, cache: str, **arguments: Any) -> None:
    lab.run(Side(f"benchmarks.caches:{function}", {"cache": cache, **arguments}))


def _plan(lab: Lab, home: Path, cache: str, sinks: dict[str, str], times: int = 1) -> Sample:
    return lab.run(Side(_PLAN, {"home": str(home), "cache": cache, "sinks": sinks, "times": times}))
