"""The tables of who may write now, what is tried again, and what is left alone."""

import sqlalchemy as sa

from hypaware_pipeline.ledger.tables import metadata

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("sink", sa.String, primary_key=True),
    sa.Column("dataset", sa.String, primary_key=True),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("held", sa.Boolean, nullable=False),
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Column("taken_at", sa.String(24), nullable=False),
    sa.Column("renewed_at", sa.String(24), nullable=False),
    sa.Column("wanted_by", sa.Text),
    sa.Column("wanted_at", sa.String(24)),
)
"""Per (sink, dataset) that was ever written: who may write, or did so last (then it is not `held`), and who asked for it last
while it was held."""

retries = sa.Table(
    "retries",
    metadata,
    sa.Column("sink", sa.String, primary_key=True),
    sa.Column("dataset", sa.String, primary_key=True),
    sa.Column("day", sa.String(10), primary_key=True),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("failed_at", sa.String(24), nullable=False),
    sa.Column("due_at", sa.String(24), nullable=False),
    sa.Column("requested_until", sa.String(24)),
    sa.Column("hopeless", sa.Boolean, nullable=False),
)
"""The retry queue: days that failed, until they are exported. `hopeless`: trying again mends nothing."""

holds = sa.Table(
    "holds",
    metadata,
    sa.Column("sink", sa.String, primary_key=True),
    sa.Column("kind", sa.String, primary_key=True),
    sa.Column("since", sa.String(24), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
)
"""Sinks that are left alone: `halted` because retrying mends nothing, `paused` because somebody said so."""
