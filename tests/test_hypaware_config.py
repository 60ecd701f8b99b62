"""HypAware's own config beside ours: what it gives, that it stops nothing, and sinks that both have."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hypaware_pipeline.config import Config, load_config
from hypaware_pipeline.model import SinkName
from hypaware_pipeline.plugins.registry import BUNDLED

PARQUET = "@hypaware/format-parquet"
JSONL = "@hypaware/format-jsonl"
LOCAL = "@hypaware/local-fs"


class Home:
    """A user's home with HypAware's files and ours."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.env = {"HOME": str(path)}
        self.hyp = path / ".hyp"
        self.control = self.hyp / "hypaware" / "config-control"
        self.control.mkdir(parents=True)

    def hypaware(self, **document: Any) -> Path:
        return self.write(self.hyp / "hypaware-config.json", {"version": 2, **document})

    def central(self, name: str = "seed.json", **document: Any) -> Path:
        return self.write(self.control / name, {"version": 2, **document})

    def write(self, path: Path, document: Any) -> Path:
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    def load(self, **document: Any) -> Config:
        sinks = {"archive": {"writer": PARQUET, "destination": LOCAL, "config": {"dir": "~/archive"}}}
        path = self.write(self.hyp / "hypaware-pipeline.json", {"version": 2, "sinks": sinks, **document})
        return load_config(path, self.env, BUNDLED)

    def codec(self, **document: Any) -> object:
        config = self.load(**document)
        assert config.broken_sinks == {}
        return config.sinks[SinkName("archive")].writer_settings["codec"]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def with_codec(codec: str, **more: Any) -> list[dict[str, Any]]:
    return [{"name": PARQUET, "config": {"codec": codec}, **more}]


def cache_at(path: Path) -> str:
    (path / "datasets").mkdir(parents=True)
    return str(path)


def said(config: Config, sink: str = "archive") -> list[tuple[str, str]]:
    return [(error.kind, error.pointer) for error in config.broken_sinks.get(sink, ())]


# --- where it is ---------------------------------------------------------------------------------------------------------------


def test_without_a_file_of_hypawares_nothing_is_said(home: Home) -> None:
    config = home.load()
    assert (config.notes, config.problems, list(config.sinks)) == ((), (), ["archive"])


def test_the_file_is_where_the_variable_says_else_in_hypawares_home(home: Home) -> None:
    home.hypaware(plugins=with_codec("gzip"))
    assert home.codec() == "gzip"
    home.env["HYP_CONFIG"] = str(home.write(home.path / "other.json", {"version": 2, "plugins": with_codec("snappy")}))
    assert home.codec() == "snappy"
    home.env["HYP_CONFIG"] = str(home.path / "gone.json")
    assert home.load().notes == (f"HypAware's {home.path / 'gone.json'} is not used: there is no such file",)
    home.env = {"HOME": str(home.path), "HYP_HOME": str(home.path / "elsewhere")}
    assert home.codec() == "zstd"
    home.env["HYP_CONFIG"] = "~/other.json"
    assert home.codec() == "snappy"


def test_a_pipe_in_the_place_of_the_file_is_a_note_and_holds_nothing_up(home: Home) -> None:
    os.mkfifo(home.path / "pipe")
    home.env["HYP_CONFIG"] = str(home.path / "pipe")
    (note,) = home.load().notes
    assert note.startswith(f"HypAware's {home.path / 'pipe'} is not used: a pipe or a device stands there")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"version": 3}',
        '{"version": 2, "colour": 1}',
        '{"version": 2, "sinks": {"a": {}}}',
        '{"version": 2, "plugins": 5}',
        '{"version": 2, "query": {"cache": {"dir": ""}}}',
    ],
)
def test_a_broken_file_of_hypawares_is_a_note_and_stops_nothing(home: Home, text: str) -> None:
    path = home.write(home.hyp / "hypaware-config.json", text)
    config = home.load()
    assert list(config.sinks) == ["archive"]
    (note,) = config.notes
    assert note.startswith(f"HypAware's {path} is not used: ")
    assert config.problems == ()


def test_what_hypaware_would_complain_of_is_noted(home: Home) -> None:
    home.hypaware(plugins=[{"name": "@acme/x"}], sinks={"a": {"writer": PARQUET, "destination": "@hypaware/webhook"}})
    notes = home.load().notes
    assert ["plugin_unknown" in note or "sink_pair_incompatible" in note for note in notes] == [True, True]
    assert "/plugins/0/name" in notes[0]
    assert "/sinks/a/destination" in notes[1]


