"""Who asks for the days that failed: a sink's requeue sensor, each in its time, and its schedule for what was given up."""

import datetime as dt

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from hypaware_pipeline.export.blueprint import Blueprint
from hypaware_pipeline.export.survey import survey
from hypaware_pipeline.ledger.retries import ATTEMPTS, CLAIM_SECONDS, LONGEST_BACK_OFF_SECONDS
from hypaware_pipeline.model import UNDATED, DatasetName, Day, SinkName
from hypaware_pipeline.orchestration import requeue
from hypaware_pipeline.orchestration.build import definitions_of
from hypaware_pipeline.orchestration.runner import Request, run_requests
from tests.installations import JSONL, AnInstallation

FEED, MESSAGES, LOGS = SinkName("feed"), DatasetName("ai_gateway_messages"), DatasetName("logs")
SINKS = {"feed": {**JSONL, "config": {"dir": "out/feed", "schedule": "*/5 * * * *"}}}
START, END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
FIVE = [f"2026-06-0{number}" for number in range(1, 6)]


@pytest.fixture
def installation(home, cache):
    for day in FIVE:
        cache.with_day(day).with_day(day, dataset=MESSAGES, source="claude")
    return AnInstallation(home, cache.root, sinks=SINKS)


def ledger_of(installation):
    return installation.installation.open_ledger()


def give_back(installation, *days, dataset=LOGS, reason="the disk is away"):
    with ledger_of(installation) as ledger:
        for day in days:
            ledger.retries.give_back(FEED, dataset, Day(day), reason)


def give_up(installation, *days, dataset=LOGS):
    """The days fail until nobody asks for them any more; the first of them failed last."""
    give_back(installation, *days, dataset=dataset)
    for _ in range(ATTEMPTS):
        later(installation)
        with ledger_of(installation) as ledger:
            ledger.retries.request([each for each in ledger.retries.due(FEED) if each.day in days])
        for day in reversed(days):
            installation.now += dt.timedelta(seconds=1)
            give_back(installation, day, dataset=dataset, reason="dead for good")
    later(installation)


def later(installation, seconds=LONGEST_BACK_OFF_SECONDS):
    installation.now += dt.timedelta(seconds=seconds)


def sensor(installation, instance, name="requeue_feed"):
    defs = definitions_of(Blueprint.draw(installation.installation))
    with dg.build_sensor_context(instance=instance) as context:
        return defs.resolve_sensor_def(name).evaluate_tick(context)


def schedule(installation, instance):
    defs = definitions_of(Blueprint.draw(installation.installation))
    with dg.build_schedule_context(instance=instance, scheduled_execution_time=installation.now) as context:
        return defs.resolve_schedule_def("export_feed_schedule").evaluate_tick(context)


def asked(evaluation):
    """First day, last day and datasets of each run that is asked for, in order."""
    return [
        (each.tags[START], each.tags[END], sorted(key.path[-1] for key in each.asset_selection))
        for each in evaluation.run_requests or []
    ]


def a_run(instance, first, last, status=dg.DagsterRunStatus.STARTED):
    tags = {START: first, END: last}
    create_run_for_test(instance, status=status, asset_selection=frozenset([dg.AssetKey(["feed", "logs"])]), tags=tags)


# --- the sensor ----------------------------------------------------------------------------------------------------------------


def test_every_sink_has_a_sensor_that_runs_by_itself(installation):
    found = definitions_of(Blueprint.draw(installation.installation)).resolve_sensor_def("requeue_feed")
    assert found.default_status is dg.DefaultSensorStatus.RUNNING
    assert found.job_name == "export_feed"


def test_it_asks_for_exactly_the_days_that_failed_the_newest_first_in_their_time(installation, instance):
    give_back(installation, FIVE[0], FIVE[1], FIVE[3])
    give_back(installation, FIVE[3], dataset=MESSAGES)
    later(installation, seconds=30)
    assert asked(sensor(installation, instance)) == [
        (FIVE[3], FIVE[3], [MESSAGES, LOGS]),
        (FIVE[0], FIVE[1], [LOGS]),
    ]


