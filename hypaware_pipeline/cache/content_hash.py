"""A hash of all a row says: what tells rows without a sequence number apart.

Why of the rows as the dataset has them and not as a file stores them: compaction encodes VARIANT bytes, dictionaries and pages
anew, and the row is the same. What it says is the text its JSON columns come to and the values of the others.

Why a column without a value adds nothing: older files lack younger columns, and a row does not change when its table gets one.
"""

import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from hypaware_pipeline.cache import duck
from hypaware_pipeline.cache.columns import decode, file_columns, typed
from hypaware_pipeline.cache.data_file import Habits
from hypaware_pipeline.cache.row_hash import mix, value_hashes
from hypaware_pipeline.cache.whole_file import whole_file
from hypaware_pipeline.model import Dataset


def content_hashes(path: Path, dataset: Dataset, wanted: np.ndarray) -> np.ndarray:
    """The hash of each wanted row of a data file, uint64; 0 for the others.

    Args:
        path: Where the file lies.
        dataset: Which columns rows have.
        wanted: One bool per row of the file. Batches without such a row are not decoded.

    Raises:
        FileNotFoundError: the file is gone.
        SourceUnreadable: it is damaged.
    """
    hashes = np.zeros(len(wanted), np.uint64)
    with (
        tempfile.TemporaryDirectory(prefix="hypaware-pipeline-") as directory,
        duck.cursor() as connection,
        whole_file(path, dataset, Habits(), copy=Path(directory) / "whole.parquet", connection=connection) as file,
    ):
        columns = file_columns(dataset, file.schema)
        borders = np.cumsum([0, *file.group_rows])
        for at, first in enumerate(borders[:-1]):
            if not wanted[first : borders[at + 1]].any():
                continue
            position = int(first)
            for raw in file.batches(at, columns):
                chosen = np.flatnonzero(wanted[position : position + raw.num_rows])
                if len(chosen):
                    hashes[position + chosen] = _hashes(raw.take(pa.array(chosen)), dataset, connection)
                position += raw.num_rows
    return hashes


def _hashes(raw: pa.RecordBatch, dataset: Dataset, connection: duckdb.DuckDBPyConnection) -> np.ndarray:
    (decoded,) = decode([raw], dataset, connection)
    batch = typed(decoded, dataset)
    total = np.zeros(batch.num_rows, np.uint64)
    for column in dataset.columns:
        values = batch.column(column.name)
        if values.null_count < len(values):
            (name,) = value_hashes(pa.array([column.name]))
            valid = values.is_valid().to_numpy(zero_copy_only=False)
            total += np.where(valid, mix(value_hashes(values) ^ name), np.uint64(0))
    return mix(total)
