"""What a schedule asks for, and what a tick with nothing new does not read."""

import datetime as dt
import json
import os
import shutil
import sqlite3
import subprocess
import sys

import dagster as dg
import pyarrow.compute as pc
import pytest
from dagster._core.errors import ScheduleExecutionError
from dagster._core.test_utils import create_run_for_test

from hypaware_pipeline import datasets
from hypaware_pipeline.cache import reader
from hypaware_pipeline.config import DEFAULT_RETENTION, Retention
from hypaware_pipeline.errors import LedgerUnreadable
from hypaware_pipeline.export import due
from hypaware_pipeline.export.blueprint import Blueprint
from hypaware_pipeline.export.due import Scope, ask
from hypaware_pipeline.export.order import urgency
from hypaware_pipeline.model import UNDATED, DatasetName, Day, SinkName
from hypaware_pipeline.orchestration import schedules
from hypaware_pipeline.orchestration.build import definitions_of
from tests.installations import JSONL, NOW, AnInstallation

LOGS = dg.AssetKey(["feed", "logs"])
MESSAGES = dg.AssetKey(["feed", "ai_gateway_messages"])
FEED = {"feed": {**JSONL, "config": {"dir": "out/feed", "schedule": "*/5 * * * *"}}}
START, END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


def an_installation(home, cache, **config):
    return AnInstallation(home, cache.root, sinks=FEED, **config)


def tick(installation, instance):
    defs = definitions_of(Blueprint.draw(installation.installation))
    schedule = defs.resolve_schedule_def("export_feed_schedule")
    with dg.build_schedule_context(instance=instance, scheduled_execution_time=NOW) as context:
        return schedule.evaluate_tick(context)


def asked(installation, instance):
    """What a tick asks for: first day, last day and datasets of each run, in order."""
    requests = tick(installation, instance).run_requests
    return [(each.tags[START], each.tags[END], sorted(key.path[-1] for key in each.asset_selection)) for each in requests]


def skipped(installation, instance):
    data = tick(installation, instance)
    assert not data.run_requests
    return data.skip_message


def a_run(instance, *, status=dg.DagsterRunStatus.STARTED, job="__ASSET_JOB", assets=(LOGS,), **tags):
    create_run_for_test(instance, job_name=job, status=status, asset_selection=frozenset(assets) or None, tags=tags)


def test_a_schedule_runs_by_itself_in_utc_at_the_minutes_hypaware_means(cache, home):
    cache.with_day("2026-06-05")
    sinks = {"feed": {**JSONL, "config": {"dir": "out", "schedule": "5/10 * * * 7"}}}
    defs = definitions_of(Blueprint.draw(AnInstallation(home, cache.root, sinks=sinks).installation))
    schedule = defs.resolve_schedule_def("export_feed_schedule")
    assert schedule.cron_schedule == "5 * * * 0"
    assert schedule.execution_timezone == "UTC"
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING


def test_a_tick_under_a_clock_before_the_first_day_says_so(cache, home, instance):
    cache.with_day("2026-06-05")
    installation = an_installation(home, cache)
    with installation.installation.open_ledger() as ledger:
        ledger.choose_first_day(Day("2999-01-01"), "test")
    assert skipped(installation, instance).startswith("the clock stands before 2999-01-01, where partitions begin")


def test_a_sink_without_a_schedule_has_none(cache, home):
    cache.with_day("2026-06-05")
    defs = definitions_of(Blueprint.draw(AnInstallation(home, cache.root).installation))
    assert not defs.schedules


def test_a_tick_asks_for_due_days_one_run_per_range_that_datasets_share(cache, home, instance):
    for day in ("2026-06-04", "2026-06-05", "2026-06-08"):
        cache.with_day(day)
    cache.with_day("2026-06-08", dataset="ai_gateway_messages", source="claude")
    installation = an_installation(home, cache)
    assert asked(installation, instance) == [
        ("2026-06-08", "2026-06-08", ["ai_gateway_messages", "logs"]),
        ("2026-06-04", "2026-06-05", ["logs"]),
    ]


def test_requests_carry_a_key_per_range_no_checks_and_what_they_are_about(cache, home, instance):
    cache.with_day("2026-06-04").with_day("2026-06-06").with_day("2026-06-07")
    requests = tick(an_installation(home, cache), instance).run_requests
    assert len({request.run_key for request in requests}) == len(requests) == 2
    assert all(request.asset_check_keys == [] for request in requests)
    assert [request.tags["hypaware/days"] for request in requests] == ["2026-06-06 to 2026-06-07", "2026-06-04"]
    assert {request.tags["hypaware/sink"] for request in requests} == {"feed"}


