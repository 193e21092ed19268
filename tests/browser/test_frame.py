"""What all pages share: formats, the token, polling, a daemon that does not answer, routes; and the page Events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import Viewer, record, show
from tests.browser.serving import SituationServer, serve_recording
from tests.browser.situations import NOW_MS

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TOKEN = "reading-is-all-that-this-is-for"
HIDE = """hidden => {
    Object.defineProperty(document, 'hidden', {get: () => hidden, configurable: true});
    document.dispatchEvent(new Event('visibilitychange'));
}"""
NONE = "\u2013"
FORMATS: dict[str, dict[float | None, str]] = {
    "number": {1234567: "1,234,567", 0: "0", 0.25: "0.3", 99.94: "99.9", 1234.5: "1,235", None: NONE},
    "rate": {52310.4: "52,310/s", None: NONE},
    "bytes": {0: "0 B", 1023: "1,023 B", 1536: "1.5 KiB", 10480123: "10 MiB", None: NONE},
    "percent": {0.5: "50 %", 0.004: "0.4 %", 1: "100 %", None: NONE},
    "duration": {0: "0 s", 0.23: "230 ms", 0.9996: "1.0 s", 4.2: "4.2 s", 5: "5 s", 59.7: "1 min", 200: "3 min 20 s"}
    | {3600: "1 h", 7500: "2 h 5 min", 90000: "1 d 1 h", -2: "\u22122 s", None: NONE},
    "timestamp": {1_796_025_801_000: "2026-11-30 08:03:21 UTC"},
}


@pytest.fixture
def server(viewer: Viewer) -> SituationServer:
    """The server of a healthy pipeline, for tests that open its page in their own way."""
    server = serve_recording("healthy", record("healthy"))
    viewer.servers.callback(server.stop)
    return server


@pytest.mark.parametrize("name", FORMATS)
def test_numbers_have_units_and_thousands_separators(viewer: Viewer, name: str) -> None:
    page = viewer.open("healthy")
    found = page.evaluate(
        """async ([name, values]) => {
            const format = (await import('/static/lib.js'))[name];
            return values.map(value => format(value));
        }""",
        [name, list(FORMATS[name])],
    )
    assert dict(zip(FORMATS[name], found, strict=True)) == FORMATS[name]


def test_the_page_asks_for_a_token_and_keeps_it_in_its_tab(viewer: Viewer, server: SituationServer) -> None:
    server.read_token = TOKEN
    page = viewer.open_address(server.address)
    viewer.watches[-1].expected.append("401")
    page.goto("/")
    give(page, "another")
    page.get_by_text("This token is not valid").wait_for()
    give(page, f" {TOKEN} ")
    page.get_by_role("heading", name="Health").wait_for()
    page.reload()
    page.get_by_role("heading", name="Health").wait_for()
    assert page.context.cookies() == []
    assert TOKEN not in page.content()
    tab = viewer.open_address(server.address)
    viewer.watches[-1].expected.append("401")
    tab.goto("/")
    tab.get_by_label("Token").wait_for()


def give(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.keyboard.press("Enter")


def test_the_page_turns_grey_when_the_daemon_does_not_answer_and_goes_on_by_itself(viewer: Viewer) -> None:
    page = viewer.open("restarting")
    viewer.watches[-1].expected.append("ERR_FAILED")
    page.route("**/api/**", lambda route: route.abort())
    alert = page.get_by_role("alert")
    alert.get_by_text("The daemon has not answered since").wait_for()
    assert "the last known state is restarting" in (alert.text_content() or "")
    assert "no answer" in page.title()
    assert page.locator("main.stale").count() == 1
    page.unroute("**/api/**")
    alert.wait_for(state="detached")
    assert page.locator(".stale").count() == 0


def test_a_proxy_without_a_daemon_behind_it_is_no_answer(viewer: Viewer) -> None:
    page = viewer.open("healthy")
    viewer.watches[-1].expected.append("502")
    page.route("**/api/**", lambda route: route.fulfill(status=502, body="<h1>Bad Gateway</h1>"))
    page.get_by_text("a proxy in front of the daemon answered with 502").wait_for()


def test_what_has_not_changed_is_not_sent_again(viewer: Viewer) -> None:
    page = viewer.open("healthy")
    with page.expect_response(lambda response: "/events" in response.url and response.status == 304):
        pass


def test_a_hidden_page_asks_for_nothing(viewer: Viewer, server: SituationServer) -> None:
    page = viewer.open_address(server.address)
    page.clock.install(time=NOW_MS / 1000)
    show(page, "overview")
    page.evaluate(HIDE, True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(60_000)
    assert asked == []
    with page.expect_request("**/api/v1/status"):
        page.evaluate(HIDE, False)


def test_a_page_of_another_version_loads_itself_again(viewer: Viewer) -> None:
    page = viewer.open("healthy")
    status: dict[str, Any] = page.request.get("/api/v1/status").json()
    upgraded = json.dumps(status | {"version": "9.9.9"})

    def upgrade(route: Route) -> None:
        route.fulfill(body=upgraded, content_type="application/json")

    with page.expect_event("load"):
        page.route("**/api/v1/status", upgrade)
    page.get_by_text("Tidegate 9.9.9").wait_for()


def test_every_page_has_an_address_and_its_heading_is_read_when_it_is_opened(viewer: Viewer) -> None:
    page = viewer.open("healthy")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Events").click()
    page.get_by_role("heading", level=1, name="Events").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Events"
    assert page.url.endswith("#/events")
    assert "Events" in page.title()
    page.go_back()
    page.get_by_role("heading", level=1, name="Overview").wait_for()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "none", "it is no control"
    show(page, "nothing/%E0%A4%A/here")
    page.get_by_text("There is no page “nothing”").wait_for()


def test_on_a_narrow_screen_the_link_of_the_current_page_is_in_view(viewer: Viewer) -> None:
    page = viewer.open("healthy", "events", width=320)
    links = page.get_by_role("navigation", name="Pages")
    expect_in_view(links.get_by_role("link", name="Events"))
    show(page, "overview")
    expect_in_view(links.get_by_role("link", name="Overview"))


def expect_in_view(element: Locator) -> None:
    box = element.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 321


def test_names_in_an_event_are_shown_as_code(viewer: Viewer) -> None:
    page = viewer.open("healthy")
    answer: dict[str, Any] = page.request.get("/api/v1/events").json()
    held = answer["events"][0] | {"kind": "hold", "text": "on hold until `paid_orders` has caught up"}
    body = json.dumps(answer | {"events": [held]})
    page.route("**/api/v1/events", lambda route: route.fulfill(body=body, content_type="application/json"))
    show(page, "events")
    text = page.locator(".event .what")
    text.get_by_text("paid_orders", exact=True).wait_for()
    assert text.locator("code").all_inner_texts() == ["paid_orders"]
    assert "`" not in text.inner_text()


def test_events_are_filtered_by_kind_and_their_detail_unfolds_with_a_key(viewer: Viewer) -> None:
    page = viewer.open("restarting", "events")
    page.get_by_role("navigation", name="Kinds of events").get_by_role("link", name="restarted").click()
    page.wait_for_url("**/#/events/restarted")
    kinds = page.locator(".event .kind").all_text_contents()
    assert kinds
    assert set(kinds) == {"restarted"}
    detail = page.locator(".event details").first
    detail.locator("summary").focus()
    page.keyboard.press("Enter")
    assert detail.locator("pre").is_visible()
