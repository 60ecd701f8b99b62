"""HypAware's rules: the shape of its file, what its parts must be to each other, versions, and its two layers.

Each case is one of HypAware's own, with its kind and its pointer.
"""

from typing import Any

import pytest

from hypaware_pipeline.config.catalog import (
    BLOB_STORE,
    ENCODER,
    HTTP_ENDPOINT,
    HYPAWARE_CATALOG,
    HYPAWARE_PLUGINS,
    TABLE_FORMAT,
    Catalog,
    CatalogPlugin,
)
from hypaware_pipeline.config.document import PluginEntry
from hypaware_pipeline.config.hypaware import layer_errors, read_layer
from hypaware_pipeline.config.layers import Dropped, Layer, Merged, merge_layers
from hypaware_pipeline.config.rules import sink_errors
from hypaware_pipeline.config.semver import is_valid_range, satisfies
from hypaware_pipeline.datasets import KNOWN_DATASETS
from hypaware_pipeline.errors import ConfigError

PARQUET = "@hypaware/format-parquet"
JSONL = "@hypaware/format-jsonl"
ICEBERG = "@hypaware/format-iceberg"
LOCAL = "@hypaware/local-fs"
S3 = "@hypaware/s3"
CENTRAL = "@hypaware/central"
WEBHOOK = "@hypaware/webhook"
OTEL = "@hypaware/otel"

SAMPLE: dict[str, Any] = {
    "version": 2,
    "plugins": [{"name": PARQUET}, {"name": LOCAL, "config": {"exports_dir": "~/x"}}, {"name": CENTRAL}, {"name": OTEL}],
    "sinks": {
        "archive": {"writer": PARQUET, "destination": LOCAL, "config": {"dir": "/x", "schedule": "*/15 8-17 * 1,6 1-5"}},
        "forward": {"plugin": CENTRAL, "config": {"schedule": "0 * * * *"}},
    },
    "query": {
        "cache": {"retention": {"default_days": 30, "datasets": {"logs": 7}}, "maintenance": {"compact_batch_bytes": 1}},
        "remotes": {"office": {"url": "https://hyp.example"}},
    },
    "disambiguate": {ENCODER: PARQUET},
}


def layer(**document: Any) -> Layer:
    found = read_layer({"version": 2, **document})
    assert isinstance(found, Layer), found
    return found


