"""Comments, texts and documents are in plain English: words that read wrong are found, with what to write instead."""

from __future__ import annotations

import pytest

from tests.tidy.tree import PACKAGE, ROOT, TESTS, complaints, python_files, report, text_files
from tests.tidy.words import check_prose, check_python_prose

DOCUMENTS = frozenset({".md", ".yaml", ".yml"})
OWN = frozenset({"words.py", "test_words.py"})


def test_python_files_use_plain_words() -> None:
    files = [file for file in python_files(PACKAGE, TESTS, ROOT / "bench") if file.name not in OWN]
    report(complaints(files, check_python_prose))


def test_documents_use_plain_words() -> None:
    report(complaints([file for file in text_files() if file.suffix in DOCUMENTS], check_prose))


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("the rows behind the barrier", "after"),
        ("the error is told with its place", "report"),
        ("the log tells why", "report"),
        ("from the begin of the source", "start"),
        ("9 wants a member's epoch", "needs"),
        ("no way into broker:9092", "cannot connect to"),
        ("the next start goes on from the last checkpoint", "continue"),
        ("a state goes on or begins empty", "continue"),
        ("the attempt is started anew", "again"),
        ("readers stand still", "is blocked"),
        ("this belongs into the file", "belongs in"),
    ],
)
def test_a_word_that_reads_wrong_is_found_in_prose(line: str, instead: str) -> None:
    assert instead in check_prose(line)[0]
    assert check_prose(f"x\n{line}")[0].startswith("line 2: ")
    for text in (f'"""{line.capitalize()}."""', f'raise Failed(f"{line}")', f"x = 1  # {line}"):
        assert check_python_prose(text + "\n"), text


@pytest.mark.parametrize(
    "line",
    [
        "a broker behind a company's proxy",
        "connections behind a partition",
        "markers may lag behind the decision",
        "start with --begin-anew",
        "the beginning of the file, which begins with a header",
        "`told` and {told} are names",
    ],
)
def test_a_word_is_left_alone_where_it_is_right(line: str) -> None:
    assert check_prose(line.replace("`told` and {told}", "these")) == []
    assert check_python_prose(f'"""{line}."""\n') == []


def test_names_in_code_are_not_prose() -> None:
    assert check_python_prose('told = behind(wants)["told"]\n') == []
