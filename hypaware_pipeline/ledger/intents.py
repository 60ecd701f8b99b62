"""What an export is about to write, said before it writes: what a crash leaves at a destination can then be told.

Why the receipt of a day removes all intents of it, those of others too: whoever recorded it looked at everything that lay there.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from hypaware_pipeline.ledger import tables
from hypaware_pipeline.ledger.transactions import Transactions, matches, upsert
from hypaware_pipeline.model import DatasetName, Day, ExportedFile, SinkName


@dataclass(frozen=True, slots=True)
class Intent:
    """An export that began to write and is not recorded.

    Attributes:
        keys: The objects it was about to write or delete.
        opened_at: UTC, ISO-8601.
    """

    dataset: DatasetName
    day: Day
    batch_id: str
    keys: tuple[str, ...]
    opened_at: str


class Intents:
    """The part of a ledger that keeps these. `Ledger.record` removes them."""

    def __init__(self, transactions: Transactions) -> None:
        self._in = transactions

    def open(self, sink: SinkName, dataset: DatasetName, day: Day, batch_id: str, keys: Collection[str]) -> None:
        """Say what is about to be written or deleted; the same batch may say it again."""
        key = {"sink": sink, "dataset": dataset, "day": day, "batch_id": batch_id}
        values = {"object_keys": json.dumps(list(keys)), "opened_at": self._in.now()}
        with self._in.writing() as connection:
            upsert(connection, tables.intents, key, values)

    def expect(self, sink: SinkName, dataset: DatasetName, day: Day, file: ExportedFile) -> None:
        """Say what an object will be, before it is put: what lies under its key later may be this one or another."""
        key = {"sink": sink, "dataset": dataset, "day": day, "object_key": file.key, "sha256": file.sha256}
        with self._in.writing() as connection:
            upsert(connection, tables.expected_objects, key, {"document": json.dumps(file.to_json())})

    def expected(self, sink: SinkName, dataset: DatasetName, day: Day) -> Sequence[ExportedFile]:
        """What exports of a day were about to put that no receipt ended."""
        table = tables.expected_objects
        query = sa.select(table.c.document).where(matches(table, {"sink": sink, "dataset": dataset, "day": day}))
        with self._in.reading() as connection:
            documents = connection.execute(query.order_by(table.c.object_key, table.c.sha256)).scalars().all()
        return [ExportedFile.from_json(json.loads(document)) for document in documents]

    def of(self, sink: SinkName, dataset: DatasetName, day: Day) -> Sequence[Intent]:
        """Those of one day, oldest first."""
        return self._select(sink, tables.intents.c.dataset == dataset, tables.intents.c.day == day)

    def all(self, sink: SinkName) -> Sequence[Intent]:
        """All of a sink, oldest first."""
        return self._select(sink)

    def _select(self, sink: SinkName, *which: sa.ColumnElement[bool]) -> Sequence[Intent]:
        c = tables.intents.c
        query = sa.select(c.dataset, c.day, c.batch_id, c.object_keys, c.opened_at).where(c.sink == sink, *which)
        with self._in.reading() as connection:
            rows = connection.execute(query.order_by(c.opened_at, c.dataset, c.day, c.batch_id)).all()
        return [
            Intent(DatasetName(dataset), Day(day), batch_id, tuple(json.loads(keys)), opened_at)
            for dataset, day, batch_id, keys, opened_at in rows
        ]
