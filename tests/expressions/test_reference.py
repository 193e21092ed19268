"""docs/expressions.md and the pages in docs/expressions are what the registry says."""

from __future__ import annotations

from tidegate.expressions.functions import FUNCTIONS
from tidegate.expressions.functions.reference import DOCS, PAGES, render_reference


def test_the_published_pages_are_current() -> None:
    written = {f"expressions/{page.name}" for page in (DOCS / "expressions").glob("*.md")} | {"expressions.md"}
    pages = {name: (DOCS / name).read_text("utf-8") for name in written}
    assert pages == render_reference(), "run: python -m tidegate.expressions.functions.reference"


def test_the_overview_leads_to_every_page() -> None:
    pages = render_reference()
    assert [name for name in pages if name != "expressions.md" and f"]({name})" not in pages["expressions.md"]] == []


def test_every_function_is_on_one_page() -> None:
    groups = [group for page in PAGES for group in page.groups]
    assert sorted(groups) == sorted({function.group for function in FUNCTIONS})


def test_every_function_has_a_signature_and_a_sentence() -> None:
    assert all(function.signature and function.summary.endswith(".") for function in FUNCTIONS)
