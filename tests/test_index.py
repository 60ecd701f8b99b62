"""The row index: which rows each data file has, kept, reused, and what is known of files that are lost."""

import datetime as dt
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from hypaware_pipeline.cache.day_rows import PLACE_BITS, DayRows
from hypaware_pipeline.cache.index import DayTotal, SourceIndex, index_source
from hypaware_pipeline.cache.layout import SourceLocation
from hypaware_pipeline.cache.manifests import Bounds, ManifestMemory, pack_bounds
from hypaware_pipeline.cache.row_hash import Recipe, row_hashes, sequences, tokens, untimed_tokens
from hypaware_pipeline.cache.snapshot import DataFile, DeletionRef, SourcePin, SourceVersion, pin_source
from hypaware_pipeline.datasets import KNOWN_DATASETS
from hypaware_pipeline.errors import SourceUnreadable
from hypaware_pipeline.model import DatasetName, Day, SourceName
from hypaware_pipeline.row_sets import NO_DAY, UNTIMED, raw_days_of
from tests.builders import a_cache, a_log, a_message

RECIPE = Recipe("timestamp", ("key",))
DAY = 20_609  # 2026-06-05
TIMESTAMP_FIELD = 2


def a_table(days: Sequence[float | None], *, first_seq: int = 1, key: str = "k") -> pa.Table:
    """One row per day given (fractions are times of day), with ascending sequence numbers."""
    microseconds = [None if day is None else int(day * 86_400_000_000) for day in days]
    return pa.table(
        {
            "_hyp_ingest_seq": pa.array(range(first_seq, first_seq + len(days)), pa.int64()),
            "timestamp": pa.array(microseconds, pa.timestamp("us", "UTC")),
            "key": pa.array([key] * len(days)),
            "body": pa.array(["never read by the index"] * len(days)),
        }
    )


class Table:
    """A table directory of hand-made files, and pins of it."""

    def __init__(self, root: Path) -> None:
        self.directory = root / "table"
        self.index = root / "index"
        (self.directory / "data").mkdir(parents=True)
        self.files: dict[str, DataFile] = {}

    def write(self, name: str, table: pa.Table, *, bounds: tuple[int, int, bool] | None = None, **options: Any) -> None:
        path = self.directory / "data" / name
        pq.write_table(table, path, **options)
        known = {}
        if bounds is not None:
            low, high, nulls = bounds
            known = {TIMESTAMP_FIELD: Bounds(low * 86_400_000_000, high * 86_400_000_000 + 1, nulls)}
        file = DataFile(self.directory, f"data/{name}", table.num_rows, path.stat().st_size, None, pack_bounds(known))
        self.files[name] = file

    def delete(self, name: str, positions: Sequence[int], *, vector: str) -> None:
        body = b"\xd1\xd3\x39\x64" + BitMap64(positions).serialize()
        blob = len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")
        (self.directory / "data" / vector).write_bytes(b"PFA1" + blob)
        file = self.files[name]
        deletion = DeletionRef(self.directory, f"data/{vector}", 4, len(blob), len(positions))
        self.files[name] = DataFile(file.table_dir, file.name, file.rows, file.bytes, deletion, file.bounds)

    def garbage(self, name: str) -> None:
        """Of the same size: nothing tells it without reading the file."""
        path = self.directory / "data" / name
        path.write_bytes(b"x" * path.stat().st_size)

    def pin(self) -> SourcePin:
        return SourcePin(
            location=SourceLocation(DatasetName("logs"), SourceName("a"), self.directory.parent),
            version=SourceVersion(self.directory, None, "v1.metadata.json"),
            metadata_path=None,
            table_uuid="uuid",
            snapshot_id=1,
            sequence_number=1,
            columns=(),
            files=tuple(self.files.values()),
            removed_at=None,
            timestamp_fields={"timestamp": TIMESTAMP_FIELD},
        )

    def indexed(self, recipe: Recipe = RECIPE) -> SourceIndex:
        return index_source(self.pin(), recipe, self.index)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def rows_by_day(index: SourceIndex) -> dict[int, int]:
    return {day: total.rows for day, total in index.by_day().items()}


# --- days and hashes ------------------------------------------------------------------------------------------------------------


def one_column(array: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"timestamp": array})


