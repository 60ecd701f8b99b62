"""The ledger's tables and how an older one becomes a newer one.

Why every migration runs in one transaction with the row that says so: a process killed halfway leaves the old version, whole.

Why the figures of a receipt stand beside its document: planning looks at every exported day of a sink at every tick, and must not
parse a thousand JSON documents to learn that nothing changed.

Types and expressions are those SQLite and PostgreSQL share.
"""

import datetime as dt
import uuid
from collections.abc import Callable

import sqlalchemy as sa

metadata = sa.MetaData()

meta = sa.Table(
    "meta",
    metadata,
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1", name="meta_has_one_row"), primary_key=True, autoincrement=False),
    sa.Column("schema_version", sa.Integer, nullable=False),
    sa.Column("ledger_id", sa.String(36), nullable=False),
    sa.Column("created_at", sa.String(24), nullable=False),
)
"""One row: what this ledger is. Timestamps everywhere are UTC, ISO-8601 with milliseconds and `Z`."""

receipts = sa.Table(
    "receipts",
    metadata,
    sa.Column("sink", sa.String, primary_key=True),
    sa.Column("dataset", sa.String, primary_key=True),
    sa.Column("day", sa.String(10), primary_key=True),
    sa.Column("destination", sa.String, nullable=False),
    sa.Column("fingerprint", sa.String, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("exported_rows", sa.BigInteger, nullable=False),
    sa.Column("parked_rows", sa.BigInteger, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("exported_at", sa.String(24), nullable=False),
    sa.Column("document", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False, server_default="0"),
)
"""The last receipt of each (sink, dataset, day). `version` is what its successor has to name: the revision of `plan_memory` that
began with it, 0 for one recorded before there were versions."""

first_day = sa.Table(
    "first_day",
    metadata,
    sa.Column(
        "id", sa.Integer, sa.CheckConstraint("id = 1", name="first_day_has_one_row"), primary_key=True, autoincrement=False
    ),
    sa.Column("day", sa.String(10), nullable=False),
    sa.Column("chosen_at", sa.String(24), nullable=False),
    sa.Column("how", sa.String, nullable=False),
)
"""At most one row: where Dagster's partitions begin."""

sink_starts = sa.Table(
    "sink_starts",
    metadata,
    sa.Column("sink", sa.String, primary_key=True),
    sa.Column("day", sa.String(10), nullable=False),
    sa.Column("started_at", sa.String(24), nullable=False),
)
"""The UTC day each sink was first seen."""

plan_memory = sa.Table(
    "plan_memory",
    metadata,
    sa.Column("sink", sa.String, primary_key=True),
    sa.Column("dataset", sa.String, primary_key=True),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("nothing_due_at", sa.String),
)
"""Per (sink, dataset): how many receipts and failures were recorded since there is this table, and the state of things at which
the plan last found nothing due (null when it did not, or something was recorded since)."""

failures = sa.Table(
    "failures",
    metadata,
    sa.Column("sink", sa.String, primary_key=True),
    sa.Column("dataset", sa.String, primary_key=True),
    sa.Column("day", sa.String(10), primary_key=True),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("failed_at", sa.String(24), nullable=False),
)
"""Days whose last export failed or left something out, until one that does not."""


def timestamp(now: dt.datetime) -> str:
    """An aware moment as the ledger writes it: UTC, ISO-8601 with milliseconds and `Z`."""
    return now.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class NotALedgerError(Exception):
    """The database holds something that no version of this program wrote, or a newer one. Its text says which."""


def prepare(connection: sa.Connection, now: dt.datetime) -> str:
    """Bring the database to this program's schema, inside the caller's transaction; returns the ledger's id.

    Raises:
        NotALedgerError: the database is another program's, or a newer version's.
    """
    stored = _stored_meta(connection)
    version = stored.schema_version if stored else 0
    if version > len(_MIGRATIONS):
        raise NotALedgerError(
            f"it was written by a newer version of hypaware-pipeline (schema {version}, this one knows {len(_MIGRATIONS)}); "
            "upgrade hypaware-pipeline"
        )
    for migrate in _MIGRATIONS[version:]:
        migrate(connection)
    if stored is None:
        ledger_id = str(uuid.uuid4())
        row = {"id": 1, "schema_version": len(_MIGRATIONS), "ledger_id": ledger_id, "created_at": timestamp(now)}
        connection.execute(meta.insert().values(row))
        return ledger_id
    if version < len(_MIGRATIONS):
        connection.execute(meta.update().values(schema_version=len(_MIGRATIONS)))
    return str(stored.ledger_id)


def _stored_meta(connection: sa.Connection) -> sa.Row[int, str] | None:
    """What the database says it is; None when it is empty."""
    tables = set(sa.inspect(connection).get_table_names())
    if meta.name in tables:
        stored = connection.execute(sa.select(meta.c.schema_version, meta.c.ledger_id)).first()
        if stored is not None:
            return stored
    if tables:
        raise NotALedgerError("it is a database of something else; name another")
    return None


def _create_first_tables(connection: sa.Connection) -> None:
    metadata.create_all(connection, tables=[meta, receipts, first_day, sink_starts], checkfirst=False)


def _create_plan_memory(connection: sa.Connection) -> None:
    metadata.create_all(connection, tables=[plan_memory], checkfirst=False)


def _create_failures(connection: sa.Connection) -> None:
    metadata.create_all(connection, tables=[failures], checkfirst=False)


def _add_versions(connection: sa.Connection) -> None:
    if "version" not in {column["name"] for column in sa.inspect(connection).get_columns(receipts.name)}:  # made a moment ago
        connection.execute(sa.text("ALTER TABLE receipts ADD COLUMN version BIGINT DEFAULT 0 NOT NULL"))


_MIGRATIONS: tuple[Callable[[sa.Connection], None], ...] = (
    _create_first_tables,
    _create_plan_memory,
    _create_failures,
    _add_versions,
)
"""Step n brings schema n to n+1. Append only: a ledger in use has run the earlier ones."""
