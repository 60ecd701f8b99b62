"""Rows that cannot be sent as they stand: set aside before the encoder sees them, and named for a person.

Why the scan's own failures stand in a column: a row whose VARIANT is torn has no value to encode, but it exists, is counted,
and must be named. It travels with its reason until here.

Why refused rows are named by a second read: an encoder knows a row by its position only, and keeping the keys of every row for
the case that one is refused would cost memory in every export. The order of rows is deterministic, so a second read finds them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from hypaware_pipeline.model import PROBLEM_COLUMN, SEQ_COLUMN, Dataset, ParkedRecord, SourceName

if TYPE_CHECKING:
    import pyarrow as pa


class RowSieve:
    """Passes the rows that could be read whole; counts all, and names the others.

    Attributes:
        rows: Rows seen so far, parked ones included.
        parked_rows: Rows set aside so far.
        parked: The first `name_at_most` of them.
    """

    def __init__(self, batches: "Iterable[pa.RecordBatch]", dataset: Dataset, source: SourceName, *, name_at_most: int) -> None:
        self._batches = batches
        self._dataset = dataset
        self._source = source
        self._name_at_most = name_at_most
        self.rows = 0
        self.parked_rows = 0
        self.parked: list[ParkedRecord] = []

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """The rows that could be read whole, in order."""
        for batch in self._batches:
            self.rows += batch.num_rows
            problems = batch.column(PROBLEM_COLUMN)
            if problems.null_count == batch.num_rows:
                yield batch
                continue
            self._park(batch)
            yield batch.filter(problems.is_null())

    def _park(self, batch: "pa.RecordBatch") -> None:
        problems = batch.column(PROBLEM_COLUMN)
        self.parked_rows += batch.num_rows - problems.null_count
        for index, reason in enumerate(problems.to_pylist()):
            if len(self.parked) >= self._name_at_most:
                return
            if reason is not None:
                self.parked.append(ParkedRecord(self._source, row_name(batch, index, self._dataset), reason))


def name_rows(
    batches: "Iterable[pa.RecordBatch]",
    dataset: Dataset,
    source: SourceName,
    wanted: Mapping[int, str],
) -> list[ParkedRecord]:
    """Name the rows at the `wanted` positions (0-based among the rows that could be read whole), each with its reason."""
    sieve = RowSieve(batches, dataset, source, name_at_most=0)
    named: list[ParkedRecord] = []
    start = 0
    for batch in sieve.batches():
        here = [position for position in sorted(wanted) if start <= position < start + batch.num_rows]
        named += [ParkedRecord(source, row_name(batch, position - start, dataset), wanted[position]) for position in here]
        start += batch.num_rows
    return named


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
