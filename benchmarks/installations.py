"""An installation that reads a benchmark's cache, and what the engine does with it, as sides.

Everything the engine imports on demand is imported here, so that it is not timed with the work.
"""

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas  # type: ignore[import-untyped]  # noqa: F401  pyarrow imports it at its first conversion to numpy
import sqlalchemy.dialects.sqlite  # noqa: F401

import hypaware_pipeline.cache.reader
import hypaware_pipeline.cache.scan
import hypaware_pipeline.sinks.encoders.jsonl
import hypaware_pipeline.sinks.encoders.parquet
import hypaware_pipeline.sinks.stores.local_fs  # noqa: F401
from benchmarks.caches import data_files
from benchmarks.configs import write_config
from hypaware_pipeline.export.driver import Exporter
from hypaware_pipeline.export.installation import Installation, build_sink
from hypaware_pipeline.export.survey import DatasetPlan, survey
from hypaware_pipeline.ledger import Ledger
from hypaware_pipeline.model import DatasetName, Day, SinkName, StoredObject
from tests.true_receipts import true_receipts

NOW = dt.datetime(2026, 6, 2, 12, tzinfo=dt.UTC)


def open_installation(home: str, cache: str, *, sinks: dict[str, str]) -> Installation:
    """The installation in `home`, made if it is not there, on the day after the benchmarks' day."""
    config = write_config(Path(home), cache, sinks=sinks)
    return Installation.load(config, {"HOME": home}, clock=lambda: NOW)


def export_day(home: str, cache: str, *, dataset: str, day: str, kind: str) -> dict[str, float]:
    """Export a day from pin to receipt, as a run does, less Dagster. `kind` is `parquet` or `jsonl`."""
    installation = open_installation(home, cache, sinks={"bench": kind})
    sink = build_sink(installation.config.sinks[SinkName("bench")], {"HOME": home})
    with installation.open_ledger() as ledger:
        rows = installation.slice(DatasetName(dataset), [Day(day)])
        (outcome,) = Exporter(sink, ledger, installation.clock).export(rows)
    if outcome.status != "exported" or outcome.receipt is None:
        raise RuntimeError(f"not exported: {outcome.error}")
    return {"rows": outcome.receipt.rows, "bytes": outcome.receipt.bytes}


def plan(home: str, cache: str, *, sinks: dict[str, str], times: int = 1) -> dict[str, float]:
    """What is due at every sink, as a tick asks, `times` over; the first and the last time are told by themselves."""
    installation = open_installation(home, cache, sinks=sinks)
    due, elapsed = 0, []
    for _ in range(times):
        started = time.perf_counter()
        with installation.open_ledger() as ledger:
            due = sum(entry.due for each in _survey(installation, ledger) for entry in each.days)
        elapsed.append(time.perf_counter() - started)
    return {"due": due, "first_seconds": elapsed[0], "last_seconds": elapsed[-1]}


def record_all(home: str, cache: str, *, sinks: dict[str, str]) -> None:
    """Let the ledger say that every day was exported as it is now, without exporting any."""
    installation = open_installation(home, cache, sinks=sinks)
    reader = installation.cache()
    with installation.open_ledger() as ledger:
        for config in installation.config.sinks.values():
            sink = build_sink(config, {"HOME": home})
            for name in reader.dataset_names():
                for receipt in true_receipts(sink, ledger, reader, name, now=NOW, put=_nothing):
                    ledger.record(receipt, replaces=ledger.recorded(sink.name, name, receipt.day))


def _nothing(key: str) -> StoredObject:
    return StoredObject(key, rows=0, bytes=0, sha256="0" * 64)


def _survey(installation: Installation, ledger: Ledger) -> Iterator[DatasetPlan]:
    names = installation.cache().dataset_names()
    return survey(installation, ledger, sinks=installation.config.sinks.values(), datasets=names)


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


def duckdb_index(cache: str, *, dataset: str) -> dict[str, float]:
    """DuckDB telling rows and a sum of hashes per day, as the row index does, and keeping nothing."""
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT CAST(message_created_at AS DATE), count(*), sum(hash(_hyp_ingest_seq, message_created_at, part_id))"
            " FROM read_parquet($files, hive_partitioning = false) GROUP BY 1",
            {"files": data_files(cache, dataset)},
        ).fetchall()
    return {"days": len(found)}
