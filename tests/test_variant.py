"""VARIANT to JSON text: exactly what JavaScript prints, whichever of the two ways a value takes."""

import datetime as dt
import json
import random
import struct
import subprocess
import sys
import uuid
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypaware_pipeline.cache import variant
from hypaware_pipeline.cache.variant_value import VariantError, js_number, render
from hypaware_pipeline.cache.variant_walk import survey
from tests import variant_bytes as vb

EMPTY = vb.metadata([])
# What `JSON.stringify` of Node 20 printed for these doubles.
NUMBERS = [
    (0.0, "0"), (-0.0, "0"), (1.0, "1"), (-1.0, "-1"), (12345678901.0, "12345678901"), (0.1, "0.1"),
    (0.3333333333333333, "0.3333333333333333"), (1e20, "100000000000000000000"),
    (123456789012345680000.0, "123456789012345680000"), (1e21, "1e+21"), (-1.5e300, "-1.5e+300"), (5e-324, "5e-324"),
    (0.000001, "0.000001"), (0.0000015, "0.0000015"), (1e-7, "1e-7"), (1.25e-7, "1.25e-7"), (0.00001234, "0.00001234"),
    (9007199254740992.0, "9007199254740992"), (1e16, "10000000000000000"), (1.7976931348623157e308, "1.7976931348623157e+308"),
    (4.35, "4.35"), (100.0, "100"), (1e15, "1000000000000000"), (123456.789, "123456.789"), (-0.000001, "-0.000001"),
    (9007199254740994.0, "9007199254740994"), (float("nan"), "null"), (float("inf"), "null"), (float("-inf"), "null"),
]  # fmt: skip


@pytest.fixture(scope="module")
def connection():
    with duckdb.connect() as connection:
        yield connection


def decoded(pairs, connection) -> variant.Texts:
    return variant.decode([vb.column(pairs)], connection)[0]


