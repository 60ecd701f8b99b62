"""Rows per second of exporting one day, next to DuckDB copying the same files.

The engine goes the whole way: pin, first index, scan, sort, encode with all VARIANT columns, put, receipt, ledger.
The floor is `COPY (SELECT all but the VARIANT columns) TO … (FORMAT parquet, COMPRESSION zstd)`: unsorted, unchecked, nothing
proved. Wanted: Parquet at half the floor's rows/s or better. For comparison the same COPY with the VARIANT columns cast to JSON.

"Same, CPU" compares processor time instead of wall time: on a busy machine it is the steadier of the two.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.lab import Lab, Sample, Side, cpu_seconds, peak_megabytes, ratio, seconds, table

_HEADER = ("day", "rows", "side", "rows/s", "of the floor", "same, CPU", "CPU s", "peak MB", "MB written")
_DAY = "2026-06-01"


def run(lab: Lab) -> Iterator[str]:
    """One table: every kind of cache, every side."""
    conversations, logs = lab.size(50_000, 2_000), lab.size(150_000, 5_000)
    cases: list[tuple[str, str, str, dict[str, Any]]] = []
    for one_file, layout in ((False, "flush-sized files"), (True, "one compacted file")):
        talk = {"rows": conversations, "text_bytes": 1_500, "one_file": one_file}
        cases.append((f"conversations, {layout}", "ai_gateway_messages", "fill_conversations", talk))
        cases.append((f"logs, {layout}", "logs", "fill_logs", {"rows": logs, "one_file": one_file}))
    lines: list[list[str]] = []
    for name, dataset, fill, arguments in cases:
        with lab.scratch() as directory:
            cache = str(directory / "cache")
            lab.run(Side(f"benchmarks.caches:{fill}", {"cache": cache, **arguments}))
            lines += _lines(name, _measure(lab, cache, dataset))
    yield table("Exporting one day", _HEADER, lines)


def _measure(lab: Lab, cache: str, dataset: str) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {}
    for _ in range(lab.size(3, 1)):
        for name, variants in (("floor: DuckDB, no VARIANT", False), ("DuckDB, VARIANT as JSON", True)):
            with lab.scratch() as home:
                side = {"cache": cache, "out": str(home / "copy.parquet"), "dataset": dataset, "variants": variants}
                samples.setdefault(name, []).append(lab.run(Side("benchmarks.installations:duckdb_copy", side)))
        for kind in ("parquet", "jsonl"):
            with lab.scratch() as home:
                samples.setdefault(f"engine, {kind}", []).append(lab.run(_export(home, cache, dataset, kind)))
    return samples


def _export(home: Path, cache: str, dataset: str, kind: str) -> Side:
    arguments = {"home": str(home), "cache": cache, "dataset": dataset, "day": _DAY, "kind": kind}
    return Side("benchmarks.installations:export_day", arguments)


def _lines(case: str, samples: dict[str, list[Sample]]) -> Iterator[list[str]]:
    floor = next(iter(samples.values()))
    rows = int(floor[0].figures["rows"])
    for name, runs in samples.items():
        if int(runs[0].figures["rows"]) != rows:
            raise RuntimeError(f"{case}: {name} wrote {runs[0].figures['rows']} rows, the floor {rows}")
        yield [
            case,
            f"{rows:,}",
            name,
            f"{rows / seconds(runs):,.0f}",
            f"{ratio(runs, floor):.2f}",
            f"{cpu_seconds(floor) / cpu_seconds(runs):.2f}",
            f"{cpu_seconds(runs):.1f}",
            f"{peak_megabytes(runs):.0f}",
            f"{runs[0].figures['bytes'] / 1e6:.1f}",
        ]
