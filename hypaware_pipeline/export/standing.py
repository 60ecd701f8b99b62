"""What a sink holds of a day before it is exported: the ledger's word, what lies at the destination, and what does not fit.

Why the destination's receipt counts where it is younger than the ledger's: a ledger that came back from a backup has not seen the
last exports, and an attempt that died between the two has put all that its receipt names.

Why a damaged receipt does not count where the ledger has one: the ledger is the point of truth, and the next receipt mends it.

Why a receipt of another sink counts where there is none of this one: the directory is claimed by one sink, so that the other is
what this one was called before. Its objects are replaced, added to and removed as one's own.

Why an object that nobody names halts the day: it may hold rows that are about to be written, under another name, and nobody could
tell afterwards. Only what looks like an object of this sink is meant; what else lies there is none of its business.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from hypaware_pipeline.errors import SinkHalted
from hypaware_pipeline.ledger import Recorded
from hypaware_pipeline.model import DatasetName, Day, Receipt
from hypaware_pipeline.sinks.configured import ConfiguredSink
from hypaware_pipeline.sinks.naming import is_receipt
from hypaware_pipeline.sinks.receipts import ReceiptDamaged


@dataclass(frozen=True, slots=True)
class Standing:
    """What a sink holds of a day.

    Attributes:
        receipt: What says so; None when nothing was exported.
        recorded: Whether it is the one that the ledger has.
        same_kind: Whether its objects were made with the settings of today.
        spoiled: Objects it names that do not lie there as they were put, as far as their sizes tell.
        inherited: Keys of receipts of a former name, to be removed once there is one of today's.
    """

    receipt: Receipt | None
    recorded: bool
    same_kind: bool
    spoiled: frozenset[str]
    inherited: Collection[str]

    @property
    def keys(self) -> frozenset[str]:
        """Of its objects."""
        return frozenset() if self.receipt is None else frozenset(file.key for file in self.receipt.files)


def look(sink: ConfiguredSink, dataset: DatasetName, day: Day, recorded: Recorded | None, *, noted: Collection[str]) -> Standing:
    """See what a sink holds of a day.

    Args:
        sink: Which.
        dataset: Of what.
        day: Which day.
        recorded: What the ledger has of it.
        noted: Keys of what attempts that no receipt ended may have written.

    Raises:
        SinkHalted: something lies there that cannot be accounted for.
        SinkError: the destination's answer to a failure.
    """
    known = recorded.receipt if recorded is not None and recorded.receipt.destination == sink.destination else None
    sizes = sink.writer.sizes(dataset, day)
    lying, inherited = _lying(sink, dataset, day, sizes, needed=known is None)
    if known is not None and (lying is None or lying.exported_at <= known.exported_at):
        lying = known
    _ensure_accounted(sink, dataset, day, sizes, {*noted, *(file.key for file in (lying.files if lying is not None else ()))})
    spoiled = frozenset(file.key for file in (lying.files if lying is not None else ()) if sizes.get(file.key) != file.bytes)
    same_kind = lying is not None and lying.destination == sink.destination
    return Standing(lying, known is not None and lying is known, same_kind, spoiled, inherited)


def _lying(
    sink: ConfiguredSink, dataset: DatasetName, day: Day, sizes: Mapping[str, int], *, needed: bool
) -> tuple[Receipt | None, Collection[str]]:
    """The receipt at the destination, and the keys of others that it stands for."""
    own = sink.writer.receipt_key(dataset, day)
    if own in sizes:
        try:
            return sink.writer.read_receipt(own), ()
        except ReceiptDamaged:
            if needed:
                raise
            return None, ()
    others = [key for key in sizes if is_receipt(key)]
    found = [receipt for receipt in map(sink.writer.read_receipt, others) if receipt is not None] if needed else []
    last = max(found, key=lambda receipt: receipt.exported_at, default=None)
    return (None if last is None else replace(last, sink=sink.name)), others


def _ensure_accounted(
    sink: ConfiguredSink, dataset: DatasetName, day: Day, sizes: Mapping[str, int], named: Collection[str]
) -> None:
    strays = sorted(key for key in sizes if sink.writer.is_object(key) and key not in named)
    if strays:
        more = f" and {len(strays) - 1} more" if len(strays) > 1 else ""
        raise SinkHalted(
            f"{dataset} {day}: {sink.uri(strays[0])}{more} lies where objects of this sink do, and no receipt names it: the "
            "receipt was removed, or the ledger is older than the destination. What it holds may be what is about to be written. "
            f"Run `hypaware-pipeline ledger rebuild {sink.name}` if there are receipts, else move it away"
        )
