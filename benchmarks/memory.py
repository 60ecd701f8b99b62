"""Peak memory of exporting one day of 2 GB of Arrow data, the whole process, imports included; wanted below 700 MB.

Twice: conversations in which a list of tools repeats on every row, and conversations in which no large value repeats, so that
nothing is gained by dictionaries. The rows arrive unsorted, and there are many times more than the engine sorts in memory. The
floor is the process with everything imported and one row exported; the same through a Dagster run shows what Dagster adds.
"""

from collections.abc import Iterator

from benchmarks.lab import Lab, Sample, Side, peak_megabytes, table

_HEADER = ("day", "rows", "decoded MB", "side", "peak MB", "seconds", "rows/s")
_DAY = "2026-06-01"
_DATASET = "ai_gateway_messages"
_BYTES = 2_000_000_000
_QUICK_BYTES = 60_000_000
_ENGINE = "benchmarks.installations:export_day"
_DAGSTER = "benchmarks.dagster_sides:export_day"
# Decoded bytes of a row: its text, its large VARIANT, and about 900 bytes of all that is small.
_REPEATED = ("repeated tools", "fill_conversations", 1_500, 1_500 + 4_300 + 900)
_DISTINCT = ("distinct values", "fill_distinct", 3_000, 3_000 + 3_000 + 900)


def run(lab: Lab) -> Iterator[str]:
    """One table."""
    lines = []
    for name, fill, text_bytes, row_bytes in (_REPEATED, _DISTINCT):
        rows = lab.size(_BYTES, _QUICK_BYTES) // row_bytes
        with lab.scratch() as directory:
            cache = str(directory / "cache")
            arguments = {"rows": rows, "text_bytes": text_bytes}
            lab.run(Side(f"benchmarks.caches:{fill}", {"cache": cache, **arguments}))
            for side, function, kind in _sides(name):
                sample = _export(lab, function, cache, kind)
                lines.append(_line(name, row_bytes, side, sample))
    with lab.scratch() as directory:
        cache = str(directory / "cache")
        lab.run(Side("benchmarks.caches:fill_distinct", {"cache": cache, "rows": 1, "text_bytes": 100}))
        for side, function, kind in _sides("floor"):
            lines.append(_line("one row", 1_100, side, _export(lab, function, cache, kind)))
    yield table("Exporting one day in bounded memory", _HEADER, lines)


def _sides(name: str) -> list[tuple[str, str, str]]:
    engine = [("engine, parquet", _ENGINE, "parquet"), ("engine, jsonl", _ENGINE, "jsonl")]
    dagster = [("Dagster, parquet", _DAGSTER, "parquet"), ("Dagster, jsonl", _DAGSTER, "jsonl")]
    return [*engine, *dagster] if name != _REPEATED[0] else engine


def _export(lab: Lab, function: str, cache: str, kind: str) -> Sample:
    with lab.scratch() as home:
        arguments = {"home": str(home), "cache": cache, "dataset": _DATASET, "day": _DAY, "kind": kind}
        return lab.run(Side(function, arguments))


def _line(name: str, row_bytes: int, side: str, sample: Sample) -> list[str]:
    rows = int(sample.figures["rows"])
    size = f"{rows * row_bytes / 1e6:,.0f}"
    return [
        name,
        f"{rows:,}",
        size,
        side,
        f"{peak_megabytes([sample]):.0f}",
        f"{sample.seconds:.1f}",
        f"{rows / sample.seconds:,.0f}",
    ]
