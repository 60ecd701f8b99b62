"""Many VARIANT values walked at once, to learn what their bulk decoding would get wrong.

Why a walk: a damaged value can claim an array of billions, and DuckDB reserves memory for all of them before it looks whether
they are there. Only the structure tells such a claim from bytes of a number or a text that look like one. And DuckDB prints a
few kinds of numbers otherwise than JavaScript: looking at their types costs a third of searching the printed text for them.

Why level by level: numpy looks at one level of all values in one go, which costs a tenth of decoding them. What nests deeper
than the walk goes, or visits more places than it has bytes, is simply named too.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_LEVELS = 64
_SPARE_BYTES = 8
_PRIMITIVE, _SHORT_STRING, _OBJECT, _ARRAY = range(4)
_NULL, _TRUE, _FALSE, _INT8, _INT16, _INT32, _INT64, _DOUBLE = range(8)
_STRING = 16
_LONG_STRING_HEADER = _STRING << 2

_LARGEST_SAFE_INTEGER = 2**53 - 1
_SMALLEST_PLAIN_DOUBLE, _LARGEST_PLAIN_DOUBLE = 1e-4, 1e15
"""Between these, DuckDB prints a double's shortest digits without an exponent, as JavaScript does."""

_PRINTED_ALIKE = np.zeros(64, np.bool_)
_PRINTED_ALIKE[[_NULL, _TRUE, _FALSE, _INT8, _INT16, _INT32, _INT64, _DOUBLE, _STRING]] = True

Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found in each of some values.

    Attributes:
        exact: Must be rendered exactly: not sound enough for bulk decoding, or holds something that prints in another way.
        integral: Holds an integral double, which bulk decoding prints as `5.0`.
        text_start: Where the text begins, in a value that is a string as a whole; 0 in all others.
    """

    exact: Flags
    integral: Flags
    text_start: npt.NDArray[np.int64]


def survey(values: pa.Array) -> Survey:
    """Walk some values.

    Args:
        values: Binary array without nulls.
    """
    exact, integral = np.zeros(len(values), np.bool_), np.zeros(len(values), np.bool_)
    if not len(values):
        return Survey(exact, integral, np.zeros(0, np.int64))
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
    # A few spare bytes let every read of a count, an offset or a number run past the last value without a check of its own.
    data = np.append(np.frombuffer(values.buffers()[2] or b"", np.uint8)[: offsets[-1]], np.zeros(_SPARE_BYTES, np.uint8))
    ends = offsets[1:]
    at, owner = offsets[:-1], np.arange(len(values))
    visits = 0
    for _ in range(_LEVELS):
        visits += len(at)
        if not len(at) or visits > len(data):
            break
        outside = at >= ends[owner]
        if outside.any():
            exact[owner[outside]] = True
            at, owner = at[~outside], owner[~outside]
        header = data[at]
        basic, kind = header & 0b11, header >> 2
        primitive = basic == _PRIMITIVE
        exact[owner[primitive & ~_PRINTED_ALIKE[kind]]] = True
        _judge_numbers(data, at, owner, np.where(primitive, kind, _NULL), exact, integral)
        inner = basic >= _OBJECT
        at, owner = _children(data, at[inner], owner[inner], ends, exact)
    exact[owner] = True
    return Survey(exact, integral, _text_starts(data, offsets))


def _judge_numbers(
    data: npt.NDArray[np.uint8], at: Positions, owner: Positions, kind: npt.NDArray[np.uint8], exact: Flags, integral: Flags
) -> None:
    """Flag the owners of numbers that bulk decoding prints otherwise than JavaScript."""
    whole = kind == _INT64
    if whole.any():
        numbers = _eight_bytes(data, at[whole]).view(np.int64)
        exact[owner[whole][(numbers > _LARGEST_SAFE_INTEGER) | (numbers < -_LARGEST_SAFE_INTEGER)]] = True
    double = kind == _DOUBLE
    if double.any():
        numbers, owners = _eight_bytes(data, at[double]).view(np.float64), owner[double]
        size = np.abs(numbers)
        plain = (size >= _SMALLEST_PLAIN_DOUBLE) & (size < _LARGEST_PLAIN_DOUBLE) | (numbers.view(np.int64) == 0)
        exact[owners[~plain]] = True
        integral[owners[plain][np.floor(numbers[plain]) == numbers[plain]]] = True


def _eight_bytes(data: npt.NDArray[np.uint8], at: Positions) -> npt.NDArray[np.uint8]:
    """The eight bytes behind each header, one number after the other."""
    return np.asarray(data[at[:, np.newaxis] + np.arange(1, 9)]).reshape(-1)


def _text_starts(data: npt.NDArray[np.uint8], offsets: Positions) -> npt.NDArray[np.int64]:
    """Where the text of each value begins; 0 where the value is no string, or claims another length than it has."""
    at, length = offsets[:-1], np.diff(offsets)
    header = data[at]
    short = ((header & 0b11) == _SHORT_STRING) & ((header >> 2) == length - 1)
    long = (header == _LONG_STRING_HEADER) & (length > 4)
    starts = np.where(short, 1, 0)
    if long.any():
        claimed = _unsigned(data, at[long] + 1, np.full(int(long.sum()), 4))
        starts[long] = np.where(claimed == length[long] - 5, 5, 0)
    return starts


def _children(
    data: npt.NDArray[np.uint8], at: Positions, owner: Positions, ends: Positions, named: Flags
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
    words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))  # the word that begins at each byte
    unused = 32 - 8 * size
    return np.asarray(words[np.minimum(at, len(words) - 1)].astype(np.int64) << unused & 0xFFFFFFFF) >> unused
