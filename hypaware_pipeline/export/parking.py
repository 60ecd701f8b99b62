"""Rows that cannot be sent as they stand: set aside before the encoder sees them, and named for a person.

Why the scan's own failures stand in a column: a row whose VARIANT is torn has no value to encode, but it exists, is counted,
and must be named. It travels with its reason until here.

Why refused rows are named by a second read: an encoder knows a row by its position only, and keeping the keys of every row for
the case that one is refused would cost memory in every export. The order of rows is deterministic, so a second read finds them.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypaware_pipeline.export.reconcile import place_sum
from hypaware_pipeline.model import PLACE_COLUMN, PROBLEM_COLUMN, SEQ_COLUMN, Dataset, ParkedRecord, SourceName
from hypaware_pipeline.plugins.contracts import RefusedRow

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Parked:
    """Parked rows of one object: the place of each (see `DayRows.places`), and the first of them named."""

    places: Sequence[int]
    named: Sequence[ParkedRecord]

    def and_(self, others: "Parked") -> "Parked":
        """Both."""
        return Parked([*self.places, *others.places], [*self.named, *others.named])


class RowSieve:
    """Passes the rows that could be read whole; counts all, and names the others.

    Attributes:
        rows: Rows seen so far, parked ones included.
        place_sum: Sum of their places modulo 2^64: which rows they were, whatever their order.
        parked_places: Places of the rows set aside so far.
        parked: The first `name_at_most` of them.
    """

    def __init__(
        self,
        batches: "Iterable[pa.RecordBatch]",
        dataset: Dataset,
        source: SourceName,
        *,
        name_at_most: int,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self._batches = batches
        self._dataset = dataset
        self._source = source
        self._name_at_most = name_at_most
        self._between = between
        self.rows = 0
        self.place_sum = 0
        self.parked_places: list[int] = []
        self.parked: list[ParkedRecord] = []

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """The rows that could be read whole, in order."""
        for batch in self._batches:
            self._between()
            self.rows += batch.num_rows
            self.place_sum = (self.place_sum + place_sum(_places(batch))) % 2**64
            problems = batch.column(PROBLEM_COLUMN)
            if problems.null_count == batch.num_rows:
                yield batch
                continue
            self._park(batch)
            yield batch.filter(problems.is_null())

    def _park(self, batch: "pa.RecordBatch") -> None:
        places = _places(batch)
        for index, reason in enumerate(batch.column(PROBLEM_COLUMN).to_pylist()):
            if reason is None:
                continue
            self.parked_places.append(int(places[index]))
            if len(self.parked) < self._name_at_most:
                self.parked.append(ParkedRecord(self._source, row_name(batch, index, self._dataset), reason))


def find_refused(
    batches: "Iterable[pa.RecordBatch]",
    dataset: Dataset,
    source: SourceName,
    refused: Sequence[RefusedRow],
    *,
    name_at_most: int,
) -> Parked:
    """Find rows by their positions among those that could be read whole, and name the first of them."""
    sieve = RowSieve(batches, dataset, source, name_at_most=0)
    reasons = {row.position: row.reason for row in refused}
    positions = sorted(reasons)
    places: list[int] = []
    named: list[ParkedRecord] = []
    start = 0
    for batch in sieve.batches():
        here = positions[bisect_left(positions, start) : bisect_left(positions, start + batch.num_rows)]
        for position in here:
            places.append(int(_places(batch)[position - start]))
            if len(named) < name_at_most:
                named.append(ParkedRecord(source, row_name(batch, position - start, dataset), reasons[position]))
        start += batch.num_rows
    return Parked(places, named)


def _places(batch: "pa.RecordBatch") -> "np.ndarray":
    places: np.ndarray = batch.column(PLACE_COLUMN).to_numpy()
    return places


def row_name(batch: "pa.RecordBatch", index: int, dataset: Dataset) -> str:
    """How a person finds the row: its natural key, its time and its sequence number, as far as it has them."""
    columns = [*dataset.natural_key, *([dataset.primary_timestamp] if dataset.primary_timestamp else []), SEQ_COLUMN]
    present = set(batch.schema.names)
    return ", ".join(f"{name}={_shown(batch.column(name), index)}" for name in dict.fromkeys(columns) if name in present)


def _shown(column: "pa.Array", index: int) -> str:
    """One value as text; bytes that are no UTF-8 are shown replaced, since such a value may be why the row is here."""
    import pyarrow as pa  # 0.4 s; only where a row is parked

    value = column[index]
    if pa.types.is_dictionary(value.type):
        value = value.value
    if value is None or not value.is_valid:
        return "null"
    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
        return str(value.as_buffer().to_pybytes(), "utf-8", "replace")[:200]
    return str(value.as_py())
