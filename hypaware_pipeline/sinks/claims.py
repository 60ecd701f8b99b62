"""Who writes a dataset at a destination: a marker that is put before the first object, and looked at by every export.

Why a marker per dataset and not per sink: a dataset's directory is what readers read, and what must hold nothing of anybody else.
A dataset that appears later is judged when it is first written.

Why what lies there without a marker is judged by its receipts: exports of earlier versions put none, and their receipts name the
ledger. Anything else is somebody's, and mixing two writers in one directory loses rows when either replaces or removes an object.

Why a newer layout cannot be taken over: this version would not know which objects belong to it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from hypaware_pipeline.errors import PreconditionFailed, SinkHalted, SinkRetryable
from hypaware_pipeline.model import DatasetName, SinkName
from hypaware_pipeline.plugins.contracts import BlobStore, Condition, IfAbsent, IfMatch
from hypaware_pipeline.plugins.registry import LAYOUT_VERSION
from hypaware_pipeline.sinks.naming import claim_key, dataset_prefix, is_receipt

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Claim:
    """What a marker says. `layout` is the version of the names of objects."""

    ledger_id: str
    sink: SinkName
    layout: int = LAYOUT_VERSION

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; `from_json` reads it back."""
        return {"version": _VERSION, "ledger_id": self.ledger_id, "sink": self.sink, "layout": self.layout}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: the document is no claim.
        """
        return cls(str(value["ledger_id"]), SinkName(value["sink"]), int(value["layout"]))


class DatasetClaim:
    """One sink's claim to one dataset's directory, for the time of one export.

    Args:
        store: Where.
        prefix: Under which the sink writes.
        dataset: Of which the directory is.
        mine: What our marker says.
        takeover: Whether to take what is another's.
    """

    def __init__(self, store: BlobStore, prefix: str, dataset: DatasetName, mine: Claim, *, takeover: bool) -> None:
        self._store = store
        self._prefix = prefix
        self._dataset = dataset
        self._mine = mine
        self._takeover = takeover
        self._condition: Condition | None = None
        self._checked = False

    def check(self) -> None:
        """See that the directory is ours, or free; once. One small read where our marker lies.

        Raises:
            SinkHalted: it is another's, as far as can be told, or of a newer layout.
            SinkError: the store's answer to a failure.
        """
        if not self._checked:
            self._condition = self._condition_or_halt()
            self._checked = True

    def hold(self) -> None:
        """Put our marker unless it is there. Before this nothing may be written.

        Raises:
            SinkRetryable: another process claims the directory at this moment.
            SinkError: the store's answer to a failure, or as `check`.
        """
        self.check()
        if self._condition is None:
            return
        key = claim_key(self._prefix, self._dataset)
        body = (json.dumps(self._mine.to_json(), ensure_ascii=False, sort_keys=True) + "\n").encode()
        try:
            self._store.put(key, lambda out: out.write(body), condition=self._condition, content_type="application/json")
        except PreconditionFailed:
            found, _ = read_claim(self._store, key)
            if found != self._mine:
                self._checked = False
                where = self._store.uri(key)
                raise SinkRetryable(f"another process claims {where} at this moment; the next export looks again") from None
        self._condition = None

    def _condition_or_halt(self) -> Condition | None:
        """On which condition to put our marker; None if it is there."""
        key = claim_key(self._prefix, self._dataset)
        found, etag = read_claim(self._store, key)
        if found == self._mine:
            return None
        where = self._store.uri(key)
        if found is not None and found.layout > self._mine.layout:
            raise SinkHalted(
                f"sink '{self._mine.sink}': {where} was written by a newer version of hypaware-pipeline (layout {found.layout}, "
                f"this one knows {self._mine.layout}); upgrade hypaware-pipeline, or choose another place for the sink"
            )
        if not self._takeover and found is not None and (found.ledger_id, found.sink) != (self._mine.ledger_id, self._mine.sink):
            who = "another ledger" if found.ledger_id != self._mine.ledger_id else "this ledger"
            raise _halted(self._mine, f"{where} says that sink '{found.sink}' of {who} ({found.ledger_id}) writes here")
        if not self._takeover and found is None:
            _check_directory(self._store, self._prefix, self._dataset, self._mine)
        return IfAbsent() if etag is None else IfMatch(etag)


def _check_directory(store: BlobStore, prefix: str, dataset: DatasetName, mine: Claim) -> None:
    """Halt if a directory without a marker holds what is not ours. Its first receipt decides, else its first object."""
    first = None
    for info in store.list(dataset_prefix(prefix, dataset)):
        first = first or info.key
        if is_receipt(info.key):
            ledger_id = _ledger_of(store, info.key)
            if ledger_id == mine.ledger_id:
                return
            raise _halted(mine, f"{store.uri(info.key)} was written by another ledger ({ledger_id})")
    if first is not None:
        raise _halted(
            mine, f"{store.uri(first)} lies where dataset '{dataset}' belongs, and no receipt says that we put it there"
        )


def _halted(mine: Claim, what: str) -> SinkHalted:
    return SinkHalted(
        f"sink '{mine.sink}': {what}; nothing was written. After a lost ledger, `hypaware-pipeline ledger rebuild {mine.sink}` "
        "learns from the receipts what was exported, and the sink goes on. Else choose another place for it, or, if it is to go "
        f"on there all the same (a renamed sink), set takeover to true in /sinks/{mine.sink}/config for one export"
    )


def read_claim(store: BlobStore, key: str) -> tuple[Claim | None, str | None]:
    """The marker at a key and its etag; no marker and an etag if something else lies under its name.

    Raises:
        SinkError: the store's answer to a failure.
    """
    with store.get(key) as blob:
        if blob is None:
            return None, None
        body, etag = blob.body.read(), blob.etag
    try:
        return Claim.from_json(json.loads(body)), etag
    except (KeyError, TypeError, ValueError, AttributeError):
        return None, etag


def _ledger_of(store: BlobStore, key: str) -> str:
    with store.get(key) as blob:
        body = b"" if blob is None else blob.body.read()
    try:
        return str(json.loads(body)["ledger_id"])
    except (KeyError, TypeError, ValueError):
        return "unknown: it is no receipt"
