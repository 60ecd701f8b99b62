"""In which order due days are asked for when not all can be at once.

Why what is about to be evicted goes first: every other day can still be exported tomorrow. Then today, which people look at, then
the days before it, newest first.

Why what HypAware is told to keep decides and not what it deleted so far: its cut-off says when it last deleted something, not
when it will again.
"""

from collections.abc import Callable

from hypaware_pipeline.config import Retention
from hypaware_pipeline.model import UNDATED, DatasetName, Day, date_of

EVICTION_IS_CLOSE_DAYS = 7
"""So many days before it is evicted a day goes ahead of today: time enough for a weekend without a machine."""


def urgency(today: Day, retention: Retention) -> Callable[[DatasetName, Day], tuple[int, float]]:
    """A sort key for the days of datasets; the smallest is asked for first. Undated rows have no age and come last."""
    now = date_of(today).toordinal()

    def key(dataset: DatasetName, day: Day) -> tuple[int, float]:
        if day == UNDATED:
            return (3, 0)
        age, kept = now - date_of(day).toordinal(), retention.days_of(dataset)
        if kept is not None and kept - age < EVICTION_IS_CLOSE_DAYS:
            return (0, kept - age)
        return (2, age) if age else (1, 0)

    return key
