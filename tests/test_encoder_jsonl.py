"""JSONL: every value as HypAware's own lines have it, the same bytes however the rows come."""

import gzip
import io
import json
import math
import random

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hypaware_pipeline.arrow_types import ARROW_TYPES
from hypaware_pipeline.model import Column, ColumnType
from hypaware_pipeline.plugins.contracts import Encoder, RefusedRow
from hypaware_pipeline.sinks.encoders.compression import BLOCK_BYTES, CompressedStream, GzipBlocks, ZstdBlocks
from hypaware_pipeline.sinks.encoders.json_kernels import JsonKernels
from hypaware_pipeline.sinks.encoders.jsonl import JsonlEncoder


def encode(encoder, batches, columns):
    out = io.BytesIO()
    answer = encoder.encode(batches, columns, out)
    return answer, out.getvalue()


def text_of(column_type, values):
    """What stands on the lines for these values of one column."""
    batch = pa.record_batch({"v": pa.array(values, ARROW_TYPES[column_type])})
    answer, content = encode(JsonlEncoder(), [batch], [Column("v", column_type)])
    assert answer.rows == len(values)
    lines = gzip.decompress(content).decode().split("\n")
    assert lines.pop() == ""
    return [line.removeprefix('{"v":').removesuffix("}") for line in lines]


# --- values ------------------------------------------------------------------------------------------------------------------


def test_columns_stand_in_order_with_nulls_kept_and_others_left_out():
    batch = pa.record_batch({"_hyp_ingest_seq": pa.array([7]), "b": pa.array(["x"]), 'a"\n': pa.array([None], pa.int32())})
    _, content = encode(JsonlEncoder(), [batch], [Column('a"\n', ColumnType.INT32), Column("b", ColumnType.STRING)])
    assert gzip.decompress(content) == b'{"a\\"\\n":null,"b":"x"}\n'


def test_integers_of_64_bits_are_decimal_text_and_of_32_bits_numbers():
    extremes = [2**63 - 1, -(2**63), 0, None]
    assert text_of(ColumnType.INT64, extremes) == ['"9223372036854775807"', '"-9223372036854775808"', '"0"', "null"]
    assert text_of(ColumnType.INT32, [2**31 - 1, -(2**31), None]) == ["2147483647", "-2147483648", "null"]


def test_booleans_are_words():
    assert text_of(ColumnType.BOOLEAN, [True, False, None]) == ["true", "false", "null"]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1"), (-0.0, "0"), (0.1, "0.1"), (100.0, "100"), (12345678901.5, "12345678901.5"),
        (999999999999999.9, "999999999999999.9"),
        (1e15, "1000000000000000"), (-1e20, "-100000000000000000000"), (123456789012345680000.0, "123456789012345680000"),
        (1e21, "1e+21"), (-1.5e300, "-1.5e+300"), (1e-6, "0.000001"), (1e-7, "1e-7"), (-1.5e-7, "-1.5e-7"), (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (math.nan, "null"), (math.inf, "null"), (-math.inf, "null"), (None, "null"),
    ],
)  # fmt: skip
def test_doubles_are_printed_as_javascript_prints_them(number, text):
    assert text_of(ColumnType.DOUBLE, [number]) == [text]


@settings(max_examples=25)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_every_double_reads_back_as_it_was(numbers):
    assert [float(text) for text in text_of(ColumnType.DOUBLE, numbers)] == numbers


def test_timestamps_have_milliseconds_cut_towards_the_past():
    microseconds = [0, -1, 1_999, 1_780_358_400_000_000, -62_135_596_800_000_000, 253_402_300_799_999_999, None]
    assert text_of(ColumnType.TIMESTAMP, microseconds) == [
        '"1970-01-01T00:00:00.000Z"',
        '"1969-12-31T23:59:59.999Z"',
        '"1970-01-01T00:00:00.001Z"',
        '"2026-06-02T00:00:00.000Z"',
        '"0001-01-01T00:00:00.000Z"',
        '"9999-12-31T23:59:59.999Z"',
        "null",
    ]


