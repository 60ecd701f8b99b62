"""The small files beside the tables: `cursor.json`, `_hyp_ingest_seq.json`, the spool; and who may change them.

Why locks on directories: HypAware leaves several writers of one cache to luck. A test that compares what was exported with what
was written needs a writer that loses nothing itself. Locking the directory leaves no file behind that HypAware would not write.
"""

import datetime as dt
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

Clock = Callable[[], dt.datetime]
"""Tells the time, in UTC."""

Cursor = dict[str, Any]

SEQUENCE_BLOCK: Final = 1024
SEQUENCE_FILE: Final = "_hyp_ingest_seq.json"


def utc_now() -> dt.datetime:
    """The time now."""
    return dt.datetime.now(dt.UTC)


def iso_millis(moment: dt.datetime) -> str:
    """A moment as JavaScript prints it."""
    return moment.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def epoch_millis(moment: dt.datetime) -> int:
    """Milliseconds since the epoch."""
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


@contextmanager
def locked(directory: Path, *, exclusive: bool) -> Iterator[None]:
    """Hold a lock on a directory, against other processes and other writers of this one."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def new_cursor() -> Cursor:
    """The cursor of a new source."""
    return {"epoch": 0, "rowCount": 0, "compaction": None, "layout": "source-table", "tableDir": "table"}


def read_cursor(source_directory: Path) -> Cursor:
    """The cursor of a source."""
    cursor: Cursor = json.loads((source_directory / "cursor.json").read_text(encoding="utf-8"))
    return cursor


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace a small JSON file as HypAware does: indented, temporary name, rename."""
    temporary = path.with_name(f"{path.name}.tmp.{os.getpid()}")
    temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)


class SequenceAllocator:
    """Hands out `_hyp_ingest_seq`, from blocks reserved for one writer."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root = root
        self._clock = clock
        self._next = 0
        self._end = 0

    def take(self, count: int) -> pa.Array:
        """The next numbers, ascending; not without gaps when a block ends."""
        numbers: list[pa.Array] = []
        missing = count
        while missing:
            if self._next == self._end:
                self._reserve(missing)
            size = min(missing, self._end - self._next)
            numbers.append(pa.array(range(self._next, self._next + size), pa.int64()))
            self._next += size
            missing -= size
        return pa.concat_arrays(numbers) if numbers else pa.array([], pa.int64())

    def _reserve(self, count: int) -> None:
        """Reserve whole blocks for at least `count` numbers."""
        path = self._root / SEQUENCE_FILE
        with locked(self._root, exclusive=True):
            self._next = int(json.loads(path.read_text(encoding="utf-8"))["nextSeq"]) if path.exists() else 1
            self._end = self._next + -(-count // SEQUENCE_BLOCK) * SEQUENCE_BLOCK
            write_json(path, {"v": 1, "nextSeq": str(self._end), "updatedAt": iso_millis(self._clock())})
