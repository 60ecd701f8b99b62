"""`status`: what was exported last, what is due, when the next tick is, what failed, what waits."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from hypaware_pipeline.export.status import Status, status_of
from hypaware_pipeline.model import DatasetName, Day, SinkName
from tests.builders import CacheBuilder, a_cache, a_log
from tests.command_line import ACommandLine
from tests.installations import JSONL, PARQUET, AnInstallation, write_config


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> ACommandLine:
    return ACommandLine(tmp_path, monkeypatch, capsys)


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
    assert status(run, config)["summary"] == "1 days are due; `hypaware-pipeline export` exports them now"


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
    assert document["summary"].startswith("1 days failed; mend what is said above")
    obstacle.unlink()
    run("export", "--config", str(config))
    (logs,) = status(run, config)["sinks"][0]["datasets"]
    assert (logs["failed_days"], logs["last_failure"]) == (0, None)


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
    assert "1 sources cannot be read" in document["summary"]


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
    assert document["summary"].startswith("1 sinks cannot be used; ")


# --- for a person --------------------------------------------------------------------------------------------------------------


def test_a_person_reads_a_row_per_sink_and_dataset_and_what_to_do(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    cache.with_day("2026-06-05", dataset="ai_gateway_messages", source="claude")
    config = write_config(tmp_path / "home", cache.root, sinks=feed(schedule="0 * * * *"))
    code, out, err = run("status", "--config", str(config))
    assert (code, err) == (0, "")
    heading, *rows = out.splitlines()[:3]
    assert " ".join(heading.split()) == "sink dataset last export of day oldest due next tick (UTC) days due failed parked rows"
    assert [row.split()[:5] for row in rows] == [
        ["feed", "ai_gateway_messages", "never", "-", "2026-06-05"],
        ["feed", "logs", "never", "-", "2026-06-05"],
    ]
    assert [row.split()[-3:] for row in rows] == [["1", "0", "0"], ["2", "0", "0"]]
    assert out.splitlines()[-1] == "3 days are due; `hypaware-pipeline export` exports them now"
    run("export", "--config", str(config))
    (row,) = [line for line in run("status", "--config", str(config))[1].splitlines() if line.startswith("feed  logs")]
    assert row.split()[4] == "2026-06-06"


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
        "feed/logs 2026-06-0",
        "feed/logs: source 'b' cannot be read: ",
        "feed/logs: 1 of the due days lie before the sink's start",
        "feed/logs: 2026-06-01 lie before the first day; `hypaware-pipeline first-day 2026-06-01` moves it",
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
