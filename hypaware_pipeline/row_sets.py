"""Which row is which, and sets of them in few bytes.

Why a sequence number alone is no identity: a reset cache counts from one again, and one whose counter was lost uses its numbers
twice. With it goes a token, the row's own moment: a number used for another row carries another token.

Why the token is the primary timestamp and not a hash of the row: settlement changes a row's content, and it is the same row
still. Without a timestamp all it says has to serve; what HypAware settles has one.

Why a token also tells the raw day: a row never changes its home day but by the calendar, so that whoever knows the token knows
where to look for it.

Why tokens are stored as differences, byte by byte: neighbours in sequence were recorded one after the other, and most of what
their moments have to say is zeros.
"""

import array
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from pyroaring import BitMap64

from hypaware_pipeline.model import RowSet

NO_DAY = int(np.iinfo(np.int32).min)
"""The raw day (days since 1970-01-01) of a row without a usable primary timestamp."""

MICROSECONDS_PER_DAY = 86_400_000_000
UNTIMED = np.int64(-(1 << 62))
"""Tokens below belong to rows without a usable timestamp."""

_ZLIB_LEVEL = 3


@dataclass(frozen=True, slots=True)
class Rows:
    """Identities of rows that have different keys: `keys` (uint64, ascending) and the `tokens` (int64) beside them."""

    keys: np.ndarray
    tokens: np.ndarray

    @classmethod
    def of(cls, keys: np.ndarray, tokens: np.ndarray) -> Self:
        """The same in order; keys must differ from each other."""
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], tokens[order])

    @classmethod
    def none(cls) -> Self:
        """No rows."""
        return cls(np.empty(0, np.uint64), np.empty(0, np.int64))

    @classmethod
    def together(cls, parts: "Iterable[Rows]") -> Self:
        """All of some sets of one generation; a row that is in several counts once."""
        parts = [part for part in parts if len(part)]
        if len(parts) < 2:
            return cls(parts[0].keys, parts[0].tokens) if parts else cls.none()
        keys, first = np.unique(np.concatenate([part.keys for part in parts]), return_index=True)
        return cls(keys, np.concatenate([part.tokens for part in parts])[first])

    @classmethod
    def layers(cls, keys: np.ndarray, tokens: np.ndarray) -> "list[Rows]":
        """All of some rows, as sets in each of which every key is used once."""
        layers = []
        while len(keys):
            distinct, first = np.unique(keys, return_index=True)
            layers.append(cls(distinct, tokens[first]))
            rest = np.delete(np.arange(len(keys)), first)
            keys, tokens = keys[rest], tokens[rest]
        return layers

    def __len__(self) -> int:
        """How many rows."""
        return len(self.keys)

    def find(self, keys: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Per row asked for: whether it is here, and whether its key is taken, by it or by another row."""
        if not len(self.keys):
            return np.zeros(len(keys), bool), np.zeros(len(keys), bool)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        taken = self.keys[at] == keys
        return taken & (self.tokens[at] == tokens), taken

    def without(self, other: "Rows") -> "Rows":
        """The rows that are not in `other`."""
        here, _ = other.find(self.keys, self.tokens)
        return Rows(self.keys[~here], self.tokens[~here])


def raw_days_of(tokens: np.ndarray) -> np.ndarray:
    """The raw day (int32) that each token tells; `NO_DAY` where it tells none."""
    days = np.clip(tokens // MICROSECONDS_PER_DAY, NO_DAY + 1, np.iinfo(np.int32).max)
    return np.where(tokens < UNTIMED, NO_DAY, days).astype(np.int32)


def pack(rows: Rows) -> RowSet:
    """A set of rows in few bytes; the same rows always give the same bytes."""
    bitmap = BitMap64(array.array("Q", rows.keys.astype("=u8").tobytes()))
    bitmap.run_optimize()
    differences = np.diff(rows.tokens, prepend=np.int64(0)).astype("<i8")
    shuffled = np.ascontiguousarray(differences.view(np.uint8).reshape(-1, 8).T)
    return RowSet(len(rows), bitmap.serialize(), zlib.compress(shuffled.tobytes(), _ZLIB_LEVEL))


def unpack(row_set: RowSet) -> Rows:
    """The rows of a set.

    Raises:
        ValueError: it is damaged.
    """
    try:
        bitmap = BitMap64.deserialize(row_set.keys)
        keys = np.frombuffer(bitmap.to_array(), np.uint64) if bitmap else np.empty(0, np.uint64)
        shuffled = np.frombuffer(zlib.decompress(row_set.tokens), np.uint8).reshape(8, -1)
    except (ValueError, IndexError, zlib.error, MemoryError) as error:
        raise ValueError(f"a row set of {row_set.rows} rows is damaged ({error})") from None
    tokens = np.cumsum(np.ascontiguousarray(shuffled.T).view("<i8").ravel().astype(np.int64))
    if not len(keys) == len(tokens) == row_set.rows:
        raise ValueError(f"a row set says {row_set.rows} rows and holds {len(keys)} keys and {len(tokens)} tokens")
    return Rows(keys, tokens)
