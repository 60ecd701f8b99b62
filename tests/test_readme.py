"""README.md works as written: a newcomer tries every command of it, in order, on a fresh clone.

Why nothing has to be registered here: a shell line is run unless it is one of the few that need help, and a block in a language
nobody can try fails. So what is added to README.md is tried.

Why a section brings those before it along: README.md is one story, and a test for each part of it shows where it breaks.
"""

import ast
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.daemon import ROOT
from tests.newcomer import Newcomer

README = (ROOT / "README.md").read_text("utf-8")
CACHE = ROOT / "tests" / "data" / "lived"

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Step:
    """Something to try: a block, or a command within a sentence."""

    section: str
    language: str
    text: str


def steps() -> Iterator[Step]:
    """Everything to try, in order."""
    section = ""
    for heading, language, block, inline in re.findall(
        r"^#+ ([^\n]+)$|^```(\S*)\n(.*?)^```$|(?<!`)`([^`]+)`", README, re.MULTILINE | re.DOTALL
    ):
        section = heading or section
        words = " ".join(inline.split())
        if block:
            yield Step(section, language, block)
        elif re.match(r"(make|hypaware-pipeline|dagster\S*|pip) ", words):
            yield Step(section, "inline", words)


def commands(block: str) -> list[str]:
    """The lines of a shell block, joined where they go on, without comments."""
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in block.replace("\\\n", " ").splitlines())
    return [line for line in lines if line]


STEPS = list(steps())
SECTIONS = list(dict.fromkeys(step.section for step in STEPS))
NEEDS_A_MANAGER = {
    # What they end was seen to end when it was started.
    "systemctl --user disable --now hypaware-pipeline",
    "launchctl bootout gui/$(id -u)/hypaware-pipeline",
    # It is about the machine's logins.
    "loginctl enable-linger",
}
IN_BLOCKS = {line for step in STEPS if step.language == "sh" for line in commands(step.text)}


class Reading:
    """README.md, and how far a newcomer has come in it."""

    def __init__(self, directory: Path) -> None:
        self.newcomer = Newcomer(directory, CACHE)
        self._left = list(STEPS)
        self._languages: dict[str, Callable[[str], None]] = {
            "sh": self._try_shell,
            "inline": self._try_inline,
            "python": self._try_python,
            "json": self._try_config,
            "text": self._look_for_files,
            "crontab": self._try_crontab,
        }

    def reach(self, section: str) -> None:
        """Try everything up to the end of a section that was not tried yet."""
        last = max(index for index, step in enumerate(STEPS) if step.section == section)
        while len(STEPS) - len(self._left) <= last:
            step = self._left[0]
            assert step.language in self._languages, f"nobody knows how to try a block of '{step.language}': {step.text}"
            self._languages[step.language](step.text)
            del self._left[0]

    def _try_shell(self, block: str) -> None:
        for command in commands(block):
            self._try_command(command)

    def _try_inline(self, command: str) -> None:
        if command not in IN_BLOCKS:
            self._try_command(command)

    def _try_command(self, command: str) -> None:
        newcomer = self.newcomer
        helped: dict[str, Callable[[str], object]] = {
            # This very test is inside of it.
            r"(make test)": lambda command: newcomer.run(f'{command} ARGS="-n 0 tests/test_plan.py"'),
            r"((?:make|hypaware-pipeline) dev.*)": newcomer.serve,
            r"(pip .*)": newcomer.run_in_deployment,
            r"systemctl --user enable --now (\S+)": newcomer.serve_as_systemd,
            r"launchctl bootstrap gui/\$\(id -u\) (\S+)": newcomer.serve_as_launchd,
        }
        for pattern, try_it in helped.items():
            if match := re.fullmatch(pattern, command):
                try_it(match[1])
                return
        if command not in NEEDS_A_MANAGER:
            newcomer.run(command)

    def _try_python(self, block: str) -> None:
        if "dg.Definitions" in block:
            self._try_definitions(block)
            return
        # What a notebook would show of each expression has to be something.
        shown = "\n".join(
            f"assert len({ast.unparse(node.value)})" if isinstance(node, ast.Expr) else ast.unparse(node)
            for node in ast.parse(block).body
        )
        script = self.newcomer.home.parent / "read_back.py"
        script.write_text(shown)
        self.newcomer.run(f"cd && '{self.newcomer.checkout}/.venv/bin/python' '{script}'")

    def _try_definitions(self, block: str) -> None:
        project = self.newcomer.home.parent / "project"
        project.mkdir()
        (project / "my_project.py").write_text("import dagster as dg\n\ndefs = dg.Definitions()\n")
        (project / "definitions.py").write_text(block)
        run = self.newcomer.run_in_deployment
        where = run(f"cd '{project}' && python -c 'import hypaware_pipeline; print(hypaware_pipeline.__file__)'")
        assert "/deployment/" in where
        home = f"DAGSTER_HOME='{project}'"
        run(f"cd '{project}' && {home} python -m dagster definitions validate -f definitions.py")
        listed = run(f"cd '{project}' && {home} python -m dagster asset list -f definitions.py --select '*'")
        assert "hypaware/archive/logs" in listed

    def _try_config(self, block: str) -> None:
        (self.newcomer.home / ".hyp" / "hypaware-pipeline.json").write_text(block)
        self.newcomer.run("hypaware-pipeline export")

    def _look_for_files(self, block: str) -> None:
        for line in block.splitlines():
            path = Path(line.split()[0].replace("~", str(self.newcomer.home)))
            assert path.is_file(), f"README.md says that {line.split()[0]} lands"

    def _try_crontab(self, block: str) -> None:
        for line in block.splitlines():
            *when, command = line.split(maxsplit=5)
            assert all(re.fullmatch(r"[\d*/,-]+", field) for field in when)
            assert "%" not in command  # cron ends a command there
            self.newcomer.run_as_cron(command)


def test_every_block_of_the_readme_is_tried() -> None:
    fences = re.findall(r"^\s*(?:```|~~~)", README, re.MULTILINE)
    assert len(fences) == 2 * sum(step.language != "inline" for step in STEPS)


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reading]:
    directory = tmp_path_factory.mktemp("readme")
    yield Reading(directory)
    shutil.rmtree(directory)  # an environment of a gigabyte


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_of_the_readme_works_as_written(reading: Reading, section: str) -> None:
    reading.reach(section)


def test_uninstalling_leaves_what_was_exported_and_hypawares_cache_as_it_was(reading: Reading) -> None:
    reading.reach(SECTIONS[-1])
    home = reading.newcomer.home
    files = {path.relative_to(home) for path in home.rglob("*") if path.is_file()}
    exports = {path for path in files if path.parts[0] == "exports"}
    cache = Path(".hyp", "hypaware", "cache")
    theirs = {cache / path.relative_to(CACHE): path.read_bytes() for path in CACHE.rglob("*") if path.is_file()}
    assert exports
    assert files - exports == theirs.keys()
    assert {path: (home / path).read_bytes() for path in theirs} == theirs


@pytest.mark.parametrize("document", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.name)
def test_what_a_document_links_to_is_there(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text("utf-8"))
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert not missing
