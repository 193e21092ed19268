"""The pages Graph and Configuration: what can be chosen, found and followed in them."""

from __future__ import annotations

import re

import pytest

from tests.browser.conftest import Viewer, show

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_step_is_chosen_with_the_keyboard_and_shows_each_of_a_hundred_subtasks(viewer: Viewer) -> None:
    page = viewer.open("hundred-subtasks", "graph")
    page.get_by_role("link", name="paid_orders join").focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="paid_orders: join").wait_for()
    assert page.url.endswith("#/graph/paid_orders")
    subtasks = page.get_by_role("region", name="Subtasks").locator("tbody tr")
    assert subtasks.count() == 100
    assert page.locator(".step [aria-current]").inner_text().startswith("paid_orders")
    page.get_by_role("button", name="Busiest first").click()
    assert subtasks.count() == 100


def test_a_step_says_its_state_in_words(viewer: Viewer) -> None:
    page = viewer.open("stalled-watermark", "graph")
    assert "stalled" in page.get_by_role("link", name="orders source").inner_text()
    assert "busy" in page.get_by_role("link", name="payments source").inner_text()


def test_counts_of_a_step_fit_in_its_box_and_its_tooltip_has_all_digits(viewer: Viewer) -> None:
    marks = viewer.open("healthy", "graph", width=1600).get_by_role("link", name="paid_orders join").locator(".marks")
    assert re.fullmatch(r"9\d\d late\s*4\dK waiting", marks.inner_text())
    assert re.fullmatch(r"9\d\d late, 4\d,\d{3} waiting", marks.get_attribute("title") or "")
    assert marks.evaluate("one => one.scrollWidth <= one.clientWidth")


def test_an_unknown_step_leads_back_to_the_graph(viewer: Viewer) -> None:
    page = viewer.open("healthy", "graph/nonsense")
    page.get_by_role("link", name="Back to the graph").click()
    page.get_by_text("Select a step").wait_for()


def test_on_a_narrow_screen_steps_are_a_list_with_their_inputs(viewer: Viewer) -> None:
    page = viewer.open("healthy", "graph", width=320)
    steps = page.locator(".step")
    lefts = set(steps.evaluate_all("all => all.map(one => Math.round(one.getBoundingClientRect().x))"))
    assert len(lefts) == 1
    assert not page.locator(".picture > svg").is_visible()
    assert page.get_by_text("from paid_orders.order, paid_orders.payment").is_visible()


def test_settings_are_filtered_by_text_and_origin_and_lead_to_their_line(viewer: Viewer) -> None:
    page = viewer.open("healthy", "configuration")
    page.get_by_label("Filter").fill("checkpoints INTERVAL")
    rows = page.get_by_role("region", name="Settings").locator("tbody tr")
    assert [rows.nth(index).locator("td").first.inner_text() for index in range(rows.count())] == [
        "checkpoints.interval"
    ]
    place = rows.get_by_role("link")
    line = place.inner_text().partition(":")[2]
    place.click()
    chosen = page.locator(".source [aria-current]")
    chosen.wait_for()
    assert "interval" in chosen.inner_text()
    assert page.url.endswith(f"#/configuration/{line}")
    page.get_by_role("button", name="default", exact=False).click()
    assert page.get_by_text("No setting matches the filter.").is_visible()


def test_the_plan_is_next_to_the_file(viewer: Viewer) -> None:
    page = viewer.open("healthy", "configuration")
    assert "dead_letters" in page.get_by_role("region", name="Text of the file").inner_text()
    page.get_by_role("region", name="Text of the plan").get_by_text("128 key groups").wait_for()
    show(page, "graph")
