"""Who may write to a (sink, dataset) now.

Why expiry only lets a takeover be tried: no clock tells a process that died from one that is slow. What keeps them apart is the
token, which grows with every taking and never goes back; whoever holds an older one is told so before the next write.

Why the time is the database's own: the machines that share a PostgreSQL ledger need not agree on theirs, and a holder must not be
robbed because another's clock is ahead. A file is written by the processes of one machine, whose clock all of them have.

Why a lease counts as long as the last renewal is near, in either direction: a clock that was set back by an hour would otherwise
keep what a dead process held for that hour.

Why a row is never removed: with it the token would begin again.

Why the last holder steps back for one that waits: an export of many days returns the lease between two of them for a moment only,
and whoever looks twice a second would find it taken for hours.
"""

import datetime as dt
from dataclasses import dataclass

import sqlalchemy as sa

from hypaware_pipeline.errors import LeaseHeld, LeaseLost
from hypaware_pipeline.ledger.engine import POSTGRESQL
from hypaware_pipeline.ledger.schema import timestamp
from hypaware_pipeline.ledger.text import storable
from hypaware_pipeline.ledger.transactions import Transactions, matches, upsert
from hypaware_pipeline.ledger.turns import leases
from hypaware_pipeline.model import DatasetName, SinkName

WAITER_IS_THERE_SECONDS = 3.0
"""For so long after it last asked, somebody who waits for a lease counts as waiting. Waiters ask about once a second."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write to one (sink, dataset).

    Attributes:
        holder: Who has it, for a person.
        token: Grows with every taking.
        seconds: How long it lasts without being renewed.
        taken_at: By the ledger's clock.
        renewed_at: By the same.
    """

    sink: SinkName
    dataset: DatasetName
    holder: str
    token: int
    seconds: float
    taken_at: dt.datetime
    renewed_at: dt.datetime

    @property
    def expires_at(self) -> dt.datetime:
        """When a takeover may be tried."""
        return self.renewed_at + dt.timedelta(seconds=self.seconds)

    def counts(self, now: dt.datetime) -> bool:
        """Whether the last renewal is near."""
        return abs((now - self.renewed_at).total_seconds()) < self.seconds


class Leases:
    """The part of a ledger that keeps these."""

    def __init__(self, transactions: Transactions) -> None:
        self._in = transactions

    def take(self, sink: SinkName, dataset: DatasetName, holder: str, seconds: float) -> Lease:
        """Take the lease, for so many seconds.

        Args:
            sink: To write to.
            dataset: What.
            holder: Who asks, as a person is to be told; differs from one export to another.
            seconds: How long it lasts unless it is renewed.

        Raises:
            LeaseHeld: another has it, or waits for it and this one had it last.
        """
        key, holder = {"sink": sink, "dataset": dataset}, storable(holder)
        with self._in.writing() as connection:
            row = connection.execute(sa.select(leases).where(matches(leases, key))).one_or_none()
            now = self._now(connection)
            refusal = None if row is None else _refusal(row, holder, now)
            if refusal is None:
                token = 1 if row is None else int(row.token) + 1
                values = {"token": token, "holder": holder, "held": True, "seconds": seconds}
                at = {"taken_at": timestamp(now), "renewed_at": timestamp(now)}
                upsert(connection, leases, key, {**values, **at, "wanted_by": None, "wanted_at": None})
            elif row is not None and row.held:  # who steps back for another does not wait
                waiting = {"wanted_by": holder, "wanted_at": timestamp(now)}
                connection.execute(leases.update().where(matches(leases, key)).values(waiting))
        if refusal is not None:  # only now, so that it stays written down who waits
            raise refusal
        return Lease(sink, dataset, holder, token, seconds, now, now)

    def renew(self, lease: Lease) -> None:
        """Let a lease last for its seconds once more, also after they passed: nobody took it over.

        Raises:
            LeaseLost: somebody did.
        """
        with self._in.writing() as connection:
            values = {"renewed_at": timestamp(self._now(connection))}
            renewed = connection.execute(leases.update().where(_is(lease)).values(values))
            if renewed.rowcount == 0:
                raise LeaseLost(lease.sink, lease.dataset)

    def give_back(self, lease: Lease) -> None:
        """Let others have it. Of a lease that is another's by now, nothing is changed."""
        with self._in.writing() as connection:
            connection.execute(leases.update().where(_is(lease)).values(held=False))

    def ensure(self, lease: Lease) -> None:
        """See that a lease is held, in time to leave alone what it no longer covers.

        Raises:
            LeaseLost: it is another's by now, or was given back.
        """
        with self._in.reading() as connection:
            if connection.execute(sa.select(leases.c.token).where(_is(lease))).scalar() is None:
                raise LeaseLost(lease.sink, lease.dataset)

    def held(self) -> list[Lease]:
        """All that are held now, by sink and dataset. Those of processes that died are not among them, once they expired."""
        with self._in.reading() as connection:
            rows = connection.execute(sa.select(leases).where(leases.c.held)).all()
            now = self._now(connection)
        found = sorted((_lease(row) for row in rows), key=lambda lease: (lease.sink, lease.dataset))
        return [lease for lease in found if lease.counts(now)]

    def _now(self, connection: sa.Connection) -> dt.datetime:
        if connection.dialect.name != POSTGRESQL:
            return self._in.clock()
        # Not `now()`, which stands still from the beginning of the transaction on: it may have waited for the write lock since.
        now: dt.datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
        return now.astimezone(dt.UTC)


def _is(lease: Lease) -> sa.ColumnElement[bool]:
    key = {"sink": lease.sink, "dataset": lease.dataset, "token": lease.token, "held": True}
    return matches(leases, key)


def _lease(row: sa.Row[tuple[object, ...]]) -> Lease:
    moments = dt.datetime.fromisoformat(row.taken_at), dt.datetime.fromisoformat(row.renewed_at)
    return Lease(SinkName(row.sink), DatasetName(row.dataset), row.holder, int(row.token), float(row.seconds), *moments)


def _refusal(row: sa.Row[tuple[object, ...]], holder: str, now: dt.datetime) -> LeaseHeld | None:
    """Why this holder cannot have the lease now: it is held, or this one had it last and another, who waits, goes first."""
    lease = _lease(row)
    if row.held and lease.counts(now):
        return _said(lease, lease.holder, lease.taken_at, lease.expires_at)
    if row.held or row.holder != holder or row.wanted_by in (None, holder):
        return None
    wanted_at, patience = dt.datetime.fromisoformat(row.wanted_at), dt.timedelta(seconds=WAITER_IS_THERE_SECONDS)
    return _said(lease, row.wanted_by, wanted_at, wanted_at + patience) if abs(now - wanted_at) < patience else None


def _said(lease: Lease, holder: str, since: dt.datetime, until: dt.datetime) -> LeaseHeld:
    return LeaseHeld(lease.sink, lease.dataset, holder=holder, since=timestamp(since), until=timestamp(until))
