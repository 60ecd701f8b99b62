"""What a sink holds of a day before it is exported: the ledger's word, what lies at the destination, and what does not fit.

Why the destination's receipt counts where it is younger than the ledger's: a ledger that came back from a backup has not seen the
last exports, and an attempt that died between the two has put all that its receipt names.

Why a damaged receipt does not count where the ledger has one: the ledger is the point of truth, and the next receipt mends it.

Why a receipt of another sink counts where there is none of this one: the directory is claimed by one sink, so that the other is
what this one was called before. Its objects are replaced, added to and removed as one's own.

Why an object that nobody names halts the day unless it is replaced: it may hold rows that are about to be written, under another
name, and nobody could tell afterwards. Only what looks like an object of this sink is meant; what else lies there is none of its
business.

Why objects are read where an export was cut off: it may have replaced, added and removed some of them and not others, and no
receipt says which. Each is told by its content: it is what a receipt says, or what that export said before it put it. A unit that
must stay as it is would otherwise be added to as if it were what it was before.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from hypaware_pipeline.errors import SinkHalted
from hypaware_pipeline.ledger import Recorded
from hypaware_pipeline.model import (
    DatasetName,
    Day,
    ExportedFile,
    Fingerprint,
    Generation,
    Kept,
    Receipt,
    SetAside,
)
from hypaware_pipeline.row_sets import Rows, pack, unpack
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
        spoiled: Objects it names that do not lie there as they were put, as far as their sizes tell; where an export was cut off,
            as far as their content tells.
        inherited: Keys of receipts of a former name, to be removed once there is one of today's.
        keys: Of all objects of the day, also of those that were removed from there.
        unfinished: Whether there was an export of the day that no receipt ended.
        strays: What looks like an object of the sink and is named by nobody.
    """

    receipt: Receipt | None
    recorded: bool
    same_kind: bool
    spoiled: frozenset[str]
    inherited: Collection[str]
    keys: frozenset[str]
    unfinished: bool
    strays: frozenset[str]

    def ensure_accounted(self, sink: ConfiguredSink, day: Day, *, replaced: Collection[str]) -> None:
        """See that nothing that nobody names stays beside what is about to be written; what that replaces does not.

        Raises:
            SinkHalted: something would.
        """
        strays = sorted(self.strays.difference(replaced))
        if strays:
            more = f" and {len(strays) - 1} more" if len(strays) > 1 else ""
            raise SinkHalted(
                f"{day}: {sink.uri(strays[0])}{more} lies where objects of this sink do, and no receipt names it: the receipt "
                "was removed, or the ledger is older than the destination. What it holds may be what is about to be written. Run "
                f"`hypaware-pipeline ledger rebuild {sink.name}` if there are receipts, else move it away"
            )

    def is_spoiled(self, file: ExportedFile) -> bool:
        """Whether an object is as it stands, and spoiled; one that was put anew is not."""
        return (
            file.key in self.spoiled
            and self.receipt is not None
            and any((each.key, each.sha256) == (file.key, file.sha256) for each in self.receipt.files)
        )


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What exports of a day said before they wrote that no receipt ended.

    Attributes:
        keys: Of objects that they were about to put or remove.
        expected: Objects that they were about to put.
    """

    keys: Collection[str] = ()
    expected: Collection[ExportedFile] = ()


def look(
    sink: ConfiguredSink, dataset: DatasetName, day: Day, recorded: Recorded | None, *, ledger_id: str, unfinished: Unfinished
) -> Standing:
    """See what a sink holds of a day.

    Args:
        sink: Which.
        dataset: Of what.
        day: Which day.
        recorded: What the ledger has of it.
        ledger_id: Of the ledger.
        unfinished: What was left unfinished before.

    Raises:
        ReceiptDamaged: what says so cannot be believed.
        SinkError: the destination's answer to a failure.
    """
    known = recorded.receipt if recorded is not None and recorded.receipt.destination == sink.destination else None
    sizes = sink.writer.sizes(dataset, day)
    lying, inherited = _lying(sink, dataset, day, sizes, needed=known is None)
    if known is not None and (lying is None or lying.exported_at <= known.exported_at):
        lying = known
    named = frozenset(_files(lying))
    found = lying
    there: Mapping[str, str] = {}
    if unfinished.keys:
        there = sink.writer.digests({*named, *(key for key in sizes if sink.writer.is_object(key))})
        found = _as_found(lying or _blank(sink, dataset, day, ledger_id), there, unfinished)
    spoiled = frozenset(
        key for key, file in _files(found).items() if sizes.get(key) != file.bytes or there.get(key, file.sha256) != file.sha256
    )
    same_kind = found is not None and found.destination == sink.destination
    keys = named | frozenset(unfinished.keys)
    return Standing(
        receipt=found,
        recorded=known is not None and found is known,
        same_kind=same_kind,
        spoiled=spoiled,
        inherited=inherited,
        keys=keys,
        unfinished=bool(unfinished.keys),
        strays=frozenset(key for key in sizes if sink.writer.is_object(key) and key not in keys),
    )


def _files(receipt: Receipt | None) -> dict[str, ExportedFile]:
    return {} if receipt is None else {file.key: file for file in receipt.files}


def _as_found(receipt: Receipt, there: Mapping[str, str], unfinished: Unfinished) -> Receipt | None:
    """What a receipt would say if it spoke of what lies there now; None if that is nothing."""
    named = _files(receipt)
    said = {(file.key, file.sha256): file for file in (*unfinished.expected, *receipt.files)}
    found = {key: said.get((key, digest), named.get(key)) for key, digest in there.items()}
    found |= {key: file for key, file in named.items() if key not in there and key not in unfinished.keys}
    files = [file for file in found.values() if file is not None]
    put = [file for file in files if file.key not in named or file != named[file.key]]
    whole = _by_generation(put)
    left = [file for file in files if file in put or len(unpack(file.row_set).without(_of(whole, file)))]
    aside = [replace(each, row_set=pack(unpack(each.row_set).without(_of(whole, each)))) for each in receipt.set_aside]
    aside = [each for each in aside if each.row_set.rows]
    if not left and not aside:
        return None
    return replace(receipt, files=tuple(left), set_aside=tuple(aside))


def _by_generation(files: Iterable[ExportedFile]) -> dict[Generation, Rows]:
    parts: dict[Generation, list[Rows]] = {}
    for file in files:
        parts.setdefault(file.generation, []).append(unpack(file.row_set))
    return {generation: Rows.together(rows) for generation, rows in parts.items()}


def _of(rows: Mapping[Generation, Rows], each: ExportedFile | SetAside) -> Rows:
    return rows.get(each.generation, Rows.none())


def _blank(sink: ConfiguredSink, dataset: DatasetName, day: Day, ledger_id: str) -> Receipt:
    """The receipt of a day that was never exported."""
    return Receipt(
        sink=sink.name,
        dataset=dataset,
        day=day,
        destination=sink.destination,
        ledger_id=ledger_id,
        fingerprint=Fingerprint(""),
        rows=0,
        kept_rows=0,
        kept=Kept.NOTHING,
        elsewhere_rows=0,
        files=(),
        set_aside=(),
        parked=(),
        unreadable={},
        exported_at="",
        seconds=0.0,
    )


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