# --- plugins -------------------------------------------------------------------------------------------------------------------


def test_a_plugin_entry_of_hypawares_gives_defaults_that_ours_and_the_sink_override(home: Home) -> None:
    home.hypaware(plugins=with_codec("gzip"))
    assert home.codec() == "gzip"
    assert home.codec(plugins=[*with_codec("snappy"), {"name": LOCAL}]) == "snappy"
    sink = {"writer": PARQUET, "destination": LOCAL, "config": {"dir": "~/archive", "codec": "none"}}
    assert home.codec(sinks={"archive": sink}) == "none"


def test_a_level_of_hypawares_does_not_follow_a_codec_of_ours(home: Home) -> None:
    home.hypaware(plugins=[{"name": PARQUET, "config": {"codec": "gzip", "level": 9}}])
    config = home.load(plugins=[*with_codec("zstd"), {"name": LOCAL}])
    assert config.sinks[SinkName("archive")].writer_settings["level"] == 3


def test_what_our_plugin_cannot_take_of_hypawares_entry_is_left_out(home: Home) -> None:
    home.hypaware(plugins=[{"name": PARQUET, "config": {"codec": "gzip", "a_key_of_tomorrow": 1}}])
    assert home.codec() == "gzip"
    home.hypaware(plugins=with_codec("lz5"))
    assert home.codec() == "zstd"


def test_a_plugin_hypaware_does_not_list_stays_on_and_one_it_switches_off_is_off(home: Home) -> None:
    home.hypaware(plugins=[{"name": "@hypaware/otel"}])
    assert home.codec() == "zstd"
    home.hypaware(plugins=with_codec("gzip", enabled=False))
    config = home.load()
    assert said(config) == [("sink_plugin_not_active", "/sinks/archive/writer")]
    assert "switched off in HypAware's own config; list it in plugins here" in config.broken_sinks["archive"][0].message
    assert home.codec(plugins=[{"name": PARQUET}, {"name": LOCAL}]) == "gzip"


def test_a_plugin_only_hypaware_lists_is_on_although_we_have_a_list(home: Home) -> None:
    home.hypaware(plugins=[{"name": LOCAL}])
    assert home.codec(plugins=[{"name": PARQUET}]) == "zstd"


# --- layers --------------------------------------------------------------------------------------------------------------------


def test_the_central_layer_wins_and_what_gives_way_is_noted(home: Home) -> None:
    path = home.hypaware(plugins=[*with_codec("gzip"), {"name": JSONL}])
    home.central(plugins=with_codec("snappy"), query={"cache": {"dir": "/x"}})
    assert home.codec() == "snappy"
    assert home.load().notes == (
        f"HypAware's {path}: plugins/{PARQUET} gives way to the central config (collides_with_central)",
        f"HypAware's {path}: plugins/{JSONL} gives way to the central config (invalid_merge: capability_ambiguous)",
        "HypAware's central config has a query block, which HypAware ignores",
    )


def test_the_active_slot_counts_before_the_seed(home: Home) -> None:
    home.central("seed.json", plugins=with_codec("gzip"))
    home.central("config.a.json", plugins=with_codec("snappy"))
    (home.control / "active").symlink_to("config.a.json")
    assert home.codec() == "snappy"
    (home.control / "config.a.json").unlink()
    assert "there is no such file" in home.load().notes[0]


# --- the cache -----------------------------------------------------------------------------------------------------------------


def test_a_cache_that_hypawares_file_names_counts_if_there_is_one_and_ours_in_any_case(home: Home) -> None:
    usual = home.hyp / "hypaware" / "cache"
    home.hypaware(query={"cache": {"dir": str(home.path / "moved")}})
    assert home.load().cache_root == usual
    assert f"{usual} is read, not {home.path / 'moved'}" in home.load().notes[0]
    moved = cache_at(home.path / "moved")
    assert (str(home.load().cache_root), home.load().notes) == (moved, ())
    cache_at(usual)
    assert str(home.load().cache_root) == moved
    assert f"{moved} is read, not {usual}: set /query/cache/dir to choose" in home.load().notes[0]
    config = home.load(query={"cache": {"dir": "~/ours"}})
    assert (config.cache_root, config.notes) == (home.path / "ours", ())