def js_text(value: Any) -> str:
    """What `JSON.stringify` prints, written a second time and without looking at any bytes."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value) if abs(value) < 2**53 else f'"{value}"'
        case float():
            return js_double(value)
        case str():
            return "".join(['"', *(escaped(character) for character in value), '"'])
        case list():
            return f"[{','.join(map(js_text, value))}]"
        case dict():
            fields = sorted(value.items(), key=lambda field: field[0].encode())
            return f"{{{','.join(f'{js_text(key)}:{js_text(item)}' for key, item in fields)}}}"
        case _:
            raise TypeError(type(value))


def escaped(character: str) -> str:
    short = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
    return short.get(character, character if character >= " " else f"\\u{ord(character):04x}")


def js_double(value: float) -> str:
    """The number-to-string rule of ECMA-262, by its own letters: k digits s, and n such that the value is s * 10^(n-k)."""
    if value != value or value in (float("inf"), float("-inf")):
        return "null"
    if value == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    s, k = "".join(map(str, digits)), len(digits)
    n = int(exponent) + k
    if k <= n <= 21:
        body = s + "0" * (n - k)
    elif 0 < n <= 21:
        body = f"{s[:n]}.{s[n:]}"
    elif -6 < n <= 0:
        body = f"0.{'0' * -n}{s}"
    else:
        body = f"{s[0]}{'.' + s[1:] if k > 1 else ''}e{'+' if n - 1 > 0 else '-'}{abs(n - 1)}"
    return f"{'-' if sign else ''}{body}"


scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300)
    | st.floats() | st.integers(-(10**15), 10**15).map(float)
    | st.text(max_size=80)
    | st.sampled_from(["1.0", ",5.0,", '":-0.0}', "\\u001F", "NaN", "\x1b[31m", "<a>\x00", "2024-01-01 10:00"])
)  # fmt: skip
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4), max_leaves=12
)


@given(rows=st.lists(values, min_size=1, max_size=12))
def test_both_ways_print_what_javascript_prints(connection, rows):
    keys = vb.keys_of(rows)
    metadata = vb.metadata(keys)
    encoded = [vb.encode(row, keys) for row in rows]
    expected = [js_text(row) for row in rows]

    assert [render(metadata, value) for value in encoded] == expected
    texts = decoded([(metadata, value) for value in encoded], connection)
    assert texts.array.to_pylist() == [None if row is None else text for row, text in zip(rows, expected, strict=True)]
    assert not texts.problems


@pytest.mark.parametrize(("number", "text"), NUMBERS)
def test_a_double_prints_as_in_javascript(number, text, connection):
    assert js_number(number) == js_double(number) == text
    nested = vb.array([vb.double(number), vb.text(f",{number!r},")])
    assert decoded([(EMPTY, vb.double(number)), (EMPTY, nested)], connection).array.to_pylist() == [
        text,
        f'[{text},",{number!r},"]',
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (vb.primitive(14, struct.pack("<f", 0.1)), "0.10000000149011612"),
        (vb.integer(2**53 - 1), "9007199254740991"),
        (vb.integer(2**53), '"9007199254740992"'),
        (vb.integer(-(2**63)), '"-9223372036854775808"'),
        (vb.decimal(150, 2, 4), "1.5"),
        (vb.decimal(-5, 3, 8), "-0.005"),
        (vb.decimal(100, 2), "1"),
        (vb.decimal(10**30, 0), "1" + "0" * 30),
        (vb.timestamp_micros(1_780_000_000_123_456), '"2026-05-28T20:26:40.123Z"'),
        (vb.timestamp_micros(-1, zoned=True), '"1969-12-31T23:59:59.999Z"'),
        (vb.timestamp_micros(253_402_300_800_000_000), '"+010000-01-01T00:00:00.000Z"'),
        (vb.timestamp_micros(-62_198_755_200_000_000), '"-000001-01-01T00:00:00.000Z"'),
        (vb.primitive(18, (1_500_000_001).to_bytes(8, "little")), '"1970-01-01T00:00:01.500Z"'),
        (vb.primitive(19, (1_500_000_001).to_bytes(8, "little")), '"1970-01-01T00:00:01.500Z"'),
        (vb.date(dt.date(2026, 6, 1)), '"2026-06-01"'),
        (vb.primitive(11, (4_000_000).to_bytes(4, "little")), '"+012921-08-18"'),
        (vb.primitive(17, (1_500_000).to_bytes(8, "little")), '"00:00:01.5"'),
        (vb.binary(b"\x00\xff<"), '"AP88"'),
        (vb.primitive(20, bytes(range(16))), f'"{uuid.UUID(bytes=bytes(range(16)))}"'),
        (vb.primitive(20, bytes(range(240, 256))), f'"{uuid.UUID(bytes=bytes(range(240, 256)))}"'),
        (vb.text("\x00\b\t\n\x0b\f\r\x1b\x1f\x7f/\\\" \u2028é😀"),
         '"\\u0000\\b\\t\\n\\u000b\\f\\r\\u001b\\u001f\x7f/\\\\\\" \u2028é😀"'),
        (vb.array([]), "[]"),
        (vb.obj([]), "{}"),
        (vb.array([vb.integer(1, 1)] * 300), f"[{','.join(['1'] * 300)}]"),
    ],
)  # fmt: skip
def test_a_type_json_does_not_have_prints_alike_alone_and_nested(value, text, connection):
    assert render(EMPTY, value) == text
    texts = decoded([(EMPTY, value), (EMPTY, vb.array([value]))], connection)
    assert texts.array.to_pylist() == [text, f"[{text}]"]


def test_keys_come_in_the_order_of_their_bytes_and_may_be_empty(connection):
    metadata = vb.metadata(["z", "", "\U0001f600", "\uffff"])
    value = vb.obj([(at, vb.integer(at, 1)) for at in range(4)])
    text = '{"":1,"z":0,"\uffff":3,"\U0001f600":2}'
    assert render(metadata, value) == text
    assert decoded([(metadata, value)], connection).array.to_pylist() == [text]


def test_absent_and_null_are_null_and_a_null_inside_is_kept(connection):
    metadata = vb.metadata(["a"])
    rows = [None, (metadata, None), (metadata, vb.NULL), (metadata, vb.obj([(0, vb.NULL)])), (metadata, vb.array([vb.NULL]))]
    texts = decoded(rows, connection)
    assert texts.array.to_pylist() == [None, None, None, '{"a":null}', "[null]"]
    assert not texts.problems


def test_a_column_of_nulls_and_a_column_of_nothing_decode_to_as_much(connection):
    assert decoded([None] * 5, connection).array.to_pylist() == [None] * 5
    assert decoded([], connection).array.to_pylist() == []
    assert variant.decode([], connection) == []


def test_repeated_values_become_a_dictionary_and_nulls_stay_out_of_it(connection):
    rows = [(EMPTY, vb.text("x" * 100)), None, (EMPTY, vb.NULL)] * 20
    array = decoded(rows, connection).array
    assert pa.types.is_dictionary(array.type)
    assert array.dictionary.null_count == 0
    assert array.to_pylist() == [f'"{"x" * 100}"', None, None] * 20


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (b"", "the value ends too early"),
        (vb.integer(5)[:4], "the value ends too early"),
        (vb.text(b"\xff\xfe"), "not valid UTF-8"),
        (vb.text(b"\xed\xa0\x80" + b"x" * 70), "not valid UTF-8"),
        (vb.primitive(40), "unknown primitive type 40"),
        (vb.obj([(0, vb.NULL), (0, vb.NULL)]), "a key twice"),
        (vb.obj([(9, vb.NULL)]), "does not have"),
        (vb.array([vb.NULL] * 3)[:-2], "ends too early"),
    ],
)
def test_a_damaged_value_costs_its_own_row_only(damage, reason, connection):
    metadata = vb.metadata(["a"])
    rows = [(metadata, vb.integer(number, 4)) for number in range(200)]
    rows[77] = rows[111] = (metadata, damage)
    texts = decoded(rows, connection)
    assert set(texts.problems) == {77, 111}
    assert reason in texts.problems[77]
    assert texts.array.to_pylist() == [None if at in (77, 111) else str(at) for at in range(200)]


def test_damaged_key_dictionaries_cost_their_own_rows_only(connection):
    good = vb.metadata(["a"])
    value = vb.obj([(0, vb.NULL)])
    bad = [b"", b"\x02\x00\x00", good[:-1], b"\xc1\xff\xff\xff\xff", b"\x01\x01\x01\x00a", b"\x01\x01\x00\x01\xff"]
    texts = decoded([(good, value), *((metadata, value) for metadata in bad)], connection)
    assert set(texts.problems) == set(range(1, 1 + len(bad)))
    assert texts.array.to_pylist() == ['{"a":null}', *[None] * len(bad)]


def test_an_array_that_claims_billions_of_elements_is_refused_before_memory_is_reserved():
    # DuckDB alone reserves 8 bytes for each claimed element: 32 GB here.
    program = """
