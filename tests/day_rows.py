"""Rows of a day without a cache: numbers, moments, contents."""

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from hypaware_pipeline.cache.day_rows import DayRows
from hypaware_pipeline.model import SourceName

_EPOCH = dt.date(1970, 1, 1)
_DAY_MICROS = 86_400_000_000


@dataclass(frozen=True, slots=True)
class ARow:
    """One row of a cache.

    Attributes:
        key: Its sequence number; without one, the hash of what it says.
        token: Its moment.
        version: What it is: a settled row is another.
        sequenced: Whether it has a number.
    """

    key: int
    token: int
    version: int = 0
    sequenced: bool = True


def a_row(number: int, day: str = "2026-06-05", *, version: int = 0) -> ARow:
    """The row with a number, so many seconds into a day."""
    return ARow(number, raw_day(day) * _DAY_MICROS + number * 1_000_000, version)


def some_rows(first: int, last: int, day: str = "2026-06-05") -> list[ARow]:
    """The rows with these numbers, both included."""
    return [a_row(number, day) for number in range(first, last + 1)]


def unnumbered(text: int, day: str = "2026-06-05") -> ARow:
    """A row without a number; those of the same text are alike in everything."""
    return ARow(hash_of(text), raw_day(day) * _DAY_MICROS, sequenced=False)


def raw_day(day: str) -> int:
    """Days since 1970-01-01."""
    return (dt.date.fromisoformat(day) - _EPOCH).days


def day_rows(rows: Iterable[ARow]) -> DayRows:
    """What a pin has of one source and day."""
    rows = list(rows)
    return DayRows(
        keys=np.array([row.key for row in rows], np.uint64),
        tokens=np.array([row.token for row in rows], np.int64),
        hashes=np.array([hash_of(row.key, row.token, row.version) for row in rows], np.uint64),
        sequenced=np.array([row.sequenced for row in rows], bool),
        places=np.arange(len(rows), dtype=np.int64),
    )


def by_source(rows: Mapping[str, Iterable[ARow]]) -> dict[SourceName, DayRows]:
    """What a pin has of one day."""
    return {SourceName(source): day_rows(each) for source, each in rows.items()}


def hash_of(*parts: int) -> int:
    """64 bits that differ where the parts do."""
    return hash(parts) % 2**64
