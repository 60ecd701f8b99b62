"""What was exported, where to and of which content: the only point of truth.

Why an upsert is an update and, if that met nothing, an insert: it is the form both databases know, and inside one transaction
that holds the write lock it is one step.

Why an error names the file and the mend but never the statement: its parameters are receipts, and its reader wants to know what
to do about the disk.
"""

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import sqlalchemy as sa

from hypaware_pipeline.errors import LedgerError, LedgerUnreadable, LedgerWriteFailed
from hypaware_pipeline.ledger import schema
from hypaware_pipeline.ledger.engine import engine_for, make_private_file, writing
from hypaware_pipeline.model import DatasetName, Day, Fingerprint, Receipt, SinkName

Clock = Callable[[], dt.datetime]
"""Gives the current moment, aware of its time zone."""

BUSY_TIMEOUT_SECONDS = 30.0
"""How long to wait for another writer. A write takes milliseconds; on a disk that is busy with an export, seconds."""

_ANYTHING_THE_DATABASE_RAISES = (sa.exc.SQLAlchemyError, OSError, ImportError, schema.NotALedgerError)


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


class Ledger:
    """An open ledger. Threads may share it; processes open their own. A context manager that closes it.

    Every method raises `LedgerUnreadable` when the database cannot be read, the writing ones `LedgerWriteFailed` when it did not
    take the write (and then nothing of it).
    """

    def __init__(self, engine: sa.Engine, ledger_id: str, clock: Clock) -> None:
        self.id = ledger_id
        self._engine = engine
        self._clock = clock

    @classmethod
    def open(cls, place: Path | str, *, clock: Clock, busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS) -> Self:
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
            _explain(LedgerUnreadable, url, error)
        try:
            return cls(engine, _prepared(engine, clock()), clock)
        except _ANYTHING_THE_DATABASE_RAISES as error:
            engine.dispose()
            _explain(LedgerUnreadable, url, error)

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        """The ledger itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close it."""
        self.close()

    # --- receipts --------------------------------------------------------------------------------------------------------------

    def record(self, receipt: Receipt) -> None:
        """Confirm an export: the receipt replaces the one its (sink, dataset, day) had."""
        key = {"sink": receipt.sink, "dataset": receipt.dataset, "day": receipt.day}
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
        with self._writing() as connection:
            _upsert(connection, schema.receipts, key, values)
            connection.execute(schema.failures.delete().where(_matches(schema.failures, key)))
            _forget_plan(connection, receipt.sink, receipt.dataset)

    def receipt(self, sink: SinkName, dataset: DatasetName, day: Day) -> Receipt | None:
        """The last receipt of one day; None when it was never exported."""
        return self._receipts(sink, dataset, schema.receipts.c.day == day).get(day)

    def receipts(self, sink: SinkName, dataset: DatasetName) -> Mapping[Day, Receipt]:
        """The last receipt of every exported day of one (sink, dataset)."""
        return self._receipts(sink, dataset, sa.true())

    def fingerprints(self, sink: SinkName) -> Mapping[tuple[DatasetName, Day], ReceiptKey]:
        """What of each exported day of a sink planning needs."""
        c = schema.receipts.c
        figures = (c.fingerprint, c.destination, c.rows, c.exported_rows, c.parked_rows, c.bytes, c.exported_at)
        with self._reading() as connection:
            rows = connection.execute(sa.select(c.dataset, c.day, *figures).where(c.sink == sink)).all()
        return {(DatasetName(dataset), Day(day)): ReceiptKey(*rest) for dataset, day, *rest in rows}

    def _receipts(self, sink: SinkName, dataset: DatasetName, which: sa.ColumnElement[bool]) -> dict[Day, Receipt]:
        c = schema.receipts.c
        query = sa.select(c.day, c.document).where(c.sink == sink, c.dataset == dataset, which).order_by(c.day)
        with self._reading() as connection:
            rows = connection.execute(query).all()
        return {Day(day): self._parse(document, f"{sink}/{dataset} on {day}") for day, document in rows}

    def _parse(self, document: str, of_what: str) -> Receipt:
        try:
            return Receipt.from_json(json.loads(document))
        except (KeyError, TypeError, ValueError) as error:
            place = _name(self._engine.url)
            raise LedgerUnreadable(
                f"ledger {place}: the receipt of {of_what} is damaged ({error!r}); restore the ledger from a backup"
            ) from error

    # --- failures --------------------------------------------------------------------------------------------------------------

    def record_failure(self, sink: SinkName, dataset: DatasetName, day: Day, reason: str) -> None:
        """Remember that the last export of a day failed; the next receipt of it forgets that."""
        key = {"sink": sink, "dataset": dataset, "day": day}
        with self._writing() as connection:
            _upsert(connection, schema.failures, key, {"reason": reason, "failed_at": self._now()})
            _forget_plan(connection, sink, dataset)

    def failures(self, sink: SinkName) -> Mapping[tuple[DatasetName, Day], Failure]:
        """Why the last export of a day failed, for every day of a sink of which that is so."""
        c = schema.failures.c
        with self._reading() as connection:
            rows = connection.execute(sa.select(c.dataset, c.day, c.reason, c.failed_at).where(c.sink == sink)).all()
        return {(DatasetName(dataset), Day(day)): Failure(reason, failed_at) for dataset, day, reason, failed_at in rows}

    # --- planning --------------------------------------------------------------------------------------------------------------

    def plan_memory(self, sink: SinkName) -> Mapping[DatasetName, PlanMemory]:
        """What is remembered of planning a sink's datasets; one without a memory is absent."""
        c = schema.plan_memory.c
        with self._reading() as connection:
            rows = connection.execute(sa.select(c.dataset, c.revision, c.nothing_due_at).where(c.sink == sink)).all()
        return {DatasetName(dataset): PlanMemory(revision, state) for dataset, revision, state in rows}

    def remember_nothing_due(self, sink: SinkName, dataset: DatasetName, *, state: str, revision: int) -> None:
        """Remember that nothing was due in this state of things.

        `revision` is the one read before planning; if a receipt was recorded since, the plan did not know it and nothing is
        remembered.
        """
        key = {"sink": sink, "dataset": dataset}
        with self._writing() as connection:
            stored = connection.execute(
                sa.select(schema.plan_memory.c.revision).where(_matches(schema.plan_memory, key))
            ).scalar()
            if (stored or 0) == revision:
                _upsert(connection, schema.plan_memory, key, {"revision": revision, "nothing_due_at": state})

    # --- beginnings ------------------------------------------------------------------------------------------------------------

    def first_day(self) -> Day | None:
        """Where partitions begin; None until it was chosen."""
        with self._reading() as connection:
            day = connection.execute(sa.select(schema.first_day.c.day)).scalar()
        return None if day is None else Day(day)

    def choose_first_day(self, day: Day, how: str) -> Day:
        """Choose where partitions begin, once; returns the day that stands, which is the first one ever chosen.

        `how` says in a word or two why this day (`config`, `earliest row`), for the person who asks later.
        """
        values = {"day": day, "chosen_at": self._now(), "how": how}
        return Day(self._keep_first(schema.first_day, {"id": 1}, values))

    def move_first_day(self, day: Day) -> None:
        """Move where partitions begin, by command."""
        with self._writing() as connection:
            _upsert(connection, schema.first_day, {"id": 1}, {"day": day, "chosen_at": self._now(), "how": "moved"})

    def sink_start(self, sink: SinkName, day: Day) -> Day:
        """The day a sink was first seen: `day` if this is the first time, else the one stored then."""
        return Day(self._keep_first(schema.sink_starts, {"sink": sink}, {"day": day, "started_at": self._now()}))

    def _keep_first(self, table: sa.Table, key: dict[str, Any], values: dict[str, Any]) -> str:
        """Insert a row unless there is one, and return the `day` of the one that is there."""
        stored = sa.select(table.c.day).where(_matches(table, key))
        with self._reading() as connection:
            day = connection.execute(stored).scalar()
        if day is not None:
            return str(day)
        with self._writing() as connection:
            day = connection.execute(stored).scalar()
            if day is None:
                connection.execute(table.insert().values(**key, **values))
        return str(values["day"] if day is None else day)

    # --- transactions ----------------------------------------------------------------------------------------------------------

    def _now(self) -> str:
        return schema.timestamp(self._clock())

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            _explain(LedgerUnreadable, self._engine.url, error)

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        try:
            with writing(self._engine).begin() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            _explain(LedgerWriteFailed, self._engine.url, error)


