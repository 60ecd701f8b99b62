"""The days of one dataset to one sink, end to end.

Why objects, receipt, ledger, in this order: the ledger commit is the only point of truth. Whatever stops the way before it
leaves the day due, and doing it again gives the same objects.

Why a balance is checked before an object becomes visible: a scan that lost a row, or found one twice, must leave the old object
in place and say the numbers.

Why a broken source does not stop the others: each source of a day has its own object. The readable ones are exported and
recorded; the object of the broken one stays as it is, and the day counts as not exported until the source can be read.

Why the claim is looked at before a receipt is: what another ledger wrote must be neither replaced nor taken for ours. It is put
before the first object, so that a day without rows leaves nothing behind.

Why the ledger is asked once more before an object becomes visible: two exports of a day may run at once. The one that was
overtaken leaves the object of the other in place, pins again and judges the day by what stands now. If it is overtaken between
that question and its commit, its objects lie where the other's receipt points; exporting the day again puts that right as well.

Why a receipt is read again before it is recorded: the ledger's word stops a day from being exported again, so it is given only
for what the destination has been seen to have.

Why what an attempt wrote is remembered until a receipt names it: the next attempt may have no rows for it, and nobody else
would remove it.

Why every exception ends at the day: a run covers many days, and a defect that one of them meets must not cost the rest.
"""

import logging
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hypaware_pipeline.errors import (
    BalanceBroken,
    CacheError,
    CursorSuperseded,
    PinLost,
    PipelineError,
    SinkHalted,
    SourceUnreadable,
)
from hypaware_pipeline.export.parking import RowSieve, name_rows
from hypaware_pipeline.export.plan import Standing, keep_reason
from hypaware_pipeline.export.slices import SCAN_MEMORY_BYTES, CacheSlice
from hypaware_pipeline.ledger import Ledger, Recorded
from hypaware_pipeline.model import (
    DatasetName,
    Day,
    DayOutcome,
    ExportBatch,
    ExportedFile,
    ExportOptions,
    ExportResult,
    ParkedRecord,
    PartitionSummary,
    Receipt,
    SourceName,
)
from hypaware_pipeline.plugins.contracts import Encoded
from hypaware_pipeline.sinks.claims import DatasetClaim
from hypaware_pipeline.sinks.configured import ConfiguredSink

if TYPE_CHECKING:
    from hypaware_pipeline.cache.reader import DatasetPin, PinReader

log = logging.getLogger(__name__)

PIN_ATTEMPTS = 5
"""How often in a row a slice is pinned before the next of its days is done.

HypAware keeps a replaced generation for an hour, and an export that overtook this one is done with the day; so a second is rare.
"""

HALTS_IN_A_ROW = 2
"""A sink that halts on one day is tried with the next: what stands in the way may be that day's alone (a file where its directory
belongs). If it halts again, the remaining days are not tried."""

PARKED_IN_RECEIPT = 100
"""How many parked records a receipt names. It counts all of them."""

_Unnamed = defaultdict[Day, set[str]]
"""Objects that attempts put and no receipt of ours names yet, by day."""


