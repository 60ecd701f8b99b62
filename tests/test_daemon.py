"""Under the real daemon and web server: ticks, backfills, what the UI is told.

All tests share one Dagster; each has a sink of its own, and they may run in any order. Backfills are launched before the first of
them, because the daemon looks at backfills every half minute only.
"""

import datetime as dt
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import dagster as dg
import pytest

from tests.builders import a_cache
from tests.daemon import ADagster
from tests.installations import JSONL, AnInstallation
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

FIVE = ["2026-06-01", "2026-06-02", "2026-06-03", "2026-06-04", "2026-06-05"]
BAD = "2026-06-03"
MANY = [(dt.date(2026, 2, 1) + dt.timedelta(days=number)).isoformat() for number in range(200)]
MESSAGES, LOGS = "ai_gateway_messages", "logs"


def a_sink(name, *datasets, **config):
    return {**JSONL, "config": {"dir": f"out/{name}", "datasets": list(datasets), **config}}


SINKS = {
    "ticking": a_sink("ticking", MESSAGES, schedule="* * * * *"),
    "filled": a_sink("filled", MESSAGES),
    "busy": a_sink("busy", LOGS, "spare", schedule="* * * * *", start="earliest"),
    "pinned": a_sink("pinned", MESSAGES),
    "odd": {**JSONL, "config": {"colour": "red"}},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("daemon")


@pytest.fixture(scope="module")
def cache(place):
    cache = a_cache(place / "cache")
    for day in FIVE:
        cache.with_day(day, dataset=MESSAGES, source="claude")
    return cache.with_day(MANY[0]).with_rows("spare", [{"timestamp": dt.datetime(2026, 6, 1, tzinfo=dt.UTC), "n": 1}])


@pytest.fixture(scope="module")
def installation(place, cache):
    installation = AnInstallation(place / "home", cache.root, sinks=SINKS, first_day="2026-02-01")
    installation.now = dt.datetime.now(dt.UTC)
    installation.export([FIVE[0]], sink="filled", dataset=MESSAGES)
    (installation.out("filled") / MESSAGES / f"day={BAD}").write_text("in the way")
    installation.export(FIVE[1:], sink="ticking", dataset=MESSAGES)
    return installation


@pytest.fixture(scope="module")
def dagster(place, installation):
    with ADagster(place, installation.installation.config.path) as running:
        yield running


@pytest.fixture(scope="module")
def of_five_days(dagster):
    return dagster.backfill("filled", MESSAGES, days=FIVE)


@pytest.fixture(scope="module")
def of_the_cache(dagster):
    return dagster.backfill("cache", MESSAGES, days=FIVE)


@pytest.fixture(scope="module")
def of_200_days(dagster, of_five_days):
    """A backfill and its run's process, which is stopped as soon as it is there: it lasts as long as the test wants."""

    def launch_and_hold():
        wait_for("the run of five days", lambda: dagster.runs(**{"dagster/backfill": of_five_days}))
        backfill = dagster.backfill("busy", LOGS, days=MANY)
        run = wait_for("the run of 200 days", lambda: next(iter(dagster.runs(**{"dagster/backfill": backfill})), None))
        pid = dagster.pid(run)
        os.kill(pid, signal.SIGSTOP)
        return backfill, pid

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(launch_and_hold)


@pytest.fixture(scope="module", autouse=True)
def launched(of_five_days, of_the_cache, of_200_days):
    """Everything that takes its time."""


def statuses(dagster, *key, days):
    partitions = dg.DailyPartitionsDefinition("2026-02-01", end_offset=1)
    found = dagster.instance.get_status_by_partition(dg.AssetKey(key), days, partitions) or {}
    return [found[day].value if found.get(day) else None for day in days]


def test_a_tick_exports_what_changed_and_the_next_one_launches_nothing(dagster, installation):
    def skipped():
        ticks = dagster.ticks("export_ticking_schedule")
        return ticks if ticks and ticks[0].tick_data.skip_reason else None

    ticks = wait_for("a tick with nothing new", skipped)
    assert ticks[0].tick_data.skip_reason == "no day changed since its last export"
    (run,) = dagster.runs(**{"hypaware/sink": "ticking"})
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert run.tags["hypaware/days"] == FIVE[0], "the other days had been exported before"
    assert len([tick for tick in ticks if tick.run_ids]) == 1
    assert sum(installation.rows("ticking", MESSAGES).values()) == 15


def test_a_backfill_of_five_days_is_one_run_in_which_one_bad_day_costs_no_other(dagster, of_five_days):
    ended = dagster.backfill_ended(of_five_days)
    assert ended.status.value == "COMPLETED_FAILED"
    (run,) = dagster.runs(**{"dagster/backfill": of_five_days})
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert statuses(dagster, "filled", MESSAGES, days=FIVE) == ["FAILED" if day == BAD else "MATERIALIZED" for day in FIVE]


def test_a_schedule_fires_on_time_while_a_backfill_of_200_days_runs(dagster, cache, of_200_days):
    backfill, pid = of_200_days.result()
    try:
        before = len(dagster.ticks("export_busy_schedule"))
        cache.with_rows("spare", [{"timestamp": dt.datetime(2026, 6, 2, tzinfo=dt.UTC), "n": 2}])

        def exported():
            runs = dagster.runs(**{"hypaware/sink": "busy", "hypaware/days": "2026-06-02"})
            return next((run for run in runs if run.status is dg.DagsterRunStatus.SUCCESS), None)

        scheduled = wait_for("the schedule's run", exported)
        assert len(dagster.ticks("export_busy_schedule")) - before <= 2
        assert {key.path[-1] for key in scheduled.asset_selection} == {"spare"}
    finally:
        os.kill(pid, signal.SIGCONT)
    assert dagster.backfill_ended(backfill).status.value == "COMPLETED_SUCCESS"
    assert len(dagster.runs(**{"dagster/backfill": backfill})) == 1
    assert set(statuses(dagster, "busy", LOGS, days=MANY)) == {"MATERIALIZED"}


@pytest.mark.parametrize("what", ["broken", "removed"])
def test_a_run_is_not_harmed_by_what_became_of_the_config_file_since(dagster, installation, what):
    """It was `Could not find job`, and for a file with a typing error every run failed."""
    path = installation.installation.config.path
    content = path.read_text()
    try:
        path.write_text("{ broken") if what == "broken" else path.unlink()
        run = dagster.launch("export_pinned", "pinned", MESSAGES, day=FIVE[0] if what == "broken" else FIVE[1])
        assert run.status is dg.DagsterRunStatus.SUCCESS
    finally:
        path.write_text(content)


def test_a_broken_sink_says_why_and_the_others_are_there(dagster):
    query = "{ assetNodes { assetKey { path } description jobNames } }"
    nodes = {"/".join(node["assetKey"]["path"]): node for node in dagster.graphql(query)["assetNodes"]}
    assert "/sinks/odd" in nodes["broken/odd"]["description"]
    assert "export_busy" in nodes["busy/logs"]["jobNames"]
    assert {f"{sink}/{MESSAGES}" for sink in ("ticking", "filled", "pinned")} <= nodes.keys()


def test_a_cache_asset_is_not_offered_for_backfills_and_one_that_names_it_fails_with_its_name(dagster, of_the_cache):
    query = "{ assetNodes { assetKey { path } isExecutable description } }"
    nodes = {"/".join(node["assetKey"]["path"]): node for node in dagster.graphql(query)["assetNodes"]}
    assert not nodes[f"cache/{MESSAGES}"]["isExecutable"]
    assert f"leave `cache/{MESSAGES}` out of a backfill" in nodes[f"cache/{MESSAGES}"]["description"]
    ended = dagster.backfill_ended(of_the_cache)
    assert ended.status.value == "FAILED"
    assert f"['cache', '{MESSAGES}']" in ended.error.message
    assert not dagster.runs(**{"dagster/backfill": of_the_cache})


def test_changed_days_of_the_cache_and_the_verdict_on_a_failed_day_are_reported_without_a_run(dagster, of_five_days):
    """The backfill left the check of its failed asset without a turn; the sensor puts it right."""
    asset, check = dg.AssetKey(["filled", MESSAGES]), dg.AssetCheckKey(dg.AssetKey(["filled", MESSAGES]), "exported")
    dagster.backfill_ended(of_five_days)
    reported = wait_for(
        "the cache's days", lambda: dagster.instance.get_materialized_partitions(dg.AssetKey(["cache", MESSAGES]))
    )
    assert reported == set(FIVE)

    def verdict():
        record = dagster.instance.event_log_storage.get_latest_asset_check_execution_by_key([check]).get(check)
        data = record.event.dagster_event.event_specific_data if record else None
        return data if BAD in str(getattr(data, "metadata", {}).get("failed")) else None

    found = wait_for("the verdict", verdict)
    assert (found.passed, found.severity, found.asset_key) == (False, dg.AssetCheckSeverity.ERROR, asset)
