"""Under the real daemon and web server: ticks, backfills, days that fail and come back, what the UI is told.

All tests share one Dagster; each has a sink of its own, and they may run in any order. Backfills are launched before the first of
them, because the daemon looks at backfills every half minute only, and what has to wait for a back-off begins to wait then.
"""

import datetime as dt
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import dagster as dg
import pytest

from hypaware_pipeline.model import DatasetName, Day, SinkName
from tests.builders import a_cache
from tests.daemon import ADagster
from tests.installations import JSONL, AnInstallation
from tests.packages import Packages
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

FIVE = ["2026-06-01", "2026-06-02", "2026-06-03", "2026-06-04", "2026-06-05"]
BAD = "2026-06-03"
MANY = [(dt.date(2026, 2, 1) + dt.timedelta(days=number)).isoformat() for number in range(200)]
MESSAGES, LOGS = "ai_gateway_messages", "logs"


def a_sink(name, *datasets, **config):
    return {**JSONL, "config": {"dir": f"out/{name}", "datasets": list(datasets), **config}}


MOODY = '''
"""A store that does what a person writes beside its objects: `.away` and `.hang` name days."""

import time

from hypaware_pipeline.errors import SinkRetryable
from hypaware_pipeline.plugins.bundled import LocalFsOptions
from hypaware_pipeline.plugins.manifest import Plugin, Provided
from hypaware_pipeline.sinks.stores.local_fs import LocalFsStore


class MoodyStore(LocalFsStore):
    def __init__(self, root):
        super().__init__(root)
        self.root = root

    def named(self, what, key):
        path = self.root / what
        return path.exists() and any(day in key for day in path.read_text().split())

    def put(self, key, write, **how):
        if self.named(".away", key):
            raise SinkRetryable(f"\'{key}\': the destination is away")
        while self.named(".hang", key):
            (self.root / ".hung").touch()
            time.sleep(0.1)
        return super().put(key, write, **how)


PLUGIN = Plugin("@acme/moody", "1.0.0", store=Provided(LocalFsOptions, "acme_moody:MoodyStore"))
'''


def a_moody_sink(name):
    return {**a_sink(name, MESSAGES), "destination": "@acme/moody"}


