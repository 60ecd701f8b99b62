"""The bundled plugins: which pairs fit, which options they take, and what is made of them."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hypaware_pipeline.config import Config, SinkConfig, load_config
from hypaware_pipeline.config.references import Secrets
from hypaware_pipeline.errors import SinkHalted
from hypaware_pipeline.model import SinkName
from hypaware_pipeline.plugins.bundled import BUNDLED_PLUGINS
from hypaware_pipeline.plugins.manifest import Provided
from hypaware_pipeline.plugins.registry import BUNDLED, Registry, destination_digest

ROOT = Path(__file__).resolve().parent.parent
PARQUET = "@hypaware/format-parquet"
JSONL = "@hypaware/format-jsonl"
LOCAL = "@hypaware/local-fs"
WRITERS = f"use {PARQUET} or {JSONL}"
NO_SECRETS = Secrets("archive", {})


class Home:
    """A directory with one config file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self, entry: dict[str, Any], *plugins: dict[str, Any]) -> Config:
        document = {"version": 2, "sinks": {"archive": entry}, **({"plugins": plugins} if plugins else {})}
        file = self.path / "c.json"
        file.write_text(json.dumps(document))
        return load_config(file, {"HOME": str(self.path)}, BUNDLED)

    def sink(self, entry: dict[str, Any], *plugins: dict[str, Any]) -> SinkConfig:
        config = self.load(entry, *plugins)
        assert config.broken_sinks == {}
        return config.sinks[SinkName("archive")]

    def broken(self, entry: dict[str, Any], *plugins: dict[str, Any]) -> list[tuple[str, str, str]]:
        return [(error.kind, error.pointer, error.message) for error in self.load(entry, *plugins).broken_sinks["archive"]]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def parquet(**options: Any) -> dict[str, Any]:
    return {"writer": PARQUET, "destination": LOCAL, "config": {"dir": "out", **options}}


def jsonl(**options: Any) -> dict[str, Any]:
    return {**parquet(**options), "writer": JSONL}


