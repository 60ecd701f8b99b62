"""Which row is which: whatever becomes of a cache, a row keeps its identity and shares it with no other."""

from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hypaware_pipeline.export.identity import Identified, identify, new_generation, next_generation
from hypaware_pipeline.model import FIRST_GENERATION, UNSEQUENCED, Generation, SourceName
from hypaware_pipeline.row_sets import Rows
from tests.day_rows import ARow, a_row, by_source, some_rows, unnumbered

A, B = SourceName("a"), SourceName("b")
FIRST, LATER = FIRST_GENERATION, Generation("5eeb6ab0")
SECOND = next_generation(FIRST)

Identity = tuple[int, int]
"""Key and token."""


def known_rows(rows: Iterable[ARow]) -> Rows:
    chosen = list(rows)
    return Rows.of(np.array([row.key for row in chosen], np.uint64), np.array([row.token for row in chosen], np.int64))


def pairs(rows: Rows) -> list[Identity]:
    return list(zip(rows.keys.tolist(), rows.tokens.tolist(), strict=True))


def generations_of(identified: Mapping[SourceName, Identified]) -> dict[Generation, list[Identity]]:
    """Every identity, by generation, over all sources."""
    found: dict[Generation, list[Identity]] = {}
    for each in identified.values():
        for generation, mask in each.by_generation():
            found.setdefault(generation, []).extend(pairs(each.rows(mask)))
    return {generation: sorted(rows) for generation, rows in found.items()}


def identified(
    rows: Mapping[str, Iterable[ARow]], known: Mapping[Generation, Rows] | None = None, **current: Generation
) -> dict[Generation, list[Identity]]:
    """`current` gives the generations of sources that are not in the first."""
    return generations_of(identify(by_source(rows), known or {}, {SourceName(each): current.get(each, FIRST) for each in rows}))


def of(*rows: ARow) -> list[Identity]:
    return sorted((row.key, row.token) for row in rows)


# --- rows with a number ---------------------------------------------------------------------------------------------------------


def test_rows_that_nobody_knows_are_of_their_sources_generation() -> None:
    rows = {"a": some_rows(1, 3), "b": some_rows(4, 5)}
    assert identified(rows, b=LATER) == {FIRST: of(*some_rows(1, 3)), LATER: of(*some_rows(4, 5))}
    assert identified({}) == {}
    assert identified({"a": []}) == {}


def test_a_known_row_keeps_its_generation_whatever_its_source_is_now() -> None:
    known = {FIRST: known_rows(some_rows(1, 3)), LATER: known_rows(some_rows(7, 7))}
    assert identified({"a": some_rows(1, 2), "b": some_rows(3, 7)}, known, a=LATER, b=LATER) == {
        FIRST: of(*some_rows(1, 3)),
        LATER: of(*some_rows(4, 7)),
    }


def test_a_number_that_a_known_row_had_at_another_moment_belongs_to_the_next_generation() -> None:
    """HypAware lost its counter: taken for the row that had the number first, the new one would never be exported."""
    known = {FIRST: known_rows(some_rows(1, 3))}
    again = [ARow(2, a_row(2).token + 5), ARow(4, a_row(4).token)]
    assert identified({"a": [*some_rows(1, 3), *again]}, known) == {
        FIRST: of(*some_rows(1, 3), again[1]),
        SECOND: of(again[0]),
    }


def test_a_number_stays_taken_when_the_row_that_had_it_is_gone() -> None:
    known = {FIRST: known_rows(some_rows(1, 3))}
    assert identified({"a": [ARow(2, 5)]}, known) == {SECOND: [(2, 5)]}


def test_numbers_used_thrice_make_three_generations() -> None:
    thrice = [ARow(1, moment) for moment in (10, 20, 30)]
    assert identified({"a": thrice}) == {
        FIRST: [(1, 10)],
        SECOND: [(1, 20)],
        next_generation(SECOND): [(1, 30)],
    }


def test_a_row_that_is_in_two_sources_while_it_moves_is_two_rows_and_then_one() -> None:
    moving = {"a": some_rows(1, 2), "b": some_rows(2, 2)}
    both = identified(moving)
    assert both == {FIRST: of(*some_rows(1, 2)), SECOND: of(a_row(2))}
    known = {generation: known_rows(ARow(*each) for each in rows) for generation, rows in both.items()}
    assert identified(moving, known) == both
    assert identified({"a": some_rows(1, 1), "b": some_rows(2, 2)}, known) == {FIRST: of(*some_rows(1, 2))}


def test_generations_have_names_that_tell_them_apart() -> None:
    assert len({FIRST, SECOND, next_generation(SECOND), new_generation("a"), new_generation("a", "b"), new_generation("b")}) == 6
    assert new_generation("a", "b") == new_generation("a", "b")
    assert new_generation("\udcff")


