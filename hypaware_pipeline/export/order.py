"""In which order due days are asked for when not all can be at once.

Why what is about to be evicted goes first: every other day can still be exported tomorrow. Then today, which people look at, then
the days before it, newest first.

Why the age is counted from HypAware's default of 90 days: it is when HypAware deletes unless it is told otherwise. A guess that
is wrong costs the order, never a row.
"""

import datetime as dt
from collections.abc import Callable

from hypaware_pipeline.model import UNDATED, Day, date_of

RETENTION_DAYS = 90
EVICTION_IS_CLOSE_DAYS = 7
"""So many days before it is evicted a day goes ahead of today: time enough for a weekend without a machine."""


def urgency(today: Day) -> Callable[[Day], tuple[int, int]]:
    """A sort key for days; the smallest is asked for first. Undated rows have no age and come last."""
    now = date_of(today)
    evicted_before = now - dt.timedelta(days=RETENTION_DAYS - EVICTION_IS_CLOSE_DAYS)

    def key(day: Day) -> tuple[int, int]:
        if day == UNDATED:
            return (3, 0)
        date = date_of(day)
        if date < evicted_before:
            return (0, date.toordinal())
        return (1, 0) if date == now else (2, -date.toordinal())

    return key