import resource, sys
import duckdb
from tests import variant_bytes as vb
from hypaware_pipeline.cache import variant
claim = b"\\x1f\\xff\\xff\\xff\\xff" + bytes(40)
connection = duckdb.connect()
rows = [(vb.metadata(["a"]), value) for value in (vb.array([vb.text("x")]), claim, vb.array([claim]), vb.obj([(0, claim)]))]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
texts = variant.decode([vb.column(rows)], connection)[0]
grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert set(texts.problems) == {1, 2, 3}, texts
assert texts.array[0].as_py() == '["x"]'
assert grown_kb < 100_000, grown_kb
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert result.returncode == 0, result.stderr


def test_values_that_share_bytes_without_end_are_refused():
    # Each level points three times at the next: 3^40 values in 240 bytes.
    value = vb.NULL
    for _ in range(40):
        value = b"\x03\x03\x00\x00\x00" + bytes([0]) + value
    with pytest.raises(VariantError, match="overlap"):
        render(EMPTY, value)
    assert survey(pa.array([value, vb.NULL], pa.binary())).exact.tolist() == [True, False]


def test_deep_nesting_renders_without_recursion(connection):
    value = vb.integer(1, 1)
    for _ in range(2_000):
        value = b"\x0f\x01" + bytes(4) + len(value).to_bytes(4, "little") + value
    text = "[" * 2_000 + "1" + "]" * 2_000
    assert render(EMPTY, value) == text
    assert decoded([(EMPTY, value)], connection).array.to_pylist() == [text]


@given(rows=st.lists(values, min_size=1, max_size=4), chance=st.randoms(use_true_random=False))
def test_random_damage_never_does_more_than_name_the_row(connection, rows, chance: random.Random):
    keys = vb.keys_of(rows)
    metadata = vb.metadata(keys)
    pairs = []
    for row in rows:
        value = bytearray(vb.encode(row, keys))
        for _ in range(chance.randrange(3)):
            value[chance.randrange(len(value))] = chance.choice([0, 1, 255, 128, chance.randrange(256)])
        pairs.append((metadata, bytes(value[: chance.randrange(1, len(value) + 1)] if chance.random() < 0.2 else value)))
    texts = decoded(pairs, connection)
    for at, text in enumerate(texts.array.to_pylist()):
        if text is not None:
            json.loads(text)
        else:
            assert at in texts.problems or pairs[at][1] == vb.NULL
