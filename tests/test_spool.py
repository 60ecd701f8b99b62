"""The spool: what waits in it, and since when."""

import datetime as dt
import json
import os
from pathlib import Path

import pytest

from hypaware_pipeline.cache.spool import Spool, spools
from hypaware_pipeline.errors import CacheMissing
from hypaware_pipeline.model import DatasetName
from tests.builders import a_cache, a_log

LOGS = DatasetName("logs")


def at(hour: int) -> dt.datetime:
    return dt.datetime(2026, 6, 10, hour, tzinfo=dt.UTC)


def changed(path: Path, moment: dt.datetime) -> None:
    os.utime(path, (moment.timestamp(), moment.timestamp()))


def a_spool(root: Path, dataset: str = "logs", label: str = "all", **files: str) -> Path:
    """A spool with these files, `active` or what follows `flush-`, last changed at 09:00."""
    directory = root / "datasets" / dataset / label / "_hypaware_spool"
    directory.mkdir(parents=True)
    for name, content in files.items():
        (directory / f"{name.replace('_', '-')}.jsonl").write_text(content)
    changed(directory, at(9))
    return directory


def test_rows_that_wait_are_counted_in_bytes_and_dated_by_when_the_first_came(tmp_path: Path) -> None:
    a_spool(tmp_path, active="x" * 10)
    assert spools(tmp_path) == (Spool(LOGS, 10, at(9)),)


def test_what_hypaware_spools_is_seen_and_what_it_flushed_is_not(tmp_path: Path) -> None:
    cache = a_cache(tmp_path).with_day("2026-06-05")
    assert spools(tmp_path) == (Spool(LOGS, 0, None),)
    cache.writer.spool("logs", [a_log("2026-06-06")])
    (spool,) = spools(tmp_path)
    assert spool.bytes == (tmp_path / "datasets/logs/all/_hypaware_spool/active.jsonl").stat().st_size
    assert spool.since is not None


def test_a_flush_that_did_not_end_waits_since_it_began_less_what_it_had_done(tmp_path: Path) -> None:
    name = f"flush_{int(at(7).timestamp() * 1000)}_99_ab"
    directory = a_spool(tmp_path, active="y" * 5, **{name: "x" * 10})
    assert spools(tmp_path) == (Spool(LOGS, 15, at(7)),)
    progress = directory / f"{name.replace('_', '-')}.jsonl.progress.json"
    progress.write_text(json.dumps({"byteOffset": 10}))
    changed(directory, at(9))
    assert spools(tmp_path) == (Spool(LOGS, 5, at(9)),)
    progress.write_text("{")
    changed(directory, at(9))
    assert spools(tmp_path) == (Spool(LOGS, 15, at(7)),)


def test_a_dataset_with_two_spools_and_one_without_a_table_are_counted_too(tmp_path: Path) -> None:
    a_spool(tmp_path, "ai_gateway_messages", "proxy_messages_v4", active="x")
    a_spool(tmp_path, "ai_gateway_messages", "proxy_messages_v5", active="xx")
    a_spool(tmp_path, "odd [name]", "all", active="xxx")
    assert [(spool.dataset, spool.bytes) for spool in spools(tmp_path)] == [("ai_gateway_messages", 3), ("odd [name]", 3)]


def test_a_spool_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    directory = tmp_path / "datasets/logs/all/_hypaware_spool"
    directory.parent.mkdir(parents=True)
    directory.write_text("a file where HypAware has a directory")
    with pytest.raises(CacheMissing, match="_hypaware_spool' cannot be read: Not a directory"):
        spools(tmp_path)