def days_of(array: pa.Array) -> list[int | None]:
    days: list[int] = raw_days_of(tokens(one_column(array), Recipe("timestamp", ()))).tolist()
    return [None if day == NO_DAY else day for day in days]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_a_day_begins_at_midnight_utc_in_every_unit(unit: str, zone: str | None) -> None:
    per_day = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}[unit]
    values = [0, -1, DAY * per_day, DAY * per_day - 1, None]
    assert days_of(pa.array(values, pa.timestamp(unit, zone))) == [0, -1, DAY, DAY - 1, None]


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), -(2**63) + 1])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_an_absurd_timestamp_is_far_away_and_breaks_nothing(value: int, unit: str) -> None:
    batch = one_column(pa.array([value], pa.timestamp(unit)))
    (day,) = raw_days_of(tokens(batch, RECIPE))
    assert (day > 0) == (value > 0)
    assert day != NO_DAY
    assert len(row_hashes(batch, RECIPE)) == 1


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("2026-06-05", "2026-06-05"),
        ("2026-06-05T23:59:59.999Z", "2026-06-05"),
        ("2026-06-05 23:30:00-01:00", "2026-06-06"),
        ("2026-06-05T00:30:00+0100", "2026-06-04"),
        ("2026-06-05T00:30+01", "2026-06-04"),
        ("2026-06-05T00:30:00", "2026-06-05"),
        ("2026-06-05, a friday", "2026-06-05"),
        ("2026-06-05T99:99:99+01:00", "2026-06-05"),
        (" 2026-06-05", "2026-06-05"),
        ("0001-01-01T00:00:00+14:00", "0001-01-01"),
        ("2026-02-30", None),
        ("05.06.2026", None),
        ("1780617600000", None),
        ("20260605", None),
        ("", None),
        (None, None),
    ],
)
def test_text_that_begins_with_an_iso_date_gives_a_day_and_other_text_none(text: str | None, date: str | None) -> None:
    expected = None if date is None else dt.date.fromisoformat(date).toordinal() - dt.date(1970, 1, 1).toordinal()
    assert days_of(pa.array([text, text], pa.string())) == [expected, expected]
    assert days_of(pa.array([text], pa.large_string())) == [expected]
    assert days_of(pa.array([text, text], pa.string()).dictionary_encode()) == [expected, expected]


def test_dates_give_their_day_and_numbers_none() -> None:
    assert days_of(pa.array([DAY, None], pa.int32()).cast(pa.date32())) == [DAY, None]
    assert days_of(pa.array([1780617600000])) == [None]
    assert raw_days_of(tokens(one_column(pa.array([1])), Recipe(None, ()))).tolist() == [NO_DAY]


def test_a_hash_is_the_same_on_every_machine_and_in_every_version() -> None:
    """Receipts of years ago are compared with it: a change here makes every day of every sink due again."""
    batch = a_table([DAY, DAY + 0.5, None], first_seq=7, key="ключ").to_batches()[0]
    assert row_hashes(batch, RECIPE).tolist() == [
        9110442362752415767,
        9118561285389332220,
        8624199614441232968,
    ]


def test_a_hash_does_not_depend_on_how_a_file_stores_the_row() -> None:
    batch = a_table([DAY, DAY + 0.5, None]).to_batches()[0]
    stored = pa.record_batch(
        {
            "key": batch["key"].dictionary_encode(),
            "timestamp": batch["timestamp"].cast(pa.timestamp("ms")),
            "_hyp_ingest_seq": batch["_hyp_ingest_seq"].cast(pa.int32()),
        }
    )
    assert row_hashes(stored, RECIPE).tolist() == row_hashes(batch, RECIPE).tolist()
    large = batch.set_column(2, "key", batch["key"].cast(pa.large_string()))
    assert row_hashes(large, RECIPE).tolist() == row_hashes(batch, RECIPE).tolist()


def test_a_column_an_older_file_lacks_counts_as_null() -> None:
    batch = a_table([DAY]).to_batches()[0]
    null = batch.set_column(2, "key", pa.array([None], pa.string()))
    assert row_hashes(batch.drop_columns(["key"]), RECIPE).tolist() == row_hashes(null, RECIPE).tolist()


def test_text_that_is_no_utf8_is_hashed_like_any_other() -> None:
    broken = pa.array([b"\xff\xfe", b"\xff"], pa.binary())
    keys = pa.Array.from_buffers(pa.string(), 2, broken.buffers())
    hashes = row_hashes(pa.record_batch({"key": keys}), RECIPE)
    assert hashes[0] != hashes[1]


