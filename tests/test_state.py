"""Where state lives: homes, the state directory, the packaged dagster.yaml."""

import os
import resource
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from hypaware_pipeline.config.environment import hyp_home
from hypaware_pipeline.errors import BadRequest, StateUnusable
from hypaware_pipeline.state import PACKAGE_DIR, checkout_root, dagster_home, state_directory

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGED = PACKAGE_DIR / "data" / "dagster.yaml"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_hypawares_home_is_the_variable_else_below_the_users_home(tmp_path: Path) -> None:
    assert hyp_home({"HOME": "/home/ada"}) == Path("/home/ada/.hyp")
    assert hyp_home({"HOME": "/home/ada", "HYP_HOME": str(tmp_path)}) == tmp_path
    assert hyp_home({"HOME": "/home/ada", "HYP_HOME": "~/hyp"}) == Path("/home/ada/hyp")
    assert hyp_home({"HOME": "/home/ada", "HYP_HOME": ""}) == Path("/home/ada/.hyp")
    assert hyp_home({}) == Path.home() / ".hyp"


@pytest.mark.parametrize(
    ("variable", "ask"),
    [
        ("HYP_HOME", hyp_home),
        ("DAGSTER_HOME", lambda env: dagster_home(env, None)),
        ("HYPAWARE_STATE_DIR", lambda env: state_directory(Path("/c.json"), env)),
    ],
)
def test_a_relative_directory_in_the_environment_is_refused_by_name(
    variable: str, ask: Callable[[Mapping[str, str]], object]
) -> None:
    with pytest.raises(BadRequest, match=f"{variable} is 'somewhere/else', which is not an absolute path"):
        ask({variable: "somewhere/else"})


def test_a_checkout_is_recognised_and_an_installed_package_is_not(tmp_path: Path) -> None:
    assert checkout_root() == CHECKOUT
    assert checkout_root(tmp_path / "site-packages" / "hypaware_pipeline") is None


def test_dagsters_home_is_the_variable_before_the_checkout(tmp_path: Path) -> None:
    home = tmp_path / "dagster"
    assert dagster_home({"DAGSTER_HOME": str(home)}, CHECKOUT) == home
    assert dagster_home({}, CHECKOUT) == CHECKOUT / "dagster_home"


def test_a_dagster_home_that_is_made_gets_the_packaged_file(tmp_path: Path) -> None:
    home = dagster_home({"DAGSTER_HOME": str(tmp_path / "a" / "b")}, None)
    assert (home / "dagster.yaml").read_bytes() == PACKAGED.read_bytes()
    assert [entry.name for entry in home.iterdir()] == ["dagster.yaml"]


def test_a_dagster_home_that_exists_stays_as_it_is(tmp_path: Path) -> None:
    dagster_home({"DAGSTER_HOME": str(tmp_path)}, None)
    assert list(tmp_path.iterdir()) == []


def test_without_a_checkout_the_packaged_file_is_copied_once_to_the_users_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    home = dagster_home({}, None)
    assert tmp_path in home.parents
    assert (home / "dagster.yaml").read_bytes() == PACKAGED.read_bytes()
    (home / "dagster.yaml").write_text("mine: true\n")
    assert dagster_home({}, None) == home
    assert (home / "dagster.yaml").read_text() == "mine: true\n"


def test_a_dagster_home_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateUnusable, match=r"cannot make Dagster's home .*file/home: Not a directory; set DAGSTER_HOME"):
        dagster_home({"DAGSTER_HOME": str(tmp_path / "file" / "home")}, None)


def test_a_dagster_home_that_did_not_get_the_packaged_file_is_not_left_behind_as_if_it_were_somebodys(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(StateUnusable, match=r"cannot make Dagster's home .*: File too large"):
            dagster_home({"DAGSTER_HOME": str(tmp_path / "home")}, None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (tmp_path / "home").exists()


def test_the_checkouts_dagster_yaml_is_the_packaged_one() -> None:
    assert (CHECKOUT / "dagster_home" / "dagster.yaml").read_bytes() == PACKAGED.read_bytes()


def test_the_checkouts_workspace_is_the_packaged_one() -> None:
    assert (CHECKOUT / "workspace.yaml").read_bytes() == PACKAGED.with_name("workspace.yaml").read_bytes()


def test_dagster_takes_the_packaged_file(tmp_path: Path) -> None:
    import dagster as dg

    home = dagster_home({"DAGSTER_HOME": str(tmp_path / "home")}, None)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert instance.global_op_concurrency_default_limit == 2
        assert instance.run_monitoring_enabled


def test_state_lies_beside_the_config_file_whatever_dagsters_home_is(tmp_path: Path) -> None:
    state = state_directory(tmp_path / "mine.json", {"DAGSTER_HOME": "/elsewhere"})
    assert state.root == tmp_path / "mine.state"
    assert [state.ledger, state.index, state.spill] == [state.root / name for name in ("ledger.db", "index", "spill")]


def test_state_follows_the_name_of_a_config_file_and_not_the_target_of_a_link(tmp_path: Path) -> None:
    target = tmp_path / "..2026_01_01" / "c.json"
    target.parent.mkdir()
    target.touch()
    (tmp_path / "c.json").symlink_to(target)
    assert state_directory(tmp_path / "c.json", {}).root == tmp_path / "c.state"


def test_the_variable_moves_the_state_directory(tmp_path: Path) -> None:
    env = {"HYPAWARE_STATE_DIR": str(tmp_path / "state")}
    assert state_directory(Path("/etc/hypaware/c.json"), env).root == tmp_path / "state"


def test_the_state_directory_is_made_on_demand_for_its_owner_only(tmp_path: Path) -> None:
    state = state_directory(tmp_path / "c.json", {})
    assert not state.root.exists()
    state.ensure()
    state.ensure()
    assert {mode_of(path) for path in (state.root, state.index, state.spill)} == {0o700}


def test_a_state_directory_that_cannot_be_made_names_the_variable_that_moves_it(tmp_path: Path) -> None:
    (tmp_path / "c.state").touch()
    with pytest.raises(StateUnusable, match=r"c\.state: File exists; .*set HYPAWARE_STATE_DIR"):
        state_directory(tmp_path / "c.json", {}).ensure()


_ENSURE_AS_AN_ORDINARY_USER = """
import os, sys
from pathlib import Path
from hypaware_pipeline.errors import StateUnusable
from hypaware_pipeline.state import state_directory
if os.geteuid() == 0:
    os.setuid(65534)
try:
    state_directory(Path(sys.argv[1]), {}).ensure()
except StateUnusable as error:
    print(error)
"""


def test_a_state_directory_that_cannot_be_written_names_the_variable_that_moves_it() -> None:
    with tempfile.TemporaryDirectory() as text:  # not tmp_path: pytest's directories are closed to other users
        directory = Path(text)
        (directory / "c.state" / "index").mkdir(parents=True)
        (directory / "c.state" / "spill").mkdir()
        directory.chmod(0o755)
        (directory / "c.state").chmod(0o555)
        command = [sys.executable, "-c", _ENSURE_AS_AN_ORDINARY_USER, str(directory / "c.json")]
        said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=CHECKOUT).stdout
        (directory / "c.state").chmod(0o755)
    assert f"{directory / 'c.state'} cannot be written; make it writable, or set HYPAWARE_STATE_DIR" in said, os.geteuid()
