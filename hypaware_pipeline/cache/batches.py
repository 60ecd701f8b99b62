"""Record batches of one dataset put together, cut up, and kept small.

Why dictionaries are looked at again and again: a batch cut out of a row group still drags the whole dictionary of that row
group along. Where few of its entries are used it is cut down, and where hardly any repeats it is given up, since it would then
only cost.

Why there are columns of no type: of the columns a dataset has, most rows use half. A column without a value costs nothing as
long as nobody gives it a type.

Why a dictionary wins over a plain column when two batches differ: written out in full, a repeated 4 KB text of a hundred
thousand rows would be 400 MB.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SMALL_DICTIONARY_BYTES = 16 * 1024
"""A dictionary of so few bytes is not worth looking at, if the rows are several times as many as its entries."""


def concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch with all rows, in order. The batches agree in their columns, not in how these are encoded.

    The list is emptied, and memory given back column by column: the rows are never held twice.
    """
    names = batches[0].schema.names
    columns = [[batch.column(at) for batch in batches] for at in range(len(names))]
    batches.clear()
    joined = []
    while columns:
        joined.append(_concat_arrays(columns.pop()))
    return pa.RecordBatch.from_arrays(joined[::-1], names=names)


def _concat_arrays(arrays: list[pa.Array]) -> pa.Array:
    if len(arrays) == 1:
        return arrays[0]
    kinds = {array.type for array in arrays}
    if len(kinds) > 1 and pa.null() in kinds:
        known = next(kind for kind in kinds if not pa.types.is_null(kind))
        arrays = [pa.nulls(len(array), known) if pa.types.is_null(array.type) else array for array in arrays]
    if any(pa.types.is_dictionary(array.type) for array in arrays):
        arrays = [array if pa.types.is_dictionary(array.type) else array.dictionary_encode() for array in arrays]
    return pa.concat_arrays(arrays)


def take(batch: pa.RecordBatch, rows: pa.Array) -> pa.RecordBatch:
    """The rows at these positions, in this order, with no dictionary larger than they need."""
    return compact(batch.take(rows))


def compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, dictionaries cut down to what is used, or dissolved where hardly a value repeats."""
    columns = [_compact(column) if pa.types.is_dictionary(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _compact(column: pa.DictionaryArray) -> pa.Array:
    entries = len(column.dictionary)
    if entries * 4 <= len(column) and column.dictionary.nbytes <= _SMALL_DICTIONARY_BYTES:
        return column
    valid = column.indices.is_valid()
    codes = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
    used = np.flatnonzero(np.bincount(codes[valid.to_numpy(zero_copy_only=False)], minlength=entries))
    if len(used) * 2 > len(column):
        return column.dictionary_decode()
    if len(used) == entries:
        return column
    place = np.zeros(max(entries, 1), np.int32)
    place[used] = np.arange(len(used), dtype=np.int32)
    indices = pc.if_else(valid, pa.array(place[codes]), pa.scalar(None, pa.int32()))
    return pa.DictionaryArray.from_arrays(indices, column.dictionary.take(pa.array(used)))


_SAMPLE_ROWS = 256


def encoded(texts: pa.StringArray) -> pa.Array:
    """The same texts, dictionary-encoded where they repeat."""
    sample = texts.slice(0, _SAMPLE_ROWS)
    if len(sample.unique()) * 4 > len(sample) * 3:
        return texts
    dictionary = texts.dictionary_encode()
    return texts if len(dictionary.dictionary) * 2 > len(texts) else dictionary


def pieces(batch: pa.RecordBatch, max_bytes: int, max_rows: int) -> Iterator[pa.RecordBatch]:
    """Consecutive parts of at most so many rows and, down to a single row, at most so many bytes."""
    if batch.num_rows > 1 and (batch.num_rows > max_rows or batch.nbytes > max_bytes):
        middle = batch.num_rows // 2
        for half in (batch.slice(0, middle), batch.slice(middle)):
            yield from pieces(compact(half), max_bytes, max_rows)
    elif batch.num_rows:
        yield batch
