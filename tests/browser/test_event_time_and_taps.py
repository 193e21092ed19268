"""The page Event time names what holds the others back, and rows of a step are shown to who may see them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.browser.conftest import Viewer, record, show
from tests.browser.serving import SituationServer, make_situation_resources
from tests.browser.situations import NOW_MS
from tests.daemon.http.orders import TOKEN, Daemon
from tidegate.daemon.taps import TapEnd, TappedRows, TapService
from tidegate.plan.taps import TapPoint

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROW = b'{"id":9007199254740993,"customer":"ann","amount":12.50,"note":"<b>x</b>","tags":["a",1.10],"none":null}'


def test_the_partition_that_holds_the_others_back_is_named_and_on_top(viewer: Viewer) -> None:
    page = viewer.open("stalled-watermark", "event-time")
    panel = page.get_by_role("region", name="orders", exact=True)
    panel.get_by_text("Stalled").wait_for()
    told = panel.inner_text()
    assert "orders[2] is 8 min" in told
    assert "Remedy:" in told
    assert panel.locator("tbody tr").first.inner_text().startswith("orders[2]")
    other = page.get_by_role("region", name="payments", exact=True)
    assert "The watermarks of the 3 active partitions are within 14 ms of each other." in other.inner_text()
    assert other.locator("tbody tr").last.inner_text().startswith("payments[3]"), "idle ones are last"


def test_partitions_that_are_apart_are_a_skew_also_when_no_single_one_holds_the_others_back(viewer: Viewer) -> None:
    page = viewer.open("healthy")
    answer: dict[str, Any] = page.request.get("/api/v1/partitions").json()
    for one in answer["partitions"]:
        if one["source"] == "orders":
            one["watermark_ms"] = NOW_MS - (38_000 if one["slot"] == 0 else 0)
    body = json.dumps(answer)
    page.route("**/api/v1/partitions", lambda route: route.fulfill(body=body, content_type="application/json"))
    show(page, "event-time")
    panel = page.get_by_role("region", name="orders", exact=True)
    panel.get_by_text("are within 38 s of each other").wait_for()
    assert panel.get_by_text("Skew", exact=True).count() == 1


async def copy(_points: Sequence[TapPoint], _rows_max: int) -> TappedRows:
    return TappedRows((ROW,), TapEnd.TIME)


@pytest.fixture
def tapped(viewer: Viewer) -> SituationServer:
    """A situation whose rows can be tapped by who has the token."""
    recording, daemon = record("healthy"), Daemon()
    service = TapService(recording.plan, ["customer"])
    resources = [one for one in make_situation_resources("healthy", recording) if one.name != "tap"]
    server = SituationServer(0, recording, [*resources, service.resource])
    viewer.servers.callback(daemon.close)
    server.start()
    viewer.servers.callback(server.stop)
    server.commands.serve(daemon, daemon.loop, TOKEN)
    service.serve(copy, daemon.loop)
    return server


def test_rows_need_the_token_and_are_shown_as_they_are(viewer: Viewer, tapped: SituationServer) -> None:
    page = viewer.open_address(tapped.address)
    viewer.watches[-1].expected.append("401")
    show(page, "graph/valid")
    page.get_by_role("button", name="Show rows").click()
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Show", exact=True).click()
    table = page.get_by_role("group", name="Rows", exact=True)
    table.wait_for()
    assert table.locator("th").all_inner_texts() == ["id", "customer", "amount", "note", "tags", "none"]
    assert table.locator("td").all_inner_texts() == [
        *("9007199254740993", "***", "12.50", "<b>x</b>", '["a",1.10]', "null")
    ]
    assert "No more rows arrived within 10 s." in page.locator(".tap").inner_text()
