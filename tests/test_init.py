"""`init`: the first config file, what was found, and what to do about HypAware's own exports."""

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from tests.builders import a_cache, a_log
from tests.command_line import ACommandLine
from tests.installations import PARQUET


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Where the file is written to by default."""
    return tmp_path / ".hyp" / "hypaware-pipeline.json"


def hypawares_config(home: Path, **sinks: Any) -> None:
    path = home / ".hyp" / "hypaware-config.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"version": 2, "sinks": sinks}))


def sink_of(config: Path) -> dict[str, Any]:
    (sink,) = json.loads(config.read_text())["sinks"].values()
    return dict(sink)


def test_init_writes_a_file_that_is_right_and_exports_what_it_found(run: ACommandLine, config: Path, tmp_path: Path) -> None:
    a_cache(tmp_path / ".hyp/hypaware/cache").with_day("2026-06-05", rows=4).with_day("2026-06-06", rows=1)
    code, out, _ = run("init")
    assert code == 0
    assert out.startswith(f"wrote {config}: sink 'archive' exports everything as Parquet to {tmp_path / 'hypaware-exports'}\n")
    assert "dataset logs: 5 rows of 2 days (2026-06-05 … 2026-06-06)" in out
    assert run("config", "validate")[:2] == (0, f"{config} is right: 1 sinks\n")
    assert run("export")[0] == 0
    assert (tmp_path / "hypaware-exports/logs/day=2026-06-05/unknown.parquet").is_file()


def test_the_commands_that_come_next_work_as_they_are_printed(run: ACommandLine, tmp_path: Path) -> None:
    a_cache(tmp_path / ".hyp/hypaware/cache").with_day("2026-06-05")
    _, out, _ = run("init", "--config", "else where/p.json", "--to", "out")
    printed = [line.split("#")[0].split() for line in out.splitlines() if line.startswith("  hypaware-pipeline ")]
    assert [words[1] for words in printed] == ["check", "export", "dev"]
    assert " ".join(printed[0][2:]) == f"--config '{tmp_path}/else where/p.json'"
    assert run("check", "--config", "else where/p.json")[0] == 0


def test_an_existing_file_stays_as_it_is(run: ACommandLine, config: Path) -> None:
    config.parent.mkdir()
    config.write_text("mine")
    code, out, err = run("init")
    assert (code, out) == (2, "")
    assert f"{config} is there already" in err
    assert config.read_text() == "mine"


def test_without_a_cache_the_file_is_written_and_where_it_was_looked_for_is_said(
    run: ACommandLine, config: Path, tmp_path: Path
) -> None:
    code, out, _ = run("init")
    assert code == 0
    assert f"no HypAware cache at '{tmp_path}/.hyp/hypaware/cache'" in out
    assert config.is_file()


@pytest.mark.parametrize(
    ("to", "expected"),
    [("out", "{home}/out"), ("/srv/out", "/srv/out"), ("~/out", "~/out"), ("${ENV:OUT}/x", "${ENV:OUT}/x")],
)
def test_the_directory_is_the_one_that_was_meant(run: ACommandLine, config: Path, to: str, expected: str) -> None:
    """`--to out` meant a directory beside the config file, not here."""
    assert run("init", "--to", to)[0] == 0
    assert sink_of(config)["config"]["dir"] == expected.replace("{home}", str(run.home))


@pytest.mark.parametrize("to", ["", "~ada/out", ".hyp/hypaware/cache/datasets", ".hyp/hypaware-pipeline.state/out"])
def test_a_directory_the_rules_refuse_is_refused_and_nothing_is_left_behind(run: ACommandLine, config: Path, to: str) -> None:
    code, out, err = run("init", "--to", to)
    assert (code, out) == (2, "")
    assert "/sinks/archive" in err
    assert not config.exists()


def test_what_the_environment_gets_wrong_leaves_nothing_behind(
    run: ACommandLine, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYPAWARE_STATE_DIR", "relative")
    code, _, err = run("init")
    assert (code, config.exists()) == (2, False)
    assert "HYPAWARE_STATE_DIR is 'relative'" in err


def test_a_disk_that_fills_leaves_nothing_half_written_behind(run: ACommandLine, config: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        code, _, err = run("init")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (code, config.exists()) == (2, False)
    assert f"{config} cannot be written: File too large" in err


def test_a_cache_that_only_the_environment_leads_to_is_named_in_the_file(
    run: ACommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cron job without HYP_HOME looked for another cache."""
    monkeypatch.setenv("HYP_HOME", str(tmp_path / "hyp"))
    assert run("init")[0] == 0
    written = json.loads((tmp_path / "hyp/hypaware-pipeline.json").read_text())
    assert written["query"] == {"cache": {"dir": str(tmp_path / "hyp/hypaware/cache")}}


