"""Under the real daemon and web server: ticks, backfills, what the UI is told.

All tests share one Dagster; each has sinks or days of its own, and they may run in any order.
"""

import datetime as dt
import os
import signal

import dagster as dg
import pytest

from tests.builders import a_cache
from tests.daemon import ADagster, wait_for
from tests.installations import JSONL, AnInstallation

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("daemon")]

FIVE = ["2026-06-01", "2026-06-02", "2026-06-03", "2026-06-04", "2026-06-05"]
BAD = "2026-06-03"
MANY = [(dt.date(2026, 2, 1) + dt.timedelta(days=number)).isoformat() for number in range(200)]
MESSAGES, LOGS = "ai_gateway_messages", "logs"


def a_sink(name, *datasets, **config):
    return {**JSONL, "config": {"dir": f"out/{name}", "datasets": list(datasets), **config}}


SINKS = {
    "ticking": a_sink("ticking", MESSAGES, schedule="* * * * *"),
    "filled": a_sink("filled", MESSAGES),
    "busy": a_sink("busy", LOGS, "spare", schedule="* * * * *"),
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
    return installation


@pytest.fixture(scope="module")
def dagster(place, installation):
    with ADagster(place, installation.installation.config.path) as running:
        yield running


def statuses(dagster, *key, days):
    partitions = dg.DailyPartitionsDefinition("2026-02-01", end_offset=1)
    found = dagster.instance.get_status_by_partition(dg.AssetKey(key), days, partitions) or {}
    return [found[day].value if found.get(day) else None for day in days]


def test_a_backfill_of_five_days_is_one_run_in_which_one_bad_day_costs_no_other(dagster):
    ended = dagster.backfill_ended(dagster.backfill("filled", MESSAGES, days=FIVE))
    assert ended.status.value == "COMPLETED_FAILED"
    (run,) = dagster.runs(**{"dagster/backfill": ended.backfill_id})
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert statuses(dagster, "filled", MESSAGES, days=FIVE) == ["FAILED" if day == BAD else "MATERIALIZED" for day in FIVE]


def test_a_tick_exports_what_changed_and_the_next_one_launches_nothing(dagster, cache, installation):
    def exported(rows):
        return lambda: sum(installation.rows("ticking", MESSAGES).values()) == rows

    wait_for("the first tick's export", exported(15))
    cache.with_day(FIVE[1], dataset=MESSAGES, source="claude", rows=2)
    wait_for("the changed day's export", exported(17))
    newest = wait_for("the run", lambda: dagster.runs(**{"hypaware/sink": "ticking"}))[0]
    assert newest.tags["hypaware/days"] == FIVE[1]
    assert {key.path[-1] for key in newest.asset_selection} == {MESSAGES}
    runs = len(dagster.runs(**{"hypaware/sink": "ticking"}))
    last = dagster.ticks("export_ticking_schedule")[0].timestamp

    def later_ticks():
        ticks = [tick for tick in dagster.ticks("export_ticking_schedule") if tick.timestamp > last]
        return ticks if any("no day changed" in (tick.tick_data.skip_reason or "") for tick in ticks) else None

    assert {tick.status.value for tick in wait_for("a tick with nothing new", later_ticks)} == {"SKIPPED"}
    assert len(dagster.runs(**{"hypaware/sink": "ticking"})) == runs


def test_a_schedule_fires_on_time_while_a_backfill_of_200_days_runs(dagster, cache, installation):
    cache.with_rows(LOGS, [{"timestamp": dt.datetime.fromisoformat(f"{day}T01:00:00+00:00"), "serviceName": "x"} for day in MANY])
    backfill = dagster.backfill("busy", LOGS, days=MANY)
    run = wait_for("the backfill's run", lambda: next(iter(dagster.runs(**{"dagster/backfill": backfill})), None))
    pid = dagster.pid(run)
    os.kill(pid, signal.SIGSTOP)  # it lasts as long as the test wants
    try:
        before = len(dagster.ticks("export_busy_schedule"))
        cache.with_rows("spare", [{"timestamp": dt.datetime(2026, 6, 2, tzinfo=dt.UTC), "n": 2}])

        def exported():
            runs = dagster.runs(**{"hypaware/sink": "busy", "hypaware/days": "2026-06-02"})
            return next((run for run in runs if run.status is dg.DagsterRunStatus.SUCCESS), None)

        scheduled = wait_for("the schedule's run", exported)
        assert len(dagster.ticks("export_busy_schedule")) - before <= 2
        assert {key.path[-1] for key in scheduled.asset_selection} == {"spare"}, "the other days are on their way"
    finally:
        os.kill(pid, signal.SIGCONT)
    assert dagster.backfill_ended(backfill).status.value == "COMPLETED_SUCCESS"
    assert len(dagster.runs(**{"dagster/backfill": backfill})) == 1
    assert set(statuses(dagster, "busy", LOGS, days=MANY)) == {"MATERIALIZED"}


def test_a_queued_run_is_not_broken_by_what_becomes_of_the_config_file(dagster, installation):
    """It was `Could not find job`, and for a file with a typing error every run failed."""
    path = installation.installation.config.path
    content = path.read_text()
    try:
        path.write_text("{ broken")
        broken = dagster.backfill("pinned", MESSAGES, days=FIVE[:2])
        assert dagster.backfill_ended(broken).status.value == "COMPLETED_SUCCESS"
        path.unlink()
        gone = dagster.backfill("pinned", MESSAGES, days=FIVE[2:])
        assert dagster.backfill_ended(gone).status.value == "COMPLETED_SUCCESS"
    finally:
        path.write_text(content)
    assert sum(installation.rows("pinned", MESSAGES).values()) >= 15


def test_a_broken_sink_says_why_and_the_others_are_there(dagster):
    query = "{ assetNodes { assetKey { path } description jobNames } }"
    nodes = {"/".join(node["assetKey"]["path"]): node for node in dagster.graphql(query)["assetNodes"]}
    assert "/sinks/odd" in nodes["broken/odd"]["description"]
    assert "export_busy" in nodes["busy/logs"]["jobNames"]
    assert {f"{sink}/{MESSAGES}" for sink in ("ticking", "filled", "pinned")} <= nodes.keys()


def test_a_backfill_that_names_a_cache_asset(dagster):
    backfill = dagster.backfill("cache", MESSAGES, days=FIVE[:1])
    ended = dagster.backfill_ended(backfill)
    print(ended)
    assert 0
