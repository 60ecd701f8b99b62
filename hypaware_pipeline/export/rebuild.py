"""A lost ledger, rebuilt from the receipts at the destinations.

Why looking and taking are two steps: what is taken makes days count as exported. A person sees first what was found.

Why a receipt counts only if its objects are there, with the sizes it says: a day taken for exported is not exported again. What
is not taken stays where it lies, and is judged again by the export that comes to its day.

Why receipts of other settings are taken too: the old ledger had them. With them the plan says what it said before the loss: that
the sink changed, and which of its days therefore are due.

Why the ledger's own receipt stands unless it is older: the ledger is the point of truth, but one that came back from a backup has
not seen the latest exports.

Why directories are claimed last: a ledger that knows days but has no claim exports nothing, and rebuilding again mends it. The
other way round it would own a place of which it knows nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hypaware_pipeline.config import Config
from hypaware_pipeline.ledger import Ledger, ReceiptKey
from hypaware_pipeline.model import UNDATED, DatasetName, Day, Receipt
from hypaware_pipeline.plugins.registry import LAYOUT_VERSION
from hypaware_pipeline.sinks.claims import Claim, read_claim
from hypaware_pipeline.sinks.configured import ConfiguredSink
from hypaware_pipeline.sinks.naming import safe_name
from hypaware_pipeline.sinks.receipts import Directory, ReceiptDamaged, directories, read_receipt


@dataclass(frozen=True, slots=True)
class DatasetFound:
    """What was found of one dataset at a destination.

    Attributes:
        directory: The name of its directory.
        dataset: Its name; None where no receipt tells it, and the directory's name is not it.
        receipts: To be recorded.
        known: How many receipts say nothing that the ledger does not know.
        problems: Receipts that are not taken, each with the reason.
        others: How many receipts of other sinks lie there.
        claimed_by: Id of the ledger that claims the directory; None when none does.
        refused: Why nothing of the directory is taken.
    """

    directory: str
    dataset: DatasetName | None
    receipts: Sequence[Receipt] = ()
    known: int = 0
    problems: Sequence[str] = ()
    others: int = 0
    claimed_by: str | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class SinkFound:
    """What was found at the destination of one sink."""

    sink: ConfiguredSink
    datasets: Sequence[DatasetFound]

    def to_record(self) -> Sequence[Receipt]:
        """The receipts that the ledger lacks."""
        return [receipt for each in self.datasets for receipt in each.receipts]

    def to_claim(self, ledger_id: str) -> Sequence[DatasetName]:
        """The datasets whose directories are to be claimed for a ledger."""
        takeable = (each for each in self.datasets if each.refused is None and each.claimed_by != ledger_id)
        return [each.dataset for each in takeable if each.dataset is not None]


def look(sink: ConfiguredSink, ledger: Ledger) -> SinkFound:
    """See what lies at a sink's destination that a ledger does not know. Changes nothing.

    Raises:
        SinkError: the store's answer to a failure.
        LedgerUnreadable: the ledger cannot be read.
    """
    known = ledger.fingerprints(sink.name)
    found = (_look_at(sink, directory, known) for directory in directories(sink.store, sink.prefix, sink.name))
    return SinkFound(sink, [each for each in found if each is not None])


def take(found: SinkFound, ledger: Ledger) -> None:
    """Record what was found, and claim the directories.

    Raises:
        SinkError: the store's answer to a failure, or another process claims a directory at this moment.
        LedgerError: the ledger did not take a receipt.
    """
    for receipt in found.to_record():
        ledger.record(receipt, replaces=ledger.recorded(receipt.sink, receipt.dataset, receipt.day))
    for dataset in found.to_claim(ledger.id):
        replace(found.sink, takeover=True).claim(dataset, ledger.id).hold()


def earlier_first_day(found: Iterable[SinkFound], config: Config, first_day: Day) -> Day | None:
    """The day on which partitions are to begin so that every exported day is one again; None if it may stay where it is.

    A lost ledger loses the choice of the first day too, and the cache may not reach back to it any more.
    """
    days = (receipt.day for each in found for receipt in each.to_record() if receipt.day != UNDATED)
    earliest = min((day for day in days if day >= config.floor_day), default=first_day)
    return earliest if earliest < first_day and config.first_day is None else None


def _look_at(
    sink: ConfiguredSink, directory: Directory, known: Mapping[tuple[DatasetName, Day], ReceiptKey]
) -> DatasetFound | None:
    """Judge one directory; None for one that is none of the sink's."""
    claim = None if directory.claim is None else read_claim(sink.store, directory.claim)[0]
    if not directory.receipts and (claim is None or claim.sink != sink.name):
        return None
    named = DatasetName(directory.name) if safe_name(directory.name) == directory.name else None
    if claim is not None and (reason := _refusal(claim, sink)) is not None:
        return DatasetFound(directory.name, named, others=directory.others, claimed_by=claim.ledger_id, refused=reason)
    receipts, problems = _receipts(sink, directory)
    unknown = [receipt for receipt in receipts if not _is_known(receipt, known)]
    whole = []
    for receipt in unknown:
        wrong = _wrong_objects(receipt, directory.sizes)
        if wrong is None:
            whole.append(receipt)
        else:
            problems.append(f"{receipt.dataset} {receipt.day}: its receipt names {wrong}; the day counts as not exported")
    return DatasetFound(
        directory.name,
        receipts[0].dataset if receipts else named,
        whole,
        known=len(receipts) - len(unknown),
        problems=problems,
        others=directory.others,
        claimed_by=None if claim is None else claim.ledger_id,
    )


def _refusal(claim: Claim, sink: ConfiguredSink) -> str | None:
    if claim.layout > LAYOUT_VERSION:
        return f"a newer version of hypaware-pipeline writes here (layout {claim.layout}); upgrade hypaware-pipeline"
    if claim.sink != sink.name:
        return f"sink '{claim.sink}' writes here, of ledger {claim.ledger_id}; rebuild under that name"
    return None


def _receipts(sink: ConfiguredSink, directory: Directory) -> tuple[list[Receipt], list[str]]:
    """The receipts of a directory that can be believed, and what is wrong with the others."""
    receipts, problems = [], []
    for key in directory.receipts:
        try:
            receipt = read_receipt(sink.store, sink.prefix, key)
        except ReceiptDamaged as error:
            problems.append(sink.mask(str(error)))
            continue
        if receipt is not None:
            receipts.append(receipt)
    return receipts, problems


def _is_known(receipt: Receipt, known: Mapping[tuple[DatasetName, Day], ReceiptKey]) -> bool:
    recorded = known.get((receipt.dataset, receipt.day))
    return recorded is not None and recorded.exported_at >= receipt.exported_at


def _wrong_objects(receipt: Receipt, sizes: Mapping[str, int]) -> str | None:
    """What of the objects a receipt names is not as it says."""
    for file in receipt.files:
        size = sizes.get(file.key)
        if size is None:
            return f"{file.key}, which is gone"
        if size != file.bytes:
            return f"{file.key} with {file.bytes} bytes, but it has {size}"
    return None
