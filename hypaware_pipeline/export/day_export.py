"""One day of one dataset to one sink: intent, objects, receipt at the destination, ledger.

Why in this order: the ledger commit is the only point of truth. Whatever stops the way before it leaves the day due, and doing it
again gives the same objects.

Why the keys are noted before the first of them is written: an attempt that dies leaves objects which the next one need not write
again, under names that nobody else would know. What a note names and the next receipt does not is removed.

Why a broken source does not stop the others: each source of a day has its own object. The readable ones are exported and
recorded; what the sink has of the broken one stays, and the day counts as not exported until the source can be read.

Why the ledger is asked once more before an object becomes visible: two exports of a day may run at once. The one that was
overtaken leaves the object of the other in place, pins again and judges the day by what stands now.

Why the lease is asked for before every write: see `leases`.

Why the cache is looked at again for a day that another export recorded meanwhile: its copy may be of a later state, and what this
one does not know of would seem to have vanished.

Why a receipt is read again before it is recorded: the ledger's word stops a day from being exported again, so it is given only
for what the destination has been seen to have.
"""

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Literal

from hypaware_pipeline.errors import BalanceBroken, CursorSuperseded, PinLost, SinkHalted, SourceUnreadable
from hypaware_pipeline.export.deliver import PARKED_IN_RECEIPT, Delivery, Opened
from hypaware_pipeline.export.reconcile import DayWork, Identities, Situation, Write, identities_of, reconcile
from hypaware_pipeline.export.situations import Situations
from hypaware_pipeline.export.standing import Standing, Unfinished, look
from hypaware_pipeline.export.steps import Step
from hypaware_pipeline.ledger import Ledger, Recorded
from hypaware_pipeline.ledger.schema import timestamp
from hypaware_pipeline.model import (
    Day,
    DayOutcome,
    ExportedFile,
    ParkedRecord,
    Part,
    PartitionSummary,
    Receipt,
    SetAside,
    SourceName,
)
from hypaware_pipeline.row_sets import Rows, pack, unpack
from hypaware_pipeline.sinks.configured import ConfiguredSink


class _SourceBroken(Exception):
    """A source turned out to be damaged while it was read."""

    def __init__(self, source: SourceName, reason: str) -> None:
        super().__init__(reason)
        self.source = source


@dataclass(frozen=True, slots=True)
class _Written:
    """What came of a write: the object, if any row could be encoded, and the rows that could not."""

    file: ExportedFile | None
    set_aside: SetAside | None
    named: Sequence[ParkedRecord]


