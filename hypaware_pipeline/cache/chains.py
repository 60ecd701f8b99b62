"""Whether a source is the one that was seen before, grown on, or another in its place.

Why this must be proven: rows that vanished from a source are removed from a sink. In a cache that was reset, or restored from a
backup, rows are missing that nobody removed; only an unbroken succession of snapshots tells the one from the other.

Why ids and not numbers alone prove it: a restored table that went on for itself reaches the sequence numbers of the one it was
before. Where the snapshot that was remembered has expired and everything that is left is younger, an older metadata file tells
which one had its number; only where that is gone too, the numbers must do.

Why a compacted table is believed to come from the one its cursor names: it has an id of its own, and holds no snapshot of the one
before it. As long as that is still there it must agree; a reset cache begins anew under the same directory names.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hypaware_pipeline.cache.snapshot import SourcePin, TableHistory, snapshot_then, table_history
from hypaware_pipeline.errors import SourceUnreadable


@dataclass(frozen=True, slots=True)
class Remembered:
    """What was seen of a source last.

    Attributes:
        table_dir: Name of its live table directory.
        table_uuid: Id of the table; empty when there was none.
        snapshot_id: Its snapshot; None when nothing had been committed.
        sequence_number: Of its last commit.
    """

    table_dir: str
    table_uuid: str
    snapshot_id: int | None
    sequence_number: int


class Link(StrEnum):
    """How a source as it is now comes from what was remembered of it.

    FIRST: nothing was known of it. SAME: it is what it was. GROWN: its snapshots lead back to the one remembered. EXPIRED: that
    one has expired, and all that are left are younger. COMPACTED: its table was compacted from the one remembered. REWOUND: it is
    older than that, or went another way since. REPLACED: it is another table, and nothing says how it came from that one.
    """

    FIRST = "first"
    SAME = "same"
    GROWN = "grown"
    EXPIRED = "expired"
    COMPACTED = "compacted"
    REWOUND = "rewound"
    REPLACED = "replaced"

    @property
    def proven(self) -> bool:
        """Whether it is the same source, in which rows are missing only if somebody removed them."""
        return self not in (Link.REWOUND, Link.REPLACED)


def link(remembered: Remembered | None, pin: SourcePin) -> Link:
    """How a pinned source comes from what was remembered of it.

    Reads metadata beside the newest only where that does not tell: of the table directory it was compacted from, if that is still
    there, and older ones of the live table.
    """
    if remembered is None or (not remembered.table_uuid and pin.table_uuid):
        return Link.FIRST
    if pin.table_uuid == remembered.table_uuid:
        return _within(remembered, pin.history, pin.table_dir)
    return Link.COMPACTED if _was_compacted(remembered, pin) else Link.REPLACED


def _within(remembered: Remembered, now: TableHistory, table_dir: Path) -> Link:
    """How the table in a directory comes from an earlier state of itself."""
    if now.snapshot_id == remembered.snapshot_id:
        return Link.SAME
    if remembered.snapshot_id is None or remembered.snapshot_id in _ancestors(now):
        return Link.GROWN
    return Link.EXPIRED if _has_expired(remembered, now, table_dir) else Link.REWOUND


def _ancestors(table: TableHistory) -> Iterator[int]:
    """The snapshots that led to the current one, newest first, as far as the metadata tells; the last may have expired."""
    parents = {snapshot.id: snapshot.parent_id for snapshot in table.snapshots}
    at = table.snapshot_id
    while at is not None:
        yield at
        at = parents.pop(at, None)


def _has_expired(remembered: Remembered, now: TableHistory, table_dir: Path) -> bool:
    """Whether the remembered snapshot is one that the table has forgotten."""
    oldest = min((snapshot.sequence_number for snapshot in now.snapshots), default=0)
    if now.snapshot_id is None or oldest <= remembered.sequence_number:
        return False
    try:
        then = snapshot_then(table_dir, remembered.sequence_number)
    except SourceUnreadable:
        return False
    return then is None or then == remembered.snapshot_id


def _was_compacted(remembered: Remembered, pin: SourcePin) -> bool:
    if pin.previous_table != remembered.table_dir or not pin.table_uuid:
        return False
    table_dir = pin.location.directory / remembered.table_dir
    try:
        before = table_history(table_dir)
    except SourceUnreadable:
        return False
    return before is None or (before.uuid == remembered.table_uuid and _within(remembered, before, table_dir).proven)