# --- rows without ---------------------------------------------------------------------------------------------------------------


def test_rows_that_are_alike_in_everything_are_told_apart_and_those_that_are_left_are_the_same() -> None:
    of_rows = [identified({"a": [unnumbered(1)] * count})[UNSEQUENCED] for count in (1, 2, 3)]
    assert [len(set(rows)) for rows in of_rows] == [1, 2, 3]
    assert set(of_rows[0]) < set(of_rows[1]) < set(of_rows[2])
    assert of_rows[0] == of(unnumbered(1))


def test_alike_rows_of_two_sources_are_told_apart_as_those_of_one_are() -> None:
    apart = identified({"a": [unnumbered(1)] * 2, "b": [unnumbered(1)]})
    assert apart == identified({"a": [unnumbered(1)] * 3}) == identified({"b": [unnumbered(1)] * 3}, b=LATER)


def test_a_number_that_equals_a_hash_is_no_hash() -> None:
    row = unnumbered(1)
    numbered = ARow(row.key, row.token)
    assert identified({"a": [row, numbered]}) == {UNSEQUENCED: of(row), FIRST: of(numbered)}
    known = {UNSEQUENCED: known_rows([row])}
    assert identified({"a": [numbered]}, known) == {FIRST: of(numbered)}


# --- whatever happens -----------------------------------------------------------------------------------------------------------

NUMBERED = st.builds(ARow, st.integers(1, 4), st.integers(0, 2))
ROW = NUMBERED | st.integers(0, 2).map(unnumbered)
CACHE = st.dictionaries(st.sampled_from("abc"), st.lists(ROW, max_size=8))
KNOWN = st.dictionaries(
    st.sampled_from([FIRST, LATER, SECOND]),
    st.lists(NUMBERED, max_size=4, unique_by=lambda row: row.key).map(known_rows),
)


@given(CACHE, KNOWN)
def test_every_row_has_one_identity_and_no_two_rows_the_same(
    cache: Mapping[str, list[ARow]], known: Mapping[Generation, Rows]
) -> None:
    rows = by_source(cache)
    result = identify(rows, known, dict.fromkeys(rows, FIRST))
    for source, each in result.items():
        assert (each.labels >= 0).all()
        assert np.array_equal(each.tokens, rows[source].tokens)
        assert np.array_equal(each.keys[rows[source].sequenced], rows[source].keys[rows[source].sequenced])
        assert np.array_equal(each.labels == 0, ~rows[source].sequenced)
    found = generations_of(result)
    assert sum(map(len, found.values())) == sum(map(len, cache.values()))
    for generation, identities in found.items():
        assert len({key for key, _ in identities}) == len(identities), generation


@given(CACHE, KNOWN)
def test_a_row_is_found_wherever_it_is_known_and_takes_no_number_of_another(
    cache: Mapping[str, list[ARow]], known: Mapping[Generation, Rows]
) -> None:
    there = Counter((row.key, row.token) for rows in cache.values() for row in rows if row.sequenced)
    found = identified(cache, known)
    for identity, copies in there.items():
        knowing = [generation for generation, rows in known.items() if identity in pairs(rows)]
        again = [generation for generation in knowing if identity in found.get(generation, [])]
        assert len(again) == min(copies, len(knowing))
    for generation, rows in known.items():
        taken = dict(pairs(rows))
        assert all(taken.get(key, token) == token for key, token in found.get(generation, []))


@given(CACHE, KNOWN, st.sampled_from([FIRST, LATER]), st.randoms(use_true_random=False))
def test_once_known_rows_keep_their_identities_wherever_they_go(
    cache: Mapping[str, list[ARow]], known: Mapping[Generation, Rows], current: Generation, random: Random
) -> None:
    """A row that another source holds under another identity would be exported twice."""
    before = identified(cache, known)
    everything = {generation: known_rows(ARow(*each) for each in rows) for generation, rows in before.items()}
    rows = [row for each in cache.values() for row in each]
    random.shuffle(rows)
    border = random.randint(0, len(rows))
    assert identified({"c": rows[border:], "d": rows[:border]}, everything, c=current, d=current) == before


@given(CACHE, KNOWN)
def test_the_order_in_which_sources_are_given_does_not_matter(
    cache: Mapping[str, list[ARow]], known: Mapping[Generation, Rows]
) -> None:
    backwards = {each: cache[each] for each in reversed([*cache])}, {each: known[each] for each in reversed([*known])}
    assert identified(*backwards, b=LATER) == identified(cache, known, b=LATER)
