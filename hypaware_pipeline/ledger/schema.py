"""How an empty database becomes a ledger, and an older ledger a newer one.

Why every migration runs in one transaction with the row that says so: a process killed halfway leaves the old version, whole.

Why a table is made as it is today, also by an old migration: what a later migration adds to it is added where it is missing.
"""

import datetime as dt
import uuid
from collections.abc import Callable, Mapping

import sqlalchemy as sa

from hypaware_pipeline.ledger.tables import (
    expected_objects,
    failures,
    first_day,
    intents,
    meta,
    metadata,
    plan_memory,
    receipts,
    row_sets,
    sink_starts,
    source_chains,
)
from hypaware_pipeline.ledger.turns import holds, leases, retries


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
    _add_to_receipts(connection, {"version": "BIGINT DEFAULT 0 NOT NULL"})


def _begin_row_sets(connection: sa.Connection) -> None:
    """Receipts did not say which rows they spoke of: their days are judged anew, by what lies at the destinations."""
    connection.execute(receipts.delete())
    connection.execute(plan_memory.update().values(revision=plan_memory.c.revision + 1, nothing_due_at=None))
    _add_to_receipts(connection, {"kept_rows": "BIGINT DEFAULT 0 NOT NULL", "kept": "VARCHAR DEFAULT '' NOT NULL"})
    metadata.create_all(connection, tables=[row_sets, source_chains, intents], checkfirst=False)


def _create_turns(connection: sa.Connection) -> None:
    metadata.create_all(connection, tables=[leases, retries, holds], checkfirst=False)


def _create_expected_objects(connection: sa.Connection) -> None:
    metadata.create_all(connection, tables=[expected_objects], checkfirst=False)


def _add_to_receipts(connection: sa.Connection, columns: Mapping[str, str]) -> None:
    """Add columns to a table of receipts that was not made a moment ago, with all it has today."""
    present = {column["name"] for column in sa.inspect(connection).get_columns(receipts.name)}
    for name, definition in columns.items():
        if name not in present:
            connection.execute(sa.text(f"ALTER TABLE receipts ADD COLUMN {name} {definition}"))


_MIGRATIONS: tuple[Callable[[sa.Connection], None], ...] = (
    _create_first_tables,
    _create_plan_memory,
    _create_failures,
    _add_versions,
    _begin_row_sets,
    _create_turns,
    _create_expected_objects,
)
"""Step n brings schema n to n+1. Append only: a ledger in use has run the earlier ones."""
