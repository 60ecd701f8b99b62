"""Days that wait for an export which replaces, adds or deletes, what may happen to them meanwhile, and what must be true at last.

Why every row has a number of its own: which rows a sink must hold in the end is then a set that can be written down.
"""

import datetime as dt
import gzip
import hashlib
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from hypaware_pipeline.demo import mishaps
from hypaware_pipeline.demo.writer import CacheWriter
from hypaware_pipeline.model import DatasetName, Receipt, SinkName
from tests.builders import a_cache, a_log
from tests.faults import LEASE_SECONDS, AnExport
from tests.installations import JSONL, PARQUET, AnInstallation

DAY = "2026-06-05"
LOGS = DatasetName("logs")
HOURS = 3600
_NOON = dt.datetime(2026, 6, 5, 12, tzinfo=dt.UTC)
# Most of the time would go into waiting for a disk; where there is a file system in memory, everything lies there.
_MEMORY = Path("/dev/shm")
_SETTLES = dt.timedelta(minutes=16)
_SINKS = {"feed": {**JSONL, "config": {"dir": "out/feed"}}, "archive": {**PARQUET, "config": {"dir": "out/archive"}}}


@contextmanager
def in_memory() -> Iterator[Path]:
    """A directory, in memory if that can be."""
    directory = Path(tempfile.mkdtemp(prefix="hypaware-crashes-", dir=_MEMORY if _MEMORY.is_dir() else None))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


class Scene:
    """A cache, an installation that exports one day of it to `sink`, and the numbers of the rows the sink has to hold.

    `clock` is a file that tells all processes the time. What lies at a sink when retention reaches its day, or when the cache is
    removed, is never to leave it.
    """

    def __init__(self, directory: Path, *, sink: str = "feed", **options: Any) -> None:
        self.cache = a_cache(directory / "cache")
        self.sink = sink
        self.wanted: set[int] = set()
        self.frozen = self.exported = False
        self._final: set[int] = set()
        self._new: list[tuple[str, tuple[int, ...]]] = []
        self.installation = AnInstallation(
            directory / "home", self.cache.root, now=self.cache.clock.moment, sinks=_SINKS, **options
        )
        self.clock = directory / "now"
        self._go_on()

    @property
    def lock(self) -> Path:
        """Held at the destination by whoever puts or removes an object there."""
        return self.installation.out(self.sink) / ".lock"

    # --- what happens ----------------------------------------------------------------------------------------------------------

    def add(self, *numbers: int, source: str = "a") -> None:
        """A flush of new rows."""
        self.cache.with_rows("logs", [a_log(DAY, number) for number in numbers], source=source)
        self.wanted |= set(numbers)
        self._new.append((source, numbers))
        self._go_on()

    def purge(self, *numbers: int, source: str = "a") -> None:
        """Somebody deletes rows."""
        moments = [a_log(DAY, number)["timestamp"] for number in numbers]
        self.cache.writer.delete("logs", source, pc.field("timestamp").isin(moments))
        self.wanted -= set(numbers) - self._final
        self._go_on()

    def take_back(self) -> None:
        """Somebody deletes what was added since the last export in this process."""
        for source, numbers in self._new:
            self.purge(*numbers, source=source)

    def retain(self) -> None:
        """Retention takes what is from before noon; the sink keeps it."""
        self.cache.writer.retention(_NOON)
        self.frozen = True
        self._final |= self.wanted
        self._go_on()

    def compact(self, source: str = "a") -> None:
        """A table is written anew."""
        self.cache.writer.compact("logs", source)
        self._go_on()

    def reset(self) -> None:
        """The cache is removed, and HypAware begins another one; the sink keeps what it has."""
        mishaps.wipe(self.cache.root)
        self._final |= self.wanted
        self.cache.writer = CacheWriter(self.cache.root, clock=self.cache.clock, rng=random.Random(9))

    def settle(self) -> None:
        """What was deleted was deleted long ago, and every lease has expired."""
        self._go_on(_SETTLES)

    def let_leases_expire(self) -> None:
        """Of processes that died."""
        self._go_on(dt.timedelta(seconds=LEASE_SECONDS + 1))

    def export(self) -> None:
        """Export what is due, in this process."""
        for outcome in self.installation.export(sink=self.sink):
            assert outcome.done, outcome.error
        self._new.clear()
        self.exported = True

    def exporting(self, **options: Any) -> AnExport:
        """Export the day in a process of its own; `options` are those of `AnExport`."""
        return AnExport(self.installation, [DAY], sink=self.sink, clock=self.clock, **options)

    def _go_on(self, by: dt.timedelta = dt.timedelta()) -> None:
        self.installation.now = max(self.installation.now, self.cache.clock.moment) + by
        new = self.clock.with_name("new")
        new.write_text(self.installation.now.isoformat())
        new.replace(self.clock)

    # --- what must be true -----------------------------------------------------------------------------------------------------

    def assert_at_rest(self) -> None:
        """Every row is at the sink once, ledger and destination say the same and the truth, and there is nothing left to do."""
        assert sorted(self.numbers()) == sorted(self.wanted), f"{sorted(self.numbers())} instead of {sorted(self.wanted)}"
        installation = self.installation
        with installation.installation.open_ledger() as ledger:
            recorded = ledger.receipts(SinkName(self.sink), LOGS)
            assert not ledger.intents.all(SinkName(self.sink)), "an intent is open"
            assert not ledger.leases.held(), "a lease is held"
        self.assert_described(recorded.values())
        assert not installation.due(sink=self.sink)

    def assert_nothing_doubled(self) -> None:
        """No row is at the sink twice, and none that has to be there is missing, at rest or not."""
        numbers = self.numbers()
        assert len(numbers) == len(set(numbers)), sorted(numbers)
        assert self.wanted <= set(numbers), f"{sorted(numbers)} instead of {sorted(self.wanted)}"

    def assert_described(self, receipts: Iterable[Receipt]) -> None:
        """What lies at the destination is what receipts name, the receipts, and what no reader sees."""
        described = {file.key: (file.sha256, file.bytes) for receipt in receipts for file in receipt.files}
        lying = {
            name: (hashlib.sha256(content).hexdigest(), len(content))
            for name, content in self.installation.objects(self.sink).items()
        }
        assert lying == described, f"{lying} lie there, and {described} are described"
        for receipt in receipts:
            path = self.installation.out(self.sink) / f"logs/day={receipt.day}/_receipt.{self.sink}.json"
            assert Receipt.from_json(json.loads(path.read_text())) == receipt
            assert {file.key: file.rows for file in receipt.files} == {file.key: self._count(file.key) for file in receipt.files}
        assert not self._strange(), self._strange()

    def numbers(self) -> list[int]:
        """The numbers of all rows at the sink."""
        return [number for key in self.installation.objects(self.sink) for number in self._numbers(key)]

    def _count(self, key: str) -> int:
        return len(self._numbers(key))

    def _numbers(self, key: str) -> list[int]:
        path = self.installation.out(self.sink) / key
        if key.endswith(".parquet"):
            bodies = pq.read_table(path, columns=["body"]).column("body").to_pylist()
            return [json.loads(body)["number"] for body in bodies]
        return [json.loads(line)["body"]["number"] for line in gzip.decompress(path.read_bytes()).splitlines()]

    def _strange(self) -> list[str]:
        """Files that are no objects, and that no store of ours puts there: a temporary file must look like no data."""
        files = (path.name for path in self.installation.out(self.sink).rglob("*") if path.is_file())
        known = (f"_receipt.{self.sink}.json", "_claim.json", ".lock")
        hidden = [name for name in files if name[0] in "._" and name not in known]
        return [name for name in hidden if not (name.startswith(".tmp-") and "." not in name[1:])]