def test_only_what_changed_since_its_last_export_is_asked_for(cache, home, instance):
    cache.with_day("2026-06-04").with_day("2026-06-05").with_day("2026-06-04", dataset="ai_gateway_messages", source="claude")
    installation = an_installation(home, cache)
    installation.export()
    installation.export(dataset="ai_gateway_messages")
    assert "no day changed since its last export" in skipped(installation, instance)
    cache.with_day("2026-06-05", rows=1)
    assert asked(installation, instance) == [("2026-06-05", "2026-06-05", ["logs"])]


@pytest.mark.parametrize(
    "status",
    # A queued run needs a whole code location; the daemon's tests have one.
    [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED],
)
def test_days_that_a_run_in_progress_covers_are_not_asked_again(cache, home, instance, status):
    for day in ("2026-06-04", "2026-06-05", "2026-06-06"):
        cache.with_day(day)
    installation = an_installation(home, cache)
    a_run(instance, status=status, **{START: "2026-06-04", END: "2026-06-05", "dagster/backfill": "b"})
    assert asked(installation, instance) == [("2026-06-06", "2026-06-06", ["logs"])]
    a_run(instance, status=status, **{"dagster/partition": "2026-06-06"})
    assert "3 days are covered by runs that wait or run" in skipped(installation, instance)


def test_runs_that_ended_and_runs_of_others_cover_nothing(cache, home, instance):
    cache.with_day("2026-06-04")
    installation = an_installation(home, cache)
    days = {START: "2026-06-01", END: "2026-06-09"}
    a_run(instance, status=dg.DagsterRunStatus.FAILURE, **days)
    a_run(instance, assets=[dg.AssetKey(["archive", "logs"]), MESSAGES], **days)
    assert asked(installation, instance) == [("2026-06-04", "2026-06-04", ["logs"])]


def test_a_run_of_the_sinks_job_that_selects_no_asset_covers_all_of_them(cache, home, instance):
    cache.with_day("2026-06-04")
    a_run(instance, job="export_feed", assets=(), **{"dagster/partition": "2026-06-04"})
    assert "covered" in skipped(an_installation(home, cache), instance)


def test_a_frozen_day_is_never_asked_for(cache, home, instance):
    cache.with_day("2026-06-04", rows=4).with_day("2026-06-08", rows=4)
    installation = an_installation(home, cache)
    installation.export()
    cache.writer.retention(dt.datetime(2026, 6, 6, tzinfo=dt.UTC))
    installation.now += dt.timedelta(days=1)
    assert "no day changed" in skipped(installation, instance)


def test_a_day_that_lost_rows_waits_until_the_removal_has_settled_and_is_not_forgotten(cache, home, instance):
    """Remembered as `nothing due`, it would never have been looked at again."""
    cache.with_day("2026-06-05", rows=4).with_day("2026-06-05", rows=1, serviceName="purged")
    installation = an_installation(home, cache)
    installation.export()
    cache.writer.delete("logs", "unknown", pc.field("serviceName") == "purged")
    installation.now = cache.clock() + dt.timedelta(minutes=1)
    assert asked(installation, instance) == [("2026-06-05", "2026-06-05", ["logs"])]
    assert [outcome.status for outcome in installation.export()] == ["kept"]
    assert "1 days wait until a removal of rows has settled" in skipped(installation, instance)
    installation.now += dt.timedelta(minutes=20)
    assert asked(installation, instance) == [("2026-06-05", "2026-06-05", ["logs"])]


def test_a_sinks_start_bounds_what_its_schedule_asks_for(cache, home, instance):
    cache.with_day("2026-06-04").with_day("2026-06-06").with_day("2026-06-06", timestamp=None)
    sinks = {"feed": {**JSONL, "config": {"dir": "out/feed", "schedule": "*/5 * * * *", "start": "2026-06-05"}}}
    installation = AnInstallation(home, cache.root, sinks=sinks)
    installation.export(["2026-06-04", "undated"])
    cache.with_day("2026-06-04", rows=1)
    assert asked(installation, instance) == [("2026-06-06", "2026-06-06", ["logs"])]
    installation.export(["2026-06-06"])
    assert "1 days before the sink's start are left to backfills" in skipped(installation, instance)


