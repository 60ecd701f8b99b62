"""What was exported, where to and of which content.

Why a receipt is replaced only by who names the one that stands: two exports of a day may run at once, on one machine or on two,
and each judged it by what it found. The one that comes second has judged by what is no longer so.

Why a version is the revision of the plan at which the receipt was recorded: that only ever grows, so that a receipt that was
removed and recorded again is never taken for the one that was there before.

Why a receipt that says what the one before said gets the revision of now without making another: it was judged by all that other
days had recorded. With a revision of its own, two days that each wait for something else would ask for each other for ever.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from hypaware_pipeline.errors import CursorSuperseded, LedgerUnreadable
from hypaware_pipeline.ledger import tables
from hypaware_pipeline.ledger.planning import forget_plan, revision_of
from hypaware_pipeline.ledger.retries import day_recorded
from hypaware_pipeline.ledger.stored_sets import StoredSet, document_of, every_set, receipt_of, rows_of, stored_set
from hypaware_pipeline.ledger.transactions import Transactions, matches, upsert
from hypaware_pipeline.model import DatasetName, Day, Fingerprint, Kept, Receipt, SinkName

_SETS_AT_A_TIME = 100


@dataclass(frozen=True, slots=True)
class ReceiptKey:
    """What planning needs of a receipt.

    Attributes:
        rows: In the pin.
        kept_rows: Not in the pin, and at the sink all the same.
        kept: Why.
        exported_rows: In the files.
        bytes: Of the files.
        version: Higher than that of every receipt of the (sink, dataset) that it was not judged by.
    """

    fingerprint: Fingerprint
    destination: str
    rows: int
    kept_rows: int
    kept: Kept
    exported_rows: int
    parked_rows: int
    bytes: int
    exported_at: str
    version: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """A receipt as the ledger has it. Whoever replaces it hands this back as what was expected to be replaced."""

    receipt: Receipt
    version: int


class Receipts:
    """The part of a ledger that keeps these."""

    def __init__(self, transactions: Transactions) -> None:
        self._in = transactions

    def record(self, receipt: Receipt, *, replaces: Recorded | None = None, as_it_was: bool = False) -> None:
        """Confirm an export: the receipt replaces the one its (sink, dataset, day) had, and what was intended is done.

        Args:
            receipt: What was exported.
            replaces: What `recorded` gave when the export began; None if it gave None.
            as_it_was: Whether it says what that says, and only the objects were written again.

        Raises:
            CursorSuperseded: something else is recorded of the day by now. Nothing was written.
        """
        key = _key(receipt.sink, receipt.dataset, receipt.day)
        values = {
            "destination": receipt.destination,
            "fingerprint": receipt.fingerprint,
            "rows": receipt.rows,
            "kept_rows": receipt.kept_rows,
            "kept": receipt.kept.value,
            "exported_rows": receipt.exported_rows,
            "parked_rows": receipt.parked_rows,
            "bytes": receipt.bytes,
            "exported_at": receipt.exported_at,
            "document": document_of(receipt),
        }
        with self._in.writing() as connection:
            self._ensure_standing(connection, key, replaces)
            version = (revision_of if as_it_was else forget_plan)(connection, receipt.sink, receipt.dataset)
            upsert(connection, tables.receipts, key, {**values, "version": version})
            for table in (tables.row_sets, tables.intents, tables.expected_objects, tables.failures):
                connection.execute(table.delete().where(matches(table, key)))
            if sets := rows_of(receipt):
                connection.execute(tables.row_sets.insert(), sets)
            day_recorded(connection, receipt.sink, receipt.dataset, receipt.day, now=self._in.now())

    def found_so(self, recorded: Recorded) -> None:
        """An export found a day as its receipt says. It counts as judged now, by what else is recorded; no failure is left.

        Raises:
            CursorSuperseded: something else is recorded of the day by now. Nothing was written.
        """
        receipt = recorded.receipt
        key = _key(receipt.sink, receipt.dataset, receipt.day)
        with self._in.writing() as connection:
            self._ensure_standing(connection, key, recorded)
            version = revision_of(connection, receipt.sink, receipt.dataset)
            connection.execute(tables.receipts.update().where(matches(tables.receipts, key)).values(version=version))
            connection.execute(tables.failures.delete().where(matches(tables.failures, key)))
            day_recorded(connection, receipt.sink, receipt.dataset, receipt.day, now=self._in.now())

    def ensure_standing(self, sink: SinkName, dataset: DatasetName, day: Day, expected: Recorded | None) -> None:
        """See that a day still stands as it was read: cheap, and in time to leave alone what lies at the destination.

        Raises:
            CursorSuperseded: something else is recorded of the day by now.
        """
        with self._in.reading() as connection:
            self._ensure_standing(connection, _key(sink, dataset, day), expected)

    def _ensure_standing(self, connection: sa.Connection, key: dict[str, Any], expected: Recorded | None) -> None:
        query = sa.select(tables.receipts.c.version).where(matches(tables.receipts, key))
        if connection.execute(query).scalar() != (None if expected is None else expected.version):
            raise CursorSuperseded(
                f"ledger {self._in.place}: another export of {key['sink']}/{key['dataset']} {key['day']} was recorded while this "
                "one ran; nothing of this one was recorded. Let one of the two end, then export the day again"
            )

    def recorded(self, sink: SinkName, dataset: DatasetName, day: Day) -> Recorded | None:
        """The last receipt of one day, to be replaced; None when it was never exported."""
        return self._recorded(sink, dataset, day).get(day)

    def receipt(self, sink: SinkName, dataset: DatasetName, day: Day) -> Receipt | None:
        """The last receipt of one day; None when it was never exported."""
        found = self.recorded(sink, dataset, day)
        return None if found is None else found.receipt

    def receipts(self, sink: SinkName, dataset: DatasetName) -> Mapping[Day, Receipt]:
        """The last receipt of every exported day of one (sink, dataset)."""
        return {day: found.receipt for day, found in self._recorded(sink, dataset).items()}

    def row_sets(self, dataset: DatasetName) -> Iterator[StoredSet]:
        """Which rows of a dataset every receipt of every sink speaks of. A few at a time: all of them may be too many."""
        of = tables.row_sets.c.dataset == dataset
        with self._in.reading() as connection:
            for row in connection.execution_options(yield_per=_SETS_AT_A_TIME).execute(every_set(of)):
                yield stored_set(row)

    def fingerprints(self, sink: SinkName) -> Mapping[tuple[DatasetName, Day], ReceiptKey]:
        """What of each exported day of a sink planning needs."""
        c = tables.receipts.c
        figures = (c.rows, c.kept_rows, c.kept, c.exported_rows, c.parked_rows, c.bytes, c.exported_at, c.version)
        query = sa.select(c.dataset, c.day, c.fingerprint, c.destination, *figures).where(c.sink == sink)
        with self._in.reading() as connection:
            rows = connection.execute(query).all()
        return {
            (DatasetName(dataset), Day(day)): ReceiptKey(fingerprint, destination, rows, kept_rows, Kept(kept), *rest)
            for dataset, day, fingerprint, destination, rows, kept_rows, kept, *rest in rows
        }

    def _recorded(self, sink: SinkName, dataset: DatasetName, day: Day | None = None) -> dict[Day, Recorded]:
        key = {"sink": sink, "dataset": dataset, **({} if day is None else {"day": day})}
        query = sa.select(tables.receipts).where(matches(tables.receipts, key)).order_by(tables.receipts.c.day)
        with self._in.reading() as connection:
            rows = connection.execute(query).all()
            found = connection.execute(every_set(matches(tables.row_sets, key))).all()
        sets = {of_day: list(group) for of_day, group in groupby(found, lambda row: row.day)}
        return {Day(row.day): Recorded(self._whole(row, sets.get(row.day, [])), row.version) for row in rows}

    def _whole(self, row: sa.Row[Any], sets: list[sa.Row[Any]]) -> Receipt:
        try:
            return receipt_of(row.document, row.kept, sets)
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerUnreadable(
                f"ledger {self._in.place}: the receipt of {row.sink}/{row.dataset} on {row.day} is damaged ({error!r}); restore "
                "the ledger from a backup"
            ) from error


def _key(sink: SinkName, dataset: DatasetName, day: Day) -> dict[str, Any]:
    return {"sink": sink, "dataset": dataset, "day": day}
