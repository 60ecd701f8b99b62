"""What lies in a cache and at a sink, read without the code under test as far as that goes."""

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hypaware_pipeline.demo.cursor import read_cursor, utc_now
from hypaware_pipeline.demo.parquet_files import read_data_file
from hypaware_pipeline.demo.table import LiveFile, Table
from hypaware_pipeline.model import ExportedFile, Receipt
from hypaware_pipeline.row_sets import UNTIMED, unpack
from tests.model.account import Mark, Place

_TIMED = {"logs": "timestamp", "ai_gateway_messages": "message_created_at"}


def rows_in_cache(root: Path, marked: Mapping[str, str]) -> dict[Place, Counter[Mark]]:
    """The live rows of every source that has any."""
    found: dict[Place, Counter[Mark]] = {}
    for path in root.glob("datasets/*/source=*/cursor.json"):
        place = (path.parent.parent.name, path.parent.name.removeprefix("source="))
        table = Table(path.parent / read_cursor(path.parent)["tableDir"], clock=utc_now, rng=None)  # type: ignore[arg-type]
        marks: Counter[Mark] = Counter()
        for file in table.live_files():
            marks.update(_live_values(file, table, marked[place[0]]))
        if marks:
            found[place] = marks
    return found


def rows_at(out: Path, marked: Mapping[str, str]) -> Counter[Mark]:
    """Every row in the objects of a sink."""
    return Counter(row[marked[dataset]] for dataset, _, row in _rows(out))


def values_at(out: Path, dataset: str, key: str, column: str) -> dict[Any, set[Any]]:
    """The values of a column in the rows of a dataset, by those of another."""
    found: dict[Any, set[Any]] = {}
    for name, _, row in _rows(out):
        if name == dataset:
            found.setdefault(row[key], set()).add(row[column])
    return found


def verify(out: Path, sink: str, datasets: Collection[str]) -> None:
    """Every receipt balances, its files are what it says, and there are no others."""
    named = set()
    for path in out.glob(f"*/*/_receipt.{sink}.json"):
        receipt = Receipt.from_json(json.loads(path.read_text()))
        assert receipt.balanced, f"{path} does not balance"
        assert receipt.dataset in datasets
        for file in receipt.files:
            _verify_file(out / file.key, receipt, file)
            named.add(out / file.key)
    assert named == set(_objects(out)), "the objects are those that receipts name"


def _verify_file(path: Path, receipt: Receipt, file: ExportedFile) -> None:
    content = path.read_bytes()
    rows = [json.loads(line) for line in gzip.decompress(content).splitlines()]
    assert (len(content), hashlib.sha256(content).hexdigest()) == (file.bytes, file.sha256), path
    tokens = unpack(file.row_set).tokens
    assert len(rows) == len(tokens) == file.rows, f"{path} has {len(rows)} rows, its row set {len(tokens)}"
    moments = [row.get(_TIMED[receipt.dataset]) for row in rows]
    timed = np.array(sorted(moment.removesuffix("Z") for moment in moments if moment), "datetime64[us]").astype(np.int64)
    assert sorted(tokens[tokens >= UNTIMED]) == list(timed), f"{path} has other rows than its row set says"


def _live_values(file: LiveFile, table: Table, column: str) -> Iterator[Any]:
    values = [value for rows in read_data_file(file.path, table.schema) for value in rows.column(column).to_pylist()]
    return (value for position, value in enumerate(values) if position not in file.deleted)


def _rows(out: Path) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    for path in _objects(out):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            yield path.parent.parent.name, path, json.loads(line)


def _objects(out: Path) -> Iterator[Path]:
    return (path for path in out.rglob("*") if path.is_file() and path.name[0] not in "._")
