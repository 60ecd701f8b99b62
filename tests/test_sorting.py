"""Sorting a day in bounded memory gives what sorting it at once gives."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hypaware_pipeline.cache import batches, sorting, spill
from hypaware_pipeline.cache.sorting import Sorter
from hypaware_pipeline.errors import SpillFailed

KEY = ["name", "at", "number", "place"]


@pytest.fixture(scope="module")
def connection():
    with duckdb.connect() as connection:
        yield connection


def rows_of(count: int, seed: int = 1) -> list[dict]:
    chance = random.Random(seed)
    return [
        {
            "name": chance.choice([None, "", "a", "a\0b", "ab", "é", "\U0001f600", "\uffff"]),
            "at": chance.choice([None, *range(5)]),
            "number": chance.choice([None, -1.5, 0.0, 2.0]),
            "place": place,
            "text": chance.choice(["same " * 50, f"only {place}"]),
        }
        for place in range(count)
    ]


def batches_of(rows: list[dict], size: int, *, mixed: bool = True) -> list[pa.RecordBatch]:
    """The rows in batches, by turns plain and dictionary-encoded, in no order."""
    schema = pa.schema(
        [
            ("name", pa.string()),
            ("at", pa.timestamp("us", "UTC")),
            ("number", pa.float64()),
            ("place", pa.int64()),
            ("text", pa.string()),
        ]
    )
    out = []
    for start in range(0, len(rows), size):
        batch = pa.RecordBatch.from_pylist(rows[start : start + size], schema=schema)
        if mixed and start // size % 2:
            columns = [column.dictionary_encode() if column.type == pa.string() else column for column in batch.columns]
            batch = pa.RecordBatch.from_arrays(columns, names=schema.names)
        out.append(batch)
    return out


def in_order(rows: list[dict]) -> list[int]:
    """Places of the rows in the order asked for, nulls last."""

    def key(row: dict) -> list[tuple]:
        name = row["name"]
        parts = [None if name is None else name.encode(), row["at"], row["number"], row["place"]]
        return [(part is None, 0 if part is None else part) for part in parts]

    return [row["place"] for row in sorted(rows, key=key)]


def sorted_by(sorter: Sorter, given_batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    for batch in given_batches:
        sorter.add(batch)
    return list(sorter.sorted_batches())


def places(out: list[pa.RecordBatch]) -> list[int]:
    return [place for batch in out for place in batch.column("place").to_pylist()]


@pytest.mark.parametrize("memory_bytes", [1 << 26, 60_000, 2_000])
def test_rows_come_sorted_with_nulls_last_however_little_memory_there_is(memory_bytes, connection, tmp_path):
    rows = rows_of(3_000)
    sorter = Sorter(KEY, connection, directory=tmp_path, memory_bytes=memory_bytes)
    shuffled = rows[:]
    random.Random(2).shuffle(shuffled)
    out = sorted_by(sorter, batches_of(shuffled, 37))
    assert places(out) == in_order(rows)
    by_place = {row["place"]: row["text"] for row in rows}
    assert all(row["text"] == by_place[row["place"]] for batch in out for row in batch.to_pylist())
    assert out[0].schema.names == ["name", "at", "number", "place", "text"]
    assert list(tmp_path.iterdir()) == []


def test_a_day_within_the_budget_is_never_put_aside(connection, tmp_path):
    sorter = Sorter(KEY, connection, directory=tmp_path / "not made", memory_bytes=1 << 26)
    assert len(places(sorted_by(sorter, batches_of(rows_of(500), 50)))) == 500


def test_more_runs_than_are_merged_at_once_are_merged_in_several_passes(connection, tmp_path, monkeypatch):
    monkeypatch.setattr(sorting, "_FAN_IN", 3)
    rows = rows_of(600)
    sorter = Sorter(KEY, connection, directory=tmp_path, memory_bytes=1_000)
    for batch in batches_of(rows, 20):
        sorter.add(batch)
    assert len(list(tmp_path.iterdir())) == 30
    assert places(list(sorter.sorted_batches())) == in_order(rows)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1_000), size=st.integers(1, 60), count=st.integers(0, 200), memory_bytes=st.integers(1, 20_000))
def test_any_batches_and_any_budget_give_the_same_order(seed, size, count, memory_bytes, connection, tmp_path):
    rows = rows_of(count, seed)
    sorter = Sorter(KEY, connection, directory=tmp_path, memory_bytes=memory_bytes)
    assert places(sorted_by(sorter, batches_of(rows, size))) == in_order(rows)


def test_batches_are_bounded_and_a_row_larger_than_the_bound_stands_alone(connection, tmp_path, monkeypatch):
    monkeypatch.setattr(sorting, "_OUTPUT_BYTES", 10_000)
    rows = [{**row, "text": "x" * (30_000 if row["place"] == 7 else 100)} for row in rows_of(400)]
    for memory_bytes in (1 << 26, 20_000):
        sorter = Sorter(KEY, connection, directory=tmp_path, memory_bytes=memory_bytes)
        out = sorted_by(sorter, batches_of(rows, 40, mixed=False))
        assert places(out) == in_order(rows)
        assert all(batch.num_rows == 1 or batch.nbytes <= 2 * 10_000 for batch in out)


def test_no_rows_give_no_batches(connection, tmp_path):
    sorter = Sorter(KEY, connection, directory=tmp_path, memory_bytes=1_000)
    sorter.add(batches_of(rows_of(1), 1)[0].slice(0, 0))
    assert list(sorter.sorted_batches()) == []


def test_a_repeated_text_stays_one_entry_through_spill_and_merge(connection, tmp_path):
    rows = [{**row, "text": "a long system prompt " * 200} for row in rows_of(40_000)]
    given_batches = batches_of(rows, 100)[1::2]
    sorter = Sorter(KEY, connection, directory=tmp_path, memory_bytes=640_000)
    for batch in given_batches:
        sorter.add(batch)
    assert 0 < sum(file.stat().st_size for file in tmp_path.iterdir()) < 5_000_000  # 84 MB if each row had it
    out = list(sorter.sorted_batches())
    assert all(pa.types.is_dictionary(batch.column("text").type) and len(batch.column("text").dictionary) == 1 for batch in out)


def test_a_dictionary_is_cut_down_to_what_is_used_and_dropped_when_nothing_repeats():
    values = pa.array([f"{number:030d}" for number in range(1_000)])
    indices = pa.array([5, None, 5, 999, 999, 5], pa.int32())
    batch = pa.record_batch({"text": pa.DictionaryArray.from_arrays(indices, values)})
    cut = batches.compact(batch)
    assert cut.column("text").dictionary.to_pylist() == [values[5].as_py(), values[999].as_py()]
    assert cut.column("text").to_pylist() == batch.column("text").to_pylist()
    lone = batches.compact(pa.record_batch({"text": pa.DictionaryArray.from_arrays(pa.array([3, 4, None], pa.int32()), values)}))
    assert lone.column("text").type == pa.string()
    assert lone.column("text").to_pylist() == [values[3].as_py(), values[4].as_py(), None]


def test_spill_directories_are_private_and_removed_after_an_error(tmp_path):
    def fail() -> None:
        with spill.private_directory(tmp_path / "deep" / "spill") as directory:
            assert directory.stat().st_mode & 0o777 == 0o700
            (directory / "file").write_text("x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list((tmp_path / "deep" / "spill").iterdir()) == []


_KILLED = """
import os, signal, sys
from pathlib import Path
from hypaware_pipeline.cache import spill
with spill.private_directory(Path(sys.argv[1])) as directory:
    (directory / "run-0").write_text("a conversation")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_export_put_aside_is_removed_by_the_next_and_what_is_in_use_is_not(tmp_path):
    """It lay there for ever: a copy of people's conversations, and gigabytes of it, for each export that was killed."""
    with spill.private_directory(tmp_path) as in_use:
        (in_use / "run-0").write_text("in use")
        killed = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)
        assert killed.returncode == -signal.SIGKILL
        assert len(list(tmp_path.iterdir())) == 2
        with spill.private_directory(tmp_path) as directory:
            assert set(tmp_path.iterdir()) == {in_use, directory}
        assert (in_use / "run-0").read_text() == "in use"
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_hold_a_spill_is_named_with_the_remedy(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("x")
    with pytest.raises(SpillFailed, match="make room") as raised, spill.private_directory(blocked / "spill"):
        pass
    assert str(blocked) in str(raised.value)


def test_a_full_disk_is_a_spill_failure():
    with pytest.raises(SpillFailed, match="No space left"):
        spill.append(Path("/dev/full"), batches_of(rows_of(100), 100))