def test_the_command_before_a_tick_runs_before_it_looks_and_its_failure_is_said(cache, home, instance):
    cache.with_day("2026-06-04")
    script = "import os, sys; os.rename(sys.argv[1], sys.argv[2])"
    hidden = cache.root.with_name("hidden")
    command = [sys.executable, "-c", script, str(hidden / "datasets/logs"), str(cache.root / "datasets/logs")]
    sinks = {"feed": {**JSONL, "config": {"dir": "out/feed", "schedule": "*/5 * * * *", "before_tick": command}}}
    installation = AnInstallation(home, cache.root, sinks=sinks)
    defs = definitions_of(Blueprint.draw(installation.installation))
    (hidden / "datasets").mkdir(parents=True)
    (cache.root / "datasets/logs").rename(hidden / "datasets/logs")
    schedule = defs.resolve_schedule_def("export_feed_schedule")
    with dg.build_schedule_context(instance=instance, scheduled_execution_time=NOW) as context:
        assert len(schedule.evaluate_tick(context).run_requests) == 1
        installation.export()
        assert "before_tick of sink 'feed'" in schedule.evaluate_tick(context).skip_message


def test_undated_rows_are_asked_for_with_the_first_partition(cache, home, instance):
    cache.with_day("2026-06-04").with_day("2026-06-06")
    installation = an_installation(home, cache)
    installation.export()
    cache.with_day("2026-06-06", timestamp=None)
    assert asked(installation, instance) == [("2026-06-04", "2026-06-04", ["logs"])]


def test_a_dataset_that_cannot_be_planned_stops_no_other(cache, home, instance):
    cache.with_day("2026-06-04").with_day("2026-06-04", dataset="ai_gateway_messages", source="claude")
    installation = an_installation(home, cache)
    Blueprint.draw(installation.installation)
    (cache.source_directory() / "cursor.json").write_text("{")
    assert asked(installation, instance) == [("2026-06-04", "2026-06-04", ["ai_gateway_messages"])]
    installation.export(dataset="ai_gateway_messages")
    assert "logs: source 'unknown'" in skipped(installation, instance)


def test_a_defect_in_planning_one_dataset_stops_no_other(cache, home, instance, monkeypatch):
    cache.with_day("2026-06-04").with_day("2026-06-04", dataset="ai_gateway_messages", source="claude")
    installation = an_installation(home, cache)
    Blueprint.draw(installation.installation)

    def resolve_dataset(name, columns):
        if name == "logs":
            raise ZeroDivisionError
        return datasets.resolve_dataset(name, columns)

    monkeypatch.setattr(reader, "resolve_dataset", resolve_dataset)
    assert asked(installation, instance) == [("2026-06-04", "2026-06-04", ["ai_gateway_messages"])]


def test_a_cache_that_went_missing_is_a_reason_to_skip(cache, home, instance):
    cache.with_day("2026-06-04")
    installation = an_installation(home, cache)
    defs = definitions_of(Blueprint.draw(installation.installation))
    shutil.rmtree(cache.root)
    with dg.build_schedule_context(instance=instance, scheduled_execution_time=NOW) as context:
        data = defs.resolve_schedule_def("export_feed_schedule").evaluate_tick(context)
    assert str(cache.root) in data.skip_message


def test_a_dataset_that_is_new_in_the_cache_is_said_until_the_definitions_are_loaded_again(cache, home, instance):
    cache.with_day("2026-06-04")
    installation = an_installation(home, cache)
    installation.export()
    defs = definitions_of(Blueprint.draw(installation.installation))
    cache.with_day("2026-06-04", dataset="ai_gateway_messages", source="claude")
    with dg.build_schedule_context(instance=instance, scheduled_execution_time=NOW) as context:
        data = defs.resolve_schedule_def("export_feed_schedule").evaluate_tick(context)
    assert "dataset 'ai_gateway_messages' is new in the cache; reload the code location" in data.skip_message
    assert asked(installation, instance) == [("2026-06-04", "2026-06-04", ["ai_gateway_messages"])]


def test_a_ledger_that_cannot_be_read_fails_the_tick(cache, home, instance):
    cache.with_day("2026-06-04")
    installation = an_installation(home, cache)
    defs = definitions_of(Blueprint.draw(installation.installation))
    installation.installation.state.ledger.write_bytes(b"no database" * 100)
    with (
        dg.build_schedule_context(instance=instance, scheduled_execution_time=NOW) as context,
        pytest.raises(ScheduleExecutionError) as raised,
    ):
        defs.resolve_schedule_def("export_feed_schedule").evaluate_tick(context)
    assert isinstance(raised.value.__cause__, LedgerUnreadable)


