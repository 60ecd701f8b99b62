"""What the row index knows of a row: the day its timestamp says and a hash that says whether it is still the same row.

Why the hash is defined here and not taken from a library: it is kept for years in receipts and compared between machines.
Libraries change theirs between versions, and the text a library makes of a timestamp as well.

Why text is hashed in words of eight bytes: numpy takes the same word of all rows in one go, where a hash of a library would be
called once per row. What is longer than most keys is digested first.

Why text timestamps are parsed here: a dataset of a third party may have only a `date` column that holds ISO text. Whatever does
not begin with a valid ISO date gives no day; guessing at local formats would file rows under days that are wrong.
"""

import datetime as dt
import re
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hypaware_pipeline.model import SEQ_COLUMN, Dataset

NO_DAY = int(np.iinfo(np.int32).min)
"""The raw day of a row without a usable primary timestamp."""

# Recorded with every index file: raise it whenever a day or a hash comes out differently.
_VERSION = 2
_EPOCH_ORDINAL = dt.date(1970, 1, 1).toordinal()
_UNITS_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_ISO = re.compile(
    r"\s*(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?)\s?(Z|[+-]\d{2}(?::?\d{2})?)?)?", re.ASCII
)
# Arbitrary odd constants: a null, the start of a row, and what keeps a column's value from being mixed bare.
_NULL = 0xD6E8FEB86659FD93
_START = 0x9E3779B97F4A7C15
_SALT = 0xA0761D6478BD642F
_WORD_BYTES = 8
_LONG_TEXT_BYTES = 256


@dataclass(frozen=True)
class Recipe:
    """From which columns days and hashes are computed."""

    primary_timestamp: str | None
    natural_key: tuple[str, ...]

    @classmethod
    def of(cls, dataset: Dataset) -> "Recipe":
        """The recipe of a dataset."""
        return cls(dataset.primary_timestamp, dataset.natural_key)

    @property
    def columns(self) -> tuple[str | None, ...]:
        """Sequence, primary timestamp (None: the dataset has none), natural key."""
        return (SEQ_COLUMN, self.primary_timestamp, *self.natural_key)

    @cached_property
    def identity(self) -> str:
        """Differs whenever days or hashes of the same rows would."""
        return repr((_VERSION, self.columns))


def raw_days(batch: pa.RecordBatch, recipe: Recipe) -> np.ndarray:
    """Days since 1970-01-01 (UTC) of the primary timestamp per row, int32; `NO_DAY` where there is none."""
    column = _column(batch, recipe.primary_timestamp)
    if column is None:
        return np.full(batch.num_rows, NO_DAY, dtype=np.int32)
    if pa.types.is_timestamp(column.type):
        days, valid = _integers(column)
        days = days // _UNITS_PER_DAY[column.type.unit]
    elif pa.types.is_date(column.type):
        days, valid = _integers(column.cast(pa.date32()).cast(pa.int32()))
    elif _is_text(column.type):
        days, valid = _text_days(column)
    else:
        return np.full(batch.num_rows, NO_DAY, dtype=np.int32)
    # Seconds reach further than int32 days do; such a row is far outside any window and keeps its side of it.
    days = np.clip(days, NO_DAY + 1, np.iinfo(np.int32).max)
    return np.where(valid, days, NO_DAY).astype(np.int32)


def row_hashes(batch: pa.RecordBatch, recipe: Recipe) -> np.ndarray:
    """The hash of (sequence, primary timestamp, natural key) per row, uint64. A column that is absent counts as null."""
    hashes = np.full(batch.num_rows, _START, dtype=np.uint64)
    for name in recipe.columns:
        hashes = _mix(hashes * np.uint64(3) ^ _column_hashes(_column(batch, name), batch.num_rows))
    return hashes


