"""What the parts of a sink promise each other and the engine.

Why they never meet: bytes flow down, semantics flow up. An encoder writes to a stream and does not know where it ends; a store
moves bytes and does not know what they mean. Whatever pairs them (a sink, a table format) is the only one to know both.

Why a store takes a function that writes instead of bytes: an object may be larger than memory, and whether it becomes visible is
decided only after the last byte. A function that raises leaves nothing behind.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeVar

from hypaware_pipeline.model import (
    Column,
    DatasetName,
    Day,
    ExportBatch,
    ExportOptions,
    ExportResult,
    Part,
    Receipt,
    SinkName,
    StoredObject,
)

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
RowsT = TypeVar("RowsT")


class Writable(Protocol):
    """The half of a binary stream an encoder needs."""

    def write(self, data: bytes, /) -> int:
        """Take all of `data`; returns its length. Raises a `SinkError` when the destination cannot."""
        ...


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """What an encoder is; a sink picks and names files by it.

    Attributes:
        format: `parquet`, `jsonl`.
        extension: Without a leading dot: `parquet`, `jsonl.gz`.
        content_type: Media type of the objects.
        supports: Capability tags, e.g. `queryable`.
        settings: Everything that changes the bytes (codec, level, row-group bytes); part of the destination digest.
    """

    format: str
    extension: str
    content_type: str
    supports: frozenset[str] = frozenset()
    settings: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row an encoder left out: its 0-based position among the rows it was given, and why."""

    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class Encoded:
    """What an encoder did: rows written, and the rows it could not encode and left out."""

    rows: int
    refused: Sequence[RefusedRow] = ()


class Encoder(Protocol):
    """Turns record batches into one object's bytes. Deterministic: same rows, settings and versions, same bytes."""

    @property
    def spec(self) -> EncoderSpec:
        """What this encoder is."""
        ...

    def encode(self, batches: "Iterable[pa.RecordBatch]", columns: Sequence[Column], out: Writable) -> Encoded:
        """Write all rows of `batches` to `out`, holding no more than a few batches.

        A batch carries `columns` by name in any order, each plain or dictionary-encoded and possibly differing from batch to
        batch, JSON columns as text, timestamps as UTC microseconds; other columns (internal ones) are ignored. Zero rows make a
        valid empty file. A row that cannot be encoded is left out and named in the answer; it never fails the others.
        """
        ...


@dataclass(frozen=True, slots=True)
class IfAbsent:
    """Write only if nothing lies at the key."""


@dataclass(frozen=True, slots=True)
class IfMatch:
    """Write only if the object at the key still has this etag."""

    etag: str


Condition = IfAbsent | IfMatch

Fence = Callable[[], None]
"""Asked when nothing but the last step of a write is left to do; raises when the writer may not write any more, and then the
write leaves everything as it was. A store that can keeps all others from writing between the question and that step."""


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """An object as a listing shows it. `size` in bytes, `modified` in UTC."""

    key: str
    size: int
    modified: dt.datetime


@dataclass(frozen=True, slots=True)
class Blob:
    """An object opened for reading. `body` is closed by the store's context manager; `etag` serves `IfMatch`."""

    body: BinaryIO
    size: int
    etag: str


