"""The scan: every wanted row once, by day, whatever the files look like."""

import datetime as dt
import gzip
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hypaware_pipeline.cache import data_file
from hypaware_pipeline.cache.scan import FileSlice, Scan
from hypaware_pipeline.datasets import KNOWN_DATASETS
from hypaware_pipeline.errors import SourceUnreadable
from hypaware_pipeline.model import PLACE_COLUMN, PROBLEM_COLUMN, SEQ_COLUMN, Column, ColumnType, Dataset, DatasetName, Day
from tests import variant_bytes as vb

DATA = Path(__file__).parent / "data"
MONDAY, TUESDAY, WEDNESDAY = Day("2026-06-01"), Day("2026-06-02"), Day("2026-06-03")


def a_dataset(*columns: tuple[str, ColumnType], lookup: tuple[str, ...] = (), natural: tuple[str, ...] = ()) -> Dataset:
    return Dataset(
        DatasetName("things"),
        tuple(Column(name, kind) for name, kind in columns),
        primary_timestamp=None,
        lookup_key=lookup,
        natural_key=natural,
    )


NAMED = a_dataset(("name", ColumnType.STRING), ("body", ColumnType.JSON), lookup=("name",))


def positions(*rows: int) -> np.ndarray:
    return np.array(rows, np.int64)


