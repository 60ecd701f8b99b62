import json
import os
import subprocess
import sys

import dagster as dg
import pytest

from hypaware_pipeline.errors import BadRequest
from hypaware_pipeline.export.blueprint import Blueprint
from hypaware_pipeline.model import UNDATED, DatasetName, Day, SinkName
from hypaware_pipeline.orchestration import build
from hypaware_pipeline.orchestration.build import broken_definitions, definitions_of
from hypaware_pipeline.orchestration.partitions import RANGE_END_TAG, RANGE_START_TAG, daily_partitions, days_of, range_tags
from hypaware_pipeline.orchestration.runner import Request, run_requests
from tests.installations import JSONL, NOW, AnInstallation

LOGS = dg.AssetKey(["feed", "logs"])


def build_definitions(installation):
    return definitions_of(Blueprint.draw(installation))


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def run(installation, instance, *days):
    outcomes = []
    request = Request(SinkName("feed"), DatasetName("logs"), [Day(day) for day in days])
    reports = list(run_requests(installation.installation, [request], instance=instance, observer=outcomes.append))
    return outcomes, reports


def statuses(instance, installation, *days):
    begins = Day("2026-06-04")
    found = instance.get_status_by_partition(LOGS, list(days), daily_partitions(begins))
    return [found[day].value if found and found[day] else None for day in days]


def test_definitions_show_every_dataset_and_every_sink(cache, home):
    cache.with_day("2026-06-04").with_day("2026-06-04", dataset="ai_gateway_messages", source="claude")
    defs = build_definitions(AnInstallation(home, cache.root).installation)
    dg.Definitions.validate_loadable(defs)
    keys = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    assert keys == {f"{group}/{name}" for group in ("cache", "archive", "feed") for name in ("ai_gateway_messages", "logs")}
    assert {job.name for job in defs.resolve_all_job_defs()} >= {"export_archive", "export_feed"}


def test_a_sink_takes_only_the_datasets_it_wants(cache, home):
    cache.with_day("2026-06-04").with_day("2026-06-04", dataset="ai_gateway_messages", source="claude")
    sinks = {"feed": {**JSONL, "config": {"dir": "out", "datasets": ["ai_*"]}}}
    defs = build_definitions(AnInstallation(home, cache.root, sinks=sinks).installation)
    keys = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys() if key.path[0] == "feed"}
    assert keys == {"feed/ai_gateway_messages"}


def columns_of(defs, *key):
    schema = defs.resolve_asset_graph().get(dg.AssetKey(key)).metadata.get("dagster/column_schema")
    return {column.name: column.type for column in schema.columns} if schema else None


def test_an_asset_shows_the_columns_declared_and_those_of_the_tables(cache, home):
    cache.with_day("2026-06-04").with_rows("acme_events", [{"timestamp": NOW, "n": 1, "note": {"a": 1}}])
    installation = AnInstallation(home, cache.root).installation
    defs = build_definitions(installation)
    open_columns = {"timestamp": "TIMESTAMP", "n": "INT64", "note": "JSON"}
    assert columns_of(defs, "cache", "acme_events") == columns_of(defs, "feed", "acme_events") == open_columns
    assert columns_of(defs, "cache", "logs")["body"] == "JSON"
    for metadata in cache.table_directory("acme_events", "unknown").glob("metadata/v*.metadata.json"):
        metadata.write_text("[" * 100_000)
    assert columns_of(build_definitions(installation), "feed", "acme_events") is None


def test_a_column_that_only_the_tables_of_a_known_dataset_have_is_shown_after_the_declared_ones(cache, home):
    cache.with_day("2026-06-04")
    (metadata,) = cache.table_directory().glob("metadata/v2.metadata.json")
    document = json.loads(metadata.read_text())
    for schema in document["schemas"]:
        schema["fields"].append({"id": 999, "name": "added_by_a_newer_hypaware", "type": "long", "required": False})
    metadata.write_text(json.dumps(document))
    columns = columns_of(build_definitions(AnInstallation(home, cache.root).installation), "feed", "logs")
    assert list(columns.items())[-1] == ("added_by_a_newer_hypaware", "INT64")
    assert next(iter(columns)) == "serviceName"


