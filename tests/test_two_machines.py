"""Two machines that share a PostgreSQL ledger and a destination, told to export the same days at once."""

import gzip
import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL

import pytest

from hypaware_pipeline.model import DatasetName, Receipt, SinkName
from tests.builders import a_cache
from tests.crash_scenes import in_memory
from tests.installations import JSONL
from tests.machines import ACommand, AMachine
from tests.waiting import wait_for

FEED, LOGS = SinkName("feed"), DatasetName("logs")
DAYS = [f"2026-06-{day:02}" for day in range(1, 7)]
PATIENCE_SECONDS = 180.0
MIDWAY_SECONDS = 1.0
"""About as long as the days take."""


class Pair:
    """Two machines that see one cache; `rows` is how many it has."""

    def __init__(self, place: Path, url: str) -> None:
        self.cache = a_cache(place / "cache")
        self.rows = 0
        self.shared = place / "shared"
        sinks = {"feed": {**JSONL, "config": {"dir": str(self.shared)}}}
        self.one, self.other = (AMachine(place / name, self.cache.root, sinks=sinks, ledger_url=url) for name in ("one", "other"))

    def more_rows(self) -> None:
        """Every day gets some."""
        for day in DAYS:
            for source in ("a", "b"):
                self.cache.with_day(day, rows=2, source=source)
                self.rows += 2

    def holder(self, *commands: ACommand) -> ACommand | None:
        """Which of some commands writes now."""
        with self.one.installation.installation.open_ledger() as ledger:
            for lease in ledger.leases.held():
                for command in commands:
                    if f", process {command.pid} on " in lease.holder:
                        return command
        return None

    def time_passes(self) -> None:
        """The lease of who died expires."""
        self.one.installation.let_leases_expire()

    def assert_at_rest(self) -> None:
        """Every row is there once, both machines know it, and ledger and destination agree."""
        with self.other.installation.installation.open_ledger() as ledger:
            recorded = ledger.receipts(FEED, LOGS)
            assert not ledger.intents.all(FEED)
            assert not ledger.leases.held()
        lying = {str(path.relative_to(self.shared)): path.read_bytes() for path in self.shared.rglob("[!._]*.jsonl.gz")}
        files = [file for receipt in recorded.values() for file in receipt.files]
        assert {key: hashlib.sha256(content).hexdigest() for key, content in lying.items()} == {
            file.key: file.sha256 for file in files
        }
        rows = [line for content in lying.values() for line in gzip.decompress(content).splitlines()]
        assert (len(rows), len(set(rows))) == (self.rows, self.rows)
        for day, receipt in recorded.items():
            path = self.shared / f"logs/day={day}/_receipt.feed.json"
            assert Receipt.from_json(json.loads(path.read_text())) == receipt
        assert (self.one.installation.due(), self.other.installation.due()) == ([], [])


@pytest.fixture
def pair(postgres) -> Iterator[Pair]:
    """Two machines, with rows to export."""
    with in_memory() as place:
        found = Pair(place, postgres.new_database())
        found.more_rows()
        yield found


def test_both_are_done_and_every_row_is_there_once(pair):
    with pair.one.export() as one, pair.other.export() as other:
        codes = one.ended(within=PATIENCE_SECONDS), other.ended(within=PATIENCE_SECONDS)
    assert codes == (0, 0), one.said() + other.said()
    assert set(one.answers() | other.answers()) == set(DAYS)
    pair.assert_at_rest()


def kill_one_midway(pair: Pair, chance: random.Random) -> None:
    """Both begin; the one that writes first is killed some time later, and the other does what is left."""
    with pair.one.export() as one, pair.other.export() as other:
        first = wait_for("one that writes", lambda: pair.holder(one, other), every=0.02)
        if first.runs_after(chance.uniform(0, MIDWAY_SECONDS)):
            first.send(SIGKILL)
        first.ended(within=PATIENCE_SECONDS)
        second = other if first is one else one
        wait_for("the lease of who died", lambda: not pair.holder(first) or pair.time_passes())
        assert second.ended(within=PATIENCE_SECONDS) == 0, second.said()
    pair.assert_at_rest()


def kill_one_again_and_again(pair: Pair, times: int) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"the moments are those of seed {seed}")
    chance = random.Random(seed)
    for _ in range(times):
        kill_one_midway(pair, chance)
        pair.more_rows()


def test_when_one_is_killed_at_any_moment_the_other_does_what_is_left(pair):
    kill_one_again_and_again(pair, 5)


@pytest.mark.long
def test_when_one_is_killed_again_and_again_nothing_is_lost_or_doubled(pair):
    kill_one_again_and_again(pair, 100)
