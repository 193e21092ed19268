"""The browser of the tests: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import Final

from playwright.sync_api import Browser, sync_playwright

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
OPTIONS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--font-render-hinting=none", "--force-color-profile=srgb"),
)
"""The sandbox needs rights that root in a container lacks, and the pages are ours. Others keep Chromium off the net."""


def find_chromium() -> str:
    """Returns the path of Chromium. Raises SystemExit with the remedy if there is none."""
    for program in PROGRAMS:
        path = shutil.which(program)
        if path is not None:
            return path
    raise SystemExit("no Chromium is installed; on Debian: apt install chromium")


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """Starts a headless browser, and ends it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=OPTIONS)
        try:
            yield browser
        finally:
            browser.close()
