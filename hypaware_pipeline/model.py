"""The vocabulary as small frozen values. Knows nobody.

Why distinct types for days, names and sequence numbers: all of them are strings or integers, and each has been mistaken for
another in programs like this one. A type checker then finds the mistake.

Why a day is text: `YYYY-MM-DD` is at once the Dagster partition key, the directory name and the sort order.
"""

import base64
import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Literal, NewType, Self, TypeVar

Day = NewType("Day", str)
"""A UTC calendar date `YYYY-MM-DD`, or `UNDATED`."""

UNDATED = Day("undated")
"""The day of rows without a usable primary timestamp. A day of its own everywhere but in Dagster."""

DatasetName = NewType("DatasetName", str)
SourceName = NewType("SourceName", str)
"""The `<x>` of a `source=<x>` table inside a dataset's cache directory, as the directory spells it."""
SinkName = NewType("SinkName", str)
Fingerprint = NewType("Fingerprint", str)
"""Identity of the content of a cache partition; compared for equality only."""
Generation = NewType("Generation", str)
"""Identity of one lifetime of a cache, in which a sequence number is used once; compared for equality only."""
Chain = NewType("Chain", str)
"""Identity of an unbroken succession of a source's snapshots; compared for equality only."""

FIRST_GENERATION = Generation("1")
"""The generation a dataset begins with. Its objects carry no mark in their names."""
UNSEQUENCED = Generation("unsequenced")
"""Stands in the place of a generation for rows without a sequence number: they are told apart by their content."""

SEQ_COLUMN = "_hyp_ingest_seq"
"""The one internal column on disk. int64, nullable. Travels with the rows to the engine, never to a destination."""
PROBLEM_COLUMN = "_hyp_problem"
"""Added by the scan: why a row could not be read whole (undecodable VARIANT), else null. Such rows are parked, never encoded."""
TEXT_CHECKED = {b"hypaware_pipeline.text": b"checked"}
"""Arrow schema metadata of batches whose text is known to be UTF-8 and whose JSON text is known to be JSON."""
PLACE_COLUMN = "_hyp_place"
"""Added by the scan, int64: which row of the pinned source this is, as `DayRows.places` has it."""
INTERNAL_PREFIX = "_hyp_"
"""Columns that begin so are HypAware's or ours and never leave."""


def day_of(date: dt.date) -> Day:
    """The day of a calendar date."""
    return Day(date.isoformat())


def parse_day(text: str) -> Day:
    """Read `YYYY-MM-DD` strictly.

    Raises:
        ValueError: the text is no calendar date in exactly this form.
    """
    date = dt.date.fromisoformat(text)
    if date.isoformat() != text:
        raise ValueError(f"'{text}' is not a day; days are written YYYY-MM-DD")
    return Day(text)


def date_of(day: Day) -> dt.date:
    """The calendar date of a dated day."""
    return dt.date.fromisoformat(day)


class ColumnType(StrEnum):
    """HypAware's column types. On disk JSON is VARIANT; in this project it is JSON text."""

    STRING = "STRING"
    INT32 = "INT32"
    INT64 = "INT64"
    DOUBLE = "DOUBLE"
    BOOLEAN = "BOOLEAN"
    TIMESTAMP = "TIMESTAMP"
    JSON = "JSON"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a dataset. Everything is nullable at a destination: older rows lack younger columns."""

    name: str
    type: ColumnType


@dataclass(frozen=True, slots=True)
class Dataset:
    """What is known of a named stream.

    Attributes:
        columns: In order; internal columns are not among them.
        primary_timestamp: The column that gives a row its home day; None when the dataset has none (every row is undated).
        natural_key: Columns that name a record to a person; may be empty.
        lookup_key: The sort order at a destination; may be empty (then rows keep ingest order).
        ingest_signal: HypAware's `sourceSignal`: what a request sink calls the stream; None when it has none.
        attribution_column: The column a source opt-out is judged by; None when the dataset has none.
        known: False for an open dataset, whose columns come from its tables alone.
    """

    name: DatasetName
    columns: tuple[Column, ...]
    primary_timestamp: str | None
    natural_key: tuple[str, ...] = ()
    lookup_key: tuple[str, ...] = ()
    ingest_signal: str | None = None
    attribution_column: str | None = None
    known: bool = True


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """One cache partition as the row index sees it: enough to plan, without reading a row.

    Attributes:
        rows_by_source: Live rows per source; sources with none are absent.
        removed_at: When rows were last removed from one of the dataset's tables (UTC), None when never as far as its snapshots
            tell.
        unreadable: Sources that could not be read and may hold rows of this day, with the reason.
    """

    dataset: DatasetName
    day: Day
    rows_by_source: Mapping[SourceName, int]
    fingerprint: Fingerprint
    removed_at: dt.datetime | None = None
    unreadable: Mapping[SourceName, str] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Live rows of the day in every readable source."""
        return sum(self.rows_by_source.values())


