"""A real Chromium, and pictures of what it shows.

Why the system's own browser: a driver that fetches one needs a network, which a test must not. `scripts/find-chromium` says which
it is, and what to do when there is none.

Why a picture is taken until two in a row are alike: a graph that is still being laid out is no failure, only too early.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from tests.daemon import ROOT
from tests.waiting import PATIENCE_SECONDS, wait_for

SIZE = {"width": 1536, "height": 960}
"""Pixels of the window, and so of every picture."""

PICTURES_VARIABLE = "HYPAWARE_TEST_PICTURES"
"""Names the directory where pictures are kept; `make docs-images` sets it."""


def find_chromium() -> str:
    """Where Chromium is.

    Raises:
        AssertionError: there is none; the text says what to install.
    """
    found = subprocess.run(["sh", ROOT / "scripts" / "find-chromium"], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


@contextmanager
def a_page(url: str) -> Iterator[Page]:
    """A window of a fixed size, language and time zone; everything asked of it has the patience of `wait_for`."""
    milliseconds = PATIENCE_SECONDS * 1000
    expect.set_options(timeout=milliseconds)
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=find_chromium()) as browser:
        look = {"locale": "en-US", "timezone_id": "UTC", "color_scheme": "light", "reduced_motion": "reduce"}
        page = browser.new_page(base_url=url, viewport=SIZE, **look)
        page.set_default_timeout(milliseconds)
        yield page


class Camera:
    """Takes pictures of a page, into the directory the environment names or else one of the test's own."""

    def __init__(self, page: Page, directory: Path) -> None:
        self._page = page
        self._directory = Path(os.environ.get(PICTURES_VARIABLE) or directory)

    def take(self, name: str) -> Path:
        """A picture of the page as it stands still."""
        last = b""

        def unchanged() -> bytes | None:
            nonlocal last
            previous, last = last, self._page.screenshot(animations="disabled")
            return last if last == previous else None

        path = self._directory / f"{name}.png"
        path.write_bytes(wait_for(f"the page to stand still for {name}", unchanged))
        return path
