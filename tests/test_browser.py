"""What a person does in Dagster's UI, done in a real Chromium; the pictures it takes on the way are those of the docs."""

import datetime as dt
import re
import struct
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser import SIZE, Camera, a_page
from tests.builders import a_cache
from tests.daemon import ROOT, ADagster
from tests.installations import JSONL, PARQUET, write_config

MESSAGES, LOGS = "ai_gateway_messages", "logs"
PICTURES = ["asset-graph", "launch-dialog", "backfill", "asset", "day"]
PICTURES_OF_THE_DOCS = ROOT / "docs" / "images"
KILOBYTES = 200
"""No picture is larger."""

SINKS = {
    "archive": {**PARQUET, "config": {"dir": "~/exports/archive", "schedule": "0 3 * * *", "owners": ["team:data"]}},
    "feed": {
        **JSONL,
        "config": {"dir": "~/exports/feed", "schedule": "0 3 * * *", "datasets": [LOGS], "owners": ["ada@example.com"]},
    },
}


@pytest.fixture
def days() -> list[str]:
    """The last six, today included."""
    today = dt.datetime.now(dt.UTC).date()
    return [(today - dt.timedelta(days=ago)).isoformat() for ago in range(5, -1, -1)]


@pytest.fixture
def home(tmp_path_factory) -> Path:
    """Its path is in the pictures, hence a short one."""
    return tmp_path_factory.mktemp("home", numbered=False)


@pytest.fixture
def dagster(home, days, monkeypatch):
    monkeypatch.setenv("HOME", str(home))
    cache = a_cache(home / "cache")
    for number, day in enumerate(days):
        cache.with_day(day, rows=200 + 10 * number, dataset=MESSAGES, source="claude")
        cache.with_day(day, rows=50, dataset=MESSAGES, source="codex", client_name="codex")
        cache.with_day(day, rows=400)
    with ADagster(home, write_config(home, cache.root, sinks=SINKS)) as running:
        yield running


@pytest.fixture
def page(dagster):
    with a_page(dagster.url) as page:
        yield page


def node(page: Page, dataset: str, kind: str) -> Locator:
    """An asset in the graph."""
    return page.locator("svg foreignObject").filter(has_text=dataset).filter(has_text=kind)


def open_the_graph(page: Page) -> None:
    page.get_by_role("link", name=re.compile("Lineage$")).click()


def unfold_every_group(page: Page) -> None:
    """The graph remembers it."""
    expect(page.locator("svg foreignObject.group")).to_have_count(3)
    page.mouse.click(SIZE["width"] - 200, SIZE["height"] - 20, button="right")
    page.get_by_role("menuitem", name="Expand all groups").click()
    expect(node(page, LOGS, "jsonl")).to_be_visible()


def choose_days(page: Page, first: str, last: str) -> Locator:
    """In the dialog that launches an asset of the graph."""
    node(page, MESSAGES, "Parquet").click()
    expect(page.get_by_text("Days of one dataset of HypAware's cache.")).to_be_visible()
    page.get_by_role("button", name="Materialize selected").click()
    dialog = page.get_by_role("dialog")
    chosen = dialog.get_by_placeholder("No matching partitions")
    chosen.fill(f"[{first}...{last}]")
    chosen.press("Enter")
    return dialog


def open_the_backfill(page: Page) -> None:
    page.get_by_role("link", name=re.compile("Runs$")).click()
    page.locator("a[href*='/runs/b/']").first.click()
    page.mouse.move(0, 0)
    expect(page.get_by_text("Created backfill")).to_be_hidden()


def open_the_asset(page: Page) -> None:
    page.get_by_role("link", name=f"archive / {MESSAGES}").click()
    page.get_by_role("tab", name="Overview").click()
    expect(page.get_by_text("one object per day and source")).to_be_visible()
    expect(page.get_by_text("Never materialized")).to_be_hidden()  # what the page remembered from before the backfill


def open_a_day(page: Page, day: str) -> None:
    page.get_by_role("tab", name="Partitions").click()
    page.get_by_text(day, exact=True).first.click()
    expect(page.get_by_text("Materialized", exact=True)).to_be_visible()


def figure(page: Page, name: str) -> Locator:
    """The value beside a name in a day's metadata."""
    return page.locator("tr", has=page.get_by_text(name, exact=True)).locator("td").nth(1)


