"""Exports in processes of their own, which kill or stop themselves after a number of steps that is said beforehand.

Why a number: which steps an export takes depends on what there is to do. A first run, of a copy, tells them all.

Why processes come from one that has everything loaded: imports take seconds, the export of a small day a tenth of one. They are
real processes all the same, and die of real signals.
"""

import datetime as dt
import multiprocessing as mp
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from signal import SIGKILL, Signals
from typing import Self

import psutil

from hypaware_pipeline.export.driver import Exporter
from hypaware_pipeline.export.installation import Installation, build_sink
from hypaware_pipeline.export.leases import LeaseTerms
from hypaware_pipeline.export.steps import Step
from hypaware_pipeline.model import DatasetName, Day, SinkName
from hypaware_pipeline.sinks.stores import local_fs
from tests.installations import AnInstallation
from tests.waiting import wait_for

PROCESSES = mp.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "tests.faults",
        "hypaware_pipeline.cache.reader",
        "hypaware_pipeline.cache.scan",
        "hypaware_pipeline.cli.export",
        "hypaware_pipeline.orchestration.instance",
        "hypaware_pipeline.orchestration.runner",
        "hypaware_pipeline.sinks.encoders.jsonl",
        "hypaware_pipeline.sinks.encoders.parquet",
        "sqlalchemy.dialects.postgresql",
        "sqlalchemy.dialects.sqlite",
    ]
)

LEASE_SECONDS = 45.0


@dataclass(frozen=True, slots=True)
class Fault:
    """What a process does to itself when it has taken so many steps."""

    after: int
    signal: Signals = SIGKILL


@dataclass(frozen=True, slots=True)
class _Task:
    config: Path
    env: Mapping[str, str]
    clock: Path
    sink: str
    dataset: str
    days: Sequence[str]
    fault: Fault | None
    terms: LeaseTerms
    lock_wait_seconds: float


class AnExport:
    """A process that exports days of a dataset; a context manager that leaves none behind.

    `clock` is a file that tells it the time, so that it agrees with others however long it was stopped.

    Attributes:
        steps: Those it told, as far as it is known by now.
        answers: By day, what became of it and what was wrong; of days that were answered by now.
    """

    def __init__(
        self,
        installation: AnInstallation,
        days: Sequence[str],
        *,
        clock: Path,
        sink: str = "feed",
        dataset: str = "logs",
        fault: Fault | None = None,
        wait_seconds: float = 0.0,
        lease_seconds: float = LEASE_SECONDS,
        lock_wait_seconds: float = local_fs.LOCK_WAIT_SECONDS,
    ) -> None:
        self.steps: list[Step] = []
        self.answers: dict[str, tuple[str, str | None]] = {}
        config = installation.installation.config.path
        terms = LeaseTerms("a process", wait_seconds, lease_seconds)
        task = _Task(config, installation.env, clock, sink, dataset, days, fault, terms, lock_wait_seconds)
        self._said, says = PROCESSES.Pipe(duplex=False)
        self._process = PROCESSES.Process(target=_export, args=(task, says))
        self._process.start()
        says.close()

    def __enter__(self) -> Self:
        """It runs already."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it if it runs still."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self._said.close()

    def ended(self) -> Self:
        """Wait for its end, of whichever kind."""
        self._listen()
        self._process.join()
        return self

    def stopped(self) -> Self:
        """Wait until it has stopped itself."""
        wait_for("a process that stops itself", self._stands_still, every=0.005)
        return self

    def waiting_for(self, lock: Path) -> Self:
        """Wait until it has opened the file of a lock, which another process has."""
        process = psutil.Process(self._process.pid)
        wait_for(f"a process at {lock}", lambda: str(lock) in [file.path for file in process.open_files()], every=0.01)
        return self

    def send(self, number: Signals) -> None:
        """Send it a signal."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    @property
    def killed(self) -> bool:
        """Whether it ended by SIGKILL."""
        return self._process.exitcode == -SIGKILL

    def _stands_still(self) -> bool:
        assert self._process.is_alive(), self._process.exitcode
        while self._said.poll():
            self._hear()
        return bool(psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED)

    def _listen(self) -> None:
        try:
            while True:
                self._hear()
        except EOFError:
            pass

    def _hear(self) -> None:
        said = self._said.recv()
        if isinstance(said, Step):
            self.steps.append(said)
        else:
            day, *answer = said
            self.answers[day] = tuple(answer)


def _export(task: _Task, says: Connection) -> None:
    steps = 0

    def reached(step: Step) -> None:
        nonlocal steps
        steps += 1
        says.send(step)
        if task.fault is not None and task.fault.after == steps:
            os.kill(os.getpid(), task.fault.signal)

    local_fs.LOCK_WAIT_SECONDS = task.lock_wait_seconds
    installation = Installation.load(task.config, task.env, clock=lambda: dt.datetime.fromisoformat(task.clock.read_text()))
    sink = build_sink(installation.config.sinks[SinkName(task.sink)], task.env)
    with installation.open_ledger() as ledger:
        exporter = Exporter(sink, ledger, installation.clock, task.terms, reached)
        slice_of = installation.slice(DatasetName(task.dataset), [Day(day) for day in task.days])
        for outcome in exporter.export(slice_of):
            says.send((outcome.day, outcome.status, outcome.error))
