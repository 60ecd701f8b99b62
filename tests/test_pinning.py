"""What runs are built from, broken sinks beside sound ones, and definitions inside another deployment."""

import json
import os
import subprocess
import sys

import dagster as dg
import pytest
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext
from dagster._core.definitions.reconstruct import (
    initialize_repository_def_from_pointer,
    reconstruct_repository_def_from_pointer,
)

from hypaware_pipeline.errors import ConfigErrors
from hypaware_pipeline.export.blueprint import Blueprint
from hypaware_pipeline.orchestration.build import build_definitions
from tests.installations import JSONL, NOW, PARQUET, AnInstallation, write_config

SINKS = {
    "archive": {**PARQUET, "config": {"dir": "out/${ENV:PLACE}", "schedule": "0 * * * *", "before_tick": "flush ${ENV:TOKEN}"}},
    "feed": {**JSONL, "config": {"dir": "out/feed", "datasets": ["logs"]}},
    "odd": {**JSONL, "config": {"dir": "odd", "colour": "red", "size": 3}},
}


@pytest.fixture
def cache(cache):
    return cache.with_day("2026-06-04")


@pytest.fixture
def unset_context():
    yield
    DefinitionsLoadContext._instance = None


def names(defs):
    return {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}


def test_a_blueprint_read_back_is_the_one_that_was_drawn(cache, home):
    cache.with_rows("acme_events", [{"timestamp": NOW, "n": 1}])
    drawn = Blueprint.draw(AnInstallation(home, cache.root, sinks=SINKS, first_day="2026-06-01").installation)
    read = Blueprint.from_text(drawn.to_text(), clock=drawn.installation.clock)
    assert read.to_text() == drawn.to_text()
    assert read.beginnings == drawn.beginnings
    assert read.datasets == drawn.datasets
    assert [dataset.name for dataset in read.datasets] == ["acme_events", "logs"]
    ours, theirs = read.installation.config, drawn.installation.config
    for key in ("path", "sinks", "cache_root", "first_day", "floor_day", "retention", "notes"):
        assert getattr(ours, key) == getattr(theirs, key)
    assert [str(error) for error in ours.broken_sinks["odd"]] == [str(error) for error in theirs.broken_sinks["odd"]]
    assert [str(error) for error in ours.problems] == [str(error) for error in theirs.problems]
    assert read.installation.state == drawn.installation.state


def test_what_is_pinned_holds_names_of_variables_and_never_their_values(cache, home, monkeypatch):
    monkeypatch.setenv("PLACE", "a-secret-place")
    monkeypatch.setenv("TOKEN", "a-secret-token")
    text = Blueprint.draw(AnInstallation(home, cache.root, sinks=SINKS).installation).to_text()
    assert "${ENV:PLACE}" in text
    assert "a-secret" not in text


def test_a_run_is_built_from_what_was_pinned_and_needs_neither_file_nor_cache_nor_ledger(cache, home, monkeypatch, unset_context):
    config = write_config(home, cache.root, sinks=SINKS)
    monkeypatch.setenv("HYPAWARE_PIPELINE_CONFIG", str(config))
    pointer = ModuleCodePointer("hypaware_pipeline.definitions", "defs")
    loaded = initialize_repository_def_from_pointer(pointer)
    config.write_text("{")
    cache.with_day("2026-06-01").with_day("2026-06-04", dataset="ai_gateway_messages", source="claude")
    (home / "hypaware-pipeline.state" / "ledger.db").write_bytes(b"no database" * 100)
    DefinitionsLoadContext._instance = None
    built = reconstruct_repository_def_from_pointer(pointer, loaded.repository_load_data)
    assert built.has_job("export_archive")
    assert built.asset_graph.get_all_asset_keys() == loaded.asset_graph.get_all_asset_keys()
    first = {graph.get(dg.AssetKey(["feed", "logs"])).partitions_def for graph in (built.asset_graph, loaded.asset_graph)}
    assert len(first) == 1


def test_a_pin_of_another_version_is_drawn_anew(cache, home, monkeypatch, unset_context):
    config = write_config(home, cache.root, sinks=SINKS)
    monkeypatch.setenv("HYPAWARE_PIPELINE_CONFIG", str(config))
    pointer = ModuleCodePointer("hypaware_pipeline.definitions", "defs")
    data = initialize_repository_def_from_pointer(pointer).repository_load_data
    (key,) = data.reconstruction_metadata
    value = data.reconstruction_metadata[key]
    older = data._replace(reconstruction_metadata={key: type(value)(json.dumps({"version": 0}))})
    DefinitionsLoadContext._instance = None
    assert reconstruct_repository_def_from_pointer(pointer, older).has_job("export_archive")


