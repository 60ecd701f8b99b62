"""The ledger's tables as they are today; `schema` says how they came to be so.

Why the figures of a receipt stand beside its document: planning looks at every exported day of a sink at every tick, and must not
parse a thousand JSON documents to learn that nothing changed.

Types and expressions are those SQLite and PostgreSQL share. Timestamps everywhere are UTC, ISO-8601 with milliseconds and `Z`.
"""

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
"""One row: what this ledger is."""

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
