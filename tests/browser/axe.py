"""Finds violations of WCAG 2.2 AA with axe-core, which the package axe-playwright-python contains."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def find_violations(page: Page) -> list[str]:
    """Returns a line for each element that violates a rule."""
    if not page.evaluate("typeof window.axe === 'object'"):
        # As a script element it would be refused by the page's Content-Security-Policy.
        page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text())
    found = page.evaluate("tags => axe.run({runOnly: {type: 'tag', values: tags}})", TAGS)
    return [
        f"{one['id']}: {' '.join(node['target'])}: {node['html'][:120]}: {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]