@settings(max_examples=25)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.none(), min_size=1, max_size=30))
@example(["\0\x01\x1f\x7f", '"\\/\b\f\n\r\t', "é😀\u2028\u2029\ufeff", "", "null", "x" * 70_000])
def test_every_string_reads_back_as_it_was(strings):
    assert [json.loads(text) for text in text_of(ColumnType.STRING, strings)] == strings


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=25)
@given(st.lists(JSON_VALUES, min_size=1, max_size=20), st.sampled_from([None, 1]))
def test_json_is_embedded_as_json(values, indent):
    texts = [json.dumps(value, indent=indent) for value in values]
    assert [json.loads(text) for text in text_of(ColumnType.JSON, texts)] == values


def test_a_compact_json_text_is_not_touched():
    texts = ['{"b":1.0,"a":[1e2,"\\u00e9/"],"b":9007199254740993}', "true", '"NaN, inf ,]"', "null"]
    assert text_of(ColumnType.JSON, texts) == texts


def test_a_line_break_between_json_tokens_does_not_end_the_line():
    assert text_of(ColumnType.JSON, ['{\r\n "a":\n1}\n']) == ['{   "a": 1} ']


# --- refusals ----------------------------------------------------------------------------------------------------------------

NOT_JSON = [
    "", " ", "nope", "NaN", "-inf", "[1,nan]", '{"a": -Infinity}', "[1,]", '{"a":1 ,}',
    '{"a":1,' + " " * 20 + "}", '"a\nb"', "1 2", "'a'", "01", '{"a"}', '"\\ud800"', "//c\n1", "\ufeff1", "[", '"',
]  # fmt: skip


@pytest.mark.parametrize("text", NOT_JSON)
def test_a_text_that_is_no_json_is_refused_and_the_others_written(text):
    batch = pa.record_batch({"v": pa.array(['{"a":1}', text, "[]"])})
    answer, content = encode(JsonlEncoder(), [batch], [Column("v", ColumnType.JSON)])
    assert (answer.rows, answer.refused) == (2, [RefusedRow(1, "column 'v': not valid JSON")])
    assert gzip.decompress(content) == b'{"v":{"a":1}}\n{"v":[]}\n'


def is_json(text):
    def refuse(word):
        raise ValueError(word)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


FRAGMENTS = [
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    '"a"',
    '"nan"',
    '"\\"',
    "1",
    "01",
    "1e5",
    "-",
    "NaN",
    "nan",
    "inf",
    "null",
    " ",
    "\n",
    " " * 9,
]


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_what_is_json_is_what_the_standard_says(seed):
    rng = random.Random(seed)
    texts = ["".join(rng.choices(FRAGMENTS, k=rng.randrange(8))) for _ in range(500)]
    with JsonKernels() as kernels:
        (invalid,) = kernels.invalid([pa.array(texts)])
        assert [not bad for bad in invalid] == [is_json(text) for text in texts]


# --- bytes -------------------------------------------------------------------------------------------------------------------


