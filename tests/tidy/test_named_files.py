"""Files named in comments, docstrings and documents exist, and so do tests named on pages."""

from __future__ import annotations

import re
from collections.abc import Collection

import pytest

from tests.tidy.tree import PACKAGE, ROOT, TESTS, complaints, python_files, report, text_files

NAMED = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py)`")
FILES = frozenset(
    str(file.relative_to(ROOT)) for file in python_files(PACKAGE, TESTS, ROOT / "bench", ROOT / "examples")
)


def find_ends(files: Collection[str]) -> frozenset[str]:
    """Returns the names by which files may be called: the whole path, or its end from any folder on."""
    return frozenset("/".join(file.split("/")[start:]) for file in files for start in range(file.count("/") + 1))


def find_missing(text: str, ends: frozenset[str]) -> list[str]:
    """Returns complaints about Python file names in backticks that no file has."""
    return [
        f"line {number}: there is no {name}"
        for number, line in enumerate(text.splitlines(), 1)
        for name in NAMED.findall(line)
        if name not in ends
    ]


def test_every_named_file_is_there() -> None:
    documents = [file for file in text_files() if file.suffix == ".md"]
    files = [*python_files(PACKAGE, TESTS, ROOT / "bench"), *documents]
    ends = find_ends(FILES)
    report(
        complaints(
            [file for file in files if file.name != "test_named_files.py"], lambda text: find_missing(text, ends)
        )
    )


def test_every_test_that_a_page_names_is_there() -> None:
    there = {
        name
        for file in python_files(TESTS)
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    report(
        complaints(
            [file for file in text_files() if file.suffix == ".md" and "conformance" not in file.parts],
            lambda text: [f"there is no {name}" for name in re.findall(r"`(test_\w+)`", text) if name not in there],
        )
    )


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("see `loop.py`", []),
        ("see `task/loop.py`", []),
        ("see `tidegate/task/loop.py`", []),
        ("see `daemon/loop.py`", ["line 1: there is no daemon/loop.py"]),
        ("see `gone.py` and gone.py", ["line 1: there is no gone.py"]),
    ],
)
def test_a_name_is_found_by_its_end(line: str, missing: list[str]) -> None:
    assert find_missing(line, find_ends({"tidegate/task/loop.py"})) == missing
