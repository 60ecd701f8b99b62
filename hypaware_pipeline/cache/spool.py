"""What waits in HypAware's spool: rows that are in no table yet, and that no reader of tables sees.

Why nothing here reads a row: HypAware alone moves them, and may do so at any moment. How much waits, and since when, is all that
a person needs to know.

Since when: a flush takes the file that is appended to away under a new name, which holds the time, and the next row makes another
one. So the first row that waits came when the directory last changed, or before the oldest file that was taken away.
"""

import datetime as dt
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hypaware_pipeline.errors import CacheMissing
from hypaware_pipeline.model import DatasetName

_SPOOL = "_hypaware_spool"
_TAKEN = re.compile(r"flush-(?P<ms>[0-9]{1,15})-.*\.jsonl")
"""A file that is being flushed, or whose flush did not end."""


@dataclass(frozen=True, slots=True)
class Spool:
    """What of one dataset waits.

    Attributes:
        bytes: How much; zero when nothing does.
        since: Since when (UTC); None when nothing does.
    """

    dataset: DatasetName
    bytes: int
    since: dt.datetime | None


def spools(root: Path) -> tuple[Spool, ...]:
    """The spool of every dataset that has one, by name. `root` is the directory that holds `datasets/`.

    Raises:
        CacheMissing: a spool cannot be looked into.
    """
    found: dict[DatasetName, list[tuple[int, dt.datetime]]] = {}
    for directory in sorted((root / "datasets").glob(f"*/*/{_SPOOL}")):
        waiting = found.setdefault(DatasetName(directory.parent.parent.name), [])
        try:
            waiting += _waiting(directory)
        except OSError as error:
            raise CacheMissing(f"the spool '{directory}' cannot be read: {error.strerror}; check its permissions") from None
    return tuple(
        Spool(dataset, sum(size for size, _ in files), min((since for _, since in files), default=None))
        for dataset, files in found.items()
    )


def _waiting(directory: Path) -> Iterator[tuple[int, dt.datetime]]:
    """Size and age of each file that holds rows."""
    changed = directory.stat().st_mtime
    for file in directory.iterdir():
        taken = _TAKEN.fullmatch(file.name)
        if taken is None and file.name != "active.jsonl":
            continue
        try:
            size = file.stat().st_size - (_flushed_bytes(file) if taken else 0)
        except FileNotFoundError:  # flushed a moment ago
            continue
        if size > 0:
            yield size, dt.datetime.fromtimestamp(int(taken["ms"]) / 1000 if taken else changed, dt.UTC)


def _flushed_bytes(file: Path) -> int:
    """How much of a file that was taken away is in tables already."""
    try:
        return int(json.loads(file.with_name(f"{file.name}.progress.json").read_bytes())["byteOffset"])
    except (OSError, ValueError, TypeError, KeyError):
        return 0
