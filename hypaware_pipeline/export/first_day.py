"""Where partitions begin: chosen once, stored, and moved only by command.

Why it is not simply the oldest row of the moment: Dagster's history belongs to a partitions definition, and one that begins
elsewhere tomorrow loses it. Retention moves the oldest row every day.

Why the floor bounds it: a single row dated 1970 would make 20,000 partitions.
"""

import datetime as dt
from dataclasses import dataclass

from hypaware_pipeline.errors import BadRequest, CacheError, LedgerError, StateUnusable
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.ledger import Ledger
from hypaware_pipeline.model import Day, day_of


@dataclass(frozen=True, slots=True)
class FirstDay:
    """The first partition's day.

    Attributes:
        stored: Whether the ledger holds it. It does not while there is no dated row to choose by, or no ledger to store it in.
        note: What a person should know about it; None when nothing.
    """

    day: Day
    stored: bool
    note: str | None = None


def first_day(installation: Installation) -> FirstDay:
    """The stored first day, or the one chosen now.

    Never raises for a ledger or cache that cannot be read: definitions must load.
    """
    try:
        with installation.open_ledger() as ledger:
            return _stored_or_chosen(installation, ledger)
    except (LedgerError, StateUnusable) as error:
        day, _ = _candidate(installation)
        return FirstDay(day or _today(installation), stored=False, note=f"the first day could not be looked up: {error}")


def move_first_day(ledger: Ledger, day: Day, *, floor: Day, today: Day) -> None:
    """Move the first partition to another day.

    Raises:
        BadRequest: the day lies before the floor or in the future.
        LedgerError: the ledger did not take it.
    """
    if not floor <= day <= today:
        raise BadRequest(f"the first day must lie between {floor} (the floor_day) and {today}, not at {day}")
    ledger.move_first_day(day)


def _stored_or_chosen(installation: Installation, ledger: Ledger) -> FirstDay:
    wanted = installation.config.first_day
    day = ledger.first_day()
    if day is None:
        candidate, how = _candidate(installation)
        if candidate is None:
            return FirstDay(_today(installation), stored=False, note="the cache holds no dated row yet; partitions begin today")
        day = ledger.choose_first_day(candidate, how)
    if wanted is not None and wanted != day:
        note = (
            f"first_day is {wanted} in the config, but {day} was chosen before; `hypaware-pipeline first-day {wanted}` moves it"
        )
        return FirstDay(day, stored=True, note=note)
    return FirstDay(day, stored=True)


def _candidate(installation: Installation) -> tuple[Day | None, str]:
    if installation.config.first_day is not None:
        return installation.config.first_day, "config"
    try:
        return installation.cache().earliest_day(), "earliest row"
    except CacheError:
        return None, ""


def _today(installation: Installation) -> Day:
    return day_of(installation.clock().astimezone(dt.UTC).date())
