"""How one look at a cache comes from the one before: chains and generations that a ledger remembers, on real caches."""

import datetime as dt
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from hypaware_pipeline.cache.reader import Cache, DatasetPin
from hypaware_pipeline.demo import mishaps
from hypaware_pipeline.errors import CursorSuperseded
from hypaware_pipeline.export.lineage import follow, join
from hypaware_pipeline.ledger import Ledger, SourceChain
from hypaware_pipeline.model import FIRST_GENERATION, Chain, DatasetName, Day, Kept, Receipt, SinkName, SourceName
from tests.builders import CacheBuilder, a_cache, a_log
from tests.installations import JSONL, NOW, AnInstallation

LOGS, UNKNOWN, OTHER, FEED = DatasetName("logs"), SourceName("unknown"), SourceName("other"), SinkName("feed")
DAYS = ["2026-06-05", "2026-06-06"]


class Seen:
    """A cache as a ledger sees it come along."""

    def __init__(self, cache: CacheBuilder, home: Path) -> None:
        self.cache = cache
        self.home = home
        self.installation = AnInstallation(home, cache.root, sinks={"feed": {**JSONL, "config": {"dir": "out/feed"}}})

    def look(self, source: SourceName = UNKNOWN) -> SourceChain:
        """Where the chain of a source has come to."""
        with self.ledger() as ledger:
            return follow(self.reader(), ledger, LOGS, now=NOW).chains[source]

    def ledger(self) -> Ledger:
        return self.installation.installation.open_ledger()

    def reader(self) -> Cache:
        return self.installation.installation.cache()

    def remembered(self) -> SourceChain:
        with self.ledger() as ledger:
            return ledger.chains.of(LOGS)[UNKNOWN]

    def receipts(self) -> dict[str, Receipt]:
        with self.ledger() as ledger:
            return {str(day): receipt for day, receipt in ledger.receipts(FEED, LOGS).items()}

    def chains(self) -> dict[str, Chain]:
        """On which chain the object of each day is."""
        return {day: file.chain for day, receipt in self.receipts().items() for file in receipt.files}

    def reset(self) -> None:
        """The cache is wiped; other rows get the numbers of the first."""
        mishaps.wipe(self.cache.root)
        self.cache = a_cache(self.cache.root, seed=3).with_rows("logs", [a_log(DAYS[0], 1000 + at) for at in range(4)])


@pytest.fixture
def seen(cache: CacheBuilder, home: Path) -> Seen:
    for day in DAYS:
        cache.with_day(day)
    return Seen(cache, home)


def flush(cache: CacheBuilder) -> None:
    cache.with_day(DAYS[0])


def purge(cache: CacheBuilder) -> None:
    cache.writer.delete("logs", "unknown", pc.field("serviceName") == "web")


def compact(cache: CacheBuilder) -> None:
    cache.writer.compact("logs", "unknown")


def expire(cache: CacheBuilder) -> None:
    for _ in range(3):
        flush(cache)
    cache.writer.expire_snapshots("logs", "unknown", keep=1)


def lose_the_counter(cache: CacheBuilder) -> None:
    mishaps.lose_sequence(cache.root)
    cache.another_writer().append("logs", "unknown", [a_log(DAYS[0], 5000)])


# --- a chain goes on ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("happens", [flush, purge, compact, expire, lose_the_counter])
def test_a_chain_goes_on_through_all_that_hypaware_does(seen: Seen, happens: Callable[[CacheBuilder], None]) -> None:
    first = seen.look()
    seen.installation.export()
    happens(seen.cache)
    again = seen.look()
    assert (again.chain, again.generation, again.note) == (first.chain, FIRST_GENERATION, "")
    assert again.snapshot_id != first.snapshot_id
    assert seen.remembered().snapshot_id == again.snapshot_id


def test_many_compactions_are_one_chain_for_who_sees_each(seen: Seen) -> None:
    chains = set()
    for _ in range(3):
        compact(seen.cache)
        chains.add(seen.look().chain)
    assert len(chains) == 1


def test_a_look_that_finds_nothing_new_writes_nothing(seen: Seen) -> None:
    seen.look()
    version = seen.remembered().version
    assert seen.look() == seen.remembered()
    assert seen.remembered().version == version


# --- a chain breaks -------------------------------------------------------------------------------------------------------------


def test_a_reset_cache_whose_numbers_are_used_again_begins_a_chain_and_a_generation(seen: Seen) -> None:
    """Rows of the new cache were taken for those of the old one that had their numbers, and never exported."""
    first = seen.look()
    seen.installation.export()
    seen.reset()
    again = seen.look()
    assert again.chain != first.chain
    assert again.generation not in ("", FIRST_GENERATION)
    assert again.link == "replaced"
    assert f"its rows are of generation {again.generation} now" in again.note
    assert seen.look() == seen.remembered(), "and it goes on from there"


