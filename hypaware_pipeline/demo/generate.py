"""The demo's cache: a small one in which everything happened that makes a cache hard to export.

Why it is told as a story by day: a cache is the result of flushes, purges and compactions in some order, and only in order do
sequence numbers, generations and deletion vectors come out as on a used machine.

Why the clock is simulated: the same seed gives the same cache, down to the file names, whenever it is made.
"""

import datetime as dt
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hypaware_pipeline.datasets import KNOWN_DATASETS
from hypaware_pipeline.demo.wording import ANSWERS, LOG_MESSAGES, METRICS, OPERATIONS, REQUESTS, SERVICES, TOOLS
from hypaware_pipeline.demo.writer import CacheWriter
from hypaware_pipeline.model import DatasetName

Row = dict[str, Any]

_YOUNGER_COLUMNS: Final = frozenset({"git_remote", "head_sha", "repo_root"})
"""Columns the first day's flushes do not have yet."""
_FUTURE: Final = dt.datetime(2031, 1, 1, 8, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class DemoCache:
    """What the generated cache holds: live rows by dataset, rows waiting in the spool, the purged session and its rows."""

    rows: dict[str, int]
    spooled: int
    purged_session: str
    purged_rows: int


class SimulatedClock:
    """A clock that is set, and then ticks by a millisecond each time it is read."""

    def __init__(self, moment: dt.datetime) -> None:
        self.moment = moment

    def __call__(self) -> dt.datetime:
        """The time now."""
        self.moment += dt.timedelta(milliseconds=1)
        return self.moment


def demo_cache(root: Path, *, days: int, today: dt.date, seed: int) -> DemoCache:
    """Write a lively cache of `days` days up to and including `today`, about 700 rows each.

    Raises:
        ValueError: fewer than 3 days leave no room for the story.
    """
    if days < 3:
        raise ValueError(f"a demo cache needs at least 3 days, not {days}")
    story = _Story(root, [today - dt.timedelta(days=n) for n in range(days - 1, -1, -1)], random.Random(seed))  # noqa: S311  content
    return story.tell()


class _Story:
    """Two processes write one cache: HypAware's daemon, and a command beside it that flushes with its own sequence block."""

    def __init__(self, root: Path, days: list[dt.date], rng: random.Random) -> None:
        self._days = days
        self._rng = rng
        self._clock = SimulatedClock(_at(days[0], 0))
        self._daemon = CacheWriter(root, clock=self._clock, rng=rng)
        self._command = CacheWriter(root, clock=self._clock, rng=rng)
        self._rows: dict[str, int] = {}
        self._ids = 0

    def tell(self) -> DemoCache:
        """Everything, in order."""
        first, last = self._days[0], self._days[-1]
        for day in self._days:
            self._ordinary_day(day, until_hour=12 if day == last else 24)
        self._clock.moment = _at(last, 12)
        # After the daemon's later numbers come the command's earlier ones, for a day long past.
        late = list(self._session(self._days[-3], "claude", hour=22, turns=6))
        self._flush(self._command, "ai_gateway_messages", "claude", late)
        odd = [self._log(_at(last, 9)), self._log(_at(last, 9))]
        odd[0]["timestamp"] = odd[0]["observedTimestamp"] = None
        odd[1]["timestamp"] = _FUTURE
        self._flush(self._daemon, "logs", "unknown", odd)
        private = list(self._session(first, "codex", hour=23, turns=5))
        self._flush(self._daemon, "ai_gateway_messages", "codex", private)
        purged = self._daemon.purge(private[0]["session_id"])
        self._rows["ai_gateway_messages"] -= purged
        for dataset in ("logs", "metrics"):
            self._daemon.compact(dataset, "unknown")
        self._flush(self._daemon, "logs", "unknown", [self._log(_at(last, 11, minute)) for minute in range(20)])
        waiting = [self._log(_at(last, 11, 30 + minute)) for minute in range(7)]
        self._daemon.spool("logs", waiting)
        return DemoCache(self._rows, len(waiting), private[0]["session_id"], purged)

    def _ordinary_day(self, day: dt.date, *, until_hour: int) -> None:
        for hour in range(0, until_hour, 8):
            self._clock.moment = _at(day, hour) + dt.timedelta(hours=8)
            for client, sessions in (("claude", 3), ("codex", 1)):
                rows = [row for k in range(sessions) for row in self._session(day, client, hour=hour + 2 * k, turns=12)]
                self._flush(self._daemon, "ai_gateway_messages", client, rows)
            moments = [_at(day, hour, self._rng.randrange(480), self._rng.randrange(60_000)) for _ in range(90)]
            self._flush(
                self._command if hour == 8 else self._daemon, "logs", "unknown", [self._log(moment) for moment in moments]
            )
            self._flush(self._daemon, "traces", "unknown", [span for moment in moments[:12] for span in self._trace(moment)])
            self._flush(self._daemon, "metrics", "unknown", list(self._metrics(_at(day, hour))))

    def _flush(self, writer: CacheWriter, dataset: str, source: str, rows: list[Row]) -> None:
        columns = KNOWN_DATASETS[DatasetName(dataset)].columns
        if dataset == "ai_gateway_messages" and self._clock.moment.date() == self._days[0]:
            columns = tuple(column for column in columns if column.name not in _YOUNGER_COLUMNS)
        written = writer.append(dataset, source, rows, columns=columns)
        self._rows[dataset] = self._rows.get(dataset, 0) + written

    # --- rows ----------------------------------------------------------------------------------------------------------------

    def _id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}_{self._ids:06d}"

    def _session(self, day: dt.date, client: str, *, hour: int, turns: int) -> Iterator[Row]:
        """A conversation: requests, answers, tool calls and their results."""
        started = _at(day, hour, self._rng.randrange(60), self._rng.randrange(60_000))
        repository = self._rng.choice(["pipeline", "website", "notes"])
        common = {
            "gateway_id": "gw-demo",
            "schema_version": 7,
            "session_id": self._id("session"),
            "conversation_id": self._id("conversation") if client == "codex" else None,
            "user_id": "ada",
            "provider": "anthropic" if client == "claude" else "openai",
            "model": "large-model" if client == "claude" else "quick-model",
            "system_text": f"You help with the repository {repository}.",
            "tools": TOOLS,
            "conversation_started_at": started,
            "conversation_source": client,
            "client_name": client,
            "cwd": f"/home/ada/{repository}",
            "git_branch": self._rng.choice(["main", "late-rows"]),
            "git_remote": f"git@example.com:ada/{repository}.git",
            "head_sha": f"{self._rng.getrandbits(160):040x}",
            "repo_root": f"/home/ada/{repository}",
            "client_version": "2.1.0",
            "is_sidechain": False,
            "date": day.isoformat(),
        }
        moment, previous, call = started, None, None
        for index in range(turns):
            part, call = self._part(index, call)
            message = self._id("msg")
            yield {
                **common,
                **part,
                "message_id": message,
                "previous_message_id": [previous] if previous else [],
                "message_index": index,
                "message_created_at": moment,
                "part_id": f"{message}#0",
                "part_index": 0,
            }
            previous = message
            moment += dt.timedelta(milliseconds=self._rng.randrange(800, 40_000))

    def _part(self, index: int, call: str | None) -> tuple[Row, str | None]:
        """What the turn of a conversation says, and the tool call the next one answers."""
        if call:
            text = self._rng.choice(["ok", "2 tests failed", "no such file", '{"rows": 128}'])
            result = {"role": "user", "part_type": "tool_result", "content_text": text, "tool_result_for": call}
            return {**result, "is_error": text == "no such file", "status": {"code": 0 if text == "ok" else 1}}, None
        if index % 4 == 0:
            return {"role": "user", "part_type": "text", "content_text": self._rng.choice(REQUESTS)}, None
        answer = {"role": "assistant", "attributes": self._usage()}
        if index % 4 == 1:
            tool = self._rng.choice(TOOLS)
            name = self._id("call")
            arguments = {argument: f"src/{self._rng.randrange(40)}.py" for argument in tool["input_schema"]["properties"]}
            return {
                **answer,
                "part_type": "tool_use",
                "tool_name": tool["name"],
                "tool_call_id": name,
                "tool_args": arguments,
            }, name
        return {**answer, "part_type": "text", "content_text": self._rng.choice(ANSWERS)}, None

    def _usage(self) -> Row:
        tokens = self._rng.randrange(400, 60_000)
        return {
            "usage": {"input_tokens": tokens, "output_tokens": self._rng.randrange(20, 2_000), "cache_read_tokens": tokens // 3},
            "gateway": {"request_bytes": tokens * 4, "latency_ms": round(self._rng.uniform(300, 9_000), 1)},
        }

    def _log(self, moment: dt.datetime) -> Row:
        severity, text = self._rng.choice([(5, "DEBUG"), (9, "INFO"), (9, "INFO"), (13, "WARN"), (17, "ERROR")])
        said = self._rng.choice(LOG_MESSAGES)
        return {
            **self._resource(),
            "timestamp": moment,
            "observedTimestamp": moment + dt.timedelta(milliseconds=5),
            "severityNumber": severity,
            "severityText": text,
            "body": said if self._rng.random() < 0.5 else {"message": said, "attempt": self._rng.randrange(5)},
            "traceId": f"{self._rng.getrandbits(128):032x}",
            "spanId": f"{self._rng.getrandbits(64):016x}",
            "flags": 1,
            "droppedAttributesCount": 0,
            "attributes": {
                "millis": round(self._rng.expovariate(0.02), 3),
                "path": "/v1/messages",
                "retry": self._rng.random() < 0.1,
            },
        }

    def _trace(self, moment: dt.datetime) -> Iterator[Row]:
        """A root span and two below it."""
        trace, root = f"{self._rng.getrandbits(128):032x}", f"{self._rng.getrandbits(64):016x}"
        for depth in range(3):
            millis = round(self._rng.uniform(1, 400), 3)
            yield {
                **self._resource(),
                "traceId": trace,
                "spanId": f"{self._rng.getrandbits(64):016x}" if depth else root,
                "parentSpanId": root if depth else None,
                "name": self._rng.choice(OPERATIONS),
                "kind": 2 if depth == 0 else 1,
                "startTimestamp": moment,
                "endTimestamp": moment + dt.timedelta(milliseconds=int(millis)),
                "durationMs": millis,
                "flags": 1,
                "status": {"code": 0},
                "attributes": {"depth": depth},
                "events": [{"name": "first_byte", "millis": millis / 2}] if depth else [],
                "links": [],
            }

    def _metrics(self, moment: dt.datetime) -> Iterator[Row]:
        for step in range(8):
            for name, kind, unit in METRICS:
                observed = {"bucketCounts": [3, 5, 1], "explicitBounds": [10, 100], "count": 9} if kind == "histogram" else {}
                yield {
                    **self._resource(),
                    "metricName": name,
                    "description": f"{name} of the demo",
                    "unit": unit,
                    "metricType": kind,
                    "isMonotonic": kind == "sum" or None,
                    "startTimestamp": moment,
                    "timestamp": moment + dt.timedelta(minutes=60 * step),
                    "value": round(self._rng.uniform(0, 5_000), 2),
                    "valueInt": self._rng.getrandbits(50) if unit == "By" else None,
                    "valueType": "int" if unit == "By" else "double",
                    **observed,
                }

    def _resource(self) -> Row:
        service = self._rng.choice(SERVICES)
        return {
            "serviceName": service,
            "resource": {"service.name": service, "host": {"name": "demo-host"}},
            "scope_name": "demo",
        }


def _at(day: dt.date, hour: int, minute: int = 0, millis: int = 0) -> dt.datetime:
    midnight = dt.datetime.combine(day, dt.time(), dt.UTC)
    return midnight + dt.timedelta(hours=hour, minutes=minute, milliseconds=millis)