def test_it_asks_for_nothing_before_its_time_and_says_what_waits(installation, instance):
    assert sensor(installation, instance).skip_message == "no day waits to be tried again"
    with ledger_of(installation) as ledger:
        ledger.retries.give_back(FEED, LOGS, Day(FIVE[0]), "busy", retry_after_seconds=600)
    assert sensor(installation, instance).skip_message == "1 day to be tried again, the next at 2026-06-10T12:10:00.000Z"
    later(installation, seconds=600)
    assert asked(sensor(installation, instance)) == [(FIVE[0], FIVE[0], [LOGS])]


def test_its_requests_carry_no_run_key_no_checks_and_a_tag_that_tells_them(installation, instance):
    give_back(installation, FIVE[0])
    later(installation)
    (request,) = sensor(installation, instance).run_requests
    assert (request.run_key, request.asset_check_keys) == (None, [])
    assert request.tags["hypaware/requeued"] == "true"
    assert (request.tags["hypaware/sink"], request.tags["hypaware/days"]) == ("feed", FIVE[0])


def test_a_day_that_was_asked_for_is_not_asked_again_until_its_run_ended_without_an_answer(installation, instance):
    """A sensor's run key would have kept a cancelled run from ever being asked for again."""
    give_back(installation, FIVE[0])
    later(installation)
    assert asked(sensor(installation, instance))
    assert not asked(sensor(installation, instance)), "claimed"
    a_run(instance, FIVE[0], FIVE[0], dg.DagsterRunStatus.STARTED)
    later(installation, seconds=CLAIM_SECONDS)
    assert not asked(sensor(installation, instance)), "on its way"
    instance.wipe()
    a_run(instance, FIVE[0], FIVE[0], dg.DagsterRunStatus.CANCELED)
    assert asked(sensor(installation, instance)) == [(FIVE[0], FIVE[0], [LOGS])]
    with ledger_of(installation) as ledger:
        assert [entry.attempt for entry in ledger.retries.queue(FEED).values()] == [2]


def test_days_that_a_run_in_progress_covers_are_not_asked_for_and_keep_their_turn(installation, instance):
    give_back(installation, *FIVE)
    later(installation)
    a_run(instance, FIVE[2], FIVE[4])
    assert asked(sensor(installation, instance)) == [(FIVE[0], FIVE[1], [LOGS])]
    with ledger_of(installation) as ledger:
        assert sorted(entry.attempt for entry in ledger.retries.queue(FEED).values()) == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("days", "runs", "first", "then"),
    [
        (4, 1, [(FIVE[3], FIVE[4], [LOGS])], [(FIVE[0], FIVE[1], [LOGS])]),
        (3, 2, [(FIVE[3], FIVE[4], [LOGS]), (FIVE[1], FIVE[1], [LOGS])], [(FIVE[0], FIVE[0], [LOGS])]),
    ],
)
def test_an_evaluation_is_bounded_in_days_and_in_runs_and_the_next_goes_on(
    installation, instance, monkeypatch, days, runs, first, then
):
    monkeypatch.setattr(requeue, "DAYS_PER_EVALUATION", days)
    monkeypatch.setattr(requeue, "RUNS_PER_EVALUATION", runs)
    give_back(installation, FIVE[0], FIVE[1], FIVE[3], FIVE[4])
    later(installation)
    assert [asked(sensor(installation, instance)) for _ in range(3)] == [first, then, []]


def test_undated_rows_are_asked_for_with_the_first_partition(installation, instance):
    give_back(installation, UNDATED)
    later(installation)
    assert asked(sensor(installation, instance)) == [(FIVE[0], FIVE[0], [LOGS])]


def test_days_without_an_asset_or_a_partition_are_left_alone(installation, instance):
    give_back(installation, "2026-05-01")
    give_back(installation, FIVE[0], dataset=DatasetName("gone"))
    later(installation)
    assert not asked(sensor(installation, instance))
    with ledger_of(installation) as ledger:
        assert {entry.attempt for entry in ledger.retries.queue(FEED).values()} == {0}


