"""The one partitions definition, and ranges over it that are checked at both ends.

Why checked here: Dagster runs a reversed range over zero partitions and a future range over days that do not exist yet, and
reports success both times. Our own ranges are refused before they are launched, those of other launchers (GraphQL) when they run.

Why no partition at all is an error of ours: a clock that stands before the first day makes none, and Dagster then answers with an
index out of range.

Why `undated` is folded into the first partition: Dagster's daily partitions are calendar days, and rows without a day must be
exported by some run. Everywhere else `undated` is a day of its own.
"""

import dagster as dg

from hypaware_pipeline.errors import BadRequest
from hypaware_pipeline.model import UNDATED, Day, date_of

RANGE_START_TAG = "dagster/asset_partition_range_start"
RANGE_END_TAG = "dagster/asset_partition_range_end"
DAYS_TAG = "hypaware/days"
"""The same for people: `2026-06-01` or `2026-06-01 to 2026-06-05`. What runs are searched by in the UI."""


def daily_partitions(first_day: Day) -> dg.DailyPartitionsDefinition:
    """Every UTC day from `first_day` to today, today included."""
    return dg.DailyPartitionsDefinition(start_date=date_of(first_day).isoformat(), timezone="UTC", end_offset=1)


def last_partition(partitions: dg.DailyPartitionsDefinition) -> Day:
    """Today, by the clock that Dagster has.

    Raises:
        BadRequest: there is no partition: the clock stands before the first day.
    """
    key = partitions.get_last_partition_key()
    if key is None:
        first = partitions.start.date().isoformat()
        raise BadRequest(f"the clock stands before {first}, where partitions begin; set it right, or move the first day")
    return Day(str(key))


def days_of(keys: list[str], first_day: Day) -> list[Day]:
    """The days a run over these partitions exports: themselves, and the undated rows with the first partition.

    Raises:
        dagster.Failure: there are none. The run would succeed, and be a materialization of the whole asset.
    """
    if not keys:
        reason = f"the run covers no day: its range is reversed, or lies after today or before {first_day}"
        raise dg.Failure(f"{reason}; launch one that begins with its earlier day", allow_retries=False)
    days = [Day(key) for key in keys]
    return [*days, UNDATED] if first_day in days else days


def range_tags(partitions: dg.DailyPartitionsDefinition, first: Day, last: Day) -> dict[str, str]:
    """Tags that make a run cover the partitions `first` to `last`, both included.

    Raises:
        BadRequest: the range is reversed, or an end is no partition (in the future, or before the first day).
    """
    if first > last:
        raise BadRequest(f"the range {first} to {last} is reversed; the earlier day comes first")
    for day in (first, last):
        if not partitions.has_partition_key(day):
            keys = partitions.get_partition_keys()
            raise BadRequest(f"there is no partition {day}; partitions run from {keys[0]} to {keys[-1]}")
    return {RANGE_START_TAG: first, RANGE_END_TAG: last, DAYS_TAG: first if first == last else f"{first} to {last}"}
