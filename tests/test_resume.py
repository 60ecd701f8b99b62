"""`pause`, `resume`, and how long an export waits for another one."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hypaware_pipeline.demo.mishaps import wipe
from hypaware_pipeline.demo.writer import CacheWriter
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.ledger import Ledger
from hypaware_pipeline.model import DatasetName, Day, SinkName
from tests.builders import CacheBuilder, a_cache, a_log
from tests.command_line import ACommandLine
from tests.installations import JSONL, write_config

FEED, LOGS = SinkName("feed"), DatasetName("logs")
SINKS = {"feed": {**JSONL, "config": {"dir": "out/feed", "schedule": "0 * * * *"}}}


@pytest.fixture
def cache(tmp_path: Path) -> CacheBuilder:
    return a_cache(tmp_path / "cache").with_day("2026-06-05", rows=4).with_day("2026-06-06", rows=1)


@pytest.fixture
def config(tmp_path: Path, cache: CacheBuilder) -> str:
    return str(write_config(tmp_path / "home", cache.root, sinks=SINKS))


@contextmanager
def ledger_of(config: str) -> Iterator[Ledger]:
    with Installation.load(Path(config), {}).open_ledger() as ledger:
        yield ledger


def status(run: ACommandLine, config: str) -> dict[str, Any]:
    (document,) = run.documents("status", "--config", config)
    return dict(document["sinks"][0])


# --- pause and resume ----------------------------------------------------------------------------------------------------------


def test_a_paused_sink_is_said_to_be_so_until_it_is_resumed(run: ACommandLine, config: str) -> None:
    code, out, _ = run("pause", "feed", "--config", config)
    assert (code, out.startswith("feed is paused: its schedule and its sensor ask for nothing")) == (0, True)
    assert status(run, config)["paused_since"] is not None
    _, out, _ = run("status", "--config", config)
    assert "so nothing is exported by itself; `hypaware-pipeline resume feed` ends that" in out
    assert run("resume", "feed", "--config", config)[:2] == (0, "feed: no longer paused\n")
    assert status(run, config)["paused_since"] is None


def test_an_export_by_hand_goes_to_a_paused_sink_all_the_same(run: ACommandLine, config: str) -> None:
    run("pause", "feed", "--config", config)
    assert run("export", "--config", config)[0] == 0
    assert status(run, config)["datasets"][0]["due_days"] == 0


def test_resume_says_what_it_ended_and_what_is_tried_again(run: ACommandLine, config: str) -> None:
    with ledger_of(config) as ledger:
        ledger.retries.halt(FEED, "the disk is read-only")
        ledger.retries.give_back(FEED, LOGS, Day("2026-06-05"), "the disk is read-only", retry_after_seconds=None)
    _, out, _ = run("resume", "feed", "--config", config)
    assert out == (
        "feed: no longer halted; 1 day to be tried again: by the daemon within a minute, or now by `hypaware-pipeline export "
        "feed`\n"
    )
    _, out, _ = run("resume", "feed", "--config", config, "--dataset", "traces")
    assert out == "feed: nothing stood in its way, and no day waited to be tried again\n"


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_sink_that_is_not_there_is_bad_input(run: ACommandLine, config: str, command: str) -> None:
    code, _, err = run(command, "food", "--config", config)
    assert (code, "no sink named food; the config has feed" in err) == (2, True)


# --- rows that vanished --------------------------------------------------------------------------------------------------------


@pytest.fixture
def rewound(run: ACommandLine, config: str, cache: CacheBuilder) -> None:
    """The cache was exported, removed, and begun anew with other rows of one of the days."""
    run("export", "--config", config)
    wipe(cache.root)
    begun_anew = CacheWriter(cache.root, clock=cache.clock, rng=random.Random(7))
    begun_anew.append("logs", "unknown", [a_log("2026-06-05", 99, serviceName="another")])
    run("export", "--config", config)


@pytest.mark.usefixtures("rewound")
def test_what_vanished_when_a_cache_was_reset_is_said_with_what_happened_and_what_to_do(run: ACommandLine, config: str) -> None:
    (logs,) = status(run, config)["datasets"]
    assert (logs["unproven_days"], logs["unproven_rows"]) == (2, 5)
    _, out, _ = run("status", "--config", config)
    assert "source 'unknown' of logs, 20" in out
    assert "5 rows of 2 days that the cache has no more stay at the sink, as is right after a reset. If they are to go, " in out
    assert "`hypaware-pipeline resume feed --accept-rewind` lets them" in out


@pytest.mark.usefixtures("rewound")
def test_nothing_is_let_go_of_unless_somebody_says_so(run: ACommandLine, config: str, tmp_path: Path) -> None:
    code, out, err = run("resume", "feed", "--accept-rewind", "--config", config)
    assert code == 1
    assert "feed/logs: 5 rows of 2 days are no longer in the cache" in out
    assert err == "nothing was changed; `--yes` accepts without asking\n"
    assert run("export", "--config", config)[0] == 0
    assert (tmp_path / "home/out/feed/logs/day=2026-06-06/unknown.jsonl.gz").exists()


@pytest.mark.usefixtures("rewound")
def test_what_somebody_accepted_leaves_the_sink_with_the_next_export(run: ACommandLine, config: str, tmp_path: Path) -> None:
    code, out, _ = run("resume", "feed", "--accept-rewind", "--yes", "--config", config)
    assert (code, "feed: 2 days will be exported without what vanished" in out) == (0, True)
    assert run("export", "--config", config)[0] == 0
    left = [path.name for path in (tmp_path / "home/out/feed/logs").glob("day=*/*.jsonl.gz")]
    assert len(left) == 1
    assert status(run, config)["datasets"][0]["unproven_rows"] == 0
    _, out, _ = run("resume", "feed", "--accept-rewind", "--config", config)
    assert out.startswith("feed: nothing vanished without proof\n")


def test_accepting_lets_nothing_go_that_no_export_said_had_vanished(
    run: ACommandLine, config: str, cache: CacheBuilder, tmp_path: Path
) -> None:
    run("export", "--config", config)
    wipe(cache.root)
    begun_anew = CacheWriter(cache.root, clock=cache.clock, rng=random.Random(7))
    begun_anew.append("logs", "unknown", [a_log("2026-06-05", 99, serviceName="another")])
    run("plan", "--config", config)
    _, out, _ = run("resume", "feed", "--accept-rewind", "--config", config)
    assert out.startswith("feed: nothing vanished without proof\n")
    run("export", "--config", config)
    assert status(run, config)["datasets"][0]["unproven_rows"] == 5
    assert (tmp_path / "home/out/feed/logs/day=2026-06-06/unknown.jsonl.gz").exists()


@pytest.mark.usefixtures("rewound")
def test_what_vanished_can_be_accepted_after_the_ledger_was_rebuilt(run: ACommandLine, config: str, tmp_path: Path) -> None:
    for path in (tmp_path / "home/hypaware-pipeline.state").glob("ledger.db*"):
        path.unlink()
    assert run("ledger", "rebuild", "--yes", "--config", config)[0] == 0
    _, out, _ = run("resume", "feed", "--accept-rewind", "--yes", "--config", config)
    assert "feed: 2 days will be exported without what vanished" in out
    assert run("export", "--config", config)[0] == 0
    assert len(list((tmp_path / "home/out/feed/logs").glob("day=*/*.jsonl.gz"))) == 1


# --- leases --------------------------------------------------------------------------------------------------------------------


def test_an_export_says_who_is_in_its_way_and_so_does_status(run: ACommandLine, config: str) -> None:
    with ledger_of(config) as ledger:
        lease = ledger.leases.take(FEED, LOGS, "run 7, process 1 on ada", 3_600)
        code, _, err = run("export", "--wait", "0", "--config", config)
        assert code == 1
        assert "feed/logs is being written by run 7, process 1 on ada, since 20" in err
        assert status(run, config)["datasets"][0]["lease"]["holder"] == "run 7, process 1 on ada"
        assert "feed/logs is being written by run 7, process 1 on ada, since" in run("status", "--config", config)[1]
        ledger.leases.give_back(lease)
    assert run("export", "--wait", "0", "--config", config)[0] == 0
    assert status(run, config)["datasets"][0]["lease"] is None


def test_what_an_export_left_that_did_not_end_is_said_until_the_next_one(run: ACommandLine, config: str) -> None:
    with ledger_of(config) as ledger:
        ledger.intents.open(FEED, LOGS, Day("2026-06-05"), "batch", ["logs/day=2026-06-05/unknown.jsonl.gz"])
    (intent,) = status(run, config)["datasets"][0]["open_intents"]
    assert (intent["day"], intent["objects"]) == ("2026-06-05", ["logs/day=2026-06-05/unknown.jsonl.gz"])
    said = "feed/logs: what an export began to write of 2026-06-05 is not recorded; the next one puts that in order"
    assert said in run("status", "--config", config)[1]
    run("export", "--config", config)
    assert status(run, config)["datasets"][0]["open_intents"] == []