def enabled(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


# --- pairs ---------------------------------------------------------------------------------------------------------------------


def test_unknown_plugins_are_both_named_with_those_there_are(home: Home) -> None:
    there_are = f"there are {JSONL}, {PARQUET}, {LOCAL}"
    assert home.broken({"writer": "@hypaware/format-csv", "destination": "@hypaware/ftp"}) == [
        ("sink_plugin_unknown", "/sinks/archive/writer", f"there is no plugin '@hypaware/format-csv'; {there_are}"),
        ("sink_plugin_unknown", "/sinks/archive/destination", f"there is no plugin '@hypaware/ftp'; {there_are}"),
    ]


def test_a_store_cannot_be_the_writer(home: Home) -> None:
    message = (
        f"'{LOCAL}' cannot write: it provides hypaware.blob-store, a writer hypaware.encoder or hypaware.table-format; {WRITERS}"
    )
    assert home.broken({"writer": LOCAL, "destination": LOCAL}) == [("sink_writer_invalid", "/sinks/archive/writer", message)]


def test_a_pair_that_does_not_fit_names_what_is_required_and_what_is_provided(home: Home) -> None:
    message = f"writer '{PARQUET}' requires hypaware.blob-store, destination '{JSONL}' provides hypaware.encoder; use {LOCAL}"
    found = home.broken({"writer": PARQUET, "destination": JSONL})
    assert found == [("sink_pair_incompatible", "/sinks/archive/destination", message)]


def test_there_is_no_request_plugin_yet(home: Home) -> None:
    ((kind, pointer, _),) = home.broken({"plugin": "@hypaware/central"})
    assert (kind, pointer) == ("sink_plugin_not_active", "/sinks/archive/plugin")
    ((kind, pointer, message),) = home.broken({"plugin": LOCAL})
    assert (kind, pointer) == ("sink_pair_incompatible", "/sinks/archive/plugin")
    assert "a request sink hypaware.http-endpoint; there is none yet" in message


@pytest.mark.parametrize(("entry", "supports"), [(parquet(), ("queryable",)), (jsonl(), ())])
def test_a_pair_supports_what_both_support(home: Home, entry: dict[str, Any], supports: tuple[str, ...]) -> None:
    assert home.sink(entry).supports == supports


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"writer": PARQUET, "destination": "@hypaware/s3"}, ("sink_plugin_not_active", "/sinks/archive/destination")),
        ({"writer": "@hypaware/format-iceberg", "destination": LOCAL}, ("sink_plugin_not_active", "/sinks/archive/writer")),
        ({"writer": PARQUET, "destination": "@hypaware/webhook"}, ("sink_pair_incompatible", "/sinks/archive/destination")),
        ({"writer": "@hypaware/central", "destination": LOCAL}, ("sink_writer_invalid", "/sinks/archive/writer")),
    ],
)
def test_plugins_of_hypawares_are_judged_as_hypaware_would_and_then_said_not_to_be_here(
    home: Home, entry: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert [(kind, pointer) for kind, pointer, _ in home.broken(entry)] == [expected]


# --- which plugins are on ------------------------------------------------------------------------------------------------------


def test_without_a_plugins_list_all_bundled_plugins_are_on(home: Home) -> None:
    assert home.sink(parquet())


def test_listed_plugins_are_on_and_unknown_ones_beside_them_hurt_nobody(home: Home) -> None:
    assert home.sink(parquet(), *enabled(PARQUET, LOCAL, "@hypaware/otel"))


def test_a_plugin_that_is_not_listed_is_off(home: Home) -> None:
    ((kind, pointer, message),) = home.broken(parquet(), *enabled(LOCAL))
    assert (kind, pointer) == ("sink_plugin_not_active", "/sinks/archive/writer")
    assert "not listed in plugins; add it" in message


def test_a_plugin_that_is_switched_off_breaks_the_sink_that_uses_it(home: Home) -> None:
    found = home.broken(parquet(), *enabled(PARQUET), {"name": LOCAL, "enabled": False})
    message = f"plugin '{LOCAL}' is switched off at /plugins/1/enabled"
    assert found == [("sink_plugin_not_active", "/sinks/archive/destination", message)]


def test_a_plugin_listed_twice_breaks_the_sink_that_uses_it(home: Home) -> None:
    ((kind, pointer, message),) = home.broken(parquet(), *enabled(PARQUET, LOCAL, PARQUET))
    assert (kind, pointer) == ("duplicate_plugin", "/plugins/2")
    assert f"plugin '{PARQUET}' is listed twice (also at /plugins/0)" in message
    assert home.sink(parquet(), *enabled(PARQUET, LOCAL, JSONL, JSONL))


# --- options -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {"codec": "zstd", "level": 3}),
        ({"level": 19}, {"codec": "zstd", "level": 19}),
        ({"zstd_level": 7}, {"codec": "zstd", "level": 7}),
        ({"codec": "ZSTD"}, {"codec": "zstd", "level": 3}),
        ({"codec": "SNAPPY"}, {"codec": "snappy"}),
        ({"codec": "snappy", "zstd_level": 7}, {"codec": "snappy"}),
        ({"codec": "gzip", "level": 9}, {"codec": "gzip", "level": 9}),
        ({"codec": "none"}, {"codec": "none"}),
    ],
)
def test_parquet_options_become_settings(home: Home, options: dict[str, Any], settings: dict[str, Any]) -> None:
    assert home.sink(parquet(**options)).writer_settings == {**settings, "row_group_bytes": 32 * 2**20}


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {"compression": "gzip", "level": 6}),
        ({"compression": "zstd"}, {"compression": "zstd", "level": 3}),
        ({"compression": "zstd", "level": 19}, {"compression": "zstd", "level": 19}),
    ],
)
def test_jsonl_options_become_settings(home: Home, options: dict[str, Any], settings: dict[str, Any]) -> None:
    assert home.sink(jsonl(**options)).writer_settings == settings


