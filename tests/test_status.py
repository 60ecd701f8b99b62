"""`status`: what was exported last, what is due, when the next tick is, what failed, what waits."""

import datetime as dt
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hypaware_pipeline.export.status import status_of
from hypaware_pipeline.export.status_values import Status
from hypaware_pipeline.model import DatasetName, Day, SinkName
from tests.builders import CacheBuilder, a_cache, a_log
from tests.command_line import ACommandLine
from tests.daemon import ROOT
from tests.installations import JSONL, PARQUET, AnInstallation, write_config

FEED, LOGS = SinkName("feed"), DatasetName("logs")


@pytest.fixture
def cache(tmp_path: Path) -> CacheBuilder:
    return a_cache(tmp_path / "cache").with_day("2026-06-05", rows=4).with_day("2026-06-06", rows=1)


def feed(**options: Any) -> dict[str, Any]:
    return {"feed": {**JSONL, "config": {"dir": "out/feed", **options}}}


def status(run: ACommandLine, config: Path) -> dict[str, Any]:
    """What `status --json` says."""
    (document,) = run.documents("status", "--config", str(config))
    return dict(document)


def at_noon(installation: AnInstallation) -> Status:
    """The status on 2026-06-10, 12:00."""
    return status_of(installation.installation)


# --- as JSON -------------------------------------------------------------------------------------------------------------------