def test_the_type_of_a_sinks_asset_is_named_and_described(cache, home):
    cache.with_day("2026-06-04")
    (sink,) = build_definitions(AnInstallation(home, cache.root).installation).get_assets_def(LOGS).op.output_defs
    assert sink.dagster_type.unique_name == "CacheSlice"
    assert sink.dagster_type.description.startswith("Days of one dataset of HypAware's cache. It holds no rows")


def test_a_sink_is_owned_by_whom_its_config_names(cache, home):
    """An owner that our rules take and Dagster's refuse would cost the whole code location."""
    cache.with_day("2026-06-04")
    owners = ["ada@example.com", "_a.b+c%d-e@sub-domain.example.museum", "team:data platform"]
    sinks = {"feed": {**JSONL, "config": {"dir": "out", "schedule": "0 * * * *", "owners": owners}}}
    defs = build_definitions(AnInstallation(home, cache.root, sinks=sinks).installation)
    assert list(defs.resolve_asset_graph().get(LOGS).owners) == owners
    assert not defs.resolve_asset_graph().get(dg.AssetKey(["cache", "logs"])).owners


def test_a_broken_sink_is_an_asset_that_says_why_and_stops_nothing_else(cache, home):
    cache.with_day("2026-06-04")
    sinks = {"feed": {**JSONL, "config": {"dir": "out"}}, "odd": {**JSONL, "config": {"dir": "odd", "colour": "red"}}}
    defs = build_definitions(AnInstallation(home, cache.root, sinks=sinks).installation)
    graph = defs.resolve_asset_graph()
    assert "/sinks/odd/config/colour" in graph.get(dg.AssetKey(["broken", "odd"])).description
    assert graph.has(LOGS)


def test_a_missing_cache_is_an_asset_that_says_so(home, tmp_path):
    defs = build_definitions(AnInstallation(home, tmp_path / "nowhere").installation)
    assert str(tmp_path / "nowhere") in defs.resolve_asset_graph().get(dg.AssetKey(["broken", "the_cache"])).description


def test_an_unusable_configuration_is_an_asset_that_says_so():
    defs = broken_definitions(BadRequest("HYP_HOME is 'x', which is not absolute"))
    assert "HYP_HOME" in defs.resolve_asset_graph().get(dg.AssetKey(["broken", "the_configuration"])).description


def test_hostile_dataset_names_are_assets_and_export(cache, home, instance):
    name = 'it\'s, "ünïcode" & spaces'
    cache.with_rows(name, [{"timestamp": NOW.replace(day=4), "n": 1}])
    installation = AnInstallation(home, cache.root)
    outcomes = []
    request = Request(SinkName("feed"), DatasetName(name), [Day("2026-06-04")])
    (report,) = run_requests(installation.installation, [request], instance=instance, observer=outcomes.append)
    assert report.error is None
    assert [outcome.status for outcome in outcomes] == ["exported"]


def test_a_range_is_one_run_and_every_day_is_materialized_with_its_figures(cache, home, instance):
    cache.with_day("2026-06-04", rows=2).with_day("2026-06-05", rows=3)
    installation = AnInstallation(home, cache.root)
    _, reports = run(installation, instance, "2026-06-04", "2026-06-05")
    assert len(reports) == len(instance.get_runs()) == 1
    assert statuses(instance, installation, "2026-06-04", "2026-06-05") == ["MATERIALIZED", "MATERIALIZED"]
    records = instance.fetch_materializations(LOGS, limit=10).records
    rows = {
        record.partition_key: record.asset_materialization.metadata["dagster/partition_row_count"].value for record in records
    }
    assert rows == {"2026-06-04": 2, "2026-06-05": 3}
    assert len(records) == 2, "one event a day: a second, bare one would hide the figures"
    metadata = records[0].asset_materialization.metadata
    assert metadata["dagster/uri"].value.startswith("file://")
    assert metadata["receipt"].value[0]["sink"] == "feed"
    shown_first = ["dagster/partition_row_count", "bytes", "dagster/uri", "seconds", "rows_per_second"]
    assert list(metadata) == [*shown_first, "parked", "withheld", "kept", "undated", "status", "files", "receipt"]


