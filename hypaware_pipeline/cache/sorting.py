"""Rows of one day in the order of a destination, in bounded memory.

Why one binary key per row: DuckDB writes several columns of any type as one string of bytes that compares as they do, nulls
last. Sorting, merging and searching then need no type of their own, and the key is made once and travels with the row.

Why the place of a row closes its key: two rows can agree in everything else. With it every key is unique, the order is total,
and a merge needs no rule for equals.

Why runs and a merge: a day may be larger than memory. What fits into the budget is sorted and put aside as a run. Then of each
run one block is held, and all rows up to the smallest of the blocks' last keys can be given out: nothing smaller is still on
disk.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from hypaware_pipeline.cache import spill
from hypaware_pipeline.cache.batches import compact, concat, pieces, take

_KEY = "_hyp_sort_key"
_FAN_IN = 32
_OUTPUT_BYTES = 8 * 1024 * 1024
_OUTPUT_ROWS = 65_536
_FIRST_RUN = 2
"""So many budgets make the first run: most days then need no disk at all. While they are collected nothing is being merged."""


class Sorter:
    """Takes batches of a day in any order, then gives its rows sorted.

    Attributes:
        key: Columns to sort by, nulls last; together they must name a row uniquely.
        directory: Where runs are put aside, private to this sorter.
        memory_bytes: How much is collected before a run is put aside, and how much the blocks of a merge hold together.
    """

    def __init__(self, key: Sequence[str], connection: duckdb.DuckDBPyConnection, *, directory: Path, memory_bytes: int) -> None:
        self._key = key
        self._connection = connection
        self._directory = directory
        self._memory_bytes = memory_bytes
        self._collected: list[pa.RecordBatch] = []
        self._collected_bytes = 0
        self._runs: list[Path] = []
        self._runs_written = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch. All batches have the same columns, possibly encoded differently.

        Raises:
            SpillFailed: a run could not be put aside.
        """
        if batch.num_rows:
            self._collected.append(batch)
            self._collected_bytes += batch.nbytes
        if self._collected_bytes >= (self._memory_bytes if self._runs else _FIRST_RUN * self._memory_bytes):
            self._put_aside(self._sorted_collection(self._block_bytes))

    def sorted_batches(self) -> Iterator[pa.RecordBatch]:
        """All rows in order, in batches of about 8 MiB. The sorter is empty afterwards."""
        if not self._runs:
            blocks = self._sorted_collection(_OUTPUT_BYTES)
        else:
            self._merge_down_to(_FAN_IN - 1)
            # What was collected last is within the budget: it is merged from memory, as one run more.
            blocks = _merged([*map(spill.read, self._runs), self._sorted_collection(self._block_bytes)])
        for block in _even(blocks):
            yield block.drop_columns([_KEY])
        for run in self._runs:
            run.unlink()
        self._runs.clear()

    @property
    def _block_bytes(self) -> int:
        return self._memory_bytes // _FAN_IN

    def _sorted_collection(self, block_bytes: int) -> Iterator[pa.RecordBatch]:
        if not self._collected:
            return
        self._collected_bytes = 0
        yield from _sorted(_with_key(concat(self._collected), self._key, self._connection), block_bytes)

    def _put_aside(self, blocks: Iterable[pa.RecordBatch]) -> None:
        run = self._directory / f"run-{self._runs_written}"
        self._runs_written += 1
        spill.append(run, blocks)
        self._runs.append(run)
        pa.default_memory_pool().release_unused()  # the allocator would keep the run's memory for the next one, in other sizes

    def _merge_down_to(self, most: int) -> None:
        """Merge the oldest runs into one until so few are left that one block of each fits into memory."""
        while len(self._runs) > most:
            count = min(most, len(self._runs) - most + 1)
            merged, self._runs = self._runs[:count], self._runs[count:]
            blocks = _merged([spill.read(run) for run in merged])
            self._put_aside(piece for block in blocks for piece in pieces(block, self._block_bytes, _OUTPUT_ROWS))
            for run in merged:
                run.unlink()


def _with_key(batch: pa.RecordBatch, key: Sequence[str], connection: duckdb.DuckDBPyConnection) -> pa.RecordBatch:
    columns = pa.Table.from_arrays([batch.column(name) for name in key], names=[f"k{at}" for at in range(len(key))])
    expression = ", ".join(f"\"k{at}\", 'ASC NULLS LAST'" for at in range(len(key)))
    keys = connection.from_arrow(columns).project(f"create_sort_key({expression}) AS k").to_arrow_table().column(0)
    return batch.append_column(_KEY, keys.cast(pa.binary()).combine_chunks())


def _sorted(batch: pa.RecordBatch, block_bytes: int) -> Iterator[pa.RecordBatch]:
    order = pc.array_sort_indices(batch.column(_KEY))
    rows = min(max(batch.num_rows * block_bytes // max(batch.nbytes, 1), 1), _OUTPUT_ROWS)
    for start in range(0, batch.num_rows, rows):
        yield from pieces(take(batch, order.slice(start, rows)), 2 * block_bytes, _OUTPUT_ROWS)


@dataclass(slots=True)
class _Run:
    """A run being read: the block at hand and what follows it."""

    rest: Iterator[pa.RecordBatch]
    block: pa.RecordBatch

    @property
    def last_key(self) -> bytes:
        key: bytes = self.block.column(_KEY)[-1].as_py()
        return key

    def give(self, bound: bytes) -> pa.RecordBatch:
        """Hand out the rows of the block at hand up to `bound`."""
        keys = self.block.column(_KEY)
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) // 2
            if keys[middle].as_py() <= bound:
                low = middle + 1
            else:
                high = middle
        given = self.block.slice(0, low)
        self.block = self.block.slice(low)
        return given

    def refill(self) -> bool:
        """Make sure that there is a block at hand; false at the end of the run."""
        if not self.block.num_rows:
            self.block = next(self.rest, self.block)
        return bool(self.block.num_rows)


def _merged(sorted_runs: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    runs = [_Run(rest, first) for rest in sorted_runs if (first := next(rest, None)) is not None]
    while runs:
        bound = min(run.last_key for run in runs)
        given = [part for run in runs if (part := run.give(bound)).num_rows]
        if len(given) == 1:
            yield compact(given[0])
        else:
            yield from _sorted(concat([compact(part) for part in given]), _OUTPUT_BYTES)
        runs = [run for run in runs if run.refill()]


def _even(blocks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches: what a merge gives out at a time can be a handful of rows."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = waiting_rows = 0
    for block in blocks:
        if waiting and (waiting_bytes + block.nbytes > _OUTPUT_BYTES or waiting_rows + block.num_rows > _OUTPUT_ROWS):
            yield compact(concat(waiting))
            waiting_bytes = waiting_rows = 0
        waiting.append(block)
        waiting_bytes += block.nbytes
        waiting_rows += block.num_rows
    if waiting:
        yield compact(concat(waiting))
