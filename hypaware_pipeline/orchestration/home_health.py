"""Whether Dagster can do its part: its home, the settings in it that matter, the daemon, and the schedules.

Why settings are judged by what they do and not against the packaged file: a home is somebody's, and may run other things too.

Why a daemon that is not running is a warning: `export` does without, and so does a cron job.

Why heartbeats are judged here: Dagster itself calls a daemon healthy for half an hour after its last one.
"""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import dagster as dg
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, TickStatus

from hypaware_pipeline.config import SinkConfig
from hypaware_pipeline.errors import BadRequest, RunStorageFailed, StateUnusable
from hypaware_pipeline.export.findings import Finding, Level, ago, ok, problem, warning
from hypaware_pipeline.export.installation import Clock
from hypaware_pipeline.orchestration.instance import opened_instance
from hypaware_pipeline.orchestration.naming import Names
from hypaware_pipeline.state import PACKAGE_DIR, checkout_root, dagster_home

HEARTBEAT_LASTS = dt.timedelta(minutes=5)
"""A daemon gives one every 30 s; a machine that is busy, or slept, may be late by a few."""

_BACKFILL_TAG = "dagster/backfill"
_PACKAGED = PACKAGE_DIR / "data" / "dagster.yaml"


def home_findings(env: Mapping[str, str], sinks: Sequence[SinkConfig], *, clock: Clock) -> Iterator[Finding]:
    """Dagster's home and all that is known from it about the schedules of some sinks."""
    where = "Dagster's home"
    try:
        home = dagster_home(env, checkout_root())
        with opened_instance(home) as instance:
            yield ok(where, str(home))
            yield from _settings(instance, home)
            scheduled = [sink for sink in sinks if sink.cron]
            yield _daemon(instance, scheduled, clock())
            yield from _schedules(instance, scheduled, clock())
            yield from _sensors(instance, sinks, clock())
    except (BadRequest, StateUnusable, RunStorageFailed) as error:
        yield problem(where, str(error))


def _settings(instance: dg.DagsterInstance, home: Path) -> Iterator[Finding]:
    where = "dagster.yaml"
    concurrency = instance.get_concurrency_config()
    pools, queue = concurrency.pool_config, concurrency.run_queue_config
    limits = queue.tag_concurrency_limits or () if queue else ()
    monitoring = instance.run_monitoring_settings
    checked = {
        "concurrency.pools: granularity must be run, default_limit 2 or more, or a backfill of a sink holds up its schedule": (
            pools.pool_granularity is not None and pools.pool_granularity.value == "run" and (pools.default_pool_limit or 0) >= 2
        ),
        f"concurrency.runs.tag_concurrency_limits: {_BACKFILL_TAG} must have limit 1, or backfills take every slot of a sink": (
            any(limit.get("key") == _BACKFILL_TAG and limit.get("limit") == 1 for limit in limits)
        ),
        "run_monitoring: enabled must be true and free_slots_after_run_end_seconds set, or a run that died holds its slot": (
            instance.run_monitoring_enabled and bool(monitoring.get("free_slots_after_run_end_seconds"))
        ),
    }
    wrong = [what for what, right in checked.items() if not right]
    for what in wrong:
        yield warning(where, f"{home / 'dagster.yaml'}: {what}; {_PACKAGED} has it")
    if not wrong:
        yield ok(where, "slots, backfills and run monitoring are set as they should be")


def _daemon(instance: dg.DagsterInstance, scheduled: Sequence[SinkConfig], now: dt.datetime) -> Finding:
    where, start = "daemon", "`hypaware-pipeline dev` runs it"
    heartbeats = instance.get_daemon_heartbeats()
    beats = {kind: dt.datetime.fromtimestamp(beat.timestamp, dt.UTC) for kind, beat in heartbeats.items()}
    alive = {kind for kind, beat in beats.items() if now - beat < HEARTBEAT_LASTS}
    if alive and (missing := sorted(set(instance.get_required_daemon_types()) - alive)):
        return warning(where, f"{', '.join(missing)} of Dagster's daemon gave no sign lately; restart it: {start}")
    if alive:
        return ok(where, "runs")
    last = f"its last sign was {ago(max(beats.values()), now)}" if beats else "it never ran on this home"
    if not scheduled:
        return ok(where, f"does not run ({last}), and no sink has a schedule that wants it")
    names = ", ".join(sink.name for sink in scheduled)
    return warning(where, f"does not run ({last}), so nothing is exported on schedule ({names}); {start}")


def _schedules(instance: dg.DagsterInstance, scheduled: Sequence[SinkConfig], now: dt.datetime) -> Iterator[Finding]:
    states = _states(instance, InstigatorType.SCHEDULE)
    for sink in scheduled:
        name = Names().schedule(sink.slug)
        yield _instigator(instance, f"schedule of {sink.name}", name, states.get(name), now)


def _sensors(instance: dg.DagsterInstance, sinks: Sequence[SinkConfig], now: dt.datetime) -> Iterator[Finding]:
    """Nobody sets up a requeue sensor, so that only one with which something is wrong is worth a line."""
    states = _states(instance, InstigatorType.SENSOR)
    for sink in sinks:
        name = Names().requeue_sensor(sink.slug)
        found = _instigator(instance, f"requeue sensor of {sink.name}", name, states.get(name), now)
        if found.level is not Level.OK:
            yield found


def _states(instance: dg.DagsterInstance, kind: InstigatorType) -> dict[str, InstigatorState]:
    return {state.instigator_name: state for state in instance.all_instigator_state(instigator_type=kind)}


def _instigator(instance: dg.DagsterInstance, where: str, name: str, state: InstigatorState | None, now: dt.datetime) -> Finding:
    if state is None:
        return ok(where, "had no tick yet")
    if state.status is InstigatorStatus.STOPPED:
        return warning(where, f"was stopped by somebody; start {name} in the UI")
    ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
    if not ticks:
        return ok(where, "had no tick yet")
    last = ago(dt.datetime.fromtimestamp(ticks[0].timestamp, dt.UTC), now)
    if ticks[0].status is TickStatus.FAILURE:
        said = " ".join(str(ticks[0].error.message if ticks[0].error else "").split())
        return warning(where, f"its last tick, {last}, failed: {said}; look at the ticks of {name} in the UI")
    return ok(where, f"its last tick was {last}")
