"""The ledger: what it keeps, what it survives, what it says when it cannot. On SQLite and on a PostgreSQL server."""

import datetime as dt
import random
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa

from hypaware_pipeline.errors import BadRequest, CursorSuperseded, LedgerError, LedgerUnreadable, LedgerWriteFailed
from hypaware_pipeline.ledger import (
    LEDGER_URL_VARIABLE,
    Failure,
    Intent,
    Ledger,
    LedgerPlace,
    PlanMemory,
    ReceiptKey,
    Recorded,
    SourceChain,
    Unproven,
    schema,
)
from hypaware_pipeline.ledger.engine import WRITE_LOCK
from hypaware_pipeline.model import (
    FIRST_GENERATION,
    UNDATED,
    UNSEQUENCED,
    Chain,
    DatasetName,
    Day,
    ExportedFile,
    Fingerprint,
    Generation,
    Kept,
    ParkedRecord,
    Receipt,
    RowSet,
    SetAside,
    SinkName,
    SourceName,
)
from hypaware_pipeline.row_sets import Rows, pack
from tests.postgres import SECRET, APostgres
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parent.parent
NOW = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
ARCHIVE = SinkName("archive")
LOGS = DatasetName("logs")
TRACES = DatasetName("traces")
FORWARD = SinkName("forward")
OTEL = SourceName("otel")
CLAUDE = SourceName("claude")
ONE = Fingerprint("one")
DAY = Day("2026-05-31")


def clock() -> dt.datetime:
    return NOW


def some_rows(*numbers: int) -> RowSet:
    """A set of the rows with these sequence numbers."""
    keys = np.array(numbers, np.uint64)
    return pack(Rows.of(keys, keys.astype(np.int64) * 1000))


def a_file(key: str, *, source: SourceName = OTEL, chain: str = "c1", rows: RowSet | None = None) -> ExportedFile:
    return ExportedFile(
        key=key,
        bytes=1234,
        sha256="ab" * 32,
        source=source,
        generation=FIRST_GENERATION,
        chain=Chain(chain),
        content="cd",
        row_set=some_rows(1, 2, 3) if rows is None else rows,
    )


def a_receipt(day: str = DAY, *, fingerprint: str = "one", sink: str = ARCHIVE, dataset: str = LOGS) -> Receipt:
    return Receipt(
        sink=SinkName(sink),
        dataset=DatasetName(dataset),
        day=Day(day),
        destination="d1",
        ledger_id="l1",
        fingerprint=Fingerprint(fingerprint),
        rows=4,
        kept_rows=0,
        kept=Kept.NOTHING,
        elsewhere_rows=0,
        files=(a_file(f"logs/day={day}/otel.parquet"),),
        set_aside=(SetAside("parked", OTEL, FIRST_GENERATION, some_rows(4)),),
        parked=(ParkedRecord(OTEL, "row 4", 'not UTF-8: "\u2028" \U0001f600'),),
        unreadable={SourceName("other"): "torn"},
        exported_at="2026-06-01T12:00:00.000Z",
        seconds=0.25,
    )


def keeping(receipt: Receipt, kept: Kept, rows: int = 2) -> Receipt:
    """The same, of a cache that has so many of the exported rows no more."""
    return replace(receipt, rows=receipt.rows - rows, kept_rows=rows, kept=kept)


def a_chain(chain: str = "c1", *, version: int = 0, **changes: Any) -> SourceChain:
    usual = SourceChain(
        chain=Chain(chain),
        generation=FIRST_GENERATION,
        table_dir="table",
        table_uuid="u1",
        snapshot_id=2**62,
        sequence_number=2**40,
        cutoff_ms=None,
        link="first",
        note="",
        since="2026-06-01T12:00:00.000Z",
        version=version,
    )
    return replace(usual, **changes)


class ADatabase(Protocol):
    """What a ledger may lie in, and what another program does there."""

    place: Path | str
    """As `Ledger.open` takes it."""
    shown: str
    """As errors name it."""

    def look(self, query: str) -> list[tuple[Any, ...]]: ...

    def edit(self, statement: str) -> None: ...

    def forbid(self, table: str, what: str) -> None:
        """Refuse every new state of a row of which this is so."""

    def held(self) -> AbstractContextManager[None]:
        """Somebody is writing."""


@dataclass
class AFile:
    place: Path

    @property
    def shown(self) -> str:
        return str(self.place)

    def _connect(self) -> closing[sqlite3.Connection]:
        self.place.parent.mkdir(exist_ok=True)
        return closing(sqlite3.connect(self.place, isolation_level=None))

    def look(self, query: str) -> list[tuple[Any, ...]]:
        with self._connect() as connection:
            return connection.execute(query).fetchall()

    def edit(self, statement: str) -> None:
        self.look(statement)

    def forbid(self, table: str, what: str) -> None:
        refused = f"SELECT RAISE(ABORT, 'refused') FROM {table} WHERE rowid = NEW.rowid AND {what};"
        for event in ("INSERT", "UPDATE"):
            self.edit(f"CREATE TRIGGER on_{event} AFTER {event} ON {table} BEGIN {refused} END")

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._connect() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield


@dataclass
class AServersDatabase:
    server: APostgres
    place: str

    @property
    def shown(self) -> str:
        return f"postgresql://ada@127.0.0.1:{self.place.rpartition(':')[2]}"

    @property
    def name(self) -> str:
        return self.place.rpartition("/")[2]

    def look(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.place, autocommit=True) as connection:
            return connection.execute(query.encode()).fetchall()

    def edit(self, statement: str) -> None:
        with psycopg.connect(self.place, autocommit=True) as connection:
            connection.execute(statement.encode())

    def forbid(self, table: str, what: str) -> None:
        self.edit(f"ALTER TABLE {table} ADD CONSTRAINT refused CHECK (NOT {what}) NOT VALID")

    @contextmanager
    def held(self) -> Iterator[None]:
        with psycopg.connect(self.place) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [WRITE_LOCK])
            yield


@pytest.fixture
def file(tmp_path: Path) -> AFile:
    return AFile(tmp_path / "c.state" / "ledger.db")


@pytest.fixture
def path(file: AFile) -> Path:
    return file.place


@pytest.fixture
def served(postgres: APostgres) -> AServersDatabase:
    return AServersDatabase(postgres, postgres.new_database())


@pytest.fixture(params=["file", "served"])
def database(request: pytest.FixtureRequest) -> ADatabase:
    found: ADatabase = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def ledger(database: ADatabase) -> Iterator[Ledger]:
    with opened(database.place) as found:
        yield found


def opened(place: Path | str) -> Ledger:
    """A ledger that is soon tired of waiting for another writer."""
    return Ledger.open(place, clock=clock, busy_timeout_seconds=0.05)


def record(ledger: Ledger, receipt: Receipt) -> None:
    """Record a receipt in place of whatever stands."""
    ledger.record(receipt, replaces=ledger.recorded(receipt.sink, receipt.dataset, receipt.day))


# --- receipts ------------------------------------------------------------------------------------------------------------------


def test_a_recorded_receipt_is_read_back_as_it_was(ledger: Ledger) -> None:
    ledger.record(a_receipt())
    assert ledger.receipt(ARCHIVE, LOGS, DAY) == a_receipt()


def test_a_day_that_was_never_exported_has_no_receipt(ledger: Ledger) -> None:
    ledger.record(a_receipt())
    assert ledger.receipt(ARCHIVE, LOGS, Day("2026-05-30")) is None
    assert ledger.receipt(SinkName("other"), LOGS, DAY) is None
    assert ledger.receipts(ARCHIVE, DatasetName("traces")) == {}


def test_a_second_receipt_of_a_day_replaces_the_first_and_touches_no_other(ledger: Ledger) -> None:
    others = [a_receipt("2026-05-30"), a_receipt(UNDATED), a_receipt(dataset='it\'s, "quoted" 日本'), a_receipt(sink="forward")]
    for receipt in [*others, a_receipt(), a_receipt(fingerprint="two")]:
        record(ledger, receipt)
    assert ledger.receipts(ARCHIVE, LOGS) == {
        "2026-05-30": others[0],
        "2026-05-31": a_receipt(fingerprint="two"),
        UNDATED: others[1],
    }
    assert ledger.receipt(ARCHIVE, others[2].dataset, DAY) == others[2]
    assert ledger.receipt(SinkName("forward"), LOGS, DAY) == others[3]


