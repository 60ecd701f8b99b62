"""What is asked to end ends between two batches: the lease is returned, what was done is recorded, the rest is due as before."""

import datetime as dt
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hypaware_pipeline.demo.bulk import log_table
from hypaware_pipeline.ledger import Ledger
from hypaware_pipeline.model import SinkName
from hypaware_pipeline.orchestration.interrupts import closed_by_signals
from tests.builders import CacheBuilder, a_cache
from tests.daemon import ROOT
from tests.installations import JSONL, AnInstallation
from tests.waiting import wait_for

SMALL, BIG = "2026-06-01", "2026-06-02"
ROWS = 200_000
"""They take several seconds, of which a test waits for the first."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> CacheBuilder:
    cache = a_cache(tmp_path_factory.mktemp("big") / "cache")
    cache.with_day(SMALL).with_rows("logs", log_table(ROWS, seed=1, day=dt.date.fromisoformat(BIG)))
    return cache.with_rows("other", [{"timestamp": dt.datetime(2026, 6, 1, tzinfo=dt.UTC), "n": 1}])


@pytest.fixture
def installation(cache: CacheBuilder, home: Path) -> AnInstallation:
    return AnInstallation(home, cache.root, sinks={"feed": {**JSONL, "config": {"dir": "out/feed"}}})


@contextmanager
def exporting(installation: AnInstallation) -> Iterator["subprocess.Popen[str]"]:
    """An export on the command line that writes the big day."""
    home = installation.home
    env = {**os.environ, "HOME": str(home), "DAGSTER_HOME": str(home / "dagster"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "hypaware_pipeline.cli", "export", "--config", str(installation.installation.config.path)]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for("the big day", lambda: list(installation.out().glob(f"logs/day={BIG}/.tmp-*")), every=0.05)
            yield process
        finally:
            process.kill()


def ledger_of(installation: AnInstallation) -> Ledger:
    return installation.installation.open_ledger()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_export_in_the_middle_of_a_day_and_begins_no_other(
    installation: AnInstallation, number: signal.Signals
) -> None:
    """By default the lease stayed taken, the small day was not shown as exported, and the next dataset went on."""
    with exporting(installation) as process:
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"feed/logs {BIG}: the export was ended before this day was done; nothing of it is recorded" in err
    assert "the export was ended by a signal; what is not exported is due as before" in err
    assert [path.name for path in installation.out().glob("logs/day=*/*.jsonl.gz")] == ["unknown.jsonl.gz"]
    assert not list(installation.out().glob("other/day=*"))
    assert not list(installation.out().rglob(".tmp-*")), "nothing half-written is left"
    with ledger_of(installation) as ledger:
        assert ledger.leases.held() == []
        assert [day for _, day in ledger.fingerprints(SinkName("feed"))] == [SMALL]
        assert (ledger.failures(SinkName("feed")), ledger.retries.queue(SinkName("feed"))) == ({}, {}), "it did not fail"
    assert installation.due() == [BIG]


def test_while_a_block_runs_a_signal_closes_it_and_does_what_it_did_before_afterwards() -> None:
    closed: list[str] = []
    with pytest.raises(KeyboardInterrupt), closed_by_signals(lambda: closed.append("closed")) as came:  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        assert came.is_set()
        closed.append("went on")
    assert closed == ["closed", "went on"]


def test_what_does_not_come_to_its_end_is_broken_off_after_a_while() -> None:
    """A store that hangs."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), closed_by_signals(lambda: None, grace_seconds=0.1):  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        threading.Event().wait(60)
        raise AssertionError("it hung for a minute")
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_in_another_thread_nothing_changes() -> None:
    def handlers() -> list[Any]:
        with closed_by_signals(lambda: None):
            return [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]

    before = [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(handlers).result(60) == before


def test_a_second_signal_is_heeded_at_once() -> None:
    reached: list[Any] = []
    with pytest.raises(KeyboardInterrupt), closed_by_signals(lambda: None):  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        reached.append("never")
    assert reached == []
