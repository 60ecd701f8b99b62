"""Parquet, and what both encoders promise alike: types, refusals, bounded row groups, the same bytes however the rows come."""

import datetime as dt
import gzip
import io
import json
import random
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypaware_pipeline.datasets import KNOWN_DATASETS
from hypaware_pipeline.model import SEQ_COLUMN, Column, ColumnType
from hypaware_pipeline.plugins.contracts import Encoder, RefusedRow
from hypaware_pipeline.sinks.encoders.jsonl import JsonlEncoder
from hypaware_pipeline.sinks.encoders.parquet import ParquetEncoder

COLUMNS = [
    Column("text", ColumnType.STRING),
    Column("small", ColumnType.INT32),
    Column("large", ColumnType.INT64),
    Column("number", ColumnType.DOUBLE),
    Column("flag", ColumnType.BOOLEAN),
    Column("at", ColumnType.TIMESTAMP),
    Column("value", ColumnType.JSON),
]
SCHEMA = pa.schema(
    {
        "text": pa.string(),
        "small": pa.int32(),
        "large": pa.int64(),
        "number": pa.float64(),
        "flag": pa.bool_(),
        "at": pa.timestamp("us", "UTC"),
        "value": pa.string(),
    }
)
ROWS = [
    {
        "text": "é😀\u2028\0",
        "small": -(2**31),
        "large": 2**63 - 1,
        "number": 0.1,
        "flag": True,
        "at": 0,
        "value": '{"a":[1,null]}',
    },
    dict.fromkeys(SCHEMA.names),
    {"text": "x" * 70_000, "small": 1, "large": -(2**63), "number": -0.0, "flag": False, "at": -1, "value": '"bare"'},
]


def batch_of(rows):
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def encode(encoder, batches, columns=COLUMNS):
    out = io.BytesIO()
    answer = encoder.encode(batches, columns, out)
    return answer, out.getvalue()


def read(content):
    return pq.ParquetFile(io.BytesIO(content))


def many_rows(rng, count):
    texts = [rng.randbytes(rng.randrange(200)).hex() for _ in range(20)] + [None, ""]
    values = ["null", "{}", '{"a":"b"}', None, json.dumps({"k": "v" * 300})]
    return [
        {
            "text": rng.choice(texts) if rng.random() < 0.7 else rng.randbytes(30).hex(),
            "small": rng.choice([None, rng.randrange(100)]),
            "large": rng.randrange(2**40),
            "number": rng.random(),
            "flag": rng.choice([True, False, None]),
            "at": rng.randrange(2**50),
            "value": rng.choice(values),
        }
        for _ in range(count)
    ]


# --- what a reader sees ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "none"])
def test_duckdb_sees_the_types_and_the_values(tmp_path, codec):
    encoder: Encoder = ParquetEncoder(codec)
    path = tmp_path / "x.parquet"
    with path.open("wb") as out:
        assert encoder.encode([batch_of(ROWS)], COLUMNS, out).rows == 3
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        relation = connection.read_parquet(str(path))
        assert [str(kind) for kind in relation.types] == [
            "VARCHAR", "INTEGER", "BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP WITH TIME ZONE", "JSON",
        ]  # fmt: skip
        rows = relation.project("""* REPLACE ("at"::VARCHAR AS "at")""").fetchall()
    assert rows == [
        ("é😀\u2028\0", -(2**31), 2**63 - 1, 0.1, True, "1970-01-01 00:00:00+00", '{"a":[1,null]}'),
        (None,) * 7,
        ("x" * 70_000, 1, -(2**63), -0.0, False, "1969-12-31 23:59:59.999999+00", '"bare"'),
    ]


def test_pandas_sees_the_values(tmp_path):
    path = tmp_path / "x.parquet"
    path.write_bytes(encode(ParquetEncoder(), [batch_of(ROWS)])[1])
    frame = pd.read_parquet(path, dtype_backend="pyarrow")
    assert frame["at"][0] == pd.Timestamp(0, tz="UTC")
    assert frame["large"][0] == 2**63 - 1
    assert frame.isna().sum().tolist() == [1] * 7


def test_columns_are_optional_of_known_logical_types_and_in_order():
    schema = read(encode(ParquetEncoder(), [batch_of(ROWS)])[1]).schema
    assert [schema.column(index).name for index in range(7)] == SCHEMA.names
    assert {schema.column(index).max_definition_level for index in range(7)} == {1}
    assert str(schema.column(0).logical_type) == "String"
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in str(schema.column(5).logical_type)
    assert str(schema.column(6).logical_type) == "JSON"


def test_internal_columns_stay_behind_and_order_is_the_dataset_s():
    batch = batch_of(ROWS).append_column(SEQ_COLUMN, pa.array([1, 2, 3])).select([SEQ_COLUMN, *reversed(SCHEMA.names)])
    assert encode(ParquetEncoder(), [batch])[1] == encode(ParquetEncoder(), [batch_of(ROWS)])[1]