rows = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | st.integers(-(2**62), 2**62), st.none() | st.text(max_size=4)
)


@given(st.lists(rows, min_size=1, max_size=20))
def test_rows_that_differ_have_hashes_that_differ(values: list[tuple[int | None, int | None, str | None]]) -> None:
    seq, timestamp, key = zip(*values, strict=True)
    batch = pa.record_batch(
        {
            "_hyp_ingest_seq": pa.array(seq, pa.int64()),
            "timestamp": pa.array(timestamp, pa.timestamp("us")),
            "key": pa.array(key, pa.string()),
        }
    )
    assert len(set(row_hashes(batch, RECIPE).tolist())) == len(set(values))


# --- tokens and keys ------------------------------------------------------------------------------------------------------------


def tokens_of(array: pa.Array, recipe: Recipe = RECIPE) -> list[int]:
    return tokens(one_column(array), recipe).tolist()


def test_a_token_is_the_same_on_every_machine_and_in_every_version() -> None:
    """Row sets of years ago hold them: a change here makes every row another one."""
    stamps = pa.array([1, -1, None], pa.timestamp("us"))
    batch = pa.record_batch({"timestamp": stamps, "key": pa.array(["a", "b", "c"])})
    assert tokens(batch, RECIPE).tolist() == [1, -1, -(2**63)]
    assert untimed_tokens(np.array([0, 1, 2**64 - 1], np.uint64)).tolist() == [-(2**63), 1 - 2**63, -(2**63) + 2**61 - 1]
    assert tokens_of(pa.array(["2026-06-05T12:00:00Z", "2026-06-05, a friday"])) == [1780661247633695, 1780636946233324]


@pytest.mark.parametrize(("unit", "per_microsecond"), [("s", 1e-6), ("ms", 1e-3), ("us", 1), ("ns", 1_000)])
def test_a_token_does_not_depend_on_the_unit_a_file_stores(unit: str, per_microsecond: float) -> None:
    seconds = [DAY * 86_400 + 17, -17, 0]
    stored = pa.array([int(second * 1e6 * per_microsecond) for second in seconds], pa.timestamp(unit))
    assert tokens_of(stored) == [second * 1_000_000 for second in seconds]


def test_digits_below_the_microsecond_do_not_count() -> None:
    assert tokens_of(pa.array([1_999, -1], pa.timestamp("ns"))) == [1, -1]


def test_text_of_one_day_gives_tokens_of_that_day_that_differ() -> None:
    texts = pa.array(["2026-06-05", "2026-06-05T00:00:00Z", "2026-06-05T00:00:01Z"])
    assert len(set(tokens_of(texts))) == 3
    assert {int(day) for day in raw_days_of(np.array(tokens_of(texts)))} == {DAY}
    assert tokens_of(texts.dictionary_encode()) == tokens_of(texts)


anything = st.one_of(
    st.sampled_from(["s", "ms", "us", "ns"]).flatmap(
        lambda unit: st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)).map(
            lambda values: pa.array(values, pa.timestamp(unit))
        )
    ),
    st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)).map(lambda days: pa.array(days, pa.int32()).cast(pa.date32())),
    st.lists(st.none() | st.text() | st.dates().map(str) | st.datetimes().map(str)).map(
        lambda values: pa.array(values, pa.string())
    ),
    st.lists(st.none() | st.integers(0, 9)).map(lambda values: pa.array(values, pa.int64())),
)


@given(anything)
def test_a_token_tells_the_day_or_that_there_is_none(array: pa.Array) -> None:
    found = tokens(one_column(array), RECIPE)
    assert found.dtype == np.int64
    assert all((token < UNTIMED) == (day == NO_DAY) for token, day in zip(found, raw_days_of(found), strict=True))
    if not pa.types.is_string(array.type):
        dated = not pa.types.is_integer(array.type)
        assert [bool(token >= UNTIMED) for token in found] == [dated and valid for valid in array.is_valid().to_pylist()]


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.uint64()])
def test_sequence_numbers_are_integers_of_any_width(kind: pa.DataType) -> None:
    batch = pa.record_batch({"_hyp_ingest_seq": pa.array([3, None, 2**31 - 1], kind)})
    keys, sequenced = sequences(batch)
    assert keys.dtype == np.uint64
    assert (keys[sequenced].tolist(), sequenced.tolist()) == ([3, 2**31 - 1], [True, False, True])


