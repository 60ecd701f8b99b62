"""`${ENV:NAME}`: what may refer to a variable, when it is looked up, and that its value is never seen."""

import json
import logging
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from hypaware_pipeline.config import Config, SinkConfig, load_config
from hypaware_pipeline.config.references import Secrets, has_reference, reference_problems
from hypaware_pipeline.errors import SinkHalted
from hypaware_pipeline.export.blueprint import Blueprint
from hypaware_pipeline.export.installation import build_sink
from hypaware_pipeline.model import SinkName
from hypaware_pipeline.plugins.manifest import EncoderOptions, Plugin, Provided
from hypaware_pipeline.plugins.registry import BUNDLED, Registry, destination_digest
from tests.builders import a_cache
from tests.installations import JSONL, AnInstallation

DAY = "2026-06-05"


def load(home: Path, **options: Any) -> Config:
    path = home / "c.json"
    path.write_text(json.dumps({"version": 2, "sinks": {"feed": {**JSONL, "config": options}}}))
    return load_config(path, {"HOME": str(home)}, BUNDLED)


def sink(home: Path, **options: Any) -> SinkConfig:
    config = load(home, **options)
    assert config.broken_sinks == {}
    return config.sinks[SinkName("feed")]


def test_references_are_filled_in_and_escapes_undone() -> None:
    secrets = Secrets("feed", {"A": "one", "B_2": "two"})
    assert secrets.fill("${ENV:A}/x/${ENV:B_2}${ENV:A}", "dir") == "one/x/twoone"
    assert secrets.fill("$${ENV:A} $$ $ {} $", "dir") == "${ENV:A} $$ $ {} $"
    assert not has_reference("$${ENV:A}")


@pytest.mark.parametrize("text", ["${A}", "${ENV:}", "${ENV:1A}", "${ENV:A B}", "${ENV:A", "${env:A}", "x${", "${ENV:A}${B}"])
def test_a_malformed_reference_is_an_error_where_it_stands(tmp_path: Path, text: str) -> None:
    assert [pointer for pointer, _ in reference_problems({"a": ["x", {"b": text}]}, "/c")] == ["/c/a/1/b"]
    (error,) = load(tmp_path, dir=f"/out/{text}").broken_sinks["feed"]
    assert (error.kind, error.pointer) == ("sink_config_invalid", "/sinks/feed/config/dir")
    assert "write ${ENV:NAME} for the variable NAME" in error.message


def test_a_malformed_reference_in_a_plugins_own_entry_is_a_problem_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    entry = {"name": "@hypaware/local-fs", "config": {"exports_dir": "${HOME}"}}
    path.write_text(json.dumps({"version": 2, "plugins": [entry]}))
    (error,) = load_config(path, {"HOME": str(tmp_path)}, BUNDLED).problems
    assert (error.kind, error.pointer) == ("config_section_invalid", "/plugins/0/config/exports_dir")


@pytest.mark.parametrize(
    ("option", "value"), [("prefix", "${ENV:A}"), ("datasets", ["${ENV:A}"]), ("schedule", "${ENV:A}"), ("start", "${ENV:A}")]
)
def test_what_is_shown_and_stored_cannot_refer_to_a_variable(tmp_path: Path, option: str, value: Any) -> None:
    (error, *_) = load(tmp_path, dir="/out", **{option: value}).broken_sinks["feed"]
    assert error.pointer.startswith(f"/sinks/feed/config/{option}")


