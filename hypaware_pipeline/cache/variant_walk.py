"""Many VARIANT values walked at once, to find those a bulk decoder must not see.

Why a walk: a damaged value can claim an array of billions, and DuckDB reserves memory for all of them before it looks whether
they are there. Only the structure tells such a claim from bytes of a number or a text that look like one.

Why level by level: numpy looks at one level of all values in one go, which costs a tenth of decoding them. What nests deeper
than the walk goes, or visits more places than it has bytes, is simply named too.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_LEVELS = 64
_OBJECT, _ARRAY = 2, 3
_BINARY_HEADER = 15 << 2

Positions = npt.NDArray[np.int64]


def not_for_bulk(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Where a value is not sound enough to be decoded in bulk, or holds binary, which bulk decoding prints in its own way.

    Args:
        values: Binary array without nulls.
    """
    if not len(values):
        return np.zeros(0, dtype=bool)
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
    # A few spare bytes let every read of a count or an offset run past the last value without a check of its own.
    data = np.append(np.frombuffer(values.buffers()[2] or b"", np.uint8)[: offsets[-1]], np.zeros(8, np.uint8))
    ends = offsets[1:]
    named = np.zeros(len(values), dtype=bool)
    at, owner = offsets[:-1], np.arange(len(values))
    visits = 0
    for _ in range(_LEVELS):
        visits += len(at)
        if not len(at) or visits > len(data):
            break
        outside = at >= ends[owner]
        named[owner[outside]] = True
        at, owner = at[~outside], owner[~outside]
        header = data[at]
        named[owner[header == _BINARY_HEADER]] = True
        inner = (header & 0b11) >= _OBJECT
        at, owner = _children(data, at[inner], owner[inner], ends, named)
    named[owner] = True
    return named


def _children(
    data: npt.NDArray[np.uint8], at: Positions, owner: Positions, ends: Positions, named: npt.NDArray[np.bool_]
) -> tuple[Positions, Positions]:
    """Places and owners of what objects and arrays contain; an owner whose container does not fit is named."""
    bits = (data[at] >> 2).astype(np.int64)
    is_object = (data[at] & 0b11) == _OBJECT
    offset_size = (bits & 0b11) + 1
    id_size = np.where(is_object, (bits >> 2 & 0b11) + 1, 0)
    count_size = np.where(np.where(is_object, bits >> 4, bits >> 2) & 1, 4, 1)
    count = _unsigned(data, at + 1, count_size)
    offsets_at = at + 1 + count_size + count * id_size
    values_at = offsets_at + (count + 1) * offset_size
    fits = values_at <= ends[owner]
    named[owner[~fits]] = True
    count, offsets_at, values_at, offset_size, owner = (
        array[fits] for array in (count, offsets_at, values_at, offset_size, owner)
    )
    parent = np.repeat(np.arange(len(count)), count)
    nth = np.arange(len(parent)) - np.repeat(np.cumsum(count) - count, count)
    offset = _unsigned(data, offsets_at[parent] + nth * offset_size[parent], offset_size[parent])
    return values_at[parent] + offset, owner[parent]


def _unsigned(data: npt.NDArray[np.uint8], at: Positions, size: Positions) -> Positions:
    """Little-endian integers of 1 to 4 bytes."""
    at = np.minimum(at, len(data) - 4)
    number = np.zeros(len(at), np.int64)
    for byte in range(4):
        number |= np.where(size > byte, data[at + byte].astype(np.int64) << (8 * byte), 0)
    return number