@pytest.mark.parametrize("column", [{}, {"_hyp_ingest_seq": pa.array(["1"])}, {"_hyp_ingest_seq": pa.nulls(1)}])
def test_where_no_integer_is_there_is_no_sequence_number(column: dict[str, pa.Array]) -> None:
    assert sequences(pa.record_batch({"n": pa.array([1]), **column}))[1].tolist() == [False]


# --- rows without a sequence number ---------------------------------------------------------------------------------------------

LOG = {
    "serviceName": pa.array(["web", "web", None]),
    "timestamp": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
    "severityNumber": pa.array([9, 9, 17], pa.int32()),
    "body": pa.array(["{}", "[1]", None]),
}


def known_rows(table: Table, columns: dict[str, pa.Array], **options: Any) -> DayRows:
    name = f"{len(table.files)}.parquet"  # HypAware never writes a name twice
    table.write(name, pa.table(columns), **options)
    index = table.indexed()
    assert not index.lost
    return index.live_rows(table.files[name], 0, index.totals[f"data/{name}"])


def keys_of(table: Table, columns: dict[str, pa.Array], **options: Any) -> list[int]:
    keys: list[int] = known_rows(table, columns, **options).keys.tolist()
    return keys


def test_a_content_hash_is_the_same_on_every_machine_and_in_every_version(table: Table) -> None:
    assert keys_of(table, LOG) == [16036865221487971658, 8863793493306437133, 3821910442739604469]


def test_a_row_without_a_number_is_known_by_its_content_also_for_its_hash(table: Table) -> None:
    rows = known_rows(table, LOG)
    assert not rows.sequenced.any()
    assert rows.hashes.tolist() == rows.keys.tolist()
    assert rows.tokens.tolist() == [1, 2, 3]


def test_a_file_may_hold_rows_with_and_without_a_number(table: Table) -> None:
    rows = known_rows(table, {**LOG, "_hyp_ingest_seq": pa.array([7, None, 8])}, row_group_size=2)
    assert rows.sequenced.tolist() == [True, False, True]
    assert rows.keys.tolist() == [7, known_rows(table, LOG).keys[1], 8]


def test_numbered_rows_without_a_timestamp_are_told_apart_by_all_they_say(table: Table) -> None:
    """Two that had the same number were the same row: after a reset, the second took the place of the first at a sink."""
    untimed = {**LOG, "_hyp_ingest_seq": pa.array([7, 7, 7]), "timestamp": pa.nulls(3, pa.timestamp("us", "UTC"))}
    rows = known_rows(table, untimed)
    assert rows.keys.tolist() == [7, 7, 7]
    assert (rows.tokens < UNTIMED).all()
    assert len(set(rows.tokens.tolist())) == len(set(rows.hashes.tolist())) == 3
    again = known_rows(table, dict(reversed(untimed.items())))
    assert (again.tokens.tolist(), again.hashes.tolist()) == (rows.tokens.tolist(), rows.hashes.tolist())


@pytest.mark.parametrize(
    "stored",
    [
        dict(reversed(LOG.items())),
        {**LOG, "serviceName": LOG["serviceName"].dictionary_encode(), "body": LOG["body"].dictionary_encode()},
        {
            **LOG,
            "timestamp": LOG["timestamp"].cast(pa.timestamp("ns", "UTC")),
            "severityNumber": LOG["severityNumber"].cast("int64"),
        },
        {**LOG, "traceId": pa.nulls(3, pa.string()), "_hyp_ingest_seq": pa.nulls(3, pa.int64())},
        {**LOG, "nobodys_column": pa.array([1, 2, 3])},
    ],
    ids=["order", "dictionaries", "widths", "columns without a value", "a column that is not the dataset's"],
)
def test_a_content_hash_does_not_depend_on_how_a_file_stores_the_row(table: Table, stored: dict[str, pa.Array]) -> None:
    assert keys_of(table, stored) == keys_of(table, LOG)


@pytest.mark.parametrize(
    "changes",
    [
        {"serviceName": pa.array(["api", "web", None])},
        {"traceId": pa.array(["web", None, None])},
        {"serviceName": pa.array([None, "web", None]), "traceId": pa.array(["web", None, None])},
        {"body": pa.array([" {}", "[1]", None])},
        {"severityNumber": pa.array([None, 9, 17], pa.int32())},
    ],
)
def test_whatever_a_row_says_tells_it_from_others(table: Table, changes: dict[str, pa.Array]) -> None:
    before = keys_of(table, LOG)
    after = keys_of(table, {**LOG, **changes})
    assert after[0] != before[0]
    assert after[1:] == before[1:]