@pytest.mark.slow
def test_days_chosen_in_the_asset_graph_are_exported_and_the_figures_of_a_day_are_shown(page, home, days, tmp_path):
    camera = Camera(page, tmp_path)
    first, *_, last = complete = days[:-1]
    page.goto("/")
    open_the_graph(page)
    unfold_every_group(page)

    dialog = choose_days(page, first, last)
    expect(dialog).to_contain_text("5 partitions")
    camera.take("launch-dialog")
    dialog.get_by_role("button", name="Launch backfill").click()
    expect(dialog).to_be_hidden()

    open_the_backfill(page)
    expect(page.get_by_text("100% completed")).to_be_visible()
    expect(page.get_by_text("Succeeded", exact=True)).to_have_count(2)
    camera.take("backfill")

    open_the_asset(page)
    expect(page.get_by_text("data", exact=True)).to_be_visible()
    page.mouse.move(0, 0)
    camera.take("asset")

    open_a_day(page, complete[1])
    landed = home / "exports" / "archive" / MESSAGES / f"day={complete[1]}"
    objects = sorted(landed.glob("*.parquet"))
    assert [path.name for path in objects] == ["claude.parquet", "codex.parquet"]
    expect(figure(page, "dagster/partition_row_count")).to_have_text("260")
    expect(figure(page, "bytes")).to_have_text(str(sum(path.stat().st_size for path in objects)))
    expect(figure(page, "dagster/uri")).to_have_text(f"file://{landed}")
    figure(page, "files").scroll_into_view_if_needed()
    camera.take("day")

    open_the_graph(page)
    for _ in range(4):  # until the heads of all groups are in the picture
        page.get_by_role("img", name="zoom_out").click()
    page.mouse.move(0, 0)
    expect(node(page, MESSAGES, "Parquet")).to_contain_text(re.compile("1 / 1 Passed.*% filled"))
    camera.take("asset-graph")


def test_the_docs_show_every_picture_in_its_size_and_no_other():
    assert sorted(path.stem for path in PICTURES_OF_THE_DOCS.glob("*")) == sorted(PICTURES)
    shown = re.findall(r"!\[.+?\]\((?:docs/)?images/([a-z-]+)\.png\)", (ROOT / "docs" / "dagster.md").read_text("utf-8"))
    assert sorted(shown) == sorted(PICTURES)
    for path in PICTURES_OF_THE_DOCS.glob("*.png"):
        content = path.read_bytes()
        assert struct.unpack(">II", content[16:24]) == (SIZE["width"], SIZE["height"])
        assert len(content) < KILOBYTES * 1000


@pytest.fixture
def find_chromium(tmp_path):
    """Runs scripts/find-chromium where only the given commands exist, each a shell script's body."""

    def find(*arguments, commands, **env):
        for name, body in commands.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n", "utf-8")
            (tmp_path / name).chmod(0o755)
        command = ["/bin/sh", ROOT / "scripts" / "find-chromium", *arguments]
        return subprocess.run(command, env={"PATH": str(tmp_path), **env}, capture_output=True, text=True)

    return find


def test_a_chromium_that_does_not_run_is_passed_over(find_chromium, tmp_path):
    found = find_chromium(commands={"chromium": "exit 1", "google-chrome": "exit 0"})
    assert found.stdout.strip() == str(tmp_path / "google-chrome")


def test_the_chromium_that_was_named_is_the_only_candidate(find_chromium):
    found = find_chromium("--install", commands={"chromium": "exit 0"}, CHROMIUM="/nowhere")
    assert (found.returncode, found.stdout) == (1, "")
    assert "CHROMIUM=/nowhere is no Chromium or Chrome that runs" in found.stderr


INSTALLS = 'echo "$@" >>asked\n[ "$1" = update ] || { echo "exit 0" >chromium; /bin/chmod +x chromium; }'
"""An apt-get, as a shell script."""


@pytest.mark.parametrize(
    "who",
    [{"id": "echo 0", "env": 'shift; "$@"'}, {"id": "echo 1000", "env": 'shift; "$@"', "sudo": 'shift; "$@"'}],
    ids=["root", "a sudo that does not ask"],
)
def test_chromium_is_installed_where_nobody_has_to_be_asked(find_chromium, tmp_path, who):
    apt = f'cd "{tmp_path}"\n{INSTALLS}'
    found = find_chromium("--install", commands={**who, "apt-get": apt})
    assert found.stdout.strip() == str(tmp_path / "chromium"), found.stderr
    assert (tmp_path / "asked").read_text().splitlines()[0] == "update -q"


def test_chromium_is_not_installed_where_sudo_asks_and_the_message_says_how_to_get_it(find_chromium, tmp_path):
    asks = {"id": "echo 1000", "sudo": "exit 1", "apt-get": f'cd "{tmp_path}"\n{INSTALLS}'}
    found = find_chromium("--install", commands=asks)
    assert (found.returncode, found.stdout) == (1, "")
    assert "sudo apt-get install chromium" in found.stderr
    assert not (tmp_path / "asked").exists()