def test_what_is_due_is_what_an_export_would_export(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    config = write_config(tmp_path / "home", cache.root, sinks=feed())
    cache.with_day("2026-06-05", timestamp=None, rows=2)
    (sink,) = status(run, config)["sinks"]
    (logs,) = sink["datasets"]
    planned = run.documents("export", "--dry-run", "--config", str(config))
    assert (logs["due_days"], logs["due_rows"]) == (len(planned), sum(each["rows"] for each in planned)) == (3, 7)
    assert logs["oldest_due"] == planned[0]["day"] == "2026-06-05"
    assert logs["last_export"] is None


def test_after_an_export_nothing_is_due_and_the_last_day_is_told(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    config = write_config(tmp_path / "home", cache.root, sinks=feed())
    run("export", "--config", str(config))
    document = status(run, config)
    (logs,) = document["sinks"][0]["datasets"]
    assert (logs["due_days"], logs["oldest_due"], logs["last_export"]["day"]) == (0, None, "2026-06-06")
    assert logs["last_export"]["at"].endswith("Z")
    assert document["summary"] == "everything that is in the cache's tables is exported"
    cache.with_day("2026-06-05")
    assert status(run, config)["summary"] == "1 day due: run `hypaware-pipeline export`"


def test_a_day_that_failed_is_told_with_its_reason_until_it_is_exported(
    run: ACommandLine, tmp_path: Path, cache: CacheBuilder
) -> None:
    config = write_config(tmp_path / "home", cache.root, sinks=feed())
    obstacle = tmp_path / "home/out/feed/logs/day=2026-06-05"
    run("export", "--from", "2026-06-06", "--config", str(config))
    obstacle.write_text("in the way")
    run("export", "--config", str(config))
    document = status(run, config)
    (logs,) = document["sinks"][0]["datasets"]
    assert (logs["failed_days"], logs["last_failure"]["day"]) == (1, "2026-06-05")
    assert "a file stands where a directory is needed" in logs["last_failure"]["reason"]
    assert document["summary"].startswith("1 day failed; mend what is said above")
    obstacle.unlink()
    run("export", "--config", str(config))
    (logs,) = status(run, config)["sinks"][0]["datasets"]
    assert (logs["failed_days"], logs["last_failure"]) == (0, None)


def test_what_is_tried_again_and_when_is_told_until_it_is_exported(tmp_path: Path, cache: CacheBuilder) -> None:
    installation = AnInstallation(tmp_path / "home", cache.root, sinks=feed())
    with installation.installation.open_ledger() as ledger:
        ledger.retries.give_back(FEED, LOGS, Day("2026-06-05"), "busy", retry_after_seconds=600)
        ledger.retries.give_back(FEED, LOGS, Day("2026-06-06"), "the disk is read-only", retry_after_seconds=None)
    (logs,) = at_noon(installation).to_json()["sinks"][0]["datasets"]
    assert (logs["retry_days"], logs["next_retry"], logs["given_up_days"]) == (2, "2026-06-10T12:10:00.000Z", 1)
    assert [(each["day"], each["attempt"], each["given_up"]) for each in logs["retries"]] == [
        ("2026-06-06", 0, True),
        ("2026-06-05", 0, False),
    ]
    assert logs["stalled"].startswith("feed/logs was given up at once, since trying again mends nothing: 2026-06-06: the disk")
    installation.export()
    (logs,) = at_noon(installation).to_json()["sinks"][0]["datasets"]
    assert (logs["retry_days"], logs["next_retry"], logs["stalled"]) == (0, None, None)


def test_a_halted_sink_is_told_once_with_its_reason_and_what_to_do(
    run: ACommandLine, tmp_path: Path, cache: CacheBuilder
) -> None:
    config = write_config(tmp_path / "home", cache.root, sinks=feed())
    cache.with_day("2026-06-04")
    run("export", "--to", "2026-06-04", "--config", str(config))
    for day in ("2026-06-05", "2026-06-06"):
        (tmp_path / f"home/out/feed/logs/day={day}").write_text("in the way")
    run("export", "--config", str(config))
    document = status(run, config)
    assert "day=2026-06-06" in document["sinks"][0]["halted"]["reason"]
    assert document["summary"].startswith("1 sink halted; 2 days failed; mend what is said above")
    _, out, _ = run("status", "--config", str(config))
    assert out.count("a file stands where a directory is needed") == 1
    assert "when that is mended, run `hypaware-pipeline resume feed`. Until then a tick tries one day" in out
    assert line_of(out, "logs").endswith("  2 days due from 2026-06-05, 2 days given up")


def test_a_failed_day_that_left_the_cache_is_no_failure_any_more(tmp_path: Path, cache: CacheBuilder) -> None:
    """It stood there for ever: no export forgets the failure of a day that nothing is left of."""
    installation = AnInstallation(tmp_path / "home", cache.root, sinks=feed())
    with installation.installation.open_ledger() as ledger:
        ledger.record_failure(SinkName("feed"), DatasetName("logs"), Day("2026-06-05"), "the disk is full")
    (logs,) = at_noon(installation).datasets()
    assert logs.last_failure is not None
    cache.writer.retention(dt.datetime(2026, 6, 8, tzinfo=dt.UTC))
    (logs,) = at_noon(installation).datasets()
    assert logs.last_failure is None


def test_the_next_tick_is_that_of_the_schedule_in_utc(tmp_path: Path, cache: CacheBuilder) -> None:
    sinks = {**feed(schedule="5/10 * * * *"), "idle": {**PARQUET, "config": {"dir": "out/idle"}}}
    document = at_noon(AnInstallation(tmp_path / "home", cache.root, sinks=sinks)).to_json()
    assert [sink["next_tick"] for sink in document["sinks"]] == ["2026-06-10T12:05:00.000Z", None]


def test_days_that_no_schedule_asks_for_are_told_apart(tmp_path: Path, cache: CacheBuilder) -> None:
    installation = AnInstallation(tmp_path / "home", cache.root, sinks=feed(start="2026-06-06"))
    (logs,) = at_noon(installation).datasets()
    assert (len(logs.outlook.due), logs.unscheduled) == (2, 1)


def test_parked_rows_are_counted(tmp_path: Path) -> None:
    cache = a_cache(tmp_path / "cache").with_rows("logs", [a_log("2026-06-05"), a_log("2026-06-05", serviceName="torn!")])
    (file,) = (cache.table_directory() / "data").glob("*.parquet")
    file.write_bytes(file.read_bytes().replace(b"torn!", b"torn\xff"))
    installation = AnInstallation(tmp_path / "home", cache.root, sinks=feed())
    installation.export()
    (logs,) = at_noon(installation).datasets()
    assert (logs.to_json()["parked_rows"], logs.to_json()["due_days"]) == (1, 0)


def test_a_source_that_cannot_be_read_is_told(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    cache.with_day("2026-06-05", source="b")
    (cache.source_directory("logs", "b") / "cursor.json").write_text("{")
    config = write_config(tmp_path / "home", cache.root, sinks=feed())
    document = status(run, config)
    assert list(document["sinks"][0]["datasets"][0]["unreadable"]) == ["b"]
    assert "1 source unreadable" in document["summary"]


def test_what_waits_in_the_spool_is_told_although_nothing_is_due(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    config = write_config(tmp_path / "home", cache.root, sinks=feed())
    run("export", "--config", str(config))
    cache.writer.spool("logs", [a_log("2026-06-07")])
    document = status(run, config)
    (spool,) = document["spool"]
    assert spool["bytes"] == (cache.root / "datasets/logs/all/_hypaware_spool/active.jsonl").stat().st_size
    assert spool["since"] is not None
    assert "rows of logs wait in HypAware's spool; `hyp cache refresh` moves them" in document["summary"]


def test_a_broken_sink_is_told_beside_the_others(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    sinks = {**feed(), "odd": {**JSONL, "config": {}}}
    document = status(run, write_config(tmp_path / "home", cache.root, sinks=sinks))
    working, broken = document["sinks"]
    assert (working["sink"], working["errors"]) == ("feed", [])
    assert "/sinks/odd/config/dir" in broken["errors"][0]
    assert document["summary"].startswith("1 sink unusable; ")


# --- for a person --------------------------------------------------------------------------------------------------------------


def test_a_person_reads_a_line_per_dataset_and_what_to_do(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    cache.with_day("2026-06-05", dataset="ai_gateway_messages", source="claude")
    sinks = {**feed(schedule="0 0 1 1 *", datasets=["logs"]), "archive": {**PARQUET, "config": {"dir": "out/archive"}}}
    config = write_config(tmp_path / "home", cache.root, sinks=sinks)
    code, out, err = run("status", "--config", str(config))
    assert (code, err) == (0, "")
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "times in UTC",
        f"feed next tick {dt.datetime.now(dt.UTC).year + 1}-01-01 00:00",
        "logs never exported 2 days due from 2026-06-05",
        "archive no schedule",
        "ai_gateway_messages never exported 2026-06-05 due",
        "logs never exported 2 days due from 2026-06-05",
        "",
        "5 days due: run `hypaware-pipeline export`",
    ]
    run("export", "feed", "--config", str(config))
    assert line_of(run("status", "--config", str(config))[1], "logs").endswith("  up to date")


def test_what_is_wrong_with_a_dataset_is_said_in_its_line(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    cache.with_rows("logs", [a_log("2026-06-07", serviceName="torn!")]).with_day("2026-06-05", source="b")
    files = [path for path in (cache.table_directory() / "data").glob("*.parquet") if b"torn!" in path.read_bytes()]
    for file in files:
        file.write_bytes(file.read_bytes().replace(b"torn!", b"torn\xff"))
    config = write_config(tmp_path / "home", cache.root, sinks=feed())
    run("export", "--to", "2026-06-07", "--from", "2026-06-06", "--config", str(config))
    (cache.source_directory("logs", "b") / "cursor.json").write_text("{")
    (tmp_path / "home/out/feed/logs/day=2026-06-05").write_text("in the way")
    run("export", "--config", str(config))
    said = line_of(run("status", "--config", str(config))[1], "logs")
    assert said.endswith("  2026-06-05 due, 1 day given up, 1 row parked, 1 source unreadable")


def line_of(text: str, dataset: str) -> str:
    """The line of a dataset of the only sink, or the first."""
    return next(line.rstrip() for line in text.splitlines() if line.startswith(f"  {dataset} "))


def on_a_terminal(columns: int, *arguments: str, home: Path) -> list[str]:
    """The lines that a command shows on a terminal of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {"HOME": str(home), "TERM": "xterm", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "hypaware_pipeline.cli", *arguments]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    shown = b""
    with os.fdopen(ours, "rb", buffering=0) as screen, suppress(OSError):  # Linux says so when the other end is closed
        while chunk := screen.read(4096):
            shown += chunk
    assert process.wait(timeout=60) == 0, shown
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).splitlines()


def test_eighty_columns_are_enough_for_a_line_per_dataset(tmp_path: Path, cache: CacheBuilder) -> None:
    """Nine columns were folded until each line of the table took four."""
    cache.with_day("2026-06-05", dataset="ai_gateway_messages", source="claude")
    config = write_config(tmp_path / "home", cache.root, sinks=feed(schedule="0 * * * *"))
    narrow = on_a_terminal(80, "status", "--config", str(config), home=tmp_path)
    table = narrow[: narrow.index("")]
    assert (len(table), max(map(len, table)) <= 80) == (4, True)
    assert table[3].split() == ["logs", "never", "exported", "2", "days", "due", "from", "2026-06-05"]


def test_a_name_that_is_too_long_for_a_terminal_goes_on_below_itself_and_in_a_pipe_it_does_not(
    run: ACommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a_dataset_whose_name_takes_more_than_half_of_the_line"
    cache = a_cache(tmp_path / "cache").with_rows(name, [{"n": 1}])
    config = write_config(tmp_path / "home", cache.root, sinks=feed(schedule="0 * * * *"))
    first, *rest = on_a_terminal(80, "status", "--config", str(config), home=tmp_path)[2:4]
    assert first.split()[1:] == ["never", "exported", "undated", "due"]
    assert first.split()[0] + "".join(line.strip() for line in rest) == name
    monkeypatch.setenv("COLUMNS", "80")
    assert line_of(run("status", "--config", str(config))[1], name).endswith("never exported              undated due")


def test_what_a_table_has_no_room_for_follows_it(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    config = write_config(tmp_path / "home", cache.root, sinks=feed(start="2026-06-06"))
    run("first-day", "--config", str(config))
    cache.with_day("2026-06-01").with_day("2026-06-02", source="b").writer.spool("logs", [a_log("2026-06-07")])
    (cache.source_directory("logs", "b") / "cursor.json").write_text("{")
    (tmp_path / "home/out/feed").mkdir(parents=True)
    (tmp_path / "home/out/feed/logs").write_text("in the way")
    run("export", "--config", str(config))
    _, out, _ = run("status", "--config", str(config))
    for line in (
        "feed is halted since ",
        "feed/logs: source 'b' cannot be read: ",
        "feed/logs: before the sink's start: 1 due day; ",
        "feed/logs: before the first day: 2026-06-01; `hypaware-pipeline first-day 2026-06-01` moves it",
        "spool of logs: ",
    ):
        assert [said for said in out.splitlines() if said.startswith(line)], line


def test_a_broken_sink_is_named_to_a_person(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    config = write_config(tmp_path / "home", cache.root, sinks={"odd": {**JSONL, "config": {}}})
    _, out, _ = run("status", "--config", str(config))
    assert out.startswith("sink odd cannot be used: /sinks/odd/config/dir: ")


def test_without_a_cache_or_a_config_it_cannot_be_told(run: ACommandLine, tmp_path: Path) -> None:
    assert run("status", "--config", str(tmp_path / "no.json"))[0] == 2
    code, _, err = run("status", "--config", str(write_config(tmp_path / "home", tmp_path / "nowhere")))
    assert code == 2
    assert "no HypAware cache at" in err
