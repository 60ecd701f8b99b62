"""Finding the tables of a cache: roots, datasets, sources, cursors."""

import datetime as dt
import json
from pathlib import Path

import pytest

from hypaware_pipeline.cache.layout import (
    Cursor,
    SourceLocation,
    dataset_names,
    migrated_sources,
    read_cursor,
    resolve_root,
    source_locations,
)
from hypaware_pipeline.errors import CacheMissing, SourceUnreadable
from hypaware_pipeline.model import DatasetName, SourceName

CURRENT = {"epoch": 0, "rowCount": 3, "compaction": None, "layout": "source-table", "tableDir": "table"}
HOSTILE = ["a 'b' \"c\"", "x,y", "naïve-日本", "two\nlines", "100%", "a=b=c", "$(rm)", "table", "epoch=1", "..hidden"]


def a_source(root: Path, dataset: str, *levels: str, cursor: object = CURRENT) -> Path:
    """A partition directory with a cursor (None: without one) and, in it, a table with one metadata file."""
    directory = root.joinpath("datasets", dataset, *levels)
    a_table(directory / "table")
    if cursor is not None:
        (directory / "cursor.json").write_text(cursor if isinstance(cursor, str) else json.dumps(cursor))
    return directory


def a_table(directory: Path) -> None:
    (directory / "metadata").mkdir(parents=True)
    (directory / "metadata" / "v1.metadata.json").write_text("{}")


def sources(root: Path, dataset: str) -> list[str]:
    return [location.source for location in source_locations(root, DatasetName(dataset))]


def cursor_of(directory: Path) -> Cursor:
    return read_cursor(SourceLocation(DatasetName("logs"), SourceName("x"), directory))


def test_the_root_is_the_directory_that_holds_datasets_or_the_one_above(tmp_path: Path) -> None:
    (tmp_path / "cache" / "datasets").mkdir(parents=True)
    assert resolve_root(tmp_path) == tmp_path / "cache"
    assert resolve_root(tmp_path / "cache") == tmp_path / "cache"


def test_a_place_without_a_cache_is_named_with_the_setting_that_mends_it(tmp_path: Path) -> None:
    with pytest.raises(CacheMissing, match=r"nowhere.*query\.cache\.dir"):
        resolve_root(tmp_path / "nowhere")


def test_an_empty_cache_has_no_datasets(tmp_path: Path) -> None:
    (tmp_path / "datasets").mkdir()
    assert dataset_names(tmp_path) == ()
    assert source_locations(tmp_path, DatasetName("logs")) == ()


