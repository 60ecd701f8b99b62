"""The right to write one (sink, dataset), held by an export for as long as it writes one day.

Why it is taken per day and returned in between: a backfill of a year must not keep the day of today waiting for hours.

Why `ensure_held` asks the ledger and not this process: one that was stopped for an hour has seen nothing of it.

Why a renewal that fails is no failure of the export: the next one may succeed, and before every write the ledger is asked anyway.

Why waiters look at irregular intervals: several of them would otherwise come at the same moment, and always in the same order.
"""

import logging
import os
import random
import socket
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from hypaware_pipeline.errors import LeaseHeld, LeaseLost, LedgerError
from hypaware_pipeline.ledger.leases import Lease, Leases
from hypaware_pipeline.model import DatasetName, SinkName

log = logging.getLogger(__name__)

LEASE_SECONDS = 45.0
"""How long a process may be silent before another may try to take over. More than a write of the ledger waits for another one
(30 s), less than an export on the command line waits by default (60 s)."""
RENEWALS_PER_LEASE = 3
"""So that two in a row may fail."""
RUN_WAITS_SECONDS = 300.0
"""How long a run waits for another one of the same (sink, dataset): longer than a large day takes."""
_LONGEST_PAUSE_SECONDS = 1.0
"""Between two looks of a waiter. Less than `WAITER_IS_THERE_SECONDS`, after which it counts as gone."""

_CHANCE = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """How an export goes about its leases.

    Attributes:
        holder: Who it is, for whoever finds a lease held.
        wait_seconds: How long it waits for one that is held.
        seconds: How long one of its own lasts without being renewed.
    """

    holder: str
    wait_seconds: float = RUN_WAITS_SECONDS
    seconds: float = LEASE_SECONDS

    @classmethod
    def of(cls, what: str, *, wait_seconds: float = RUN_WAITS_SECONDS) -> Self:
        """Of this process; `what` says what it does, such as `run 1f0c`."""
        return cls(f"{what}, process {os.getpid()} on {socket.gethostname()}", wait_seconds)


class HeldLease:
    """The lease of a (sink, dataset), as a context manager that waits for it, renews it, and gives it back.

    It may be entered any number of times, one after the other.

    Raises on entering:
        LeaseHeld: another had it for all the time that this one may wait, or the export was ended meanwhile.
        LedgerError: the ledger cannot be read or written.
    """

    def __init__(
        self, leases: Leases, sink: SinkName, dataset: DatasetName, terms: LeaseTerms, *, ended: threading.Event | None = None
    ) -> None:
        self._leases = leases
        self._of = sink, dataset
        self._terms = terms
        self._ended = ended or threading.Event()
        self._returned = threading.Event()

    def __enter__(self) -> Self:
        """Wait for it."""
        self._lease = self._wait()
        self._returned.clear()
        self._keeper = threading.Thread(target=self._keep, name=f"lease of {'/'.join(self._of)}", daemon=True)
        self._keeper.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Give it back. A ledger that does not take that must not hide what happened: the lease runs out by itself."""
        self._returned.set()
        self._keeper.join()
        try:
            self._leases.give_back(self._lease)
        except LedgerError as failure:
            log.warning("the lease of %s/%s was not given back and ends by itself: %s", *self._of, failure)

    @property
    def token(self) -> int:
        """The fencing token: greater than that of everybody who held the lease before."""
        return self._lease.token

    def ensure_held(self) -> None:
        """See that the lease is held still. To be called before every write.

        Raises:
            LeaseLost: it is another's by now.
            LedgerUnreadable: that cannot be told.
        """
        self._leases.ensure(self._lease)

    def _wait(self) -> Lease:
        deadline = time.monotonic() + self._terms.wait_seconds
        while True:
            try:
                return self._leases.take(*self._of, self._terms.holder, self._terms.seconds)
            except LeaseHeld:
                left = deadline - time.monotonic()
                pause = _CHANCE.uniform(_LONGEST_PAUSE_SECONDS / 4, _LONGEST_PAUSE_SECONDS)
                if left <= 0 or self._ended.wait(min(pause, left)):
                    raise

    def _keep(self) -> None:
        while not self._returned.wait(self._terms.seconds / RENEWALS_PER_LEASE):
            try:
                self._leases.renew(self._lease)
            except LeaseLost as error:
                log.warning("%s", error)
                return
            except LedgerError as error:
                log.warning("the lease of %s/%s was not renewed: %s", *self._of, error)