@pytest.mark.parametrize(
    ("entry", "key", "message"),
    [
        (parquet(codec="lz5"), "codec", "should be 'zstd', 'snappy', 'gzip' or 'none'"),
        (parquet(level=23), "level", "zstd levels are 1 to 22"),
        (parquet(level="3"), "level", "should be a valid integer"),
        (parquet(level=True), "level", "should be a valid integer"),
        (parquet(codec="snappy", level=3), "level", "codec 'snappy' has no levels; leave it out"),
        (parquet(level=3, zstd_level=3), "zstd_level", "is another name for level; give one of the two"),
        (parquet(row_group_bytes=1000), "row_group_bytes", "should be greater than or equal to 1048576"),
        (jsonl(compression="none"), "compression", "should be 'gzip' or 'zstd'"),
        (jsonl(level=10), "level", "gzip levels are 1 to 9"),
        (jsonl(owners=["team:x", "ada@localhost"]), "owners/1", "must be an e-mail address, or a team written team:name"),
        (jsonl(owners=["team:${ENV:X}"]), "owners/0", "cannot refer to a variable: what it says is shown and stored"),
        ({**parquet(), "config": {}}, "dir", "dir is required"),
    ],
)
def test_an_option_out_of_bounds_is_said_with_the_bounds(home: Home, entry: dict[str, Any], key: str, message: str) -> None:
    assert home.broken(entry) == [("sink_config_invalid", f"/sinks/archive/config/{key}", message)]


def test_an_option_of_the_other_format_is_unknown_and_the_known_ones_are_listed(home: Home) -> None:
    ours = "before_tick, before_tick_timeout_seconds, compression, datasets, dir, level"
    message = f"unrecognized key 'codec'; known are {ours}, owners, prefix, schedule, start, takeover"
    assert home.broken(jsonl(codec="zstd")) == [("sink_config_invalid", "/sinks/archive/config/codec", message)]


# --- the plugin's own entry ----------------------------------------------------------------------------------------------------


def with_codec(**config: Any) -> list[dict[str, Any]]:
    return [{"name": PARQUET, "config": config}, {"name": LOCAL, "config": {"exports_dir": "~/x"}}]


@pytest.mark.parametrize(
    ("section", "options", "settings"),
    [
        ({"codec": "GZIP"}, {}, {"codec": "gzip", "level": 6}),
        ({"codec": "ZSTD", "zstd_level": 9}, {}, {"codec": "zstd", "level": 9}),
        ({"zstd_level": 9}, {"level": 1}, {"codec": "zstd", "level": 1}),
        ({"codec": "zstd", "level": 19}, {"codec": "gzip"}, {"codec": "gzip", "level": 6}),
        ({"codec": "gzip", "level": 2}, {"level": 4}, {"codec": "gzip", "level": 4}),
        ({"page_size": 1024.9}, {}, {"codec": "zstd", "level": 3}),
    ],
)
def test_a_plugins_entry_sets_what_its_sinks_do_not(
    home: Home, section: dict[str, Any], options: dict[str, Any], settings: dict[str, Any]
) -> None:
    sink = home.sink(parquet(**options), *with_codec(**section))
    assert sink.writer_settings == {**settings, "row_group_bytes": 32 * 2**20}
    assert home.sink(parquet(), *with_codec(row_group_bytes=2**20)).writer_settings["row_group_bytes"] == 2**20


def test_what_is_wrong_in_a_plugins_entry_is_said_there(home: Home) -> None:
    found = home.broken(parquet(), *with_codec(codec="lz5", page_size=0, color="red"))
    assert [(kind, pointer) for kind, pointer, _ in found] == [
        ("config_section_invalid", f"/plugins/0/config/{key}") for key in ("codec", "page_size", "color")
    ]


def test_a_wrong_entry_breaks_only_the_sinks_that_use_the_plugin(home: Home) -> None:
    assert home.sink(jsonl(), *with_codec(codec="lz5"), *enabled(JSONL))


# --- what is made of it --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    [
        *(parquet(codec=codec) for codec in ("zstd", "snappy", "gzip", "none")),
        *(parquet(codec=codec, level=1) for codec in ("zstd", "gzip")),
        *(parquet(level=22, row_group_bytes=size) for size in (2**20, 2**30)),
        *(jsonl(compression=compression) for compression in ("gzip", "zstd")),
        *(jsonl(compression=compression, level=level) for compression, level in (("gzip", 9), ("zstd", 22))),
    ],
)
def test_the_settings_are_the_encoders_own_to_the_last_default(home: Home, entry: dict[str, Any]) -> None:
    sink = home.sink(entry)
    encoder = BUNDLED.encoder(sink.writer, sink.writer_settings, NO_SECRETS)
    assert encoder.spec.settings == sink.writer_settings


