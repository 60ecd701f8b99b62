"""What is reported of the cache without any run."""

import datetime as dt
import shutil

import dagster as dg
import pytest

from hypaware_pipeline.export.blueprint import Blueprint
from hypaware_pipeline.orchestration import sensors
from hypaware_pipeline.orchestration.build import definitions_of
from tests.installations import AnInstallation

LOGS = dg.AssetKey(["cache", "logs"])
VERSION = "dagster/data_version"


@pytest.fixture
def installation(home, cache):
    cache.with_day("2026-06-04").with_day("2026-06-05", rows=5)
    return AnInstallation(home, cache.root)


def tick(installation, instance, cursor=None):
    defs = definitions_of(Blueprint.draw(installation.installation))
    with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
        return defs.resolve_sensor_def("report_cache_changes").evaluate_tick(context)


def reported(instance, asset=LOGS):
    """Every event of an asset, the oldest first: day, rows, data version."""
    records = reversed(instance.fetch_materializations(asset, limit=100).records)
    events = [record.asset_materialization for record in records]
    return [(each.partition, each.metadata["dagster/partition_row_count"].value, each.tags[VERSION]) for each in events]


def test_every_day_is_reported_once_with_its_fingerprint_as_data_version(installation, instance):
    first = tick(installation, instance)
    pin = installation.installation.cache().pin("logs")
    assert reported(instance) == [
        ("2026-06-04", 3, pin.summary("2026-06-04").fingerprint),
        ("2026-06-05", 5, pin.summary("2026-06-05").fingerprint),
    ]
    again = tick(installation, instance, first.cursor)
    assert (again.skip_message, again.cursor) == ("nothing changed", first.cursor)
    assert len(reported(instance)) == 2


def test_under_a_clock_before_the_first_day_nothing_is_reported(installation, instance):
    with installation.installation.open_ledger() as ledger:
        ledger.choose_first_day("2999-01-01", "test")
    assert tick(installation, instance).skip_message.startswith("the clock stands before 2999-01-01")
    assert reported(instance) == []


def test_only_changed_days_are_reported_and_a_compaction_changes_none(installation, instance, cache):
    cursor = tick(installation, instance).cursor
    cache.with_day("2026-06-05", rows=1)
    cursor = tick(installation, instance, cursor).cursor
    assert [(day, rows) for day, rows, _ in reported(instance)][2:] == [("2026-06-05", 6)]
    cache.writer.compact("logs", "unknown")
    assert tick(installation, instance, cursor).skip_message == "reported"
    assert len(reported(instance)) == 3


def test_a_day_that_left_the_cache_is_reported_without_rows_and_not_again(installation, instance, cache):
    cursor = tick(installation, instance).cursor
    cache.writer.retention(dt.datetime(2026, 6, 5, tzinfo=dt.UTC))
    cursor = tick(installation, instance, cursor).cursor
    assert [(day, rows) for day, rows, _ in reported(instance)][2:] == [("2026-06-04", 0)]
    tick(installation, instance)
    assert len(reported(instance)) == 3


def test_undated_rows_are_counted_with_the_first_partition(installation, instance, cache):
    cache.with_day("2026-06-05", timestamp=None, rows=2)
    tick(installation, instance)
    (first, *_) = reversed(instance.fetch_materializations(LOGS, limit=10).records)
    assert first.partition_key == "2026-06-04"
    assert first.asset_materialization.metadata["undated"].value == 2
    assert first.asset_materialization.metadata["dagster/partition_row_count"].value == 5


def test_a_tick_is_bounded_and_the_next_one_goes_on(installation, instance, monkeypatch):
    monkeypatch.setattr(sensors, "EVENTS_PER_TICK", 1)
    first = tick(installation, instance)
    assert "logs: 1 more changed days" in first.skip_message
    assert first.cursor is None
    second = tick(installation, instance)
    assert [day for day, *_ in reported(instance)] == ["2026-06-04", "2026-06-05"]
    assert second.cursor
    assert len(second.cursor) == 32


def test_what_dagster_lost_is_reported_again(installation, instance):
    tick(installation, instance)
    instance.wipe()
    tick(installation, instance)
    assert len(reported(instance)) == 2


def test_a_source_that_cannot_be_read_stops_no_other_and_a_missing_cache_is_said(installation, instance, cache):
    cache.with_day("2026-06-04", dataset="ai_gateway_messages", source="claude")
    defs = Blueprint.draw(installation.installation)
    assert [dataset.name for dataset in defs.datasets] == ["ai_gateway_messages", "logs"]
    (cache.source_directory("ai_gateway_messages", "claude") / "cursor.json").write_text("{")
    assert tick(installation, instance).cursor is None, "nothing is settled while a source cannot be read"
    assert [day for day, *_ in reported(instance)] == ["2026-06-04", "2026-06-05"]
    sensor = definitions_of(defs).resolve_sensor_def("report_cache_changes")
    shutil.rmtree(cache.root)
    with dg.build_sensor_context(instance=instance) as context:
        assert str(cache.root) in sensor.evaluate_tick(context).skip_message
