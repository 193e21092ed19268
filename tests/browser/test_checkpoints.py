"""The page Checkpoints: choosing one with mouse and keyboard, what is said about it, a hundred subtasks."""

from __future__ import annotations

import pytest

from tests.browser.conftest import PATIENCE_MS, Viewer, record, show
from tests.waiting import wait_until
from tidegate.coordinator.history import CheckpointResult

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_the_newest_that_has_ended_is_shown_until_one_is_chosen_with_a_click(viewer: Viewer) -> None:
    page = viewer.open("failed-checkpoint", "checkpoints")
    records = record("failed-checkpoint").metrics.checkpoints
    newest = next(one for one in records if one.result is not CheckpointResult.UNDER_WAY)
    page.get_by_role("heading", name=f"Checkpoint {newest.id}").wait_for()
    failed = next(one for one in records if one.missing and one.result is CheckpointResult.FAILED)
    page.get_by_role("link", name=f"checkpoint {failed.id}, failed").click()
    page.get_by_role("heading", name=f"Checkpoint {failed.id}").wait_for()
    assert page.url.endswith(f"#/checkpoints/{failed.id}")
    assert "2 of 20 subtasks had not acknowledged it: paid_orders[1], paid_orders[3]." in page.inner_text(".verdict")
    assert "it took longer than checkpoints.timeout" in page.inner_text("dl.facts")
    page.get_by_role("link", name="Follow the newest").click()
    page.get_by_role("heading", name=f"Checkpoint {newest.id}").wait_for()


def test_arrow_keys_home_and_end_choose_along_the_bars(viewer: Viewer) -> None:
    page = viewer.open("healthy", "checkpoints")
    records = record("healthy").metrics.checkpoints
    page.locator(".checkpoint-bars a[tabindex='0']").focus()
    for key, chosen in (
        ("ArrowLeft", records[1].id),
        ("ArrowLeft", records[2].id),
        ("ArrowRight", records[1].id),
        ("Home", records[-1].id),
        ("End", records[0].id),
    ):
        page.keyboard.press(key)
        page.get_by_role("heading", name=f" {chosen}").wait_for()
        assert page.evaluate("Number(document.activeElement.dataset.id)") == chosen
    assert page.locator(".checkpoint-bars a[tabindex='0']").count() == 1


def test_a_savepoint_is_marked_and_named(viewer: Viewer) -> None:
    page = viewer.open("healthy", "checkpoints")
    savepoint = next(one for one in record("healthy").metrics.checkpoints if one.kind == "savepoint")
    bar = page.locator(f".checkpoint-bars a[data-id='{savepoint.id}']")
    assert bar.inner_text().strip() == "S"
    bar.click()
    page.get_by_role("heading", name=f"Savepoint {savepoint.id}").wait_for()


def test_the_slowest_subtask_and_its_longest_phase_are_named_and_its_phases_have_numbers(viewer: Viewer) -> None:
    page = viewer.open("healthy", "checkpoints")
    records = record("healthy").metrics.checkpoints
    slow = max(records, key=lambda one: one.duration_ms or 0)
    show(page, f"checkpoints/{slow.id}")
    page.get_by_role("heading", name=f"Checkpoint {slow.id}").wait_for()
    assert page.inner_text(".verdict").startswith(
        "paid_orders[3] was the slowest, after 872 ms, of which 640 ms (73 %)"
    )
    first = page.locator(".gantt tbody tr").first
    assert "start delay 9 ms, alignment 210 ms, snapshot 12 ms, upload 640 ms" in first.inner_text()
    page.get_by_role("button", name="Show numbers").click()
    page.get_by_role("columnheader", name="alignment").wait_for()
    assert first.locator("td").all_inner_texts()[:6] == ["paid_orders[3]", "9 ms", "210 ms", "12 ms", "640 ms", "0 s"]


def test_of_a_hundred_slots_the_slowest_subtasks_are_shown_first_all_on_request_and_one_step_alone(
    viewer: Viewer,
) -> None:
    page = viewer.open("hundred-subtasks", "checkpoints")
    rows = page.locator(".gantt tbody tr")
    assert rows.count() == 20
    page.get_by_role("button", name="Show all 500").click()
    wait_until(lambda: rows.count() == 500, "all subtasks are shown")
    page.get_by_label("Step").select_option("paid_orders")
    wait_until(lambda: rows.count() == 100, "only subtasks of one step are shown")
    assert rows.first.inner_text().startswith("paid_orders[")


STRUCTURE = """
- main:
  - heading "Checkpoints" [level=1]
  - region "Newest 101":
    - heading "Newest 101" [level=2]
    - paragraph: /98 completed, .*; 2 failed, 1 under way/
    - list "Checkpoints by duration, oldest first":
      - listitem:
        - link /checkpoint \\d+, completed, \\d+ ms/
  - region "Checkpoint 97":
    - heading "Checkpoint 97" [level=2]
    - link "Follow the newest"
    - term: Result
    - definition: failed it took longer than checkpoints.timeout
    - term: Duration
    - definition: 1 min
  - region "Subtasks, slowest first":
    - combobox "Step"
    - button "Show numbers"
    - group "Subtasks":
      - table:
        - rowgroup:
          - row:
            - columnheader "Subtask"
            - columnheader "phases"
            - columnheader "acknowledged"
        - rowgroup:
          - row /paid_orders\\[1\\] missing/
"""


def test_the_structure_is_that_of_headings_lists_and_tables(viewer: Viewer) -> None:
    from playwright.sync_api import expect

    page = viewer.open("failed-checkpoint", "checkpoints/97")
    expect(page.locator("main")).to_match_aria_snapshot(STRUCTURE, timeout=PATIENCE_MS)


def test_one_that_is_no_longer_kept_is_answered_with_those_that_are(viewer: Viewer) -> None:
    page = viewer.open("healthy", "overview")
    viewer.watches[-1].expected.append("404")
    show(page, "checkpoints/1")
    kept = record("healthy").metrics.checkpoints
    text = f"this daemon has no record of checkpoint 1: it has {kept[-1].id} to {kept[0].id}"
    page.get_by_role("alert").filter(has_text=text).wait_for()
