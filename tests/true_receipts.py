"""Receipts as exports would have left them, without the exports: of years of days in seconds.

Why the engine itself decides what each names: which rows an object holds decides what becomes of it later, so that a receipt that
is only nearly true makes days due, or rows stay, that no export would have.
"""

import datetime as dt
from collections.abc import Callable, Iterator
from functools import partial

from hypaware_pipeline.cache.reader import Cache
from hypaware_pipeline.export.lineage import follow
from hypaware_pipeline.export.reconcile import DayWork, Write, reconcile
from hypaware_pipeline.export.situations import Situations
from hypaware_pipeline.ledger import Ledger
from hypaware_pipeline.ledger.schema import timestamp
from hypaware_pipeline.model import DatasetName, Day, ExportedFile, Part, PartitionSummary, Receipt, StoredObject
from hypaware_pipeline.sinks.configured import ConfiguredSink

Put = Callable[[str], StoredObject]
"""Says what lies at a key; puts it there, if it is to lie there."""


def true_receipts(
    sink: ConfiguredSink, ledger: Ledger, cache: Cache, dataset: DatasetName, *, now: dt.datetime, put: Put
) -> Iterator[Receipt]:
    """The receipt of every day, as if nothing had been exported before. The ledger learns of the chains, not of the receipts."""

    def name(day: Day, part: Part) -> str:
        return sink.writer.object_key(dataset, day, part)

    followed = follow(cache, ledger, dataset, now=now)
    situations = Situations(followed, lambda _: None, name, now)
    for day, summary in sorted(followed.pin.partitions().items()):
        work = reconcile(situations.of(day, None), partial(name, day))
        yield _receipt(sink, ledger, summary, work, now=now, put=put)


def _receipt(
    sink: ConfiguredSink, ledger: Ledger, summary: PartitionSummary, work: DayWork, *, now: dt.datetime, put: Put
) -> Receipt:
    return Receipt(
        sink=sink.name,
        dataset=summary.dataset,
        day=summary.day,
        destination=sink.destination,
        ledger_id=ledger.id,
        fingerprint=summary.fingerprint,
        rows=summary.rows,
        kept_rows=work.kept_rows,
        kept=work.kept,
        elsewhere_rows=work.elsewhere_rows,
        files=tuple(_file(write, put(write.key)) for write in work.writes),
        set_aside=(),
        parked=(),
        unreadable={},
        exported_at=timestamp(now),
        seconds=0.1,
    )


def _file(write: Write, stored: StoredObject) -> ExportedFile:
    return ExportedFile(
        key=stored.key,
        bytes=stored.bytes,
        sha256=stored.sha256,
        source=write.source,
        generation=write.generation,
        chain=write.chain,
        content=write.content,
        row_set=write.row_set,
    )
