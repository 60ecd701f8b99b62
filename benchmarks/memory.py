"""Peak memory of exporting one day of 2 GB of Arrow data, the whole process, imports included; wanted below 700 MB.

Twice: conversations in which a list of tools repeats on every row, and conversations in which no large value repeats, so that
nothing is gained by dictionaries. The rows arrive unsorted, and there are many times more than the engine sorts in memory. The
floor is the process with everything imported and one row exported; the same through a Dagster run shows what Dagster adds.
"""

from collections.abc import Iterator

from benchmarks.lab import Lab, Sample, Side, peak_megabytes, table

_HEADER = ("side", "rows", "decoded MB", "peak MB", "seconds", "rows/s")
_DAY = "2026-06-01"
_DATASET = "ai_gateway_messages"
_BYTES = 2_000_000_000
_QUICK_BYTES = 12_000_000
_ENGINE = "benchmarks.installations:export_day"
_DAGSTER = "benchmarks.dagster_sides:export_day"
# Decoded bytes of a row: its text, its large VARIANT, and about 900 bytes of all that is small.
_REPEATED = ("Repeated tools", "fill_conversations", 1_500, 1_500 + 4_300 + 900)
_DISTINCT = ("Distinct values", "fill_distinct", 3_000, 3_000 + 3_000 + 900)


def run(lab: Lab) -> Iterator[str]:
    """A table for each kind of day, the floor's first."""
    yield _table(lab, "One row", "fill_distinct", 100, rows=1, row_bytes=1_100, with_dagster=True)
    for (name, fill, text_bytes, row_bytes), with_dagster in ((_REPEATED, False), (_DISTINCT, True)):
        rows = lab.size(_BYTES, _QUICK_BYTES) // row_bytes
        yield _table(lab, name, fill, text_bytes, rows=rows, row_bytes=row_bytes, with_dagster=with_dagster)


def _table(lab: Lab, name: str, fill: str, text_bytes: int, *, rows: int, row_bytes: int, with_dagster: bool) -> str:
    with lab.scratch() as directory:
        cache = str(directory / "cache")
        lab.run(Side(f"benchmarks.caches:{fill}", {"cache": cache, "rows": rows, "text_bytes": text_bytes}))
        lines = [_line(row_bytes, side, _export(lab, function, cache, kind)) for side, function, kind in _sides(with_dagster)]
    return table(name, _HEADER, lines)


def _sides(with_dagster: bool) -> list[tuple[str, str, str]]:
    engine = [("engine, parquet", _ENGINE, "parquet"), ("engine, jsonl", _ENGINE, "jsonl")]
    dagster = [("Dagster, parquet", _DAGSTER, "parquet"), ("Dagster, jsonl", _DAGSTER, "jsonl")]
    return [*engine, *dagster] if with_dagster else engine


def _export(lab: Lab, function: str, cache: str, kind: str) -> Sample:
    with lab.scratch() as home:
        arguments = {"home": str(home), "cache": cache, "dataset": _DATASET, "day": _DAY, "kind": kind}
        return lab.run(Side(function, arguments))


def _line(row_bytes: int, side: str, sample: Sample) -> list[str]:
    rows = int(sample.figures["rows"])
    size = f"{rows * row_bytes / 1e6:,.0f}"
    return [side, f"{rows:,}", size, f"{peak_megabytes([sample]):.0f}", f"{sample.seconds:.1f}", f"{rows / sample.seconds:,.0f}"]
