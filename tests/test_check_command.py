"""`check`: what is wrong, where, and how to mend it."""

import datetime as dt
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import (
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    ScheduleInstigatorData,
    SensorInstigatorData,
    TickData,
    TickStatus,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._daemon.types import DaemonHeartbeat
from dagster._utils.error import SerializableErrorInfo

from hypaware_pipeline.export.findings import Level
from hypaware_pipeline.export.sink_health import space_finding
from tests.builders import CacheBuilder, a_cache, a_log
from tests.command_line import ACommandLine
from tests.installations import JSONL, PARQUET, write_config

Finding = dict[str, str]


@pytest.fixture
def cache(tmp_path: Path) -> CacheBuilder:
    return a_cache(tmp_path / "cache").with_day("2026-06-05", rows=4).with_day("2026-06-06", rows=1)


@pytest.fixture
def instance(run: ACommandLine) -> Iterator[dg.DagsterInstance]:
    """Dagster's, of the user's home, with the packaged settings."""
    run("check")
    with dg.DagsterInstance.from_config(str(run.dagster_home)) as found:
        yield found


def check(run: ACommandLine, config: Path) -> list[Finding]:
    return run.documents("check", "--config", str(config))


def said(findings: Sequence[Finding], level: str, where: str | None = None) -> list[str]:
    """Texts of findings of one level, and of one thing."""
    return [each["text"] for each in findings if each["level"] == level and where in (None, each["where"])]


def feed(**options: Any) -> dict[str, Any]:
    return {**JSONL, "config": {"dir": "out/feed", **options}}


# --- as it should be -----------------------------------------------------------------------------------------------------------


def test_where_all_is_well_nothing_is_a_problem_and_nothing_is_left_at_the_destination(
    run: ACommandLine, tmp_path: Path, cache: CacheBuilder
) -> None:
    config = write_config(tmp_path / "home", cache.root)
    code, out, err = run("check", "--config", str(config))
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "problems: 0, warnings: 0"
    assert "ok       dataset logs: 5 rows of 2 days (2026-06-05 … 2026-06-06) in 1 sources (source-table)" in out
    assert f"ok       sink archive: file://{tmp_path}/home/out/archive can be written" in out
    assert "free, for state, sink archive, sink feed" in out
    assert "\x1b" not in out
    assert [path.name for path in (tmp_path / "home/out").rglob("*") if path.is_file()] == [".lock", ".lock"]


def test_json_is_a_document_per_finding_and_a_line_each(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    findings = check(run, write_config(tmp_path / "home", cache.root))
    assert {tuple(each) for each in findings} == {("level", "where", "text")}
    assert {each["where"] for each in findings} >= {"config", "ledger", "cache", "sink archive", "Dagster's home", "daemon"}


def test_what_was_exported_is_no_foreign_object(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    config = write_config(tmp_path / "home", cache.root)
    assert run("export", "--config", str(config))[0] == 0
    assert run("check", "--config", str(config))[0] == 0


# --- the config ----------------------------------------------------------------------------------------------------------------


def test_one_broken_sink_of_three_is_named_with_the_mend(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    sinks = {
        "archive": {**PARQUET, "config": {"dir": "out/archive"}},
        "feed": feed(),
        "third": {**PARQUET, "destination": "@hypaware/webhook", "config": {"dir": "out/third"}},
    }
    config = write_config(tmp_path / "home", cache.root, sinks=sinks)
    code, out, _ = run("check", "--config", str(config))
    assert code == 1
    (line,) = [line for line in out.splitlines() if line.startswith("problem ")]
    assert line.startswith("problem  sink third: /sinks/third/destination: ")
    assert "@hypaware/local-fs" in line, "what to take in its place"
    assert "2 of 3 sinks can be used" in out
    assert out.count("can be written") == 2


def test_a_sink_of_a_plugin_that_is_not_installed_is_named(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    sinks = {"feed": feed(), "odd": {**feed(), "writer": "@acme/format-csv"}}
    findings = check(run, write_config(tmp_path / "home", cache.root, sinks=sinks))
    (text,) = said(findings, "problem")
    assert "@acme/format-csv" in text
    assert said(findings, "ok", "sink feed")


def test_a_file_that_cannot_be_used_is_told_whole_and_dagster_is_looked_at_all_the_same(
    run: ACommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"version": 1, "sinkz": {}}))
    findings = check(run, path)
    assert [text.split(": ")[1] for text in said(findings, "problem", "config")] == ["/version", "/sinkz"]
    assert said(findings, "ok", "Dagster's home")
    assert run("check", "--config", str(path))[0] == 1


def test_without_a_file_init_is_what_to_do(run: ACommandLine, tmp_path: Path) -> None:
    findings = check(run, tmp_path / "c.json")
    assert said(findings, "problem", "config") == [f"there is no {tmp_path}/c.json; `hypaware-pipeline init` makes one"]


def test_a_file_without_sinks_exports_nothing(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"version": 2, "query": {"cache": {"dir": str(cache.root)}}}))
    assert "has no sinks" in said(check(run, path), "problem", "config")[0]


def test_what_is_wrong_beside_the_sinks_and_in_hypawares_file_stops_nothing(
    run: ACommandLine, tmp_path: Path, cache: CacheBuilder
) -> None:
    (tmp_path / ".hyp").mkdir()
    (tmp_path / ".hyp/hypaware-config.json").write_text("{")
    names = ["@hypaware/format-jsonl", "@hypaware/local-fs", "@acme/x"]
    config = write_config(tmp_path / "home", cache.root, sinks={"feed": feed()}, plugins=[{"name": name} for name in names])
    findings = check(run, config)
    assert "/plugins/2/name" in said(findings, "warning", "config")[0]
    assert "hypaware-config.json" in said(findings, "warning", "HypAware's config")[0]
    assert not said(findings, "problem")


# --- the cache and its spool ---------------------------------------------------------------------------------------------------


def test_a_missing_cache_says_where_it_was_looked_for(run: ACommandLine, tmp_path: Path) -> None:
    findings = check(run, write_config(tmp_path / "home", tmp_path / "nowhere"))
    assert f"no HypAware cache at '{tmp_path}/nowhere'" in said(findings, "problem", "cache")[0]


def test_a_source_that_cannot_be_read_is_a_problem_and_the_others_are_counted(
    run: ACommandLine, tmp_path: Path, cache: CacheBuilder
) -> None:
    cache.with_day("2026-06-05", source="b")
    (cache.source_directory("logs", "b") / "cursor.json").write_text("{")
    findings = check(run, write_config(tmp_path / "home", cache.root))
    (text,) = said(findings, "problem", "dataset logs")
    assert text.startswith("source 'b' cannot be read: ")
    assert said(findings, "ok", "dataset logs")[0].startswith("5 rows of 2 days")


def test_a_data_file_that_is_gone_is_a_problem(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    next((cache.table_directory() / "data").glob("*.parquet")).unlink()
    (text,) = said(check(run, write_config(tmp_path / "home", cache.root)), "problem", "dataset logs")
    assert text.startswith("source 'unknown' cannot be read: ")


def test_rows_that_wait_in_the_spool_for_days_are_told_with_what_moves_them(
    run: ACommandLine, tmp_path: Path, cache: CacheBuilder
) -> None:
    cache.writer.spool("logs", [a_log("2026-06-07")])
    config = write_config(tmp_path / "home", cache.root)
    assert "the first came a moment ago" in said(check(run, config), "ok", "spool of logs")[0]
    old = time.time() - 3 * 86_400
    os.utime(cache.root / "datasets/logs/all/_hypaware_spool", (old, old))
    (text,) = said(check(run, config), "warning", "spool of logs")
    assert "the first came 3 days ago" in text
    assert "`hyp cache refresh`" in text
    assert run("check", "--config", str(config))[0] == 0


# --- the destinations ----------------------------------------------------------------------------------------------------------


def test_a_destination_that_cannot_be_written_is_a_problem_of_its_sink(
    run: ACommandLine, tmp_path: Path, cache: CacheBuilder
) -> None:
    config = write_config(tmp_path / "home", cache.root)
    (tmp_path / "home/out").mkdir()
    (tmp_path / "home/out/feed").write_text("a file")
    findings = check(run, config)
    assert "a file stands where a directory is needed" in said(findings, "problem", "sink feed")[0]
    assert said(findings, "ok", "sink archive")


def test_a_destination_of_another_ledger_is_a_problem_and_nothing_is_put_there(
    run: ACommandLine, tmp_path: Path, cache: CacheBuilder
) -> None:
    config = write_config(tmp_path / "home", cache.root, sinks={"feed": feed()})
    assert run("export", "--config", str(config))[0] == 0
    shutil.rmtree(tmp_path / "home/hypaware-pipeline.state")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "home/out").rglob("*")}
    (text,) = said(check(run, config), "problem", "sink feed")
    assert "of another ledger" in text
    assert "set takeover to true in /sinks/feed/config" in text
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "home/out").rglob("*")} == before