def test_a_large_file_without_numbers_is_known_as_its_parts_are(table: Table) -> None:
    """More rows than are read at a time, in row groups of other sizes."""
    rows = 10_000
    log = {"serviceName": pa.array([f"s{n % 7}" for n in range(rows)]), "body": pa.array([str(n) for n in range(rows)])}
    assert len(set(keys_of(table, log, row_group_size=3_000))) == rows
    whole = keys_of(table, log, row_group_size=3_000)
    assert keys_of(table, {name: array[5_000:] for name, array in log.items()}) == whole[5_000:]


def spoil(table: Table, column: str) -> None:
    """Garbage in the pages of one column."""
    path = table.directory / "data" / "a.parquet"
    group = pq.read_metadata(path).row_group(0)
    (chunk,) = (group.column(at) for at in range(group.num_columns) if group.column(at).path_in_schema == column)
    data = bytearray(path.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(data)


def test_only_files_that_have_such_rows_are_read_whole(table: Table) -> None:
    table.write("a.parquet", pa.table({**LOG, "_hyp_ingest_seq": pa.array([1, 2, 3])}))
    spoil(table, "body")
    assert not table.indexed().lost
    table.write("a.parquet", pa.table(LOG))
    spoil(table, "body")
    (lost,) = table.indexed().lost
    assert "a.parquet: the data file cannot be read" in lost.reason


def numbered_by_nobody(root: Path, batches: Sequence[Sequence[Any]], *, shredded: bool = False) -> Any:
    cache = a_cache(root, shredded=shredded)
    for batch in batches:
        cache.with_rows("logs", batch, with_sequence=False)
    return cache


def content(cache: Any, index: Path, dataset: str = "logs", source: str = "unknown") -> list[tuple[Any, ...]]:
    """What is known of all live rows of a source, sorted."""
    location = SourceLocation(DatasetName(dataset), SourceName(source), cache.source_directory(dataset, source))
    pin = pin_source(location, ManifestMemory(None))
    found = index_source(pin, Recipe.of(KNOWN_DATASETS[DatasetName(dataset)]), index)
    assert not found.lost
    rows = DayRows.together([found.live_rows(file, at, found.totals[file.name]) for at, file in enumerate(pin.files)])
    return sorted(zip(*(each.tolist() for each in (rows.keys, rows.tokens, rows.hashes, rows.sequenced)), strict=True))


def test_a_row_without_a_number_stays_the_same_through_compaction(tmp_path: Path) -> None:
    """Each flush and the compaction encode its VARIANT columns in another way."""
    logs = [a_log("2026-06-01", n, attributes={"n": n, "nested": {f"k{n}": [n / 3, None, "ä"]}}) for n in range(30)]
    cache = numbered_by_nobody(tmp_path / "cache", [logs[:3], logs[3:20], logs[20:]])
    before = content(cache, tmp_path / "index")
    cache.writer.compact("logs", "unknown")
    assert content(cache, tmp_path / "index") == before
    assert len({row[0] for row in before}) == 30
    assert not any(row[3] for row in before)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=70),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=15, deadline=None)
@given(bodies=st.lists(json_values, min_size=1, max_size=8), data=st.data())
def test_rows_are_the_same_whatever_order_and_form_they_are_flushed_in(bodies: list[Any], data: st.DataObject) -> None:
    logs = [a_log("2026-06-01", n, body=body, attributes={"body": body}) for n, body in enumerate(bodies)]
    cut = data.draw(st.integers(0, len(logs)))
    shuffled = data.draw(st.permutations(logs))
    parts = [part for part in (shuffled[:cut], shuffled[cut:]) if part]
    with TemporaryDirectory() as directory:
        root = Path(directory)
        one = content(numbered_by_nobody(root / "1", [logs]), root / "i1")
        assert content(numbered_by_nobody(root / "2", parts), root / "i2") == one
        assert content(numbered_by_nobody(root / "3", parts, shredded=True), root / "i3") == one


def test_numbered_rows_stay_the_same_through_compaction_and_another_partitioning(tmp_path: Path) -> None:
    messages = [a_message("2026-06-01", n, session_id=f"s{n % 3}") for n in range(12)]
    cache = a_cache(tmp_path / "cache").with_rows("ai_gateway_messages", messages, source="claude")
    before = content(cache, tmp_path / "index", "ai_gateway_messages", "claude")
    cache.writer.compact("ai_gateway_messages", "claude")
    assert content(cache, tmp_path / "other", "ai_gateway_messages", "claude") == before
    assert [row[0] for row in before] == list(range(1, 13))


