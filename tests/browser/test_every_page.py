"""Each page in each situation: no error, no foreign request, WCAG AA in light and dark, 320 px, keyboard.

The fixture `viewer` fails a test whose page has logged an error or asked another origin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.axe import find_violations
from tests.browser.conftest import Viewer
from tests.browser.situations import SITUATIONS

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGES = ("overview", "graph", "checkpoints", "event-time", "dead-letters", "state", "configuration", "events")
NARROW = 320


def overflow(page: Page) -> list[str]:
    """Elements that make the body wider than the window, outside of boxes that scroll by themselves."""
    return page.evaluate(  # type: ignore[no-any-return]  # JavaScript's
        """() => document.documentElement.scrollWidth <= innerWidth ? [] :
        [...document.querySelectorAll('body *')].filter(one => one.getBoundingClientRect().right > innerWidth + 1)
        .map(one => one.outerHTML.slice(0, 120))"""
    )


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible_in_light_and_dark_and_as_narrow_as_a_phone(
    viewer: Viewer, name: str, situation: str
) -> None:
    page = viewer.open(situation, name)
    assert find_violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert find_violations(page) == []
    page.set_viewport_size({"width": NARROW, "height": 640})
    assert overflow(page) == []
    assert page.evaluate("window.hurt") is None


def reachable(page: Page) -> list[str]:
    """What should be reached with the Tab key: visible controls that have not taken themselves out of the order."""
    return page.evaluate(  # type: ignore[no-any-return]  # JavaScript's
        """() => [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')]
        .filter(one => one.tabIndex >= 0 && !one.disabled && one.checkVisibility({visibilityProperty: true}))
        .map((one, at) => { one.dataset.stop = String(at); return one.outerHTML.slice(0, 160); })"""
    )


@pytest.mark.parametrize("name", PAGES)
def test_every_control_is_reached_with_the_tab_key_and_shows_that_it_has_the_focus(viewer: Viewer, name: str) -> None:
    page = viewer.open("dead-letters", name)
    controls = reachable(page)
    page.evaluate("document.activeElement.blur()")
    seen: set[int] = set()
    for _ in range(len(controls) + 1):
        page.keyboard.press("Tab")
        stop, visible = page.evaluate(
            """() => { const one = document.activeElement, style = getComputedStyle(one);
            return [one.dataset.stop ?? null, style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0]; }"""
        )
        if stop is None:
            break  # the end of the page
        assert visible, f"nothing shows the focus of {controls[int(stop)]}"
        seen.add(int(stop))
    assert [control for at, control in enumerate(controls) if at not in seen] == []
