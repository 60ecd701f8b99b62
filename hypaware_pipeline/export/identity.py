"""Which generation each row of a day belongs to.

Why only rows of the same day are compared: a token tells the day, so that a number used again on another day cannot be mistaken.
Within a day every key is used once per generation, whatever the cache went through.

Why a row that nobody knows takes its source's generation unless its number is taken: on an unbroken chain a number is used again
only when HypAware lost its counter, and then the rows that use it first must be told from those that use it now.

Why rows without a number are counted and not only hashed: two that are alike in everything are two rows. The second of them has a
key of its own, whichever of the two it is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from hypaware_pipeline.model import UNSEQUENCED, Generation, SourceName
from hypaware_pipeline.row_sets import Rows

if TYPE_CHECKING:
    from hypaware_pipeline.cache.day_rows import DayRows

_GENERATION_BYTES = 4
_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Identified:
    """Rows of one source, in the order of its `DayRows`.

    Attributes:
        keys: uint64; different from each other within a generation, over all sources.
        tokens: int64.
        labels: int; which of `generations` each row belongs to.
        generations: What the labels stand for.
    """

    keys: np.ndarray
    tokens: np.ndarray
    labels: np.ndarray
    generations: tuple[Generation, ...]

    def by_generation(self) -> Iterator[tuple[Generation, np.ndarray]]:
        """Every generation that has rows, with the mask of them."""
        for label, generation in enumerate(self.generations):
            mask = self.labels == label
            if mask.any():
                yield generation, mask

    def rows(self, mask: np.ndarray) -> Rows:
        """The identities of the rows of a mask, which are of one generation."""
        return Rows.of(self.keys[mask], self.tokens[mask])


def identify(
    rows: "Mapping[SourceName, DayRows]", known: Mapping[Generation, Rows], current: Mapping[SourceName, Generation]
) -> dict[SourceName, Identified]:
    """Give every row of a day its generation.

    Args:
        rows: All of the day, by source.
        known: What a sink has, parked or withholds of the day, by generation.
        current: The generation of rows that nobody knows, by source.
    """
    sources = sorted(rows)
    if not sources:
        return {}
    keys = _joined([rows[source].keys for source in sources])
    tokens = _joined([rows[source].tokens for source in sources])
    sequenced = _joined([rows[source].sequenced for source in sources])
    generations = list(dict.fromkeys([UNSEQUENCED, *sorted(known), *(current[source] for source in sources)]))
    labels = np.where(sequenced, np.int16(-1), np.int16(0))
    keys = keys if sequenced.all() else np.where(sequenced, keys, _told_apart(keys, ~sequenced))
    for label, generation in enumerate(generations):
        if label and generation in known:
            here, _ = known[generation].find(keys, tokens)
            _label(labels, keys, np.flatnonzero(here & (labels < 0)), label)
    borders = np.cumsum([0, *(len(rows[source].keys) for source in sources)])
    for source, first, last in zip(sources, borders, borders[1:], strict=False):
        _place_unknown(labels, keys, slice(int(first), int(last)), known, generations, current[source])
    return {
        source: Identified(keys[first:last], tokens[first:last], labels[first:last], tuple(generations))
        for source, first, last in zip(sources, borders, borders[1:], strict=False)
    }


def next_generation(generation: Generation) -> Generation:
    """The generation of rows whose numbers are taken in this one; the same wherever it is asked."""
    return Generation(blake2b(generation.encode(), digest_size=_GENERATION_BYTES).hexdigest())


def new_generation(*of: str) -> Generation:
    """A generation that begins now, named by what tells it from every other."""
    return Generation(blake2b("\n".join(of).encode("utf-8", "backslashreplace"), digest_size=_GENERATION_BYTES).hexdigest())


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """All of some arrays; a single one as it is, since a day may have millions of rows."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _place_unknown(
    labels: np.ndarray,
    keys: np.ndarray,
    own: slice,
    known: Mapping[Generation, Rows],
    generations: list[Generation],
    generation: Generation,
) -> None:
    """Label the rows of one source that still have none: by the first generation from `generation` on with room for them."""
    while len(left := own.start + np.flatnonzero(labels[own] < 0)):
        if generation not in generations:
            generations.append(generation)
        label = generations.index(generation)
        _, taken = known.get(generation, Rows.none()).find(keys[left], np.zeros(len(left), np.int64))
        taken |= np.isin(keys[left], keys[labels == label])
        _label(labels, keys, left[~taken], label)
        generation = next_generation(generation)


def _label(labels: np.ndarray, keys: np.ndarray, rows: np.ndarray, label: int) -> None:
    """Label rows; of those with the same key the first."""
    _, first = np.unique(keys[rows], return_index=True)
    labels[rows[first]] = label


def _told_apart(keys: np.ndarray, which: np.ndarray) -> np.ndarray:
    """The same keys, the second and later occurrence of each among `which` replaced by a key of its own."""
    rows = np.flatnonzero(which)
    if not len(rows):
        return keys
    order = np.argsort(keys[rows], kind="stable")
    ordered = keys[rows][order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    occurrence = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.append(starts, len(ordered))))
    apart = keys.copy()
    apart[rows[order]] = _mixed(ordered + occurrence.astype(np.uint64) * _ODD, occurrence)
    return apart


def _mixed(keys: np.ndarray, occurrence: np.ndarray) -> np.ndarray:
    mixed = (keys ^ (keys >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.where(occurrence == 0, keys, mixed ^ (mixed >> np.uint64(32)))