def plugins(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def said(errors: Any) -> list[tuple[str, str]]:
    assert isinstance(errors, list)
    return [(error.kind, error.pointer) for error in errors]


def judged(**document: Any) -> list[tuple[str, str]]:
    return said(layer_errors(layer(**document)))


# --- shape ---------------------------------------------------------------------------------------------------------------------


def test_a_sound_file_has_nothing_wrong() -> None:
    found = read_layer(SAMPLE)
    assert isinstance(found, Layer)
    assert layer_errors(found) == []
    assert [entry.name for entry in found.plugins] == [PARQUET, LOCAL, CENTRAL, OTEL]
    assert found.disambiguate == {ENCODER: PARQUET}


def test_a_malformed_file_names_every_place() -> None:
    errors = read_layer(
        {"version": 1, "extra": 1, "plugins": [{"config": {}}], "sinks": {"mixed": {"writer": PARQUET, "plugin": CENTRAL}}}
    )
    assert sorted(pointer for _, pointer in said(errors)) == ["/extra", "/plugins/0/name", "/sinks/mixed", "/version"]
    assert {kind for kind, _ in said(errors)} == {"config_invalid_shape"}


def test_a_negative_number_of_bytes_is_no_shape() -> None:
    errors = read_layer({"version": 2, "query": {"cache": {"maintenance": {"compact_batch_bytes": -1}}}})
    assert said(errors) == [("config_invalid_shape", "/query/cache/maintenance/compact_batch_bytes")]


def test_keys_hypaware_does_not_know_below_the_top_are_dropped() -> None:
    found = layer(
        plugins=[{"name": OTEL, "color": "red"}],
        sinks={"a": {"plugin": CENTRAL, "color": "red"}},
        query={"cache": {"maintenance": {"a_key_of_tomorrow": 1}}},
    )
    assert layer_errors(found) == []


# --- between the parts ---------------------------------------------------------------------------------------------------------


def test_a_plugin_listed_twice_a_writer_that_writes_nothing_and_an_alias_are_all_said() -> None:
    sinks = {"a": {"writer": CENTRAL, "destination": LOCAL, "config": {"schedule": "@hourly"}}}
    found = judged(plugins=plugins(LOCAL, LOCAL), sinks=sinks)
    assert found == [
        ("duplicate_plugin", "/plugins/1"),
        ("sink_writer_invalid", "/sinks/a/writer"),
        ("sink_schedule_invalid", "/sinks/a/config/schedule"),
    ]
    (error, *_) = layer_errors(layer(plugins=plugins(LOCAL, LOCAL)))
    assert error.message.startswith(f"plugin '{LOCAL}' is listed twice (also at /plugins/0)")


def test_a_plugin_nobody_knows_is_said() -> None:
    assert judged(plugins=plugins(OTEL, "@acme/x")) == [("plugin_unknown", "/plugins/1/name")]


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        ({"writer": PARQUET, "plugin": CENTRAL}, [("request_sink_invalid_keys", "")]),
        ({"config": {}}, [("sink_pair_incompatible", "")]),
        ({"writer": PARQUET}, [("sink_pair_incompatible", "")]),
        ({"writer": "x", "destination": "y"}, [("sink_plugin_unknown", "/writer"), ("sink_plugin_unknown", "/destination")]),
        ({"plugin": "x"}, [("sink_plugin_unknown", "/plugin")]),
        ({"writer": CENTRAL, "destination": CENTRAL}, [("sink_writer_invalid", "/writer")]),
        ({"writer": PARQUET, "destination": WEBHOOK}, [("sink_pair_incompatible", "/destination")]),
        ({"writer": PARQUET, "destination": JSONL}, [("sink_pair_incompatible", "/destination")]),
        ({"writer": ICEBERG, "destination": WEBHOOK}, [("sink_destination_invalid", "/destination")]),
        ({"writer": "@acme/encoder", "destination": LOCAL}, [("sink_pair_incompatible", "/writer")]),
        ({"writer": "@acme/table", "destination": LOCAL}, [("sink_writer_invalid", "/writer")]),
        ({"writer": ICEBERG, "destination": S3, "config": {"encoder": LOCAL}}, [("sink_encoder_invalid", "/config/encoder")]),
        ({"writer": ICEBERG, "destination": S3, "config": {"encoder": "x"}}, [("sink_plugin_unknown", "/config/encoder")]),
        ({"writer": ICEBERG, "destination": S3, "config": {"encoder": 5}}, []),
        ({"writer": ICEBERG, "destination": S3, "config": {"encoder": JSONL}}, []),
        ({"writer": "@acme/both", "destination": WEBHOOK}, [("sink_pair_incompatible", "/destination")]),
        ({"plugin": LOCAL}, [("sink_pair_incompatible", "/plugin")]),
        ({"plugin": WEBHOOK}, []),
        ({"plugin": CENTRAL, "config": {"schedule": ""}}, [("sink_schedule_invalid", "/config/schedule")]),
        ({"plugin": CENTRAL, "config": {"schedule": 5}}, [("sink_schedule_invalid", "/config/schedule")]),
        ({"plugin": CENTRAL, "config": {"schedule": "60 * * * *"}}, [("sink_schedule_invalid", "/config/schedule")]),
        ({"plugin": CENTRAL, "config": {"schedule": "0 0 30 2 *"}}, []),
    ],
)
def test_a_sink_is_judged_by_what_its_plugins_provide(sink: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    catalog = Catalog(
        [
            *HYPAWARE_PLUGINS,
            CatalogPlugin("@acme/encoder", provides={ENCODER: "1.0.0"}),
            CatalogPlugin("@acme/table", provides={TABLE_FORMAT: "1.0.0"}),
            CatalogPlugin("@acme/both", provides={ENCODER: "1.0.0", TABLE_FORMAT: "1.0.0"}, requires={BLOB_STORE: "^1.0.0"}),
        ]
    )
    found = said(sink_errors("a", sink, catalog))
    assert found == [(kind, f"/sinks/a{pointer}") for kind, pointer in expected]


def test_a_blob_writer_on_a_request_destination_says_what_either_has() -> None:
    (error,) = sink_errors("a", {"writer": PARQUET, "destination": WEBHOOK}, HYPAWARE_CATALOG)
    assert f"requires {BLOB_STORE}, destination '{WEBHOOK}' provides {HTTP_ENDPOINT} (a request sink" in error.message


def test_a_retention_of_a_dataset_nobody_declares_is_said() -> None:
    query = {"cache": {"retention": {"default_days": 1, "datasets": {"logs": 1, "lgos": 1}}}}
    assert judged(query=query) == [("dataset_unknown", "/query/cache/retention/datasets/lgos")]


@pytest.mark.parametrize(
    ("both", "capability"), [((LOCAL, S3), BLOB_STORE), ((PARQUET, JSONL), ENCODER), ((CENTRAL, WEBHOOK), HTTP_ENDPOINT)]
)
def test_two_plugins_for_one_capability_need_one_to_be_chosen(both: tuple[str, str], capability: str) -> None:
    pointer = f"/disambiguate/{capability}"
    assert judged(plugins=plugins(*both)) == [("capability_ambiguous", pointer)]
    assert judged(plugins=plugins(*both), disambiguate={capability: OTEL}) == [("capability_ambiguous", pointer)]
    assert judged(plugins=plugins(*both), disambiguate={capability: both[1]}) == []
    assert judged(plugins=[{"name": both[0]}, {"name": both[1], "enabled": False}]) == []


def test_what_a_plugin_says_of_its_own_entry_comes_last() -> None:
    def judge(entry: PluginEntry, pointer: str) -> list[ConfigError]:
        return [ConfigError("config_section_invalid", pointer, "no")] if entry.name == "@hypaware/codex" else []

    found = layer(plugins=plugins(OTEL, "@hypaware/codex", "@acme/x"))
    assert said(layer_errors(found, sections=judge)) == [
        ("plugin_unknown", "/plugins/2/name"),
        ("config_section_invalid", "/plugins/1/config"),
    ]


# --- the catalog ---------------------------------------------------------------------------------------------------------------


def test_the_catalog_and_the_known_datasets_agree() -> None:
    attribution = {name: column for plugin in HYPAWARE_PLUGINS for name, column in plugin.datasets.items()}
    assert attribution == {name: dataset.attribution_column for name, dataset in KNOWN_DATASETS.items()}


def test_every_name_of_the_catalog_stands_once_and_every_requirement_is_met_by_one_of_it() -> None:
    for names in ([plugin.name for plugin in HYPAWARE_PLUGINS], [name for plugin in HYPAWARE_PLUGINS for name in plugin.pickers]):
        assert len(names) == len(set(names))
    for plugin in HYPAWARE_PLUGINS:
        for capability, wanted in plugin.requires.items():
            offered = [other.provides[capability] for other in HYPAWARE_PLUGINS if capability in other.provides]
            assert any(satisfies(version, wanted) for version in offered), (plugin.name, capability)


# --- versions ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "inside", "outside"),
    [
        ("^1.2.3", ["1.2.3", "1.9.0"], ["2.0.0", "1.2.2"]),
        ("~1.2.3", ["1.2.3", "1.2.9"], ["1.3.0", "1.2.2"]),
        ("^0.2.3", ["0.2.3", "0.2.5"], ["0.3.0", "0.2.2", "1.0.0"]),
        ("^0.0.3", ["0.0.3"], ["0.0.4", "0.0.2"]),
        ("1.2.3", ["1.2.3", "1.2.3-beta.1"], ["1.2.4"]),
        ("=1.2.3", ["1.2.3"], ["1.2.2"]),
        (">=1.2.3", ["1.2.3", "2.0.0"], ["1.2.2"]),
        (">1.2.3", ["1.2.4"], ["1.2.3"]),
        ("<=1.2.3", ["1.2.3", "0.9.0"], ["1.2.4"]),
        ("<1.2.3", ["1.2.2"], ["1.2.3", "1.10.0"]),
        ("^1.2.3-beta", ["1.2.3"], ["2.0.0"]),
        *((anything, ["0.0.1", "9.9.9"], ["nonsense", "1.2"]) for anything in ("*", "x", "X", "")),
        ("^garbage", [], ["1.0.0"]),
        ("^1", [], ["1.0.0", "2.0.0"]),
    ],
)
def test_a_version_lies_in_a_range_or_does_not(wanted: str, inside: list[str], outside: list[str]) -> None:
    assert [version for version in [*inside, *outside] if satisfies(version, wanted)] == inside