def test_one_bad_day_of_a_range_is_failed_and_the_others_are_materialized(cache, home, instance):
    days = ("2026-06-04", "2026-06-05", "2026-06-06", "2026-06-07", "2026-06-08")
    for day in days:
        cache.with_day(day)
    installation = AnInstallation(home, cache.root)
    installation.export(["2026-06-04"])
    obstacle = installation.out() / "logs/day=2026-06-06"
    obstacle.write_text("")
    run(installation, instance, *days)
    assert statuses(instance, installation, *days) == ["MATERIALIZED", "MATERIALIZED", "FAILED", "MATERIALIZED", "MATERIALIZED"]
    (run_,) = instance.get_runs()
    assert run_.status is dg.DagsterRunStatus.FAILURE

    obstacle.unlink()
    run(installation, instance, "2026-06-06")
    assert statuses(instance, installation, "2026-06-06") == ["MATERIALIZED"]


def test_undated_rows_are_exported_with_the_first_partition(cache, home, instance):
    cache.with_day("2026-06-04").with_day("2026-06-04", rows=2, timestamp=None)
    installation = AnInstallation(home, cache.root)
    outcomes, _ = run(installation, instance, "undated")
    assert {outcome.day: outcome.receipt.exported_rows for outcome in outcomes} == {"2026-06-04": 3, UNDATED: 2}
    assert "logs/day=__HIVE_DEFAULT_PARTITION__/unknown.jsonl.gz" in installation.objects()
    assert days_of(["2026-06-04", "2026-06-05"], Day("2026-06-04")) == ["2026-06-04", "2026-06-05", UNDATED]


def test_an_empty_day_is_materialized_with_no_rows(cache, home, instance):
    cache.with_day("2026-06-04").with_day("2026-06-06")
    installation = AnInstallation(home, cache.root)
    run(installation, instance, "2026-06-05")
    assert statuses(instance, installation, "2026-06-05") == ["MATERIALIZED"]


def test_a_ledger_that_cannot_be_read_fails_the_run_and_is_named(cache, home, instance):
    cache.with_day("2026-06-04")
    installation = AnInstallation(home, cache.root)
    run(installation, instance, "2026-06-04")
    installation.installation.state.ledger.write_bytes(b"no database at all" * 100)
    outcomes, reports = run(installation, instance, "2026-06-10")
    assert outcomes == []
    assert "ledger.db" in reports[0].error


def test_the_first_day_is_the_earliest_dated_row_and_stays(cache, home):
    cache.with_day("2026-06-05").with_rows("logs", [{"serviceName": "old", "timestamp": NOW.replace(year=1970)}])
    installation = AnInstallation(home, cache.root).installation
    graph = build_definitions(installation).resolve_asset_graph()
    assert graph.get(LOGS).partitions_def.get_first_partition_key() == "2026-06-05"
    cache.with_day("2026-06-01")
    graph = build_definitions(installation).resolve_asset_graph()
    assert graph.get(LOGS).partitions_def.get_first_partition_key() == "2026-06-05"


def test_the_first_day_of_the_config_wins_at_first_load(cache, home):
    cache.with_day("2026-06-05")
    installation = AnInstallation(home, cache.root, first_day="2026-06-01").installation
    graph = build_definitions(installation).resolve_asset_graph()
    assert graph.get(LOGS).partitions_def.get_first_partition_key() == "2026-06-01"


def test_reversed_and_future_ranges_are_refused():
    partitions = daily_partitions(Day("2026-06-04"))
    with pytest.raises(BadRequest, match="reversed"):
        range_tags(partitions, Day("2026-06-06"), Day("2026-06-05"))
    with pytest.raises(BadRequest, match="no partition 2999-01-01"):
        range_tags(partitions, Day("2026-06-06"), Day("2999-01-01"))


