"""The repository keeps its own promises: who imports whom, what an import costs, what a wheel holds, what a clone needs."""

import ast
import fnmatch
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "hypaware_pipeline"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

# Bottom up. A room imports itself and the rows above its own in this list; rooms of one row do not know each other.
LAYERS = [
    {"model", "errors"},
    {"datasets", "arrow_types", "row_sets"},
    {"config"},
    {"cache"},
    {"state", "demo"},
    {"ledger"},
    {"plugins"},
    {"sinks"},
    {"query"},
    {"export"},
    {"orchestration"},
    {"cli", "definitions"},
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
DAGSTER_ROOMS = {"orchestration", "cli", "definitions"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
# A `__main__` is a command: importing it runs it.
IMPORTABLE = [module for module in MODULES if not module.endswith(".__main__")]


def imports_of(path: Path) -> Iterator[str]:
    """Every module the file imports, in functions and under TYPE_CHECKING too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # `from hypaware_pipeline import config` names the room in the alias.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(module: str) -> str | None:
    """The room of one of our modules; None for the package itself and for foreign ones."""
    package, _, rest = module.partition(".")
    return rest.partition(".")[0] or None if package == PACKAGE.name else None


def test_every_room_has_its_place_in_the_layers() -> None:
    assert {room for module in MODULES if (room := room_of(module))} <= LEVEL.keys()


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_is_below_it(module: str) -> None:
    own = room_of(module)
    if own is None:
        own = "model"  # the package itself is imported by everybody
    imported = {room for name in imports_of(MODULES[module]) if (room := room_of(name)) in LEVEL}
    wrong = {room for room in imported if room != own and LEVEL[room] >= LEVEL[own]}
    assert not wrong, f"{module} imports {sorted(wrong)}, which lie above or beside it"


@pytest.mark.parametrize("module", [module for module in MODULES if room_of(module) not in DAGSTER_ROOMS])
def test_nothing_below_orchestration_imports_dagster(module: str) -> None:
    assert not {name for name in imports_of(MODULES[module]) if name.startswith("dagster")}


def test_encoders_and_stores_do_not_know_each_other() -> None:
    kinds = [f"{PACKAGE.name}.sinks.{kind}" for kind in ("encoders", "stores")]
    for mine, other in (kinds, reversed(kinds)):
        for module in (name for name in MODULES if name.startswith(mine)):
            assert not {name for name in imports_of(MODULES[module]) if name.startswith(other)}, module


def loaded_on_demand(module: str) -> bool:
    """Whether pyproject.toml lets the module import heavy libraries at its top."""
    ignores = PYPROJECT["tool"]["ruff"]["lint"]["per-file-ignores"]
    patterns = [one for pattern, rules in ignores.items() if "TID253" in rules for one in spread_braces(pattern)]
    path = MODULES[module].relative_to(ROOT).as_posix()
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def spread_braces(pattern: str) -> list[str]:
    """`a/{b,c}.py` as `a/b.py` and `a/c.py`."""
    braces = re.search(r"\{(.*?)\}", pattern)
    if braces is None:
        return [pattern]
    return [pattern[: braces.start()] + choice + pattern[braces.end() :] for choice in braces[1].split(",")]


def python(code: str, *arguments: str, home: Path) -> str:
    """Run code in a fresh interpreter that sees no cache, config or Dagster instance of this user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER", "HYP"))}
    environment = {**kept, "HYP_HOME": str(home), "DAGSTER_HOME": str(home), "HOME": str(home)}
    run = subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_what_definitions_import_loads_no_heavy_library(tmp_path: Path) -> None:
    heavy = PYPROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-module-level-imports"]
    light = [module for module in IMPORTABLE if not loaded_on_demand(module)]
    code = (
        "import importlib, sys\n"
        "heavy, *light = sys.argv[1:]\n"
        "for module in light:\n"
        "    importlib.import_module(module)\n"
        "    found = set(heavy.split()) & sys.modules.keys()\n"
        "    assert not found, f'{module} loads {found}'\n"
    )
    python(code, " ".join(heavy), *light, home=tmp_path)


def runtime_distributions() -> set[str]:
    """The project and everything it needs without an extra, by canonical name."""
    found: set[str] = set()
    waiting = [(PYPROJECT["project"]["name"], "")]
    while waiting:
        name, extra = waiting.pop()
        found.add(canonicalize_name(name))
        for text in importlib.metadata.requires(name) or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                new = canonicalize_name(needed.name) not in found
                waiting += [(needed.name, one) for one in needed.extras] + ([(needed.name, "")] if new else [])
    return found


def test_every_module_imports_with_only_the_default_dependencies(tmp_path: Path) -> None:
    runtime = runtime_distributions()
    assert "pytest" not in runtime
    absent = {
        top
        for top, distributions in importlib.metadata.packages_distributions().items()
        if not any(canonicalize_name(name) in runtime for name in distributions)
    }
    code = (
        "import importlib, importlib.abc, sys\n"
        "absent, *modules = sys.argv[1:]\n"
        "class NotInstalled(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name.partition('.')[0] in absent.split():\n"
        "            raise ModuleNotFoundError(f'{name} comes with no default dependency', name=name)\n"
        "sys.meta_path.insert(0, NotInstalled())\n"
        "for module in modules:\n"
        "    importlib.import_module(module)\n"
    )
    python(code, " ".join(absent), *IMPORTABLE, home=tmp_path)


def test_every_library_a_module_names_is_a_declared_dependency() -> None:
    declared = {canonicalize_name(Requirement(text).name) for text in PYPROJECT["project"]["dependencies"]}
    distributions = importlib.metadata.packages_distributions()
    for module, path in MODULES.items():
        for top in {name.partition(".")[0] for name in imports_of(path)} - sys.stdlib_module_names - {PACKAGE.name}:
            names = {canonicalize_name(name) for name in distributions.get(top, [top])}
            assert names & declared, f"{module} imports {top}, which pyproject.toml does not declare"


def test_a_wheel_holds_every_file_of_the_package_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(PACKAGE, source / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "."]
    subprocess.run([*command, "--wheel-dir", tmp_path], cwd=source, check=True, capture_output=True)

    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = {name.partition(".dist-info/")[2] for name in archive.namelist() if ".dist-info/" in name}
    assert names == {path.relative_to(source).as_posix() for path in (source / PACKAGE.name).rglob("*") if path.is_file()}
    assert {"METADATA", "entry_points.txt", "licenses/LICENSE"} <= metadata


def lock_entries() -> list[str]:
    """The lock's requirements, each with its hashes, comments left out."""
    lines = [line for line in (ROOT / "requirements.lock").read_text("utf-8").splitlines() if not line.strip().startswith("#")]
    return re.split(r"\n(?=\S)", "\n".join(lines))


def test_the_lock_pins_everything_with_hashes() -> None:
    for entry in lock_entries():
        assert re.match(r"[a-z0-9.\[\]-]+==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry
    pinned = {canonicalize_name(Requirement(entry.split(" ")[0]).name) for entry in lock_entries()}
    project = PYPROJECT["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    assert {canonicalize_name(Requirement(text).name) for text in wanted} <= pinned


def test_the_lock_names_no_host() -> None:
    assert "://" not in (ROOT / "requirements.lock").read_text("utf-8")


def own_text_files() -> Iterable[Path]:
    """What is ours and text: no tool's leavings, no recorded caches."""
    made = {
        ".git",
        ".venv",
        "build",
        "dist",
        "demo-data",
        "__pycache__",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".hypothesis",
    }
    for directory, directories, files in os.walk(ROOT):
        here = Path(directory)
        directories[:] = [
            name
            for name in directories
            if name not in made and not name.endswith(".egg-info") and here / name != ROOT / "tests" / "data"
        ]
        if here == ROOT / "dagster_home":
            directories.clear()
            files = [name for name in files if name == "dagster.yaml"]
        yield from (here / name for name in files)


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    # Put together here, or this file would name them.
    registries = [
        ".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("registry", "npmjs"), ("deb", "debian"))
    ]
    paths = [f"{place}/" for place in (ROOT, ROOT.parent, Path.home(), Path(sys.prefix)) if len(place.parts) > 1]
    for path in own_text_files():
        text = path.read_text("utf-8", errors="replace")
        assert not [word for word in registries + paths if word in text], path.relative_to(ROOT)


def test_make_help_names_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (phony,) = re.findall(r"^\.PHONY: (help .*)$", makefile, re.MULTILINE)
    shown = subprocess.run(["make", "help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    targets = re.findall(r"^ +make ([a-z-]+) +\S", shown, re.MULTILINE)
    assert sorted(targets) == sorted(phony.split())
    assert {"demo", "test", "test-long", "dev", "check", "bench", "lock", "clean"} <= set(targets)


def find_python(tmp_path: Path, **pythons: str) -> subprocess.CompletedProcess[str]:
    """Run scripts/find-python where only the given commands exist; each is a shell script's body."""
    for name, body in pythons.items():
        script = tmp_path / name.replace("_", ".")
        script.write_text(f"#!/bin/sh\n{body}\n", "utf-8")
        script.chmod(0o755)
    command = ["/bin/sh", ROOT / "scripts" / "find-python"]
    return subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True)


def test_a_python_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    found = find_python(tmp_path, python3_13="exit 127", python3_11=f'exec "{sys.executable}" "$@"')
    assert found.stdout.strip() == str(tmp_path / "python3.11")


def test_without_a_python_the_message_says_how_to_get_one(tmp_path: Path) -> None:
    found = find_python(tmp_path)
    assert found.returncode != 0
    assert "apt-get install" in found.stderr
    assert "PYTHON=" in found.stderr


def test_a_python_without_venv_is_named_with_the_package_it_lacks(tmp_path: Path) -> None:
    without_venv = f'case "$2" in *ensurepip*) exit 1;; esac; exec "{sys.executable}" "$@"'
    found = find_python(tmp_path, python3=without_venv)
    assert found.returncode != 0
    assert f"python3.{sys.version_info[1]}-venv" in found.stderr
