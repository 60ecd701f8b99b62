"""The rows of one object to a sink, in rounds: what it refuses is set aside, and the rest is sent again without it.

Why two ways to refuse: an encoder leaves out a row it cannot write and goes on, which costs no round. A sink that judges a whole
batch has taken nothing when it names the rows it will never take.

Why a refusal that names no row of the batch halts the sink: sent again it would be refused again, for ever.

Why a balance is checked before an object becomes visible: a scan that lost a row, or found one twice, must leave the old object
in place and say the numbers. The places of the rows are summed as well: so many rows are not enough, they must be those.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hypaware_pipeline.errors import BalanceBroken, SinkHalted, SinkRejected
from hypaware_pipeline.export.leases import HeldLease
from hypaware_pipeline.export.parking import Parked, RowSieve, find_refused
from hypaware_pipeline.export.reconcile import Identities, Write
from hypaware_pipeline.export.slices import SCAN_MEMORY_BYTES
from hypaware_pipeline.export.steps import Reached, Step
from hypaware_pipeline.model import Day, ExportedFile, ParkedRecord, RowSet, SourceName, StoredObject
from hypaware_pipeline.plugins.contracts import Encoded, RefusedRow, SinkWriter
from hypaware_pipeline.sinks.claims import DatasetClaim

if TYPE_CHECKING:
    import pyarrow as pa

    from hypaware_pipeline.cache.reader import DatasetPin, PinReader
    from hypaware_pipeline.export.lineage import Followed

PARKED_IN_RECEIPT = 100
"""How many parked records a receipt names. It counts all of them."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A pin, opened for the days of one attempt, and the right to write them.

    Attributes:
        revision: Of what the sink has of the dataset, as it was before the pin was made.
        lease: Held while a day is exported.
        between: Called between batches; raises to end the export.
        reached: Told of every step.
    """

    followed: "Followed"
    revision: int
    reader: "PinReader"
    spill_dir: Path
    claim: DatasetClaim
    lease: HeldLease
    between: Callable[[], None]
    reached: Reached
    _read: set[tuple[Day, SourceName]] = field(default_factory=set)

    @property
    def pin(self) -> "DatasetPin":
        """The pin."""
        return self.followed.pin

    def ensure_may_write(self) -> None:
        """To be called before every write.

        Raises:
            ExportEnded, LeaseLost: nothing more may be written.
        """
        self.between()
        self.lease.ensure_held()

    def fence(self) -> None:
        """The last question before an object is in place; see `Fence`.

        Raises:
            ExportEnded, LeaseLost: it may not be.
        """
        self.ensure_may_write()
        self.reached(Step.WRITTEN)

    @contextmanager
    def rows(self, day: Day, write: Write) -> "Iterator[Iterator[pa.RecordBatch]]":
        """The rows of a write. Whole sources of the days come from one pass over the files, the first time they are asked for."""
        asked = (day, write.source)
        if write.mask.all() and asked not in self._read:
            self._read.add(asked)
            yield self.reader.batches(day, write.source)
            return
        with self.again(day, write) as batches:
            yield batches

    @contextmanager
    def again(self, day: Day, write: Write) -> "Iterator[Iterator[pa.RecordBatch]]":
        """The rows of a write, read by themselves."""
        only = {write.source: write.mask}
        read = self.pin.read([day], spill_dir=self.spill_dir, memory_bytes=SCAN_MEMORY_BYTES, only=only, between=self.between)
        with read as reader:
            yield reader.batches(day, write.source)


@dataclass(frozen=True, slots=True)
class Delivered:
    """What came of a write.

    Attributes:
        file: The object; None when no row of it was left to store.
        aside: Which rows were set aside; None when none were.
        named: The first of them, for a person.
    """

    file: ExportedFile | None
    aside: RowSet | None
    named: Sequence[ParkedRecord]


@dataclass(frozen=True, slots=True)
class Delivery:
    """Writes objects of one day.

    Attributes:
        ensure_standing: Raises when another export has the day by now.
        expect: Told of an object before it is in place, so that it is known what it is if nobody can tell that it was put.
        identities: Tells of a source which row is which. Asked only where rows are set aside.
    """

    opened: Opened
    writer: SinkWriter
    day: Day
    ensure_standing: Callable[[], None]
    expect: Callable[[ExportedFile], None]
    identities: Callable[[SourceName], Identities]

    def deliver(self, write: Write) -> Delivered:
        """Write one object, in as many rounds as it takes.

        Raises:
            SinkHalted: the sink refuses rows that it was not given, or names none.
            BalanceBroken: rows in, out and aside do not add up.
            PipelineError: what else stopped it; nothing was written.
        """
        left, refused = write, Parked((), ())
        while True:
            sieve: RowSieve | None = None
            try:
                with self.opened.rows(self.day, left) as batches:
                    sieve = self._sieve(left, batches)
                    return self._send(write, left, refused, sieve)
            except SinkRejected as error:
                found = self._find(left, self._refused(left, error, sieve), room=PARKED_IN_RECEIPT - len(refused.named))
                refused = refused.and_(found)
                known = self.identities(write.source)
                left = known.narrowed(left, left.mask & ~known.at(found.places))

    def _sieve(self, write: Write, batches: "Iterator[pa.RecordBatch]") -> RowSieve:
        dataset = self.opened.pin.dataset
        return RowSieve(batches, dataset, write.source, name_at_most=PARKED_IN_RECEIPT, between=self.opened.between)

    def _send(self, write: Write, left: Write, refused: Parked, sieve: RowSieve) -> Delivered:
        """Send what is left of a write."""
        self.opened.ensure_may_write()
        self.opened.claim.hold()
        delivered = Delivered(None, None, ())

        def confirm(encoded: Encoded, stored: StoredObject) -> None:
            nonlocal delivered
            self._ensure_balanced(left, sieve, encoded)
            self.ensure_standing()
            parked = refused.and_(Parked(sieve.parked_places, sieve.parked))
            if encoded.refused:
                parked = parked.and_(self._find(left, encoded.refused, room=PARKED_IN_RECEIPT - len(parked.named)))
            delivered = self._delivered(write, stored, parked)
            if delivered.file is not None:
                self.expect(delivered.file)

        self.writer.write_object(
            write.key,
            columns=self.opened.pin.dataset.columns,
            batches=sieve.batches(),
            confirm=confirm,
            fence=self.opened.fence,
        )
        self.opened.reached(Step.STORED)
        return delivered

    def _delivered(self, write: Write, stored: StoredObject, parked: Parked) -> Delivered:
        row_set, aside = write.row_set, None
        if parked.places:
            known = self.identities(write.source)
            mask = write.mask & known.at(parked.places)
            row_set, aside = known.row_set(write.mask & ~mask), known.row_set(mask)
        file = ExportedFile(
            key=stored.key,
            bytes=stored.bytes,
            sha256=stored.sha256,
            source=write.source,
            generation=write.generation,
            chain=write.chain,
            content=write.content,
            row_set=row_set,
        )
        return Delivered(file if stored.rows else None, aside, parked.named[:PARKED_IN_RECEIPT])

    def _refused(self, write: Write, error: SinkRejected, sieve: RowSieve | None) -> list[RefusedRow]:
        """The rows a sink refused, if it was given them."""
        given = 0 if sieve is None else sieve.rows - len(sieve.parked_places)
        strange = [position for position in error.reasons if not 0 <= position < given]
        if strange or not error.reasons:
            what = f"row {strange[0]}, of {given} that it was given" if strange else "rows and names none"
            raise SinkHalted(
                f"{self.opened.pin.dataset.name} {self.day}, source '{write.source}': the sink refuses {what}; "
                "that is a defect of its plugin, and sending again would not end"
            ) from error
        return [RefusedRow(position, reason) for position, reason in error.reasons.items()]

    def _find(self, write: Write, refused: Sequence[RefusedRow], *, room: int) -> Parked:
        with self.opened.again(self.day, write) as batches:
            return find_refused(batches, self.opened.pin.dataset, write.source, refused, name_at_most=room)

    def _ensure_balanced(self, write: Write, sieve: RowSieve, encoded: Encoded) -> None:
        expected = int(write.mask.sum())
        parked = len(sieve.parked_places)
        accounted = encoded.rows + len(encoded.refused) + parked
        counted = sieve.rows == accounted == expected
        if counted and sieve.place_sum == write.place_sum:
            return
        what = "; they are not the rows that were planned" if counted else ""
        raise BalanceBroken(
            f"{self.opened.pin.dataset.name} {self.day}, source '{write.source}': the row index counts {expected} rows, the scan "
            f"read {sieve.rows}, of which {encoded.rows} were encoded, {len(encoded.refused)} refused and {parked} "
            f"unreadable{what}; the object at the destination was left as it is"
        )