@dataclass(frozen=True, slots=True)
class Exporter:
    """Exports slices to one sink and records what it did. Meets `Sink`.

    Attributes:
        clock: The time now, in UTC.
    """

    sink: ConfiguredSink
    ledger: Ledger
    clock: Callable[[], datetime]
    _ended: threading.Event = field(default_factory=threading.Event, init=False, repr=False)

    def flush(self) -> None:
        """Nothing is held back: every day is confirmed before the next begins."""

    def close(self) -> None:
        """See `Sink.close`. The day at hand is finished: it is whole or not there."""
        self._ended.set()

    def export_batch(self, batch: ExportBatch[CacheSlice], options: ExportOptions) -> ExportResult:
        """See `Sink.export_batch`."""
        outcomes = []
        for outcome in self.export(batch.rows):
            options.told(outcome)
            outcomes.append(outcome)
        return ExportResult.of(outcomes)

    def export(self, rows: CacheSlice) -> Iterator[DayOutcome]:
        """Export the days of a slice, one outcome per day as it is done, never raising for what one day met."""
        claim = self.sink.claim(rows.dataset, self.ledger.id)
        remaining = list(rows.days)
        unnamed: _Unnamed = defaultdict(set)
        lost: PipelineError = PinLost(f"dataset '{rows.dataset}' was not read")
        attempts = PIN_ATTEMPTS
        while attempts:
            attempts -= 1
            try:
                for outcome in self._export_pinned(rows, tuple(remaining), claim, unnamed):
                    remaining.remove(outcome.day)
                    attempts = PIN_ATTEMPTS
                    yield outcome
            except (PinLost, CursorSuperseded) as error:
                log.info("pinning %s again: %s", rows.dataset, error)
                lost = error
            except CacheError as error:
                lost = error
                break
            else:
                return
        for day in remaining:
            yield self._failed(rows.dataset, day, str(lost), seconds=0.0)

    def _export_pinned(
        self, rows: CacheSlice, days: Sequence[Day], claim: DatasetClaim, unnamed: _Unnamed
    ) -> Iterator[DayOutcome]:
        pin = rows.pin()
        halts: list[str] = []
        with pin.read(days, spill_dir=rows.spill_dir, memory_bytes=SCAN_MEMORY_BYTES) as reader:
            opened = _Opened(pin, reader, rows.spill_dir, claim, unnamed)
            for day in days:
                if self._ended.is_set():
                    yield self._failed(rows.dataset, day, "the export was ended before this day was begun", seconds=0.0)
                    continue
                if len(halts) == HALTS_IN_A_ROW:
                    yield self._failed(rows.dataset, day, halts[-1], seconds=0.0)
                    continue
                started = time.monotonic()
                try:
                    yield self._export_day(opened, day, started)
                    halts.clear()
                except (PinLost, CursorSuperseded):
                    raise
                except SinkHalted as error:
                    halts.append(str(error))
                    yield self._failed(rows.dataset, day, str(error), seconds=time.monotonic() - started)
                except PipelineError as error:
                    yield self._failed(rows.dataset, day, str(error), seconds=time.monotonic() - started)
                except (Exception, SystemExit) as error:  # a plugin that exits ends its day, not the run
                    trace = self.sink.mask(traceback.format_exc())
                    log.error("exporting %s %s to %s\n%s", rows.dataset, day, self.sink.name, trace)
                    reason = f"unexpected {type(error).__name__}: {error}"
                    yield self._failed(rows.dataset, day, reason, seconds=time.monotonic() - started)

    def _export_day(self, opened: "_Opened", day: Day, started: float) -> DayOutcome:
        opened.claim.check()
        summary = opened.pin.summary(day)
        recorded = self.ledger.recorded(self.sink.name, summary.dataset, day)
        standing = self._standing(summary, recorded)
        if standing is not None and keep_reason(summary, _as_planned(standing), now=self.clock()) is not None:
            return self._outcome(summary, "kept", standing, _unreadable_message(summary), started)
        written: list[ExportedFile] = []
        broken: dict[SourceName, str] = {}
        parked = _Parked()
        for source in sorted(summary.rows_by_source):
            try:
                file = self._export_source(opened, summary, source, parked, recorded)
            except SourceUnreadable as error:
                broken[source] = str(error)
                continue
            if file is not None:
                written.append(file)
                opened.unnamed[day].add(file.key)
        if broken:
            summary = opened.pin.without(day, broken)
        status: Literal["partial", "exported"] = "partial" if summary.unreadable else "exported"
        left = {*(file.key for file in (standing.files if standing else ())), *opened.unnamed[day]}
        if summary.rows == 0 and standing is None and not left:
            return self._outcome(summary, status, None, _unreadable_message(summary), started)
        readable = opened.pin.sources - summary.unreadable.keys()
        carried = [file for file in (standing.files if standing else ()) if file.source not in readable]
        receipt = Receipt(
            sink=self.sink.name,
            dataset=summary.dataset,
            day=day,
            destination=self.sink.destination,
            ledger_id=self.ledger.id,
            fingerprint=summary.fingerprint,
            rows=summary.rows + sum(file.rows for file in carried),
            files=tuple(sorted([*written, *carried], key=lambda file: file.key)),
            parked_rows=parked.rows,
            parked=tuple(parked.named),
            unreadable=dict(summary.unreadable),
            exported_at=_instant(self.clock()),
            seconds=round(time.monotonic() - started, 3),
            future_rows=summary.future_rows + _future_rows_among(carried, standing),
        )
        opened.claim.hold()
        self._confirm(receipt, recorded, left)
        del opened.unnamed[day]
        return self._outcome(summary, status, receipt, _unreadable_message(summary), started)

    def _standing(self, summary: PartitionSummary, recorded: Recorded | None) -> Receipt | None:
        """What lies at the destination: the ledger's word when it speaks of this destination, else the receipt found there."""
        if recorded is not None and recorded.receipt.destination == self.sink.destination:
            return recorded.receipt
        return self.sink.writer.read_receipt(summary.dataset, summary.day)

    def _export_source(
        self,
        opened: "_Opened",
        summary: PartitionSummary,
        source: SourceName,
        parked: "_Parked",
        recorded: Recorded | None,
    ) -> ExportedFile | None:
        expected = summary.rows_by_source[source]
        dataset = opened.pin.dataset
        sieve = RowSieve(opened.reader.batches(summary.day, source), dataset, source, name_at_most=PARKED_IN_RECEIPT)

        def confirm(encoded: Encoded) -> None:
            accounted = encoded.rows + len(encoded.refused) + sieve.parked_rows
            if sieve.rows != expected or accounted != expected:
                raise BalanceBroken(
                    f"{summary.dataset} {summary.day}, source '{source}': the row index counts {expected} rows, the scan read "
                    f"{sieve.rows}, of which {encoded.rows} were encoded, {len(encoded.refused)} refused and {sieve.parked_rows} "
                    "unreadable; the object at the destination was left as it is"
                )
            self.ledger.ensure_standing(self.sink.name, summary.dataset, summary.day, recorded)

        opened.claim.hold()
        file, refused = self.sink.writer.write_source(
            summary.dataset,
            summary.day,
            source,
            columns=dataset.columns,
            batches=sieve.batches(),
            confirm=confirm,
        )
        parked.add(sieve.parked_rows, sieve.parked)
        if refused:
            wanted = {row.position: row.reason for row in refused[: parked.room]}
            with opened.pin.read([summary.day], spill_dir=opened.spill_dir, memory_bytes=SCAN_MEMORY_BYTES) as again:
                named = name_rows(again.batches(summary.day, source), dataset, source, wanted)
            parked.add(len(refused), named)
        return file

    def _confirm(self, receipt: Receipt, recorded: Recorded | None, left: Collection[str]) -> None:
        """Remove what the new receipt does not name of what is `left` from before, put the receipt, read it again, record it.

        A removal that a crash cuts off is repeated, because the day is still due. The receipt is the last object written.
        """
        kept = {file.key for file in receipt.files}
        self.sink.writer.remove(key for key in sorted(left) if key not in kept)
        self.sink.writer.write_receipt(receipt)
        self._ensure_put(receipt)
        self.ledger.record(receipt, replaces=recorded)

    def _ensure_put(self, receipt: Receipt) -> None:
        """See that the receipt lies at the destination as it was put.

        Raises:
            SinkHalted: it does not; a store that loses or changes what it took is trusted with nothing more.
            CursorSuperseded: another one does: an export of the day at the same time put its own.
        """
        found = self.sink.writer.read_receipt(receipt.dataset, receipt.day)
        if found is None:
            raise SinkHalted(
                f"the destination took the receipt of {receipt.dataset} {receipt.day} and does not have it; the day is not "
                "recorded. Find out what removes objects there, or why they are lost, then export again"
            )
        if found != receipt:
            raise CursorSuperseded(
                f"the receipt of {receipt.dataset} {receipt.day} that was just put is not the one that lies at the destination, "
                f"which is of {found.exported_at}, ledger {found.ledger_id}: another export of the day put it at the same time, "
                "or the destination gives back what was there before; the day is not recorded"
            )

    def _outcome(
        self,
        summary: PartitionSummary,
        status: Literal["exported", "partial", "kept"],
        receipt: Receipt | None,
        error: str | None,
        started: float,
    ) -> DayOutcome:
        seconds = time.monotonic() - started
        return DayOutcome(self.sink.name, summary.dataset, summary.day, status, receipt, error, seconds)

    def _failed(self, dataset: DatasetName, day: Day, error: str, *, seconds: float) -> DayOutcome:
        return DayOutcome(self.sink.name, dataset, day, "failed", None, self.sink.mask(error), seconds)


