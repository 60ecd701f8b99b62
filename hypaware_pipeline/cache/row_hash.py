"""What the row index knows of a row: its sequence number, its token and a hash that says whether it is still what it was.

Why the hash is defined here and not taken from a library: it is kept for years in receipts and compared between machines.
Libraries change theirs between versions, and the text a library makes of a timestamp as well. The same goes for tokens.

Why a token is made even of a column that holds no timestamps: whoever compares two uses of a sequence number needs something to
compare. Text that begins with a date tells the day and what else it says by its hash. Without either all a row says has to do: a
natural key may be empty, or name many rows.

Why text is hashed in words of eight bytes: numpy takes the same word of all rows in one go, where a hash of a library would be
called once per row. What is longer than most keys is digested first.

Why text timestamps are parsed here: a dataset of a third party may have only a `date` column that holds ISO text. Whatever does
not begin with a valid ISO date gives no day; guessing at local formats would file rows under days that are wrong.
"""

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hypaware_pipeline.model import SEQ_COLUMN, Dataset
from hypaware_pipeline.row_sets import MICROSECONDS_PER_DAY, UNTIMED

# Recorded with every index file: raise it whenever a token or a hash comes out differently.
_VERSION = 4
_EPOCH_ORDINAL = dt.date(1970, 1, 1).toordinal()
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "day": MICROSECONDS_PER_DAY}
_INT64 = np.iinfo(np.int64)
_UNTIMED_RANGE = np.uint64(1 << 61)
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
    """From which columns tokens and hashes are computed."""

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
        """Differs whenever tokens or hashes of the same rows would."""
        return repr((_VERSION, self.columns))


def sequences(batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
    """Sequence numbers (uint64), and which rows have one. A column of another type than integers holds none."""
    column = _column(batch, SEQ_COLUMN)
    if column is None or not pa.types.is_integer(column.type):
        return np.zeros(batch.num_rows, np.uint64), np.zeros(batch.num_rows, bool)
    numbers, valid = _integers(column)
    return numbers.astype(np.uint64), valid


def tokens(batch: pa.RecordBatch, recipe: Recipe) -> np.ndarray:
    """The token of each row, int64: its primary timestamp in microseconds; without one `untimed_tokens` knows it."""
    moments, timed = _moments(_column(batch, recipe.primary_timestamp), batch.num_rows)
    return np.where(timed, moments, _INT64.min)


def untimed_tokens(content: np.ndarray) -> np.ndarray:
    """The tokens of rows without a usable timestamp, by the hashes of all they say; below `UNTIMED`."""
    return np.asarray(_INT64.min + (content % _UNTIMED_RANGE).astype(np.int64))


def row_hashes(batch: pa.RecordBatch, recipe: Recipe) -> np.ndarray:
    """The hash of (sequence, primary timestamp, natural key) per row, uint64. A column that is absent counts as null."""
    return _combined(batch, recipe.columns)


def value_hashes(column: pa.Array) -> np.ndarray:
    """A hash of each value, uint64, that does not depend on how it is stored. All nulls have the same."""
    if pa.types.is_dictionary(column.type):
        hashes = np.append(value_hashes(column.dictionary), np.uint64(_NULL))
        return np.asarray(hashes[column.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)])
    if pa.types.is_nested(column.type) or pa.types.is_null(column.type):
        return np.full(len(column), _NULL, dtype=np.uint64)
    if _is_numeric(column.type):
        words, valid = _words(column)
        hashes = mix(words ^ np.uint64(_SALT))
    else:
        hashes, valid = _text_hashes(column if _is_text(column.type) else column.cast(pa.string()))
    return np.where(valid, hashes, np.uint64(_NULL))


def mix(values: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64: every bit of the input moves half the bits of the output."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))


def _combined(batch: pa.RecordBatch, names: Sequence[str | None]) -> np.ndarray:
    hashes = np.full(batch.num_rows, _START, dtype=np.uint64)
    for name in names:
        column = _column(batch, name)
        values = value_hashes(column) if column is not None else np.uint64(_NULL)
        hashes = mix(hashes * np.uint64(3) ^ values)
    return hashes


def _column(batch: pa.RecordBatch, name: str | None) -> pa.Array | None:
    index = batch.schema.get_field_index(name) if name is not None else -1
    return batch.column(index) if index >= 0 else None


def _moments(column: pa.Array | None, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Primary timestamps in microseconds since 1970-01-01 UTC, all above `UNTIMED`, and which rows have one."""
    if column is not None and pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column is not None and pa.types.is_timestamp(column.type):
        values, valid = _integers(column)
        return np.maximum(_scaled(values, column.type.unit), UNTIMED + 1), valid
    if column is not None and pa.types.is_date(column.type):
        values, valid = _integers(column.cast(pa.date32()).cast(pa.int32()))
        return np.maximum(_scaled(values, "day"), UNTIMED + 1), valid
    if column is not None and _is_text(column.type):
        days, valid = _text_days(column)
        hashes = value_hashes(column) % np.uint64(MICROSECONDS_PER_DAY)
        return days * MICROSECONDS_PER_DAY + hashes.astype(np.int64), valid
    return np.zeros(rows, np.int64), np.zeros(rows, bool)


def _scaled(values: np.ndarray, unit: str) -> np.ndarray:
    """Microseconds; what an int64 cannot hold is far outside any window and keeps its side of it."""
    if unit == "us":
        return values
    if unit == "ns":
        return np.asarray(values // 1_000)
    factor = _MICROSECONDS[unit]
    most = _INT64.max // factor
    return np.asarray(np.clip(values, -most, most) * np.int64(factor))


def _is_numeric(kind: pa.DataType) -> bool:
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return bool(is_number or pa.types.is_timestamp(kind))


def _words(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The values as 64-bit words (timestamps in microseconds, whatever unit a file stores them in), and which rows have one."""
    if pa.types.is_floating(column.type):
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        numbers = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        # There are many NaNs, and who rewrites a file may write another one.
        return np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64), valid
    values, valid = _integers(column)
    if pa.types.is_timestamp(column.type):
        values = _scaled(values, column.type.unit)
    return values.astype(np.uint64), valid


def _integers(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Values as int64 (0 where null), and which rows have one."""
    numbers = column if pa.types.is_int64(column.type) else column.cast(pa.int64(), safe=False)
    if not numbers.null_count:
        return numbers.to_numpy(zero_copy_only=False), np.ones(len(numbers), bool)
    return numbers.fill_null(0).to_numpy(zero_copy_only=False), numbers.is_valid().to_numpy(zero_copy_only=False)


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
    hashes = mix(lengths.astype(np.uint64) ^ np.uint64(_SALT))
    rows = np.flatnonzero(lengths)
    done = 0
    while len(rows):
        left = np.minimum(lengths[rows] - done, _WORD_BYTES).astype(np.uint64)
        unused = (np.uint64(_WORD_BYTES) - left) * np.uint64(8)
        word = words[starts[rows] + done] << unused >> unused
        hashes[rows] = mix(hashes[rows] * np.uint64(3) ^ word)
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
