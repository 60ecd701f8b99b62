"""Receipts as they lie at a destination: found, read, and judged before they are believed.

Why a receipt is judged at all: what the engine leaves alone, and what it removes, follows from it. One that was edited by hand
could make it remove another day's object, or take a day for exported that is not.

Why its own key shows whose it is: different sinks, datasets and days have different keys, whatever their names look like, so that
the key its words lead to is the one it lies at, or it speaks of something else.

Why pydantic's report is not shown as it is: it quotes what it found, and a receipt may name rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, ValidationError

from hypaware_pipeline.errors import SinkHalted
from hypaware_pipeline.model import RECEIPT_VERSION, UNDATED, Receipt, SinkName, parse_day
from hypaware_pipeline.plugins.contracts import BlobStore
from hypaware_pipeline.sinks.naming import is_claim, is_receipt, receipt_key, receipt_name


class ReceiptDamaged(SinkHalted):
    """What lies in the place of a receipt cannot be believed. Somebody has to look at it."""


def read_receipt(store: BlobStore, prefix: str, key: str) -> Receipt | None:
    """The receipt that lies at a key; None when nothing does.

    Raises:
        ReceiptDamaged: it cannot be believed; the message names it and says why.
        SinkError: the store's answer to a failure.
    """
    with store.get(key) as blob:
        if blob is None:
            return None
        body = blob.body.read()
    try:
        return _believed(body, prefix, key)
    except ValueError as error:
        raise ReceiptDamaged(
            f"{store.uri(key)} is no receipt to be believed: {error}. The day is not touched; put the file back as it was, or "
            "move it away if the objects beside it may be replaced"
        ) from None


@dataclass(frozen=True, slots=True)
class Directory:
    """What lies in the directory of one dataset.

    Attributes:
        name: Of the directory: the dataset's, made safe.
        claim: Key of the marker that says who writes here, if there is one.
        receipts: Keys of one sink's receipts.
        others: How many receipts of other sinks there are.
        sizes: Bytes of every object, by key.
    """

    name: str
    claim: str | None
    receipts: Sequence[str]
    others: int
    sizes: Mapping[str, int]


def directories(store: BlobStore, prefix: str, sink: SinkName) -> Iterator[Directory]:
    """Every directory below a sink's prefix, in the order of their names, with the receipts of that sink.

    Raises:
        SinkError: the store's answer to a failure.
    """
    skipped = len(prefix) + 1 if prefix else 0
    below = ((info.key[skipped:].split("/"), info) for info in store.list(prefix))
    for name, entries in groupby(((parts, info) for parts, info in below if len(parts) > 1), key=lambda entry: entry[0][0]):
        claim, receipts, others, sizes = None, [], 0, {}
        for parts, info in entries:
            sizes[info.key] = info.size
            if len(parts) == 2 and is_claim(info.key):
                claim = info.key
            elif len(parts) == 3 and is_receipt(info.key):
                if parts[-1] == receipt_name(sink):
                    receipts.append(info.key)
                else:
                    others += 1
        yield Directory(name, claim, receipts, others, sizes)


def _day(text: str) -> str:
    return UNDATED if text == UNDATED else parse_day(text)


def _known_version(version: int) -> int:
    if version != RECEIPT_VERSION:
        raise ValueError(f"this version of hypaware-pipeline reads receipts of version {RECEIPT_VERSION}, not {version}")
    return version


class _Form(BaseModel):
    """Exact types; keys that a later version adds are passed over."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class _RowSet(_Form):
    rows: NonNegativeInt
    keys: str
    tokens: str


class _File(_Form):
    key: str
    rows: NonNegativeInt
    bytes: NonNegativeInt
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    source: str
    generation: str
    chain: str
    content: str
    row_set: _RowSet


class _SetAside(_Form):
    why: Literal["parked", "withheld"]
    source: str
    generation: str
    row_set: _RowSet


class _Parked(_Form):
    source: str
    key: str
    reason: str


class _Document(_Form):
    """What `Receipt.to_json` makes."""

    version: Annotated[int, AfterValidator(_known_version)]
    sink: str
    dataset: str
    day: Annotated[str, AfterValidator(_day)]
    destination: str
    ledger_id: str
    fingerprint: str
    rows: NonNegativeInt
    kept_rows: NonNegativeInt
    kept: Literal["", "settling", "moving", "frozen", "unproven", "gone", "unreadable", "accepted"]
    elsewhere_rows: NonNegativeInt
    exported_rows: NonNegativeInt
    parked_rows: NonNegativeInt
    withheld_rows: NonNegativeInt
    bytes: NonNegativeInt
    files: list[_File]
    set_aside: list[_SetAside]
    parked: list[_Parked]
    unreadable: dict[str, str]
    exported_at: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")]
    seconds: NonNegativeFloat


def _believed(body: bytes, prefix: str, key: str) -> Receipt:
    """The receipt that a body is, if nothing in it contradicts the rest of it, or the place where it lies.

    Raises:
        ValueError: something does; the message says what.
    """
    try:
        document = _Document.model_validate_json(body)
    except ValidationError as error:
        (first, *rest) = error.errors(include_url=False, include_context=False, include_input=False)
        where = ".".join(str(part) for part in first["loc"])
        more = f" (and {len(rest)} more things)" if rest else ""
        raise ValueError(f"{f'{where}: ' if where else ''}{first['msg']}{more}") from None
    receipt = Receipt.from_json(document.model_dump())
    _check_balances(document, receipt)
    _check_row_sets(receipt)
    if receipt_key(prefix, receipt.dataset, receipt.day, receipt.sink) != key:
        raise ValueError(f"it speaks of sink '{receipt.sink}', dataset '{receipt.dataset}', day {receipt.day}")
    beside = key.rpartition("/")[0]
    for file in receipt.files:
        directory, _, name = file.key.rpartition("/")
        if directory != beside or name[:1] in ("", ".", "_"):
            raise ValueError(f"it names '{file.key}', which is no object beside it")
    return receipt


def _check_balances(document: _Document, receipt: Receipt) -> None:
    said = (document.exported_rows, document.parked_rows, document.withheld_rows, document.bytes)
    if said != (receipt.exported_rows, receipt.parked_rows, receipt.withheld_rows, receipt.bytes):
        raise ValueError(
            f"its parts do not add up: they are {receipt.exported_rows} rows exported, {receipt.parked_rows} parked, "
            f"{receipt.withheld_rows} withheld and {receipt.bytes} bytes, but it says "
            f"{said[0]}, {said[1]}, {said[2]} and {said[3]}"
        )
    if not receipt.balanced:
        raise ValueError(
            f"its balance does not close: {receipt.rows} rows and {receipt.kept_rows} kept, but {receipt.exported_rows} "
            f"exported, {receipt.parked_rows} parked, {receipt.withheld_rows} withheld and {receipt.elsewhere_rows} of other "
            "days' files"
        )
    wrong = next((file for file in document.files if file.rows != file.row_set.rows), None)
    if wrong is not None:
        raise ValueError(f"'{wrong.key}' has {wrong.rows} rows, its row set {wrong.row_set.rows}")
    if len({file.key for file in receipt.files}) < len(receipt.files):
        raise ValueError("it names an object twice")


def _check_row_sets(receipt: Receipt) -> None:
    from hypaware_pipeline.row_sets import unpack  # numpy; only where a receipt is read

    for row_set in [*(file.row_set for file in receipt.files), *(each.row_set for each in receipt.set_aside)]:
        unpack(row_set)