def test_statistics_and_page_index_are_written_and_metadata_holds_nothing_that_changes():
    metadata = read(encode(ParquetEncoder(), [batch_of(ROWS)])[1]).metadata
    column = metadata.row_group(0).column(1)
    assert (column.statistics.min, column.statistics.max, column.statistics.null_count) == (-(2**31), 1, 1)
    assert (column.has_column_index, column.has_offset_index) == (True, True)
    assert metadata.metadata is None


def test_zero_rows_make_a_valid_empty_file():
    answer, content = encode(ParquetEncoder(), [batch_of([])])
    assert (answer.rows, read(content).metadata.num_rows) == (0, 0)
    assert encode(ParquetEncoder(), [])[1] == content
    assert read(content).schema_arrow.names == SCHEMA.names


# --- the rows of real caches -------------------------------------------------------------------------------------------------

DATA = Path(__file__).parent / "data"


def as_arrow(value, column_type):
    """A value of HypAware's own JSON rows as the cache reader would hand it over."""
    if value is None:
        return None
    if column_type is ColumnType.JSON:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if column_type is ColumnType.INT64:
        return int(value)
    return dt.datetime.fromisoformat(value) if column_type is ColumnType.TIMESTAMP else value


@pytest.mark.parametrize("path", sorted(DATA.glob("*-expected/*/*.jsonl.gz")), ids=lambda path: str(path.relative_to(DATA)))
def test_real_rows_come_back_value_for_value(path):
    columns = KNOWN_DATASETS[path.parent.name].columns
    with gzip.open(path, "rt") as lines:
        rows = [{column.name: json.loads(line).get(column.name) for column in columns} for line in lines]
    assert rows
    types = {column.type: SCHEMA.field(COLUMNS.index(column)).type for column in COLUMNS}
    batch = pa.RecordBatch.from_pylist(
        [{column.name: as_arrow(row[column.name], column.type) for column in columns} for row in rows],
        schema=pa.schema([(column.name, types[column.type]) for column in columns]),
    )
    answer, content = encode(JsonlEncoder(), [batch], columns)
    assert not answer.refused
    assert [json.loads(line) for line in gzip.decompress(content).splitlines()] == rows
    answer, content = encode(ParquetEncoder(), [batch], columns)
    assert not answer.refused
    written = read(content).read()
    for column in columns:
        values = written[column.name].combine_chunks()
        assert (values.storage if column.type is ColumnType.JSON else values).equals(batch[column.name])


# --- row groups --------------------------------------------------------------------------------------------------------------


def group_rows(content):
    metadata = read(content).metadata
    return [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]


def test_a_row_group_is_closed_before_it_passes_its_bytes():
    # A row of one string column counts its text and 4 bytes.
    batches = [pa.record_batch({"text": pa.array(["x" * 96] * 25)})] * 2
    content = encode(ParquetEncoder(row_group_bytes=1_000), batches, COLUMNS[:1])[1]
    assert group_rows(content) == [10] * 5


def test_a_row_larger_than_a_row_group_has_one_to_itself():
    lengths = [10, 20_000_000, 10, 10, 5_000, 5_000, 10]
    batch = pa.record_batch({"text": pa.array(["x" * length for length in lengths])})
    content = encode(ParquetEncoder(row_group_bytes=4_000), [batch], COLUMNS[:1])[1]
    assert group_rows(content) == [1, 1, 2, 1, 1, 1]
    assert [len(text) for text in read(content).read()["text"].to_pylist()] == lengths


def test_narrow_rows_fill_a_row_group_by_number():
    batches = [pa.record_batch({"flag": pa.array(np.zeros(700_000, np.bool_))})] * 3
    content = encode(ParquetEncoder(), batches, [Column("flag", ColumnType.BOOLEAN)])[1]
    assert group_rows(content) == [2**20, 2**20, 3 * 700_000 - 2**21]


# --- the same bytes ----------------------------------------------------------------------------------------------------------


def cut(table, rng):
    """The rows of a table in batches of random sizes, each text column dictionary-encoded or not by chance."""
    position = 0
    while position < table.num_rows or rng.random() < 0.2:
        size = rng.choice([0, 1, 3, 50, 400])
        piece = table.slice(position, size).combine_chunks()
        position += size
        arrays = []
        for column in piece.columns:
            array = column.combine_chunks() if column.num_chunks else pa.array([], column.type)
            if pa.types.is_string(array.type) and rng.random() < 0.5:
                array = dictionary_encoded(array, rng)
            arrays.append(array)
        yield pa.RecordBatch.from_arrays(arrays, names=table.column_names)