# --- sinks that both have ------------------------------------------------------------------------------------------------------


def exported(directory: str, *, plugin: str = LOCAL) -> dict[str, Any]:
    return {"writer": PARQUET, "destination": plugin, "config": {"dir": directory}}


@pytest.mark.parametrize(
    ("name", "directory"),
    [("archive", "/somewhere/else"), ("other", "~/archive"), ("other", "../archive"), ("other", "~/x/../archive/")],
)
def test_a_sink_that_hypaware_exports_too_is_stopped_by_name(home: Home, name: str, directory: str) -> None:
    path = home.hypaware(sinks={name: exported(directory)})
    config = home.load()
    assert said(config) == [("sink_also_exported_by_hypaware", "/sinks/archive")]
    message = config.broken_sinks["archive"][0].message
    assert str(path) in message
    assert f"'{name}'" in message
    assert config.problems == config.broken_sinks["archive"]


def test_a_sink_that_takes_over_is_not_stopped(home: Home) -> None:
    home.hypaware(sinks={"archive": exported("~/archive")})
    sink = {**exported("~/archive"), "config": {"dir": "~/archive", "takeover": True}}
    config = home.load(sinks={"archive": sink})
    assert config.sinks[SinkName("archive")].takeover


def test_sinks_of_hypawares_that_are_elsewhere_or_of_another_kind_stop_nothing(home: Home) -> None:
    sinks = {
        "local": exported("~/theirs"),
        "forward": {"plugin": "@hypaware/central"},
        "bucket": {"writer": PARQUET, "destination": "@hypaware/s3", "config": {"bucket": "b"}},
        "odd": {"writer": PARQUET, "destination": LOCAL, "config": {"dir": 5}},
    }
    home.hypaware(sinks=sinks)
    assert list(home.load().sinks) == ["archive"]


def test_a_sink_that_the_central_layer_brings_counts(home: Home) -> None:
    home.central(sinks={"archive": exported("/elsewhere")})
    assert said(home.load()) == [("sink_also_exported_by_hypaware", "/sinks/archive")]


def test_our_sinks_come_from_our_file_alone(home: Home) -> None:
    home.hypaware(sinks={"theirs": exported("/elsewhere")})
    config = home.load()
    assert (list(config.sinks), config.broken_sinks) == (["archive"], {})


# --- the problems of our own file ----------------------------------------------------------------------------------------------


def test_everything_wrong_with_our_file_is_listed_once_in_hypawares_order(home: Home) -> None:
    config = home.load(
        plugins=[
            {"name": LOCAL},
            {"name": PARQUET, "config": {"codec": "lz5"}},
            {"name": JSONL},
            {"name": LOCAL},
            {"name": "@acme/x"},
        ],
        sinks={
            "archive": exported("~/archive"),
            "forward": {"plugin": "@hypaware/central", "config": {"schedule": "@hourly"}},
            "hook": {"writer": PARQUET, "destination": "@hypaware/webhook"},
        },
        query={"cache": {"retention": {"default_days": 9, "datasets": {"lgos": 1}}}},
    )
    assert [(error.kind, error.pointer) for error in config.problems] == [
        ("duplicate_plugin", "/plugins/3"),
        ("plugin_unknown", "/plugins/4/name"),
        ("sink_plugin_not_active", "/sinks/forward/plugin"),
        ("sink_schedule_invalid", "/sinks/forward/config/schedule"),
        ("sink_pair_incompatible", "/sinks/hook/destination"),
        ("dataset_unknown", "/query/cache/retention/datasets/lgos"),
        ("capability_ambiguous", "/disambiguate/hypaware.encoder"),
        ("config_section_invalid", "/plugins/1/config/codec"),
    ]
    assert [error.kind for error in config.broken_sinks["archive"]] == ["duplicate_plugin"]
    assert not config.sinks


def test_a_problem_that_is_no_sinks_stops_none(home: Home) -> None:
    config = home.load(plugins=[{"name": LOCAL}, {"name": PARQUET}, {"name": JSONL}, {"name": "@acme/x"}])
    assert [error.kind for error in config.problems] == ["plugin_unknown", "capability_ambiguous"]
    assert list(config.sinks) == ["archive"]
