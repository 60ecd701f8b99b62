"""An open ledger: its parts over one database.

Why parts: what is exported, what waits, who may write are separate matters that share transactions and nothing else. What
everybody asks for stands on the ledger itself.
"""

import datetime as dt
from pathlib import Path
from types import TracebackType
from typing import Self

import sqlalchemy as sa

from hypaware_pipeline.errors import LedgerUnreadable
from hypaware_pipeline.ledger import schema
from hypaware_pipeline.ledger.beginnings import Beginnings
from hypaware_pipeline.ledger.chains import Chains
from hypaware_pipeline.ledger.engine import engine_for, make_private_file, writing
from hypaware_pipeline.ledger.intents import Intents
from hypaware_pipeline.ledger.leases import Leases
from hypaware_pipeline.ledger.mends import explain
from hypaware_pipeline.ledger.planning import Planning
from hypaware_pipeline.ledger.receipts import Receipts
from hypaware_pipeline.ledger.retries import Retries
from hypaware_pipeline.ledger.transactions import Clock, Transactions

BUSY_TIMEOUT_SECONDS = 30.0
"""How long to wait for another writer. A write takes milliseconds; on a disk that is busy with an export, seconds."""

_ANYTHING_THE_DATABASE_RAISES = (sa.exc.SQLAlchemyError, OSError, ImportError, schema.NotALedgerError)


class Ledger:
    """An open ledger. Threads may share it; processes open their own. A context manager that closes it.

    Everything it does raises `LedgerUnreadable` when the database cannot be read; what writes raises `LedgerWriteFailed` when the
    database did not take it (and then nothing of it).
    """

    def __init__(self, engine: sa.Engine, ledger_id: str, clock: Clock) -> None:
        self.id = ledger_id
        self._engine = engine
        transactions = Transactions(engine, clock)
        self.chains = Chains(transactions)
        self.intents = Intents(transactions)
        self.leases = Leases(transactions)
        self.retries = Retries(transactions)

        receipts = Receipts(transactions)
        self.record = receipts.record
        self.found_so = receipts.found_so
        self.ensure_standing = receipts.ensure_standing
        self.recorded = receipts.recorded
        self.receipt = receipts.receipt
        self.receipts = receipts.receipts
        self.row_sets = receipts.row_sets
        self.fingerprints = receipts.fingerprints

        planning = Planning(transactions)
        self.record_failure = planning.record_failure
        self.failures = planning.failures
        self.plan_memory = planning.plan_memory
        self.remember_nothing_due = planning.remember_nothing_due

        beginnings = Beginnings(transactions)
        self.first_day = beginnings.first_day
        self.choose_first_day = beginnings.choose_first_day
        self.move_first_day = beginnings.move_first_day
        self.sink_start = beginnings.sink_start

    @classmethod
    def open(cls, place: Path | str | sa.URL, *, clock: Clock, busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS) -> Self:
        """Open a ledger, making or migrating it if need be. Several processes may do so at once.

        Args:
            place: A file, or the URL of a database.
            clock: The time.
            busy_timeout_seconds: How long any operation waits for another writer.

        Raises:
            LedgerUnreadable: it cannot be opened: corrupt, locked, read-only, another program's or a newer version's.
        """
        url = sa.URL.create("sqlite", database=str(place)) if isinstance(place, Path) else sa.make_url(place)
        try:
            if url.get_backend_name() == "sqlite" and url.database:
                make_private_file(Path(url.database))
            engine = engine_for(url, busy_timeout_seconds=busy_timeout_seconds)
        except _ANYTHING_THE_DATABASE_RAISES as error:
            explain(LedgerUnreadable, url, error)
        try:
            return cls(engine, _prepared(engine, clock()), clock)
        except _ANYTHING_THE_DATABASE_RAISES as error:
            engine.dispose()
            explain(LedgerUnreadable, url, error)

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        """The ledger itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close it."""
        self.close()


def _prepared(engine: sa.Engine, now: dt.datetime) -> str:
    with writing(engine).begin() as connection:
        return schema.prepare(connection, now)
