"""The ledger's tables as they are today; `schema` says how they came to be so.

Why the figures of a receipt stand beside its document: planning looks at every exported day of a sink at every tick, and must not
parse a thousand JSON documents to learn that nothing changed.

Why row sets lie apart from the receipts they belong to: they are bulky, few ask for them, and whoever does asks for those of a
dataset at every sink.

Types and expressions are those SQLite and PostgreSQL share. Timestamps everywhere are UTC, ISO-8601 with milliseconds and `Z`.
"""

import sqlalchemy as sa

from hypaware_pipeline.ledger.text import ExactText

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
    sa.Column("kept_rows", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("kept", sa.String, nullable=False, server_default=""),
)
"""The last receipt of each (sink, dataset, day), without what may change while it stands: `kept`, and the chains of `row_sets`.
`version` is what its successor has to name: the revision of `plan_memory` that began with it."""

row_sets = sa.Table(
    "row_sets",
    metadata,
    sa.Column("sink", sa.String, primary_key=True),
    sa.Column("dataset", sa.String, primary_key=True),
    sa.Column("day", sa.String(10), primary_key=True),
    sa.Column("kind", sa.String(8), primary_key=True),
    sa.Column("source", ExactText, primary_key=True),
    sa.Column("generation", ExactText, primary_key=True),
    sa.Column("object_key", ExactText, primary_key=True),
    sa.Column("chain", ExactText, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("keys", sa.LargeBinary, nullable=False),
    sa.Column("tokens", sa.LargeBinary, nullable=False),
)
"""Which rows each receipt speaks of: one set per object (`kind` is `exported`), and per source and generation of rows that were
`parked` or `withheld`, which have no object and no chain (both empty)."""

source_chains = sa.Table(
    "source_chains",
    metadata,
    sa.Column("dataset", sa.String, primary_key=True),
    sa.Column("source", ExactText, primary_key=True),
    sa.Column("chain", ExactText, nullable=False),
    sa.Column("generation", ExactText, nullable=False),
    sa.Column("table_dir", ExactText, nullable=False),
    sa.Column("table_uuid", ExactText, nullable=False),
    sa.Column("snapshot_id", sa.BigInteger),
    sa.Column("sequence_number", sa.BigInteger, nullable=False),
    sa.Column("cutoff_ms", sa.BigInteger),
    sa.Column("link", sa.String, nullable=False),
    sa.Column("note", sa.Text, nullable=False),
    sa.Column("since", sa.String, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
)
"""The last snapshot seen of each source, and the chain it stands on."""

intents = sa.Table(
    "intents",
    metadata,
    sa.Column("sink", sa.String, primary_key=True),
    sa.Column("dataset", sa.String, primary_key=True),
    sa.Column("day", sa.String(10), primary_key=True),
    sa.Column("batch_id", sa.String, primary_key=True),
    sa.Column("object_keys", sa.Text, nullable=False),
    sa.Column("opened_at", sa.String(24), nullable=False),
)
"""Exports that began to write and were not recorded: the keys each was about to write or delete, as a JSON list."""

expected_objects = sa.Table(
    "expected_objects",
    metadata,
    sa.Column("sink", sa.String, primary_key=True),
    sa.Column("dataset", sa.String, primary_key=True),
    sa.Column("day", sa.String(10), primary_key=True),
    sa.Column("object_key", sa.String, primary_key=True),
    sa.Column("sha256", sa.String(64), primary_key=True),
    sa.Column("document", sa.Text, nullable=False),
)
"""What exports that were not recorded were about to put: each object with its rows, as JSON, by its key and content."""

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