def scope(begins="2026-06-01", first="2026-06-01", last="2026-06-10"):
    return Scope({DatasetName("logs"): Day(begins)}, Day(first), Day(last))


def ask_for(installation, scope):
    sink = installation.installation.config.sinks[SinkName("feed")]
    with installation.installation.open_ledger() as ledger:
        return ask(installation.installation, ledger, sink, scope)


def test_days_before_the_sinks_start_are_left_to_backfills_and_days_without_a_partition_are_said(cache, home):
    for day in ("2026-06-02", "2026-06-04", "2026-06-06", "2026-06-11"):
        cache.with_day(day)
    answer = ask_for(an_installation(home, cache), scope(begins="2026-06-05", first="2026-06-03"))
    assert [entry.day for entry in answer.days] == ["2026-06-06"]
    assert sorted(answer.said) == [
        "1 days before the sink's start are left to backfills",
        "1 days lie before the first day; `hypaware-pipeline first-day` moves it",
        "1 days lie in the future",
    ]


def test_what_is_about_to_be_evicted_goes_first_then_today_then_the_newest():
    days = [Day(day) for day in ("2026-01-01", "2026-03-01", "2026-05-01", "2026-06-09", "2026-06-10")]
    key = urgency(Day("2026-06-10"), DEFAULT_RETENTION)
    order = sorted([UNDATED, *reversed(days)], key=lambda day: key(DatasetName("logs"), day))
    assert order == ["2026-01-01", "2026-03-01", "2026-06-10", "2026-06-09", "2026-05-01", UNDATED]


def test_what_is_about_to_be_evicted_is_told_by_what_hypaware_keeps_of_each_dataset():
    """Counted from 90 days, an audit log kept for ever would go ahead of today, and traces of a fortnight ago would be lost."""
    key = urgency(Day("2026-06-10"), Retention(default_days=0, datasets={"traces": 14, "logs": 90.5}))
    days = [
        ("audit", "2026-01-01"),
        ("audit", "2026-06-10"),
        ("logs", "2026-03-13"),
        ("logs", "2026-06-02"),
        ("traces", "2026-06-02"),
    ]
    order = sorted(days, key=lambda item: key(DatasetName(item[0]), Day(item[1])))
    assert order == [days[2], days[4], days[1], days[3], days[0]]


@pytest.mark.parametrize(
    ("ours", "theirs", "oldest_first"), [(None, None, False), (None, 14, True), (365, 14, False), (14, None, True)]
)
def test_a_tick_asks_first_for_what_the_config_says_is_about_to_be_evicted(cache, home, instance, ours, theirs, oldest_first):
    cache.with_day("2026-05-25").with_day("2026-06-08")
    if theirs is not None:
        retention = {"default_days": 90, "datasets": {"logs": theirs}}
        config = home / ".hyp" / "hypaware-config.json"
        config.parent.mkdir(parents=True)
        config.write_text(json.dumps({"version": 2, "query": {"cache": {"retention": retention}}}))
    query = {"cache": {"dir": str(cache.root), **({"retention": {"default_days": ours}} if ours else {})}}
    order = ["2026-05-25", "2026-06-08"] if oldest_first else ["2026-06-08", "2026-05-25"]
    assert [first for first, _, _ in asked(an_installation(home, cache, query=query), instance)] == order


def test_a_tick_is_bounded_and_the_rest_is_said_and_asked_for_later(cache, home, instance, monkeypatch):
    monkeypatch.setattr(due, "DAYS_PER_TICK", 2)
    for day in ("2026-06-04", "2026-06-05", "2026-06-06", "2026-06-07"):
        cache.with_day(day)
    installation = an_installation(home, cache)
    answer = ask_for(installation, scope())
    assert [entry.day for entry in answer.days] == ["2026-06-07", "2026-06-06"]
    assert answer.said == ["2 more days are due and left to the next tick"]
    installation.export(["2026-06-06", "2026-06-07"])
    assert asked(installation, instance) == [("2026-06-04", "2026-06-05", ["logs"])]


