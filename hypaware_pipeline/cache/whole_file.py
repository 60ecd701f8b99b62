"""Data files with every VARIANT in one piece.

Why pyarrow reads and not DuckDB: it keeps dictionaries as dictionaries. A VARIANT whose values are partly kept in typed columns
is the exception: DuckDB first rewrites such a file without them, row for row, into a private directory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from hypaware_pipeline.cache import variant
from hypaware_pipeline.cache.columns import file_columns
from hypaware_pipeline.cache.data_file import DataFile, Habits, unshred
from hypaware_pipeline.model import Dataset


@contextmanager
def whole_file(
    path: Path, dataset: Dataset, habits: Habits, *, copy: Path, connection: duckdb.DuckDBPyConnection
) -> Iterator[DataFile]:
    """A data file, or the copy of it in which every VARIANT is in one piece; a copy that is there already serves again.

    Raises:
        FileNotFoundError: the file is gone.
        SourceUnreadable: it is damaged, which may show only while it is read.
    """
    if not copy.exists():
        with DataFile(path, habits) as file:
            columns = file_columns(dataset, file.schema)
            shredded = [name for name in columns if variant.is_shredded(file.schema.field(name).type)]
            if not shredded:
                yield file
                return
        unshred(path, copy, columns, shredded, connection)
    with DataFile(copy, habits) as file:
        yield file