def test_the_gzip_header_names_neither_time_nor_file():
    _, content = encode(JsonlEncoder(), [], [Column("v", ColumnType.STRING)])
    assert content[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    assert gzip.decompress(content) == b""


def test_zero_rows_make_an_empty_zstd_file():
    _, content = encode(JsonlEncoder("zstd"), [], [Column("v", ColumnType.STRING)])
    assert zstandard.ZstdDecompressor().decompressobj().decompress(content) == b""


def cut(data, sizes):
    position = 0
    while position < len(data):
        size = sizes[position % len(sizes)]
        yield data[position : position + size]
        position += size


@pytest.mark.parametrize("compressor", [GzipBlocks, ZstdBlocks])
@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 5 * BLOCK_BYTES + 77])
def test_compressed_bytes_do_not_depend_on_how_they_were_written(compressor, size):
    data = (random.Random(1).randbytes(50_000) * (size // 50_000 + 1))[:size]
    contents = []
    for sizes in ([size or 1], [1_000, 65_537, 3], [3 * BLOCK_BYTES, 7]):
        out = io.BytesIO()
        with CompressedStream(compressor(out, 3)) as stream:
            for piece in cut(data, sizes):
                assert stream.write(piece) == len(piece)
        contents.append(out.getvalue())
    assert contents[0] == contents[1] == contents[2]
    read = gzip.decompress if compressor is GzipBlocks else zstandard.ZstdDecompressor().decompressobj().decompress
    assert read(contents[0]) == data


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_duckdb_and_pandas_read_what_was_written(tmp_path, compression):
    encoder: Encoder = JsonlEncoder(compression)
    columns = [Column("s", ColumnType.STRING), Column("n", ColumnType.INT64), Column("j", ColumnType.JSON)]
    rows = 30_000
    batch = pa.record_batch(
        {
            "s": pa.array([f"line {number}\n😀" for number in range(rows)]),
            "n": pa.array(range(2**62, 2**62 + rows)),
            "j": pa.array([f'{{"a":[{number}]}}' for number in range(rows)]),
        }
    )
    path = tmp_path / f"x.{encoder.spec.extension}"
    with path.open("wb") as out:
        assert encoder.encode([batch], columns, out).rows == rows
    with duckdb.connect() as connection:
        query = "SELECT count(*), sum(j.a[1])::BIGINT, min(n), count(*) FILTER (s LIKE '%😀') FROM read_json(?)"
        assert connection.execute(query, [str(path)]).fetchone() == (rows, sum(range(rows)), str(2**62), rows)
    frame = pd.read_json(path, lines=True, dtype={"n": "string"}, compression="gzip" if compression == "gzip" else "zstd")
    assert (len(frame), frame["s"][1], frame["j"][2]) == (rows, "line 1\n😀", {"a": [2]})


def test_values_larger_than_a_block_pass_through():
    big = "a\u2028\n" * (3 * BLOCK_BYTES // 3)
    assert [json.loads(text) for text in text_of(ColumnType.STRING, [big, None, big])] == [big, None, big]


def test_a_failing_destination_ends_the_stream_with_its_own_error():
    class Full:
        def write(self, _data):
            raise ConnectionError("gone")

    batch = pa.record_batch({"v": pa.array([random.Random(1).randbytes(1000).hex()] * 10_000)})
    with pytest.raises(ConnectionError, match="gone"):
        JsonlEncoder().encode([batch], [Column("v", ColumnType.STRING)], Full())


# --- settings ----------------------------------------------------------------------------------------------------------------


def test_the_spec_tells_everything_that_changes_the_bytes():
    assert dict(JsonlEncoder().spec.settings) == {"compression": "gzip", "level": 6}
    assert dict(JsonlEncoder("zstd", 19).spec.settings) == {"compression": "zstd", "level": 19}
    assert [JsonlEncoder(name).spec.extension for name in ("gzip", "zstd")] == ["jsonl.gz", "jsonl.zst"]


def test_a_higher_level_makes_a_smaller_file():
    batch = pa.record_batch({"v": pa.array([f"{number:b}" for number in range(5000)])})
    for compression, low, high in (("gzip", 1, 9), ("zstd", 1, 19)):
        sizes = [
            len(encode(JsonlEncoder(compression, level), [batch], [Column("v", ColumnType.STRING)])[1]) for level in (low, high)
        ]
        assert sizes[1] < sizes[0]


@pytest.mark.parametrize(
    ("compression", "level", "message"),
    [
        ("brotli", None, "unknown compression 'brotli': one of gzip, zstd"),
        ("gzip", 0, "level 0 of compression 'gzip' is not between 1 and 9"),
        ("zstd", 23, "level 23 of compression 'zstd' is not between 1 and 22"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(compression, level, message):
    with pytest.raises(ValueError, match=message):
        JsonlEncoder(compression, level)