def test_scattered_days_make_a_bounded_number_of_runs(cache, home, instance, monkeypatch):
    monkeypatch.setattr(schedules, "RUNS_PER_TICK", 2)
    for day in ("2026-06-01", "2026-06-03", "2026-06-05"):
        cache.with_day(day)
    assert [first for first, _, _ in asked(an_installation(home, cache), instance)] == ["2026-06-05", "2026-06-03"]


# --- what a tick with nothing new does not read -------------------------------------------------------------------------------


def test_a_tick_that_finds_nothing_new_reads_no_receipt_no_index_and_no_metadata(cache, home, instance):
    cache.with_day("2026-06-04").with_day("2026-06-05")
    installation = an_installation(home, cache)
    installation.export()
    assert "no day changed" in skipped(installation, instance)
    with sqlite3.connect(installation.installation.state.ledger) as connection:
        connection.execute("ALTER TABLE receipts RENAME TO gone")
    metadata = max(cache.table_directory().glob("metadata/v*.metadata.json"))
    status = metadata.stat()
    metadata.write_bytes(b" " * status.st_size)
    os.utime(metadata, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert "no day changed" in skipped(installation, instance)


@pytest.mark.parametrize("what", ["a flush", "a recorded receipt", "the next day", "a changed sink"])
def test_whatever_may_make_a_day_due_is_noticed(cache, home, instance, what):
    cache.with_day("2026-06-04").with_day("2026-06-05")
    installation = an_installation(home, cache)
    installation.export()
    assert "no day changed" in skipped(installation, instance)
    if what == "a flush":
        cache.with_day("2026-06-05")
    elif what == "a recorded receipt":
        cache.with_day("2026-06-05")
        with installation.installation.open_ledger() as ledger:
            receipt = ledger.receipt(SinkName("feed"), DatasetName("logs"), Day("2026-06-05"))
            installation.export()
            assert "no day changed" in skipped(installation, instance)
            standing = ledger.recorded(SinkName("feed"), DatasetName("logs"), Day("2026-06-05"))
            ledger.record(receipt, replaces=standing)  # a slow export of what the cache held before
    elif what == "the next day":
        cache.with_day("2026-06-12")
        assert [outcome.day for outcome in installation.export()] == [UNDATED]
        assert "no day changed" in skipped(installation, instance)
        installation.now += dt.timedelta(days=2)
    else:
        sinks = {"feed": {**FEED["feed"], "config": {**FEED["feed"]["config"], "dir": "out/another"}}}
        installation = AnInstallation(home, cache.root, sinks=sinks)
    assert asked(installation, instance)


def test_a_plan_is_not_remembered_if_something_was_recorded_while_it_was_made(cache, home):
    cache.with_day("2026-06-04")
    installation = an_installation(home, cache)
    installation.export()
    sink, logs = SinkName("feed"), DatasetName("logs")
    with installation.installation.open_ledger() as ledger:
        before = ledger.plan_memory(sink)[logs].revision
        standing = ledger.recorded(sink, logs, Day("2026-06-04"))
        ledger.record(standing.receipt, replaces=standing)
        ledger.remember_nothing_due(sink, logs, state="s", revision=before)
        assert ledger.plan_memory(sink)[logs].nothing_due_at is None
        ledger.remember_nothing_due(sink, logs, state="s", revision=before + 1)
        assert ledger.plan_memory(sink)[logs].nothing_due_at == "s"


def test_a_tick_with_nothing_new_imports_no_heavy_library(cache, home, instance):
    cache.with_day("2026-06-04")
    installation = an_installation(home, cache)
    real_time = AnInstallation(home, cache.root, sinks=FEED)
    real_time.now = dt.datetime.now(dt.UTC)
    real_time.export()
    assert "no day changed" in skipped(real_time, instance)
    code = (
        "import json, sys, dagster as dg; from hypaware_pipeline.definitions import defs\n"
        "schedule = defs().resolve_schedule_def('export_feed_schedule')\n"
        "with dg.instance_for_test() as instance, dg.build_schedule_context(instance=instance) as context:\n"
        "    data = schedule.evaluate_tick(context)\n"
        "heavy = [name for name in ('pyarrow', 'duckdb', 'pyiceberg', 'boto3', 'pandas') if name in sys.modules]\n"
        "print(json.dumps([data.skip_message, heavy]))"
    )
    env = {**os.environ, "HYPAWARE_PIPELINE_CONFIG": str(installation.installation.config.path)}
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == ["no day changed since its last export", []]
