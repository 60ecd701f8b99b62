"""What the asset checks say of the exports, and when it is reported."""

import datetime as dt
import random

import dagster as dg
import pytest

from hypaware_pipeline.demo.mishaps import wipe
from hypaware_pipeline.demo.writer import CacheWriter
from hypaware_pipeline.export.blueprint import Blueprint
from hypaware_pipeline.model import DatasetName, Day, SinkName
from hypaware_pipeline.orchestration.build import definitions_of
from hypaware_pipeline.orchestration.runner import Request, run_requests
from tests.builders import a_log
from tests.installations import JSONL, AnInstallation

LOGS = dg.AssetKey(["feed", "logs"])
FEED = {"feed": {**JSONL, "config": {"dir": "out/feed"}}}


@pytest.fixture
def cache(cache):
    return cache.with_day("2026-06-04").with_day("2026-06-05")


@pytest.fixture
def installation(home, cache):
    return AnInstallation(home, cache.root, sinks=FEED)


def tick(installation, instance, cursor=None):
    defs = definitions_of(Blueprint.draw(installation.installation))
    with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
        return defs.resolve_sensor_def("judge_exports").evaluate_tick(context)


def evaluations(instance, asset=LOGS):
    """Every reported evaluation of a check, the oldest first."""
    key = dg.AssetCheckKey(asset, "exported")
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=100)
    return [record.event.dagster_event.event_specific_data for record in reversed(records)]


def run(installation, instance, *days):
    request = Request(SinkName("feed"), DatasetName("logs"), [Day(day) for day in days])
    return list(run_requests(installation.installation, [request], instance=instance, observer=lambda _: None))


def test_there_is_one_unpartitioned_check_per_asset_of_a_sink_and_no_job_runs_any(installation):
    defs = definitions_of(Blueprint.draw(installation.installation))
    assert defs.resolve_asset_graph().asset_check_keys == {dg.AssetCheckKey(LOGS, "exported")}
    assert not defs.resolve_job_def("export_feed").asset_layer.asset_graph.asset_check_keys