def test_planning_gets_the_figures_of_every_dataset_of_one_sink(ledger: Ledger) -> None:
    for receipt in (a_receipt(), a_receipt(dataset="traces", fingerprint="two"), a_receipt(sink="forward")):
        ledger.record(receipt)
    one = ReceiptKey(Fingerprint("one"), "d1", 4, 0, Kept.NOTHING, 3, 1, 1234, "2026-06-01T12:00:00.000Z", 1)
    assert ledger.fingerprints(ARCHIVE) == {(LOGS, DAY): one, ("traces", DAY): replace(one, fingerprint=Fingerprint("two"))}


def test_planning_parses_no_document_and_reads_no_row_set(ledger: Ledger, database: ADatabase) -> None:
    ledger.record(keeping(a_receipt(), Kept.FROZEN))
    database.edit("UPDATE receipts SET document = 'no JSON'")
    database.edit("DROP TABLE row_sets")
    (key,) = ledger.fingerprints(ARCHIVE).values()
    assert (key.kept_rows, key.kept) == (2, Kept.FROZEN)


def test_a_row_count_beyond_32_bits_is_kept(ledger: Ledger) -> None:
    ledger.record(replace(a_receipt(), rows=2**40, elsewhere_rows=2**40 - 4))
    assert ledger.fingerprints(ARCHIVE)[LOGS, DAY].rows == 2**40


def test_what_was_recorded_is_there_when_the_ledger_is_opened_again(database: ADatabase) -> None:
    with opened(database.place) as first:
        first.record(a_receipt())
    with opened(database.place) as second:
        assert second.receipt(ARCHIVE, LOGS, DAY) == a_receipt()
        assert second.id == first.id


# --- row sets ------------------------------------------------------------------------------------------------------------------

HOSTILE = (
    "a b",
    'it\'s, "quoted"',
    "日本 \U0001f600",
    "lo\udce9gs",
    "nul\0",
    "\\",
    "\\x00",
    "\\\\udce9",
    "line\nbreak",
    "%s :x ?",
    "x" * 250,
)


def a_manifold_receipt(day: str = DAY, **changes: Any) -> Receipt:
    """One of several objects and sources, not in the order of their names."""
    second = Generation("g2")
    files = (
        a_file("z.jsonl", chain="c9", rows=some_rows(7, 9)),
        replace(a_file("b.jsonl", source=SourceName("claude")), generation=UNSEQUENCED, content="\udce9"),
        replace(a_file("a.g2.jsonl", rows=some_rows()), generation=second),
    )
    aside = (
        SetAside("withheld", OTEL, second, some_rows(1)),
        SetAside("parked", OTEL, second, some_rows(2, 3)),
        SetAside("withheld", SourceName("claude"), second, some_rows(4)),
    )
    return replace(a_receipt(day), files=files, set_aside=aside, elsewhere_rows=2, rows=11, **changes)


def kinds_of(ledger: Ledger, dataset: DatasetName = LOGS) -> list[tuple[str, ...]]:
    return [(each.sink, each.day, each.kind, each.source, each.generation, each.chain) for each in ledger.row_sets(dataset)]


def test_a_receipt_of_several_objects_and_sets_is_read_back_in_its_order(ledger: Ledger) -> None:
    receipt = keeping(a_manifold_receipt(), Kept.MOVING)
    assert receipt.balanced
    ledger.record(receipt)
    ledger.record(a_receipt("2026-05-30"))
    assert ledger.receipt(ARCHIVE, LOGS, DAY) == receipt
    assert ledger.receipts(ARCHIVE, LOGS) == {"2026-05-30": a_receipt("2026-05-30"), DAY: receipt}


def test_a_day_of_no_rows_has_a_receipt_too(ledger: Ledger) -> None:
    nothing = replace(a_receipt(), rows=0, files=(), set_aside=(), parked=())
    ledger.record(a_receipt())
    record(ledger, nothing)
    assert ledger.receipt(ARCHIVE, LOGS, DAY) == nothing
    assert kinds_of(ledger) == []


def test_the_row_sets_of_a_dataset_are_those_of_its_last_receipts_at_every_sink(ledger: Ledger) -> None:
    for receipt in (a_manifold_receipt(), a_receipt(), a_receipt(sink="forward"), a_receipt(dataset="traces")):
        record(ledger, receipt)
    record(ledger, a_manifold_receipt("2026-05-30"))
    assert kinds_of(ledger) == [
        ("archive", "2026-05-30", "exported", "claude", "unsequenced", "c1"),
        ("archive", "2026-05-30", "exported", "otel", "1", "c9"),
        ("archive", "2026-05-30", "exported", "otel", "g2", "c1"),
        ("archive", "2026-05-30", "parked", "otel", "g2", ""),
        ("archive", "2026-05-30", "withheld", "claude", "g2", ""),
        ("archive", "2026-05-30", "withheld", "otel", "g2", ""),
        ("archive", DAY, "exported", "otel", "1", "c1"),
        ("archive", DAY, "parked", "otel", "1", ""),
        ("forward", DAY, "exported", "otel", "1", "c1"),
        ("forward", DAY, "parked", "otel", "1", ""),
    ]
    last = [*ledger.row_sets(LOGS)][-2:]
    assert [each.row_set for each in last] == [some_rows(1, 2, 3), some_rows(4)]


def test_of_many_row_sets_none_is_missed_and_the_ledger_can_be_used_meanwhile(ledger: Ledger) -> None:
    sources = [SourceName(f"s{number:03}") for number in range(250)]
    files = tuple(a_file(source, source=source) for source in sources)
    ledger.record(replace(a_receipt(), files=files, set_aside=()))
    seen: list[SourceName] = []
    for each in ledger.row_sets(LOGS):
        if not seen:
            record(ledger, a_receipt())
        seen.append(each.source)
    assert seen == sources
    assert kinds_of(ledger) == [("archive", DAY, "exported", "otel", "1", "c1"), ("archive", DAY, "parked", "otel", "1", "")]


def test_a_source_may_have_any_name(ledger: Ledger) -> None:
    files = tuple(a_file(f"{name}.jsonl", source=SourceName(name)) for name in HOSTILE)
    receipt = replace(a_receipt(), files=files, set_aside=())
    ledger.record(receipt)
    assert ledger.receipt(ARCHIVE, LOGS, DAY) == receipt
    assert sorted(each.source for each in ledger.row_sets(LOGS)) == sorted(HOSTILE)


def test_a_chain_may_have_any_names(ledger: Ledger) -> None:
    files = tuple(a_file(f"{name}.jsonl", source=SourceName(name)) for name in HOSTILE)
    ledger.record(replace(a_receipt(), files=files, set_aside=()))
    for name in HOSTILE:
        source = SourceName(name)
        chain = a_chain(f"c2 {name}", table_dir=name, table_uuid=name, note=name)
        ledger.chains.move(LOGS, {source: chain}, unchanged={DAY: ONE})
        stored = ledger.chains.of(LOGS)[source]
        assert replace(stored, note=name) == replace(chain, version=1)
        assert "\0" not in stored.note
        assert stored.note.encode()
    assert {each.source: each.chain for each in ledger.row_sets(LOGS)} == {name: f"c2 {name}" for name in HOSTILE}
    assert [source for _, source in ledger.chains.all()] == [*ledger.chains.of(LOGS)]


def test_what_fails_in_the_middle_of_a_receipt_leaves_all_as_it_was(ledger: Ledger, database: ADatabase) -> None:
    ledger.record(a_manifold_receipt())
    ledger.record_failure(ARCHIVE, LOGS, DAY, "an hour ago")
    ledger.intents.open(ARCHIVE, LOGS, DAY, "b1", ["z.jsonl"])
    before = ledger.recorded(ARCHIVE, LOGS, DAY), kinds_of(ledger), ledger.intents.all(ARCHIVE), ledger.plan_memory(ARCHIVE)
    database.forbid("row_sets", "kind = 'parked'")
    with pytest.raises(LedgerWriteFailed, match="refused"):
        record(ledger, a_receipt())
    after = ledger.recorded(ARCHIVE, LOGS, DAY), kinds_of(ledger), ledger.intents.all(ARCHIVE), ledger.plan_memory(ARCHIVE)
    assert after == before
    assert ledger.failures(ARCHIVE)[LOGS, DAY].reason == "an hour ago"