def test_a_cache_that_hypawares_config_names_is_found(run: ACommandLine, tmp_path: Path) -> None:
    a_cache(tmp_path / "elsewhere").with_day("2026-06-05")
    (tmp_path / ".hyp").mkdir()
    query = {"cache": {"dir": str(tmp_path / "elsewhere")}}
    (tmp_path / ".hyp/hypaware-config.json").write_text(json.dumps({"version": 2, "query": query}))
    _, out, _ = run("init")
    assert f"cache: {tmp_path / 'elsewhere'}: logs" in out


# --- beside HypAware -----------------------------------------------------------------------------------------------------------


def test_hypawares_own_exports_are_named_with_how_to_end_them(run: ACommandLine, tmp_path: Path) -> None:
    hypawares_config(tmp_path, local={**PARQUET, "config": {"dir": "/srv/theirs"}})
    _, out, _ = run("init")
    assert "'local' (@hypaware/format-parquet to @hypaware/local-fs, /srv/theirs)" in out
    assert f"remove them from sinks in {tmp_path}/.hyp/hypaware-config.json" in out
    assert '"before_tick": ["hyp", "cache", "refresh"]' in out


def test_a_sink_of_hypawares_that_sends_to_a_server_is_left_alone(run: ACommandLine, tmp_path: Path) -> None:
    """Its ticks empty the spool, and nothing here sends anything in its place."""
    hypawares_config(tmp_path, forward={"plugin": "@hypaware/central"})
    _, out, _ = run("init")
    assert "'forward' (@hypaware/central). Nothing here does that in its place; leave it as it is." in out
    assert "remove them" not in out
    assert "before_tick" not in out


def test_the_command_for_the_spool_is_proposed_where_it_is(
    run: ACommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/hyp").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    a_cache(tmp_path / ".hyp/hypaware/cache").with_day("2026-06-05").writer.spool("logs", [a_log("2026-06-06")])
    _, out, _ = run("init")
    assert f'"before_tick": ["{tmp_path}/bin/hyp", "cache", "refresh"]' in out
    assert "spool of logs: " in out


def test_the_sink_takes_no_name_of_hypawares(run: ACommandLine, config: Path, tmp_path: Path) -> None:
    """It was taken for the same sink and refused."""
    hypawares_config(tmp_path, archive={**PARQUET, "config": {"dir": "/srv/theirs"}})
    assert run("init")[0] == 0
    assert list(json.loads(config.read_text())["sinks"]) == ["archive-2"]


def test_where_hypaware_exports_to_is_refused(run: ACommandLine, config: Path, tmp_path: Path) -> None:
    hypawares_config(tmp_path, local={**PARQUET, "config": {"dir": str(tmp_path / "theirs")}})
    code, _, err = run("init", "--to", "theirs")
    assert code == 2
    assert "sink_also_exported_by_hypaware" in err
    assert not config.exists()


def test_the_version_is_said(run: ACommandLine) -> None:
    code, out, _ = run("--version")
    assert code == 0
    assert out.strip().count(".") == 2