def test_a_malformed_reference_in_a_plugins_own_entry_breaks_the_sinks_that_use_it(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    plugins = [{"name": "@hypaware/local-fs", "config": {"exports_dir": "${HOME}"}}, {"name": JSONL["writer"]}]
    path.write_text(json.dumps({"version": 2, "plugins": plugins, "sinks": {"feed": {**JSONL, "config": {"dir": "x"}}}}))
    config = load_config(path, {"HOME": str(tmp_path)}, BUNDLED)
    for errors in (config.problems, config.broken_sinks["feed"]):
        assert [error.pointer for error in errors] == ["/plugins/0/config/exports_dir"]


def test_what_a_plugin_quotes_of_a_variable_when_it_is_made_is_masked(tmp_path: Path) -> None:
    def refuse(secret: str) -> None:
        raise ValueError(f"cannot log in with {secret}")

    sys.modules["a_plugin_that_refuses"] = types.ModuleType("a_plugin_that_refuses")
    vars(sys.modules["a_plugin_that_refuses"])["refuse"] = refuse

    class Secret(EncoderOptions):
        secret: str

        def settings(self) -> dict[str, str | int]:
            return {"secret": self.secret}

    registry = Registry([Plugin("@acme/x", "1.0.0", encoder=Provided(Secret, "a_plugin_that_refuses:refuse"))])
    secrets = Secrets("feed", {"TOKEN": "hunter2-hunter2"})
    with pytest.raises(SinkHalted) as caught:
        registry.encoder("@acme/x", {"secret": "${ENV:TOKEN}"}, secrets)
    assert str(caught.value).endswith("ValueError: cannot log in with ${ENV:TOKEN}")
    assert caught.value.__suppress_context__
    del sys.modules["a_plugin_that_refuses"]


def test_a_config_loads_without_the_variable_and_the_sink_halts_naming_it(tmp_path: Path) -> None:
    configured = sink(tmp_path, dir="${ENV:ARCHIVE}/x")
    for env in ({}, {"ARCHIVE": ""}):
        with pytest.raises(SinkHalted) as caught:
            build_sink(configured, env)
        for word in ("sink 'feed'", "variable ARCHIVE is not set", "/sinks/feed/config/dir"):
            assert word in str(caught.value)


def test_a_directory_that_begins_with_a_variable_must_become_absolute(tmp_path: Path) -> None:
    configured = sink(tmp_path, dir="${ENV:ARCHIVE}/x")
    with pytest.raises(SinkHalted, match="absolute path and does not") as caught:
        build_sink(configured, {"ARCHIVE": "relative-secret"})
    assert "relative-secret" not in str(caught.value)


def test_a_variable_may_stand_inside_a_directory(tmp_path: Path) -> None:
    configured = sink(tmp_path, dir="out/${ENV:TENANT}")
    assert configured.destination_settings["dir"] == str(tmp_path / "out" / "${ENV:TENANT}")
    built = build_sink(configured, {"TENANT": "acme"})
    built.store.put("a", lambda out: out.write(b"x"))
    assert (tmp_path / "out" / "acme" / "a").read_bytes() == b"x"


def test_the_value_of_a_variable_is_in_nothing_that_is_stored_or_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    secret = str(tmp_path / "very secret")
    cache = a_cache(tmp_path / "cache").with_day(DAY)
    config = {"feed": {**JSONL, "config": {"dir": "${ENV:ARCHIVE}/x"}}}
    installation = AnInstallation(tmp_path / "home", cache.root, sinks=config)
    installation.env["ARCHIVE"] = secret
    configured = installation.installation.config.sinks[SinkName("feed")]
    (outcome,) = installation.export([DAY])
    assert outcome.receipt is not None
    assert (Path(secret) / "x" / outcome.receipt.files[0].key).is_file()
    built = build_sink(configured, installation.env)
    said = [
        repr(installation.installation.config),
        repr(built),
        destination_digest(configured),
        json.dumps(outcome.receipt.to_json()),
        Blueprint.draw(installation.installation).to_text(),
        built.uri(outcome.receipt.files[0].key),
    ]
    (Path(secret) / "x" / "logs" / "day=2026-06-06").write_text("in the way")
    (failed,) = installation.export(["2026-06-06"])
    said += [str(failed.error)]
    cache.with_day("2026-06-06")
    (failed,) = installation.export(["2026-06-06"])
    monkeypatch.setattr("hypaware_pipeline.sinks.stores.local_fs.LocalFsStore.put", lambda *_, **__: raise_unexpected(secret))
    cache.with_day("2026-06-07")
    with caplog.at_level(logging.DEBUG):
        (unexpected,) = installation.export(["2026-06-07"])
    said += [str(failed.error), str(unexpected.error), caplog.text]
    assert "${ENV:ARCHIVE}" in str(failed.error)
    assert "${ENV:ARCHIVE}" in caplog.text
    assert not [text for text in said if secret in text or secret.replace(" ", "%20") in text]


def raise_unexpected(secret: str) -> None:
    raise RuntimeError(f"cannot log in with {secret}")


def test_masking_takes_the_longer_value_first_and_leaves_very_short_ones() -> None:
    secrets = Secrets("feed", {"A": "hunter2", "B": "hunter2-and-more", "C": "ab"})
    for name in "ABC":
        secrets.fill(f"${{ENV:{name}}}", "x")
    assert secrets.mask("hunter2-and-more hunter2 about") == "${ENV:B} ${ENV:A} about"
    assert "hunter2" not in repr(secrets)
