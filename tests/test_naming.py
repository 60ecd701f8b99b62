"""Object names: safe everywhere, never shared, always the same."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypaware_pipeline.model import UNDATED, DatasetName, Day, Generation, Part, SinkName, SourceName
from hypaware_pipeline.sinks.naming import check_key, dataset_prefix, day_prefix, object_key, receipt_key, safe_name
from hypaware_pipeline.sinks.stores.local_fs import LocalFsStore

ANY_NAME = st.text(st.characters(exclude_categories=[]), max_size=300)
SIMILAR_NAMES = st.text("aA_- .=é", max_size=4)
LOGS = DatasetName("logs")
JUNE_2 = Day("2026-06-02")
CLAUDE = SourceName("claude")


def name_of(part, extension="parquet"):
    return object_key("", LOGS, JUNE_2, part, extension).rsplit("/", 1)[-1]


def test_a_source_of_a_day_has_one_key():
    key = object_key("exports/hyp", LOGS, JUNE_2, Part(CLAUDE), "jsonl.gz")
    assert key == "exports/hyp/logs/day=2026-06-02/claude.jsonl.gz"


def test_without_a_prefix_a_key_begins_with_the_dataset():
    assert object_key("", LOGS, JUNE_2, Part(CLAUDE), "parquet") == "logs/day=2026-06-02/claude.parquet"
    assert dataset_prefix("", LOGS) == "logs"


def test_a_later_generation_and_an_addition_say_so_behind_the_source():
    later = Generation("5eeb6ab0")
    assert name_of(Part(CLAUDE, later)) == "claude.g5eeb6ab0.parquet"
    assert name_of(Part(CLAUDE, None, (17, 20))) == "claude.17-20.parquet"
    assert name_of(Part(CLAUDE, later, (1, 2**64 - 1)), "jsonl.gz") == "claude.g5eeb6ab0.1-18446744073709551615.jsonl.gz"


PARTS = st.builds(
    Part,
    st.sampled_from(["a", "a.g1", "a.1-2", "g1"]).map(SourceName),
    st.none() | st.sampled_from(["1", "1-2", "5eeb6ab0"]).map(Generation),
    st.none() | st.tuples(st.integers(0, 3), st.integers(0, 3)),
)


@given(PARTS, PARTS)
def test_different_parts_never_share_a_key(one, other):
    assert (name_of(one) == name_of(other)) == (one == other)


def test_undated_rows_lie_where_hive_readers_see_a_null_day():
    assert day_prefix("p", LOGS, UNDATED) == "p/logs/day=__HIVE_DEFAULT_PARTITION__"


def test_a_receipt_names_its_sink_and_hides_from_readers_of_data():
    assert receipt_key("p", LOGS, JUNE_2, SinkName("archive")) == "p/logs/day=2026-06-02/_receipt.archive.json"


@pytest.mark.parametrize("name", ["logs", "ai_gateway_messages", "claude", "unknown", "gas-city", "7", "a" * 100])
def test_an_ordinary_name_stays_as_it_is(name):
    assert safe_name(name) == name


def test_a_changed_name_is_readable_and_stable_across_versions():
    # A name that changes with a version would leave the old object behind.
    assert safe_name("my tool") == "my_tool--ba077b4202dc"
    assert safe_name("") == "name--e3b0c44298fc"
    assert safe_name("éé") == "name--f13c007a1d8e"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a b", "a_b"),
        ("A", "a"),
        ("Ab", "aB"),
        ("x.y", "x_y"),
        ("é", "e\u0301"),
        ("n" * 101, "n" * 102),
        ("a b", safe_name("a b")),
    ],
)
def test_two_names_never_share_an_object_even_where_case_is_ignored(one, other):
    assert safe_name(one).lower() != safe_name(other).lower()


@given(SIMILAR_NAMES | ANY_NAME, SIMILAR_NAMES | ANY_NAME)
def test_different_names_stay_different(one, other):
    assert (safe_name(one).lower() == safe_name(other).lower()) == (one == other)


@given(ANY_NAME, ANY_NAME, ANY_NAME)
def test_every_key_is_safe_and_fits_a_disk(dataset, source, sink):
    for key in (
        object_key("", DatasetName(dataset), JUNE_2, Part(SourceName(source)), "jsonl.zst"),
        receipt_key("", DatasetName(dataset), JUNE_2, SinkName(sink)),
    ):
        segments = check_key(key)
        assert len(segments) == 3
        assert all(len(segment.encode()) <= 160 for segment in segments)
        assert set(key) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=")
        assert "=" not in segments[0] + segments[2]
    assert object_key("", DatasetName(dataset), JUNE_2, Part(SourceName(source)), "parquet").split("/")[2][0] not in "._"


@given(ANY_NAME)
def test_every_name_can_be_stored_and_listed(tmp_path_factory, name):
    store = LocalFsStore(Path(tmp_path_factory.getbasetemp()) / "names")
    key = object_key("", DatasetName(name), JUNE_2, Part(SourceName(name)), "parquet")
    store.put(key, lambda out: out.write(b"x"))
    assert [info.key for info in store.list(key.split("/")[0])] == [key]
