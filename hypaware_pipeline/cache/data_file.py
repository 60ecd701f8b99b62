"""One data file: what its footer tells, and its row groups in batches of a fitting size.

Why the size of a read follows what the last one gave: a file says how large its pages are, not how large they become. A key
dictionary of some KB repeats on every row of a VARIANT column once read, and a single value can have 70 KB.

Why columns without a value are not read: most rows of a conversation use less than half of its columns, and the footer tells.

Why dictionaries are kept, also inside VARIANT columns: a tool list of 60 KB stands once in a row group and on each of its rows
once that is read. Of a small file only those are kept: its other text is encoded again together with that of its neighbours.

Why never across row groups: each has dictionaries of its own, and pyarrow cannot put those inside a VARIANT together.
"""

import glob
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from hypaware_pipeline.cache import variant
from hypaware_pipeline.errors import SourceUnreadable

MOST_READ_ROWS = 4096
READ_BYTES = 8 * 1024 * 1024
_FIRST_READ_ROWS = 1024
_PAGE_BUFFER_BYTES = 64 * 1024
_SMALL_CHUNK_BYTES = 1024 * 1024
_UNSHREDDED_GROUP_ROWS = 4096  # DuckDB holds a row group in memory until it is full


@dataclass(slots=True)
class Habits:
    """What the files of a table have in common, learned from one file for the next.

    Attributes:
        rows: How many rows to read at a time.
        dictionaries: Columns to read as dictionaries; pyarrow must know when it opens a file, before it has seen the footer.
    """

    rows: int = _FIRST_READ_ROWS
    dictionaries: tuple[str, ...] = ()

    def learn(self, batch: pa.RecordBatch) -> None:
        """Judge by what a batch gave."""
        self.rows = min(max(int(READ_BYTES * batch.num_rows / max(batch.nbytes, 1)), 1), MOST_READ_ROWS)


class DataFile:
    """An open data file. A context manager.

    Args:
        path: Where it lies.
        habits: Of its table; brought up to date by what this file shows.

    Attributes:
        schema: Its columns.
        group_rows: Rows of each row group.

    Raises:
        FileNotFoundError: it is gone.
        SourceUnreadable: it is damaged, which may show only while it is read.
    """

    def __init__(self, path: Path, habits: Habits) -> None:
        self._path = path
        self._habits = habits
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        """Read the footer."""
        with ExitStack() as resources:
            try:
                self._parquet = resources.enter_context(_opened(self._path, self._habits.dictionaries))
            except KeyError:  # it has not all columns of the file before it
                self._habits.dictionaries = ()
                self._parquet = resources.enter_context(_opened(self._path))
            metadata = self._parquet.metadata
            self.schema: pa.Schema = self._parquet.schema_arrow
            self.group_rows = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
            self._empty: frozenset[str] = frozenset()
            wanted = _inner_columns(self.schema)
            if metadata.num_rows > MOST_READ_ROWS:
                wanted |= _text_columns(self.schema)
                self._empty = _empty_columns(self._parquet)
            dictionaries = _dictionaries(self._parquet, wanted)
            if dictionaries != self._habits.dictionaries:
                self._habits.dictionaries = dictionaries
                self._parquet = resources.enter_context(_opened(self._path, dictionaries, metadata))
            self._resources = resources.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Close it."""
        return self._resources.__exit__(kind, error, traceback)

    def batches(self, at: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All rows of a row group, less the columns without a value.

        Begins anew behind what was given out when another batch size fits much better.
        """
        wanted = [name for name in columns if name not in self._empty]
        given, rows = 0, self.group_rows[at]
        while given < rows:
            size = self._habits.rows
            for fresh in self._after(given, at, wanted, size):
                given += fresh.num_rows
                yield fresh
                self._habits.learn(fresh)
                if _is_worth_a_new_start(size, self._habits.rows, given, rows - given):
                    break

    def _after(self, given: int, at: int, columns: list[str], size: int) -> Iterator[pa.RecordBatch]:
        """The rows of a row group behind the first `given`."""
        position = 0
        for batch in self._parquet.iter_batches(batch_size=size, row_groups=[at], columns=columns, use_threads=False):
            position += batch.num_rows
            if position > given:
                yield batch.slice(max(batch.num_rows - (position - given), 0))