def test_what_was_given_up_is_asked_for_no_more_and_said(installation, instance):
    give_up(installation, FIVE[1], FIVE[0])
    evaluation = sensor(installation, instance)
    assert not asked(evaluation)
    assert evaluation.skip_message == (
        f"feed/logs was given up after {ATTEMPTS} attempts without progress: 2 days, last {FIVE[1]}: dead for good; mend the "
        "cause. Every scheduled tick tries one of its days, and `hypaware-pipeline resume feed` has all of them tried at once"
    )


@pytest.mark.parametrize("how", ["halt", "pause"])
def test_a_halted_or_paused_sink_is_not_asked_for_until_it_is_resumed(installation, instance, how):
    give_back(installation, FIVE[0])
    later(installation)
    with ledger_of(installation) as ledger:
        ledger.retries.halt(FEED, "the bucket is gone") if how == "halt" else ledger.retries.pause(FEED)
    evaluation = sensor(installation, instance)
    assert not asked(evaluation)
    assert ("the bucket is gone" if how == "halt" else "`hypaware-pipeline resume feed` ends that") in evaluation.skip_message
    with ledger_of(installation) as ledger:
        ledger.retries.resume(FEED)
    assert asked(sensor(installation, instance))


# --- the schedule --------------------------------------------------------------------------------------------------------------


def test_a_tick_leaves_what_waits_to_the_sensor_and_asks_for_the_rest(installation, instance):
    installation.export(dataset=MESSAGES)
    give_back(installation, FIVE[1], FIVE[2])
    evaluation = schedule(installation, instance)
    assert asked(evaluation) == [(FIVE[3], FIVE[4], [LOGS]), (FIVE[0], FIVE[0], [LOGS])]
    installation.export([FIVE[0], *FIVE[3:]])
    assert "2 days that failed are tried again in their time" in schedule(installation, instance).skip_message


def test_a_tick_tries_one_of_the_days_that_were_given_up_the_one_that_waited_longest(installation, instance):
    """A newest day that can never be exported would have been the only one that is tried."""
    installation.export(dataset=MESSAGES)
    installation.export([FIVE[0], FIVE[4]])
    give_up(installation, FIVE[3], FIVE[2], FIVE[1])
    assert asked(schedule(installation, instance)) == [(FIVE[1], FIVE[1], [LOGS])]
    later(installation, seconds=1)
    give_back(installation, FIVE[1], reason="dead for good")
    assert asked(schedule(installation, instance)) == [(FIVE[2], FIVE[2], [LOGS])]


def test_one_day_that_gets_through_brings_back_all_that_were_given_up(installation, instance):
    installation.export(dataset=MESSAGES)
    installation.export([FIVE[0], FIVE[4]])
    give_up(installation, FIVE[3], FIVE[2], FIVE[1])
    installation.export([FIVE[1]])
    assert asked(sensor(installation, instance)) == [(FIVE[2], FIVE[3], [LOGS])]


def test_a_tick_tries_one_day_of_a_halted_sink_and_says_why(installation, instance):
    give_back(installation, *FIVE)
    with ledger_of(installation) as ledger:
        ledger.retries.halt(FEED, "the bucket is gone")
    evaluation = schedule(installation, instance)
    assert asked(evaluation) == [(FIVE[4], FIVE[4], [MESSAGES])], "which did not fail yet"
    installation.export([FIVE[4]], dataset=MESSAGES)
    assert len(asked(schedule(installation, instance))) == 1, "it took something: the rest of that dataset is due"
    assert asked(schedule(installation, instance))[0][:2] == (FIVE[0], FIVE[3])


def test_a_paused_sink_has_ticks_that_do_nothing_and_run_no_command(installation, instance):
    with ledger_of(installation) as ledger:
        ledger.retries.pause(FEED)
    said = schedule(installation, instance).skip_message
    assert said == "the sink is paused since 2026-06-10T12:00:00.000Z; `hypaware-pipeline resume feed` ends that"


# --- what a run leaves behind --------------------------------------------------------------------------------------------------


def run(installation, instance, *days, dataset=LOGS):
    request = Request(FEED, dataset, [Day(day) for day in days])
    outcomes = []
    list(run_requests(installation.installation, [request], instance=instance, observer=outcomes.append))
    return [outcome.status for outcome in outcomes]


def waiting(installation):
    with ledger_of(installation) as ledger:
        return sorted((entry.dataset, entry.day, entry.attempt) for entry in ledger.retries.queue(FEED).values())


