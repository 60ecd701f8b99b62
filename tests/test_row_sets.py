"""Sets of rows: nothing is lost on the way into a receipt and back, and damage is noticed."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypaware_pipeline.model import RowSet
from hypaware_pipeline.row_sets import MICROSECONDS_PER_DAY, NO_DAY, UNTIMED, Rows, pack, raw_days_of, unpack

KEYS = st.integers(0, 2**64 - 1) | st.integers(0, 9)
TOKENS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2)
ROWS = st.dictionaries(KEYS, TOKENS)
"""Rows of one generation: the token of each key."""

Known = Mapping[int, int]


def rows_of(known: Known) -> Rows:
    return Rows.of(np.array([*known], np.uint64), np.array([*known.values()], np.int64))


def known_of(rows: Rows) -> Known:
    return dict(zip(rows.keys.tolist(), rows.tokens.tolist(), strict=True))


# --- packed ---------------------------------------------------------------------------------------------------------------------


@given(ROWS)
def test_a_set_unpacked_is_the_one_that_was_packed(known: Known) -> None:
    packed = pack(rows_of(known))
    rows = unpack(packed)
    assert known_of(rows) == known
    assert rows.keys.tolist() == sorted(known)
    assert packed.rows == len(rows) == len(known)


@given(ROWS, st.randoms(use_true_random=False))
def test_the_same_rows_are_the_same_bytes_in_whatever_order_they_come(known: Known, random: Random) -> None:
    shuffled = [*known]
    random.shuffle(shuffled)
    assert pack(rows_of({key: known[key] for key in shuffled})) == pack(rows_of(known))


@given(ROWS)
def test_a_set_survives_its_way_into_a_document_and_back(known: Known) -> None:
    packed = pack(rows_of(known))
    assert RowSet.from_json(packed.to_json()) == packed


def test_a_hundred_thousand_rows_in_a_row_take_little_room() -> None:
    """Receipts are read whole: a year of them must not weigh what the rows weigh."""
    keys = np.arange(1, 100_001, dtype=np.uint64)
    tokens = 1_780_000_000_000_000 + np.cumsum(np.arange(100_000, dtype=np.int64) % 1_000_000)
    packed = pack(Rows.of(keys, tokens))
    assert len(packed.keys) < 100
    assert len(packed.tokens) < 3 * 100_000


A_SET = pack(rows_of({number: number * 1000 for number in range(1, 2000, 2)}))
EMPTY = pack(Rows.none())


@pytest.mark.parametrize(
    "damaged",
    [
        replace(A_SET, keys=b""),
        replace(A_SET, keys=A_SET.keys[:-1]),
        replace(A_SET, keys=A_SET.keys[:3]),
        replace(A_SET, keys=EMPTY.keys),
        replace(A_SET, tokens=b""),
        replace(A_SET, tokens=A_SET.tokens[:-1]),
        replace(A_SET, tokens=EMPTY.tokens),
        replace(A_SET, rows=999),
        replace(EMPTY, rows=1),
    ],
)
def test_a_damaged_set_is_refused_and_says_of_how_many_rows_it_was(damaged: RowSet) -> None:
    with pytest.raises(ValueError, match=rf"a row set (of|says) {damaged.rows} rows"):
        unpack(damaged)


@given(st.binary(max_size=40), st.integers(0, len(A_SET.keys) - 1), st.integers(0, 255))
def test_whatever_bytes_a_set_is_made_of_it_is_refused_or_holds_what_it_says(noise: bytes, at: int, byte: int) -> None:
    changed = A_SET.keys[:at] + bytes([byte]) + A_SET.keys[at + 1 :]
    for damaged in (RowSet(3, noise, A_SET.tokens), RowSet(3, A_SET.keys, noise), replace(A_SET, keys=changed)):
        try:
            rows = unpack(damaged)
        except ValueError:
            continue
        assert len(rows.keys) == len(rows.tokens) == damaged.rows


# --- compared -------------------------------------------------------------------------------------------------------------------


@given(ROWS, st.lists(st.tuples(KEYS, TOKENS)))
def test_a_row_is_found_by_its_key_and_its_token_and_its_key_is_taken_by_any_row(
    known: Known, other: list[tuple[int, int]]
) -> None:
    asked = [*other, *known.items(), *((key, token ^ 1) for key, token in known.items())]
    keys, tokens = np.array([key for key, _ in asked], np.uint64), np.array([token for _, token in asked], np.int64)
    here, taken = rows_of(known).find(keys, tokens)
    assert here.tolist() == [known.get(key) == token for key, token in asked]
    assert taken.tolist() == [key in known for key, _ in asked]


@given(ROWS, ROWS)
def test_what_is_without_others_is_what_only_it_has(one: Known, other: Known) -> None:
    mixed = {**other, **dict(list(one.items())[::2])}
    assert known_of(rows_of(one).without(rows_of(mixed))) == dict(one.items() - mixed.items())


@given(st.lists(ROWS, max_size=4))
def test_sets_together_hold_every_row_once_and_of_a_key_the_first(sets: list[Known]) -> None:
    expected: dict[int, int] = {}
    for known in reversed(sets):
        expected.update(known)
    together = Rows.together([rows_of(known) for known in sets])
    assert known_of(together) == expected
    assert together.keys.tolist() == sorted(expected)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3))))
def test_layers_hold_every_row_as_often_as_it_came_and_each_key_once(rows: list[tuple[int, int]]) -> None:
    keys, tokens = np.array([key for key, _ in rows], np.uint64), np.array([token for _, token in rows], np.int64)
    layers = Rows.layers(keys, tokens)
    assert sorted((int(key), int(token)) for each in layers for key, token in zip(each.keys, each.tokens, strict=True)) == sorted(
        rows
    )
    assert all(np.array_equal(each.keys, np.unique(each.keys)) and len(each) for each in layers)
    most = max((sum(key == other for other, _ in rows) for key, _ in rows), default=0)
    assert len(layers) == most


# --- days -----------------------------------------------------------------------------------------------------------------------


@given(st.datetimes(min_value=dt.datetime(1, 1, 1), max_value=dt.datetime(9999, 12, 31)))
def test_a_token_tells_the_raw_day_of_its_moment(moment: dt.datetime) -> None:
    epoch = dt.datetime(1970, 1, 1)
    token = (moment - epoch) // dt.timedelta(microseconds=1)
    assert raw_days_of(np.array([token])).tolist() == [(moment.date() - epoch.date()).days]


@given(st.lists(TOKENS))
def test_any_token_tells_one_day_or_none(tokens: list[int]) -> None:
    days = raw_days_of(np.array(tokens, np.int64))
    assert days.dtype == np.int32
    for token, day in zip(tokens, days.tolist(), strict=True):
        assert day == (NO_DAY if token < UNTIMED else token // MICROSECONDS_PER_DAY)