@pytest.mark.parametrize(("text", "valid"), [("", False), ("^garbage", False), ("1.x", False), ("*", True), ("~1.2.3", True)])
def test_a_manifest_may_write_some_ranges_and_not_others(text: str, valid: bool) -> None:
    assert is_valid_range(text) == valid


# --- layers --------------------------------------------------------------------------------------------------------------------

SINK = {"plugin": CENTRAL}


def merged(central: Layer | None, local: Layer | None) -> Merged:
    return merge_layers(central, local, layer_errors)


def test_without_a_central_layer_the_local_one_stands_as_it_is() -> None:
    local = layer(plugins=plugins("@acme/x", PARQUET, JSONL))
    assert merged(None, local) == Merged(local)
    assert merged(None, None) == Merged(Layer())


def test_central_entries_come_first_and_win() -> None:
    central = layer(plugins=[{"name": OTEL, "enabled": False}], sinks={"a": SINK}, disambiguate={ENCODER: PARQUET})
    local = layer(
        plugins=plugins(LOCAL, OTEL), sinks={"a": {"plugin": WEBHOOK}, "b": SINK}, disambiguate={ENCODER: JSONL, BLOB_STORE: S3}
    )
    found = merged(central, local)
    assert [(entry.name, entry.enabled) for entry in found.layer.plugins] == [(OTEL, False), (LOCAL, True)]
    assert found.layer.sinks == {"a": SINK, "b": SINK}
    assert found.layer.disambiguate == {ENCODER: PARQUET, BLOB_STORE: S3}
    assert found.dropped == (
        Dropped("plugins", OTEL, "collides_with_central"),
        Dropped("sinks", "a", "collides_with_central"),
        Dropped("disambiguate", ENCODER, "collides_with_central"),
    )


