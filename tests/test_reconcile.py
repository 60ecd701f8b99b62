"""What becomes of a day at a sink, decided from values alone: what is written, what stays and why; every row is counted."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypaware_pipeline.export.identity import next_generation
from hypaware_pipeline.export.reconcile import DayWork, Situation, SourceState, Whereabouts, Write, reconcile
from hypaware_pipeline.model import (
    FIRST_GENERATION,
    UNSEQUENCED,
    Chain,
    DatasetName,
    Day,
    ExportedFile,
    Fingerprint,
    Generation,
    Kept,
    Part,
    Receipt,
    SetAside,
    SinkName,
    SourceName,
)
from hypaware_pipeline.row_sets import Rows, pack, unpack
from tests.day_rows import ARow, a_row, by_source, raw_day, some_rows, unnumbered

DAY = "2026-06-05"
LATER = Generation("5eeb6ab0")
REUSED = next_generation(FIRST_GENERATION)

Cache = Mapping[str, Sequence[ARow]]


def state(
    *, chain: str = "c1", generation: Generation = FIRST_GENERATION, cutoff: str | None = None, settled: bool = True
) -> SourceState:
    """A source; `cutoff` is the day before which retention removed everything."""
    return SourceState(Chain(chain), generation, None if cutoff is None else raw_day(cutoff) * 86_400_000, settled)


RETIRED = state(cutoff="2026-06-06")
"""Retention reached the day."""
UNSETTLED = state(settled=False)
OTHER_CHAIN = state(chain="c2")
RESET = state(chain="c2", generation=LATER)


def a_situation(
    cache: Cache, standing: Receipt | None = None, *, of: Mapping[str, SourceState] | None = None, **changes: Any
) -> Situation:
    """A day. Sources are as they were in the beginning, but those that `of` tells; an unreadable one is named in `changes`."""
    unreadable = changes.get("unreadable", ())
    readable = {source: rows for source, rows in cache.items() if source not in unreadable}
    states = {SourceName(source): state() for source in readable} | {SourceName(each): it for each, it in (of or {}).items()}
    plain = {"raw_day": raw_day(DAY), "standing": standing}
    return Situation(rows=by_source(readable), sources=states, **{**plain, **changes})


def a_name(part: Part) -> str:
    span = [] if part.span is None else ["{}-{}".format(*part.span)]
    return ".".join([part.source, *([] if part.mark is None else [f"g{part.mark}"]), *span])


def decided(situation: Situation) -> DayWork:
    """The decision; what holds for every one of them is seen to hold for it."""
    work = reconcile(situation, a_name)
    keys = [*(write.key for write in work.writes), *(file.key for file in work.stays)]
    assert len({*keys}) == len(keys), "no object is written over one that stays"
    counted = Counter(_identities(work))
    assert max(counted.values(), default=1) == 1, "no row is in two objects"
    assert _exported(situation, work).balanced
    return work


def _identities(work: DayWork) -> Iterable[tuple[Generation, int, int]]:
    sets = [(write.generation, unpack(write.row_set)) for write in work.writes]
    sets += [(file.generation, unpack(file.row_set)) for file in work.stays]
    sets += [(each.generation, unpack(each.row_set)) for each in work.set_aside]
    return [(generation, *pair) for generation, rows in sets for pair in _pairs(rows)]


def _pairs(rows: Rows) -> list[tuple[int, int]]:
    return list(zip(rows.keys.tolist(), rows.tokens.tolist(), strict=True))


def _exported(situation: Situation, work: DayWork, *, parks: Iterable[int] = ()) -> Receipt:
    """The receipt of the export that does what was decided; an encoder refuses the rows with the numbers `parks`."""
    files, aside = [*work.stays], [*work.set_aside]
    for write in work.writes:
        rows = unpack(write.row_set)
        refused = np.isin(rows.keys, np.array([*parks], np.uint64))
        if not refused.all():
            files.append(_file(write, Rows(rows.keys[~refused], rows.tokens[~refused])))
        if refused.any():
            parked = pack(Rows(rows.keys[refused], rows.tokens[refused]))
            aside.append(SetAside("parked", write.source, write.generation, parked))
    return Receipt(
        sink=SinkName("feed"),
        dataset=DatasetName("logs"),
        day=Day(DAY),
        destination="d",
        ledger_id="l",
        fingerprint=Fingerprint("f"),
        rows=sum(map(len, situation.rows.values())),
        kept_rows=work.kept_rows,
        kept=work.kept,
        elsewhere_rows=work.elsewhere_rows,
        files=tuple(files),
        set_aside=tuple(aside),
        parked=(),
        unreadable={},
        exported_at="2026-06-10T12:00:00.000Z",
        seconds=0.0,
    )


def _file(write: Write, rows: Rows) -> ExportedFile:
    said = (write.source, write.generation, write.chain, write.content, pack(rows))
    return ExportedFile(write.key, 1, "0" * 64, *said)


def exported(cache: Cache, standing: Receipt | None = None, *, parks: Iterable[int] = (), **changes: Any) -> Receipt:
    """What lies at a sink after an export."""
    situation = a_situation(cache, standing, **changes)
    return _exported(situation, decided(situation), parks=parks)


@dataclass(frozen=True)
class Decided:
    """A decision in words: numbers of the rows by key of the object to be written, keys of objects that stay, and the rest."""

    written: Mapping[str, Sequence[int]] = field(default_factory=dict)
    stays: tuple[str, ...] = ()
    kept: Kept = Kept.NOTHING
    kept_rows: int = 0
    elsewhere_rows: int = 0


def in_words(work: DayWork) -> Decided:
    written = {write.key: unpack(write.row_set).keys.tolist() for write in work.writes}
    return Decided(written, tuple(file.key for file in work.stays), work.kept, work.kept_rows, work.elsewhere_rows)


# --- one source -----------------------------------------------------------------------------------------------------------------

THREE = some_rows(1, 3)


@pytest.mark.parametrize(
    ("now", "source", "expected"),
    [
        pytest.param(THREE, state(), Decided(stays=("a",)), id="unchanged"),
        pytest.param(THREE[::-1], state(), Decided(stays=("a",)), id="compacted: the same rows in another order"),
        pytest.param(some_rows(1, 5), state(), Decided({"a": [1, 2, 3, 4, 5]}), id="grown"),
        pytest.param([a_row(0), *THREE], state(), Decided({"a": [0, 1, 2, 3]}), id="committed late with a lower number"),
        pytest.param([*THREE[:2], a_row(3, version=1)], state(), Decided({"a": [1, 2, 3]}), id="settled"),
        pytest.param([a_row(3)], state(), Decided({"a": [3]}), id="purged"),
        pytest.param([], state(), Decided(), id="purged wholly"),
        pytest.param([a_row(3)], UNSETTLED, Decided({}, ("a",), Kept.SETTLING, 2), id="purged a moment ago"),
        pytest.param([*THREE[2:], a_row(7)], UNSETTLED, Decided({"a.7-7": [7]}, ("a",), Kept.SETTLING, 2), id="and grown"),
        pytest.param(some_rows(1, 5), UNSETTLED, Decided({"a": [1, 2, 3, 4, 5]}), id="grown, others purged a moment ago"),
        pytest.param([a_row(3)], OTHER_CHAIN, Decided({}, ("a",), Kept.UNPROVEN, 2), id="half of it restored"),
        pytest.param([], OTHER_CHAIN, Decided({}, ("a",), Kept.UNPROVEN, 3), id="nothing of it restored"),
        pytest.param(some_rows(3, 5), OTHER_CHAIN, Decided({"a.4-5": [4, 5]}, ("a",), Kept.UNPROVEN, 2), id="restored, went on"),
        pytest.param(THREE, OTHER_CHAIN, Decided(stays=("a",)), id="restored whole"),
        pytest.param(some_rows(1, 4), OTHER_CHAIN, Decided({"a": [1, 2, 3, 4]}), id="restored whole, went on"),
        pytest.param(some_rows(1, 2), RESET, Decided({}, ("a",), Kept.UNPROVEN, 1), id="reset, some rows known all the same"),
        pytest.param(THREE, RETIRED, Decided(stays=("a",)), id="retention reached the day and took nothing yet"),
        pytest.param([a_row(3)], RETIRED, Decided({}, ("a",), Kept.FROZEN, 2), id="retention took some"),
        pytest.param([], RETIRED, Decided({}, ("a",), Kept.FROZEN, 3), id="retention took all"),
        pytest.param(some_rows(1, 4), RETIRED, Decided({"a.4-4": [4]}, ("a",)), id="late rows of a frozen day"),
        pytest.param(some_rows(3, 5), RETIRED, Decided({"a.4-5": [4, 5]}, ("a",), Kept.FROZEN, 2), id="the same, some are gone"),
        pytest.param([a_row(3)], state(cutoff=DAY), Decided({"a": [3]}), id="retention came as far as the day begins"),
    ],
)
def test_of_one_source(now: Sequence[ARow], source: SourceState, expected: Decided) -> None:
    standing = exported({"a": THREE})
    assert in_words(decided(a_situation({"a": now}, standing, of={"a": source}))) == expected


def test_a_day_never_exported_is_an_object_a_source() -> None:
    assert in_words(decided(a_situation({"a": THREE, "b": some_rows(4, 4)}))) == Decided({"a": [1, 2, 3], "b": [4]})
    assert in_words(decided(a_situation({"a": []}))) == Decided()


def test_what_has_not_changed_is_written_again_to_repair_it() -> None:
    standing = exported({"a": THREE})
    for source in (state(), RETIRED, OTHER_CHAIN):
        repair = a_situation({"a": THREE}, standing, of={"a": source}, repair=True)
        assert in_words(decided(repair)) == Decided({"a": [1, 2, 3]})
    partly = a_situation({"a": THREE[:2]}, standing, of={"a": RETIRED}, repair=True)
    assert in_words(decided(partly)) == Decided({}, ("a",), Kept.FROZEN, 1)


def test_an_object_that_was_spoiled_is_written_again_if_the_cache_has_all_its_rows() -> None:
    standing = exported({"a": THREE})
    for source in (state(), RETIRED):
        spoiled = a_situation({"a": THREE}, standing, of={"a": source}, spoiled={"a"})
        assert in_words(decided(spoiled)) == Decided({"a": [1, 2, 3]})
    grown = exported({"a": some_rows(1, 4)}, standing, of={"a": RETIRED})
    for which in ("a", "a.4-4"):
        spoiled = a_situation({"a": some_rows(1, 4)}, grown, of={"a": RETIRED}, spoiled={which})
        assert in_words(decided(spoiled)) == Decided({"a": [1, 2, 3, 4]})
    partly = a_situation({"a": THREE[1:]}, standing, of={"a": RETIRED}, spoiled={"a"})
    assert in_words(decided(partly)) == Decided({}, ("a",), Kept.FROZEN, 1)


def test_an_object_that_stays_because_nothing_changed_goes_on_on_the_chain_its_source_is_on() -> None:
    (file,) = decided(a_situation({"a": THREE}, exported({"a": THREE}), of={"a": OTHER_CHAIN})).stays
    assert file.chain == "c2"


def test_an_object_that_stays_because_rows_of_it_vanished_does_not() -> None:
    (file,) = decided(a_situation({"a": THREE[:1]}, exported({"a": THREE}), of={"a": OTHER_CHAIN})).stays
    assert file.chain == "c1"


def test_additions_are_added_to_and_all_become_one_object_again_once_a_removal_has_settled() -> None:
    cache = {"a": [a_row(3), a_row(5)]}
    standing = exported(cache, exported({"a": THREE}), of={"a": UNSETTLED})
    cache = {"a": [a_row(3), a_row(4), a_row(5), a_row(6)]}
    again = a_situation(cache, standing, of={"a": UNSETTLED})
    assert in_words(decided(again)) == Decided({"a.4-6": [4, 6]}, ("a", "a.5-5"), Kept.SETTLING, 2)
    standing = exported(cache, standing, of={"a": UNSETTLED})
    assert in_words(decided(a_situation(cache, standing))) == Decided({"a": [3, 4, 5, 6]})


def test_undated_rows_are_frozen_by_no_cut_off_but_those_that_retention_took_stay() -> None:
    old = some_rows(1, 3, "1999-01-01")
    standing = exported({"a": old}, raw_day=None)
    grown = a_situation({"a": [*old, a_row(9, "1999-01-01")]}, standing, of={"a": RETIRED}, raw_day=None)
    assert in_words(decided(grown)) == Decided({"a": [1, 2, 3, 9]})
    taken = a_situation({"a": old[2:]}, standing, of={"a": RETIRED}, raw_day=None)
    assert in_words(decided(taken)) == Decided({}, ("a",), Kept.FROZEN, 2)


def test_rows_without_any_moment_may_be_purged_behind_every_cut_off() -> None:
    timeless = [ARow(number, -(1 << 62) - number) for number in (1, 2)]
    standing = exported({"a": timeless}, raw_day=None)
    assert in_words(decided(a_situation({"a": timeless[:1]}, standing, of={"a": RETIRED}, raw_day=None))) == Decided({"a": [1]})


# --- several sources ------------------------------------------------------------------------------------------------------------


def renumbered(*numbers: int) -> list[ARow]:
    """The rows that had these numbers, with others."""
    return [ARow(number + 10, a_row(number).token) for number in numbers]


TWO_SOURCES = {"a": some_rows(1, 3), "b": some_rows(4, 6)}


@pytest.mark.parametrize(
    ("now", "changes", "expected"),
    [
        pytest.param({**TWO_SOURCES, "b": some_rows(4, 7)}, {}, Decided({"b": [4, 5, 6, 7]}, ("a",)), id="a sibling grew"),
        pytest.param({"a": TWO_SOURCES["a"]}, {}, Decided({}, ("a", "b"), Kept.GONE, 3), id="gone"),
        pytest.param({"a": []}, {}, Decided({}, ("b",), Kept.GONE, 3), id="gone, the other purged"),
        pytest.param({"a": some_rows(1, 6)}, {}, Decided({"a": [1, 2, 3, 4, 5, 6]}), id="gone, its rows went to the other"),
        pytest.param({"a": some_rows(1, 5)}, {}, Decided({}, ("a", "b"), Kept.GONE, 1), id="gone, one went nowhere"),
        pytest.param({"a": TWO_SOURCES["a"]}, {"migrated": {"b"}}, Decided({}, ("a", "b"), Kept.GONE, 3), id="migrated nowhere"),
        pytest.param(
            {"a": [*some_rows(1, 3), *renumbered(4, 5, 6)]},
            {"migrated": {"b"}},
            Decided({"a": [1, 2, 3, 14, 15, 16]}),
            id="migrated, numbered anew",
        ),
        pytest.param(
            {"a": [*some_rows(1, 3), *renumbered(4, 5), a_row(7)]},
            {"migrated": {"b"}},
            Decided({"a": [1, 2, 3, 7, 14, 15]}, ("b",), Kept.GONE, 3),
            id="migrated, numbered anew, one went nowhere",
        ),
        pytest.param(
            {**TWO_SOURCES, "a": some_rows(1, 2)},
            {"unreadable": {"b"}},
            Decided({"a": [1, 2]}, ("b",), Kept.UNREADABLE, 3),
            id="unreadable",
        ),
        pytest.param(
            {"a": some_rows(1, 2), "b": some_rows(3, 6)}, {}, Decided({"a": [1, 2], "b": [3, 4, 5, 6]}), id="a row moved"
        ),
        pytest.param(
            {"a": some_rows(1, 2), "b": some_rows(3, 6)},
            {"of": {"a": UNSETTLED, "b": UNSETTLED}},
            Decided({"a": [1, 2], "b": [3, 4, 5, 6]}),
            id="a row moved a moment ago: it is not lost",
        ),
        pytest.param(
            {"a": some_rows(1, 2), "b": some_rows(3, 6)},
            {"of": {"a": RETIRED}},
            Decided({}, ("a", "b")),
            id="a row moved away from a frozen object, which keeps it",
        ),
        pytest.param(
            {"a": [*some_rows(1, 2), a_row(7)], "b": some_rows(3, 6)},
            {"of": {"a": RETIRED}},
            Decided({"a.7-7": [7]}, ("a", "b")),
            id="and another came there",
        ),
        pytest.param(
            {"a": some_rows(1, 2), "b": some_rows(3, 6)},
            {"of": {"b": RETIRED}},
            Decided({"a": [1, 2], "b.3-3": [3]}, ("b",)),
            id="a row moved to a frozen object, which is added to",
        ),
        pytest.param(
            {"a": some_rows(1, 1), "b": some_rows(3, 6)},
            {"of": {"a": UNSETTLED}},
            Decided({}, ("a", "b"), Kept.SETTLING, 1),
            id="a row moved away from an object that stays for another's sake",
        ),
        pytest.param(
            {"a": some_rows(1, 2), "b": some_rows(5, 6)},
            {"of": {"a": RETIRED, "b": UNSETTLED}},
            Decided({}, ("a", "b"), Kept.SETTLING, 2),
            id="of two reasons the one that is resolved first",
        ),
        pytest.param(
            {"a": some_rows(1, 2)},
            {"of": {"a": OTHER_CHAIN}},
            Decided({}, ("a", "b"), Kept.UNPROVEN, 4),
            id="of unproven and gone",
        ),
    ],
)
def test_of_two_sources(now: Cache, changes: Mapping[str, Any], expected: Decided) -> None:
    assert in_words(decided(a_situation(now, exported(TWO_SOURCES), **changes))) == expected


# --- generations ----------------------------------------------------------------------------------------------------------------


def test_rows_of_a_reset_cache_lie_beside_those_of_the_one_before() -> None:
    standing = exported({"a": THREE})
    anew = [ARow(number, a_row(number).token + 500) for number in (1, 2)]
    reset = a_situation({"a": anew}, standing, of={"a": RESET})
    assert in_words(decided(reset)) == Decided({"a.g5eeb6ab0": [1, 2]}, ("a",), Kept.UNPROVEN, 3)
    standing = exported({"a": anew}, standing, of={"a": RESET})
    assert in_words(decided(a_situation({"a": anew}, standing, of={"a": RESET}))).written == {}
    grown = a_situation({"a": [*anew, ARow(3, 7)]}, standing, of={"a": RESET})
    assert in_words(decided(grown)).written == {"a.g5eeb6ab0": [1, 2, 3]}
    partly = a_situation({"a": [ARow(3, 7)]}, standing, of={"a": replace(RESET, settled=False)})
    assert in_words(decided(partly)).written == {"a.g5eeb6ab0.3-3": [3]}


def test_numbers_used_again_in_the_same_source_make_an_object_of_their_own() -> None:
    standing = exported({"a": THREE})
    cache = {"a": [*THREE, ARow(2, 5), a_row(4)]}
    assert in_words(decided(a_situation(cache, standing))) == Decided({"a": [1, 2, 3, 4], f"a.g{REUSED}": [2]})


def test_rows_without_a_number_have_the_plain_name_where_they_are_alone() -> None:
    alone = decided(a_situation({"a": [unnumbered(1)] * 2, "b": [unnumbered(2), a_row(1)]}))
    assert {write.key: (write.generation, int(write.mask.sum())) for write in alone.writes} == {
        "a": (UNSEQUENCED, 2),
        "b": (FIRST_GENERATION, 1),
        "b.gunsequenced": (UNSEQUENCED, 1),
    }


def test_of_rows_with_a_number_and_without_each_keep_the_name_they_have() -> None:
    """Nothing is written over what another unit still needs, and nothing renamed again and again."""
    standing = exported({"a": [unnumbered(1)]})
    cache = {"a": [unnumbered(1), a_row(1)]}
    for source in (state(), RETIRED):
        mixed = a_situation(cache, standing, of={"a": source})
        assert in_words(decided(mixed)) == Decided({"a.g1": [1]}, ("a",))
    standing = exported({"a": [a_row(1)]}, exported(cache, standing))
    assert [file.key for file in standing.files] == ["a.g1"]
    assert in_words(decided(a_situation({"a": some_rows(1, 2)}, standing))) == Decided({"a.g1": [1, 2]})


def test_alike_rows_without_a_number_are_purged_by_number() -> None:
    standing = exported({"a": [unnumbered(1)] * 3})
    (write,) = decided(a_situation({"a": [unnumbered(1)]}, standing)).writes
    assert (write.key, int(write.mask.sum())) == ("a", 1)
    waits = decided(a_situation({"a": [unnumbered(1)]}, standing, of={"a": UNSETTLED}))
    assert (waits.writes, waits.kept, waits.kept_rows) == ([], Kept.SETTLING, 2)


# --- other days -----------------------------------------------------------------------------------------------------------------


def a_set(*rows: ARow) -> Rows:
    return Rows.of(np.array([row.key for row in rows], np.uint64), np.array([row.token for row in rows], np.int64))


@pytest.mark.parametrize("source", [state(), UNSETTLED, OTHER_CHAIN, RETIRED])
def test_a_row_whose_day_came_leaves_its_old_day_once_the_new_one_has_it(source: SourceState) -> None:
    """It is in the cache: neither a removal that has to settle nor retention or a restore can have taken it."""
    standing = exported({"a": THREE}, raw_day=None)
    there = a_set(a_row(1))
    waits = a_situation({"a": THREE[1:]}, standing, of={"a": source}, raw_day=None, moved=Whereabouts(cached=[there]))
    assert in_words(decided(waits)) == Decided({}, ("a",), Kept.MOVING, 1)
    goes = replace(waits, moved=Whereabouts(cached=[there], exported=[there]))
    assert in_words(decided(goes)) == Decided({"a": [2, 3]})


def test_a_row_that_moved_lets_no_other_be_taken_for_moved() -> None:
    standing = exported({"a": THREE})
    there = a_set(a_row(1))
    moved = Whereabouts(cached=[there], exported=[there])
    assert in_words(decided(a_situation({"a": [a_row(3)]}, standing, moved=moved, of={"a": OTHER_CHAIN}))).kept is Kept.UNPROVEN


def test_a_row_that_another_day_keeps_is_left_out_until_it_gives_it_up() -> None:
    cache = {"a": THREE, "b": [a_row(4)]}
    kept_there = a_situation(cache, held_elsewhere=[a_set(a_row(1), a_row(4))])
    assert in_words(decided(kept_there)) == Decided({"a": [2, 3]}, (), Kept.MOVING, 0, 2)
    standing = exported(cache, held_elsewhere=[a_set(a_row(1), a_row(4))])
    assert in_words(decided(a_situation(cache, standing))) == Decided({"a": [1, 2, 3], "b": [4]})


# --- rows that were set aside ---------------------------------------------------------------------------------------------------


def test_rows_that_were_parked_are_tried_again_with_their_object_and_not_while_it_stays() -> None:
    standing = exported({"a": THREE}, parks=[2])
    assert (standing.exported_rows, standing.parked_rows) == (2, 1)
    assert in_words(decided(a_situation({"a": THREE}, standing))) == Decided({"a": [1, 2, 3]})
    again = decided(a_situation({"a": some_rows(1, 4)}, standing))
    assert (in_words(again), again.set_aside) == (Decided({"a": [1, 2, 3, 4]}), [])
    frozen = decided(a_situation({"a": some_rows(1, 4)}, standing, of={"a": RETIRED}))
    assert in_words(frozen) == Decided({"a.4-4": [4]}, ("a",))
    assert [unpack(each.row_set).keys.tolist() for each in frozen.set_aside] == [[2]]


def test_parked_rows_that_vanished_are_forgotten() -> None:
    standing = exported({"a": THREE}, parks=[2])
    for source in (state(), UNSETTLED, OTHER_CHAIN, RETIRED):
        work = decided(a_situation({"a": [a_row(1), a_row(3)]}, standing, of={"a": source}))
        assert (in_words(work), work.set_aside) == (Decided({"a": [1, 3]}), [])
    frozen = decided(a_situation({"a": [a_row(1)]}, standing, of={"a": RETIRED}))
    assert (in_words(frozen), frozen.set_aside) == (Decided({}, ("a",), Kept.FROZEN, 1), [])


def test_a_row_keeps_its_identity_when_nothing_of_its_object_could_be_sent() -> None:
    standing = exported({"a": [a_row(1)]}, parks=[1])
    assert (standing.files, standing.parked_rows) == ((), 1)
    assert in_words(decided(a_situation({"a": [ARow(1, 5)]}, standing))).written == {f"a.g{REUSED}": [1]}


# --- whatever happens -----------------------------------------------------------------------------------------------------------

NUMBERED = st.builds(lambda number, later: ARow(number, a_row(0).token + later), st.integers(1, 5), st.integers(0, 1))
UNNUMBERED = st.integers(0, 1).map(unnumbered)
CACHE = st.dictionaries(st.sampled_from("abc"), st.lists(NUMBERED | UNNUMBERED, max_size=6))
STATES = st.fixed_dictionaries(
    {
        each: st.builds(
            state,
            chain=st.sampled_from(["c1", "c1", "c2"]),
            generation=st.sampled_from([FIRST_GENERATION, FIRST_GENERATION, LATER]),
            cutoff=st.sampled_from([None, None, "2026-06-06"]),
            settled=st.booleans(),
        )
        for each in "abc"
    }
)
NUMBERS = st.sets(st.integers(1, 5), max_size=2)
STEP = st.tuples(CACHE, STATES, st.sets(st.sampled_from("abc"), max_size=1), st.sets(st.sampled_from("abc"), max_size=1), NUMBERS)
"""A day in the cache, its sources, those that are gone, those that cannot be read, and what an encoder refuses."""


def sets_at_random(numbers: Iterable[int]) -> list[Rows]:
    return [a_set(ARow(number, a_row(0).token)) for number in sorted(numbers)]


@given(st.lists(STEP, min_size=1, max_size=4), NUMBERS, NUMBERS, st.booleans())
def test_whatever_befalls_a_day_every_row_is_counted_and_none_is_lost_without_proof(
    steps: Sequence[Any], abroad: set[int], moved: set[int], migrated: bool
) -> None:
    standing = None
    for cache, states, gone, unreadable, parks in steps:
        there = {source: rows for source, rows in cache.items() if source not in gone}
        known = {source: each for source, each in states.items() if source not in gone | unreadable}
        situation = a_situation(
            there,
            standing,
            of=known,
            unreadable=unreadable,
            migrated=gone if migrated else (),
            held_elsewhere=sets_at_random(abroad),
            moved=Whereabouts(sets_at_random(moved), sets_at_random(moved & abroad)),
        )
        work = decided(situation)
        _ensure_nothing_forgotten(situation, work)
        _ensure_nothing_destroyed(situation, work)
        standing = _exported(situation, work, parks=parks)


def _ensure_nothing_forgotten(situation: Situation, work: DayWork) -> None:
    """Every numbered row of the cache is in an object, set aside or held by another day, as often as the cache has it."""
    accounted = Counter((key, token) for _, key, token in _identities(work))
    held = {pair for rows in situation.held_elsewhere for pair in _pairs(rows)}
    for pair, copies in Counter(_numbered(situation)).items():
        assert accounted[pair] >= copies or pair in held


def _numbered(situation: Situation) -> list[tuple[int, int]]:
    return [
        (int(key), int(token))
        for rows in situation.rows.values()
        for key, token, sequenced in zip(rows.keys, rows.tokens, rows.sequenced, strict=True)
        if sequenced
    ]


def _ensure_nothing_destroyed(situation: Situation, work: DayWork) -> None:
    """What the sink had and has no more was removed from the cache beyond doubt, or is at the sink elsewhere."""
    left = {(key, token) for _, key, token in _identities(work)}
    for file in () if situation.standing is None else situation.standing.files:
        for pair in _pairs(unpack(file.row_set)):
            elsewhere = [*situation.moved.exported, *situation.held_elsewhere]
            if pair in left or any(pair in _pairs(rows) for rows in elsewhere):
                continue
            source = situation.sources.get(file.source)
            if source is None:
                assert file.source in situation.migrated
            else:
                assert (source.chain, source.settled, source.cutoff_ms) == (file.chain, True, None)


ROWS = st.lists(st.tuples(st.sampled_from("abc"), NUMBERED | UNNUMBERED), max_size=8, unique_by=lambda row: row[1])


@given(st.lists(st.tuples(ROWS, STATES), min_size=1, max_size=3))
def test_what_was_decided_once_is_not_decided_again(steps: Sequence[tuple[Sequence[tuple[str, ARow]], Any]]) -> None:
    """A day is due when one of its sources changed. Of the others only additions are written anew, to be one object again."""
    standing = None
    for rows, states in steps:
        cache = {source: [row for place, row in rows if place == source] for source in states}
        standing = exported(cache, standing, of=states)
        again = decided(a_situation(cache, standing, of=states))
        objects = Counter((file.source, file.generation) for file in standing.files)
        assert all(objects[write.source, write.generation] > 1 for write in again.writes)
        assert again.kept_rows == standing.kept_rows
