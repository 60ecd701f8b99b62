"""An installation that reads a benchmark's cache, and what the engine does with it, as sides.

Everything the engine imports on demand is imported here, so that it is not timed with the work.
"""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import duckdb

import hypaware_pipeline.cache.scan
import hypaware_pipeline.sinks.encoders.jsonl
import hypaware_pipeline.sinks.encoders.parquet
import hypaware_pipeline.sinks.stores.local_fs  # noqa: F401
from benchmarks.caches import data_files
from hypaware_pipeline.export.driver import Exporter
from hypaware_pipeline.export.installation import Installation, build_sink
from hypaware_pipeline.export.survey import survey
from hypaware_pipeline.model import DatasetName, Day, SinkName

_WRITERS = {"parquet": "@hypaware/format-parquet", "jsonl": "@hypaware/format-jsonl"}
NOW = dt.datetime(2026, 6, 2, 12, tzinfo=dt.UTC)


def write_config(home: Path, cache: str, *, sinks: dict[str, str]) -> Path:
    """A config with these sinks, by name and format, into directories below `home`."""
    entries = {
        name: {"writer": _WRITERS[kind], "destination": "@hypaware/local-fs", "config": {"dir": f"out/{name}"}}
        for name, kind in sinks.items()
    }
    path = home / "hypaware-pipeline.json"
    path.write_text(json.dumps({"version": 2, "query": {"cache": {"dir": cache}}, "sinks": entries}))
    return path


def open_installation(home: str, cache: str, *, sinks: dict[str, str]) -> Installation:
    """The installation in `home`, made if it is not there, on the day after the benchmarks' day."""
    config = write_config(Path(home), cache, sinks=sinks)
    return Installation.load(config, {"HOME": home}, clock=lambda: NOW)


def export_day(home: str, cache: str, *, dataset: str, day: str, kind: str) -> dict[str, float]:
    """Export a day from pin to receipt, as a run does, less Dagster. `kind` is `parquet` or `jsonl`."""
    installation = open_installation(home, cache, sinks={"bench": kind})
    sink = build_sink(installation.config.sinks[SinkName("bench")])
    with installation.open_ledger() as ledger:
        rows = installation.slice(DatasetName(dataset), [Day(day)])
        (outcome,) = Exporter(sink, ledger, installation.clock).export(rows)
    if outcome.status != "exported" or outcome.receipt is None:
        raise RuntimeError(f"not exported: {outcome.error}")
    return {"rows": outcome.receipt.rows, "bytes": outcome.receipt.bytes}


def plan(home: str, cache: str, *, sinks: dict[str, str], times: int = 1) -> dict[str, float]:
    """What is due at every sink, as a tick asks; `times` over, the last of which is timed by itself as `last_seconds`."""
    installation = open_installation(home, cache, sinks=sinks)
    due, elapsed = 0, 0.0
    with installation.open_ledger() as ledger:
        for _ in range(times):
            started = dt.datetime.now()
            names = installation.cache().dataset_names()
            plans = list(survey(installation, ledger, sinks=installation.config.sinks.values(), datasets=names))
            elapsed = (dt.datetime.now() - started).total_seconds()
            due = sum(entry.due for each in plans for entry in each.days)
    return {"due": due, "last_seconds": elapsed}


def duckdb_copy(cache: str, out: str, *, dataset: str, variants: bool) -> dict[str, float]:
    """DuckDB copying a dataset's files to Parquet, unsorted: without its VARIANT columns, or with these cast to JSON."""
    with duckdb.connect() as connection:
        source: dict[str, Any] = {"files": data_files(cache, dataset)}
        read = "read_parquet($files, hive_partitioning = false)"
        types = {name: kind for name, kind, *_ in connection.execute(f"DESCRIBE SELECT * FROM {read}", source).fetchall()}
        columns = [
            f'CAST("{name}" AS JSON) AS "{name}"' if kind == "VARIANT" else f'"{name}"'
            for name, kind in types.items()
            if variants or kind != "VARIANT"
        ]
        target = f"TO '{out}' (FORMAT parquet, COMPRESSION zstd)"
        (rows,) = connection.execute(f"COPY (SELECT {', '.join(columns)} FROM {read}) {target}", source).fetchone() or (0,)
    return {"rows": rows, "bytes": Path(out).stat().st_size}