@pytest.mark.parametrize("ends", [("2026-06-05", "2026-06-04"), ("2998-01-01", "2999-01-01")], ids=["reversed", "future"])
def test_a_run_that_was_launched_over_a_range_without_days_fails_and_materializes_nothing(cache, home, instance, ends):
    """It was a success, and a materialization of the whole asset, for whoever launches by GraphQL."""
    cache.with_day("2026-06-04").with_day("2026-06-05")
    job = build_definitions(AnInstallation(home, cache.root).installation).resolve_job_def("export_feed")
    tags = dict(zip((RANGE_START_TAG, RANGE_END_TAG), ends, strict=True))
    result = job.execute_in_process(instance=instance, asset_selection=[LOGS], tags=tags, raise_on_error=False)
    assert not result.success
    (failed,) = (event for event in result.all_events if event.is_step_failure)
    assert "covers no day: its range is reversed, or lies after today or before 2026-06-04" in str(failed.step_failure_data.error)
    assert not instance.fetch_materializations(LOGS, limit=1).records


def test_a_clock_before_the_first_day_is_said_by_an_export(cache, home, instance):
    cache.with_day("2026-06-05")
    installation = AnInstallation(home, cache.root)
    with installation.installation.open_ledger() as ledger:
        ledger.choose_first_day(Day("2999-01-01"), "test")
    with pytest.raises(BadRequest, match="the clock stands before 2999-01-01"):
        run(installation, instance, "2026-06-05")


def test_a_key_prefix_may_be_one_text(cache, home):
    cache.with_day("2026-06-05")
    path = AnInstallation(home, cache.root).installation.config.path
    keys = build.build_definitions(path, key_prefix="ours").resolve_asset_graph().get_all_asset_keys()
    assert {key.path[0] for key in keys} == {"ours"}


def test_the_code_location_loads_without_heavy_libraries(cache, home):
    cache.with_day("2026-06-04")
    installation = AnInstallation(home, cache.root).installation
    build_definitions(installation)  # the first load chooses the first day, which reads the cache
    code = (
        "import json, sys, warnings; warnings.simplefilter('error'); from hypaware_pipeline.definitions import defs; "
        "graph = defs().resolve_asset_graph(); "
        "heavy = [name for name in ('pyarrow', 'duckdb', 'pyiceberg', 'boto3', 'pandas', 'dagster_aws') if name in sys.modules]; "
        "print(json.dumps([len(graph.get_all_asset_keys()), heavy]))"
    )
    env = {**os.environ, "HYPAWARE_PIPELINE_CONFIG": str(installation.config.path)}
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == [3, []]


def test_the_value_of_a_variable_is_nowhere_in_dagsters_home(cache, home, tmp_path, monkeypatch):
    cache.with_day("2026-06-04").with_day("2026-06-05")
    secret = str(tmp_path / "hunter2")
    installation = AnInstallation(home, cache.root, sinks={"feed": {**JSONL, "config": {"dir": "${ENV:FEED_DIR}/x"}}})
    dagster_home = tmp_path / "dagster"
    dagster_home.mkdir()
    with dg.DagsterInstance.local_temp(str(dagster_home)) as instance:
        monkeypatch.delenv("FEED_DIR", raising=False)
        _, (report,) = run(installation, instance, "2026-06-04")
        assert "the environment variable FEED_DIR is not set" in report.error
        assert "/sinks/feed/config/dir" in report.error
        monkeypatch.setenv("FEED_DIR", secret)
        run(installation, instance, "2026-06-04")
        (tmp_path / "hunter2/x/logs/day=2026-06-05").write_text("in the way")
        outcomes, _ = run(installation, instance, "2026-06-05")
        assert "${ENV:FEED_DIR}" in outcomes[0].error
        assert statuses(instance, installation, "2026-06-04", "2026-06-05") == ["MATERIALIZED", "FAILED"]
    stored = {str(path): path.read_bytes() for root in (dagster_home, home) for path in root.rglob("*") if path.is_file()}
    assert any(b"FEED_DIR" in content for content in stored.values())
    assert not [path for path, content in stored.items() if secret.encode() in content]
