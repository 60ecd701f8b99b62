"""Caches for tests, built by what happened to them: `a_cache(path).with_day("2026-06-01", rows=5)`.

Why so thin: the writer is the demo's own. What is here only saves a test from naming columns it does not care about.
"""

import datetime as dt
import itertools
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from hypaware_pipeline.demo.generate import SimulatedClock
from hypaware_pipeline.demo.writer import CacheWriter, Rows

Row = dict[str, Any]


def a_cache(root: Path, *, seed: int = 1, shredded: bool = False) -> "CacheBuilder":
    """An empty cache at `root`, the directory that will hold `datasets/`."""
    return CacheBuilder(root, seed=seed, shredded=shredded)


def a_log(day: str, number: int = 0, **changes: Any) -> Row:
    """A row of `logs`, `number` seconds into the day."""
    moment = dt.datetime.fromisoformat(f"{day}T00:00:00+00:00") + dt.timedelta(seconds=number)
    row = {
        "serviceName": "web",
        "timestamp": moment,
        "observedTimestamp": moment,
        "severityNumber": 9,
        "severityText": "INFO",
        "body": {"message": "request finished", "number": number},
        "attributes": {"number": number, "share": number / 8},
    }
    return {**row, **changes}


def a_message(day: str, number: int = 0, **changes: Any) -> Row:
    """A row of `ai_gateway_messages`, `number` seconds into the day."""
    moment = dt.datetime.fromisoformat(f"{day}T00:00:00+00:00") + dt.timedelta(seconds=number)
    row = {
        "gateway_id": "gw",
        "schema_version": 7,
        "session_id": f"session-{day}",
        "provider": "anthropic",
        "tools": [{"name": "read_file", "description": "Shows a file."}],
        "conversation_started_at": moment,
        "client_name": "claude",
        "cwd": "/home/ada/notes",
        "message_id": f"msg-{day}-{number}",
        "message_index": number,
        "message_created_at": moment,
        "role": "user",
        "part_id": f"msg-{day}-{number}#0",
        "part_index": 0,
        "part_type": "text",
        "content_text": f"message {number}",
        "attributes": {"usage": {"input_tokens": number}},
        "date": day,
    }
    return {**row, **changes}


class CacheBuilder:
    """A cache and the writer that fills it. Every `with_…` is one flush."""

    def __init__(self, root: Path, *, seed: int, shredded: bool) -> None:
        self.root = root
        self.clock = SimulatedClock(dt.datetime(2026, 6, 10, tzinfo=dt.UTC))
        self.writer = CacheWriter(root, clock=self.clock, rng=random.Random(seed), shredded=shredded)
        self._numbers = itertools.count()

    def with_day(self, day: str, *, rows: int = 3, dataset: str = "logs", source: str = "unknown", **changes: Any) -> Self:
        """Flush so many rows of `logs` or `ai_gateway_messages` of a day; `changes` are values all of them have."""
        make = a_message if dataset == "ai_gateway_messages" else a_log
        return self.with_rows(dataset, [make(day, next(self._numbers), **changes) for _ in range(rows)], source=source)

    def with_rows(self, dataset: str, rows: Rows, *, source: str = "unknown", **options: Any) -> Self:
        """Flush these rows; `options` are those of `CacheWriter.append`."""
        self.writer.append(dataset, source, rows, **options)
        return self

    def another_writer(self, *, seed: int = 2) -> CacheWriter:
        """A second process on the same cache, with its own block of sequence numbers."""
        return CacheWriter(self.root, clock=self.clock, rng=random.Random(seed))

    def source_directory(self, dataset: str = "logs", source: str = "unknown") -> Path:
        """Where a source lies."""
        return self.root / "datasets" / dataset / f"source={source}"

    def table_directory(self, dataset: str = "logs", source: str = "unknown") -> Path:
        """The live generation of a source."""
        return self.source_directory(dataset, source) / str(self.cursor(dataset, source)["tableDir"])

    def cursor(self, dataset: str = "logs", source: str = "unknown") -> Mapping[str, Any]:
        """The cursor of a source."""
        cursor: Mapping[str, Any] = json.loads((self.source_directory(dataset, source) / "cursor.json").read_text())
        return cursor

    def metadata(self, dataset: str = "logs", source: str = "unknown") -> Sequence[Mapping[str, Any]]:
        """Every version of the live table's metadata, oldest first."""
        directory = self.table_directory(dataset, source) / "metadata"
        paths = sorted(directory.glob("v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0]))
        return [json.loads(path.read_text()) for path in paths]