@dataclass(frozen=True, slots=True)
class _Opened:
    """A pin, opened for the days of one attempt, and the right to write them."""

    pin: "DatasetPin"
    reader: "PinReader"
    spill_dir: Path
    claim: DatasetClaim
    unnamed: _Unnamed


class _Parked:
    """The parked records of one day: all counted, the first of them named."""

    def __init__(self) -> None:
        self.rows = 0
        self.named: list[ParkedRecord] = []

    @property
    def room(self) -> int:
        return PARKED_IN_RECEIPT - len(self.named)

    def add(self, rows: int, named: Sequence[ParkedRecord]) -> None:
        self.rows += rows
        self.named.extend(named[: self.room])


def _as_planned(receipt: Receipt) -> Standing:
    return Standing(receipt.fingerprint, receipt.destination, receipt.rows, receipt.future_rows)


def _future_rows_among(carried: Sequence[ExportedFile], standing: Receipt | None) -> int:
    """At most so many rows of the objects that stay as they are may still leave for a day of theirs."""
    return min(sum(file.rows for file in carried), standing.future_rows) if standing is not None else 0


def _instant(now: datetime) -> str:
    return now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _unreadable_message(summary: PartitionSummary) -> str | None:
    if not summary.unreadable:
        return None
    return "; ".join(f"source '{source}' could not be read: {reason}" for source, reason in sorted(summary.unreadable.items()))