# --- totals ---------------------------------------------------------------------------------------------------------------------


def test_rows_are_counted_by_day_whatever_files_and_row_groups_they_lie_in(table: Table) -> None:
    table.write("a.parquet", a_table([DAY, DAY + 1, DAY + 1.5, None]), row_group_size=1)
    table.write("b.parquet", a_table([DAY + 1, 0], first_seq=5))
    table.write("empty.parquet", a_table([]))
    assert rows_by_day(table.indexed()) == {DAY: 1, DAY + 1: 3, 0: 1, NO_DAY: 1}


def test_rewriting_all_files_into_one_changes_no_total(table: Table, tmp_path: Path) -> None:
    """Compaction carries rows over; if it changed a total, every day would be exported again every hour."""
    parts = [a_table([DAY, DAY + 1], first_seq=1), a_table([DAY + 1, None], first_seq=3)]
    table.write("a.parquet", parts[0])
    table.write("b.parquet", parts[1])
    compacted = Table(tmp_path / "compacted")
    compacted.write("c.parquet", pa.concat_tables(parts[::-1]).take([3, 0, 2, 1]))
    assert compacted.indexed().by_day() == table.indexed().by_day()


def test_a_row_whose_key_changed_changes_the_total_of_its_day_only(table: Table, tmp_path: Path) -> None:
    table.write("a.parquet", a_table([DAY, DAY + 1]))
    settled = Table(tmp_path / "settled")
    settled.write("a.parquet", pa.concat_tables([a_table([DAY]), a_table([DAY + 1], first_seq=2, key="settled")]))
    before, after = table.indexed().by_day(), settled.indexed().by_day()
    assert before[DAY] == after[DAY]
    assert before[DAY + 1] != after[DAY + 1]


def test_deleted_rows_are_neither_counted_nor_found(table: Table) -> None:
    table.write("a.parquet", a_table([DAY, DAY + 1, DAY + 1]))
    table.delete("a.parquet", [1], vector="v1.puffin")
    index = table.indexed()
    assert rows_by_day(index) == {DAY: 1, DAY + 1: 1}
    found = index.live_positions(index.pin.files[0], {Day("either"): [DAY + 1, DAY], Day("later"): [DAY + 1]})
    assert {day: positions.tolist() for day, positions in found.items()} == {"either": [0, 2], "later": [2]}
    assert index.live_rows(index.pin.files[0], 5, [DAY + 1, DAY]).places.tolist() == [5 << PLACE_BITS, 5 << PLACE_BITS | 2]


def test_a_file_whose_rows_are_all_deleted_has_no_day(table: Table) -> None:
    table.write("a.parquet", a_table([DAY]))
    table.delete("a.parquet", [0], vector="v1.puffin")
    assert rows_by_day(table.indexed()) == {}


def test_a_dataset_without_a_timestamp_or_a_sequence_is_counted_all_the_same(table: Table) -> None:
    table.write("a.parquet", pa.table({"body": ["x", "y"]}))
    assert rows_by_day(table.indexed(Recipe(None, ()))) == {NO_DAY: 2}


# --- what is kept ---------------------------------------------------------------------------------------------------------------


def test_a_data_file_is_read_once(table: Table) -> None:
    table.write("a.parquet", a_table([DAY, DAY + 1]))
    before = table.indexed().by_day()
    table.garbage("a.parquet")
    table.write("b.parquet", a_table([DAY + 1], first_seq=3))
    after = table.indexed()
    assert not after.lost
    assert after.by_day()[DAY] == before[DAY]
    assert rows_by_day(after) == {DAY: 1, DAY + 1: 2}


def test_a_purge_reads_no_large_data_file_again(table: Table) -> None:
    table.write("a.parquet", a_table([DAY] * 5_000))
    table.indexed()
    table.garbage("a.parquet")
    table.delete("a.parquet", range(1_000), vector="v1.puffin")
    assert rows_by_day(table.indexed()) == {DAY: 4_000}
    table.delete("a.parquet", range(1_001), vector="v2.puffin")
    assert rows_by_day(table.indexed()) == {DAY: 3_999}