def _column(batch: pa.RecordBatch, name: str | None) -> pa.Array | None:
    index = batch.schema.get_field_index(name) if name is not None else -1
    if index < 0:
        return None
    column = batch.column(index)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _column_hashes(column: pa.Array | None, rows: int) -> np.ndarray:
    if column is None or pa.types.is_nested(column.type):
        return np.full(rows, _NULL, dtype=np.uint64)
    if pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type):
        values, valid = _integers(column)
        if pa.types.is_timestamp(column.type):
            values = _microseconds(values, column.type.unit)
        hashes = _mix(values.astype(np.uint64) ^ np.uint64(_SALT))
    else:
        hashes, valid = _text_hashes(column if _is_text(column.type) else column.cast(pa.string()))
    return np.where(valid, hashes, np.uint64(_NULL))


def _integers(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Values as int64 (0 where null), and which rows have one."""
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return column.cast(pa.int64(), safe=False).fill_null(0).to_numpy(zero_copy_only=False), valid


def _microseconds(values: np.ndarray, unit: str) -> np.ndarray:
    """A timestamp's hash does not depend on the unit a file stores it in. Wraps around far outside any real time."""
    if unit == "ns":
        return values // 1_000
    return values * np.int64(_UNITS_PER_DAY["us"] // _UNITS_PER_DAY[unit])


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    )


def _encoded(column: pa.Array) -> tuple[list[bytes], np.ndarray]:
    """The distinct values of a text column as bytes (text need not be valid UTF-8), and per row which of them; -1 for null."""
    target = pa.large_binary() if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type) else pa.binary()
    encoded = column.cast(target).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)


def _text_hashes(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    texts = _shortened(column.cast(pa.large_binary()))
    _, offsets, data = texts.buffers()
    borders = np.frombuffer(offsets, "<i8", len(texts) + 1, texts.offset * 8)
    starts, lengths = borders[:-1], np.diff(borders)
    # Zeros behind the last text let its last word be read whole.
    padded = np.append(np.frombuffer(data or b"", np.uint8)[: borders[-1]], np.zeros(_WORD_BYTES, np.uint8))
    words = np.ndarray((len(padded) - _WORD_BYTES + 1,), "<u8", padded, strides=(1,))  # the word that begins at each byte
    hashes = _mix(lengths.astype(np.uint64) ^ np.uint64(_SALT))
    rows = np.flatnonzero(lengths)
    done = 0
    while len(rows):
        left = np.minimum(lengths[rows] - done, _WORD_BYTES).astype(np.uint64)
        unused = (np.uint64(_WORD_BYTES) - left) * np.uint64(8)
        word = words[starts[rows] + done] << unused >> unused
        hashes[rows] = _mix(hashes[rows] * np.uint64(3) ^ word)
        done += _WORD_BYTES
        rows = rows[lengths[rows] > done]
    return hashes, column.is_valid().to_numpy(zero_copy_only=False)


def _shortened(texts: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """The same with a digest in the place of every long text."""
    lengths = pc.binary_length(texts)
    long = pc.fill_null(pc.greater(lengths, _LONG_TEXT_BYTES), False)
    if not pc.any(long, min_count=0).as_py():
        return texts
    digests = [blake2b(text, digest_size=_LONG_TEXT_BYTES // 8).digest() for text in texts.filter(long).to_pylist()]
    return pc.replace_with_mask(texts, long, pa.array(digests, pa.large_binary()))


def _text_days(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    values, indices = _encoded(column)
    days = [*(_day_of_text(value) for value in values), None]
    known = np.array([day is not None for day in days])
    return np.array([day or 0 for day in days], dtype=np.int64)[indices], known[indices]


def _day_of_text(value: bytes) -> int | None:
    match = _ISO.match(value.decode("utf-8", "replace"))
    if match is None:
        return None
    date, time, offset = match.groups()
    try:
        day = dt.date.fromisoformat(date)
    except ValueError:
        return None
    moved = _moved_to_utc(date, time, offset) if time and offset and offset != "Z" else day
    return moved.toordinal() - _EPOCH_ORDINAL


def _moved_to_utc(date: str, time: str, offset: str) -> dt.date:
    """The UTC date of a local time with an offset; the local one where no such time exists."""
    try:
        return dt.datetime.fromisoformat(f"{date}T{time.replace(',', '.')}{offset}").astimezone(dt.UTC).date()
    except (ValueError, OverflowError):
        return dt.date.fromisoformat(date)


def _mix(values: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64: every bit of the input moves half the bits of the output."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))