def dictionary_encoded(array, rng):
    """With unused, repeated and null values in the dictionary; the unused one is no JSON, which must matter to nobody."""
    values = ["unused", *array.unique().to_pylist(), *array.unique().to_pylist(), None]
    rng.shuffle(values)
    places = {}
    for place, value in enumerate(values):
        places.setdefault(value, []).append(place)
    indices = [None if value is None and rng.random() < 0.5 else rng.choice(places[value]) for value in array.to_pylist()]
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(values, pa.string()))


@settings(max_examples=12)
@given(st.integers(0, 2**32))
def test_the_same_rows_give_the_same_bytes_however_batched_and_encoded(seed):
    rng = random.Random(seed)
    rows = many_rows(rng, 900)
    for bad in rng.sample(range(900), 3):
        rows[bad]["value"] = "no JSON"
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    for encoder in (ParquetEncoder(row_group_bytes=40_000), JsonlEncoder("zstd")):
        whole = encode(encoder, table.to_batches())
        assert encode(encoder, cut(table, rng)) == whole
        assert whole[0].rows == 897


def test_pages_do_not_depend_on_batches_either():
    # Far more than a page (1 MiB) and than a dictionary may hold, so that all the writer's own cuts are met.
    rng = random.Random(7)
    texts = [rng.randbytes(rng.randrange(2_000)).hex() for _ in range(6_000)]
    table = pa.table({"text": pa.array(texts)})
    contents = {
        encode(ParquetEncoder(), table.to_batches(max_chunksize=size), COLUMNS[:1])[1] for size in (6_000, 1_000, 777, 100)
    }
    assert len(contents) == 1


# --- refusals, alike in both encoders ----------------------------------------------------------------------------------------


def strings(values):
    """A string array that may hold what is no UTF-8, as a Parquet reader hands it over."""
    binary = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(values), binary.buffers(), binary.null_count)


@pytest.mark.parametrize("encoder", [ParquetEncoder(), JsonlEncoder()])
@pytest.mark.parametrize("as_dictionary", [False, True])
def test_rows_that_cannot_be_encoded_are_named_and_the_rest_is_written(encoder, as_dictionary):
    def batch(texts, values, times):
        text, value = strings(texts), pa.array(values, pa.string())
        if as_dictionary:
            text, value = text.dictionary_encode(), value.dictionary_encode()
        return pa.record_batch({"text": text, "value": value, "at": pa.array(times, SCHEMA.field("at").type)})

    first_moment, last_moment = -62_135_596_800_000_000, 253_402_300_799_999_999
    batches = [
        batch([b"good", b"\xff", b"good", None], ["1", "2", "{", None], [0, 0, 0, None]),
        batch([b"good"] * 4, ["1"] * 4, [first_moment - 1, first_moment, last_moment, last_moment + 1]),
        batch([b"caf\xc3", b"caf\xc3\xa9"], ["[1,]", "NaN"], [2**62, 0]),
    ]
    columns = [COLUMNS[0], COLUMNS[6], COLUMNS[5]]
    answer, content = encode(encoder, batches, columns)
    assert answer.refused == [
        RefusedRow(1, "column 'text': not valid UTF-8"),
        RefusedRow(2, "column 'value': not valid JSON"),
        RefusedRow(4, "column 'at': timestamp outside the years 0001 to 9999"),
        RefusedRow(7, "column 'at': timestamp outside the years 0001 to 9999"),
        RefusedRow(8, "column 'text': not valid UTF-8"),
        RefusedRow(9, "column 'value': not valid JSON"),
    ]
    assert answer.rows == 4
    if encoder.spec.format == "parquet":
        assert read(content).read()["text"].to_pylist() == ["good", None, "good", "good"]
    else:
        assert [json.loads(line)["text"] for line in gzip.decompress(content).splitlines()] == ["good", None, "good", "good"]


def test_bad_utf8_in_a_json_column_is_called_that():
    answer, _ = encode(ParquetEncoder(), [pa.record_batch({"value": strings([b'"\xff"', b'"a"'])})], [COLUMNS[6]])
    assert answer.refused == [RefusedRow(0, "column 'value': not valid UTF-8")]


@pytest.mark.parametrize("encoder", [ParquetEncoder(), JsonlEncoder()])
def test_when_every_row_is_refused_an_empty_file_is_written(encoder):
    batch = pa.record_batch({"value": pa.array(["x", "y"])})
    answer, content = encode(encoder, [batch], [COLUMNS[6]])
    assert (answer.rows, len(answer.refused)) == (0, 2)
    assert content == encode(encoder, [], [COLUMNS[6]])[1]


@pytest.mark.parametrize("encoder", [ParquetEncoder(), JsonlEncoder()])
def test_a_dataset_without_columns_is_refused(encoder):
    with pytest.raises(ValueError, match="without columns"):
        encode(encoder, [], [])


# --- failures ----------------------------------------------------------------------------------------------------------------