def test_another_table_with_the_same_file_names_is_not_mistaken_for_it(table: Table) -> None:
    table.write("a.parquet", a_table([DAY]))
    table.indexed()
    table.write("a.parquet", a_table([DAY + 1, DAY + 1]))
    assert rows_by_day(table.indexed()) == {DAY + 1: 2}


def test_another_recipe_is_another_index(table: Table) -> None:
    table.write("a.parquet", a_table([DAY]))
    table.indexed(Recipe(None, ()))
    assert rows_by_day(table.indexed()) == {DAY: 1}


@pytest.mark.parametrize(
    "damage", [lambda old: old[:0], lambda old: old[:-1], lambda old: old[:-9] + bytes([old[-9] ^ 1]) + old[-8:]]
)
def test_a_damaged_index_file_is_computed_again(table: Table, damage: Any) -> None:
    """A flipped bit believed would be a wrong count, and a day that is never exported."""
    table.write("a.parquet", a_table([DAY] * 5_000))
    before = table.indexed().by_day()
    for path in table.index.iterdir():
        path.write_bytes(damage(path.read_bytes()))
    assert table.indexed().by_day() == before


@pytest.mark.parametrize("at", [0, 20, 40, 100, -1, -60])
def test_what_is_kept_of_a_file_is_believed_day_by_day(table: Table, at: int) -> None:
    """A bit flipped in one day makes no other a wrong one."""
    table.write("a.parquet", a_table([DAY, DAY + 1, DAY, DAY + 1]))
    index, file = table.indexed(), table.files["a.parquet"]
    before = [index.live_rows(file, 0, [day]) for day in (DAY, DAY + 1)]
    (path,) = (path for path in table.index.iterdir() if path.name != "days")
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    for known, day in zip(before, (DAY, DAY + 1), strict=True):
        found = index.live_rows(file, 0, [day])
        assert (found.keys.tolist(), found.places.tolist()) == (known.keys.tolist(), known.places.tolist())
    assert path.read_bytes() != data


def test_one_day_of_a_file_is_found_without_reading_another(table: Table) -> None:
    table.write("a.parquet", a_table([DAY, DAY + 1]))
    index, file = table.indexed(), table.files["a.parquet"]
    table.garbage("a.parquet")
    (path,) = (path for path in table.index.iterdir() if path.name != "days")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))  # the last day's
    assert index.live_rows(file, 0, [DAY]).keys.tolist() == [1]
    with pytest.raises(SourceUnreadable, match="damaged"):
        index.live_rows(file, 0, [DAY + 1])


def test_without_a_place_to_keep_it_the_index_works_all_the_same(table: Table, tmp_path: Path) -> None:
    table.write("a.parquet", a_table([DAY] * 5_000))
    (tmp_path / "a file").write_text("")
    for directory in (None, tmp_path / "a file" / "index"):
        assert rows_by_day(index_source(table.pin(), RECIPE, directory)) == {DAY: 5_000}


def test_what_is_known_of_files_that_left_the_table_is_forgotten(table: Table) -> None:
    table.write("a.parquet", a_table([DAY] * 5_000))
    table.write("b.parquet", a_table([DAY] * 5_001))
    table.indexed()
    kept = {path.name for path in table.index.iterdir()}
    del table.files["a.parquet"]
    table.indexed()
    left = {path.name for path in table.index.iterdir()}
    assert len(kept) == 3
    assert left < kept
    assert len(left) == 2


def test_many_indexers_at_once_agree(table: Table) -> None:
    for number in range(8):
        table.write(f"{number}.parquet", a_table([DAY + number] * 5_000, first_seq=number * 5_000))
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: table.indexed().by_day(), range(16)))
    assert all(result == results[0] for result in results)
    assert sum(total.rows for total in results[0].values()) == 40_000
    assert not [path for path in table.index.iterdir() if path.name.startswith(".")]


def test_totals_add_up_modulo_their_range() -> None:
    assert DayTotal(1, 2**64 - 1) + DayTotal(2, 3) == DayTotal(3, 2)


# --- files that are lost --------------------------------------------------------------------------------------------------------


def test_an_indexed_file_that_is_gone_is_known_to_the_day(table: Table) -> None:
    table.write("a.parquet", a_table([DAY, DAY + 7, None]), bounds=(DAY, DAY + 7, True))
    table.write("b.parquet", a_table([DAY + 1]))
    table.indexed()
    (table.directory / "data" / "a.parquet").unlink()
    index = table.indexed()
    (lost,) = index.lost
    assert lost.days == {DAY, DAY + 7, NO_DAY}
    assert "a.parquet' is gone" in lost.reason
    assert rows_by_day(index) == {DAY + 1: 1}


