"""The days of one dataset to one sink, end to end; `day_export` says how one of them goes.

Why the claim is looked at before a receipt is: what another ledger wrote must be neither replaced nor taken for ours. It is put
before the first object, so that a day without rows leaves nothing behind.

Why the lease is held for a day at a time, and not while its outcome is told: see `leases`.

Why every exception ends at the day: a run covers many days, and a defect that one of them meets must not cost the rest.
"""

import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from hypaware_pipeline.errors import CursorSuperseded, ExportEnded, LeaseLost, PinLost, PipelineError, SinkHalted, SinkRetryable
from hypaware_pipeline.export.day_export import DayExport
from hypaware_pipeline.export.deliver import Opened
from hypaware_pipeline.export.leases import HeldLease, LeaseTerms
from hypaware_pipeline.export.lineage import follow
from hypaware_pipeline.export.slices import SCAN_MEMORY_BYTES, CacheSlice
from hypaware_pipeline.export.steps import Reached, Step, pass_by
from hypaware_pipeline.ledger import Ledger, PlanMemory
from hypaware_pipeline.model import DatasetName, Day, DayOutcome, ExportBatch, ExportOptions, ExportResult
from hypaware_pipeline.sinks.claims import DatasetClaim
from hypaware_pipeline.sinks.configured import ConfiguredSink

log = logging.getLogger(__name__)

PIN_ATTEMPTS = 5
"""How often in a row a slice is pinned before the next of its days is done.

HypAware keeps a replaced generation for an hour, and an export that overtook this one is done with the day; so a second is rare.
"""

HALTS_IN_A_ROW = 2
"""A sink that halts on one day is tried with the next: what stands in the way may be that day's alone (a file where its directory
belongs). If it halts again, the remaining days are not tried, and the sink counts as halted."""

_AGAIN = (PinLost, CursorSuperseded, LeaseLost)
"""What the export knew is no longer so: it looks at the cache again, and judges what is left by what it sees then."""


@dataclass(frozen=True, slots=True)
class Exporter:
    """Exports slices to one sink and records what it did. Meets `Sink`.

    Attributes:
        clock: The time now, in UTC.
        terms: How it goes about the lease of its (sink, dataset).
        reached: Told of every step.
    """

    sink: ConfiguredSink
    ledger: Ledger
    clock: Callable[[], datetime]
    terms: LeaseTerms = field(default_factory=partial(LeaseTerms.of, "an export"))
    reached: Reached = pass_by
    _ended: threading.Event = field(default_factory=threading.Event, init=False, repr=False)

    def flush(self) -> None:
        """Nothing is held back: every day is confirmed before the next begins."""

    def close(self) -> None:
        """See `Sink.close`. The day at hand ends before its next batch; it is whole or as it was."""
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
        lost: PipelineError = PinLost(f"dataset '{rows.dataset}' was not read")
        attempts = PIN_ATTEMPTS
        while attempts:
            attempts -= 1
            try:
                for outcome in self._export_pinned(rows, tuple(remaining), claim):
                    remaining.remove(outcome.day)
                    attempts = PIN_ATTEMPTS
                    yield outcome
            except _AGAIN as error:
                log.info("pinning %s again: %s", rows.dataset, error)
                lost = error
            except PipelineError as error:
                lost = error
                break
            else:
                return
        for day in remaining:
            yield self._failed(rows.dataset, day, str(lost))

    def _export_pinned(self, rows: CacheSlice, days: Sequence[Day], claim: DatasetClaim) -> Iterator[DayOutcome]:
        memory = self.ledger.plan_memory(self.sink.name).get(rows.dataset, PlanMemory())
        followed = follow(rows.cache, self.ledger, rows.dataset, now=self.clock())
        lease = HeldLease(self.ledger.leases, self.sink.name, rows.dataset, self.terms, ended=self._ended)
        halts: list[str] = []
        going = self._ensure_going
        read = followed.pin.read(days, spill_dir=rows.spill_dir, memory_bytes=SCAN_MEMORY_BYTES, between=going)
        with read as reader:
            opened = Opened(followed, memory.revision, reader, rows.spill_dir, claim, lease, going, self.reached)
            export = DayExport(self.sink, self.ledger, self.clock, opened)
            for day in days:
                if self._ended.is_set():
                    yield self._failed(rows.dataset, day, "the export was ended before this day was begun")
                elif len(halts) == HALTS_IN_A_ROW:
                    reason = f"not tried, because the sink halted: {halts[-1]}"
                    yield self._failed(rows.dataset, day, reason, retry_after_seconds=None)
                else:
                    yield self._try(export, day, halts)
        if len(halts) == HALTS_IN_A_ROW:
            self.ledger.retries.halt(self.sink.name, self.sink.mask(halts[-1]))

    def _try(self, export: DayExport, day: Day, halts: list[str]) -> DayOutcome:
        """Export one day under the lease. How often the sink halted in a row is kept in `halts`.

        Raises:
            PinLost, CursorSuperseded, LeaseLost: the dataset is to be pinned again before that.
        """
        started = time.monotonic()
        dataset = export.opened.pin.dataset.name
        try:
            with export.opened.lease:
                self.reached(Step.LEASED)
                outcome = export.export(day, started)
            halts.clear()
            return outcome
        except _AGAIN:
            raise
        except PipelineError as error:
            if isinstance(error, SinkHalted):
                halts.append(str(error))
            wish = _wish(error)
            seconds = time.monotonic() - started
            return self._failed(dataset, day, str(error), seconds=seconds, retry_after_seconds=wish)
        except (Exception, SystemExit) as error:  # a plugin that exits ends its day, not the run
            trace = self.sink.mask(traceback.format_exc())
            log.error("exporting %s %s to %s\n%s", dataset, day, self.sink.name, trace)
            reason = f"unexpected {type(error).__name__}: {error}"
            return self._failed(dataset, day, reason, seconds=time.monotonic() - started)

    def _ensure_going(self) -> None:
        """Raises once the export is to end."""
        if self._ended.is_set():
            raise ExportEnded("the export was ended before this day was done; nothing of it is recorded")

    def _failed(
        self, dataset: DatasetName, day: Day, error: str, *, seconds: float = 0.0, retry_after_seconds: float | None = 0.0
    ) -> DayOutcome:
        return DayOutcome(self.sink.name, dataset, day, "failed", None, self.sink.mask(error), seconds, retry_after_seconds)


def _wish(error: PipelineError) -> float | None:
    """When a day that failed so may be tried again, in seconds; None when that mends nothing."""
    if isinstance(error, SinkRetryable):
        return error.retry_after_seconds or 0.0
    return None if isinstance(error, SinkHalted) else 0.0