def in_the_way(installation, day):
    """A day that cannot be written."""
    obstacle = installation.out() / LOGS / f"day={day}"
    obstacle.parent.mkdir(parents=True, exist_ok=True)
    obstacle.write_text("a file where a directory is needed")
    return obstacle


def test_days_that_fail_in_a_run_are_queued_and_leave_the_queue_when_they_succeed(installation, instance):
    run(installation, instance, FIVE[0])
    obstacle = in_the_way(installation, FIVE[1])
    assert run(installation, instance, *FIVE[:3]) == ["exported", "failed", "exported"]
    assert waiting(installation) == [(LOGS, FIVE[1], 0)]
    with ledger_of(installation) as ledger:
        assert ledger.retries.queue(FEED)[LOGS, FIVE[1]].given_up, "trying again mends nothing"
        assert ledger.retries.halted() == {}, "one day that halts does not stand for the sink"
    obstacle.unlink()
    assert run(installation, instance, FIVE[1]) == ["exported"]
    assert waiting(installation) == []


def test_a_day_whose_source_cannot_be_read_is_not_queued(installation, instance, cache):
    cache.with_day(FIVE[0], source="b")
    (cache.source_directory("logs", "b") / "cursor.json").write_text("{")
    assert set(run(installation, instance, FIVE[0])) == {"partial"}
    assert waiting(installation) == []


def test_days_that_failed_when_they_were_exported_once_more_are_due_to_whoever_asks_and_to_the_schedule_in_their_time(
    installation, instance
):
    """`export` said that nothing was due, after a failure that said the day would be tried by it."""
    run(installation, instance, FIVE[0])
    for day in (FIVE[0], "2026-06-06"):
        give_back(installation, day)
    whole = installation.installation
    with ledger_of(installation) as ledger:
        for patient, found in ((False, {FIVE[0], "2026-06-06", *FIVE[1:]}), (True, set(FIVE[1:]))):
            plans = survey(whole, ledger, sinks=whole.config.sinks.values(), datasets=[LOGS], patient=patient)
            assert {entry.day for plan in plans for entry in plan.days if entry.due} == found


def test_a_day_that_left_the_cache_leaves_the_queue(installation, instance):
    give_back(installation, "2026-06-06")
    assert run(installation, instance, "2026-06-06") == ["exported"]
    assert waiting(installation) == []


def test_a_sink_that_halts_on_all_it_tries_is_halted_until_it_takes_something(installation, instance):
    run(installation, instance, FIVE[0])
    obstacles = [in_the_way(installation, day) for day in FIVE[1:4]]
    assert run(installation, instance, *FIVE[1:]) == ["failed"] * 4
    with ledger_of(installation) as ledger:
        (hold,) = ledger.retries.halted().values()
    assert f"day={FIVE[2]}" in hold.reason
    assert [day for _, day, _ in waiting(installation)] == FIVE[1:], "all of them come back when it is mended"
    with ledger_of(installation) as ledger:
        assert ledger.retries.queue(FEED)[LOGS, FIVE[4]].reason == f"not tried, because the sink halted: {hold.reason}"
    for obstacle in obstacles:
        obstacle.unlink()
    run(installation, instance, FIVE[4])
    with ledger_of(installation) as ledger:
        assert ledger.retries.halted() == {}
        assert [(entry.day, entry.given_up) for entry in ledger.retries.queue(FEED).values()] == [
            (day, False) for day in FIVE[3:0:-1]
        ]


def test_a_sink_that_cannot_be_built_is_halted_with_its_reason(home, cache, instance):
    for day in FIVE[:2]:
        cache.with_day(day)
    sinks = {"feed": {**JSONL, "config": {"dir": "${ENV:NOWHERE_TO_BE_FOUND}"}}}
    installation = AnInstallation(home, cache.root, sinks=sinks)
    run(installation, instance, *FIVE[:2])
    with ledger_of(installation) as ledger:
        assert "NOWHERE_TO_BE_FOUND" in ledger.retries.halted()[FEED].reason
    assert [day for _, day, _ in waiting(installation)][:2] == FIVE[:2]
