"""docs/expressions.md and the pages in docs/expressions describe every function, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from tidegate.expressions.aggregates import AGGREGATES
from tidegate.expressions.functions import REGISTRY

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {path.stem: path.read_text("utf-8") for path in sorted((DOCS / "expressions").glob("*.md"))}
OVERVIEW = (DOCS / "expressions.md").read_text("utf-8")
SIGNS = {"[]": "a[i]", "negative": "-a", "positive": "+a"}
CALLED = re.compile(r"(?:^|, )(\w+)\(")


def rows_of(page: str) -> list[tuple[str, ...]]:
    """The cells of the tables of a page, without their heads."""
    rows = [re.split(r"(?<!\\) \| ?", line.strip("|")) for line in page.splitlines() if line.startswith("| `")]
    return [tuple(cell.strip().replace("\\|", "|") for cell in row) for row in rows]


def names_on(page: str) -> list[str]:
    """The names of functions that are called by name, in the order of the page, aliases after their function."""
    found: list[str] = []
    for signature, summary, *_ in rows_of(page):
        found += CALLED.findall(signature.strip("`"))[:1]
        also = re.search(r" Also ((?:`\w+`(?:, )?)+)\.$", summary)
        found += re.findall(r"\w+", also[1]) if also else []
    return list(dict.fromkeys(found))


def test_the_tables_have_every_function_and_no_other() -> None:
    called = {name for name, page in PAGES.items() if name != "aggregates" for name in names_on(page)}
    signatures = " ".join(signature for page in PAGES.values() for signature, *_ in rows_of(page))
    assert sorted(called - REGISTRY.keys()) == []
    written = {name: SIGNS.get(name, name.removesuffix(" literal").split(" ")[-1]) for name in REGISTRY}
    assert [name for name, text in written.items() if name not in called and text not in signatures] == []


def test_the_table_of_aggregates_has_every_aggregate_and_its_use() -> None:
    assert sorted(names_on(PAGES["aggregates"])) == sorted({name.split(" ")[0] for name in AGGREGATES})
    rows = [(signature.strip("`"), running) for signature, _, running in rows_of(PAGES["aggregates"])]
    written = {CALLED.findall(one)[0]: running == "yes" for one, running in rows if one != "count(distinct x)"}
    assert written == {one.name: one.running for one in AGGREGATES.values() if " " not in one.name}


def test_the_overview_lists_the_functions_of_each_page() -> None:
    listed = dict(re.findall(r"^\| \[.*\]\(expressions/(\w+)\.md\) \| (.*) \|$", OVERVIEW, re.MULTILINE))
    assert {name: sorted(cell.replace("`", "").split()) for name, cell in listed.items()} == {
        name: sorted(names_on(page)) for name, page in PAGES.items() if name != "differences"
    }