def _is_worth_a_new_start(size: int, fitting: int, given: int, left: int) -> bool:
    """Whether to decode the first `given` rows again in order to read the rest in batches of the fitting size."""
    too_large, too_small = fitting * 4 < size, fitting > size * 2
    return left > 0 and (too_large or (too_small and left > 8 * given))


def _text_columns(schema: pa.Schema) -> set[str]:
    return {field.name for field in schema if _is_text(field.type)}


def _is_text(kind: pa.DataType) -> bool:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind  # as the habits of the file before asked for it
    return bool(pa.types.is_string(value) or pa.types.is_large_string(value))


def _inner_columns(schema: pa.Schema) -> set[str]:
    """The two parts of every VARIANT."""
    return {f"{field.name}.{part.name}" for field in schema if variant.is_variant(field.type) for part in field.type}


def _dictionaries(parquet: pq.ParquetFile, paths: set[str]) -> tuple[str, ...]:
    """Which of some columns to read as dictionaries: those whose every chunk is one, or is small.

    Where a writer began a large chunk with a dictionary and then gave it up, the reader would go on collecting distinct values
    until the chunk ends. The footer cannot tell such a chunk from one that kept to its dictionary unless no page is plain.
    """
    groups = [parquet.metadata.row_group(at) for at in range(parquet.num_row_groups)]
    places = {parquet.schema.column(at).path: at for at in range(len(parquet.schema))}
    wanted = ((path, at) for path, at in places.items() if path in paths)
    return tuple(path for path, at in wanted if all(_keeps_dictionary(group.column(at)) for group in groups))


def _empty_columns(parquet: pq.ParquetFile) -> frozenset[str]:
    """Flat columns that, by the footer, have no value in any row. Reading them would cost as much as reading others."""
    groups = [parquet.metadata.row_group(at) for at in range(parquet.num_row_groups)]
    flat = {at: path for at in range(len(parquet.schema)) if "." not in (path := parquet.schema.column(at).path)}
    return frozenset(path for at, path in flat.items() if all(_is_empty(group.column(at)) for group in groups))


def _is_empty(chunk: pq.ColumnChunkMetaData) -> bool:
    statistics = chunk.statistics
    return statistics is not None and statistics.has_null_count and statistics.null_count == chunk.num_values


def _keeps_dictionary(chunk: pq.ColumnChunkMetaData) -> bool:
    if not chunk.has_dictionary_page:
        return False
    small = chunk.total_uncompressed_size <= _SMALL_CHUNK_BYTES + 2 * chunk.num_values
    return small or "PLAIN" not in chunk.encodings


@contextmanager
def _opened(path: Path, dictionaries: Sequence[str] = (), metadata: pq.FileMetaData | None = None) -> Iterator[pq.ParquetFile]:
    """A data file for reading, `dictionaries` naming the columns to keep as such; `metadata` is its footer, once that was read.

    Raises:
        FileNotFoundError: it is gone.
        SourceUnreadable: it is damaged, which may show only while it is read.
    """
    try:
        options = {"read_dictionary": list(dictionaries), "buffer_size": _PAGE_BUFFER_BYTES, "pre_buffer": False}
        with pq.ParquetFile(path, metadata=metadata, **options) as parquet:
            yield parquet
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise SourceUnreadable(
            f"{path}: the data file cannot be read ({error}); it is damaged, restore it or purge its rows"
        ) from error


def unshred(
    source: Path, target: Path, columns: Sequence[str], shredded: Sequence[str], connection: duckdb.DuckDBPyConnection
) -> None:
    """Write some columns of a file, same rows in the same order, with every VARIANT in one piece.

    Raises:
        FileNotFoundError: the source is gone.
        SourceUnreadable: DuckDB cannot read the source.
    """
    names = ", ".join(map(_quoted, columns))
    whole = ", ".join(f"{_quoted(name)}: 'VARIANT'" for name in shredded)
    try:
        connection.execute(
            f"COPY (SELECT {names} FROM read_parquet($source, hive_partitioning = false)) TO {_literal(str(target))} "
            f"(FORMAT parquet, COMPRESSION lz4_raw, ROW_GROUP_SIZE {_UNSHREDDED_GROUP_ROWS}, SHREDDING {{{whole}}})",
            {"source": glob.escape(str(source))},
        )
    except duckdb.Error as error:
        target.unlink(missing_ok=True)
        if not source.exists():
            raise FileNotFoundError(str(source)) from error
        raise SourceUnreadable(f"{source}: the data file cannot be read ({error}); restore it or purge its rows") from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
