"""The config file: where it is, what it may say, and what is said about it when it is wrong."""

import json
import os
import pwd
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypaware_pipeline.config import Config, SinkConfig, find_config_path, load_config
from hypaware_pipeline.config.names import collisions, distinct_slug, slug
from hypaware_pipeline.errors import BadRequest, ConfigError, ConfigErrors
from hypaware_pipeline.model import DatasetName, SinkName
from hypaware_pipeline.plugins.registry import BUNDLED

PARQUET = "@hypaware/format-parquet"
JSONL = "@hypaware/format-jsonl"
LOCAL = "@hypaware/local-fs"


def a_sink(directory: str = "out", *, writer: str = PARQUET, **options: Any) -> dict[str, Any]:
    return {"writer": writer, "destination": LOCAL, "config": {"dir": directory, **options}}


class Files:
    """A home directory with one config file in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {"HOME": str(home)}
        self.path = home / "etc" / "c.json"
        self.path.parent.mkdir(exist_ok=True)

    def load(self, **document: Any) -> Config:
        return self.load_text(json.dumps({"version": 2, **document}))

    def load_text(self, text: str | bytes) -> Config:
        self.path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_config(self.path, self.env, BUNDLED)

    def sink(self, entry: Any, **document: Any) -> SinkConfig:
        config = self.load(sinks={"archive": entry}, **document)
        assert config.broken_sinks == {}
        return config.sinks[SinkName("archive")]

    def broken(self, entry: Any, **document: Any) -> list[tuple[str, str]]:
        """What is wrong with a sink named `archive`, as (kind, pointer) pairs."""
        return said(self.load(sinks={"archive": entry}, **document).broken_sinks["archive"])

    def errors(self, text: str | bytes | None = None, **document: Any) -> list[ConfigError]:
        with pytest.raises(ConfigErrors) as caught:
            self.load(**document) if text is None else self.load_text(text)
        assert caught.value.path == str(self.path)
        return caught.value.errors


def said(errors: Any) -> list[tuple[str, str]]:
    return [(error.kind, error.pointer) for error in errors]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


# --- where it is ---------------------------------------------------------------------------------------------------------------


def test_the_config_is_what_was_asked_for_else_the_variable_else_in_hypawares_home(monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"HOME": "/home/ada", "HYPAWARE_PIPELINE_CONFIG": "/etc/p.json", "HYP_HOME": "/srv/hyp"}
    assert find_config_path(Path("/tmp/x.json"), env) == Path("/tmp/x.json")
    assert find_config_path(None, env) == Path("/etc/p.json")
    assert find_config_path(None, {**env, "HYPAWARE_PIPELINE_CONFIG": ""}) == Path("/srv/hyp/hypaware-pipeline.json")
    assert find_config_path(None, {"HOME": "/home/ada"}) == Path("/home/ada/.hyp/hypaware-pipeline.json")
    assert find_config_path(None, {**env, "HYPAWARE_PIPELINE_CONFIG": "~/p.json"}) == Path("/home/ada/p.json")
    monkeypatch.chdir("/")
    assert find_config_path(Path("x.json"), env) == Path("/x.json")
    assert find_config_path(None, {**env, "HYPAWARE_PIPELINE_CONFIG": "x.json"}) == Path("/x.json")


def test_a_user_without_a_home_is_told_to_set_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody_knows(_uid: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody_knows)
    monkeypatch.delenv("HOME", raising=False)
    with pytest.raises(BadRequest, match="HOME is not set"):
        find_config_path(None, {})


def test_a_missing_file_says_how_to_make_one_that_works(files: Files) -> None:
    with pytest.raises(ConfigErrors, match="hypaware-pipeline init") as caught:
        load_config(files.path, files.env, BUNDLED)
    assert said(caught.value.errors) == [("config_missing", "")]
    example = caught.value.errors[0].message.split(":\n", 1)[1]
    assert list(files.load_text(example).sinks) == ["archive"]


def test_a_file_that_cannot_be_read_is_said(files: Files) -> None:
    files.path.mkdir()
    with pytest.raises(ConfigErrors, match="the file cannot be read: Is a directory"):
        load_config(files.path, files.env, BUNDLED)


def test_a_pipe_or_a_device_in_the_place_of_the_file_is_said_and_holds_nothing_up(files: Files) -> None:
    os.mkfifo(files.path)
    with pytest.raises(ConfigErrors, match="a pipe or a device stands there"):
        load_config(files.path, files.env, BUNDLED)
    files.path.unlink()
    files.path.symlink_to("/dev/zero")
    with pytest.raises(ConfigErrors, match="a pipe or a device stands there"):
        load_config(files.path, files.env, BUNDLED)


def test_a_file_that_is_too_large_is_not_read_to_its_end(files: Files) -> None:
    files.path.touch()
    os.truncate(files.path, 1 << 40)
    with pytest.raises(ConfigErrors, match="the file is larger than 1048576 bytes"):
        load_config(files.path, files.env, BUNDLED)


# --- JSON ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Expecting value at line 1, column 1"),
        ('{\n  "version": 2,\n}', "at line 3, column 1"),
        ('{"version": 2, "sinks": {"a": {}, "a": {}}}', "the key 'a' stands twice in one object"),
        ('{"version": NaN}', "NaN is no JSON value"),
        ("[" * 100_000, "it is nested too deeply"),
        ('{"version": ' + "9" * 5_000 + "}", "Exceeds the limit"),
        (b'{"version": "\xff"}', "not UTF-8: byte 13"),
        ('{"version": 2, "sinks": {"\\ud800": {}}}', "half of a surrogate pair"),
    ],
)
def test_what_is_no_json_is_said_with_its_place(files: Files, text: str | bytes, problem: str) -> None:
    (error,) = files.errors(text)
    assert (error.kind, error.pointer) == ("config_invalid_json", "")
    assert problem in error.message


def test_json_that_is_no_object_has_the_wrong_shape(files: Files) -> None:
    assert said(files.errors("[2]")) == [("config_invalid_shape", "")]


def test_a_byte_order_mark_is_overlooked(files: Files) -> None:
    assert files.load_text(b"\xef\xbb\xbf" + b'{"version": 2}').sinks == {}


# --- the file as a whole -------------------------------------------------------------------------------------------------------


def test_a_file_with_nothing_but_its_version_is_a_config_without_sinks(files: Files) -> None:
    config = files.load()
    assert (config.sinks, config.broken_sinks, config.first_day, config.floor_day) == ({}, {}, None, "2023-01-01")
    assert config.path == files.path


def test_everything_wrong_with_a_file_is_said_at_once_in_hypawares_words(files: Files) -> None:
    errors = files.errors(
        version=3,
        extra=1,
        plugins=[{"config": {}}, 7, {"name": "x", "enabled": "yes", "config": []}],
        sinks=[],
        query={
            "cache": {"dir": "", "retention": {}, "maintenance": {"compact_batch_bytes": -1}},
            "remotes": {"r": {"url": "ftp://x"}},
        },
        disambiguate={"cap": ""},
        first_day="2026-6-1",
    )
    assert {error.kind for error in errors} == {"config_invalid_shape"}
    words = {error.pointer: error.message for error in errors}
    assert words.keys() == {
        "/version",
        "/extra",
        "/plugins/0/name",
        "/plugins/1",
        "/plugins/2/enabled",
        "/plugins/2/config",
        "/sinks",
        "/query/cache/dir",
        "/query/cache/retention/default_days",
        "/query/cache/maintenance/compact_batch_bytes",
        "/query/remotes/r/url",
        "/disambiguate/cap",
        "/first_day",
    }
    assert words["/version"] == "version must be exactly 2"
    assert words["/plugins/0/name"] == "name (plugin name) is required"
    assert words["/sinks"] == "sinks must be an object keyed by instance name"
    assert words["/extra"].startswith("unrecognized top-level key 'extra'")
    assert words["/first_day"] == "must be a day, written YYYY-MM-DD"


def test_what_is_wrong_with_sinks_is_said_with_what_is_wrong_with_the_file(files: Files) -> None:
    errors = files.errors(version=1, extra=1, plugins=[{}], sinks={"mixed": {"writer": PARQUET, "plugin": "x"}})
    assert sorted(error.pointer for error in errors) == ["/extra", "/plugins/0/name", "/sinks/mixed", "/version"]


@pytest.mark.parametrize("version", ["2", 1, True, None, 2.5])
def test_the_version_is_the_number_two(files: Files, version: object) -> None:
    assert [(error.pointer, error.message) for error in files.errors(version=version)] == [
        ("/version", "version must be exactly 2")
    ]
    assert files.load(version=2.0).sinks == {}


def test_plugins_must_be_an_array(files: Files) -> None:
    assert files.errors(plugins={})[0].message == "plugins must be an array"


def test_hypawares_own_query_block_is_taken_whole(files: Files) -> None:
    files.load(
        query={
            "cache": {
                "dir": "~/cache",
                "retention": {"default_days": 30, "datasets": {"logs": 0.5}},
                "maintenance": {"enabled": True, "interval_minutes": 60, "max_tick_ms": 0},
            },
            "remotes": {"office": {"url": "https://hyp.example"}},
            "default_remote": "office",
        },
        disambiguate={"hypaware.encoder": PARQUET},
    )


def test_the_first_day_lies_not_before_the_floor(files: Files) -> None:
    config = files.load(first_day="2022-06-01", floor_day="2022-01-01")
    assert (config.first_day, config.floor_day) == ("2022-06-01", "2022-01-01")
    (error,) = files.errors(first_day="2022-06-01")
    assert (
        str(error)
        == "/first_day: must not lie before floor_day (2023-01-01): rows before that are undated [config_invalid_shape]"
    )


# --- the cache -----------------------------------------------------------------------------------------------------------------


def test_the_cache_is_where_the_file_says_else_in_hypawares_home(files: Files) -> None:
    assert files.load().cache_root == files.home / ".hyp" / "hypaware" / "cache"
    files.env["HYP_HOME"] = "/srv/hyp"
    assert files.load().cache_root == Path("/srv/hyp/hypaware/cache")
    assert files.load(query={"cache": {"dir": "/var/cache/hyp"}}).cache_root == Path("/var/cache/hyp")
    assert files.load(query={"cache": {"dir": "~/c"}}).cache_root == files.home / "c"
    assert files.load(query={"cache": {"dir": "../c"}}).cache_root == files.home / "c"


@pytest.mark.parametrize("text", [" ", "a\0b", "~ada/cache"])
def test_a_cache_directory_that_is_no_path_is_said(files: Files, text: str) -> None:
    assert said(files.errors(query={"cache": {"dir": text}})) == [("config_invalid_shape", "/query/cache/dir")]


# --- a sink --------------------------------------------------------------------------------------------------------------------


def test_a_sink_is_read_with_its_defaults_filled_in(files: Files) -> None:
    sink = files.sink(a_sink("~/out"))
    assert sink == SinkConfig(
        name=SinkName("archive"),
        slug="archive",
        writer=PARQUET,
        destination=LOCAL,
        writer_settings={"codec": "zstd", "level": 3, "row_group_bytes": 32 * 2**20},
        destination_settings={"dir": str(files.home / "out")},
        place=("file", *(files.home / "out").parts),
        supports=("queryable",),
    )


def test_a_sink_takes_the_datasets_it_names_or_matches(files: Files) -> None:
    sink = files.sink(a_sink(datasets=["logs", "ai_*"]))
    taken = ["logs", "ai_gateway_messages", "Logs", "logs2", "traces"]
    assert [name for name in taken if sink.takes(DatasetName(name))] == taken[:2]
    assert files.sink(a_sink()).takes(DatasetName("anything at all"))


def test_a_schedule_is_carried_as_written(files: Files) -> None:
    assert files.sink(a_sink(schedule="*/15 8-17 * 1,6 1-5")).schedule == "*/15 8-17 * 1,6 1-5"
    assert files.sink(a_sink()).schedule is None


@pytest.mark.parametrize(
    ("written", "read"),
    [("/exports", "/exports"), ("~", "{home}"), ("~/x", "{home}/x"), ("x", "{home}/etc/x"), ("../x", "{home}/x")],
)
def test_a_directory_is_absolute_or_of_the_home_or_beside_the_file(files: Files, written: str, read: str) -> None:
    assert files.sink(a_sink(written)).destination_settings["dir"] == read.format(home=files.home)


def test_a_directory_behind_a_link_is_the_one_the_link_names(files: Files) -> None:
    (files.home / "link").symlink_to(files.home / "disk")
    assert files.sink(a_sink("~/link/x")).destination_settings["dir"] == str(files.home / "disk" / "x")


@pytest.mark.parametrize(("written", "read"), [("", ""), ("a", "a"), ("/a/b/", "a/b"), ("//", ""), ("a b/é", "a b/é")])
def test_a_prefix_loses_the_slashes_around_it(files: Files, written: str, read: str) -> None:
    assert files.sink(a_sink(prefix=written)).prefix == read


@pytest.mark.parametrize("prefix", ["..", "a/../b", "a//b", ".hidden", "a\\b", "a\nb", "a\0b", "./a"])
def test_a_prefix_that_could_leave_or_hide_is_refused(files: Files, prefix: str) -> None:
    assert files.broken(a_sink(prefix=prefix)) == [("sink_config_invalid", "/sinks/archive/config/prefix")]


@pytest.mark.parametrize(
    ("entry", "pointer", "message"),
    [
        ([], "", "sink entry must be an object"),
        ({}, "", "sink must specify either writer+destination (blob) or plugin (request)"),
        ({"writer": PARQUET, "plugin": "x"}, "", "sink instance cannot combine writer/destination with plugin"),
        ({"writer": PARQUET}, "/destination", "destination (plugin name) is required for blob sinks"),
        ({"destination": LOCAL}, "/writer", "writer (plugin name) is required for blob sinks"),
        ({"writer": "", "destination": LOCAL}, "/writer", "writer (plugin name) is required for blob sinks"),
        ({"writer": None, "destination": LOCAL}, "/writer", "writer (plugin name) is required for blob sinks"),
        ({"plugin": 1}, "/plugin", "plugin (plugin name) is required for request sinks"),
        ({"plugin": None}, "/plugin", "plugin (plugin name) is required for request sinks"),
        ({"writer": PARQUET, "destination": LOCAL, "config": []}, "/config", "config must be an object when present"),
    ],
)
def test_the_shape_of_a_sink_is_judged_in_hypawares_words(files: Files, entry: object, pointer: str, message: str) -> None:
    (error,) = files.load(sinks={"archive": entry}).broken_sinks["archive"]
    assert (error.kind, error.pointer, error.message) == ("config_invalid_shape", f"/sinks/archive{pointer}", message)


def test_everything_wrong_with_a_sink_is_said_at_once(files: Files) -> None:
    entry = a_sink("a\0b", levl=3, level=99, prefix="..", schedule="@hourly", datasets=[], row_group_bytes=1)
    assert sorted(files.broken(entry)) == [
        ("sink_config_invalid", f"/sinks/archive/config/{key}")
        for key in ("datasets", "dir", "level", "levl", "prefix", "row_group_bytes")
    ] + [("sink_schedule_invalid", "/sinks/archive/config/schedule")]


def test_an_unknown_key_of_a_sink_entry_is_not_dropped(files: Files) -> None:
    assert files.broken({**a_sink(), "confg": {}}) == [("config_invalid_shape", "/sinks/archive/confg")]


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a b", ".a", "-a", "é", "a" * 61, "a'b", "a\nb", "x" * 200])
def test_a_sink_whose_name_fits_nowhere_is_broken_alone(files: Files, name: str) -> None:
    config = files.load(sinks={name: a_sink("one"), "good": a_sink("two")})
    assert list(config.sinks) == ["good"]
    assert said(config.broken_sinks[name]) == [("sink_config_invalid", f"/sinks/{name}")]


@pytest.mark.parametrize("name", ["cache", "broken", "class", "None", "match"])
def test_a_sink_cannot_take_a_name_that_is_taken(files: Files, name: str) -> None:
    (error,) = files.load(sinks={name: a_sink()}).broken_sinks[name]
    assert (error.kind, error.pointer) == ("sink_config_invalid", f"/sinks/{name}")
    assert error.message.endswith("choose another")


def test_one_broken_sink_stops_no_other(files: Files) -> None:
    sinks = {"a": a_sink("a"), "b": {"plugin": "@hypaware/central"}, "c": None, "d": a_sink("d", writer=JSONL)}
    config = files.load(sinks=sinks)
    assert (list(config.sinks), list(config.broken_sinks)) == (["a", "d"], ["b", "c"])


# --- sinks beside each other ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (a_sink("x"), a_sink("x", writer=JSONL)),
        (a_sink("x"), a_sink("x/y")),
        (a_sink("x", prefix="p"), a_sink("x", prefix="p/q")),
        (a_sink("x", prefix="y/z"), a_sink("x/y")),
        (a_sink("x"), a_sink("../etc/./x/")),
        (a_sink("x"), a_sink("~/link")),
    ],
)
def test_two_sinks_that_write_to_one_place_are_both_broken(files: Files, one: dict[str, Any], other: dict[str, Any]) -> None:
    (files.home / "link").symlink_to(files.path.parent / "x")
    config = files.load(sinks={"one": one, "other": other, "third": a_sink("elsewhere")})
    assert list(config.sinks) == ["third"]
    for name, twin in (("one", "other"), ("other", "one")):
        (error,) = config.broken_sinks[name]
        assert (error.kind, error.pointer) == ("name_collision", f"/sinks/{name}")
        assert f"'{twin}'" in error.message


@pytest.mark.parametrize(("one", "other"), [(a_sink("x"), a_sink("xy")), (a_sink("x", prefix="p"), a_sink("x", prefix="pq"))])
def test_two_sinks_beside_each_other_are_sound(files: Files, one: dict[str, Any], other: dict[str, Any]) -> None:
    assert len(files.load(sinks={"one": one, "other": other}).sinks) == 2


def test_a_broken_sink_claims_no_place(files: Files) -> None:
    assert list(files.load(sinks={"one": a_sink("x"), "other": a_sink("x", level=99)}).sinks) == ["one"]


def test_two_sinks_whose_names_become_one_in_dagster_are_both_broken(files: Files) -> None:
    config = files.load(sinks={"a-b": a_sink("1"), "a.b": a_sink("2"), "a_c": a_sink("3")})
    assert list(config.sinks) == ["a_c"]
    assert said(config.broken_sinks["a-b"]) == [("name_collision", "/sinks/a-b")]
    assert "'a_b' in Dagster, as does 'a.b'" in config.broken_sinks["a-b"][0].message


@pytest.mark.parametrize("below", ["datasets", "datasets/logs", "cache/datasets/x"])
def test_a_sink_never_writes_into_the_cache(files: Files, below: str) -> None:
    entry = a_sink(f"~/hyp/{below}")
    assert files.broken(entry, query={"cache": {"dir": "~/hyp"}}) == [("sink_config_invalid", "/sinks/archive")]
    assert files.sink(a_sink("~/hyp/exports"), query={"cache": {"dir": "~/hyp"}})


@pytest.mark.parametrize("where", ["~/hyp", "~/hyp/plugins", "~/hyp/exports/archive"])
def test_a_sink_never_writes_anywhere_in_the_directory_that_holds_the_tables(files: Files, where: str) -> None:
    """Objects lay beside HypAware's own, or in the place of a dataset."""
    (files.home / "hyp" / "datasets").mkdir(parents=True)
    assert files.broken(a_sink(where), query={"cache": {"dir": "~/hyp"}}) == [("sink_config_invalid", "/sinks/archive")]