def test_who_reads_while_another_records_sees_one_receipt_or_the_other(database: ADatabase) -> None:
    """A document of one and the row sets of the other would come to a damaged receipt."""
    written = [a_manifold_receipt(), a_receipt()]
    with Ledger.open(database.place, clock=clock) as ledger:
        ledger.record(a_receipt())

        def write() -> None:
            for number in range(60):
                record(ledger, written[number % 2])

        writer = threading.Thread(target=write)
        writer.start()
        seen = []
        while writer.is_alive():
            seen.append(ledger.receipt(ARCHIVE, LOGS, DAY))
        writer.join()
    assert all(receipt in written for receipt in seen)


def test_a_receipt_without_its_row_sets_is_damaged(ledger: Ledger, database: ADatabase) -> None:
    ledger.record(a_receipt())
    database.edit("DELETE FROM row_sets WHERE kind = 'parked'")
    with pytest.raises(LedgerUnreadable, match="the receipt of archive/logs on 2026-05-31 is damaged"):
        ledger.receipt(ARCHIVE, LOGS, DAY)


# --- compare and set ---------------------------------------------------------------------------------------------------------


def test_of_two_exports_that_began_alike_the_second_is_refused_and_nothing_of_it_lands(ledger: Ledger) -> None:
    ledger.record(a_receipt())
    standing = ledger.recorded(ARCHIVE, LOGS, DAY)
    ledger.record(a_receipt(fingerprint="first"), replaces=standing)
    ledger.record_failure(ARCHIVE, LOGS, DAY, "an hour ago")
    memory = ledger.plan_memory(ARCHIVE)
    with pytest.raises(CursorSuperseded, match="another export of archive/logs 2026-05-31 was recorded while this one ran"):
        ledger.record(a_receipt(fingerprint="second"), replaces=standing)
    assert ledger.receipt(ARCHIVE, LOGS, DAY) == a_receipt(fingerprint="first")
    assert ledger.fingerprints(ARCHIVE)[LOGS, DAY].fingerprint == "first"
    assert ledger.failures(ARCHIVE)[LOGS, DAY].reason == "an hour ago"
    assert ledger.plan_memory(ARCHIVE) == memory


def test_who_found_no_receipt_replaces_none(ledger: Ledger) -> None:
    ledger.record(a_receipt(fingerprint="first"))
    with pytest.raises(CursorSuperseded):
        ledger.record(a_receipt(fingerprint="second"))
    assert ledger.receipt(ARCHIVE, LOGS, DAY) == a_receipt(fingerprint="first")


def test_the_same_receipt_recorded_again_is_another_version(ledger: Ledger) -> None:
    """Two exports of an unchanged day differ in nothing but when they were recorded."""
    record(ledger, a_receipt())
    first = ledger.recorded(ARCHIVE, LOGS, DAY)
    record(ledger, a_receipt())
    with pytest.raises(CursorSuperseded):
        ledger.record(a_receipt(), replaces=first)


def test_a_receipt_that_vanished_and_came_back_is_another_version(ledger: Ledger, database: ADatabase) -> None:
    ledger.record(a_receipt())
    first = ledger.recorded(ARCHIVE, LOGS, DAY)
    database.edit("DELETE FROM receipts")
    ledger.record(a_receipt())
    with pytest.raises(CursorSuperseded):
        ledger.record(a_receipt(), replaces=first)


def test_whether_a_day_still_stands_can_be_asked_before_anything_is_written(ledger: Ledger) -> None:
    ledger.ensure_standing(ARCHIVE, LOGS, DAY, None)
    ledger.record(a_receipt())
    standing = ledger.recorded(ARCHIVE, LOGS, DAY)
    ledger.ensure_standing(ARCHIVE, LOGS, DAY, standing)
    ledger.record(a_receipt("2026-05-30"))
    ledger.record_failure(ARCHIVE, LOGS, DAY, "the disk is full")
    ledger.ensure_standing(ARCHIVE, LOGS, DAY, standing)
    record(ledger, a_receipt())
    for expected in (None, standing):
        with pytest.raises(CursorSuperseded):
            ledger.ensure_standing(ARCHIVE, LOGS, DAY, expected)


def test_of_many_who_replace_the_same_receipt_at_once_one_wins(database: ADatabase) -> None:
    with Ledger.open(database.place, clock=clock) as ledger:
        ledger.record(a_receipt())
        standing = ledger.recorded(ARCHIVE, LOGS, DAY)
        gate, lost = threading.Barrier(8), []

        def compete(number: int) -> None:
            gate.wait()
            try:
                ledger.record(a_receipt(fingerprint=str(number)), replaces=standing)
            except CursorSuperseded:
                lost.append(str(number))

        in_threads(compete, range(8))
        assert len(lost) == 7
        assert ledger.fingerprints(ARCHIVE)[LOGS, DAY].fingerprint not in lost