@pytest.mark.parametrize(
    ("bounds", "days"),
    [
        ((DAY, DAY + 2, False), {DAY, DAY + 1, DAY + 2}),
        ((DAY, DAY, True), {DAY, NO_DAY}),
        ((-1, -1, False), {-1}),
        ((0, 10**6, False), None),
        (None, None),
    ],
)
@pytest.mark.parametrize("gone", [True, False], ids=["gone", "garbage"])
def test_a_file_never_indexed_may_touch_the_days_of_its_bounds(
    table: Table, bounds: tuple[int, int, bool] | None, days: set[int] | None, gone: bool
) -> None:
    table.write("a.parquet", a_table([DAY]), bounds=bounds)
    table.write("b.parquet", a_table([DAY + 9]))
    if gone:
        (table.directory / "data" / "a.parquet").unlink()
    else:
        table.garbage("a.parquet")
    index = table.indexed()
    (lost,) = index.lost
    assert lost.days == days
    assert "a.parquet" in lost.reason
    assert rows_by_day(index) == {DAY + 9: 1}


def test_a_file_of_which_all_timestamps_are_null_may_touch_undated_only(table: Table) -> None:
    table.write("a.parquet", a_table([None]))
    file = table.files["a.parquet"]
    bounds = pack_bounds({TIMESTAMP_FIELD: Bounds(None, None, nulls=True)})
    table.files["a.parquet"] = DataFile(file.table_dir, file.name, 1, file.bytes, None, bounds)
    table.garbage("a.parquet")
    assert table.indexed().lost[0].days == {NO_DAY}


def test_a_file_cut_after_it_was_indexed_is_damaged(table: Table) -> None:
    """Believed to be whole, its day would be planned, and fail with all its other sources."""
    table.write("a.parquet", a_table([DAY, DAY + 1]))
    table.indexed()
    path = table.directory / "data" / "a.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    (lost,) = table.indexed().lost
    assert f"it has {path.stat().st_size} bytes" in lost.reason
    assert lost.days == {DAY, DAY + 1}


def test_a_truncated_file_and_one_with_other_rows_than_its_manifest_says_are_damaged(table: Table) -> None:
    table.write("a.parquet", a_table([DAY] * 3))
    whole = (table.directory / "data" / "a.parquet").read_bytes()
    (table.directory / "data" / "a.parquet").write_bytes(whole[:-20])
    assert "is damaged" in table.indexed().lost[0].reason
    table.write("a.parquet", a_table([DAY] * 3))
    file = table.files["a.parquet"]
    table.files["a.parquet"] = DataFile(file.table_dir, file.name, 4, file.bytes, None, "")
    assert "it holds 3 rows, its manifest says 4" in table.indexed().lost[0].reason


def test_a_file_whose_deletions_are_lost_is_lost(table: Table) -> None:
    """Read without them it would bring purged rows back."""
    table.write("a.parquet", a_table([DAY, DAY + 1]))
    table.indexed()
    table.delete("a.parquet", [0], vector="v1.puffin")
    for damage in ("garbage", "gone"):
        if damage == "garbage":
            table.garbage("v1.puffin")
        else:
            (table.directory / "data" / "v1.puffin").unlink()
        index = table.indexed()
        (lost,) = index.lost
        assert "v1.puffin" in lost.reason
        assert lost.days == {DAY, DAY + 1}
        assert rows_by_day(index) == {}


def test_deletions_of_rows_the_file_does_not_have_are_damage(table: Table) -> None:
    table.write("a.parquet", a_table([DAY]))
    table.delete("a.parquet", [5], vector="v1.puffin")
    assert "deletes rows that" in table.indexed().lost[0].reason


def test_a_file_that_comes_back_is_found_again(table: Table) -> None:
    table.write("a.parquet", a_table([DAY]))
    path = table.directory / "data" / "a.parquet"
    content = path.read_bytes()
    path.unlink()
    assert table.indexed().lost
    path.write_bytes(content)
    assert rows_by_day(table.indexed()) == {DAY: 1}
    assert table.indexed().live_positions(table.files["a.parquet"], {Day("x"): [DAY]})["x"].tolist() == [0]
