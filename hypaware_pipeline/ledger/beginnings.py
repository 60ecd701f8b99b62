"""Where things begin: Dagster's partitions, and each sink. Chosen once, since Dagster's history hangs on it."""

from typing import Any

import sqlalchemy as sa

from hypaware_pipeline.ledger import tables
from hypaware_pipeline.ledger.transactions import Transactions, matches, upsert
from hypaware_pipeline.model import Day, SinkName


class Beginnings:
    """The part of a ledger that keeps these."""

    def __init__(self, transactions: Transactions) -> None:
        self._in = transactions

    def first_day(self) -> Day | None:
        """Where partitions begin; None until it was chosen."""
        with self._in.reading() as connection:
            day = connection.execute(sa.select(tables.first_day.c.day)).scalar()
        return None if day is None else Day(day)

    def choose_first_day(self, day: Day, how: str) -> Day:
        """Choose where partitions begin, once; returns the day that stands, which is the first one ever chosen.

        `how` says in a word or two why this day (`config`, `earliest row`), for the person who asks later.
        """
        values = {"day": day, "chosen_at": self._in.now(), "how": how}
        return Day(self._keep_first(tables.first_day, {"id": 1}, values))

    def move_first_day(self, day: Day) -> None:
        """Move where partitions begin, by command."""
        with self._in.writing() as connection:
            upsert(connection, tables.first_day, {"id": 1}, {"day": day, "chosen_at": self._in.now(), "how": "moved"})

    def sink_start(self, sink: SinkName, day: Day) -> Day:
        """The day a sink was first seen: `day` if this is the first time, else the one stored then."""
        return Day(self._keep_first(tables.sink_starts, {"sink": sink}, {"day": day, "started_at": self._in.now()}))

    def _keep_first(self, table: sa.Table, key: dict[str, Any], values: dict[str, Any]) -> str:
        """Insert a row unless there is one, and return the `day` of the one that is there."""
        stored = sa.select(table.c.day).where(matches(table, key))
        with self._in.reading() as connection:
            day = connection.execute(stored).scalar()
        if day is not None:
            return str(day)
        with self._in.writing() as connection:
            day = connection.execute(stored).scalar()
            if day is None:
                connection.execute(table.insert().values(**key, **values))
        return str(values["day"] if day is None else day)
