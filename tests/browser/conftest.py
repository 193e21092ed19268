"""The browser, servers of all situations, and pages that complain at the end about errors and foreign requests."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import pytest

from tests.browser.recording import Recording
from tests.browser.serving import serve_recording
from tests.browser.situations import NOW_MS, SITUATIONS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

PATIENCE_MS = 30_000
"""How long a page may take to show something, on a busy machine."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, without a window."""
    from tests.browser.chromium import open_browser

    with open_browser() as browser:
        yield browser


@functools.cache
def record(situation: str) -> Recording:
    """Makes a situation up, once; its clock stands at NOW_MS."""
    return SITUATIONS[situation](NOW_MS)


@dataclass
class Watch:
    """Keeps what is wrong with a page. `expected` texts in the console are no complaint."""

    address: str
    complaints: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(text in message.text for text in self.expected):
            self.complaints.append(f"console: {message.text}")

    def on_request(self, request: Request) -> None:
        if not request.url.startswith(f"{self.address}/"):
            self.complaints.append(f"a request leaves the origin: {request.url}")


@dataclass
class Viewer:
    """Opens pages of one test."""

    browser: Browser
    servers: ExitStack = field(default_factory=ExitStack)
    """What ends the servers of the pages. It is closed after the pages: one that still polls would complain."""
    watches: list[Watch] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)

    def open(
        self,
        situation: str,
        route: str = "overview",
        *,
        width: int = 1280,
        height: int = 800,
        scheme: Literal["light", "dark"] = "light",
    ) -> Page:
        """Opens a page of a situation and waits until it shows what it has."""
        server = serve_recording(situation, record(situation))
        self.servers.callback(server.stop)
        page = self.open_address(server.address, width=width, height=height, scheme=scheme)
        page.clock.set_fixed_time(NOW_MS)
        show(page, route)
        return page

    def open_address(
        self, address: str, *, width: int = 1280, height: int = 800, scheme: Literal["light", "dark"] = "light"
    ) -> Page:
        """Makes a page that may only ask `address`."""
        page = self.browser.new_page(
            base_url=address,
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            reduced_motion="reduce",
            timezone_id="UTC",
            locale="en-GB",
        )
        page.set_default_timeout(PATIENCE_MS)
        watch = Watch(address)
        page.on("console", watch.on_console)
        page.on("pageerror", lambda error: watch.complaints.append(f"uncaught: {error}"))
        page.on("request", watch.on_request)
        self.pages.append(page)
        self.watches.append(watch)
        return page


def show(page: Page, route: str) -> None:
    """Goes to a route and waits until nothing is loading any more."""
    page.goto(f"/#/{route}")
    page.locator("main h1").wait_for()
    page.locator(".live.on").wait_for()
    page.locator(".loading").first.wait_for(state="hidden")


@pytest.fixture
def viewer(browser: Browser) -> Iterator[Viewer]:
    """Opens pages; at the end of the test none of them may have a complaint."""
    viewer = Viewer(browser)
    yield viewer
    for page in viewer.pages:
        page.context.close()
    viewer.servers.close()
    complaints = [one for watch in viewer.watches for one in watch.complaints]
    assert not complaints, "\n".join(complaints)