def write(path: Path, columns: dict, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path


def all_rows(path: Path, day: Day = MONDAY) -> FileSlice:
    return FileSlice(path, {day: np.arange(pq.read_metadata(path).num_rows)})


def read(
    dataset: Dataset, slices: list[FileSlice], tmp_path: Path, *days: Day, memory_bytes: int = 1 << 26
) -> dict[Day, list[dict]]:
    spill = tmp_path / "spill"
    with Scan(dataset, slices, spill_dir=spill, memory_bytes=memory_bytes) as scan:
        rows = {day: [row for batch in scan.batches(day) for row in _without_place(batch)] for day in days or (MONDAY,)}
    assert list(spill.iterdir()) == []
    return rows


def _without_place(batch) -> list[dict]:
    """Rows as a destination gets them: where they lay is not part of them."""
    return batch.drop_columns([PLACE_COLUMN]).to_pylist()


def one(dataset: Dataset, path: Path, tmp_path: Path) -> list[dict]:
    return read(dataset, [all_rows(path)], tmp_path)[MONDAY]


@pytest.mark.parametrize(
    ("cache", "name"), [(cache, name) for cache in ("basic", "lived") for name in ("logs", "traces", "metrics")]
)
def test_the_live_rows_of_a_real_cache_read_as_hypaware_reads_them(cache, name, tmp_path):
    dataset = KNOWN_DATASETS[DatasetName(name)]
    expected = Counter()
    for path in (DATA / f"{cache}-expected" / name).glob("*.jsonl.gz"):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            expected.update(canonical(json.loads(line)) for line in lines)
    slices = []
    for cursor in (DATA / cache / "datasets" / name).glob("source=*/cursor.json"):
        table = cursor.parent / json.loads(cursor.read_text()).get("tableDir", "table")
        slices += [all_rows(path) for path in (table / "data").glob("*.parquet")]
    rows = read(dataset, slices, tmp_path)[MONDAY]
    assert all(row[PROBLEM_COLUMN] is None for row in rows)
    # Deletions are not applied here, so there may be more rows than HypAware shows, never fewer.
    assert expected - Counter(canonical(as_hypaware_prints(row, dataset)) for row in rows) == Counter()


def canonical(row: dict) -> str:
    return json.dumps({key: value for key, value in row.items() if value is not None and key != PROBLEM_COLUMN}, sort_keys=True)


def as_hypaware_prints(row: dict, dataset: Dataset) -> dict:
    kinds = {column.name: column.type for column in dataset.columns} | {SEQ_COLUMN: ColumnType.INT64}

    def printed(name: str, value):
        if value is None or name not in kinds:
            return None
        match kinds[name]:
            case ColumnType.JSON:
                return json.loads(value)
            case ColumnType.INT64:
                return str(value)
            case ColumnType.TIMESTAMP:
                return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            case ColumnType.DOUBLE:
                return int(value) if value.is_integer() else value
            case _:
                return value

    return {name: printed(name, value) for name, value in row.items()}


def test_rows_are_sorted_by_lookup_key_sequence_natural_key_and_place_with_nulls_last(tmp_path):
    dataset = a_dataset(("a", ColumnType.STRING), ("id", ColumnType.STRING), lookup=("a",), natural=("id",))
    first = write(tmp_path / "1.parquet", {"a": ["y", None, "x"], "id": ["1", "2", "3"], SEQ_COLUMN: [1, 2, None]})
    second = write(tmp_path / "2.parquet", {"a": ["x", "x", "y"], "id": ["5", "4", "1"], SEQ_COLUMN: [7, 7, 1]})
    rows = read(dataset, [all_rows(first), all_rows(second)], tmp_path)[MONDAY]
    assert [(row["a"], row[SEQ_COLUMN], row["id"]) for row in rows] == [
        ("x", 7, "4"), ("x", 7, "5"), ("x", None, "3"), ("y", 1, "1"), ("y", 1, "1"), (None, 2, "2"),
    ]  # fmt: skip


def test_a_range_of_days_gives_each_wanted_row_once_in_any_order_of_days(tmp_path):
    names = [f"n{number:04d}" for number in range(1_000)]
    path = write(tmp_path / "f.parquet", {"name": names, SEQ_COLUMN: list(range(1_000))}, row_group_size=100)
    rows = {day: np.flatnonzero(np.arange(1_000) % 4 == at) for at, day in enumerate((MONDAY, TUESDAY, WEDNESDAY))}
    for days in ((MONDAY, TUESDAY, WEDNESDAY), (WEDNESDAY, MONDAY, TUESDAY)):
        for memory_bytes in (1 << 26, 3_000):
            got = read(NAMED, [FileSlice(path, rows)], tmp_path, *days, memory_bytes=memory_bytes)
            assert {day: [row["name"] for row in got[day]] for day in days} == {
                day: [names[at] for at in rows[day]] for day in days
            }


def test_each_row_group_is_read_once_and_one_without_wanted_rows_never(tmp_path, monkeypatch):
    path = write(tmp_path / "f.parquet", {"name": [str(number) for number in range(60)]}, row_group_size=10)
    asked = []

    class Spy(pq.ParquetFile):
        def iter_batches(self, *args, **kwargs):
            asked.extend(kwargs["row_groups"])
            return super().iter_batches(*args, **kwargs)

    monkeypatch.setattr(data_file.pq, "ParquetFile", Spy)
    rows = {MONDAY: positions(0, 15, 31), TUESDAY: positions(16, 32), WEDNESDAY: positions(33, 59)}
    got = read(NAMED, [FileSlice(path, rows)], tmp_path, TUESDAY, MONDAY, WEDNESDAY)
    assert sorted(asked) == [0, 1, 3, 5]
    assert [[row["name"] for row in got[day]] for day in (MONDAY, TUESDAY, WEDNESDAY)] == [
        ["0", "15", "31"],
        ["16", "32"],
        ["33", "59"],
    ]


def test_compaction_does_not_change_a_row_or_its_place(tmp_path):
    names = [["b", "a"], ["a", "c"], ["b", "b"]]
    bodies = [[vb.text("x"), vb.integer(1, 1)], [vb.NULL, vb.text("x")], [vb.text("z"), vb.text("z")]]
    metadata = vb.metadata([])
    slices, columns = [], {"name": [], "body": [], SEQ_COLUMN: []}
    for at, (name, body) in enumerate(zip(names, bodies, strict=True)):
        part = {"name": name, "body": vb.column([(metadata, value) for value in body]), SEQ_COLUMN: [2 * at + 1, 2 * at]}
        slices.append(all_rows(write(tmp_path / f"{at}.parquet", part)))
        columns["name"] += name
        columns["body"] += [(metadata, value) for value in body]
        columns[SEQ_COLUMN] += part[SEQ_COLUMN]
    columns["body"] = vb.column(columns["body"])
    whole = write(tmp_path / "whole.parquet", columns)
    assert read(NAMED, slices, tmp_path) == read(NAMED, slices[::-1], tmp_path) == read(NAMED, [all_rows(whole)], tmp_path)


def test_a_day_that_nobody_read_to_its_end_leaves_nothing_to_the_next(tmp_path):
    """Its sorted runs stayed, the next day's were written behind them, and that day had the rows of both."""
    names = [f"{row:06}" for row in range(20_000)]
    path = write(tmp_path / "f.parquet", {"name": names})
    slices = [FileSlice(path, {MONDAY: np.arange(0, 20_000, 2), TUESDAY: np.arange(1, 20_000, 2)})]
    with Scan(NAMED, slices, spill_dir=tmp_path / "s", memory_bytes=100_000) as scan:
        started = scan.batches(MONDAY)
        next(started)
        started.close()
        assert [name for batch in scan.batches(TUESDAY) for name in batch.column("name").to_pylist()] == names[1::2]


def test_columns_come_in_order_absent_ones_null_and_foreign_ones_left_out(tmp_path):
    path = write(tmp_path / "f.parquet", {"zzz": [1], "_hyp_other": [2], "name": ["a"]})
    with Scan(NAMED, [all_rows(path)], spill_dir=tmp_path / "s", memory_bytes=1 << 20) as scan:
        [batch] = scan.batches(MONDAY)
    assert batch.schema.names == ["name", "body", SEQ_COLUMN, PROBLEM_COLUMN, PLACE_COLUMN]
    assert batch.to_pylist() == [{"name": "a", "body": None, SEQ_COLUMN: None, PROBLEM_COLUMN: None, PLACE_COLUMN: 0}]


@pytest.mark.parametrize(
    ("kind", "stored", "expected"),
    [
        (ColumnType.STRING, pa.array(["a", None, "é"], pa.large_string()), ["a", None, "é"]),
        (ColumnType.STRING, pa.array([b"a", None], pa.binary()), ["a", None]),
        (ColumnType.STRING, pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (ColumnType.STRING, pa.array([dt.date(2026, 6, 1), None]), ["2026-06-01", None]),
        (ColumnType.STRING, pa.array([1_780_000_000_123], pa.timestamp("ms", "UTC")), ["2026-05-28T20:26:40.123Z"]),
        (ColumnType.STRING, pa.array([1.0, 2.5, 1e21]), ["1", "2.5", "1e+21"]),
        (ColumnType.STRING, pa.array([7, None]), ["7", None]),
        (ColumnType.INT64, pa.array([1, None], pa.int32()), [1, None]),
        (ColumnType.INT32, pa.array([1, None], pa.int64()), [1, None]),
        (ColumnType.INT32, pa.array([3.0]), [3]),
        (ColumnType.DOUBLE, pa.array([0.5, None], pa.float32()), [0.5, None]),
        (ColumnType.DOUBLE, pa.array([3], pa.int64()), [3.0]),
        (ColumnType.BOOLEAN, pa.array([True, None]), [True, None]),
        (ColumnType.TIMESTAMP, pa.array([1], pa.timestamp("ms")), [dt.datetime(1970, 1, 1, 0, 0, 0, 1000, dt.UTC)]),
        (ColumnType.TIMESTAMP, pa.array([1_999], pa.timestamp("ns", "UTC")), [dt.datetime(1970, 1, 1, 0, 0, 0, 1, dt.UTC)]),
        (ColumnType.TIMESTAMP, pa.array([-1], pa.timestamp("ns")), [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC)]),
        (ColumnType.TIMESTAMP, pa.array([dt.date(1970, 1, 2)]), [dt.datetime(1970, 1, 2, tzinfo=dt.UTC)]),
        (ColumnType.JSON, pa.array(["a\x1b", None]), ['"a\\u001b"', None]),
        (ColumnType.JSON, pa.array([1.0, 0.5]), ["1", "0.5"]),
        (ColumnType.JSON, pa.array([True, None]), ["true", None]),
    ],
)
def test_a_column_stored_as_another_type_reads_as_the_declared_one(kind, stored, expected, tmp_path):
    path = write(tmp_path / "f.parquet", {"value": stored, SEQ_COLUMN: list(range(len(stored)))})
    rows = one(a_dataset(("value", kind)), path, tmp_path)
    assert [row["value"] for row in rows] == expected
    assert [row[PROBLEM_COLUMN] for row in rows] == [None] * len(expected)


@pytest.mark.parametrize(
    ("kind", "stored", "expected", "reason"),
    [
        (ColumnType.INT32, pa.array([1, 2**40, 3]), [1, None, 3], "not in range"),
        (ColumnType.INT32, pa.array([1.0, 2.5, 3.0]), [1, None, 3], "truncated"),
        (ColumnType.INT64, pa.array(["1", "2", "3"]), None, "cannot become INT64"),
        (ColumnType.BOOLEAN, pa.array([0, 1, 2]), None, "cannot become BOOLEAN"),
        (ColumnType.TIMESTAMP, pa.array([1, 2**62, 3], pa.timestamp("ms")), "the second", "cannot become TIMESTAMP"),
        (ColumnType.STRING, vb.column([(vb.metadata([]), vb.NULL)] * 3), None, "stored as VARIANT"),
    ],
)
def test_a_value_the_declared_type_cannot_hold_costs_its_row_a_reason(kind, stored, expected, reason, tmp_path):
    path = write(tmp_path / "f.parquet", {"value": stored, SEQ_COLUMN: [0, 1, 2]})
    rows = one(a_dataset(("value", kind)), path, tmp_path)
    bad = [0, 1, 2] if expected is None else [1]
    assert [at for at, row in enumerate(rows) if row[PROBLEM_COLUMN] is not None] == bad
    assert all(rows[at]["value"] is None for at in bad)
    assert "column 'value'" in rows[1][PROBLEM_COLUMN]
    assert reason in rows[1][PROBLEM_COLUMN]


@pytest.mark.parametrize("as_dictionary", [False, True])
def test_text_that_is_not_utf8_costs_its_row_a_reason(as_dictionary, tmp_path):
    array = pa.array([b"fine", b"\xff\xfe", b"fine", b"fine"]).view(pa.string())
    path = write(tmp_path / "f.parquet", {"name": array, SEQ_COLUMN: [0, 1, 2, 3]}, use_dictionary=as_dictionary)
    rows = sorted(one(NAMED, path, tmp_path), key=lambda row: row[SEQ_COLUMN])
    assert [row["name"] for row in rows] == ["fine", None, "fine", "fine"]
    assert [row[PROBLEM_COLUMN] is None for row in rows] == [True, False, True, True]


def test_damage_in_two_columns_of_a_row_is_told_together(tmp_path):
    path = write(
        tmp_path / "f.parquet",
        {"name": pa.array([b"\xff"]).view(pa.string()), "body": vb.column([(vb.metadata([]), vb.primitive(50))])},
    )
    [row] = one(NAMED, path, tmp_path)
    assert row[PROBLEM_COLUMN].count("column '") == 2
    assert "column 'body': VARIANT cannot be decoded: unknown primitive type 50" in row[PROBLEM_COLUMN]


@pytest.mark.parametrize("shredding", ["", ", SHREDDING {body: 'VARIANT'}"])
def test_a_shredded_file_reads_as_an_unshredded_one(shredding, tmp_path):
    path = tmp_path / "f.parquet"
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT i::VARCHAR AS name, (CASE WHEN i % 3 = 0 THEN NULL"
            " WHEN i % 3 = 1 THEN json_object('k', i, 'm', [1.5, 2.0])"
            f" ELSE to_json('text') END)::JSON::VARIANT AS body, i AS {SEQ_COLUMN} FROM range(9000) r(i)) TO '{path}'"
            f" (FORMAT parquet, ROW_GROUP_SIZE 2048{shredding})"
        )
    assert ("typed_value" in str(pq.read_schema(path))) == (shredding == "")
    wanted = positions(0, 1, 2, 4_000, 4_001, 8_998, 8_999)
    rows = read(NAMED, [FileSlice(path, {MONDAY: wanted})], tmp_path)[MONDAY]
    expected = {at: [None, f'{{"k":{at},"m":[1.5,2]}}', '"text"'][at % 3] for at in wanted.tolist()}
    assert {row[SEQ_COLUMN]: row["body"] for row in rows} == expected


def test_a_variant_whose_writer_gave_up_its_dictionary_half_way_reads_whole(tmp_path):
    texts = ["repeats"] * 2_000 + [f"text {number}" for number in range(4_000)]
    columns = {
        "name": [f"{number:04}" for number in range(6_000)],
        "body": vb.column([(vb.metadata([]), vb.text(text)) for text in texts]),
    }
    path = write(tmp_path / "f.parquet", columns, dictionary_pagesize_limit=2_000, data_page_size=4_000, write_batch_size=100)
    assert [row["body"] for row in one(NAMED, path, tmp_path)] == [f'"{text}"' for text in texts]


def test_every_large_file_of_a_table_keeps_its_dictionaries(tmp_path):
    long = [f"a long text {number} " * 100 for number in range(3)]
    paths = [write(tmp_path / f"{at}.parquet", {"name": long * 2_000}) for at in range(3)]
    habits = data_file.Habits()
    for path in paths:
        with data_file.DataFile(path, habits) as file:
            batch = next(file.batches(0, ["name"]))
        assert pa.types.is_dictionary(batch.column("name").type)
        assert habits.dictionaries == ("name",)


def test_files_that_encode_a_column_differently_come_together(tmp_path):
    long = "a long text " * 100
    slices = [
        all_rows(write(tmp_path / "1.parquet", {"name": [long] * 50}, use_dictionary=True)),
        all_rows(write(tmp_path / "2.parquet", {"name": [f"{long}{number}" for number in range(50)]}, use_dictionary=False)),
        all_rows(write(tmp_path / "3.parquet", {"other": [1]})),
    ]
    rows = read(NAMED, slices, tmp_path)[MONDAY]
    assert Counter(row["name"] for row in rows) == Counter([long] * 50 + [f"{long}{number}" for number in range(50)] + [None])


def test_awkward_paths_are_read_as_they_are_spelled(tmp_path):
    path = write(tmp_path / "day=2026-06-01, 'x' \"y\" [*] ü" / "name=b.parquet", {"name": ["a"]})
    assert [row["name"] for row in one(NAMED, path, tmp_path)] == ["a"]


def test_a_dataset_without_columns_and_a_day_without_rows(tmp_path):
    path = write(tmp_path / "f.parquet", {"name": ["a", "b"]})
    rows = read(a_dataset(), [all_rows(path)], tmp_path, MONDAY, TUESDAY)
    assert rows == {MONDAY: [{SEQ_COLUMN: None, PROBLEM_COLUMN: None}] * 2, TUESDAY: []}
    empty = write(tmp_path / "empty.parquet", {"name": pa.array([], pa.string())})
    assert one(NAMED, empty, tmp_path) == []


def test_a_file_that_vanished_is_a_plain_file_not_found(tmp_path):
    gone = FileSlice(tmp_path / "gone.parquet", {MONDAY: positions(0)})
    with pytest.raises(FileNotFoundError):
        read(NAMED, [gone], tmp_path)


@pytest.mark.parametrize("damage", ["garbage", "truncated", "inside", "empty"])
def test_a_damaged_file_is_named_and_nothing_is_left_behind(damage, tmp_path):
    path = write(tmp_path / "f.parquet", {"name": [str(number) for number in range(5_000)]}, use_dictionary=False)
    data = path.read_bytes()
    slices = [all_rows(path)]
    path.write_bytes(
        {
            "garbage": b"PAR1" + b"\x01" * 100 + b"PAR1",
            "truncated": data[:-20],
            "inside": data[:4] + b"\xff" * 200 + data[204:],
            "empty": b"",
        }[damage]
    )
    with pytest.raises(SourceUnreadable, match="restore it or purge its rows") as raised:
        read(NAMED, slices, tmp_path)
    assert str(path) in str(raised.value)
    assert list((tmp_path / "spill").iterdir()) == []


def test_the_batch_size_follows_what_rows_turn_out_to_hold(tmp_path):
    rows = 3_000
    small, large = ["s"] * 10, [str(number) * 20_000 for number in range(10)]
    names = [small[at % 10] if at < 2_000 else large[at % 10] for at in range(rows)]
    path = write(tmp_path / "f.parquet", {"name": names, SEQ_COLUMN: list(range(rows))}, use_dictionary=False)
    got = read(NAMED, [all_rows(path)], tmp_path)[MONDAY]
    assert Counter(row["name"] for row in got) == Counter(names)
    assert sorted(row[SEQ_COLUMN] for row in got) == list(range(rows))


@pytest.mark.slow
def test_memory_stays_bounded_whatever_the_size_of_a_day(tmp_path):
    program = f"""
import resource
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from pathlib import Path
from hypaware_pipeline.cache.scan import FileSlice, Scan
from hypaware_pipeline.model import Column, ColumnType, Dataset, DatasetName, Day
path = Path({str(tmp_path / "big.parquet")!r})
dataset = Dataset(DatasetName("d"), (Column("k", ColumnType.STRING), Column("text", ColumnType.STRING)), None, lookup_key=("k",))
schema = pa.schema([("k", pa.string()), ("text", pa.string()), ("_hyp_ingest_seq", pa.int64())])
rows, size = 0, 4_000
with pq.ParquetWriter(path, schema, use_dictionary=False) as writer:
    for part in range(60):
        keys = [str((rows + at) * 7919 % 1_000_003) for at in range(size)]
        columns = [keys, [key * 400 for key in keys], list(range(rows, rows + size))]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema)]
        writer.write_batch(pa.record_batch(arrays, schema=schema))
        rows += size
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
seen = total = 0
last = ""
wanted = FileSlice(path, {{Day("2026-06-01"): np.arange(rows)}})
with Scan(dataset, [wanted], spill_dir=path.parent, memory_bytes=32 << 20) as scan:
    for batch in scan.batches(Day("2026-06-01")):
        assert batch.nbytes < 20_000_000
        keys = batch.column("k").to_pylist()
        assert last <= keys[0] and keys == sorted(keys)
        last, seen, total = keys[-1], seen + batch.num_rows, total + batch.nbytes
grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
assert seen == rows and total > 500_000_000, (seen, total)
assert grown_mb < 300, grown_mb
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