def in_threads(work: Callable[[Any], object], arguments: Iterable[Any]) -> None:
    threads = [threading.Thread(target=work, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# --- chains --------------------------------------------------------------------------------------------------------------------


def of_two_sources(day: str = DAY, *, fingerprint: str = "one", sink: str = ARCHIVE, dataset: str = LOGS) -> Receipt:
    """A receipt with an object of each of two sources, and parked rows."""
    usual = a_receipt(day, fingerprint=fingerprint, sink=sink, dataset=dataset)
    return replace(usual, rows=7, files=(*usual.files, a_file("claude.parquet", source=CLAUDE)))


def chains_of(ledger: Ledger, dataset: DatasetName = LOGS) -> dict[tuple[str, str, str], str]:
    """Of what was exported. What was not is on none."""
    sets = [*ledger.row_sets(dataset)]
    assert {each.chain for each in sets if each.kind != "exported"} <= {""}
    return {(each.sink, each.day, each.source): each.chain for each in sets if each.kind == "exported"}


def test_where_each_source_has_come_to_is_remembered(ledger: Ledger) -> None:
    assert ledger.chains.of(LOGS) == {}
    assert ledger.chains.all() == {}
    first, other = a_chain(), a_chain("d1", snapshot_id=None, cutoff_ms=5, note="it was reset", generation=Generation("g2"))
    ledger.chains.move(LOGS, {OTEL: first, CLAUDE: other}, unchanged={})
    ledger.chains.move(DatasetName("traces"), {OTEL: first}, unchanged={})
    at = {OTEL: replace(first, version=1), CLAUDE: replace(other, version=1)}
    assert ledger.chains.of(LOGS) == at
    on = replace(at[OTEL], snapshot_id=-5, sequence_number=7, table_dir="table-2", table_uuid="u2")
    ledger.chains.move(LOGS, {OTEL: on}, unchanged={})
    assert ledger.chains.of(LOGS) == {**at, OTEL: replace(on, version=2)}
    assert [*ledger.chains.all()] == [(LOGS, CLAUDE), (LOGS, OTEL), ("traces", OTEL)]


def test_a_retention_cut_off_never_goes_down(ledger: Ledger) -> None:
    stored = []
    for version, cutoff_ms in enumerate((None, 9, 5, None, 11)):
        ledger.chains.move(LOGS, {OTEL: a_chain(version=version, cutoff_ms=cutoff_ms)}, unchanged={})
        stored.append(ledger.chains.of(LOGS)[OTEL].cutoff_ms)
    assert stored == [None, 9, 9, 9, 11]


def test_who_looked_at_a_source_earlier_is_refused_and_nothing_of_its_look_lands(ledger: Ledger) -> None:
    ledger.record(of_two_sources())
    ledger.chains.move(LOGS, {OTEL: a_chain()}, unchanged={})
    ledger.chains.move(LOGS, {OTEL: a_chain(version=1, sequence_number=2)}, unchanged={})
    before = ledger.chains.all(), chains_of(ledger)
    for expected in (0, 1, 3):
        late = {CLAUDE: a_chain("new"), OTEL: a_chain("new", version=expected)}
        with pytest.raises(CursorSuperseded, match="source 'otel' of dataset 'logs' was looked at by another process"):
            ledger.chains.move(LOGS, late, unchanged={DAY: ONE})
    assert (ledger.chains.all(), chains_of(ledger)) == before


def test_who_remembers_a_source_that_nobody_does_is_refused(ledger: Ledger) -> None:
    with pytest.raises(CursorSuperseded):
        ledger.chains.move(LOGS, {OTEL: a_chain(version=1)}, unchanged={})
    assert ledger.chains.all() == {}


def test_of_many_who_looked_at_once_one_is_remembered(database: ADatabase) -> None:
    with Ledger.open(database.place, clock=clock) as ledger:
        gate, lost = threading.Barrier(6), []

        def compete(number: int) -> None:
            gate.wait()
            try:
                ledger.chains.move(LOGS, {OTEL: a_chain(sequence_number=number)}, unchanged={})
            except CursorSuperseded:
                lost.append(number)

        in_threads(compete, range(6))
        assert len(lost) == 5
        assert ledger.chains.of(LOGS)[OTEL].sequence_number not in lost


def test_days_that_are_as_they_were_come_along_to_the_chain_that_begins(ledger: Ledger) -> None:
    for receipt in (
        of_two_sources(),
        of_two_sources(sink="forward"),
        of_two_sources("2026-05-30", fingerprint="it changed"),
        of_two_sources("2026-05-29"),
        keeping(of_two_sources("2026-05-28"), Kept.FROZEN),
        of_two_sources(dataset="traces"),
    ):
        ledger.record(receipt)
    standing = ledger.recorded(ARCHIVE, LOGS, DAY)
    before = chains_of(ledger)
    ledger.chains.move(
        LOGS,
        {OTEL: a_chain("c2")},
        unchanged={DAY: ONE, Day("2026-05-30"): ONE, Day("2026-05-28"): ONE, Day("2026-05-27"): ONE},
    )
    came = {("archive", DAY, OTEL), ("forward", DAY, OTEL)}
    assert chains_of(ledger) == {place: "c2" if place in came else chain for place, chain in before.items()}
    assert set(chains_of(ledger, DatasetName("traces")).values()) == {"c1"}
    moved_on = ledger.receipt(ARCHIVE, LOGS, DAY)
    assert moved_on is not None
    assert [(file.source, file.chain) for file in moved_on.files] == [(OTEL, "c2"), (CLAUDE, "c1")]
    ledger.record(moved_on, replaces=standing)


def test_a_chain_that_goes_on_takes_no_day_along(ledger: Ledger) -> None:
    ledger.chains.move(LOGS, {OTEL: a_chain("c2")}, unchanged={})
    ledger.record(of_two_sources())
    ledger.chains.move(LOGS, {OTEL: a_chain("c2", version=1, sequence_number=9)}, unchanged={DAY: ONE})
    assert set(chains_of(ledger).values()) == {"c1"}


def test_what_fails_while_days_come_along_leaves_the_chain_as_it_was(ledger: Ledger, database: ADatabase) -> None:
    ledger.record(of_two_sources())
    ledger.chains.move(LOGS, {OTEL: a_chain("c2")}, unchanged={})
    before = ledger.chains.all(), chains_of(ledger)
    database.forbid("source_chains", "chain = 'c3'")
    with pytest.raises(LedgerWriteFailed, match="refused"):
        ledger.chains.move(LOGS, {OTEL: a_chain("c3", version=1)}, unchanged={DAY: ONE})
    assert (ledger.chains.all(), chains_of(ledger)) == before


# --- days that are as they were ------------------------------------------------------------------------------------------------


def test_a_day_that_an_export_found_as_it_was_has_no_failure_and_is_judged_by_all_that_was_recorded(ledger: Ledger) -> None:
    first, second = replace(a_receipt(), day=Day("2026-05-30")), a_receipt()
    for receipt in (first, second):
        record(ledger, receipt)
    ledger.record_failure(ARCHIVE, LOGS, first.day, "the disk was away")
    ledger.retries.halt(ARCHIVE, "the disk was away")
    expected = ledger.recorded(ARCHIVE, LOGS, first.day)
    assert expected
    ledger.found_so(expected)
    versions = {day: key.version for (_, day), key in ledger.fingerprints(ARCHIVE).items()}
    assert versions[first.day] >= versions[second.day]
    assert ledger.plan_memory(ARCHIVE)[LOGS].revision == versions[first.day], "no other day is to be looked at for that"
    assert ledger.receipt(ARCHIVE, LOGS, first.day) == first
    assert (ledger.failures(ARCHIVE), ledger.retries.halted()) == ({}, {})


def test_a_day_is_not_found_as_it_was_by_who_read_another_receipt(ledger: Ledger) -> None:
    record(ledger, a_receipt())
    expected = ledger.recorded(ARCHIVE, LOGS, DAY)
    assert expected
    record(ledger, a_receipt())
    before = ledger.fingerprints(ARCHIVE)
    with pytest.raises(CursorSuperseded):
        ledger.found_so(expected)
    assert ledger.fingerprints(ARCHIVE) == before


# --- accepting what was lost ---------------------------------------------------------------------------------------------------


def with_losses(ledger: Ledger) -> None:
    """Two datasets of one sink and one of another, all of them with days of which nobody knows why rows vanished."""
    for receipt in (
        keeping(of_two_sources(), Kept.UNPROVEN),
        keeping(of_two_sources("2026-05-30"), Kept.UNPROVEN, rows=3),
        keeping(of_two_sources("2026-05-29"), Kept.FROZEN),
        of_two_sources("2026-05-28"),
        keeping(of_two_sources(dataset="traces"), Kept.UNPROVEN),
        keeping(of_two_sources(sink="forward"), Kept.UNPROVEN),
    ):
        ledger.record(receipt)
    ledger.chains.move(LOGS, {OTEL: a_chain("c2")}, unchanged={})
    ledger.chains.move(TRACES, {OTEL: a_chain("c3")}, unchanged={})
    for sink, dataset in ((ARCHIVE, LOGS), (ARCHIVE, TRACES), (FORWARD, LOGS)):
        revision = ledger.plan_memory(sink)[dataset].revision
        ledger.remember_nothing_due(sink, dataset, state="quiet", revision=revision)


def quiet(ledger: Ledger) -> set[tuple[str, str]]:
    """Where the plan remembers that nothing was due."""
    memories = [(sink, dataset, memory) for sink in (ARCHIVE, FORWARD) for dataset, memory in ledger.plan_memory(sink).items()]
    return {(sink, dataset) for sink, dataset, memory in memories if memory.nothing_due_at is not None}


def kept(ledger: Ledger, sink: SinkName = ARCHIVE) -> dict[tuple[str, str], Kept]:
    keys = ledger.fingerprints(sink)
    read = {(dataset, day): ledger.receipt(sink, dataset, day) for dataset, day in keys}
    assert {place: receipt.kept for place, receipt in read.items() if receipt} == {place: key.kept for place, key in keys.items()}
    return {place: key.kept for place, key in keys.items() if key.kept is not Kept.NOTHING}


def test_what_accepting_would_let_go_of_can_be_asked_and_changes_nothing(ledger: Ledger) -> None:
    with_losses(ledger)
    before = chains_of(ledger), kept(ledger), quiet(ledger)
    assert ledger.chains.preview(ARCHIVE) == {LOGS: Unproven(days=2, rows=5), TRACES: Unproven(days=1, rows=2)}
    assert ledger.chains.preview(ARCHIVE, TRACES) == {TRACES: Unproven(days=1, rows=2)}
    assert ledger.chains.preview(SinkName("nobody")) == {}
    assert (chains_of(ledger), kept(ledger), quiet(ledger)) == before


CHANGED: dict[DatasetName, Callable[[Day], None]] = {name: lambda _: None for name in (LOGS, TRACES)}


def accept(ledger: Ledger, dataset: DatasetName | None = None) -> int:
    return ledger.chains.accept(ARCHIVE, ledger.chains.preview(ARCHIVE, dataset), now=CHANGED)


def test_accepting_takes_the_days_it_is_about_to_the_chains_of_now_and_no_others(ledger: Ledger) -> None:
    with_losses(ledger)
    accept(ledger)
    assert kept(ledger) == {
        (LOGS, DAY): Kept.ACCEPTED,
        (LOGS, "2026-05-30"): Kept.ACCEPTED,
        (LOGS, "2026-05-29"): Kept.FROZEN,
        (TRACES, DAY): Kept.ACCEPTED,
    }
    chains = chains_of(ledger)
    brought = {place for place, chain in chains.items() if chain == "c2"}
    assert brought == {("archive", DAY, OTEL), ("archive", "2026-05-30", OTEL)}
    assert {chain for chain in chains.values() if chain != "c2"} == {"c1"}  # also of the source of which no chain is known
    assert set(kept(ledger, FORWARD).values()) == {Kept.UNPROVEN}
    assert quiet(ledger) == {(FORWARD, LOGS)}
    assert ledger.chains.preview(ARCHIVE) == {}
    accept(ledger)
    assert chains_of(ledger) == chains


def test_accepting_for_one_dataset_leaves_the_others(ledger: Ledger) -> None:
    with_losses(ledger)
    accept(ledger, TRACES)
    assert kept(ledger)[LOGS, DAY] is Kept.UNPROVEN
    assert set(chains_of(ledger).values()) == {"c1"}
    assert chains_of(ledger, TRACES) == {("archive", DAY, OTEL): "c3", ("archive", DAY, CLAUDE): "c1"}
    assert quiet(ledger) == {(ARCHIVE, LOGS), (FORWARD, LOGS)}


def test_nothing_is_accepted_if_more_vanished_than_somebody_was_shown(ledger: Ledger) -> None:
    with_losses(ledger)
    shown = ledger.chains.preview(ARCHIVE)
    record(ledger, keeping(of_two_sources("2026-05-28"), Kept.UNPROVEN))
    before = chains_of(ledger), kept(ledger)
    with pytest.raises(CursorSuperseded, match="other rows of logs vanished than was said; nothing was accepted"):
        ledger.chains.accept(ARCHIVE, shown, now=CHANGED)
    assert (chains_of(ledger), kept(ledger)) == before


def test_what_vanished_from_a_cache_that_was_replaced_after_the_last_export_is_not_accepted_with_the_rest(ledger: Ledger) -> None:
    with_losses(ledger)
    ledger.chains.move(LOGS, {OTEL: a_chain("c9", version=1, since="2026-06-01T12:00:00.001Z")}, unchanged={})
    assert accept(ledger, LOGS) == 0
    assert set(chains_of(ledger).values()) == {"c1"}


def test_a_day_that_is_as_it_was_is_accepted_though_its_chain_began_after_its_last_export(ledger: Ledger) -> None:
    with_losses(ledger)
    ledger.chains.move(LOGS, {OTEL: a_chain("c9", version=1, since="2026-06-01T12:00:00.001Z")}, unchanged={})
    assert ledger.chains.accept(ARCHIVE, ledger.chains.preview(ARCHIVE, LOGS), now={LOGS: {DAY: ONE}.get}) == 1
    assert {place for place, chain in chains_of(ledger).items() if chain == "c9"} == {("archive", DAY, OTEL)}


def test_an_export_that_runs_while_a_loss_is_accepted_does_not_undo_it(ledger: Ledger) -> None:
    with_losses(ledger)
    lost, whole = (ledger.recorded(ARCHIVE, LOGS, Day(day)) for day in (DAY, "2026-05-28"))
    accept(ledger)
    with pytest.raises(CursorSuperseded):
        ledger.record(keeping(of_two_sources(), Kept.UNPROVEN), replaces=lost)
    assert kept(ledger)[LOGS, DAY] is Kept.ACCEPTED
    ledger.record(of_two_sources("2026-05-28"), replaces=whole)
    record(ledger, of_two_sources())
    assert (LOGS, DAY) not in kept(ledger)


# --- intents -------------------------------------------------------------------------------------------------------------------


def test_what_was_about_to_be_written_is_known_until_its_day_is_recorded(database: ADatabase) -> None:
    other = Day("2026-05-30")
    with opened(database.place) as ledger:
        ledger.intents.open(ARCHIVE, LOGS, DAY, "b2", ["it's \u2028 a\udce9", "b"])
        ledger.intents.open(ARCHIVE, LOGS, DAY, "b1", {"c"})
        ledger.intents.open(ARCHIVE, LOGS, other, "b1", [])
        ledger.intents.open(ARCHIVE, TRACES, DAY, "b1", ["d"])
        ledger.intents.open(FORWARD, LOGS, DAY, "b1", ["e"])
    now = schema.timestamp(clock())
    with opened(database.place) as ledger:
        assert ledger.intents.of(ARCHIVE, LOGS, DAY) == [
            Intent(LOGS, DAY, "b1", ("c",), now),
            Intent(LOGS, DAY, "b2", ("it's \u2028 a\udce9", "b"), now),
        ]
        assert [(each.dataset, each.day) for each in ledger.intents.all(ARCHIVE)] == [
            (LOGS, other),
            (LOGS, DAY),
            (LOGS, DAY),
            (TRACES, DAY),
        ]
        ledger.record(a_receipt())
        assert ledger.intents.of(ARCHIVE, LOGS, DAY) == []
        assert [(each.dataset, each.day) for each in ledger.intents.all(ARCHIVE)] == [(LOGS, other), (TRACES, DAY)]
        assert len(ledger.intents.all(FORWARD)) == 1


def test_an_intent_said_again_counts_once(ledger: Ledger) -> None:
    """A connection that breaks at the commit does not say whether it happened."""
    for keys in (["a"], ["a", "b"]):
        ledger.intents.open(ARCHIVE, LOGS, DAY, "b1", keys)
    (intent,) = ledger.intents.of(ARCHIVE, LOGS, DAY)
    assert intent.keys == ("a", "b")


def test_an_export_that_lost_leaves_its_intent(ledger: Ledger) -> None:
    ledger.record(a_receipt())
    ledger.intents.open(ARCHIVE, LOGS, DAY, "b1", ["a"])
    with pytest.raises(CursorSuperseded):
        ledger.record(a_receipt())
    assert len(ledger.intents.of(ARCHIVE, LOGS, DAY)) == 1


# --- beginnings ----------------------------------------------------------------------------------------------------------------


def test_the_first_day_is_chosen_once_and_moves_only_by_command(ledger: Ledger, database: ADatabase) -> None:
    assert ledger.first_day() is None
    assert ledger.choose_first_day(Day("2026-01-01"), "config") == "2026-01-01"
    assert ledger.choose_first_day(Day("2025-01-01"), "earliest row") == "2026-01-01"
    assert ledger.first_day() == "2026-01-01"
    assert database.look("SELECT day, chosen_at, how FROM first_day") == [("2026-01-01", "2026-06-01T12:00:00.000Z", "config")]
    ledger.move_first_day(Day("2024-02-29"))
    assert ledger.choose_first_day(Day("2025-01-01"), "earliest row") == "2024-02-29"


def test_the_first_day_can_be_moved_before_it_was_chosen(ledger: Ledger) -> None:
    ledger.move_first_day(Day("2026-01-01"))
    assert ledger.first_day() == "2026-01-01"


def test_a_sink_starts_on_the_day_it_was_first_seen(ledger: Ledger) -> None:
    assert ledger.sink_start(ARCHIVE, Day("2026-06-01")) == "2026-06-01"
    assert ledger.sink_start(ARCHIVE, Day("2026-06-02")) == "2026-06-01"
    assert ledger.sink_start(SinkName("forward"), Day("2026-06-02")) == "2026-06-02"


# --- several at once -----------------------------------------------------------------------------------------------------------

_RACER = """
import datetime as dt, sys
sys.path.insert(0, sys.argv[3])
from test_ledger import a_receipt, clock, place_of, record
from hypaware_pipeline.ledger import Ledger
print("ready", flush=True)
sys.stdin.readline()
number = int(sys.argv[2])
with Ledger.open(place_of(sys.argv[1]), clock=clock) as ledger:
    day = ledger.choose_first_day(f"2026-01-{number:02}", "racer")
    for repeat in range(10):
        record(ledger, a_receipt(f"2026-02-{number:02}", fingerprint=str(repeat)))
    print(ledger.id, day, flush=True)
"""


def place_of(text: str) -> Path | str:
    """As `Ledger.open` takes it, from a command line."""
    return text if "://" in text else Path(text)


def start(script: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def test_processes_that_race_to_make_the_ledger_share_one(database: ADatabase) -> None:
    racers = [start(_RACER, database.place, number, Path(__file__).parent) for number in range(1, 6)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    said = {racer.communicate(timeout=60)[0] for racer in release(racers)}
    assert [racer.returncode for racer in racers] == [0] * len(racers)
    assert len(said) == 1
    with opened(database.place) as ledger:
        assert said == {f"{ledger.id} {ledger.first_day()}\n"}
        standing = {day: key.fingerprint for (_, day), key in ledger.fingerprints(ARCHIVE).items()}
    assert standing == {f"2026-02-{number:02}": "9" for number in range(1, 6)}
    if isinstance(database, AFile):
        assert database.look("PRAGMA journal_mode") == [("wal",)]


def release(racers: "list[subprocess.Popen[str]]") -> "list[subprocess.Popen[str]]":
    """Let all of them go before the first is waited for."""
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    return racers


_WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from test_ledger import a_receipt, clock, place_of, record
from hypaware_pipeline.ledger import Ledger
with Ledger.open(place_of(sys.argv[1]), clock=clock) as ledger:
    for number in range(1_000_000):
        record(ledger, a_receipt(fingerprint=str(number)))
        print(number, flush=True)
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_process_killed_while_it_records_leaves_the_old_receipt_or_the_new_one(database: ADatabase, seed: int) -> None:
    with start(_WRITER, database.place, Path(__file__).parent) as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(random.Random(seed).randrange(1, 60))]
        writer.kill()
        confirmed = int([*said, *writer.stdout.readlines()][-1])
    with Ledger.open(database.place, clock=clock) as ledger:  # waits until a server, too, is done with the dead
        receipt = ledger.receipt(ARCHIVE, LOGS, DAY)
        key = ledger.fingerprints(ARCHIVE)[LOGS, DAY]
    assert receipt is not None
    assert receipt.fingerprint == key.fingerprint
    assert int(receipt.fingerprint) - confirmed in (0, 1)
    if isinstance(database, AFile):
        assert database.look("PRAGMA integrity_check") == [("ok",)]


def test_threads_share_a_ledger(database: ADatabase) -> None:
    days = [f"2026-03-{number:02}" for number in range(1, 21)]
    with Ledger.open(database.place, clock=clock) as ledger:
        in_threads(ledger.record, map(a_receipt, days))
        assert sorted(ledger.receipts(ARCHIVE, LOGS)) == days


def test_reading_does_not_wait_for_a_writer(ledger: Ledger, database: ADatabase) -> None:
    ledger.record(a_receipt())
    with database.held():
        assert ledger.receipt(ARCHIVE, LOGS, DAY) == a_receipt()
        assert len(ledger.fingerprints(ARCHIVE)) == 1


# --- what can go wrong ---------------------------------------------------------------------------------------------------------


def unreadable(database: ADatabase) -> str:
    """What opening the ledger says."""
    with pytest.raises(LedgerUnreadable) as caught:
        opened(database.place)
    assert str(caught.value).startswith(f"ledger {database.shown}: ")
    return str(caught.value)


def test_the_ledger_and_its_side_files_are_the_owners_alone(path: Path) -> None:
    with opened(path) as ledger:
        ledger.record(a_receipt())
        modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
    assert modes == dict.fromkeys(("ledger.db", "ledger.db-wal", "ledger.db-shm"), 0o600)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["a b.db", "a?mode=ro.db", "a%20b#c.db", "日本 'x'.db", "file:x.db"])
def test_a_ledger_can_have_any_file_name(tmp_path: Path, name: str) -> None:
    with Ledger.open(tmp_path / name, clock=clock) as ledger:
        ledger.record(a_receipt())
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_a_url_names_a_ledger_too(path: Path) -> None:
    with Ledger.open(f"sqlite:///{path}", clock=clock) as by_url, Ledger.open(path, clock=clock) as by_path:
        assert by_url.id == by_path.id


def test_an_empty_file_becomes_a_ledger(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with Ledger.open(path, clock=clock) as ledger:
        assert ledger.first_day() is None


def test_a_file_that_is_no_database_is_named_with_the_mend(file: AFile, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"{}" * 4096)
    assert "file is not a database; restore it from a backup, or move it and its -wal and -shm files away" in unreadable(file)
    assert path.read_bytes() == b"{}" * 4096


def test_a_torn_ledger_is_named_with_the_mend(file: AFile, path: Path) -> None:
    with Ledger.open(path, clock=clock) as ledger:
        for number in range(1, 29):
            ledger.record(a_receipt(f"2026-02-{number:02}"))
    with path.open("r+b") as torn:
        torn.seek(4096)
        torn.write(b"\xff" * (path.stat().st_size - 4096))
    assert "restore it from a backup" in unreadable(file)


def test_a_directory_in_its_place_is_said(file: AFile, path: Path) -> None:
    path.mkdir(parents=True)
    assert "Is a directory; check that it is a file" in unreadable(file)


def test_a_file_in_the_place_of_its_directory_is_said(file: AFile, path: Path) -> None:
    path.parent.touch()
    assert "check that it is a file and that this user may write it and its directory" in unreadable(file)


_OPEN_AS_AN_ORDINARY_USER = """
import os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from test_ledger import clock
from hypaware_pipeline.errors import LedgerUnreadable
from hypaware_pipeline.ledger import Ledger
import sqlalchemy.dialects.sqlite
if os.geteuid() == 0:
    os.setuid(65534)
try:
    Ledger.open(Path(sys.argv[1]), clock=clock)
except LedgerUnreadable as error:
    print(error)
"""


@pytest.mark.parametrize("mode", [0o444, 0o666])
def test_a_read_only_place_is_said(mode: int) -> None:
    with tempfile.TemporaryDirectory() as text:  # not tmp_path: pytest's directories are closed to other users
        path = Path(text) / "state" / "ledger.db"
        with Ledger.open(path, clock=clock):
            pass
        path.parent.parent.chmod(0o755)
        path.chmod(mode)
        path.parent.chmod(0o555)
        with start(_OPEN_AS_AN_ORDINARY_USER, path, Path(__file__).parent) as process:
            said, _ = process.communicate(timeout=60)
        path.parent.chmod(0o755)
    assert str(path) in said
    assert "this user may write it and its directory" in said


def test_another_programs_database_is_left_alone(database: ADatabase) -> None:
    database.edit("CREATE TABLE invoices (number INTEGER)")
    assert "it is a database of something else; name another" in unreadable(database)
    assert tables(database) == {"invoices"}


def tables(database: ADatabase) -> set[str]:
    """What the database holds."""
    if isinstance(database, AFile):
        rows = database.look("SELECT name FROM sqlite_master WHERE type = 'table'")
    else:
        rows = database.look("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
    return {name for (name,) in rows}


def test_a_newer_versions_ledger_is_left_alone(database: ADatabase) -> None:
    opened(database.place).close()
    database.edit("UPDATE meta SET schema_version = 99")
    known = len(schema._MIGRATIONS)
    said = f"newer version of hypaware-pipeline (schema 99, this one knows {known}); upgrade hypaware-pipeline"
    assert said in unreadable(database)


def test_a_ledger_that_stays_locked_cannot_be_opened(database: ADatabase) -> None:
    opened(database.place).close()
    with database.held():
        assert "another process is writing it; end that process or try again" in unreadable(database)


def test_a_write_that_never_gets_its_turn_fails_and_says_so(ledger: Ledger, database: ADatabase) -> None:
    with database.held():
        writes: list[Callable[[], object]] = [
            lambda: ledger.record(a_receipt()),
            lambda: ledger.choose_first_day(DAY, "config"),
            lambda: ledger.move_first_day(DAY),
            lambda: ledger.sink_start(ARCHIVE, DAY),
            lambda: ledger.chains.move(LOGS, {OTEL: a_chain()}, unchanged={}),
            lambda: ledger.chains.accept(ARCHIVE, {LOGS: Unproven(days=1, rows=1)}, now=CHANGED),
            lambda: ledger.intents.open(ARCHIVE, LOGS, DAY, "b1", []),
        ]
        for write in writes:
            with pytest.raises(LedgerWriteFailed, match="another process is writing it; end that process or try again"):
                write()
    ledger.record(a_receipt())
    assert ledger.first_day() is None


def test_a_damaged_receipt_is_named_and_costs_no_other(ledger: Ledger, database: ADatabase) -> None:
    ledger.record(a_receipt())
    ledger.record(a_receipt("2026-05-30"))
    database.edit(f"UPDATE receipts SET document = '{{}}' WHERE day = '{DAY}'")
    with pytest.raises(LedgerUnreadable, match="the receipt of archive/logs on 2026-05-31 is damaged"):
        ledger.receipt(ARCHIVE, LOGS, DAY)
    assert ledger.receipt(ARCHIVE, LOGS, Day("2026-05-30")) is not None


def test_a_ledger_whose_tables_vanished_is_unreadable_and_not_empty(ledger: Ledger, database: ADatabase) -> None:
    database.edit("DROP TABLE receipts")
    reads: list[Callable[[], object]] = [
        lambda: ledger.receipts(ARCHIVE, LOGS),
        lambda: ledger.receipt(ARCHIVE, LOGS, DAY),
        lambda: ledger.fingerprints(ARCHIVE),
    ]
    for read in reads:
        with pytest.raises(LedgerUnreadable, match=r"no such table|does not exist; restore the database"):
            read()


_FILLER = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from test_ledger import a_receipt, clock
from hypaware_pipeline.errors import LedgerWriteFailed
from hypaware_pipeline.ledger import Ledger
with Ledger.open(Path(sys.argv[1]), clock=clock) as ledger:
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    for number in range(10_000):
        try:
            ledger.record(a_receipt(f"day {number:05}"))
        except LedgerWriteFailed as error:
            print(number, error, flush=True)
            break
"""


def test_a_full_disk_fails_the_write_and_keeps_what_was_recorded(path: Path) -> None:
    with start(_FILLER, path, Path(__file__).parent) as process:
        said, _ = process.communicate(timeout=60)
    number, _, message = said.partition(" ")
    assert message.startswith(f"ledger {path}: ")
    assert "space" in message
    with Ledger.open(path, clock=clock) as ledger:
        assert sorted(ledger.receipts(ARCHIVE, LOGS)) == [f"day {kept:05}" for kept in range(int(number))]


def test_no_error_shows_a_receipt_or_a_password(ledger: Ledger, database: ADatabase) -> None:
    """PostgreSQL quotes the whole row that was refused."""
    database.forbid("receipts", "destination = 's3cr3t'")
    errors: list[LedgerError] = []
    with pytest.raises(LedgerWriteFailed, match="refused") as caught:
        ledger.record(replace(a_receipt(), destination="s3cr3t"))
    errors.append(caught.value)
    with pytest.raises(LedgerUnreadable) as unknown:
        Ledger.open("nosuchdatabase://ada:s3cr3t@host/x", clock=clock)
    errors.append(unknown.value)
    assert not any("s3cr3t" in str(error) for error in errors)


# --- migrations ----------------------------------------------------------------------------------------------------------------


def _add_a_table(connection: sa.Connection) -> None:
    connection.execute(sa.text("CREATE TABLE younger (x INTEGER)"))


def _fail_halfway(connection: sa.Connection) -> None:
    _add_a_table(connection)
    connection.execute(sa.text("INSERT INTO nowhere VALUES (1)"))


def test_an_older_ledger_is_brought_up_and_keeps_its_id_and_content(database: ADatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(database.place) as older:
        older.record(a_receipt())
    known = len(schema._MIGRATIONS)
    monkeypatch.setattr(schema, "_MIGRATIONS", (*schema._MIGRATIONS, _add_a_table))
    with opened(database.place) as newer:
        assert newer.id == older.id
        assert newer.receipt(ARCHIVE, LOGS, DAY) == a_receipt()
    assert database.look("SELECT schema_version FROM meta") == [(known + 1,)]
    opened(database.place).close()


def test_a_migration_that_fails_leaves_the_older_ledger_whole(database: ADatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(database.place).close()
    with monkeypatch.context() as patch:
        patch.setattr(schema, "_MIGRATIONS", (*schema._MIGRATIONS, _fail_halfway))
        assert "nowhere" in unreadable(database)
    assert database.look("SELECT schema_version FROM meta") == [(len(schema._MIGRATIONS),)]
    assert "younger" not in tables(database)
    opened(database.place).close()


@pytest.mark.parametrize("version", range(1, len(schema._MIGRATIONS)))
def test_the_ledger_of_every_earlier_version_is_brought_up(
    database: ADatabase, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(schema, "_MIGRATIONS", schema._MIGRATIONS[:version])
        opened(database.place).close()
    with opened(database.place) as ledger:
        ledger.record(a_receipt())
        assert ledger.failures(ARCHIVE) == {}
        assert ledger.plan_memory(ARCHIVE) == {LOGS: PlanMemory(1, None)}


def test_of_receipts_that_name_no_rows_nothing_is_left_and_all_else_is(
    database: ADatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger of schema 4, as it was: its receipts did not say which rows they spoke of."""
    with monkeypatch.context() as patch:
        patch.setattr(schema, "_MIGRATIONS", schema._MIGRATIONS[:4])
        with opened(database.place) as older:
            older.choose_first_day(Day("2026-01-01"), "config")
            older.sink_start(ARCHIVE, Day("2026-06-01"))
            older.record_failure(ARCHIVE, LOGS, DAY, "the disk is full")
            older.remember_nothing_due(ARCHIVE, LOGS, state="quiet", revision=1)
    for column in ("kept_rows", "kept"):
        database.edit(f"ALTER TABLE receipts DROP COLUMN {column}")
    database.edit(
        "INSERT INTO receipts"
        " (sink, dataset, day, destination, fingerprint, rows, exported_rows, parked_rows, bytes, exported_at, document, version)"
        f" VALUES ('archive', 'logs', '{DAY}', 'd', 'f', 1, 1, 0, 9, '2026-06-01T12:00:00.000Z', '{{}}', 1)"
    )
    with opened(database.place) as ledger:
        assert ledger.id == older.id
        assert ledger.fingerprints(ARCHIVE) == {}
        assert ledger.first_day() == "2026-01-01"
        assert ledger.sink_start(ARCHIVE, DAY) == "2026-06-01"
        assert ledger.failures(ARCHIVE)[LOGS, DAY].reason == "the disk is full"
        assert ledger.plan_memory(ARCHIVE) == {LOGS: PlanMemory(2, None)}
        ledger.record(a_receipt())
        assert ledger.recorded(ARCHIVE, LOGS, DAY) == Recorded(a_receipt(), 3)


# --- cost ----------------------------------------------------------------------------------------------------------------------


def test_importing_the_ledger_loads_sqlalchemy_and_nothing_else_of_weight() -> None:
    script = "import sys, hypaware_pipeline.ledger; print(*{m.partition('.')[0] for m in sys.modules})"
    with start(script) as process:
        loaded = set(process.communicate(timeout=60)[0].split())
    assert "sqlalchemy" in loaded
    assert not loaded & {"dagster", "duckdb", "pandas", "psycopg", "pyarrow", "pydantic", "pyiceberg"}


def test_a_copied_ledger_is_the_same_ledger(path: Path, tmp_path: Path) -> None:
    with Ledger.open(path, clock=clock) as ledger:
        ledger.record(a_receipt())
    shutil.copy(path, tmp_path / "copy.db")
    with Ledger.open(tmp_path / "copy.db", clock=clock) as copy:
        assert (copy.id, copy.receipt(ARCHIVE, LOGS, DAY)) == (ledger.id, a_receipt())


# --- plans and failures --------------------------------------------------------------------------------------------------------


def test_a_failure_is_remembered_until_the_next_receipt_of_its_day(database: ADatabase) -> None:
    with opened(database.place) as ledger:
        ledger.record_failure(ARCHIVE, LOGS, DAY, "the disk is full")
        ledger.record_failure(ARCHIVE, LOGS, DAY, "the disk is still full")
        assert ledger.failures(ARCHIVE) == {(LOGS, DAY): Failure("the disk is still full", schema.timestamp(clock()))}
        ledger.record(a_receipt())
        assert ledger.failures(ARCHIVE) == {}


def test_a_failure_may_quote_what_is_no_text(ledger: Ledger) -> None:
    ledger.record_failure(ARCHIVE, LOGS, DAY, "no such file: a\udce9\0b, 日本")
    assert ledger.failures(ARCHIVE)[LOGS, DAY].reason == "no such file: a\\udce9\\x00b, 日本"


def test_whatever_is_recorded_makes_the_plan_forget(database: ADatabase) -> None:
    with opened(database.place) as ledger:
        ledger.remember_nothing_due(ARCHIVE, LOGS, state="quiet", revision=0)
        assert ledger.plan_memory(ARCHIVE)[LOGS].nothing_due_at == "quiet"
        ledger.record_failure(ARCHIVE, LOGS, DAY, "the disk is full")
        assert ledger.plan_memory(ARCHIVE)[LOGS] == PlanMemory(1, None)
        ledger.record(a_receipt())
        assert ledger.plan_memory(ARCHIVE)[LOGS] == PlanMemory(2, None)


# --- PostgreSQL ----------------------------------------------------------------------------------------------------------------


def test_a_password_may_come_by_the_environment_or_a_file(
    served: AServersDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = served.server.url(served.name, password=None)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    assert "give the password in HYPAWARE_LEDGER_URL, PGPASSWORD or ~/.pgpass" in unreadable(replace(served, place=bare))
    with monkeypatch.context() as patch:
        patch.setenv("PGPASSWORD", SECRET)
        opened(bare).close()
    (tmp_path / "pgpass").write_text("*:*:*:ada:" + SECRET.replace(":", r"\:"))
    (tmp_path / "pgpass").chmod(0o600)
    opened(bare).close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ({"password": "s3cr3t"}, 'password authentication failed for user "ada"; check the user, and give the password in'),
        ({"user": "eve"}, 'password authentication failed for user "eve"; check the user, and give the password in'),
        ({"database": "nowhere"}, 'database "nowhere" does not exist; make it (createdb), or name another'),
        ({"query": "?sslmode=require"}, "server does not support SSL"),
        ({"query": "?nonsense=1"}, 'invalid connection option "nonsense"; correct HYPAWARE_LEDGER_URL'),
        ({"query": "?options=-csearch_path%3Dnowhere"}, "no schema has been selected to create in; make the schema"),
    ],
)
def test_a_server_that_lets_nobody_in_is_named_with_the_mend(served: AServersDatabase, url: dict[str, str], said: str) -> None:
    query = url.pop("query", "")
    named = served.server.url(**{"database": served.name, **url}) + query
    with pytest.raises(LedgerUnreadable) as caught:
        opened(named)
    assert said in str(caught.value)
    assert str(caught.value).startswith("ledger postgresql://")
    assert not any(secret in str(caught.value) for secret in ("s3cr3t", SECRET, quote(SECRET, safe="")))


@pytest.mark.parametrize("where", ["127.0.0.1:{port}", "/?host=/nowhere", "no.such.host.invalid"])
def test_a_server_that_cannot_be_reached_is_named_with_the_mend(where: str) -> None:
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        place = where.format(port=nobody_listens.getsockname()[1])
        with pytest.raises(LedgerUnreadable, match="check that the server runs, that this machine reaches it") as caught:
            opened(f"postgresql://ada:s3cr3t@{place}")
    assert "s3cr3t" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_user_who_may_not_make_tables_is_told_what_is_missing(served: AServersDatabase) -> None:
    served.server.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    with pytest.raises(LedgerUnreadable, match="permission denied for schema public; GRANT the user the right to create"):
        opened(served.server.url(served.name, user="guest", password="guest"))


def test_a_read_only_server_can_be_read_and_says_why_it_takes_no_write(served: AServersDatabase) -> None:
    with opened(served.place) as ledger:
        ledger.record(a_receipt())
    served.server.execute(f"ALTER DATABASE {served.name} SET default_transaction_read_only = on")
    with opened(served.place) as ledger:
        assert ledger.receipt(ARCHIVE, LOGS, DAY) == a_receipt()
        with pytest.raises(LedgerWriteFailed, match="this is a standby, or was made read-only; name the primary"):
            record(ledger, a_receipt(fingerprint="two"))


def test_a_connection_lost_in_the_middle_of_a_transaction_lands_nothing_and_the_next_is_a_new_one(
    served: AServersDatabase,
) -> None:
    errors: list[LedgerError] = []
    with Ledger.open(served.place, clock=clock) as ledger, served.server.connect(served.name) as other:
        ledger.record(a_receipt())

        def work(fingerprint: str) -> None:
            try:
                record(ledger, a_receipt(fingerprint=fingerprint))
            except LedgerError as error:
                errors.append(error)

        with other.transaction():
            other.execute("LOCK TABLE failures IN ACCESS EXCLUSIVE MODE")  # the last a receipt needs
            writer = threading.Thread(target=work, args=("two",))
            writer.start()
            waiting = b"SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            pid = wait_for("the writer to wait", lambda: served.server.look(waiting, database=served.name), every=0.02)
            other.execute("SELECT pg_terminate_backend(%s)", pid[0])
            writer.join()
        (error,) = errors
        assert isinstance(error, LedgerWriteFailed)
        assert "terminating connection" in str(error)
        assert "try again once the server is back" in str(error)
        assert ledger.receipt(ARCHIVE, LOGS, DAY) == a_receipt()
        assert ledger.plan_memory(ARCHIVE)[LOGS].revision == 1
        work("three")
        assert ledger.fingerprints(ARCHIVE)[LOGS, DAY].fingerprint == "three"


def test_a_server_that_was_restarted_between_two_days_costs_nothing() -> None:
    with APostgres() as server, Ledger.open(server.new_database(), clock=clock) as ledger:
        ledger.record(a_receipt())
        server.stop()
        with pytest.raises(LedgerUnreadable, match="check that the server runs"):
            ledger.receipt(ARCHIVE, LOGS, DAY)
        with pytest.raises(LedgerWriteFailed, match="check that the server runs"):
            ledger.record_failure(ARCHIVE, LOGS, DAY, "the disk is full")
        server.start()
        assert ledger.receipt(ARCHIVE, LOGS, DAY) == a_receipt()


# --- where it lies -------------------------------------------------------------------------------------------------------------


def chosen(url: str | None, path: Path) -> LedgerPlace:
    return LedgerPlace.chosen({} if url is None else {LEDGER_URL_VARIABLE: url}, file=path)


def test_without_a_url_the_ledger_is_a_file(path: Path) -> None:
    for url in (None, ""):
        with chosen(url, path).open(clock=clock) as ledger:
            assert ledger.first_day() is None
    assert chosen(None, path).shown == str(path)
    assert path.is_file()


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_a_url_names_a_database_and_its_password_is_never_shown(served: AServersDatabase, path: Path, scheme: str) -> None:
    place = chosen(scheme + served.place.removeprefix("postgresql") + "?application_name=mine&sslpassword=s3cr3t", path)
    with place.open(clock=clock) as ledger:
        ledger.record(a_receipt())
    assert place.shown == served.shown
    assert not path.exists()
    assert not any(secret in repr(place) + str(place) for secret in ("s3cr3t", SECRET, quote(SECRET, safe="")))


def test_schemas_of_one_database_are_ledgers_of_their_own(served: AServersDatabase, path: Path) -> None:
    places = []
    for schema_name in ("one", "two"):
        served.edit(f"CREATE SCHEMA {schema_name}")
        places.append(chosen(f"{served.place}?options=-csearch_path%3D{schema_name}", path))
    ids = []
    for place in places:
        with place.open(clock=clock) as ledger:
            ids.append(ledger.id)
    assert len({place.shown for place in places}) == len(set(ids)) == 2


@pytest.mark.parametrize(
    "url",
    [
        "mysql://ada:s3cr3t@host/x",
        "sqlite:///s3cr3t.db",
        "s3cr3t",
        "postgresql:s3cr3t",
        "postgresql://ada:s3cr3t",
        "postgresql://ada:s3@cr3t@host/x",
        "postgresql://ada:s3cr3t@host:port/x",
    ],
)
def test_what_is_no_url_of_a_database_is_refused_without_quoting_it(path: Path, url: str) -> None:
    with pytest.raises(BadRequest, match=r"HYPAWARE_LEDGER_URL .*; write postgresql://") as caught:
        chosen(url, path)
    assert "s3" not in str(caught.value)
    assert "cr3t" not in str(caught.value)


def test_a_process_whose_environment_leads_to_another_ledger_refuses(served: AServersDatabase, path: Path) -> None:
    """A run started without the variable would have found an empty ledger and asked for every day again."""
    env = {LEDGER_URL_VARIABLE: served.place}
    LedgerPlace.remembered(served.shown, env).open(clock=clock).close()
    wrong: list[tuple[str, dict[str, str], str]] = [
        (served.shown, {}, "is not set here"),
        (served.shown, {LEDGER_URL_VARIABLE: f"{served.place}x"}, f"names {served.shown}x here"),
        (str(path), env, f"names {served.shown} here"),
    ]
    for shown, environment, said in wrong:
        with pytest.raises(LedgerUnreadable, match="reload the code location") as caught:
            LedgerPlace.remembered(shown, environment).open(clock=clock)
        assert said in str(caught.value)
        assert str(caught.value).startswith(f"ledger {shown}: ")
    assert not path.exists()
