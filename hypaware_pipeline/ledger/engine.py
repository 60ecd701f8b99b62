"""How the ledger's database is opened.

Why WAL and `synchronous=FULL`: readers (the UI, `status`) never wait for a writer, and a commit that returned has reached the
disk, since the ledger's word is what stops a day from being exported again.

Why a write begins with BEGIN IMMEDIATE, and on PostgreSQL with an advisory lock: a transaction that reads first and writes later
must not find in between that another has written. Taking the right to write at once makes every writer wait its turn, for as long
as the busy timeout; a write takes milliseconds. The lock is PostgreSQL's only one that needs no table, so that it also keeps two
processes from making the tables at the same time.

Why PostgreSQL's writing transactions are READ COMMITTED whatever the server's default: what is read after the wait for the lock
must be what the writer before left. Why the reading ones are REPEATABLE READ, as SQLite's always are: a receipt and its row sets
are two queries, and another export may replace both in between.

Why a connection is tried before it is used: a run holds one for hours, and a server that was restarted in between must cost
nothing.
"""

import os
import sqlite3
from pathlib import Path
from typing import Any

import sqlalchemy as sa

POSTGRESQL = "postgresql"

WRITE_LOCK = 0x68797061_77617265
"""PostgreSQL's advisory lock of whoever writes: a number that is nobody else's by chance."""

_WRITE = "ledger_write"  # execution option: this transaction will write

_PATIENCE: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""How long a PostgreSQL server may be silent before it counts as gone: seconds, the last in milliseconds. By default a run would
wait for two hours for one whose machine died."""

_NAMING = ("host", "hostaddr", "port", "dbname", "user", "service", "options")
"""What of a URL's query says which database is meant. The rest is not shown: it may hold a password or a key."""


def engine_for(url: sa.URL, *, busy_timeout_seconds: float) -> sa.Engine:
    """An engine whose transactions behave as the module says. Connects to nothing yet.

    Raises:
        ImportError: the URL's driver is not installed.
    """
    # Parameters are whole receipts: no place for them in an error.
    if url.get_backend_name() != POSTGRESQL:
        engine = sa.create_engine(url, hide_parameters=True)
        if engine.dialect.name == "sqlite":
            _tune_sqlite(engine, busy_timeout_seconds)
        return engine
    settings = {
        **_PATIENCE,
        "application_name": "hypaware-pipeline",
        "client_encoding": "utf8",
        "prepare_threshold": None,  # a pooler between us and the server need not know prepared statements
    }
    chosen = {key: value for key, value in settings.items() if key not in url.query}
    engine = sa.create_engine(
        url, hide_parameters=True, connect_args=chosen, isolation_level="READ COMMITTED", pool_pre_ping=True
    )
    _tune_postgresql(engine, busy_timeout_seconds)
    return engine


def shown(url: sa.URL) -> str:
    """The file of a file database, else the URL without anything secret."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    query = {key: value for key, value in url.query.items() if key in _NAMING}
    plain = sa.URL.create(
        url.get_backend_name(), username=url.username, host=url.host, port=url.port, database=url.database, query=query
    )
    return plain.render_as_string()


def make_private_file(path: Path) -> None:
    """Make the database file, readable by its owner only, unless there is one. SQLite gives its side files the same mode.

    Raises:
        OSError: the directory or the file cannot be made.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def reading(engine: sa.Engine) -> sa.Engine:
    """The same engine, for transactions that read and see the database as it was at one moment."""
    return engine.execution_options(isolation_level="REPEATABLE READ") if engine.dialect.name == POSTGRESQL else engine


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
        connection.exec_driver_sql("BEGIN IMMEDIATE" if _writes(connection) else "BEGIN")


def _tune_postgresql(engine: sa.Engine, busy_timeout_seconds: float) -> None:
    @sa.event.listens_for(engine, "begin")
    def on_begin(connection: sa.Connection) -> None:
        if _writes(connection):
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {int(busy_timeout_seconds * 1000)}")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITE_LOCK})")


def _writes(connection: sa.Connection) -> bool:
    return bool(connection.get_execution_options().get(_WRITE))