def test_a_reset_cache_that_uses_no_number_again_begins_a_generation_all_the_same(seen: Seen) -> None:
    """It will: a later row was taken for an exported one."""
    seen.installation.export()
    mishaps.wipe(seen.cache.root)
    a_cache(seen.cache.root, seed=3).with_rows("logs", [a_log(DAYS[0], 1000)], sequence=[1000])
    assert seen.look().generation != FIRST_GENERATION


def test_a_reset_cache_of_which_nothing_was_exported_needs_no_generation(seen: Seen) -> None:
    first = seen.look()
    seen.reset()
    again = seen.look()
    assert (again.chain != first.chain, again.generation) == (True, FIRST_GENERATION)


@pytest.mark.parametrize("exported", [False, True])
def test_a_source_that_comes_later_is_of_the_generation_that_is_written_now(seen: Seen, exported: bool) -> None:
    """Its numbers are those of rows of the old cache, whose generation is not in question."""
    seen.installation.export()
    seen.reset()
    generation = seen.look().generation
    if exported:
        seen.installation.export()
    seen.cache.with_day(DAYS[1], source="other")
    assert seen.look(OTHER).generation == generation
    assert seen.look(OTHER).note == ""


def test_a_chain_that_breaks_later_stays_in_the_generation_its_rows_are_of(seen: Seen) -> None:
    """Every pair of compactions unseen began another generation, and with it another object of every day."""
    seen.installation.export()
    seen.reset()
    seen.installation.export()
    before = seen.remembered()
    seen.cache.with_day(DAYS[1])
    compact(seen.cache)
    compact(seen.cache)
    again = seen.look()
    assert (again.chain != before.chain, again.generation) == (True, before.generation)


def test_a_restored_cache_breaks_the_chain_and_its_rows_are_the_rows_they_were(seen: Seen, tmp_path: Path) -> None:
    mishaps.back_up(seen.cache.root, tmp_path / "backup")
    flush(seen.cache)
    seen.installation.export()
    first = seen.remembered()
    mishaps.restore(seen.cache.root, tmp_path / "backup")
    again = seen.look()
    assert (again.chain != first.chain, again.generation, again.link) == (True, FIRST_GENERATION, "rewound")
    assert f"went back from state {first.sequence_number} to {again.sequence_number}" in again.note
    assert "generation" not in again.note


def test_a_restored_cache_that_gives_numbers_anew_which_were_exported_begins_a_generation(seen: Seen, tmp_path: Path) -> None:
    mishaps.back_up(seen.cache.root, tmp_path / "backup")
    flush(seen.cache)
    seen.installation.export()
    mishaps.restore(seen.cache.root, tmp_path / "backup")
    seen.cache.another_writer().append("logs", "unknown", [a_log(DAYS[0], 5000)], sequence=[7])
    assert seen.look().generation != FIRST_GENERATION


def test_two_compactions_unseen_break_the_chain_and_not_the_generation(seen: Seen) -> None:
    seen.installation.export()
    first = seen.remembered()
    compact(seen.cache)
    compact(seen.cache)
    again = seen.look()
    assert (again.chain != first.chain, again.generation, again.link) == (True, FIRST_GENERATION, "replaced")
    assert "compacted several times while nobody looked" in again.note


def test_a_ledger_that_knows_rows_and_no_chain_finds_the_generation_again(seen: Seen, tmp_path: Path) -> None:
    seen.installation.export()
    seen.reset()
    seen.installation.export()
    generation, receipts = seen.remembered().generation, seen.receipts()
    assert generation != FIRST_GENERATION
    shutil.rmtree(seen.installation.installation.state.root)
    with seen.ledger() as ledger:
        for receipt in receipts.values():
            ledger.record(receipt)
    assert (seen.look().generation, seen.look().link) == (generation, "first")


def test_the_highest_cut_off_ever_seen_is_remembered(seen: Seen, tmp_path: Path) -> None:
    mishaps.back_up(seen.cache.root, tmp_path / "backup")
    seen.cache.writer.retention(dt.datetime(2026, 6, 6, tzinfo=dt.UTC))
    cutoff = seen.look().cutoff_ms
    assert cutoff == dt.datetime(2026, 6, 6, tzinfo=dt.UTC).timestamp() * 1000
    mishaps.restore(seen.cache.root, tmp_path / "backup")
    assert seen.look().cutoff_ms == cutoff