def test_datasets_are_those_with_a_source_and_nothing_else_counts_as_one(tmp_path: Path) -> None:
    a_source(tmp_path, "logs", "source=b")
    a_source(tmp_path, "logs", "source=a")
    a_source(tmp_path, "logs", ".retired", "source=old")
    a_source(tmp_path, "spooled", "all", "_hypaware_spool")
    (tmp_path / "datasets" / "empty" / "source=x").mkdir(parents=True)
    (tmp_path / "datasets" / "a-file").write_text("")
    assert dataset_names(tmp_path) == ("logs",)
    assert sources(tmp_path, "logs") == ["a", "b"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_dataset_and_a_source_may_be_called_anything(tmp_path: Path, name: str) -> None:
    """HypAware itself does not see a dataset whose name starts with `table`."""
    directory = a_source(tmp_path, name, f"source={name}")
    assert dataset_names(tmp_path) == (name,)
    (location,) = source_locations(tmp_path, DatasetName(name))
    assert (location.dataset, location.source, location.directory) == (name, name, directory)
    assert read_cursor(location).table_dir == directory / "table"


def test_generations_inside_a_source_are_no_sources_of_their_own(tmp_path: Path) -> None:
    directory = a_source(tmp_path, "logs", "source=a")
    a_table(directory / "table-1795951642174")
    a_table(directory / "epoch=4")
    assert sources(tmp_path, "logs") == ["a"]


def test_older_layouts_are_named_by_all_their_levels(tmp_path: Path) -> None:
    a_source(tmp_path, "logs", "source=a", "date=2026-01-01")
    a_source(tmp_path, "logs", "source=a", "date=2026-01-02")
    a_source(tmp_path, "logs", "date=2026-01-03")
    a_source(tmp_path, "node")
    assert sources(tmp_path, "logs") == ["date=2026-01-03", "source=a,date=2026-01-01", "source=a,date=2026-01-02"]
    assert sources(tmp_path, "node") == ["all"]


def test_two_directories_never_share_a_name(tmp_path: Path) -> None:
    """Two tables under one name would be one object at a destination, and one of them lost."""
    first = a_source(tmp_path, "logs", "source=k=1,date=2")
    second = a_source(tmp_path, "logs", "k=1", "date=2")
    third = a_source(tmp_path, "logs", "k=1,date=2")
    found = {location.directory: location.source for location in source_locations(tmp_path, DatasetName("logs"))}
    assert found.keys() == {first, second, third}
    assert len(set(found.values())) == 3
    assert found[first] == "k=1,date=2"


def retire(directory: Path) -> None:
    """What HypAware does to a source whose rows it copied into others."""
    retired = directory.parent / ".retired"
    retired.mkdir(exist_ok=True)
    directory.rename(retired / directory.name)


@pytest.mark.parametrize(
    "levels",
    [
        ("proxy_messages_v4",),
        ("client=claude", "date=2026-01-01"),
        ("source=a",),
        ("source=a", "date=2026-01-02"),
        ("x,y",),
        ("all",),
    ],
)
def test_a_migrated_source_keeps_the_name_it_had(tmp_path: Path, levels: tuple[str, ...]) -> None:
    """Under another one nobody would find what was exported of it."""
    a_source(tmp_path, "logs", "source=new")
    old = a_source(tmp_path, "logs", *levels)
    (name,) = {*sources(tmp_path, "logs")} - {"new"}
    assert migrated_sources(tmp_path, DatasetName("logs")) == set()
    retire(old)
    assert sources(tmp_path, "logs") == ["new"]
    assert migrated_sources(tmp_path, DatasetName("logs")) == {name}


def test_several_sources_are_migrated_from_several_places(tmp_path: Path) -> None:
    for levels in [("source=a",), ("client=b", "date=1"), ("client=b", "date=2"), ("client=c", "date=1")]:
        retire(a_source(tmp_path, "logs", *levels))
    assert migrated_sources(tmp_path, DatasetName("logs")) == {"a", "client=b,date=1", "client=b,date=2", "client=c,date=1"}


def test_a_source_that_is_there_again_is_not_migrated(tmp_path: Path) -> None:
    retire(a_source(tmp_path, "logs", "source=a"))
    a_source(tmp_path, "logs", "source=a")
    assert migrated_sources(tmp_path, DatasetName("logs")) == set()


def test_what_lies_inside_a_source_is_no_migrated_one(tmp_path: Path) -> None:
    """HypAware marks a generation it compacted by a file of that name."""
    directory = a_source(tmp_path, "logs", "source=a")
    (directory / "table" / ".retired").write_text("2026-11-29T11:27:22.565Z")
    (directory / ".retired" / "table").mkdir(parents=True)
    (tmp_path / "datasets" / "logs" / ".retired").write_text("a file")
    assert migrated_sources(tmp_path, DatasetName("logs")) == set()
    assert migrated_sources(tmp_path, DatasetName("nobody")) == set()


def test_a_link_to_a_parent_directory_ends_somewhere(tmp_path: Path) -> None:
    a_source(tmp_path, "logs", "source=a")
    (tmp_path / "datasets" / "logs" / "loop").symlink_to(tmp_path / "datasets" / "logs", target_is_directory=True)
    assert "a" in sources(tmp_path, "logs")
    assert migrated_sources(tmp_path, DatasetName("logs")) == set()


def test_the_cursor_chooses_the_table_and_tells_retention_and_compaction(tmp_path: Path) -> None:
    cursor = {
        **CURRENT,
        "tableDir": "table-17",
        "retention": {"lastCutoffMs": 1780401600000},
        "compaction": {"previousTableDir": "table", "compactedAt": "2026-11-29T11:27:22.565Z"},
    }
    directory = a_source(tmp_path, "logs", "source=a", cursor=cursor)
    compacted = dt.datetime(2026, 11, 29, 11, 27, 22, 565000, tzinfo=dt.UTC)
    assert cursor_of(directory) == Cursor("source-table", directory / "table-17", 3, 1780401600000, compacted, "table")


@pytest.mark.parametrize(
    ("compaction", "name"),
    [
        (None, None),
        ({}, None),
        ({"attemptFailedAt": "2026-11-29T11:27:22.565Z"}, None),
        ({"previousTableDir": "table-3"}, "table-3"),
        ({"previousEpoch": 0}, "epoch=0"),
    ],
)
def test_the_cursor_names_the_table_before_the_last_compaction(tmp_path: Path, compaction: object, name: str | None) -> None:
    directory = a_source(tmp_path, "logs", "source=a", cursor={**CURRENT, "compaction": compaction})
    assert cursor_of(directory).previous_table == name


@pytest.mark.parametrize(
    ("cursor", "table"),
    [
        ({"epoch": 0, "rowCount": 0}, "."),
        ({"epoch": 0, "rowCount": 7}, "epoch=0"),
        ({"epoch": 3, "rowCount": 0, "layout": "epoch"}, "epoch=3"),
        ({**CURRENT, "tableDir": "table"}, "table"),
        ({"epoch": 0, "rowCount": 1, "layout": "source-table"}, "table"),
    ],
)
def test_each_layout_leads_to_its_table(tmp_path: Path, cursor: object, table: str) -> None:
    directory = a_source(tmp_path, "logs", "source=a", cursor=cursor)
    assert cursor_of(directory).table_dir == directory / table


def test_a_table_in_the_partition_directory_itself_needs_no_cursor(tmp_path: Path) -> None:
    a_table(tmp_path / "datasets" / "logs" / "source=a")
    (location,) = source_locations(tmp_path, DatasetName("logs"))
    assert read_cursor(location) == Cursor("legacy", location.directory, None, None, None, None)


@pytest.mark.parametrize("generation", ["table", "table-17", "epoch=2"])
def test_a_missing_cursor_beside_tables_is_an_error_and_no_empty_source(tmp_path: Path, generation: str) -> None:
    """HypAware reads it as an empty source; a reader that did would delete what it exported."""
    a_table(tmp_path / "datasets" / "logs" / "source=a" / generation)
    (location,) = source_locations(tmp_path, DatasetName("logs"))
    with pytest.raises(SourceUnreadable, match=r"source 'a' of dataset 'logs'.*cursor\.json' is missing.*restore"):
        read_cursor(location)


@pytest.mark.parametrize(
    "torn",
    [
        "",
        '{"epoch": 0, "rowC',
        "\ufeff\x00garbage",
        "[]",
        pytest.param("[" * 100_000, id="deep"),
        "null",
        json.dumps({**CURRENT, "epoch": "zero"}),
        json.dumps({**CURRENT, "rowCount": True}),
        json.dumps({**CURRENT, "rowCount": float("nan")}),
        json.dumps({**CURRENT, "layout": "lakehouse"}),
        json.dumps({**CURRENT, "retention": 17}),
        json.dumps({**CURRENT, "retention": {"lastCutoffMs": "soon"}}),
        json.dumps({**CURRENT, "compaction": {"compactedAt": "yesterday"}}),
        json.dumps({**CURRENT, "compaction": {"previousTableDir": 7}}),
        json.dumps({**CURRENT, "compaction": {"previousEpoch": "one"}}),
    ],
)
def test_a_torn_cursor_is_an_error(tmp_path: Path, torn: str) -> None:
    directory = a_source(tmp_path, "logs", "source=a", cursor=torn)
    with pytest.raises(SourceUnreadable, match=r"cursor\.json"):
        cursor_of(directory)


@pytest.mark.parametrize("name", ["..", ".", "", "/etc", "a/b", "a\\b", "a\0b", "a\ud800", 7])
def test_a_cursor_cannot_point_out_of_its_directory(tmp_path: Path, name: object) -> None:
    directory = a_source(tmp_path, "logs", "source=a", cursor={**CURRENT, "tableDir": name})
    with pytest.raises(SourceUnreadable, match="table directory"):
        cursor_of(directory)


def test_a_cursor_that_is_a_directory_is_an_error(tmp_path: Path) -> None:
    directory = a_source(tmp_path, "logs", "source=a", cursor=None)
    (directory / "cursor.json").mkdir()
    with pytest.raises(SourceUnreadable, match=r"cannot be read \(Is a directory\); check it and its permissions"):
        cursor_of(directory)