def _prepared(engine: sa.Engine, now: dt.datetime) -> str:
    with writing(engine).begin() as connection:
        return schema.prepare(connection, now)


def _matches(table: sa.Table, key: Mapping[str, Any]) -> sa.ColumnElement[bool]:
    return sa.and_(*(table.c[column] == value for column, value in key.items()))


def _upsert(connection: sa.Connection, table: sa.Table, key: dict[str, Any], values: dict[str, Any]) -> None:
    updated = connection.execute(table.update().where(_matches(table, key)).values(**values))
    if updated.rowcount == 0:
        connection.execute(table.insert().values(**key, **values))


def _forget_plan(connection: sa.Connection, sink: SinkName, dataset: DatasetName) -> None:
    table, key = schema.plan_memory, {"sink": sink, "dataset": dataset}
    values = {"revision": table.c.revision + 1, "nothing_due_at": None}
    if connection.execute(table.update().where(_matches(table, key)).values(**values)).rowcount == 0:
        connection.execute(table.insert().values(**key, revision=1))


# --- what went wrong -----------------------------------------------------------------------------------------------------------

_START_AGAIN = "restore it from a backup, or move it and its -wal and -shm files away: every day then counts as not exported"
_CHECK_ACCESS = "check that it is a file and that this user may write it and its directory"

_REMEDIES = (
    ("database is locked", "another process is writing it; end that process or try again"),
    ("not a database", _START_AGAIN),
    ("malformed", _START_AGAIN),
    ("disk is full", "free some space"),
    ("disk I/O error", "look at the disk and the space on it"),
    ("readonly", _CHECK_ACCESS),
    ("unable to open", _CHECK_ACCESS),
)
"""What SQLite says, as a fragment of its message, and what to do about it."""


def _explain(kind: type[LedgerError], url: sa.URL, error: Exception) -> NoReturn:
    """Raise `kind` with the database's own words, the place and the mend."""
    cause = str(getattr(error, "orig", None) or error)
    remedy = next((mend for fragment, mend in _REMEDIES if fragment in cause), None)
    if isinstance(error, OSError):
        cause, remedy = str(error.strerror), _CHECK_ACCESS
    raise kind(f"ledger {_name(url)}: {cause}" + (f"; {remedy}" if remedy else "")) from error


def _name(url: sa.URL) -> str:
    """The file of a file database, else its URL without the password."""
    return str(url.database) if url.get_backend_name() == "sqlite" else url.render_as_string(hide_password=True)