SINKS = {
    "ticking": a_sink("ticking", MESSAGES, schedule="* * * * *"),
    "filled": a_sink("filled", MESSAGES),
    "busy": a_sink("busy", LOGS, "spare", schedule="* * * * *", start="earliest"),
    "pinned": a_sink("pinned", MESSAGES),
    **{name: a_moody_sink(name) for name in ("flaky", "hanging", "dead")},
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
    packages = Packages(place / "packages")
    packages.root.mkdir()
    packages.install("acme_moody", MOODY, moody="acme_moody:PLUGIN")
    with ADagster(place, installation.installation.config.path, packages=packages.root) as running:
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


@pytest.fixture(scope="module")
def of_a_flaky_destination(dagster, installation):
    """A run of five days, two of which the destination does not take."""
    tell(installation, "flaky", ".away", FIVE[1], FIVE[3])
    return dagster.launch("export_flaky", "flaky", MESSAGES, day=FIVE[0], last=FIVE[-1])


@pytest.fixture(scope="module")
def of_a_cancelled_run(dagster, installation):
    """The run that the sensor asked for, and that was cancelled while the destination hung."""
    tell(installation, "hanging", ".hang", FIVE[0])
    with installation.installation.open_ledger() as ledger:
        ledger.retries.give_back(SinkName("hanging"), DatasetName(MESSAGES), Day(FIVE[0]), "it was away")
        ledger.retries.resume(SinkName("hanging"))

    def launch_and_cancel():
        wait_for("the destination to hang", (installation.out("hanging") / ".hung").exists)
        run = requeued(dagster, "hanging")[0]
        dagster.terminate(run.run_id)
        return dagster.run_ended(run.run_id)

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(launch_and_cancel)


@pytest.fixture(scope="module")
def of_a_dead_destination(dagster, installation):
    """A day that failed as often as it is tried, but once."""
    tell(installation, "dead", ".away", *FIVE)
    with installation.installation.open_ledger() as ledger:
        ledger.retries.give_back(SinkName("dead"), DatasetName(MESSAGES), Day(FIVE[0]), "it was away")
        with ledger.retries._in.writing() as connection:  # the hours that passed
            late = "attempt = 7, due_at = '2026-01-01T00:00:00.000Z'"
            connection.exec_driver_sql(f"UPDATE retries SET {late} WHERE sink = 'dead'")


@pytest.fixture(scope="module", autouse=True)
def launched(of_five_days, of_the_cache, of_200_days, of_a_flaky_destination, of_a_cancelled_run, of_a_dead_destination):
    """Everything that takes its time."""


def tell(installation, sink, what, *days):
    """Tell a moody store what to do from now on."""
    path = installation.out(sink) / what
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(" ".join(days))


def requeued(dagster, sink):
    """Runs that the sensor of a sink asked for, the newest first."""
    return dagster.runs(**{"hypaware/sink": sink, "hypaware/requeued": "true"})


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


def test_days_that_a_destination_did_not_take_come_back_and_no_others_until_it_takes_them(
    dagster, installation, of_a_flaky_destination
):
    assert dagster.run_ended(of_a_flaky_destination).status is dg.DagsterRunStatus.FAILURE
    bad = [FIVE[1], FIVE[3]]
    ended = ("FAILURE", "SUCCESS")
    wait_for("both of them in vain", lambda: len([run for run in requeued(dagster, "flaky") if run.status.value in ended]) >= 2)
    assert {run.tags["hypaware/days"] for run in requeued(dagster, "flaky")} == set(bad)
    assert statuses(dagster, "flaky", MESSAGES, days=FIVE) == ["FAILED" if day in bad else "MATERIALIZED" for day in FIVE]
    with installation.installation.open_ledger() as ledger:
        waiting = ledger.retries.queue(SinkName("flaky"))
        assert {day: entry.attempt >= 1 for (_, day), entry in waiting.items()} == dict.fromkeys(bad, True)
        assert all("the destination is away" in entry.reason for entry in waiting.values())
        tell(installation, "flaky", ".away")
        ledger.retries.resume(SinkName("flaky"))
        wait_for("an empty queue", lambda: not ledger.retries.queue(SinkName("flaky")))

    def green():
        return set(statuses(dagster, "flaky", MESSAGES, days=FIVE)) == {"MATERIALIZED"}

    wait_for("five green days", green)
    assert sum(installation.rows("flaky", MESSAGES).values()) == 15


def test_a_requeued_run_that_was_cancelled_is_asked_for_again(dagster, installation, of_a_cancelled_run):
    """A run key would have kept it from ever being launched again; and the lease would have been in the way."""
    cancelled = of_a_cancelled_run.result()
    assert cancelled.status is dg.DagsterRunStatus.CANCELED
    tell(installation, "hanging", ".hang")
    with installation.installation.open_ledger() as ledger:
        assert ledger.failures(SinkName("hanging")) == {}, "it did not fail"
        wait_for("the day", lambda: not ledger.retries.queue(SinkName("hanging")))
    again = dagster.run_ended(requeued(dagster, "hanging")[0].run_id)
    assert (again.status, again.run_id != cancelled.run_id) == (dg.DagsterRunStatus.SUCCESS, True)


def test_with_a_destination_that_is_dead_for_good_it_stops_and_says_so(dagster, of_a_dead_destination):
    def said():
        return next((tick for tick in dagster.ticks("requeue_dead") if "given up" in (tick.tick_data.skip_reason or "")), None)

    text = wait_for("the end", said).tick_data.skip_reason
    assert text.startswith(f"dead/{MESSAGES} was given up after 8 attempts without progress: {FIVE[0]}: ")
    assert len(requeued(dagster, "dead")) == 1


@pytest.mark.parametrize("what", ["broken", "removed"])
def test_a_run_is_not_harmed_by_what_became_of_the_config_file_since(dagster, installation, what):
    """It was `Could not find job`, and for a file with a typing error every run failed."""
    path = installation.installation.config.path
    content = path.read_text()
    try:
        path.write_text("{ broken") if what == "broken" else path.unlink()
        run = dagster.launch("export_pinned", "pinned", MESSAGES, day=FIVE[0] if what == "broken" else FIVE[1])
        assert dagster.run_ended(run).status is dg.DagsterRunStatus.SUCCESS
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
