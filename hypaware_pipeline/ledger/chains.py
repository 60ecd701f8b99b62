"""The last snapshot seen of each source, and the chain it stands on.

Why what was seen is replaced only by who names what stood: two processes may pin the same cache at different moments, and the one
that saw the older snapshot must not make it the last.

Why days move to a new chain when it begins: the cache holds exactly the rows they were exported with, so that whatever broke the
chain did not touch them. A day with rows that the cache does not have stays on the chain on which it had them.

Why retention's cut-off never goes down: a cache that was restored has an older one, and what retention once removed stays
removed by it.

Why only days of which an export said what vanished can be accepted, and only if they lost nothing since: whoever accepts was
shown that, and what goes may be nowhere else. A day that no export came to yet may have lost anything.

Why accepting makes a new version of each receipt it touches: an export that runs meanwhile judged by what was not accepted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import sqlalchemy as sa

from hypaware_pipeline.errors import CursorSuperseded
from hypaware_pipeline.ledger import tables
from hypaware_pipeline.ledger.planning import forget_plan
from hypaware_pipeline.ledger.stored_sets import EXPORTED
from hypaware_pipeline.ledger.text import storable
from hypaware_pipeline.ledger.transactions import Transactions, matches, upsert
from hypaware_pipeline.model import Chain, DatasetName, Day, Fingerprint, Generation, Kept, SinkName, SourceName


@dataclass(frozen=True, slots=True)
class SourceChain:
    """Where a source's chain has come to.

    Attributes:
        chain: Its identity.
        generation: Of rows that are new on it.
        table_dir: Name of the table directory seen last.
        table_uuid: Of that table.
        snapshot_id: The snapshot seen last; None of a table without one.
        sequence_number: Of that snapshot.
        cutoff_ms: The highest retention cut-off ever seen (UTC, epoch milliseconds); None if there was none.
        link: How the chain began.
        note: What a person should know of that; empty if there is nothing.
        since: When the chain began (UTC, ISO-8601).
        version: What a successor has to name; 0 for the first.
    """

    chain: Chain
    generation: Generation
    table_dir: str
    table_uuid: str
    snapshot_id: int | None
    sequence_number: int
    cutoff_ms: int | None
    link: str
    note: str
    since: str
    version: int


@dataclass(frozen=True, slots=True)
class Unproven:
    """What of a (sink, dataset) the cache has no more, without proof that it removed it: so many days, rows in them."""

    days: int
    rows: int


class Chains:
    """The part of a ledger that keeps these."""

    def __init__(self, transactions: Transactions) -> None:
        self._in = transactions

    def of(self, dataset: DatasetName) -> Mapping[SourceName, SourceChain]:
        """The chains of a dataset's sources, those that are gone too."""
        with self._in.reading() as connection:
            return _standing(connection, dataset)

    def all(self) -> Mapping[tuple[DatasetName, SourceName], SourceChain]:
        """All chains."""
        c = tables.source_chains.c
        with self._in.reading() as connection:
            rows = connection.execute(sa.select(tables.source_chains).order_by(c.dataset, c.source)).all()
        return {(DatasetName(row.dataset), SourceName(row.source)): _chain(row) for row in rows}

    def move(
        self, dataset: DatasetName, moved: Mapping[SourceName, SourceChain], *, unchanged: Mapping[Day, Fingerprint]
    ) -> None:
        """Remember what was seen of some sources.

        Args:
            dataset: Theirs.
            moved: What each is to stand at; its `version` is the one that stands now, 0 where there is none.
            unchanged: What every day of the dataset was in the cache at the same moment. Where a source's chain is another than
                before, what was exported of it comes along on the days whose receipt has this fingerprint and keeps no rows.

        Raises:
            CursorSuperseded: another process remembered something else of one of them by now. Nothing was written.
        """
        with self._in.writing() as connection:
            standing = _standing(connection, dataset)
            for source, chain in moved.items():
                self._ensure_version(dataset, source, chain, standing.get(source))
            begun = {source: new.chain for source, new in moved.items() if not _goes_on(standing.get(source), new)}
            _bring_along(connection, dataset, begun, unchanged)
            for source, chain in moved.items():
                key = {"dataset": dataset, "source": source}
                upsert(connection, tables.source_chains, key, _values(chain, standing.get(source)))

    def _ensure_version(self, dataset: DatasetName, source: SourceName, chain: SourceChain, standing: SourceChain | None) -> None:
        if chain.version != (0 if standing is None else standing.version):
            raise CursorSuperseded(
                f"ledger {self._in.place}: source '{source}' of dataset '{dataset}' was looked at by another process at the same "
                "time; nothing of this look was recorded. Try again"
            )

    def join(self, dataset: DatasetName, chains: Mapping[SourceName, Chain], *, unchanged: Mapping[Day, Fingerprint]) -> None:
        """Bring receipts that were recorded for another ledger to the chains of this one.

        Args:
            dataset: Theirs.
            chains: On which each source was seen; a source that is on another by now is passed over.
            unchanged: As for `move`, at that moment.
        """
        with self._in.writing() as connection:
            standing = _standing(connection, dataset)
            same = {source: chain for source, chain in chains.items() if source in standing and standing[source].chain == chain}
            _bring_along(connection, dataset, same, unchanged)

    def preview(self, sink: SinkName, dataset: DatasetName | None = None) -> Mapping[DatasetName, Unproven]:
        """What `accept` would let go of, by dataset; those without anything are absent."""
        with self._in.reading() as connection:
            return _vanished(connection, _of(sink, dataset))

    def accept(
        self,
        sink: SinkName,
        shown: Mapping[DatasetName, Unproven],
        *,
        now: Mapping[DatasetName, Callable[[Day], Fingerprint | None]],
    ) -> int:
        """Accept what `preview` gave: these days count as exported from the cache that they were compared with last.

        What vanished may go then, and they are due at once.

        Args:
            sink: Which sink.
            shown: What somebody saw before they accepted.
            now: Tells what a day of each of these datasets is in the cache.

        Returns how many days were accepted. The others lost more since they were compared, as far as anybody knows; the next
        export says what.

        Raises:
            CursorSuperseded: other rows than those that were shown vanished by now. Nothing was accepted.
        """
        accepted = 0
        with self._in.writing() as connection:
            for name, each in shown.items():
                of = _of(sink, name)
                if _vanished(connection, of) != {name: each}:
                    raise CursorSuperseded(
                        f"ledger {self._in.place}: an export to {sink} found meanwhile that other rows of {name} vanished "
                        "than was said; nothing was accepted. Look at it again"
                    )
                accepted += _bring_unproven(connection, of, now[name])
                values = {"kept": Kept.ACCEPTED.value, "version": forget_plan(connection, sink, name)}
                connection.execute(tables.receipts.update().where(_unproven(of)).values(values))
        return accepted