class BlobStore(Protocol):
    """Objects by key. Keys are relative, `/`-separated and can never leave the store's root.

    Every method raises `SinkRetryable` (try later: disk full, time-out) or `SinkHalted` (someone must act: read-only, missing
    root, credentials) and nothing else for what goes wrong outside.
    """

    def put(
        self,
        key: str,
        write: Callable[[Writable], T],
        *,
        condition: Condition | None = None,
        fence: Fence | None = None,
        content_type: str = "application/octet-stream",
    ) -> T:
        """Write one object atomically and durably; returns what `write` returned.

        Readers see the old object or the new one, never a part. If `write` or `fence` raises, the old object stays, nothing else
        does.

        Raises:
            PreconditionFailed: `condition` did not hold.
            ValueError: the key is not safe (see reference 7.1: empty, absolute, backslash, leaves the root).
        """
        ...

    def get(self, key: str) -> AbstractContextManager[Blob | None]:
        """Open an object; None when there is none. An object replaced while open is read to its end as it was."""
        ...

    def list(self, prefix: str) -> Iterator[BlobInfo]:
        """Objects under the directory `prefix`, sorted by key (`a/b` never yields `a/b2/…`); unfinished ones never."""
        ...

    def delete(self, key: str, *, fence: Fence | None = None) -> None:
        """Remove an object; removing none is no error. If `fence` raises, the object stays."""
        ...

    def uri(self, key: str) -> str:
        """Where the object is, for people and engines: `file:///…`, `s3://…`."""
        ...


class SinkWriter(Protocol):
    """Through which the engine writes the days of one sink: objects, receipts, removals.

    Every method raises `SinkRetryable` or `SinkHalted` and nothing else for what goes wrong outside.
    """

    def object_key(self, dataset: DatasetName, day: Day, part: Part) -> str:
        """Where an object lies, or will lie: different parts never share a key."""
        ...

    def write_object(
        self,
        key: str,
        *,
        columns: Sequence[Column],
        batches: "Iterable[pa.RecordBatch]",
        confirm: Callable[[Encoded, StoredObject], None],
        fence: Fence,
    ) -> StoredObject | None:
        """Write one object, replacing an older one atomically.

        Args:
            key: What `object_key` gave.
            columns: What the object holds, in order.
            batches: The rows, in order.
            confirm: Called after the last row and before the object becomes visible, with what was encoded and what is to be
                stored; raises to leave the old object in place.
            fence: Handed to the store.

        Returns:
            The object, or None when no row could be encoded.
        """
        ...

    def write_receipt(self, receipt: Receipt, *, fence: Fence) -> None:
        """Put the receipt beside the objects it speaks of: the last object written."""
        ...

    def receipt_key(self, dataset: DatasetName, day: Day) -> str:
        """Where the receipt of a day lies, or will lie."""
        ...

    def read_receipt(self, key: str) -> Receipt | None:
        """The receipt that lies at a key, this sink's or that of one that wrote there before; None when nothing does.

        Raises:
            ReceiptDamaged: what lies there is none to be believed.
        """
        ...

    def is_object(self, key: str) -> bool:
        """Whether a key can be that of an object of this sink, and is none of a receipt or a marker."""
        ...

    def sizes(self, dataset: DatasetName, day: Day) -> Mapping[str, int]:
        """Bytes of every object that lies where those of a day do, by key."""
        ...

    def digests(self, keys: Iterable[str]) -> Mapping[str, str]:
        """The SHA-256 (hex) of what lies under each key, as it is there now; of those under which something lies."""
        ...

    def remove(self, keys: Iterable[str], *, fence: Fence) -> None:
        """Remove objects that a newer receipt no longer names."""
        ...


class TableFormat(Protocol):
    """Arranges a sink's objects as tables. It writes them with the encoder, and into the store, that it is given."""

    def writer(self, sink: SinkName, encoder: Encoder, store: BlobStore, *, prefix: str) -> SinkWriter:
        """What writes the days of one sink under a prefix of the store."""
        ...


class Sink(Protocol[RowsT]):
    """A configured destination as a run sees it: it is asked for days, and answers for each of them."""

    def export_batch(self, batch: ExportBatch[RowsT], options: ExportOptions) -> ExportResult:
        """Export a batch. What one day meets is in the answer, and costs no other day; nothing is raised for it."""
        ...

    def flush(self) -> None:
        """Send what is held back. Called after the last batch of a run."""
        ...

    def close(self) -> None:
        """Begin nothing more and end any wait; days that were not begun are answered as failed.

        Called at the end of a run whatever became of it, and from any thread to end one early. More than once is no error.
        """
        ...
