"""What ticks cost in the code server: nothing new, whatever was exported; one more file in a large table; days that wait.

The floor is as many schedules that skip at once: Dagster opens its storage anew for every tick. A first tick plans, and imports
what that takes.
Wanted: nothing new over 5 datasets x 1,000 days x 3 sinks below 300 ms for all three ticks together, the same for a tenth of the
days; one more file in a table of 5,000 below 500 ms; 5,000 days that wait below 2 s.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.lab import Lab, Sample, Side, cpu_seconds, peak_megabytes, seconds, table

_HEADER = ("what", "ms", "CPU ms", "peak MB")
_TIMES = 6
_ONE_SINK = {"archive": "parquet"}
_THREE_SINKS = {"archive": "parquet", "feed": "jsonl", "copy": "parquet"}


def run(lab: Lab) -> Iterator[str]:
    """One table."""
    samples: dict[str, list[Sample]] = {}
    for days in (lab.size(100, 10), lab.size(1_000, 50)):
        _nothing_new(lab, samples, days)
    _one_more_file(lab, samples)
    lines = [
        [name, f"{seconds(runs) * 1000:,.0f}", f"{cpu_seconds(runs) * 1000:,.0f}", f"{peak_megabytes(runs):.0f}"]
        for name, runs in samples.items()
    ]
    yield table("Ticks", _HEADER, lines)


def _nothing_new(lab: Lab, samples: dict[str, list[Sample]], days: int) -> None:
    with lab.scratch() as directory, lab.scratch() as home:
        cache = str(directory / "cache")
        lab.run(
            Side("benchmarks.caches:fill_days", {"cache": cache, "datasets": 5, "days": days, "rows_per_day": 4, "files": 50})
        )
        lab.run(Side("benchmarks.installations:record_all", {"home": str(home), "cache": cache, "sinks": _THREE_SINKS}))
        name = f"3 sinks x 5 datasets x {days:,} days"
        first = _quiet_tick(lab, home, cache)
        samples[f"{name}: first tick, planned"] = [_part(first, "first")]
        later = [first, *(_quiet_tick(lab, home, cache) for _ in range(lab.size(2, 0)))]
        samples[f"{name}: nothing new"] = [_part(sample, "later") for sample in later]
        samples[f"{name}: floor, 3 schedules that skip"] = [_part(sample, "floor") for sample in later]
        arguments = {"home": str(home), "cache": cache, "sinks": _ONE_SINK, "times": _TIMES}
        requeued = lab.run(Side("benchmarks.tick_sides:requeue", arguments))
        waiting = f"{requeued.figures['waiting']:,.0f} days wait to be tried again: requeue sensor"
        samples[f"{waiting}, first"] = [requeued.taking("first_seconds")]
        samples[f"{waiting}, later ({requeued.figures['runs']:.0f} runs each)"] = [requeued.taking("later_seconds")]


def _one_more_file(lab: Lab, samples: dict[str, list[Sample]]) -> None:
    files = lab.size(5_000, 200)
    with lab.scratch() as directory, lab.scratch() as home:
        cache = str(directory / "cache")
        arguments = {"cache": cache, "files": files, "rows_per_file": 20, "flushes": files // 20}
        lab.run(Side("benchmarks.caches:fill_many_files", arguments))
        for number in range(lab.size(3, 1)):
            lab.run(Side("benchmarks.installations:record_all", {"home": str(home), "cache": cache, "sinks": _ONE_SINK}))
            sample = _tick(lab, home, cache, _ONE_SINK, flush_from=files + number * _TIMES)
            if sample.figures["runs"] != 1:
                raise RuntimeError(f"{sample.figures['runs']} runs were asked for, not one")
            samples.setdefault(f"table of {files:,} files, one more", []).append(_part(sample, "later"))


def _part(sample: Sample, part: str) -> Sample:
    """The same run, of which only this part counts."""
    return replace(sample, seconds=sample.figures[f"{part}_seconds"], cpu_seconds=sample.figures[f"{part}_cpu_seconds"])


def _quiet_tick(lab: Lab, home: Path, cache: str) -> Sample:
    sample = _tick(lab, home, cache, _THREE_SINKS)
    if sample.figures["runs"]:
        raise RuntimeError(f"{sample.figures['runs']} runs were asked for though nothing is new")
    return sample


def _tick(lab: Lab, home: Path, cache: str, sinks: dict[str, str], *, flush_from: int | None = None) -> Sample:
    arguments = {"home": str(home), "cache": cache, "sinks": sinks, "times": _TIMES, "flush_from": flush_from}
    return lab.run(Side("benchmarks.tick_sides:tick", arguments))