@dataclass(frozen=True, slots=True)
class RowSet:
    """Which rows: the identities of some rows of one generation. `row_sets` makes and reads it.

    Attributes:
        rows: How many.
        keys: Their sequence numbers (or, without those, hashes), as a 64-bit roaring bitmap in its portable form.
        tokens: What tells for each of them that a number was not used for another row, in the order of the keys; compressed.
    """

    rows: int
    keys: bytes
    tokens: bytes

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; `from_json` reads it back."""
        return {"rows": self.rows, "keys": base64.b64encode(self.keys).decode(), "tokens": base64.b64encode(self.tokens).decode()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        keys, tokens = (base64.b64decode(value[part], validate=True) for part in ("keys", "tokens"))
        return cls(int(value["rows"]), keys, tokens)


@dataclass(frozen=True, slots=True)
class Part:
    """What one object of a day holds, as its name tells.

    Attributes:
        mark: The generation, where the name has to say it.
        span: Of an addition: the first and the last key of its rows.
    """

    source: SourceName
    mark: Generation | None = None
    span: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object as it was put: its key, the rows and bytes in it, and the hex digest of its content."""

    key: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One object at a destination and the rows it holds.

    Attributes:
        key: Where it lies.
        bytes: Its size.
        sha256: Hex digest of its content.
        source: Where its rows were when it was written.
        generation: Of all its rows.
        chain: Of the source when it was written; the ledger moves it on where the source is known to hold the same rows still.
        content: Digest of what its rows were, whatever their order; of those that were parked on the way too.
        row_set: Which rows it holds.
    """

    key: str
    bytes: int
    sha256: str
    source: SourceName
    generation: Generation
    chain: Chain
    content: str
    row_set: RowSet

    @property
    def rows(self) -> int:
        """Rows in it."""
        return self.row_set.rows

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; `from_json` reads it back."""
        return {
            "key": self.key,
            "rows": self.rows,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "source": self.source,
            "generation": self.generation,
            "chain": self.chain,
            "content": self.content,
            "row_set": self.row_set.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls(
            key=str(value["key"]),
            bytes=int(value["bytes"]),
            sha256=str(value["sha256"]),
            source=SourceName(value["source"]),
            generation=Generation(value["generation"]),
            chain=Chain(value["chain"]),
            content=str(value["content"]),
            row_set=RowSet.from_json(value["row_set"]),
        )


@dataclass(frozen=True, slots=True)
class SetAside:
    """Rows of a source and a generation that were read and not sent, and why: refused as they stand, or withheld by policy."""

    why: Literal["parked", "withheld"]
    source: SourceName
    generation: Generation
    row_set: RowSet

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; `from_json` reads it back."""
        return {"why": self.why, "source": self.source, "generation": self.generation, "row_set": self.row_set.to_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        why: Literal["parked", "withheld"] = "withheld" if value["why"] == "withheld" else "parked"
        return cls(why, SourceName(value["source"]), Generation(value["generation"]), RowSet.from_json(value["row_set"]))


@dataclass(frozen=True, slots=True)
class ParkedRecord:
    """A row a sink or encoder refused as it stands.

    `key` names the row to a person (natural key, else its place), `reason` says why it was refused.
    """

    source: SourceName
    key: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; `from_json` reads it back."""
        return {"source": self.source, "key": self.key, "reason": self.reason}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls(SourceName(value["source"]), str(value["key"]), str(value["reason"]))


class Kept(StrEnum):
    """Why a sink holds rows of a day that the cache has no more."""

    NOTHING = ""
    SETTLING = "settling"
    MOVING = "moving"
    FROZEN = "frozen"
    UNPROVEN = "unproven"
    GONE = "gone"
    UNREADABLE = "unreadable"
    ACCEPTED = "accepted"

    def sentence(self, sink: SinkName) -> str:
        """For a person."""
        return _KEPT[self].format(sink=sink)


_KEPT = {
    Kept.NOTHING: "nothing is kept",
    Kept.SETTLING: "rows were removed a moment ago; the copies at the sink stay until the removal has settled",
    Kept.MOVING: "rows went from one day to another; their copies stay where they are until both days are exported",
    Kept.FROZEN: "retention reached the day; what the sink holds of it stays",
    Kept.UNPROVEN: (
        "nothing proves that the cache still is the one the rows were exported from (it was reset, restored or compacted several "
        "times unseen); the copies at the sink stay, as is right after a reset, until "
        "`hypaware-pipeline resume {sink} --accept-rewind`"
    ),
    Kept.GONE: "their source is gone from the cache; what the sink holds of it stays",
    Kept.UNREADABLE: "their source cannot be read; what the sink holds of it stays",
    Kept.ACCEPTED: "their loss was accepted; they leave the sink with the next export",
}


@dataclass(frozen=True, slots=True)
class Receipt:
    """The proof for one (sink, dataset, day): what lies at the destination and of which content it is a copy.

    Two balances close, always: `rows + kept_rows` equals `exported_rows + parked_rows + withheld_rows + elsewhere_rows`, and the
    rows of every file are its row set.

    Attributes:
        destination: Digest of everything that shapes the objects (place, format, codec, layout); another digest means another
            copy.
        ledger_id: The ledger that confirmed it.
        fingerprint: Of the pin it was judged by.
        rows: Rows of the day in that pin.
        kept_rows: Rows in the files that the pin does not have.
        kept: Why they stay; the reason that is easiest to resolve, where there are several. Also why rows lie elsewhere.
        elsewhere_rows: Rows of the pin that lie in a file of another day, which must not be written anew.
        set_aside: Rows that were read and not sent.
        parked: The first of the parked records, with reasons; `parked_rows` counts them all.
        exported_at: UTC, ISO-8601 with milliseconds.
        seconds: Wall time the export of this partition took.
    """

    sink: SinkName
    dataset: DatasetName
    day: Day
    destination: str
    ledger_id: str
    fingerprint: Fingerprint
    rows: int
    kept_rows: int
    kept: Kept
    elsewhere_rows: int
    files: tuple[ExportedFile, ...]
    set_aside: tuple[SetAside, ...]
    parked: tuple[ParkedRecord, ...]
    unreadable: Mapping[SourceName, str]
    exported_at: str
    seconds: float

    @property
    def exported_rows(self) -> int:
        """Rows in the files."""
        return sum(file.rows for file in self.files)

    @property
    def parked_rows(self) -> int:
        """Rows that were refused as they stand."""
        return sum(each.row_set.rows for each in self.set_aside if each.why == "parked")

    @property
    def withheld_rows(self) -> int:
        """Rows that policy does not let leave."""
        return sum(each.row_set.rows for each in self.set_aside if each.why == "withheld")

    @property
    def bytes(self) -> int:
        """Bytes in the files."""
        return sum(file.bytes for file in self.files)

    @property
    def balanced(self) -> bool:
        """Whether every row is accounted for."""
        there = self.exported_rows + self.parked_rows + self.withheld_rows + self.elsewhere_rows
        return self.rows + self.kept_rows == there

    def to_json(self) -> dict[str, Any]:
        """As a JSON object, the form in which it lies at the destination; `from_json` reads it back."""
        return {
            "version": RECEIPT_VERSION,
            "sink": self.sink,
            "dataset": self.dataset,
            "day": self.day,
            "destination": self.destination,
            "ledger_id": self.ledger_id,
            "fingerprint": self.fingerprint,
            "rows": self.rows,
            "kept_rows": self.kept_rows,
            "kept": self.kept,
            "elsewhere_rows": self.elsewhere_rows,
            "exported_rows": self.exported_rows,
            "parked_rows": self.parked_rows,
            "withheld_rows": self.withheld_rows,
            "bytes": self.bytes,
            "files": [file.to_json() for file in self.files],
            "set_aside": [each.to_json() for each in self.set_aside],
            "parked": [record.to_json() for record in self.parked],
            "unreadable": dict(self.unreadable),
            "exported_at": self.exported_at,
            "seconds": self.seconds,
        }

    def shown(self) -> dict[str, Any]:
        """As a JSON object to be looked at: row sets say how many rows they have, and not which."""
        document = self.to_json()
        for part in (*document["files"], *document["set_aside"]):
            part["row_set"] = {"rows": part["row_set"]["rows"]}
        return document

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: the document is no receipt.
        """
        return cls(
            sink=SinkName(value["sink"]),
            dataset=DatasetName(value["dataset"]),
            day=Day(value["day"]),
            destination=str(value["destination"]),
            ledger_id=str(value["ledger_id"]),
            fingerprint=Fingerprint(value["fingerprint"]),
            rows=int(value["rows"]),
            kept_rows=int(value["kept_rows"]),
            kept=Kept(value["kept"]),
            elsewhere_rows=int(value["elsewhere_rows"]),
            files=tuple(ExportedFile.from_json(file) for file in value["files"]),
            set_aside=tuple(SetAside.from_json(each) for each in value["set_aside"]),
            parked=tuple(ParkedRecord.from_json(record) for record in value["parked"]),
            unreadable={SourceName(source): str(reason) for source, reason in value["unreadable"].items()},
            exported_at=str(value["exported_at"]),
            seconds=float(value["seconds"]),
        )


RECEIPT_VERSION = 2
"""Of the form in which a receipt is written. Receipts of version 1 did not say which rows they spoke of."""


@dataclass(frozen=True, slots=True)
class DayOutcome:
    """What became of one day.

    Attributes:
        status: `exported`: whole. `partial`: every readable source is exported; another could not be
            read, or an object of which the cache has not all rows any more was spoiled. `kept`: the copy at
            the destination stays, because the cache no longer holds the day whole. `failed`: nothing was recorded.
        receipt: Of what is at the destination now; None when nothing is.
        error: What is wrong and what to do; None when nothing is.
        seconds: Wall time spent on the day.
        retry_after_seconds: Of a day that failed: it is not to be tried again sooner; None when trying again mends nothing.
    """

    sink: SinkName
    dataset: DatasetName
    day: Day
    status: Literal["exported", "partial", "kept", "failed"]
    receipt: Receipt | None
    error: str | None
    seconds: float
    retry_after_seconds: float | None = 0.0

    @property
    def done(self) -> bool:
        """Whether nothing is left to do for the day."""
        return self.status in ("exported", "kept")


RowsT = TypeVar("RowsT")


@dataclass(frozen=True, slots=True)
class ExportBatch(Generic[RowsT]):
    """What a sink is asked to export: days of one dataset, with what leads to their rows."""

    dataset: DatasetName
    days: tuple[Day, ...]
    rows: RowsT


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How a sink is asked. `told` is called with each day as it is done, in the order of the batch."""

    told: Callable[[DayOutcome], None]


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What a sink answers to a batch.

    Attributes:
        status: `exported`: nothing is left to do. `failed`: nothing was exported. `partial`: anything between.
        partitions_exported: Days that are done.
        rows: Rows in the objects of these days.
        bytes: Bytes in them.
        retry_partitions: Days that are not done, each with its reason.
    """

    status: Literal["exported", "partial", "failed"]
    partitions_exported: int
    rows: int
    bytes: int
    retry_partitions: Mapping[Day, str]

    @classmethod
    def of(cls, outcomes: Iterable[DayOutcome]) -> Self:
        """The answer that outcomes day by day come to."""
        done = rows = size = 0
        retry: dict[Day, str] = {}
        for outcome in outcomes:
            if not outcome.done:
                retry[outcome.day] = outcome.error or outcome.status
                continue
            done += 1
            if outcome.receipt is not None:
                rows += outcome.receipt.exported_rows
                size += outcome.receipt.bytes
        status: Literal["exported", "partial", "failed"] = "exported" if not retry else "partial" if done else "failed"
        return cls(status, done, rows, size, retry)
