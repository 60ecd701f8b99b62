"""A blob sink: an encoder and a store, paired.

Why the pair lives here and nowhere else: it is the only place that knows both the bytes and where they go. A new store or a new
encoder changes nothing in it.

Why an object is written only after its rows were counted: a put that fails its balance raises inside the store's write, and the
store then leaves the old object as it was.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypaware_pipeline.model import Column, DatasetName, Day, Part, Receipt, SinkName, StoredObject
from hypaware_pipeline.plugins.contracts import Blob, BlobStore, Encoded, Encoder, Fence, Writable
from hypaware_pipeline.sinks.naming import day_prefix, object_key, receipt_key
from hypaware_pipeline.sinks.receipts import read_receipt

if TYPE_CHECKING:
    import pyarrow as pa


class _NothingToWrite(Exception):
    """Raised inside a put when no row could be encoded: the store then writes nothing."""


_CHUNK_BYTES = 1 << 20


class _HashingWriter:
    """Counts and hashes what passes through to the store."""

    def __init__(self, out: Writable) -> None:
        self._out = out
        self._sha256 = hashlib.sha256()
        self.bytes = 0

    def write(self, data: bytes, /) -> int:
        self._sha256.update(data)
        self.bytes += len(data)
        return self._out.write(data)

    def sha256(self) -> str:
        return self._sha256.hexdigest()


@dataclass(frozen=True, slots=True)
class BlobSink:
    """Writes the days of one blob sink. Meets `SinkWriter`.

    Attributes:
        prefix: Under which everything lies, relative to the store's root; may be empty.
    """

    name: SinkName
    encoder: Encoder
    store: BlobStore
    prefix: str

    def object_key(self, dataset: DatasetName, day: Day, part: Part) -> str:
        """See `SinkWriter.object_key`."""
        return object_key(self.prefix, dataset, day, part, self.encoder.spec.extension)

    def write_object(
        self,
        key: str,
        *,
        columns: Sequence[Column],
        batches: "Iterable[pa.RecordBatch]",
        confirm: Callable[[Encoded, StoredObject], None],
        fence: Fence,
    ) -> StoredObject | None:
        """See `SinkWriter.write_object`."""

        def write(out: Writable) -> StoredObject:
            writer = _HashingWriter(out)
            encoded = self.encoder.encode(batches, columns, writer)
            stored = StoredObject(key, encoded.rows, writer.bytes, writer.sha256())
            confirm(encoded, stored)
            if encoded.rows == 0:
                raise _NothingToWrite
            return stored

        try:
            return self.store.put(key, write, fence=fence, content_type=self.encoder.spec.content_type)
        except _NothingToWrite:
            return None

    def write_receipt(self, receipt: Receipt, *, fence: Fence) -> None:
        """See `SinkWriter.write_receipt`."""
        body = (json.dumps(receipt.to_json(), ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode()
        key = self.receipt_key(receipt.dataset, receipt.day)
        self.store.put(key, lambda out: out.write(body), fence=fence, content_type="application/json")

    def receipt_key(self, dataset: DatasetName, day: Day) -> str:
        """See `SinkWriter.receipt_key`."""
        return receipt_key(self.prefix, dataset, day, self.name)

    def read_receipt(self, key: str) -> Receipt | None:
        """See `SinkWriter.read_receipt`."""
        return read_receipt(self.store, self.prefix, key)

    def is_object(self, key: str) -> bool:
        """See `SinkWriter.is_object`."""
        name = key.rpartition("/")[2]
        return name.endswith(f".{self.encoder.spec.extension}") and not name.startswith("_")

    def sizes(self, dataset: DatasetName, day: Day) -> Mapping[str, int]:
        """See `SinkWriter.sizes`."""
        return {info.key: info.size for info in self.store.list(day_prefix(self.prefix, dataset, day))}

    def digests(self, keys: Iterable[str]) -> Mapping[str, str]:
        """See `SinkWriter.digests`."""
        found = {}
        for key in keys:
            with self.store.get(key) as blob:
                if blob is not None:
                    found[key] = _sha256(blob)
        return found

    def remove(self, keys: Iterable[str], *, fence: Fence) -> None:
        """See `SinkWriter.remove`."""
        for key in keys:
            self.store.delete(key, fence=fence)


def _sha256(blob: Blob) -> str:
    sha256 = hashlib.sha256()
    while chunk := blob.body.read(_CHUNK_BYTES):
        sha256.update(chunk)
    return sha256.hexdigest()
