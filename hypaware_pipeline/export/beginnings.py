"""Where partitions and sinks begin: chosen once, stored, and moved only by command.

Why the first day is not simply the oldest row of the moment: Dagster's history belongs to a partitions definition, and one that
begins elsewhere tomorrow loses it. Retention moves the oldest row every day.

Why the floor bounds it: a single row dated 1970 would make 20,000 partitions.

Why a sink's start is stored when it is first seen: what a schedule asks of a new sink must not depend on when somebody looks.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from hypaware_pipeline.config import SinkConfig
from hypaware_pipeline.datasets import KNOWN_DATASETS
from hypaware_pipeline.errors import BadRequest, CacheError, LedgerError, StateUnusable
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.ledger import Ledger
from hypaware_pipeline.model import DatasetName, Day, SinkName, day_of


@dataclass(frozen=True, slots=True)
class Beginnings:
    """Where things begin.

    Attributes:
        first_day: The first partition.
        note: What a person should know about it; None when nothing.
        sink_starts: The UTC day each sink was first seen; today when the ledger cannot be read, so that a schedule asks for
            too little until it can, rather than for days that were to be left alone.
    """

    first_day: Day
    note: str | None = None
    sink_starts: Mapping[SinkName, Day] = field(default_factory=dict)


def beginnings(installation: Installation) -> Beginnings:
    """What is stored, or is chosen now.

    Never raises for a ledger or cache that cannot be read: definitions must load.
    """
    try:
        with installation.open_ledger() as ledger:
            starts = {name: ledger.sink_start(name, _today(installation)) for name in installation.config.sinks}
            return _stored_or_chosen(installation, ledger, starts)
    except (LedgerError, StateUnusable) as error:
        day, _ = _candidate(installation)
        today = _today(installation)
        return Beginnings(
            day or today,
            note=f"the first day could not be looked up: {error}; reload the code location when it can",
            sink_starts=dict.fromkeys(installation.config.sinks, today),
        )


def move_first_day(installation: Installation, ledger: Ledger, day: Day) -> None:
    """Move the first partition to another day.

    Raises:
        BadRequest: the day lies before the floor or in the future.
        LedgerError: the ledger did not take it.
    """
    floor, today = installation.config.floor_day, _today(installation)
    if not floor <= day <= today:
        raise BadRequest(f"the first day must lie between {floor} (the floor_day) and {today}, not at {day}")
    ledger.move_first_day(day)


def begins(sink: SinkConfig, dataset: DatasetName, first_seen: Day) -> Day | None:
    """The first day that a sink's schedule asks for of a dataset; None if it asks for all. Older days are left to backfills.

    Rows without a day belong to no time and are asked for in any case.

    Args:
        sink: Whose `start` counts. One that says nothing begins with everything there is of a dataset HypAware itself declares,
            and of any other with the day the sink was first seen, whole: how much a plugin's dataset holds nobody can know.
        dataset: Which one.
        first_seen: The UTC day on which the sink was first seen, as the ledger keeps it.
    """
    start = sink.start or ("earliest" if dataset in KNOWN_DATASETS else "now")
    if start == "earliest":
        return None
    return first_seen if start == "now" else Day(start)


def _stored_or_chosen(installation: Installation, ledger: Ledger, starts: Mapping[SinkName, Day]) -> Beginnings:
    day = ledger.first_day()
    if day is None:
        candidate, how = _candidate(installation)
        if candidate is None:
            return Beginnings(_today(installation), _nothing_to_choose_by(installation), starts)
        day = ledger.choose_first_day(candidate, how)
    wanted = installation.config.first_day
    if wanted is not None and wanted != day:
        note = (
            f"first_day is {wanted} in the config, but {day} was chosen before; `hypaware-pipeline first-day {wanted}` moves it"
        )
        return Beginnings(day, note, starts)
    return Beginnings(day, sink_starts=starts)


def _candidate(installation: Installation) -> tuple[Day | None, str]:
    wanted = installation.config.first_day
    if wanted is not None:
        return (wanted, "config") if wanted <= _today(installation) else (None, "")
    try:
        return installation.cache().earliest_day(), "earliest row"
    except CacheError:
        return None, ""


def _nothing_to_choose_by(installation: Installation) -> str:
    if installation.config.first_day is not None:
        return f"first_day {installation.config.first_day} of the config lies in the future; until then partitions begin today"
    return "the cache holds no dated row yet; partitions begin today"


def _today(installation: Installation) -> Day:
    return day_of(installation.clock().astimezone(dt.UTC).date())