def test_the_store_is_rooted_at_the_directory(home: Home) -> None:
    sink = home.sink(parquet(prefix="a"))
    store = BUNDLED.store(sink.destination, sink.destination_settings, NO_SECRETS)
    assert store.uri("a/b") == (home.path / "out" / "a" / "b").as_uri()
    assert store.put("a/b", lambda out: out.write(b"hello")) == 5
    assert (home.path / "out" / "a" / "b").read_bytes() == b"hello"


def test_a_prefix_that_is_taken_makes_keys_that_every_store_takes(home: Home) -> None:
    from hypaware_pipeline.sinks.naming import check_key

    for prefix in ("a", "a b/é/=", "_x", "a.b", "*?[x]"):
        check_key(f"{home.sink(parquet(prefix=prefix)).prefix}/x")


def test_a_plugin_that_is_gone_halts_the_sink(home: Home) -> None:
    sink = home.sink(parquet())
    nothing = Registry(())
    with pytest.raises(SinkHalted, match=PARQUET):
        nothing.encoder(sink.writer, sink.writer_settings, NO_SECRETS)
    with pytest.raises(SinkHalted, match=LOCAL):
        nothing.store(sink.destination, sink.destination_settings, NO_SECRETS)
    with pytest.raises(SinkHalted, match=LOCAL):
        BUNDLED.encoder(LOCAL, {}, NO_SECRETS)
    with pytest.raises(SinkHalted, match=JSONL):
        BUNDLED.store(JSONL, {}, NO_SECRETS)


@pytest.mark.parametrize("code", ["no.such.module:Encoder", "hypaware_pipeline.model:NoSuchEncoder"])
def test_a_plugin_whose_code_cannot_be_loaded_halts_only_the_sinks_that_use_it(home: Home, code: str) -> None:
    (plugin,) = (plugin for plugin in BUNDLED_PLUGINS if plugin.name == PARQUET)
    assert plugin.encoder is not None
    lame = replace(plugin, encoder=Provided(plugin.encoder.options, code))
    registry = Registry([lame, *(other for other in BUNDLED_PLUGINS if other is not plugin)])
    with pytest.raises(SinkHalted, match=f"'{PARQUET}'"):
        registry.encoder(PARQUET, home.sink(parquet()).writer_settings, NO_SECRETS)
    assert registry.encoder(JSONL, home.sink(jsonl()).writer_settings, NO_SECRETS).spec.format == "jsonl"


def test_resolving_a_sink_loads_no_plugin_code() -> None:
    heavy = {"pyarrow", "duckdb", "pandas", "numpy", "dagster", "boto3", "hypaware_pipeline.sinks"}
    script = "import sys, hypaware_pipeline.plugins.registry; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
    assert not heavy & set(loaded)


# --- digest --------------------------------------------------------------------------------------------------------------------


def test_a_digest_stays_the_same_from_version_to_version(home: Home) -> None:
    sink = replace(home.sink(parquet()), destination_settings={"dir": "/exports"})
    assert destination_digest(sink) == "a49eb33f14bc4006"


@pytest.mark.parametrize(
    "entry",
    [
        parquet(dir="other"),
        parquet(prefix="p"),
        parquet(level=4),
        parquet(codec="snappy"),
        parquet(row_group_bytes=2**20),
        jsonl(),
        jsonl(compression="zstd"),
    ],
)
def test_a_digest_changes_with_what_shapes_the_objects(home: Home, entry: dict[str, Any]) -> None:
    assert destination_digest(home.sink(entry)) != destination_digest(home.sink(parquet()))


@pytest.mark.parametrize(
    "entry",
    [
        parquet(schedule="0 * * * *"),
        parquet(datasets=["logs"]),
        parquet(codec="ZSTD", level=3),
        parquet(zstd_level=3),
        parquet(dir="./x/../out/"),
        parquet(prefix="/"),
    ],
)
def test_a_digest_does_not_change_with_anything_else(home: Home, entry: dict[str, Any]) -> None:
    assert destination_digest(home.sink(entry)) == destination_digest(home.sink(parquet()))


def test_two_places_that_only_together_read_the_same_have_two_digests(home: Home) -> None:
    assert destination_digest(home.sink(parquet(dir="a", prefix="b"))) != destination_digest(home.sink(parquet(dir="a/b")))
