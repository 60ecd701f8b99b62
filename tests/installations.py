"""A configuration with its state in a temporary directory, and exports through the engine without Dagster."""

import datetime as dt
import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypaware_pipeline.export.driver import Exporter
from hypaware_pipeline.export.installation import Installation, build_sink
from hypaware_pipeline.export.leases import LeaseTerms
from hypaware_pipeline.export.plan import PlannedDay
from hypaware_pipeline.export.survey import survey
from hypaware_pipeline.ledger import LEDGER_URL_VARIABLE
from hypaware_pipeline.model import DatasetName, Day, DayOutcome, SinkName

NOW = dt.datetime(2026, 6, 10, 12, tzinfo=dt.UTC)

PARQUET = {"writer": "@hypaware/format-parquet", "destination": "@hypaware/local-fs"}
JSONL = {"writer": "@hypaware/format-jsonl", "destination": "@hypaware/local-fs"}


def write_config(home: Path, cache: Path, *, sinks: dict[str, Any] | None = None, **top: Any) -> Path:
    """A config file in `home`; by default an `archive` in Parquet and a `feed` in JSONL, under `home/out`."""
    chosen = sinks or {
        "archive": {**PARQUET, "config": {"dir": "out/archive"}},
        "feed": {**JSONL, "config": {"dir": "out/feed"}},
    }
    home.mkdir(parents=True, exist_ok=True)
    path = home / "hypaware-pipeline.json"
    path.write_text(json.dumps({"version": 2, "query": {"cache": {"dir": str(cache)}}, "sinks": chosen, **top}))
    return path


class AnInstallation:
    """Plans and exports at a time of its own."""

    def __init__(self, home: Path, cache: Path, *, now: dt.datetime = NOW, ledger_url: str | None = None, **config: Any) -> None:
        self.home = home
        self.now = now
        path = write_config(home, cache, **config)
        self.env = {"HOME": str(home), **({LEDGER_URL_VARIABLE: ledger_url} if ledger_url else {})}
        self.installation = Installation.load(path, self.env, clock=lambda: self.now)

    def plan(self, *, sink: str = "feed", dataset: str = "logs", every: bool = False) -> list[PlannedDay]:
        """What is due, and what is not, of one (sink, dataset)."""
        config = self.installation.config.sinks[SinkName(sink)]
        with self.installation.open_ledger() as ledger:
            (plan,) = survey(self.installation, ledger, sinks=[config], datasets=[DatasetName(dataset)], every=every)
        assert plan.error is None, plan.error
        return list(plan.days)

    def due(self, **which: Any) -> list[str]:
        """The days that are due."""
        return [entry.day for entry in self.plan(**which) if entry.due]

    def export(
        self,
        days: list[str] | None = None,
        *,
        sink: str = "feed",
        dataset: str = "logs",
        clock: Callable[[], dt.datetime] | None = None,
    ) -> list[DayOutcome]:
        """Export the given days, or those that are due. `clock` is asked by the exporter, and may do something meanwhile."""
        wanted = [Day(day) for day in (self.due(sink=sink, dataset=dataset) if days is None else days)]
        blob_sink = build_sink(self.installation.config.sinks[SinkName(sink)], self.env)
        with self.installation.open_ledger() as ledger:
            exporter = Exporter(blob_sink, ledger, clock or self.installation.clock, LeaseTerms("a test", wait_seconds=0))
            return list(exporter.export(self.installation.slice(DatasetName(dataset), wanted)))

    def let_leases_expire(self) -> None:
        """As if every process that holds one had been stopped for hours."""
        with self.installation.open_ledger() as ledger, ledger.leases._in.writing() as connection:
            connection.exec_driver_sql("UPDATE leases SET renewed_at = '2001-01-01T00:00:00.000Z'")

    def out(self, sink: str = "feed") -> Path:
        """Where a sink's objects lie."""
        return self.home / "out" / sink

    def objects(self, sink: str = "feed") -> dict[str, bytes]:
        """Every data object, by path below the sink."""
        files = (path for path in self.out(sink).rglob("*") if path.is_file() and path.name[0] not in "._")
        return {str(path.relative_to(self.out(sink))): path.read_bytes() for path in files}

    def rows(self, sink: str = "feed", dataset: str = "logs") -> Counter[str]:
        """Every row of a JSONL sink, as canonical JSON, as a multiset."""
        found: Counter[str] = Counter()
        for name, content in self.objects(sink).items():
            if name.startswith(f"{dataset}/"):
                lines = gzip.decompress(content).decode().splitlines()
                found.update(json.dumps(json.loads(line), sort_keys=True) for line in lines)
        return found
