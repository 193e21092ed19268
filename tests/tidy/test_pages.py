"""Everything that pages name exists: linked files and headings, commands with their options, targets and modules."""

from __future__ import annotations

import re

import click
import pytest

from tests.tidy.pages import (
    PAGES,
    USED,
    find_anchors,
    find_dead_links,
    find_missing_programs,
    find_wrong_commands,
)
from tests.tidy.tree import PACKAGE, ROOT, complaints, python_files, report, text_files
from tidegate.cli.main import tidegate


def test_every_link_leads_somewhere() -> None:
    report(
        [
            f"{page.relative_to(ROOT)}: {dead}"
            for page in PAGES
            for dead in find_dead_links(page.read_text(encoding="utf-8"), page.parent)
        ]
    )


@pytest.mark.slow
def test_every_command_that_is_named_exists_with_its_options() -> None:
    files = [file for file in text_files() if file.suffix in (".md", ".txt", ".yaml") and "adr" not in file.parts]
    report(complaints([*files, *python_files(PACKAGE)], lambda text: find_wrong_commands(text, tidegate)))


def test_every_target_and_module_that_is_named_exists() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    pages = [page for page in PAGES if "adr" not in page.parts]
    report(complaints(pages, lambda text: find_missing_programs(text, targets)))


@pytest.mark.parametrize(
    ("line", "dead"),
    [
        ("[tree](tree.py), [one](#a-heading-code)", []),
        ("[gone](gone.py)", ["line 3: there is no gone.py"]),
        ("[none](#a-heading)", ["line 3: there is no heading #a-heading"]),
        ("```\n[none](#a-heading)\n```", []),
    ],
)
def test_a_link_is_followed(line: str, dead: list[str]) -> None:
    assert find_dead_links(f"# A heading: `code`\n\n{line}\n", ROOT / "tests" / "tidy") == dead


def test_headings_of_one_name_are_numbered() -> None:
    assert find_anchors("# One\n## One\n### [Two](x.md) of `it`\n") == {"one", "one-1", "two-of-it"}


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("    tidegate do FILE --twice   # a comment with --other", []),
        ("run `tidegate do FILE --thrice`", ["line 1: `tidegate do` has no --thrice"]),
        ("$ tidegate undo", ["line 1: there is no command undo"]),
        ("prose: tidegate undo is not a command", []),
    ],
)
def test_a_command_is_known_by_its_options(line: str, wrong: list[str]) -> None:
    known = click.Command("do", params=[click.Option(["--twice"]), click.Argument(["file"])])
    assert find_wrong_commands(line, click.Group("tidegate", {"do": known})) == wrong


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("    make tea      # hot", []),
        ("run `DEPTH=2 make tea ARGS=x`, and make coffee", []),
        ("run `make coffee`", ["line 1: make has no coffee"]),
        ("    python -m tests.compatibility --list; python -m tidegate.native.build", []),
        ("`python -m tests.coffee`", ["line 1: there is no module tests.coffee to run"]),
        ("`python -m venv .venv`", []),
    ],
)
def test_a_program_is_known_by_its_target_or_module(line: str, missing: list[str]) -> None:
    assert find_missing_programs(line, {"tea"}) == missing


def test_the_index_of_decisions_has_each_of_them_once_under_its_title() -> None:
    folder = ROOT / "docs" / "adr"
    rows = re.findall(r"^\| \[(\d+)\]\(([^)]+)\) \| (.+) \|$", (folder / "README.md").read_text("utf-8"), re.MULTILINE)
    titles = {
        page.name: page.read_text("utf-8").splitlines()[0].removeprefix("# ") for page in folder.glob("[0-9]*.md")
    }
    assert sorted(name for _, name, _ in rows) == sorted(titles)
    assert [name for number, name, title in rows if titles[name] != f"ADR {number}: {title}"] == []


def test_every_decision_that_is_named_is_there() -> None:
    known = {int(page.name[:4]) for page in (ROOT / "docs" / "adr").glob("[0-9]*.md")}
    report(
        complaints(
            [file for file in text_files() if file.suffix in (".md", ".py") and file.name != "CHANGELOG.md"],
            lambda text: [f"there is no ADR {n}" for n in re.findall(r"\bADR (\d+)\b", text) if int(n) not in known],
        )
    )


def test_the_index_of_pages_leads_to_each_of_them() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = [str(page.relative_to(ROOT / "docs")) for page in USED if page.parent.name != "adr" and page.parent != ROOT]
    rooms = ("pipeline", "formats", "expressions")  # indexed by pages of which tests compare them with the code
    assert [
        page
        for page in pages
        if page != "README.md" and page.partition("/")[0] not in rooms and f"({page})" not in index
    ] == []
    assert "(pipeline/README.md)" in index


@pytest.mark.parametrize("folder", ["operations", "expressions"])
def test_a_page_is_short(folder: str) -> None:
    sizes = {page.name: page.stat().st_size for page in (ROOT / "docs" / folder).glob("*.md")}
    assert {name: size for name, size in sizes.items() if size > 20_000} == {}
