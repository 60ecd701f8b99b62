"""What can be wrong with Dagster's home ends in one line, and costs no row."""

import multiprocessing
from pathlib import Path

import dagster as dg
import pytest
from sqlalchemy.exc import OperationalError

from hypaware_pipeline.errors import RunStorageFailed, StateUnusable
from hypaware_pipeline.orchestration.instance import opened_instance

QUIET = "telemetry:\n  enabled: false\n"


@pytest.mark.parametrize(
    "content",
    ["a: [b", "- a", "nosuch: 1", "run_storage:\n  module: nosuch.module\n  class: X\n  config: {}\n"],
    ids=["no YAML", "no object", "unknown key", "unknown storage"],
)
def test_a_dagster_yaml_that_cannot_be_used_is_named(tmp_path: Path, content: str) -> None:
    """It was a traceback."""
    (tmp_path / "dagster.yaml").write_text(content)
    with pytest.raises(StateUnusable, match="DAGSTER_HOME") as raised, opened_instance(tmp_path):
        pass
    assert str(tmp_path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_home_whose_database_is_damaged_is_named(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text(QUIET)
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / "runs.db").write_bytes(b"garbage" * 1000)
    with pytest.raises(StateUnusable, match="file is not a database"), opened_instance(tmp_path):
        pass


def test_a_storage_that_fails_during_a_run_is_named_with_the_disk_to_look_at(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text(QUIET)
    full = OperationalError("INSERT", {}, Exception("database or disk is full"))
    with pytest.raises(RunStorageFailed, match="database or disk is full") as raised, opened_instance(tmp_path):
        raise full
    assert str(tmp_path) in str(raised.value)
    with pytest.raises(BrokenPipeError), opened_instance(tmp_path):
        raise BrokenPipeError


def test_several_processes_open_a_new_home_at_once(tmp_path: Path) -> None:
    """One of them failed on a table that another had made a moment before."""
    (tmp_path / "dagster.yaml").write_text(QUIET)
    context = multiprocessing.get_context("spawn")
    gate = context.Barrier(2)
    processes = [context.Process(target=_open, args=(tmp_path, gate)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    assert [process.exitcode for process in processes] == [0, 0]


def _open(home: Path, gate: "multiprocessing.synchronize.Barrier") -> None:
    gate.wait(timeout=120)
    with opened_instance(home) as instance:
        assert isinstance(instance, dg.DagsterInstance)
