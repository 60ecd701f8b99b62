"""A pin, and how it came from the one before: chains and generations of its sources, remembered in the ledger.

Why every pin is compared with the last one, whoever made it: HypAware compacts every hour and forgets snapshots after a day, so
that only somebody who looks often can prove that a table is still the same. A tick that finds something new is that somebody.

Why what is remembered is read before the tables: whoever comes second then names what is no longer remembered, and looks again,
instead of taking the table it saw earlier for a restored one.

Why a generation is judged by a whole table: after a reset one day alone may happen to reuse no number of the old cache. It is
done only when a chain breaks.

Why a number is looked for in one generation only: a cache that was reset once uses all the numbers of the one before. If those
counted, every break of a chain would begin another generation, and with it another object of every day.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hypaware_pipeline.cache.chains import Link, Remembered, link
from hypaware_pipeline.errors import CursorSuperseded
from hypaware_pipeline.export.identity import new_generation
from hypaware_pipeline.ledger import Ledger, SourceChain
from hypaware_pipeline.ledger.schema import timestamp
from hypaware_pipeline.model import FIRST_GENERATION, UNSEQUENCED, Chain, DatasetName, Day, Fingerprint, Generation, SourceName
from hypaware_pipeline.row_sets import Rows, unpack

if TYPE_CHECKING:
    from hypaware_pipeline.cache.reader import Cache, DatasetPin
    from hypaware_pipeline.cache.snapshot import SourcePin

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Followed:
    """A pin, with the chain of each of its readable sources."""

    pin: "DatasetPin"
    chains: Mapping[SourceName, SourceChain]


def follow(cache: "Cache", ledger: Ledger, dataset: DatasetName, *, now: dt.datetime) -> Followed:
    """Pin a dataset and remember how its sources go on.

    Raises:
        CacheError: nothing of the dataset can be pinned.
        CursorSuperseded: others kept pinning it at the same moments.
        LedgerError: the ledger cannot be read or written.
    """
    for attempt in range(_ATTEMPTS):
        remembered = ledger.chains.of(dataset)
        pin = cache.pin(dataset)
        moved = _moved(pin, remembered, ledger, timestamp(now))
        chains = {source: moved.get(source) or remembered[source] for source in sorted(pin.sources)}
        if not moved:
            break
        try:
            ledger.chains.move(dataset, moved, unchanged=_unchanged(pin))
            break
        except CursorSuperseded:
            if attempt + 1 == _ATTEMPTS:
                raise
    return Followed(pin, chains)


def join(cache: "Cache", ledger: Ledger, dataset: DatasetName, *, now: dt.datetime) -> None:
    """Bring receipts that another ledger recorded to the chains of this one, on the days that are as they were exported.

    Until then nothing proves that the cache is the one they speak of, and what vanishes from it stays at the sinks.

    Raises:
        CacheError, CursorSuperseded, LedgerError: as for `follow`.
    """
    followed = follow(cache, ledger, dataset, now=now)
    chains = {source: each.chain for source, each in followed.chains.items()}
    ledger.chains.join(dataset, chains, unchanged=_unchanged(followed.pin))


def fingerprints(cache: "Cache", ledger: Ledger, dataset: DatasetName, *, now: dt.datetime) -> Callable[[Day], Fingerprint]:
    """What tells the fingerprint of any day of a dataset, on the chains that are remembered from here on.

    Raises:
        CacheError, CursorSuperseded, LedgerError: as for `follow`.
    """
    pin = follow(cache, ledger, dataset, now=now).pin
    return lambda day: pin.summary(day).fingerprint


def _unchanged(pin: "DatasetPin") -> Mapping[Day, Fingerprint]:
    return {day: summary.fingerprint for day, summary in pin.partitions().items()}


def _moved(
    pin: "DatasetPin", remembered: Mapping[SourceName, SourceChain], ledger: Ledger, now: str
) -> dict[SourceName, SourceChain]:
    """What there is to remember anew."""
    moved: dict[SourceName, SourceChain] = {}
    broken: dict[SourceName, Link] = {}
    for source in sorted(pin.sources):
        known, found = remembered.get(source), pin.source_pin(source)
        how = link(_as_remembered(known), found)
        if known is None or not how.proven or how is Link.FIRST:
            broken[source] = how
        elif (seen := _seen(known, found)) != known:
            moved[source] = seen
    if broken:
        generations = _generations(pin, broken, remembered, ledger)
        for source, how in broken.items():
            moved[source] = _begun(pin, source, how, generations[source], remembered.get(source), now)
    return moved


def _as_remembered(known: SourceChain | None) -> Remembered | None:
    if known is None:
        return None
    return Remembered(known.table_dir, known.table_uuid, known.snapshot_id, known.sequence_number)


def _seen(known: SourceChain, found: "SourcePin") -> SourceChain:
    """The same chain, with the snapshot that was found now."""
    return replace(
        known,
        table_dir=found.table_dir.name,
        table_uuid=found.table_uuid,
        snapshot_id=found.snapshot_id,
        sequence_number=found.sequence_number,
        cutoff_ms=max((ms for ms in (known.cutoff_ms, found.retention_cutoff_ms) if ms is not None), default=None),
    )


def _begun(
    pin: "DatasetPin", source: SourceName, how: Link, generation: Generation, known: SourceChain | None, now: str
) -> SourceChain:
    """A chain that begins with what was found now."""
    found = pin.source_pin(source)
    before = "" if known is None else known.chain
    chain = Chain(new_generation(before, pin.dataset.name, source, found.table_uuid, str(found.snapshot_id)))
    fresh = SourceChain(
        chain=chain,
        generation=generation,
        table_dir="",
        table_uuid="",
        snapshot_id=None,
        sequence_number=0,
        cutoff_ms=None if known is None else known.cutoff_ms,
        link=how.value,
        note=_note(how, known, found, generation),
        since=now,
        version=0 if known is None else known.version,
    )
    return _seen(fresh, found)


def _note(how: Link, known: SourceChain | None, found: "SourcePin", generation: Generation) -> str:
    """What a person should know of a chain that broke; empty for one that only begins."""
    if known is None:
        return ""
    new = f"; its rows are of generation {generation} now" if generation != known.generation else ""
    if how is Link.REWOUND:
        return (
            f"table '{found.table_dir.name}' went back from state {known.sequence_number} to {found.sequence_number}, as if an "
            f"older copy of the cache had been restored{new}"
        )
    return (
        f"another table ('{found.table_dir.name}') took the place of '{known.table_dir}', and nothing says that it was made from "
        f"it: the cache was reset or replaced, or compacted several times while nobody looked{new}"
    )


# --- generations ---------------------------------------------------------------------------------------------------------------


def _generations(
    pin: "DatasetPin", broken: Mapping[SourceName, Link], remembered: Mapping[SourceName, SourceChain], ledger: Ledger
) -> dict[SourceName, Generation]:
    """Of each source whose chain begins: the generation of those of its rows that nobody knows."""
    known = _known(ledger, pin.dataset.name)
    newest = max(remembered.values(), key=lambda chain: chain.since, default=None)
    usual = FIRST_GENERATION if newest is None else newest.generation
    tables = (f"{source} {pin.source_pin(source).table_uuid}" for source in broken)
    new = new_generation(pin.dataset.name, *sorted(known), *tables)
    return {source: _generation(pin, source, how, known, usual, new) for source, how in broken.items()}


def _generation(
    pin: "DatasetPin", source: SourceName, how: Link, known: Mapping[Generation, Rows], usual: Generation, new: Generation
) -> Generation:
    """The one that most of its rows are known in, else the usual one, if its other numbers are free there; else a new one."""
    if not known:
        return usual
    rows = pin.table_rows(source)
    keys, tokens = rows.keys[rows.sequenced], rows.tokens[rows.sequenced]
    here = {generation: each.find(keys, tokens)[0] for generation, each in known.items()}
    most = max(here, key=lambda generation: (int(here[generation].sum()), generation))
    if not here[most].any() and how is not Link.FIRST:
        return new
    chosen = most if here[most].any() else usual
    unknown = ~np.logical_or.reduce(list(here.values()))
    _, taken = known.get(chosen, Rows.none()).find(keys, tokens)
    return new if (taken & unknown).any() else chosen


def _known(ledger: Ledger, dataset: DatasetName) -> dict[Generation, Rows]:
    """Every row of a dataset that any sink has, parked or withholds, by generation.

    One day may use a number that another day uses as well; then either stands for it.
    """
    parts: dict[Generation, list[Rows]] = {}
    for stored in ledger.row_sets(dataset):
        if stored.generation != UNSEQUENCED:
            parts.setdefault(stored.generation, []).append(unpack(stored.row_set))
    return {generation: Rows.together(rows) for generation, rows in parts.items()}