def test_somebodys_objects_at_the_destination_are_a_problem(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    config = write_config(tmp_path / "home", cache.root, sinks={"feed": feed()})
    (tmp_path / "home/out/feed/logs").mkdir(parents=True)
    (tmp_path / "home/out/feed/logs/precious.txt").write_text("mine")
    (text,) = said(check(run, config), "problem", "sink feed")
    assert "precious.txt lies where dataset 'logs' belongs" in text


def test_a_variable_that_is_not_set_is_a_problem_and_its_value_is_never_said(
    run: ACommandLine, tmp_path: Path, cache: CacheBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(tmp_path / "home", cache.root, sinks={"feed": feed(dir="${ENV:FEED_DIR}/out")})
    assert "FEED_DIR" in said(check(run, config), "problem", "sink feed")[0]
    monkeypatch.setenv("FEED_DIR", str(tmp_path / "secret-place"))
    findings = check(run, config)
    assert said(findings, "ok", "sink feed")
    assert "secret-place" not in json.dumps(findings)
    (tmp_path / "secret-place/out/logs").mkdir()
    (tmp_path / "secret-place/out/logs/strange").write_text("")
    findings = check(run, config)
    assert said(findings, "problem", "sink feed")
    assert "secret-place" not in json.dumps(findings)


def test_a_sink_that_takes_nothing_the_cache_has_is_told(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    config = write_config(tmp_path / "home", cache.root, sinks={"feed": feed(datasets=["trace"])})
    assert "takes none of what is in the cache (logs)" in said(check(run, config), "warning", "sink feed")[0]


@pytest.mark.parametrize(("free", "level"), [(1 << 40, Level.OK), (500 << 20, Level.WARNING), (1 << 20, Level.PROBLEM)])
def test_a_disk_with_little_space_is_a_warning_and_one_with_none_a_problem(tmp_path: Path, free: int, level: Level) -> None:
    finding = space_finding(tmp_path, ["state", "sink feed"], free=free)
    assert finding.level is level
    assert "free, for state, sink feed" in finding.text


# --- state and Dagster ---------------------------------------------------------------------------------------------------------


def test_a_damaged_ledger_is_a_problem_with_the_mend(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    config = write_config(tmp_path / "home", cache.root)
    (tmp_path / "home/hypaware-pipeline.state").mkdir()
    (tmp_path / "home/hypaware-pipeline.state/ledger.db").write_bytes(b"garbage" * 1000)
    findings = check(run, config)
    assert "restore it from a backup" in said(findings, "problem", "ledger")[0]
    assert said(findings, "ok", "sink feed"), "what can be said without it is said"


def test_a_home_of_dagsters_that_cannot_be_used_is_a_problem(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    run.dagster_home.write_text("a file")
    (text,) = said(check(run, write_config(tmp_path / "home", cache.root)), "problem", "Dagster's home")
    assert "set DAGSTER_HOME to a directory that can be written" in text


def test_settings_that_let_a_backfill_hold_up_schedules_are_told(run: ACommandLine, tmp_path: Path, cache: CacheBuilder) -> None:
    config = write_config(tmp_path / "home", cache.root)
    run.dagster_home.mkdir()
    (run.dagster_home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    texts = said(check(run, config), "warning", "dagster.yaml")
    assert [text.split(": ")[1] for text in texts] == [
        "concurrency.pools",
        "concurrency.runs.tag_concurrency_limits",
        "run_monitoring",
    ]
    assert all("data/dagster.yaml has it" in text for text in texts)


def beat(instance: dg.DagsterInstance, *, minutes_ago: float, without: str = "") -> None:
    moment = time.time() - 60 * minutes_ago
    for kind in instance.get_required_daemon_types():
        if kind != without:
            instance.add_daemon_heartbeat(DaemonHeartbeat(moment, kind, "daemon", []))


def test_a_daemon_that_does_not_run_is_a_warning_only_if_a_schedule_wants_it(
    run: ACommandLine, tmp_path: Path, cache: CacheBuilder, instance: dg.DagsterInstance
) -> None:
    unscheduled = write_config(tmp_path / "one", cache.root, sinks={"feed": feed()})
    scheduled = write_config(tmp_path / "two", cache.root, sinks={"feed": feed(schedule="0 * * * *")})
    assert "no sink has a schedule" in said(check(run, unscheduled), "ok", "daemon")[0]
    assert "it never ran on this home" in said(check(run, scheduled), "warning", "daemon")[0]
    beat(instance, minutes_ago=20)
    text = said(check(run, scheduled), "warning", "daemon")[0]
    assert "its last sign was 20 minutes ago" in text
    assert "`hypaware-pipeline dev` runs it" in text
    beat(instance, minutes_ago=0)
    assert said(check(run, scheduled), "ok", "daemon") == ["runs"]


def test_a_part_of_the_daemon_that_hangs_is_named(
    run: ACommandLine, tmp_path: Path, cache: CacheBuilder, instance: dg.DagsterInstance
) -> None:
    beat(instance, minutes_ago=0, without="SCHEDULER")
    config = write_config(tmp_path / "home", cache.root, sinks={"feed": feed(schedule="0 * * * *")})
    assert said(check(run, config), "warning", "daemon")[0].startswith("SCHEDULER of Dagster's daemon gave no sign lately")


def a_schedule_state(status: InstigatorStatus) -> InstigatorState:
    """The state of the schedule of sink `feed`, as Dagster's daemon and UI leave it."""
    target = LoadableTargetOrigin(module_name="hypaware_pipeline.definitions")
    location = ManagedGrpcPythonEnvCodeLocationOrigin(target, "hypaware")
    origin = RemoteInstigatorOrigin(RemoteRepositoryOrigin(location, "__repository__"), "export_feed_schedule")
    return InstigatorState(origin, InstigatorType.SCHEDULE, status, ScheduleInstigatorData("0 * * * *"))


def test_a_schedule_that_somebody_stopped_and_one_whose_tick_failed_are_told(
    run: ACommandLine, tmp_path: Path, cache: CacheBuilder, instance: dg.DagsterInstance
) -> None:
    config = write_config(tmp_path / "home", cache.root, sinks={"feed": feed(schedule="0 * * * *")})
    assert said(check(run, config), "ok", "schedule of feed") == ["had no tick yet"]
    state = a_schedule_state(InstigatorStatus.DECLARED_IN_CODE)
    instance.add_instigator_state(state)
    moment = (dt.datetime.now(dt.UTC) - dt.timedelta(minutes=30)).timestamp()
    tick = TickData(
        state.instigator_origin_id,
        "export_feed_schedule",
        InstigatorType.SCHEDULE,
        TickStatus.FAILURE,
        moment,
        error=SerializableErrorInfo("ledger is locked\n", [], None),
        selector_id=state.selector_id,
    )
    instance.create_tick(tick)
    (text,) = said(check(run, config), "warning", "schedule of feed")
    assert text.startswith("its last tick, 30 minutes ago, failed: ledger is locked; ")
    instance.update_instigator_state(state.with_status(InstigatorStatus.STOPPED))
    (text,) = said(check(run, config), "warning", "schedule of feed")
    assert text == "was stopped by somebody; start export_feed_schedule in the UI"


def test_a_requeue_sensor_is_worth_a_line_once_somebody_stopped_it(
    run: ACommandLine, tmp_path: Path, cache: CacheBuilder, instance: dg.DagsterInstance
) -> None:
    config = write_config(tmp_path / "home", cache.root, sinks={"feed": feed()})
    assert not [each for each in check(run, config) if each["where"].startswith("requeue")]
    origin = a_schedule_state(InstigatorStatus.STOPPED).origin
    sensor = RemoteInstigatorOrigin(origin.repository_origin, "requeue_feed")
    data = SensorInstigatorData(min_interval=30)
    instance.add_instigator_state(InstigatorState(sensor, InstigatorType.SENSOR, InstigatorStatus.STOPPED, data))
    (text,) = said(check(run, config), "warning", "requeue sensor of feed")
    assert text == "was stopped by somebody; start requeue_feed in the UI"
