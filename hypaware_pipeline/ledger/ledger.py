"""What was exported, where to and of which content: the only point of truth.

Why an upsert is an update and, if that met nothing, an insert: it is the form both databases know, and inside one transaction
that holds the write lock it is one step.

Why a receipt is replaced only by who names the one that stands: two exports of a day may run at once, on one machine or on two,
and each judged it by what it found. The one that comes second has judged by what is no longer so.

Why a version is the revision of the plan at which the receipt was recorded: that only ever grows, so that a receipt that was
removed and recorded again is never taken for the one that was there before.
"""

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa

from hypaware_pipeline.errors import CursorSuperseded, LedgerUnreadable, LedgerWriteFailed
from hypaware_pipeline.ledger import schema
from hypaware_pipeline.ledger.engine import engine_for, make_private_file, shown, writing
from hypaware_pipeline.ledger.mends import explain
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
class Recorded:
    """A receipt as the ledger has it. Whoever replaces it hands this back as what was expected to be replaced."""

    receipt: Receipt
    version: int


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
        self._place = shown(engine.url)
        self._clock = clock

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

    # --- receipts --------------------------------------------------------------------------------------------------------------

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
        with self._writing() as connection:
            self._ensure_standing(connection, key, replaces)
            version = _forget_plan(connection, receipt.sink, receipt.dataset)
            _upsert(connection, schema.receipts, key, {**values, "version": version})
            connection.execute(schema.failures.delete().where(_matches(schema.failures, key)))

    def ensure_standing(self, sink: SinkName, dataset: DatasetName, day: Day, expected: Recorded | None) -> None:
        """See that a day still stands as it was read: cheap, and in time to leave alone what lies at the destination.

        Raises:
            CursorSuperseded: something else is recorded of the day by now.
        """
        with self._reading() as connection:
            self._ensure_standing(connection, _key(sink, dataset, day), expected)

    def _ensure_standing(self, connection: sa.Connection, key: dict[str, Any], expected: Recorded | None) -> None:
        query = sa.select(schema.receipts.c.version).where(_matches(schema.receipts, key))
        if connection.execute(query).scalar() != (None if expected is None else expected.version):
            raise CursorSuperseded(
                f"ledger {self._place}: another export of {key['sink']}/{key['dataset']} {key['day']} was recorded while this "
                "one ran; nothing of this one was recorded. Let one of the two end, then export the day again"
            )

    def recorded(self, sink: SinkName, dataset: DatasetName, day: Day) -> Recorded | None:
        """The last receipt of one day, to be replaced; None when it was never exported."""
        return self._recorded(sink, dataset, schema.receipts.c.day == day).get(day)

    def receipt(self, sink: SinkName, dataset: DatasetName, day: Day) -> Receipt | None:
        """The last receipt of one day; None when it was never exported."""
        found = self.recorded(sink, dataset, day)
        return None if found is None else found.receipt

    def receipts(self, sink: SinkName, dataset: DatasetName) -> Mapping[Day, Receipt]:
        """The last receipt of every exported day of one (sink, dataset)."""
        return {day: found.receipt for day, found in self._recorded(sink, dataset, sa.true()).items()}

    def fingerprints(self, sink: SinkName) -> Mapping[tuple[DatasetName, Day], ReceiptKey]:
        """What of each exported day of a sink planning needs."""
        c = schema.receipts.c
        figures = (c.fingerprint, c.destination, c.rows, c.exported_rows, c.parked_rows, c.bytes, c.exported_at)
        with self._reading() as connection:
            rows = connection.execute(sa.select(c.dataset, c.day, *figures).where(c.sink == sink)).all()
        return {(DatasetName(dataset), Day(day)): ReceiptKey(*rest) for dataset, day, *rest in rows}

    def _recorded(self, sink: SinkName, dataset: DatasetName, which: sa.ColumnElement[bool]) -> dict[Day, Recorded]:
        c = schema.receipts.c
        query = sa.select(c.day, c.document, c.version).where(c.sink == sink, c.dataset == dataset, which).order_by(c.day)
        with self._reading() as connection:
            rows = connection.execute(query).all()
        return {
            Day(day): Recorded(self._parse(document, f"{sink}/{dataset} on {day}"), version) for day, document, version in rows
        }

    def _parse(self, document: str, of_what: str) -> Receipt:
        try:
            return Receipt.from_json(json.loads(document))
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerUnreadable(
                f"ledger {self._place}: the receipt of {of_what} is damaged ({error!r}); restore the ledger from a backup"
            ) from error

    # --- failures --------------------------------------------------------------------------------------------------------------

    def record_failure(self, sink: SinkName, dataset: DatasetName, day: Day, reason: str) -> None:
        """Remember that the last export of a day failed; the next receipt of it forgets that."""
        values = {"reason": _storable(reason), "failed_at": self._now()}
        with self._writing() as connection:
            _upsert(connection, schema.failures, _key(sink, dataset, day), values)
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
            explain(LedgerUnreadable, self._engine.url, error)

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        try:
            with writing(self._engine).begin() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            explain(LedgerWriteFailed, self._engine.url, error)


def _prepared(engine: sa.Engine, now: dt.datetime) -> str:
    with writing(engine).begin() as connection:
        return schema.prepare(connection, now)


def _key(sink: SinkName, dataset: DatasetName, day: Day) -> dict[str, Any]:
    return {"sink": sink, "dataset": dataset, "day": day}


def _storable(text: str) -> str:
    """What a failure says may name a file whose name is no Unicode; no database takes that, nor PostgreSQL a NUL."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _matches(table: sa.Table, key: Mapping[str, Any]) -> sa.ColumnElement[bool]:
    return sa.and_(*(table.c[column] == value for column, value in key.items()))


def _upsert(connection: sa.Connection, table: sa.Table, key: dict[str, Any], values: dict[str, Any]) -> None:
    updated = connection.execute(table.update().where(_matches(table, key)).values(**values))
    if updated.rowcount == 0:
        connection.execute(table.insert().values(**key, **values))


def _forget_plan(connection: sa.Connection, sink: SinkName, dataset: DatasetName) -> int:
    """What the plan found is no longer so; returns the revision that begins with it."""
    table, key = schema.plan_memory, {"sink": sink, "dataset": dataset}
    revision = connection.execute(sa.select(table.c.revision).where(_matches(table, key))).scalar() or 0
    _upsert(connection, table, key, {"revision": revision + 1, "nothing_due_at": None})
    return int(revision + 1)
