"""The ledger: what it keeps, what it survives, what it says when it cannot."""

import datetime as dt
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from hypaware_pipeline.errors import LedgerError, LedgerUnreadable, LedgerWriteFailed
from hypaware_pipeline.ledger import Failure, Ledger, PlanMemory, ReceiptKey, schema
from hypaware_pipeline.model import (
    UNDATED,
    DatasetName,
    Day,
    ExportedFile,
    Fingerprint,
    ParkedRecord,
    Receipt,
    SinkName,
    SourceName,
)

ROOT = Path(__file__).resolve().parent.parent
NOW = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
ARCHIVE = SinkName("archive")
LOGS = DatasetName("logs")
DAY = Day("2026-05-31")


def clock() -> dt.datetime:
    return NOW


def a_receipt(day: str = DAY, *, fingerprint: str = "one", sink: str = ARCHIVE, dataset: str = LOGS) -> Receipt:
    return Receipt(
        sink=SinkName(sink),
        dataset=DatasetName(dataset),
        day=Day(day),
        destination="d1",
        ledger_id="l1",
        fingerprint=Fingerprint(fingerprint),
        rows=4,
        files=(ExportedFile(f"logs/day={day}/otel.parquet", SourceName("otel"), 3, 1234, "ab" * 32),),
        parked_rows=1,
        parked=(ParkedRecord(SourceName("otel"), "row 4", 'not UTF-8: "\u2028" \U0001f600'),),
        unreadable={SourceName("other"): "torn"},
        exported_at="2026-06-01T12:00:00.000Z",
        seconds=0.25,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.state" / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger.open(path, clock=clock, busy_timeout_seconds=0.05) as opened:
        yield opened


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
        ledger.record(receipt)
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
    one = ReceiptKey(Fingerprint("one"), "d1", 4, 3, 1, 1234, "2026-06-01T12:00:00.000Z")
    assert ledger.fingerprints(ARCHIVE) == {(LOGS, DAY): one, ("traces", DAY): replace(one, fingerprint=Fingerprint("two"))}


def test_planning_parses_no_document(ledger: Ledger, path: Path) -> None:
    ledger.record(a_receipt())
    edit(path, "UPDATE receipts SET document = 'no JSON'")
    assert len(ledger.fingerprints(ARCHIVE)) == 1


def test_a_row_count_beyond_32_bits_is_kept(ledger: Ledger) -> None:
    ledger.record(replace(a_receipt(), rows=2**40, parked_rows=2**40 - 3))
    assert ledger.fingerprints(ARCHIVE)[LOGS, DAY].rows == 2**40


def test_what_was_recorded_is_there_when_the_ledger_is_opened_again(path: Path) -> None:
    with Ledger.open(path, clock=clock) as first:
        first.record(a_receipt())
    with Ledger.open(path, clock=clock) as second:
        assert second.receipt(ARCHIVE, LOGS, DAY) == a_receipt()
        assert second.id == first.id


# --- beginnings ----------------------------------------------------------------------------------------------------------------


def test_the_first_day_is_chosen_once_and_moves_only_by_command(ledger: Ledger, path: Path) -> None:
    assert ledger.first_day() is None
    assert ledger.choose_first_day(Day("2026-01-01"), "config") == "2026-01-01"
    assert ledger.choose_first_day(Day("2025-01-01"), "earliest row") == "2026-01-01"
    assert ledger.first_day() == "2026-01-01"
    assert look(path, "SELECT day, chosen_at, how FROM first_day") == [("2026-01-01", "2026-06-01T12:00:00.000Z", "config")]
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
from pathlib import Path
from test_ledger import ARCHIVE, LOGS, a_receipt, clock
from hypaware_pipeline.ledger import Ledger
print("ready", flush=True)
sys.stdin.readline()
number = int(sys.argv[2])
with Ledger.open(Path(sys.argv[1]), clock=clock) as ledger:
    day = ledger.choose_first_day(f"2026-01-{number:02}", "racer")
    for repeat in range(10):
        ledger.record(a_receipt(f"2026-02-{number:02}", fingerprint=str(repeat)))
    print(ledger.id, day, flush=True)
"""


def start(script: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def test_processes_that_race_to_make_the_ledger_share_one(path: Path) -> None:
    racers = [start(_RACER, path, number, Path(__file__).parent) for number in range(1, 6)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    said = {racer.communicate(timeout=60)[0] for racer in release(racers)}
    assert [racer.returncode for racer in racers] == [0] * len(racers)
    assert len(said) == 1
    with Ledger.open(path, clock=clock) as ledger:
        assert said == {f"{ledger.id} {ledger.first_day()}\n"}
        standing = {day: key.fingerprint for (_, day), key in ledger.fingerprints(ARCHIVE).items()}
    assert standing == {f"2026-02-{number:02}": "9" for number in range(1, 6)}
    assert look(path, "PRAGMA journal_mode") == [("wal",)]


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
from pathlib import Path
from test_ledger import a_receipt, clock
from hypaware_pipeline.ledger import Ledger
with Ledger.open(Path(sys.argv[1]), clock=clock) as ledger:
    for number in range(1_000_000):
        ledger.record(a_receipt(fingerprint=str(number)))
        print(number, flush=True)
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_process_killed_while_it_records_leaves_the_old_receipt_or_the_new_one(path: Path, seed: int) -> None:
    with start(_WRITER, path, Path(__file__).parent) as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(random.Random(seed).randrange(1, 60))]
        writer.kill()
        confirmed = int([*said, *writer.stdout.readlines()][-1])
    with Ledger.open(path, clock=clock) as ledger:
        receipt = ledger.receipt(ARCHIVE, LOGS, DAY)
        key = ledger.fingerprints(ARCHIVE)[LOGS, DAY]
    assert receipt is not None
    assert receipt.fingerprint == key.fingerprint
    assert int(receipt.fingerprint) - confirmed in (0, 1)
    assert look(path, "PRAGMA integrity_check") == [("ok",)]


def test_threads_share_a_ledger(path: Path) -> None:
    days = [f"2026-03-{number:02}" for number in range(1, 21)]
    with Ledger.open(path, clock=clock) as ledger:
        threads = [threading.Thread(target=ledger.record, args=(a_receipt(day),)) for day in days]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(ledger.receipts(ARCHIVE, LOGS)) == days


def test_reading_does_not_wait_for_a_writer(ledger: Ledger, path: Path) -> None:
    ledger.record(a_receipt())
    with held(path, "BEGIN IMMEDIATE"):
        assert ledger.receipt(ARCHIVE, LOGS, DAY) == a_receipt()
        assert len(ledger.fingerprints(ARCHIVE)) == 1


# --- what can go wrong ---------------------------------------------------------------------------------------------------------


def connect(path: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(path, isolation_level=None))


class held:  # noqa: N801 - reads as a word where it is used
    """Another process's open transaction."""

    def __init__(self, path: Path, begin: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._begin = begin

    def __enter__(self) -> None:
        self._connection.execute(self._begin)

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def look(path: Path, query: str) -> list[tuple[object, ...]]:
    with connect(path) as connection:
        return connection.execute(query).fetchall()


def edit(path: Path, statement: str) -> None:
    with connect(path) as connection:
        connection.execute(statement)


def unreadable(path: Path) -> str:
    """What opening the ledger says."""
    with pytest.raises(LedgerUnreadable) as caught:
        Ledger.open(path, clock=clock, busy_timeout_seconds=0.05)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_the_ledger_and_its_side_files_are_the_owners_alone(ledger: Ledger, path: Path) -> None:
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


def test_a_file_that_is_no_database_is_named_with_the_mend(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"{}" * 4096)
    assert "file is not a database; restore it from a backup, or move it and its -wal and -shm files away" in unreadable(path)
    assert path.read_bytes() == b"{}" * 4096


def test_a_torn_ledger_is_named_with_the_mend(path: Path) -> None:
    with Ledger.open(path, clock=clock) as ledger:
        for number in range(1, 29):
            ledger.record(a_receipt(f"2026-02-{number:02}"))
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    assert "restore it from a backup" in unreadable(path)


def test_a_directory_in_its_place_is_said(path: Path) -> None:
    path.mkdir(parents=True)
    assert "Is a directory; check that it is a file" in unreadable(path)


def test_a_file_in_the_place_of_its_directory_is_said(path: Path) -> None:
    path.parent.touch()
    assert "check that it is a file and that this user may write it and its directory" in unreadable(path)


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


def test_another_programs_database_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    edit(path, "CREATE TABLE invoices (number INTEGER)")
    assert "it is a database of something else; name another file" in unreadable(path)
    assert look(path, "SELECT name FROM sqlite_master") == [("invoices",)]


def test_a_newer_versions_ledger_is_left_alone(path: Path) -> None:
    Ledger.open(path, clock=clock).close()
    edit(path, "UPDATE meta SET schema_version = 7")
    known = len(schema._MIGRATIONS)
    assert f"newer version of hypaware-pipeline (schema 7, this one knows {known}); upgrade hypaware-pipeline" in unreadable(path)


def test_a_ledger_that_stays_locked_cannot_be_opened(path: Path) -> None:
    Ledger.open(path, clock=clock).close()
    with held(path, "BEGIN IMMEDIATE"):
        assert "database is locked; another process is writing it" in unreadable(path)


def test_a_write_that_never_gets_its_turn_fails_and_says_so(ledger: Ledger, path: Path) -> None:
    with held(path, "BEGIN IMMEDIATE"):
        writes: list[Callable[[], object]] = [
            lambda: ledger.record(a_receipt()),
            lambda: ledger.choose_first_day(DAY, "config"),
            lambda: ledger.move_first_day(DAY),
            lambda: ledger.sink_start(ARCHIVE, DAY),
        ]
        for write in writes:
            with pytest.raises(LedgerWriteFailed, match="database is locked; another process is writing it"):
                write()
    ledger.record(a_receipt())
    assert ledger.first_day() is None


def test_a_damaged_receipt_is_named_and_costs_no_other(ledger: Ledger, path: Path) -> None:
    ledger.record(a_receipt())
    ledger.record(a_receipt("2026-05-30"))
    edit(path, f"UPDATE receipts SET document = '{{}}' WHERE day = '{DAY}'")
    with pytest.raises(LedgerUnreadable, match="the receipt of archive/logs on 2026-05-31 is damaged"):
        ledger.receipt(ARCHIVE, LOGS, DAY)
    assert ledger.receipt(ARCHIVE, LOGS, Day("2026-05-30")) is not None


def test_a_ledger_whose_tables_vanished_is_unreadable_and_not_empty(ledger: Ledger, path: Path) -> None:
    edit(path, "DROP TABLE receipts")
    reads: list[Callable[[], object]] = [
        lambda: ledger.receipts(ARCHIVE, LOGS),
        lambda: ledger.receipt(ARCHIVE, LOGS, DAY),
        lambda: ledger.fingerprints(ARCHIVE),
    ]
    for read in reads:
        with pytest.raises(LedgerUnreadable, match="no such table"):
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


def test_no_error_shows_a_receipt_or_a_password(ledger: Ledger, path: Path) -> None:
    edit(path, "CREATE TRIGGER refuse BEFORE INSERT ON receipts BEGIN SELECT RAISE(ABORT, 'refused'); END")
    errors: list[LedgerError] = []
    with pytest.raises(LedgerWriteFailed) as caught:
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


def test_an_older_ledger_is_brought_up_and_keeps_its_id_and_content(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.open(path, clock=clock) as older:
        older.record(a_receipt())
    known = len(schema._MIGRATIONS)
    monkeypatch.setattr(schema, "_MIGRATIONS", (*schema._MIGRATIONS, _add_a_table))
    with Ledger.open(path, clock=clock) as newer:
        assert newer.id == older.id
        assert newer.receipt(ARCHIVE, LOGS, DAY) == a_receipt()
    assert look(path, "SELECT schema_version FROM meta") == [(known + 1,)]
    Ledger.open(path, clock=clock).close()


def test_a_migration_that_fails_leaves_the_older_ledger_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger.open(path, clock=clock).close()
    with monkeypatch.context() as patch:
        patch.setattr(schema, "_MIGRATIONS", (*schema._MIGRATIONS, _fail_halfway))
        assert "no such table: nowhere" in unreadable(path)
    assert look(path, "SELECT schema_version FROM meta") == [(len(schema._MIGRATIONS),)]
    assert ("younger",) not in look(path, "SELECT name FROM sqlite_master")
    Ledger.open(path, clock=clock).close()


# --- cost ----------------------------------------------------------------------------------------------------------------------


def test_importing_the_ledger_loads_sqlalchemy_and_nothing_else_of_weight() -> None:
    script = "import sys, hypaware_pipeline.ledger; print(*{m.partition('.')[0] for m in sys.modules})"
    with start(script) as process:
        loaded = set(process.communicate(timeout=60)[0].split())
    assert "sqlalchemy" in loaded
    assert not loaded & {"dagster", "duckdb", "pandas", "pyarrow", "pydantic", "pyiceberg"}


def test_a_copied_ledger_is_the_same_ledger(path: Path, tmp_path: Path) -> None:
    with Ledger.open(path, clock=clock) as ledger:
        ledger.record(a_receipt())
    shutil.copy(path, tmp_path / "copy.db")
    with Ledger.open(tmp_path / "copy.db", clock=clock) as copy:
        assert (copy.id, copy.receipt(ARCHIVE, LOGS, DAY)) == (ledger.id, a_receipt())


# --- plans and failures --------------------------------------------------------------------------------------------------------


def test_a_failure_is_remembered_until_the_next_receipt_of_its_day(path: Path) -> None:
    with Ledger.open(path, clock=clock) as ledger:
        ledger.record_failure(ARCHIVE, LOGS, DAY, "the disk is full")
        ledger.record_failure(ARCHIVE, LOGS, DAY, "the disk is still full")
        assert ledger.failures(ARCHIVE) == {(LOGS, DAY): Failure("the disk is still full", schema.timestamp(clock()))}
        ledger.record(a_receipt())
        assert ledger.failures(ARCHIVE) == {}


def test_whatever_is_recorded_makes_the_plan_forget(path: Path) -> None:
    with Ledger.open(path, clock=clock) as ledger:
        ledger.remember_nothing_due(ARCHIVE, LOGS, state="quiet", revision=0)
        assert ledger.plan_memory(ARCHIVE)[LOGS].nothing_due_at == "quiet"
        ledger.record_failure(ARCHIVE, LOGS, DAY, "the disk is full")
        assert ledger.plan_memory(ARCHIVE)[LOGS] == PlanMemory(1, None)
        ledger.record(a_receipt())
        assert ledger.plan_memory(ARCHIVE)[LOGS] == PlanMemory(2, None)


def test_the_ledger_of_the_first_version_is_brought_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(schema, "_MIGRATIONS", schema._MIGRATIONS[:1])
        Ledger.open(path, clock=clock).close()
    with Ledger.open(path, clock=clock) as ledger:
        ledger.record(a_receipt())
        assert ledger.failures(ARCHIVE) == {}
        assert ledger.plan_memory(ARCHIVE) == {LOGS: PlanMemory(1, None)}