def test_a_local_addition_that_makes_the_whole_invalid_is_dropped() -> None:
    found = merged(layer(plugins=plugins(PARQUET)), layer(plugins=plugins(JSONL, OTEL)))
    assert [entry.name for entry in found.layer.plugins] == [PARQUET, OTEL]
    assert found.dropped == (Dropped("plugins", JSONL, "invalid_merge", "capability_ambiguous"),)


def test_a_tie_that_the_central_layer_has_decided_drops_nothing() -> None:
    central = layer(plugins=plugins(PARQUET), disambiguate={ENCODER: PARQUET})
    assert merged(central, layer(plugins=plugins(JSONL))).dropped == ()


def test_what_the_central_layer_gets_wrong_itself_drops_nothing_local() -> None:
    central = layer(plugins=plugins(PARQUET, JSONL, "@acme/x"), sinks={"bad": {"plugin": "@acme/x"}})
    found = merged(central, layer(plugins=plugins(OTEL), sinks={"good": SINK}))
    assert found.dropped == ()
    assert list(found.layer.sinks) == ["bad", "good"]


def test_a_local_sink_with_an_unknown_plugin_is_dropped_with_the_kind_of_its_error() -> None:
    found = merged(layer(plugins=plugins(OTEL)), layer(sinks={"a": {"plugin": "@acme/x"}}))
    assert found.dropped == (Dropped("sinks", "a", "invalid_merge", "sink_plugin_unknown"),)


def test_a_local_sink_is_dropped_although_a_central_one_has_an_error_of_the_same_kind() -> None:
    central = layer(sinks={"bad": {"plugin": "@acme/x"}})
    found = merged(central, layer(sinks={"worse": {"plugin": "@acme/x"}}))
    assert found.dropped == (Dropped("sinks", "worse", "invalid_merge", "sink_plugin_unknown"),)


def test_only_the_local_query_block_counts() -> None:
    central = layer(query={"cache": {"dir": "/central"}})
    found = merged(central, layer(query={"cache": {"dir": "/local"}}))
    assert found.central_query_ignored
    assert found.layer.query is not None
    assert found.layer.query.cache.dir == "/local"
    assert merged(central, layer()).layer.query is None
    assert not merged(layer(), layer(query={"cache": {"dir": "/local"}})).central_query_ignored