def _standing(connection: sa.Connection, dataset: DatasetName) -> dict[SourceName, SourceChain]:
    query = sa.select(tables.source_chains).where(tables.source_chains.c.dataset == dataset)
    return {SourceName(row.source): _chain(row) for row in connection.execute(query)}


def _chain(row: sa.Row[Any]) -> SourceChain:
    return SourceChain(**{field.name: getattr(row, field.name) for field in fields(SourceChain)})


def _values(chain: SourceChain, standing: SourceChain | None) -> dict[str, Any]:
    values = {field.name: getattr(chain, field.name) for field in fields(SourceChain)}
    seen = (chain.cutoff_ms, None if standing is None else standing.cutoff_ms)
    cutoff_ms = max((each for each in seen if each is not None), default=None)
    return {**values, "note": storable(chain.note), "cutoff_ms": cutoff_ms, "version": chain.version + 1}


def _goes_on(standing: SourceChain | None, new: SourceChain) -> bool:
    return standing is not None and standing.chain == new.chain


def _bring_along(
    connection: sa.Connection, dataset: DatasetName, begun: Mapping[SourceName, Chain], unchanged: Mapping[Day, Fingerprint]
) -> None:
    """Bring to their new chains what was exported of sources, on the days that are as they were."""
    if not begun:
        return
    c = tables.receipts.c
    query = sa.select(c.sink, c.day, c.fingerprint).where(c.dataset == dataset, c.kept_rows == 0)
    places = [
        {"on_sink": sink, "on_day": day, "of_source": source, "to_chain": chain}
        for sink, day, fingerprint in connection.execute(query)
        if unchanged.get(day) == fingerprint
        for source, chain in begun.items()
    ]
    if places:
        c = tables.row_sets.c
        which = (c.sink == sa.bindparam("on_sink"), c.day == sa.bindparam("on_day"), c.source == sa.bindparam("of_source"))
        update = tables.row_sets.update().where(c.dataset == dataset, c.kind == EXPORTED, *which)
        connection.execute(update.values(chain=sa.bindparam("to_chain")), places)


def _bring_unproven(connection: sa.Connection, of: Mapping[str, str], now: Callable[[Day], Fingerprint | None]) -> int:
    """Bring unproven days to the chains of now, if they were compared with these or are as they were then; returns how many."""
    c, chains, receipts = tables.row_sets.c, tables.source_chains.c, tables.receipts.c
    begun = max((chain.since for chain in _standing(connection, DatasetName(of["dataset"])).values()), default="")
    query = sa.select(receipts.day, receipts.fingerprint, receipts.exported_at).where(_unproven(of))
    days = [day for day, fingerprint, exported_at in connection.execute(query) if now(day) == fingerprint or begun <= exported_at]
    chain = sa.select(chains.chain).where(chains.dataset == c.dataset, chains.source == c.source).scalar_subquery()
    which = (matches(tables.row_sets, of), c.kind == EXPORTED, c.day == sa.bindparam("on_day"), chain.is_not(None))
    if days:
        update = tables.row_sets.update().where(*which).values(chain=chain)
        connection.execute(update, [{"on_day": day} for day in days])
    return len(days)


def _vanished(connection: sa.Connection, of: Mapping[str, str]) -> dict[DatasetName, Unproven]:
    c = tables.receipts.c
    query = sa.select(c.dataset, sa.func.count(), sa.func.sum(c.kept_rows)).where(_unproven(of))
    found = connection.execute(query.group_by(c.dataset).order_by(c.dataset)).all()
    return {DatasetName(name): Unproven(days, int(rows)) for name, days, rows in found}


def _unproven(of: Mapping[str, str]) -> sa.ColumnElement[bool]:
    return sa.and_(matches(tables.receipts, of), tables.receipts.c.kept == Kept.UNPROVEN.value)


def _of(sink: SinkName, dataset: DatasetName | None) -> dict[str, str]:
    return {"sink": sink} if dataset is None else {"sink": sink, "dataset": dataset}