def test_a_sink_never_writes_to_the_directory_that_is_named_as_the_cache(files: Files) -> None:
    assert files.broken(a_sink("~/hyp"), query={"cache": {"dir": "~/hyp"}}) == [("sink_config_invalid", "/sinks/archive")]


def test_a_sink_never_writes_into_the_state_directory(files: Files) -> None:
    """Starting over, which removes that directory, took the exports with it."""
    for where in ("c.state", "c.state/out"):
        assert files.broken(a_sink(where)) == [("sink_config_invalid", "/sinks/archive")]
    assert files.sink(a_sink("c.state.out"))
    files.env["HYPAWARE_STATE_DIR"] = str(files.home / "elsewhere")
    assert files.broken(a_sink("~/elsewhere/out")) == [("sink_config_invalid", "/sinks/archive")]
    assert files.sink(a_sink("c.state"))


# --- names ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [("logs", "logs"), ("my-sink.v2", "my_sink_v2"), ("cache", "cache_"), ("broken", "broken_"), ("class", "class_"), ("", "_")],
)
def test_a_slug_is_readable_and_reserved_by_nobody(name: str, expected: str) -> None:
    assert slug(name) == expected


@given(st.text(max_size=200))
def test_every_name_has_a_slug_dagster_takes(name: str) -> None:
    for cleaned in (slug(name), distinct_slug(name)):
        assert 1 <= len(cleaned) <= 60
        assert set(cleaned) <= {*string.ascii_letters, *string.digits, "_"}
        assert cleaned not in {"cache", "broken", "class", "import", "None"}


