"""What is remembered of planning and of exports that failed.

Why every receipt and every failure makes the plan forget: "nothing was due" was said of a ledger that is no longer so.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from hypaware_pipeline.ledger import tables
from hypaware_pipeline.ledger.text import storable
from hypaware_pipeline.ledger.transactions import Transactions, matches, upsert
from hypaware_pipeline.model import DatasetName, Day, SinkName


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the last export of a day failed, and when (UTC, ISO-8601)."""

    reason: str
    failed_at: str


@dataclass(frozen=True, slots=True)
class PlanMemory:
    """What is remembered of planning one (sink, dataset).

    Attributes:
        revision: Changes with every receipt and every failure that is recorded.
        nothing_due_at: The state of things at which nothing was due; None when that is not known of this revision.
    """

    revision: int = 0
    nothing_due_at: str | None = None


class Planning:
    """The part of a ledger that keeps these."""

    def __init__(self, transactions: Transactions) -> None:
        self._in = transactions

    def record_failure(self, sink: SinkName, dataset: DatasetName, day: Day, reason: str) -> None:
        """Remember that the last export of a day failed; the next receipt of it forgets that."""
        values = {"reason": storable(reason), "failed_at": self._in.now()}
        with self._in.writing() as connection:
            upsert(connection, tables.failures, {"sink": sink, "dataset": dataset, "day": day}, values)
            forget_plan(connection, sink, dataset)

    def failures(self, sink: SinkName) -> Mapping[tuple[DatasetName, Day], Failure]:
        """Why the last export of a day failed, for every day of a sink of which that is so."""
        c = tables.failures.c
        with self._in.reading() as connection:
            rows = connection.execute(sa.select(c.dataset, c.day, c.reason, c.failed_at).where(c.sink == sink)).all()
        return {(DatasetName(dataset), Day(day)): Failure(reason, failed_at) for dataset, day, reason, failed_at in rows}

    def plan_memory(self, sink: SinkName) -> Mapping[DatasetName, PlanMemory]:
        """What is remembered of planning a sink's datasets; one without a memory is absent."""
        c = tables.plan_memory.c
        with self._in.reading() as connection:
            rows = connection.execute(sa.select(c.dataset, c.revision, c.nothing_due_at).where(c.sink == sink)).all()
        return {DatasetName(dataset): PlanMemory(revision, state) for dataset, revision, state in rows}

    def remember_nothing_due(self, sink: SinkName, dataset: DatasetName, *, state: str, revision: int) -> None:
        """Remember that nothing was due in this state of things.

        `revision` is the one read before planning; if a receipt was recorded since, the plan did not know it and nothing is
        remembered.
        """
        key = {"sink": sink, "dataset": dataset}
        stored = sa.select(tables.plan_memory.c.revision).where(matches(tables.plan_memory, key))
        with self._in.writing() as connection:
            if (connection.execute(stored).scalar() or 0) == revision:
                upsert(connection, tables.plan_memory, key, {"revision": revision, "nothing_due_at": state})


def forget_plan(connection: sa.Connection, sink: SinkName, dataset: DatasetName) -> int:
    """What the plan found is no longer so; returns the revision that begins with it. Part of the caller's transaction."""
    revision = revision_of(connection, sink, dataset) + 1
    upsert(connection, tables.plan_memory, {"sink": sink, "dataset": dataset}, {"revision": revision, "nothing_due_at": None})
    return revision


def revision_of(connection: sa.Connection, sink: SinkName, dataset: DatasetName) -> int:
    """The revision as it stands."""
    memory = tables.plan_memory
    query = sa.select(memory.c.revision).where(matches(memory, {"sink": sink, "dataset": dataset}))
    return int(connection.execute(query).scalar() or 0)
