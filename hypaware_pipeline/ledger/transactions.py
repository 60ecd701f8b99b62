"""How the parts of a ledger read and write: one database, one transaction per step, one clock.

Why an upsert is an update and, if that met nothing, an insert: it is the form both databases know, and inside one transaction
that holds the write lock it is one step.
"""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from hypaware_pipeline.errors import LedgerUnreadable, LedgerWriteFailed
from hypaware_pipeline.ledger.engine import reading, shown, writing
from hypaware_pipeline.ledger.mends import explain
from hypaware_pipeline.ledger.schema import timestamp

Clock = Callable[[], dt.datetime]
"""Gives the current moment, aware of its time zone."""


class Transactions:
    """What the parts of an open ledger share.

    Attributes:
        place: The database, as errors name it.
        clock: The time.
    """

    def __init__(self, engine: sa.Engine, clock: Clock) -> None:
        self.place = shown(engine.url)
        self.clock = clock
        self._engine = engine

    def now(self) -> str:
        """The time as the ledger writes it."""
        return timestamp(self.clock())

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that reads; all it reads is of one moment.

        Raises:
            LedgerUnreadable: the database cannot be read.
        """
        try:
            with reading(self._engine).begin() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            explain(LedgerUnreadable, self._engine.url, error)

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that has the right to write from its beginning. All of it lands or, after any exception, nothing.

        Raises:
            LedgerWriteFailed: the database did not take it.
        """
        try:
            with writing(self._engine).begin() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            explain(LedgerWriteFailed, self._engine.url, error)


def matches(table: sa.Table, key: Mapping[str, Any]) -> sa.ColumnElement[bool]:
    """The rows of a table that have these values."""
    return sa.and_(*(table.c[column] == value for column, value in key.items()))


def upsert(connection: sa.Connection, table: sa.Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Give the row of a key these values, and make it if there is none. Only inside `writing`."""
    updated = connection.execute(table.update().where(matches(table, key)).values(**values))
    if updated.rowcount == 0:
        connection.execute(table.insert().values(**key, **values))