@given(st.sets(st.text(st.sampled_from("aA_.- é'"), max_size=70), max_size=30))
def test_different_names_have_different_distinct_slugs(names: set[str]) -> None:
    assert collisions(names, distinct_slug) == {}


def test_a_distinct_slug_leaves_a_clean_name_alone_and_marks_a_changed_one() -> None:
    assert distinct_slug("ai_gateway_messages") == "ai_gateway_messages"
    assert distinct_slug("my dataset").startswith("my_dataset_")
    assert len(distinct_slug("x" * 200)) == 60


def test_names_that_share_a_slug_name_each_other() -> None:
    assert collisions(["a-b", "c", "a.b", "a_b"]) == {"a-b": ("a.b", "a_b"), "a.b": ("a-b", "a_b"), "a_b": ("a-b", "a.b")}


# --- schedules -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["", " ", 5, None, ["0 * * * *"]])
def test_a_schedule_that_is_no_text_is_said(files: Files, schedule: object) -> None:
    (error,) = files.load(sinks={"archive": a_sink(schedule=schedule)}).broken_sinks["archive"]
    assert (error.kind, error.message) == ("sink_schedule_invalid", "schedule must be a 5-field cron string")


# --- nothing else, whatever the file holds -------------------------------------------------------------------------------------

_KEYS = st.sampled_from(
    [
        "version",
        "plugins",
        "sinks",
        "query",
        "cache",
        "dir",
        "name",
        "config",
        "writer",
        "destination",
        "datasets",
        "level",
        "a/b",
        "é",
    ]
)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from([2, PARQUET, LOCAL, "hunter2", "", "\0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=12,
)


@given(document=st.dictionaries(_KEYS, _VALUES), sinks=st.dictionaries(st.sampled_from(["a", "b", "a/b"]), _VALUES))
def test_no_file_does_more_than_report_and_no_report_holds_a_value(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, Any], sinks: dict[str, Any]
) -> None:
    files = Files(tmp_path_factory.getbasetemp())
    for value in (document, {"version": 2, "sinks": sinks}):
        report = report_on(files, json.dumps(value))
        assert "hunter2" not in report.replace("plugin 'hunter2'", "")  # a plugin's name is no secret


def report_on(files: Files, text: str) -> str:
    try:
        broken = files.load_text(text).broken_sinks
    except ConfigErrors as error:
        return str(error)
    return "".join(str(error) for errors in broken.values() for error in errors)


def test_a_report_of_a_secret_chains_no_exception_that_shows_it(files: Files) -> None:
    for text in ('{"version": 2, "password": "hunter2"}', '{"version": 2, "password": "hunter2"', '{"first_day": "hunter2"}'):
        with pytest.raises(ConfigErrors) as caught:
            files.load_text(text)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None
