"""How the ledger's database is opened.

Why WAL and `synchronous=FULL`: readers (the UI, `status`) never wait for a writer, and a commit that returned has reached the
disk, since the ledger's word is what stops a day from being exported again.

Why a write begins with BEGIN IMMEDIATE: a transaction that reads first and writes later cannot wait for another writer, it fails.
Taking the write lock at once makes every writer wait its turn, for as long as the busy timeout.
"""

import os
import sqlite3
from pathlib import Path

import sqlalchemy as sa

_WRITE = "ledger_write"  # execution option: this transaction will write


def engine_for(url: sa.URL, *, busy_timeout_seconds: float) -> sa.Engine:
    """An engine whose transactions behave as the module says. Connects to nothing yet.

    Raises:
        ImportError: the URL's driver is not installed.
    """
    engine = sa.create_engine(url, hide_parameters=True)  # parameters are whole receipts: no place for them in an error
    if engine.dialect.name == "sqlite":
        _tune_sqlite(engine, busy_timeout_seconds)
    return engine


def make_private_file(path: Path) -> None:
    """Make the database file, readable by its owner only, unless there is one. SQLite gives its side files the same mode.

    Raises:
        OSError: the directory or the file cannot be made.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def writing(engine: sa.Engine) -> sa.Engine:
    """The same engine, for transactions that will write."""
    return engine.execution_options(**{_WRITE: True})


def _tune_sqlite(engine: sa.Engine, busy_timeout_seconds: float) -> None:
    @sa.event.listens_for(engine, "connect")
    def on_connect(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself; `on_begin` does
        connection.execute(f"PRAGMA busy_timeout = {int(busy_timeout_seconds * 1000)}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # The change of mode does not wait for others that have the file open. The next connection changes it.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:  # the low byte; the rest says which kind
                raise

    @sa.event.listens_for(engine, "begin")
    def on_begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get(_WRITE) else "BEGIN")