class FullAfter:
    def __init__(self, limit):
        self.free = limit

    def write(self, data):
        self.free -= len(data)
        if self.free < 0:
            raise ConnectionError("gone")
        return len(data)


def noise(rows):
    return pa.record_batch({"text": pa.array([random.Random(row).randbytes(400).hex() for row in range(rows)])})


@pytest.mark.parametrize("limit", [0, 100, 100_000])
def test_a_failing_destination_ends_the_file_with_its_own_error(limit):
    with pytest.raises(ConnectionError, match="gone"):
        ParquetEncoder(row_group_bytes=100_000).encode([noise(2_000)], COLUMNS[:1], FullAfter(limit))


@pytest.mark.parametrize("encoder", [ParquetEncoder(row_group_bytes=100_000), JsonlEncoder()])
def test_rows_that_cannot_be_read_end_the_file_with_the_reader_s_error(encoder):
    def batches():
        yield noise(2_000)
        raise LookupError("the cache is gone")

    with pytest.raises(LookupError, match="the cache is gone"):
        encode(encoder, batches(), COLUMNS[:1])


# --- memory ------------------------------------------------------------------------------------------------------------------

PEAK = """
import resource, sys
import pyarrow as pa
from hypaware_pipeline.model import Column, ColumnType
from hypaware_pipeline.sinks.encoders.jsonl import JsonlEncoder
from hypaware_pipeline.sinks.encoders.parquet import ParquetEncoder
class Nowhere:
    def write(self, data):
        return len(data)
columns = [Column("tools", ColumnType.JSON), Column("text", ColumnType.STRING), Column("n", ColumnType.INT64)]
def batches(count):
    # 40 MB decoded each: a long JSON text repeated, 70 KB strings now and then.
    for number in range(count):
        tools = pa.array(['[' + '{"name":"tool"},' * 600 + str(number) + ']'])
        texts = pa.array([("x%d " % row) * (20_000 if row % 400 == 0 else 20) for row in range(4_000)])
        yield pa.record_batch({
            "tools": pa.DictionaryArray.from_arrays(pa.array([0] * 4_000, pa.int32()), tools),
            "text": texts,
            "n": pa.array(range(4_000)),
        })
encoder = ParquetEncoder() if sys.argv[1] == "parquet" else JsonlEncoder("zstd", 1)
encoder.encode(batches(1), columns, Nowhere())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
encoder.encode(batches(int(sys.argv[2])), columns, Nowhere())
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("encoder", ["parquet", "jsonl"])
def test_memory_does_not_grow_with_the_stream(encoder):
    # 600 MB decoded; what a first, small file took is already counted, so that only growth shows.
    done = subprocess.run([sys.executable, "-c", PEAK, encoder, "15"], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100


# --- settings ----------------------------------------------------------------------------------------------------------------


def test_the_spec_tells_everything_that_changes_the_bytes():
    assert dict(ParquetEncoder().spec.settings) == {"codec": "zstd", "level": 3, "row_group_bytes": 32 * 1024 * 1024}
    assert dict(ParquetEncoder("snappy", row_group_bytes=1024).spec.settings) == {"codec": "snappy", "row_group_bytes": 1024}
    assert ParquetEncoder("gzip").spec.settings["level"] == 6
    assert ParquetEncoder().spec.extension == "parquet"
    assert "queryable" in ParquetEncoder().spec.supports


def test_codec_and_level_reach_the_file():
    rng = random.Random(3)
    batch = pa.record_batch({"text": pa.array([" ".join(rng.choices(["alpha", "beta", "gamma"], k=40)) for _ in range(5_000)])})
    sizes = {}
    for codec, level, name in (
        ("zstd", 1, "ZSTD"),
        ("zstd", 19, "ZSTD"),
        ("none", None, "UNCOMPRESSED"),
        ("snappy", None, "SNAPPY"),
    ):
        content = encode(ParquetEncoder(codec, level), [batch], COLUMNS[:1])[1]
        assert read(content).metadata.row_group(0).column(0).compression == name
        sizes[codec, level] = len(content)
    assert sizes["zstd", 19] < sizes["zstd", 1] < sizes["snappy", None] < sizes["none", None]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"codec": "foo"}, "unknown codec 'foo': one of zstd, snappy, gzip, none"),
        ({"codec": "snappy", "level": 3}, "codec 'snappy' has no levels; leave 'level' out"),
        ({"codec": "zstd", "level": 23}, "level 23 of codec 'zstd' is not between 1 and 22"),
        ({"codec": "gzip", "level": 0}, "level 0 of codec 'gzip' is not between 1 and 9"),
        ({"row_group_bytes": 0}, "row_group_bytes 0 is not between 1 and"),
        ({"row_group_bytes": 2**31}, "row_group_bytes 2147483648 is not between"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ParquetEncoder(**options)
