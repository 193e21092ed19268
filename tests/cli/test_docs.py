"""`tidegate docs`: pages of the installation, decisions by number, and messages that name pages that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.tidy.pages import USED
from tests.tidy.tree import PACKAGE, ROOT, python_files
from tidegate.cli.docs import PageMissing, choose_page, docs, find_pages
from tidegate.cli.main import run_command

NAMED = re.compile(r"`tidegate docs ([a-z/-]+)`")


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(docs, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_page_is_printed_whole() -> None:
    page = (ROOT / "docs" / "operations" / "kafka.md").read_text(encoding="utf-8")
    assert printed("operations/kafka").strip() == page.strip()
    assert printed("docs/operations/kafka.md") == printed("operations/kafka")


def test_the_list_has_every_page_with_its_title() -> None:
    listed = printed()
    for page in USED[1:]:
        name = page.relative_to(ROOT / "docs").with_suffix("")
        title = re.escape(page.read_text(encoding="utf-8").splitlines()[0][2:])
        assert re.search(rf"^{name} +{title}$", listed, re.MULTILINE)


@pytest.mark.parametrize("asked", ["24", "0024", "adr/24", "ADR 24", "adr/0024-access-encryption-and-file-permissions"])
def test_a_decision_is_found_by_its_number(asked: str) -> None:
    assert choose_page(asked, list(find_pages(ROOT / "docs"))) == "adr/0024-access-encryption-and-file-permissions"


def test_an_unknown_page_is_refused_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["docs", "operations/kafk"]) == 2
    assert capsys.readouterr().err == "there is no page operations/kafk; did you mean `operations/kafka`?\n"
    assert run_command(["docs", "zzzz"]) == 2
    assert "`tidegate docs` lists all pages" in capsys.readouterr().err


def test_a_page_or_a_folder_without_its_path_is_suggested() -> None:
    pages = list(find_pages(ROOT / "docs"))
    with pytest.raises(PageMissing, match="there is no page running; did you mean `operations/running`"):
        choose_page("running", pages)
    with pytest.raises(PageMissing, match=r"use one of `operations/bad-records`, .*`operations/running`, "):
        choose_page("operations", pages)


def test_an_installation_without_pages_says_so(tmp_path: Path) -> None:
    with pytest.raises(PageMissing, match="install the wheel of this version again"):
        find_pages(tmp_path / "pages")


def test_messages_name_pages_that_exist() -> None:
    named = {name for file in python_files(PACKAGE) for name in NAMED.findall(file.read_text(encoding="utf-8"))}
    assert named >= {"expressions", "operations/running", "pipeline", "testing"}
    pages = list(find_pages(ROOT / "docs"))
    assert {choose_page(name, pages) for name in named} <= set(pages)
