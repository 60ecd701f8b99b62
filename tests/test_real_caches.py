"""Both caches that HypAware wrote, moved elsewhere, against what HypAware's own reader returns: value for value."""

import datetime as dt
import gzip
import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.installations import AnInstallation

DATA = Path(__file__).parent / "data"
DATASETS = ("ai_gateway_messages", "logs", "metrics", "traces")
NOW = dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)

Row = dict[str, Any]


@pytest.fixture(params=["basic", "lived"])
def name(request):
    return request.param


def moved(name: str, to: Path) -> Path:
    """A copy somewhere else, whose metadata still names the place where it was written."""
    return Path(shutil.copytree(DATA / name, to / "moved here, with a comma" / "cache"))


def exported(name: str, home: Path, *, sink: str, order: int | None = None) -> AnInstallation:
    """Export everything to one sink, all days at once or day by day in a random order."""
    installation = AnInstallation(home, moved(name, home), now=NOW)
    for dataset in DATASETS:
        days = installation.due(sink=sink, dataset=dataset)
        if order is None:
            outcomes = installation.export(days, sink=sink, dataset=dataset)
        else:
            random.Random(order).shuffle(days)
            outcomes = [outcome for day in days for outcome in installation.export([day], sink=sink, dataset=dataset)]
        assert all(outcome.status == "exported" for outcome in outcomes), outcomes
        assert all(outcome.receipt.rows == outcome.receipt.exported_rows for outcome in outcomes)
    return installation


def expected_rows(name: str, dataset: str) -> Counter[str]:
    files = (DATA / f"{name}-expected" / dataset).glob("*.jsonl.gz")
    lines = (line for file in files for line in gzip.decompress(file.read_bytes()).decode().splitlines())
    return Counter(canonical(json.loads(line)) for line in lines)


def canonical(row: Row) -> str:
    """Absent values are null; internal columns do not count; 1.0 and 1 are the same JSON number."""
    shown = {key: same(value) for key, value in row.items() if value is not None and not key.startswith("_hyp_")}
    return json.dumps(shown, sort_keys=True)


def same(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: same(item) for key, item in value.items()}
    if isinstance(value, list):
        return [same(item) for item in value]
    return value


def jsonl_rows(installation: AnInstallation, dataset: str) -> Iterator[Row]:
    for path, content in installation.objects("feed").items():
        if path.startswith(f"{dataset}/"):
            yield from (json.loads(line) for line in gzip.decompress(content).decode().splitlines())


def parquet_rows(installation: AnInstallation, dataset: str) -> Iterator[Row]:
    """The rows as DuckDB reads them, brought into the form of the expected ones."""
    pattern = str(installation.out("archive") / dataset / "*" / "*.parquet").replace("'", "''")
    with duckdb.connect() as connection:
        columns = connection.sql(f"DESCRIBE SELECT * FROM read_parquet('{pattern}', hive_partitioning = false)").fetchall()
        types = {column[0]: column[1] for column in columns}
        shown = ", ".join(_shown(column, kind) for column, kind in types.items())
        cursor = connection.execute(f"SELECT {shown} FROM read_parquet('{pattern}', hive_partitioning = false)")
        for values in cursor.fetchall():
            row = dict(zip(types, values, strict=True))
            yield {key: _as_expected(value, types[key]) for key, value in row.items()}


def _shown(column: str, kind: str) -> str:
    name = '"' + column.replace('"', '""') + '"'
    if kind == "TIMESTAMP WITH TIME ZONE":
        return f"epoch_ms({name})"
    return f"{name}::VARCHAR" if kind in ("BIGINT", "JSON") else name


def _as_expected(value: Any, kind: str) -> Any:
    if value is not None and kind == "JSON":
        return json.loads(value)
    if value is not None and kind == "TIMESTAMP WITH TIME ZONE":
        moment = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=value)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


def test_jsonl_of_every_day_equals_what_hypaware_reads(name, tmp_path):
    installation = exported(name, tmp_path, sink="feed")
    for dataset in DATASETS:
        assert Counter(map(canonical, jsonl_rows(installation, dataset))) == expected_rows(name, dataset)


def test_parquet_of_every_day_equals_what_hypaware_reads(name, tmp_path):
    installation = exported(name, tmp_path, sink="archive")
    for dataset in DATASETS:
        assert Counter(map(canonical, parquet_rows(installation, dataset))) == expected_rows(name, dataset)


@pytest.mark.parametrize("sink", ["feed", "archive"])
def test_another_order_of_days_gives_the_same_bytes(name, tmp_path, sink):
    at_once = exported(name, tmp_path / "at once", sink=sink)
    shuffled = exported(name, tmp_path / "shuffled", sink=sink, order=7)
    assert shuffled.objects(sink) == at_once.objects(sink)


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["archive", pytest.param("feed", marks=pytest.mark.long)])
def test_exported_ten_times_everything_is_as_it_was_after_the_first(name, tmp_path, sink):
    """What is unchanged is left where it lies, what was removed is made again, and either is the same, byte for byte."""
    installation = exported(name, tmp_path, sink=sink)
    first, chance = installation.objects(sink), random.Random(10)
    for _ in range(9):
        for key in chance.sample(sorted(first), len(first) // 2):
            (installation.out(sink) / key).unlink()
        for dataset in DATASETS:
            days = installation.due(sink=sink, dataset=dataset, every=True)
            chance.shuffle(days)
            outcomes = installation.export(days, sink=sink, dataset=dataset)
            assert all(outcome.status == "exported" for outcome in outcomes), outcomes
        assert installation.objects(sink) == first


def test_rows_lie_in_their_utc_day(tmp_path):
    installation = exported("lived", tmp_path, sink="feed")
    rows = {}
    for path, content in installation.objects("feed").items():
        dataset, day, _ = path.split("/")
        if dataset == "logs":
            rows[day.removeprefix("day=")] = [json.loads(line) for line in gzip.decompress(content).decode().splitlines()]
    counts = {day: len(found) for day, found in rows.items()}
    assert counts == {
        "2026-06-01": 5,
        "2026-06-02": 15,
        "2026-06-03": 40,
        "2026-06-04": 56,
        "2026-06-05": 19,
        "2026-06-06": 40,
        "__HIVE_DEFAULT_PARTITION__": 3,
    }
    undated = sorted(str(row["timestamp"])[:4] for row in rows.pop("__HIVE_DEFAULT_PARTITION__"))
    assert undated == ["2031", "None", "None"]
    assert all(row["timestamp"].startswith(day) for day, found in rows.items() for row in found)


def test_rows_in_the_spool_are_not_exported(tmp_path):
    spool = (DATA / "lived/datasets/logs/all/_hypaware_spool/active.jsonl").read_text()
    waiting = [row for line in spool.splitlines() for row in json.loads(line)["rows"]]
    assert waiting, "the cache has rows in its spool"
    installation = exported("lived", tmp_path, sink="feed")
    exported_bodies = {json.dumps(row["body"], sort_keys=True) for row in jsonl_rows(installation, "logs")}
    assert not exported_bodies & {json.dumps(row["body"], sort_keys=True) for row in waiting}


def test_nothing_is_written_into_the_cache(name, tmp_path):
    cache = moved(name, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    installation = AnInstallation(tmp_path / "home", cache, now=NOW)
    for dataset in DATASETS:
        installation.export(dataset=dataset)
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before