def test_old_days_that_wait_are_a_warning_until_they_are_exported(installation, instance):
    cursor = tick(installation, instance).cursor
    (waiting,) = evaluations(instance)
    assert (waiting.passed, waiting.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert waiting.metadata["waiting"].value == ["2026-06-04", "2026-06-05"]
    assert waiting.metadata.keys() == {"waiting", "waiting_days"}, "what nobody can read is not shown"
    assert waiting.description == "waiting for an export: 2 days (2026-06-04 … 2026-06-05)"
    installation.export()
    tick(installation, instance, cursor)
    assert [each.passed for each in evaluations(instance)] == [False, True]


def test_an_evaluation_that_says_less_than_the_verdict_is_put_right(installation, instance):
    installation.export(["2026-06-04"])
    tick(installation, instance)
    (reported,) = evaluations(instance)
    told = {"asset_key": LOGS, "check_name": "exported", "passed": reported.passed, "severity": reported.severity}
    instance.report_runless_asset_event(dg.AssetCheckEvaluation(**told, description=reported.description))
    tick(installation, instance)
    *_, last = evaluations(instance)
    assert (len(evaluations(instance)), last.metadata) == (3, reported.metadata)


def test_today_and_yesterday_may_wait_for_the_next_tick(installation, instance, cache):
    installation.export()
    cache.with_day("2026-06-09").with_day("2026-06-10")
    tick(installation, instance)
    assert [each.passed for each in evaluations(instance)] == [True]


def test_a_verdict_is_reported_when_it_changes_and_only_then(installation, instance, cache):
    installation.export()
    cursor = tick(installation, instance).cursor
    assert tick(installation, instance, cursor).skip_message == "nothing changed"
    cache.with_day("2026-06-10")
    assert tick(installation, instance, cursor).skip_message == "reported"
    assert len(evaluations(instance)) == 1


def test_a_failed_day_is_an_error_that_names_it_and_is_over_with_the_next_export(installation, instance):
    installation.export(["2026-06-04"])
    obstacle = installation.out() / "logs/day=2026-06-05"
    obstacle.write_text("")
    run(installation, instance, "2026-06-05")
    tick(installation, instance)
    (failed,) = evaluations(instance)
    assert (failed.passed, failed.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert list(failed.metadata["failed"].value) == ["2026-06-05"]
    assert failed.description == "failed: 2026-06-05; given up: 2026-06-05"
    obstacle.unlink()
    run(installation, instance, "2026-06-05")
    tick(installation, instance)
    assert [each.passed for each in evaluations(instance)] == [False, True]


def test_a_halted_sink_is_an_error_although_nothing_is_due_until_it_is_resumed(installation, instance):
    installation.export()
    cursor = tick(installation, instance).cursor
    with installation.installation.open_ledger() as ledger:
        ledger.retries.halt(SinkName("feed"), "the bucket is gone")
    cursor = tick(installation, instance, cursor).cursor
    *_, halted = evaluations(instance)
    assert (halted.passed, halted.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert halted.description == "halted since 2026-06-10T12:00:00.000Z: the bucket is gone"
    with installation.installation.open_ledger() as ledger:
        ledger.retries.resume(SinkName("feed"))
    tick(installation, instance, cursor)
    assert [each.passed for each in evaluations(instance)] == [True, False, True]


def test_rows_that_vanished_without_proof_are_a_warning_with_their_days(installation, instance, cache):
    installation.export()
    wipe(cache.root)
    CacheWriter(cache.root, clock=cache.clock, rng=random.Random(7)).append("logs", "unknown", [a_log("2026-06-05", 9)])
    installation.export()
    tick(installation, instance)
    (vanished,) = evaluations(instance)
    assert (vanished.passed, vanished.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert vanished.metadata["unproven"].value == {"2026-06-04": 3, "2026-06-05": 3}
    assert vanished.description == "vanished without proof: 6 rows"


def test_a_source_that_cannot_be_read_is_an_error_that_names_it(installation, instance, cache):
    cache.with_day("2026-06-04", source="b")
    installation.export()
    (cache.source_directory("logs", "b") / "cursor.json").write_text("{")
    tick(installation, instance)
    (unreadable,) = evaluations(instance)
    assert unreadable.severity is dg.AssetCheckSeverity.ERROR
    assert list(unreadable.metadata["unreadable"].value) == ["b"]
    assert unreadable.description.endswith("; unreadable: 1 source")


def test_refused_rows_are_a_warning_with_their_days(installation, instance, cache):
    cache.with_day("2026-06-06", rows=1, serviceName="torn!")
    (data_file,) = (path for path in cache.table_directory().glob("data/*.parquet") if b"torn!" in path.read_bytes())
    data_file.write_bytes(data_file.read_bytes().replace(b"torn!", b"torn\xff"))
    installation.export()
    tick(installation, instance)
    (parked,) = evaluations(instance)
    assert (parked.passed, parked.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert parked.metadata["parked"].value == {"2026-06-06": 1}
    assert parked.description == "parked: 1 row"


def test_whoever_executes_a_check_gets_the_same_verdict_and_one_left_behind_is_put_right(installation, instance):
    installation.export()
    tick(installation, instance)
    defs = definitions_of(Blueprint.draw(installation.installation))
    check = dg.AssetSelection.checks(dg.AssetCheckKey(LOGS, "exported"))
    job = dg.Definitions.merge(defs, dg.Definitions(jobs=[dg.define_asset_job("judge", selection=check)])).resolve_job_def(
        "judge"
    )
    assert job.execute_in_process(instance=instance).success
    assert [each.passed for each in evaluations(instance)] == [True, True]
    tick(installation, instance)
    assert len(evaluations(instance)) == 2, "the executed one says what the sensor would"


def test_a_later_day_judges_anew_what_nothing_changed(installation, instance, cache):
    installation.export()
    cache.with_day("2026-06-09")
    cursor = tick(installation, instance).cursor
    installation.now += dt.timedelta(days=2)
    tick(installation, instance, cursor)
    assert [each.passed for each in evaluations(instance)] == [True, False]