# --- days that wait for an export ----------------------------------------------------------------------------------------------


def a_new_day(scene: Scene) -> None:
    """Two objects are to be put where there was none."""
    scene.add(0, 15 * HOURS)
    scene.add(1, 16 * HOURS, source="b")


def a_live_day(scene: Scene) -> None:
    """One object is to be replaced, another stays."""
    a_new_day(scene)
    scene.export()
    scene.add(17 * HOURS, 18 * HOURS)


def a_frozen_day(scene: Scene) -> None:
    """Retention reached it; late rows are to be added."""
    a_new_day(scene)
    scene.export()
    scene.retain()
    scene.settle()
    scene.export()
    scene.add(17 * HOURS, 18 * HOURS)


def an_emptied_source(scene: Scene) -> None:
    """One object is to be removed."""
    a_new_day(scene)
    scene.export()
    scene.purge(1, 16 * HOURS, source="b")
    scene.settle()


def an_addition_that_is_no_longer_needed(scene: Scene) -> None:
    """An object is to take up its addition, which is to be removed."""
    a_new_day(scene)
    scene.export()
    scene.purge(0)
    scene.wanted.add(0)  # until it has settled
    scene.add(17 * HOURS)
    scene.export()
    scene.wanted.remove(0)
    scene.settle()


def a_cache_begun_anew(scene: Scene) -> None:
    """An object of a new generation is to be put beside those of the old one."""
    a_new_day(scene)
    scene.export()
    scene.reset()
    scene.add(17 * HOURS, 18 * HOURS)


WAITING: dict[str, Callable[[Scene], None]] = {
    scene.__name__: scene
    for scene in (
        a_new_day,
        a_live_day,
        a_frozen_day,
        an_emptied_source,
        an_addition_that_is_no_longer_needed,
        a_cache_begun_anew,
    )
}


# --- what may happen before it is tried again ----------------------------------------------------------------------------------


def nothing(scene: Scene) -> None:
    """Nothing."""


def new_rows(scene: Scene) -> None:
    """An addition has another name then."""
    scene.add(19 * HOURS)


def a_compaction(scene: Scene) -> None:
    """The table is another."""
    scene.compact()


def a_purge(scene: Scene) -> None:
    """A row goes that lies at the sink, or may."""
    scene.purge(15 * HOURS)


def a_retention(scene: Scene) -> None:
    """What the sink has is to stay there from now on; new rows are added to it. Not where something is to go from it."""
    if scene.exported and set(scene.numbers()) <= scene.wanted:
        scene.retain()


def a_change_of_mind(scene: Scene) -> None:
    """The cache is as it was when the day was exported last. A day that retention reached keeps what it was given."""
    if not scene.frozen:
        scene.take_back()


MEANWHILE: dict[str, Callable[[Scene], None]] = {
    each.__name__: each for each in (nothing, new_rows, a_compaction, a_purge, a_retention, a_change_of_mind)
}
