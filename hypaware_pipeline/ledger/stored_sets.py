"""Receipts taken apart and put together again: the document, what may change while it stands, and the row sets.

Why the chain of an object and the reason why rows are kept are not in the document: both may move on without another export, and
would then be told in two ways.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa

from hypaware_pipeline.ledger import tables
from hypaware_pipeline.model import Chain, Day, ExportedFile, Generation, Receipt, RowSet, SetAside, SinkName, SourceName

Kind = Literal["exported", "parked", "withheld"]
EXPORTED: Kind = "exported"


@dataclass(frozen=True, slots=True)
class StoredSet:
    """Rows that a receipt speaks of. Only exported ones are on a chain; that of others is empty."""

    sink: SinkName
    day: Day
    kind: Kind
    source: SourceName
    generation: Generation
    chain: Chain
    row_set: RowSet


def every_set(of: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """A query for whole rows of `row_sets`, in the order of their key."""
    return sa.select(tables.row_sets).where(of).order_by(*tables.row_sets.primary_key)


def stored_set(row: sa.Row[Any]) -> StoredSet:
    """What a row of `row_sets` says."""
    return StoredSet(
        SinkName(row.sink),
        Day(row.day),
        row.kind,
        SourceName(row.source),
        Generation(row.generation),
        Chain(row.chain),
        _row_set(row),
    )


def document_of(receipt: Receipt) -> str:
    """What of a receipt is kept in one piece."""
    document = receipt.to_json()
    del document["kept"]
    for file in document["files"]:
        del file["chain"], file["row_set"]
    for each in document["set_aside"]:
        del each["row_set"]
    return json.dumps(document, ensure_ascii=True, separators=(",", ":"))


def rows_of(receipt: Receipt) -> list[dict[str, Any]]:
    """The rows of `row_sets` that a receipt comes to."""
    key = {"sink": receipt.sink, "dataset": receipt.dataset, "day": receipt.day}
    exported = [_values(EXPORTED, file, object_key=file.key, chain=file.chain) for file in receipt.files]
    return [{**key, **values} for values in [*exported, *(_values(each.why, each) for each in receipt.set_aside)]]


def receipt_of(document: str, kept: str, sets: Iterable[sa.Row[Any]]) -> Receipt:
    """The receipt that these parts come to.

    Raises:
        KeyError, TypeError, ValueError: they come to none.
    """
    found = {(row.kind, row.source, row.generation, row.object_key): row for row in sets}
    value = json.loads(document)
    for file in value["files"]:
        row = found[EXPORTED, file["source"], file["generation"], file["key"]]
        file |= {"chain": row.chain, "row_set": _row_set(row).to_json()}
    for each in value["set_aside"]:
        each["row_set"] = _row_set(found[each["why"], each["source"], each["generation"], ""]).to_json()
    return Receipt.from_json({**value, "kept": kept})


def _values(kind: Kind, of: ExportedFile | SetAside, *, object_key: str = "", chain: str = "") -> Mapping[str, Any]:
    place = {"kind": kind, "source": of.source, "generation": of.generation, "object_key": object_key}
    return {**place, "chain": chain, "rows": of.row_set.rows, "keys": of.row_set.keys, "tokens": of.row_set.tokens}


def _row_set(row: sa.Row[Any]) -> RowSet:
    return RowSet(row.rows, row.keys, row.tokens)
