"""Which rows there are, one line per row, without the rows: what decides on them needs their identities alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

PLACE_BITS = 32
"""Of a place that tell the position within the file."""


@dataclass(frozen=True, slots=True)
class DayRows:
    """Rows of one source in order of file name and position; arrays of equal length.

    Attributes:
        keys: Sequence numbers (uint64); of a row without one, a hash of all it says. Rows that say the same have the same.
        tokens: What tells two uses of a number apart (int64), see the module `row_sets`.
        hashes: What a row was when it was written (uint64): a row that is changed afterwards has another.
        sequenced: Which rows have a sequence number (bool).
        places: Where a row lies (int64): which of the pin's files, shifted left by `PLACE_BITS`, and the position in it.
    """

    keys: np.ndarray
    tokens: np.ndarray
    hashes: np.ndarray
    sequenced: np.ndarray
    places: np.ndarray

    def __len__(self) -> int:
        """How many rows."""
        return len(self.keys)

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        """All rows of some parts, in order."""
        return cls(
            np.concatenate([np.empty(0, np.uint64), *(part.keys for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.tokens for part in parts)]),
            np.concatenate([np.empty(0, np.uint64), *(part.hashes for part in parts)]),
            np.concatenate([np.empty(0, bool), *(part.sequenced for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.places for part in parts)]),
        )

    def where(self, chosen: np.ndarray) -> "DayRows":
        """The rows that a mask or positions choose."""
        arrays = (self.keys, self.tokens, self.hashes, self.sequenced, self.places)
        return DayRows(*(array[chosen] for array in arrays))