def test_a_source_that_cannot_be_read_keeps_its_place(seen: Seen) -> None:
    seen.cache.with_day(DAYS[0], source="other")
    before = seen.look()
    cursor = seen.cache.source_directory() / "cursor.json"
    whole = cursor.read_text()
    cursor.write_text(whole[:10])
    with seen.ledger() as ledger:
        assert set(follow(seen.reader(), ledger, LOGS, now=NOW).chains) == {OTHER}
    cursor.write_text(whole)
    assert seen.look() == replace(before, version=seen.remembered().version)


# --- what was exported comes along ----------------------------------------------------------------------------------------------


def unseen_compactions(seen: Seen) -> tuple[Chain, Chain]:
    """Break the chain; the one before and the one after."""
    before = seen.remembered().chain
    compact(seen.cache)
    compact(seen.cache)
    after = seen.look().chain
    assert after != before
    return before, after


def test_days_whose_rows_are_as_they_were_exported_come_along_to_a_new_chain(seen: Seen) -> None:
    """Otherwise a purge after two hours without a look would stay at the sinks until somebody accepts it."""
    seen.installation.export()
    seen.cache.with_day(DAYS[1])
    before, after = unseen_compactions(seen)
    assert seen.chains() == {DAYS[0]: after, DAYS[1]: before}
    seen.installation.export()
    assert seen.chains() == {DAYS[0]: after, DAYS[1]: after}


def test_a_day_that_keeps_rows_stays_on_the_chain_on_which_it_had_them(seen: Seen) -> None:
    seen.installation.export()
    seen.cache.writer.delete("logs", "unknown", pc.field("timestamp") < dt.datetime(2026, 6, 5, 0, 0, 1, tzinfo=dt.UTC))
    seen.installation.now = seen.cache.clock.moment
    seen.installation.export()
    assert seen.receipts()[DAYS[0]].kept is Kept.SETTLING
    before, after = unseen_compactions(seen)
    assert seen.chains() == {DAYS[0]: before, DAYS[1]: after}


def test_receipts_of_another_ledger_join_the_chains_of_this_one_on_the_days_that_are_as_they_were(seen: Seen) -> None:
    seen.installation.export()
    receipts = seen.receipts()
    shutil.rmtree(seen.installation.installation.state.root)
    seen.cache.with_day(DAYS[1])
    now = seen.look().chain
    before = receipts[DAYS[0]].files[0].chain
    assert now != before
    with seen.ledger() as ledger:
        for receipt in receipts.values():
            ledger.record(receipt)
    assert seen.chains() == {DAYS[0]: before, DAYS[1]: before}
    with seen.ledger() as ledger:
        join(seen.reader(), ledger, LOGS, now=NOW)
    assert seen.chains() == {DAYS[0]: now, DAYS[1]: before}


# --- two at once ----------------------------------------------------------------------------------------------------------------


class ABusyCache:
    """A cache on which somebody else acts each time it is pinned, just after."""

    def __init__(self, cache: Cache, act: Callable[[], Any]) -> None:
        self._cache = cache
        self._act = act
        self.pins = 0

    def pin(self, dataset: DatasetName) -> DatasetPin:
        pin = self._cache.pin(dataset)
        self.pins += 1
        self._act()
        return pin


def test_who_is_overtaken_looks_again_and_takes_nothing_for_restored(seen: Seen) -> None:
    """What it pinned is older than what is remembered by now, as if the table had gone back."""
    first = seen.look()
    flush(seen.cache)

    def overtake() -> None:
        if busy.pins == 1:
            flush(seen.cache)
            seen.look()

    busy = ABusyCache(seen.reader(), overtake)
    with seen.ledger() as ledger:
        followed = follow(busy, ledger, LOGS, now=NOW)  # type: ignore[arg-type]
    assert busy.pins == 2
    assert (followed.chains[UNKNOWN].chain, followed.chains[UNKNOWN].note) == (first.chain, "")
    assert followed.chains[UNKNOWN].snapshot_id == seen.remembered().snapshot_id
    assert followed.pin.summary(Day(DAYS[0])).rows == 9


def test_who_is_overtaken_every_time_says_so(seen: Seen) -> None:
    seen.look()
    flush(seen.cache)

    def overtake() -> None:
        seen.look()
        flush(seen.cache)

    busy = ABusyCache(seen.reader(), overtake)
    with seen.ledger() as ledger, pytest.raises(CursorSuperseded, match="was looked at by another process at the same time"):
        follow(busy, ledger, LOGS, now=NOW)  # type: ignore[arg-type]
    assert seen.look().note == ""
