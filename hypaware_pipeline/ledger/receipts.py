"""What was exported, where to and of which content.

Why a receipt is replaced only by who names the one that stands: two exports of a day may run at once, on one machine or on two,
and each judged it by what it found. The one that comes second has judged by what is no longer so.

Why a version is the revision of the plan at which the receipt was recorded: that only ever grows, so that a receipt that was
removed and recorded again is never taken for the one that was there before.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from hypaware_pipeline.errors import CursorSuperseded, LedgerUnreadable
from hypaware_pipeline.ledger import tables
from hypaware_pipeline.ledger.planning import forget_plan
from hypaware_pipeline.ledger.transactions import Transactions, matches, upsert
from hypaware_pipeline.model import DatasetName, Day, Fingerprint, Receipt, SinkName


@dataclass(frozen=True, slots=True)
class ReceiptKey:
    """What planning needs of a receipt. `rows` were in the pin, `exported_rows` lie in the files, `bytes` is their size."""

    fingerprint: Fingerprint
    destination: str
    rows: int
    exported_rows: int
    parked_rows: int
    bytes: int
    exported_at: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """A receipt as the ledger has it. Whoever replaces it hands this back as what was expected to be replaced."""

    receipt: Receipt
    version: int


class Receipts:
    """The part of a ledger that keeps these."""

    def __init__(self, transactions: Transactions) -> None:
        self._in = transactions

    def record(self, receipt: Receipt, *, replaces: Recorded | None = None) -> None:
        """Confirm an export: the receipt replaces the one its (sink, dataset, day) had.

        Args:
            receipt: What was exported.
            replaces: What `recorded` gave when the export began; None if it gave None.

        Raises:
            CursorSuperseded: something else is recorded of the day by now. Nothing was written.
        """
        key = _key(receipt.sink, receipt.dataset, receipt.day)
        values = {
            "destination": receipt.destination,
            "fingerprint": receipt.fingerprint,
            "rows": receipt.rows,
            "exported_rows": receipt.exported_rows,
            "parked_rows": receipt.parked_rows,
            "bytes": receipt.bytes,
            "exported_at": receipt.exported_at,
            "document": json.dumps(receipt.to_json(), ensure_ascii=True, separators=(",", ":")),
        }
        with self._in.writing() as connection:
            self._ensure_standing(connection, key, replaces)
            version = forget_plan(connection, receipt.sink, receipt.dataset)
            upsert(connection, tables.receipts, key, {**values, "version": version})
            connection.execute(tables.failures.delete().where(matches(tables.failures, key)))

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
        return self._recorded(sink, dataset, tables.receipts.c.day == day).get(day)

    def receipt(self, sink: SinkName, dataset: DatasetName, day: Day) -> Receipt | None:
        """The last receipt of one day; None when it was never exported."""
        found = self.recorded(sink, dataset, day)
        return None if found is None else found.receipt

    def receipts(self, sink: SinkName, dataset: DatasetName) -> Mapping[Day, Receipt]:
        """The last receipt of every exported day of one (sink, dataset)."""
        return {day: found.receipt for day, found in self._recorded(sink, dataset, sa.true()).items()}

    def fingerprints(self, sink: SinkName) -> Mapping[tuple[DatasetName, Day], ReceiptKey]:
        """What of each exported day of a sink planning needs."""
        c = tables.receipts.c
        figures = (c.fingerprint, c.destination, c.rows, c.exported_rows, c.parked_rows, c.bytes, c.exported_at)
        with self._in.reading() as connection:
            rows = connection.execute(sa.select(c.dataset, c.day, *figures).where(c.sink == sink)).all()
        return {(DatasetName(dataset), Day(day)): ReceiptKey(*rest) for dataset, day, *rest in rows}

    def _recorded(self, sink: SinkName, dataset: DatasetName, which: sa.ColumnElement[bool]) -> dict[Day, Recorded]:
        c = tables.receipts.c
        query = sa.select(c.day, c.document, c.version).where(c.sink == sink, c.dataset == dataset, which).order_by(c.day)
        with self._in.reading() as connection:
            rows = connection.execute(query).all()
        return {
            Day(day): Recorded(self._parse(document, f"{sink}/{dataset} on {day}"), version) for day, document, version in rows
        }

    def _parse(self, document: str, of_what: str) -> Receipt:
        try:
            return Receipt.from_json(json.loads(document))
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerUnreadable(
                f"ledger {self._in.place}: the receipt of {of_what} is damaged ({error!r}); restore the ledger from a backup"
            ) from error


def _key(sink: SinkName, dataset: DatasetName, day: Day) -> dict[str, Any]:
    return {"sink": sink, "dataset": dataset, "day": day}