# --- broken sinks ---------------------------------------------------------------------------------------------------------------


def test_of_three_sinks_the_broken_one_stops_neither_of_the_others(cache, home):
    defs = build_definitions(write_config(home, cache.root, sinks=SINKS), env={"HOME": str(home)})
    dg.Definitions.validate_loadable(defs)
    assert {"archive/logs", "feed/logs", "broken/odd"} <= names(defs)
    assert {job.name for job in defs.resolve_all_job_defs()} >= {"export_archive", "export_feed"}
    assert [schedule.name for schedule in defs.schedules] == ["export_archive_schedule"]


def test_validation_fails_with_all_reasons(cache, home):
    config = write_config(home, cache.root, sinks=SINKS)
    with pytest.raises(ConfigErrors) as raised:
        build_definitions(config, env={"HOME": str(home), "DAGSTER_IS_DEFS_VALIDATION_CLI": "1"})
    assert {error.pointer for error in raised.value.errors} == {"/sinks/odd/config/colour", "/sinks/odd/config/size"}


@pytest.mark.slow
def test_dagster_definitions_validate_fails_with_all_reasons_and_passes_without_any(cache, home):
    config = write_config(home, cache.root, sinks=SINKS)
    command = [sys.executable, "-m", "dagster", "definitions", "validate", "-m", "hypaware_pipeline.definitions"]

    def validate():
        env = {**os.environ, "HYPAWARE_PIPELINE_CONFIG": str(config)}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    done = validate()
    assert done.returncode == 1
    assert "/sinks/odd/config/colour" in done.stdout + done.stderr
    assert "/sinks/odd/config/size" in done.stdout + done.stderr
    write_config(home, cache.root)
    assert validate().returncode == 0


def test_a_config_that_cannot_be_read_is_an_asset_that_says_why_and_fails_validation(home):
    config = home / "c.json"
    home.mkdir()
    config.write_text("{")
    assert names(build_definitions(config, env={"HOME": str(home)})) == {"broken/the_configuration"}
    with pytest.raises(ConfigErrors):
        build_definitions(config, env={"HOME": str(home), "DAGSTER_IS_DEFS_VALIDATION_CLI": "1"})


# --- in another deployment -----------------------------------------------------------------------------------------------------


def test_everything_is_named_under_the_prefix_so_that_it_fits_beside_anything(cache, home):
    config = write_config(home, cache.root, sinks=SINKS)

    @dg.asset(key=["cache", "logs"])
    def theirs() -> None: ...

    other = dg.Definitions(assets=[theirs], executor=dg.multiprocess_executor, resources={"cache_io_manager": dg.mem_io_manager})
    ours = build_definitions(config, key_prefix=["company", "hypaware"], env={"HOME": str(home)})
    plain = build_definitions(config, env={"HOME": str(home)})
    defs = dg.Definitions.merge(other, ours)
    dg.Definitions.validate_loadable(defs)
    prefixed = {f"company/hypaware/{name}" for name in names(plain)}
    assert names(defs) == {"cache/logs", *prefixed}
    kinds = [("jobs", ours.jobs), ("schedules", ours.schedules), ("sensors", ours.sensors)]
    assert all(each.name.startswith("company_hypaware_") for _, kind in kinds for each in kind or ())
    assert all(name.startswith("company_hypaware_") for name in ours.resources)
    groups = {node.group_name for node in defs.resolve_asset_graph().asset_nodes if node.key.path[0] == "company"}
    assert groups == {"company_hypaware_cache", "company_hypaware_archive", "company_hypaware_feed", "company_hypaware_broken"}


def test_a_prefixed_sink_exports(cache, home):
    config = write_config(home, cache.root, sinks={"feed": SINKS["feed"]})
    defs = build_definitions(config, key_prefix=["hypaware"], env={"HOME": str(home)})
    with dg.DagsterInstance.ephemeral() as instance:
        result = defs.resolve_job_def("hypaware_export_feed").execute_in_process(instance=instance, partition_key="2026-06-04")
        assert result.success
        (record,) = instance.fetch_materializations(dg.AssetKey(["hypaware", "feed", "logs"]), limit=2).records
    assert record.partition_key == "2026-06-04"