@dataclass(frozen=True, slots=True)
class DayExport:
    """Exports days of one dataset to one sink."""

    sink: ConfiguredSink
    ledger: Ledger
    clock: Callable[[], datetime]
    opened: Opened

    def export(self, day: Day, started: float) -> DayOutcome:
        """Export one day; `started` is when work on it began (monotonic seconds).

        Raises:
            PipelineError: what stopped it; nothing was recorded, and the day is due as before.
        """
        self.opened.claim.check()
        summary = self.opened.pin.summary(day)
        recorded = self.ledger.recorded(self.sink.name, summary.dataset, day)
        self._ensure_newer(recorded)
        dataset = summary.dataset
        unfinished = Unfinished(self._noted(summary), self.ledger.intents.expected(self.sink.name, dataset, day))
        standing = look(self.sink, dataset, day, recorded, ledger_id=self.ledger.id, unfinished=unfinished)
        work, written, summary = self._write(day, summary, standing, recorded)
        receipt = self._receipt(summary, work, written, started)
        noted = self._noted(summary)
        if standing.receipt is None and not (receipt.files or receipt.set_aside or receipt.elsewhere_rows or noted):
            return self._outcome(summary, None, work, standing, started)
        as_it_was = recorded is not None and standing.recorded and _says_the_same(receipt, recorded.receipt)
        if recorded is not None and as_it_was and not noted:
            self.ledger.found_so(recorded)
            return self._outcome(summary, standing.receipt, work, standing, started)
        self._confirm(receipt, recorded, standing, {*noted, *standing.keys}, as_it_was=as_it_was)
        self.sink.writer.remove(sorted(standing.inherited), fence=self.opened.ensure_may_write)
        return self._outcome(summary, receipt, work, standing, started)

    def _ensure_newer(self, recorded: Recorded | None) -> None:
        """See that what stands was not made from a later state of the cache than the one at hand.

        Raises:
            PinLost: it may have been: another export recorded it since this one looked at the cache.
        """
        if recorded is not None and recorded.version > self.opened.revision:
            receipt = recorded.receipt
            raise PinLost(f"{receipt.dataset} {receipt.day} was exported by another process since this one looked at the cache")

    # --- objects ---------------------------------------------------------------------------------------------------------------

    def _write(
        self, day: Day, summary: PartitionSummary, standing: Standing, recorded: Recorded | None
    ) -> tuple[DayWork, list[_Written], PartitionSummary]:
        """Decide what to write and write it; again without every source that breaks on the way."""
        situations = Situations(self.opened.followed, self._recorded, self._name, self.clock())
        there = standing.receipt
        repair = there is not None and (there.fingerprint == summary.fingerprint or not standing.same_kind)
        broken: dict[SourceName, str] = {}
        written: dict[str, tuple[Write, _Written]] = {}
        name = partial(self._name, day)
        while True:
            situation = partial(situations.of, day, there, broken=tuple(broken), spoiled=standing.spoiled, repair=repair)
            work = reconcile(situation(), name)
            standing.ensure_accounted(self.sink, day, replaced=[write.key for write in work.writes])
            self._note(summary, work, standing)
            delivery = Delivery(
                self.opened,
                self.sink.writer,
                day,
                ensure_standing=partial(self.ledger.ensure_standing, self.sink.name, summary.dataset, day, recorded),
                expect=partial(self.ledger.intents.expect, self.sink.name, summary.dataset, day),
                identities=partial(_identities, situation, name),
            )
            try:
                for write in work.writes:
                    if write.key not in written or written[write.key][0].row_set != write.row_set:
                        written[write.key] = write, self._write_one(delivery, write)
            except _SourceBroken as error:
                broken[error.source] = str(error)
                summary = self.opened.pin.without(day, broken)
                continue
            return work, [written[write.key][1] for write in work.writes], summary

    def _recorded(self, day: Day) -> Receipt | None:
        receipt = self.ledger.receipt(self.sink.name, self.opened.pin.dataset.name, day)
        return receipt if receipt is not None and receipt.destination == self.sink.destination else None

    def _name(self, day: Day, part: Part) -> str:
        return self.sink.writer.object_key(self.opened.pin.dataset.name, day, part)

    def _note(self, summary: PartitionSummary, work: DayWork, standing: Standing) -> None:
        """Note what is about to be put and removed, unless an attempt before this one did."""
        keys = {write.key for write in work.writes} | (standing.keys - {file.key for file in work.stays})
        if keys - self._noted(summary):
            self.ledger.intents.open(self.sink.name, summary.dataset, summary.day, str(uuid.uuid4()), sorted(keys))
        self.opened.reached(Step.INTENDED)

    def _noted(self, summary: PartitionSummary) -> set[str]:
        """What attempts that no receipt ended may have written."""
        intents = self.ledger.intents.of(self.sink.name, summary.dataset, summary.day)
        return {key for intent in intents for key in intent.keys}

    def _write_one(self, delivery: Delivery, write: Write) -> _Written:
        try:
            delivered = delivery.deliver(write)
        except SourceUnreadable as error:
            raise _SourceBroken(write.source, str(error)) from None
        aside = None if delivered.aside is None else SetAside("parked", write.source, write.generation, delivered.aside)
        return _Written(delivered.file, aside, delivered.named)

    # --- receipt ---------------------------------------------------------------------------------------------------------------

    def _receipt(self, summary: PartitionSummary, work: DayWork, written: Sequence[_Written], started: float) -> Receipt:
        files = [*work.stays, *(each.file for each in written if each.file is not None)]
        receipt = Receipt(
            sink=self.sink.name,
            dataset=summary.dataset,
            day=summary.day,
            destination=self.sink.destination,
            ledger_id=self.ledger.id,
            fingerprint=summary.fingerprint,
            rows=summary.rows,
            kept_rows=work.kept_rows,
            kept=work.kept,
            elsewhere_rows=work.elsewhere_rows,
            files=tuple(sorted(files, key=lambda file: file.key)),
            set_aside=_together([*work.set_aside, *(each.set_aside for each in written if each.set_aside is not None)]),
            parked=tuple(record for each in written for record in each.named)[:PARKED_IN_RECEIPT],
            unreadable=dict(summary.unreadable),
            exported_at=timestamp(self.clock()),
            seconds=round(time.monotonic() - started, 3),
        )
        if not receipt.balanced:
            raise BalanceBroken(
                f"{receipt.dataset} {receipt.day}: the cache has {receipt.rows} rows and {receipt.kept_rows} more are kept, but "
                f"{receipt.exported_rows} are exported, {receipt.parked_rows} parked, {receipt.withheld_rows} withheld and "
                f"{receipt.elsewhere_rows} in files of other days; nothing is recorded"
            )
        return receipt

    def _confirm(
        self, receipt: Receipt, recorded: Recorded | None, standing: Standing, left: Collection[str], *, as_it_was: bool
    ) -> None:
        """Remove what the new receipt does not name of what is `left` from before, put the receipt, read it again, record it.

        A removal that a crash cuts off is repeated, because the day is still due. The receipt is the last object written.
        """
        fence = self.opened.ensure_may_write
        fence()
        self.opened.claim.hold()
        kept = {file.key for file in receipt.files}
        self.sink.writer.remove((key for key in sorted(left) if key not in kept), fence=fence)
        self.opened.reached(Step.REMOVED)
        self.sink.writer.write_receipt(receipt, fence=fence)
        self.opened.reached(Step.RECEIPTED)
        self._ensure_put(receipt)
        if standing.unfinished:
            self._ensure_as_found(receipt, standing)
        self.ledger.record(receipt, replaces=recorded, as_it_was=as_it_was)
        self.opened.reached(Step.RECORDED)

    def _ensure_put(self, receipt: Receipt) -> None:
        """See that the receipt lies at the destination as it was put.

        Raises:
            SinkHalted: it does not; a store that loses or changes what it took is trusted with nothing more.
            CursorSuperseded: another one does: an export of the day at the same time put its own.
        """
        found = self.sink.writer.read_receipt(self.sink.writer.receipt_key(receipt.dataset, receipt.day))
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

    def _ensure_as_found(self, receipt: Receipt, standing: Standing) -> None:
        """See that nobody put an object since this export looked: one that was stopped just before that and went on meanwhile.

        Raises:
            CursorSuperseded: somebody did.
        """
        whole = {file.key: file.sha256 for file in receipt.files if not standing.is_spoiled(file)}
        there = self.sink.writer.digests(whole)
        other = [key for key, sha256 in whole.items() if there.get(key) != sha256]
        if other:
            raise CursorSuperseded(f"{self.sink.uri(other[0])} was put by another export of the day at the same time")

    def _outcome(
        self, summary: PartitionSummary, receipt: Receipt | None, work: DayWork, standing: Standing, started: float
    ) -> DayOutcome:
        status: Literal["exported", "partial", "kept"] = "exported"
        wrong = [f"source '{source}' could not be read: {reason}" for source, reason in sorted(summary.unreadable.items())]
        wrong += [
            f"{self.sink.uri(file.key)} was removed or changed since it was put, and the cache no longer has all of its "
            f"{file.rows} rows; put it back from a backup"
            for file in work.stays
            if file.key in standing.spoiled
        ]
        if wrong:
            status = "partial"
        elif work.kept_rows and not work.writes:
            status = "kept"
        seconds = time.monotonic() - started
        error = "; ".join(wrong) or None
        return DayOutcome(self.sink.name, summary.dataset, summary.day, status, receipt, error, seconds)


def _identities(situation: Callable[[], Situation], name: Callable[[Part], str], source: SourceName) -> Identities:
    return identities_of(situation(), name, source)


def _together(aside: Iterable[SetAside]) -> tuple[SetAside, ...]:
    """One set for all of a unit's rows: what stays aside beside an object that stays, and what joins it from an addition."""
    sets: dict[SetAside, list[Rows]] = {}
    for each in aside:
        sets.setdefault(replace(each, row_set=pack(Rows.none())), []).append(unpack(each.row_set))
    return tuple(replace(unit, row_set=pack(Rows.together(rows))) for unit, rows in sets.items())


def _says_the_same(receipt: Receipt, standing: Receipt) -> bool:
    """Whether recording a receipt would change nothing but its time."""

    def said(each: Receipt) -> tuple[object, ...]:
        files = [(file.key, file.sha256, file.row_set) for file in each.files]
        return each.fingerprint, each.rows, each.kept, each.kept_rows, each.elsewhere_rows, files, each.set_aside, each.unreadable

    return said(receipt) == said(standing)
