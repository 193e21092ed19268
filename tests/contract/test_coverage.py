"""Every line of the contract that this release keeps is named by a test, and every other line says why not."""

from __future__ import annotations

import ast
import re
from itertools import combinations
from pathlib import Path

from tests.contract.lines import ALL, COVERED, PENDING

TESTS = Path(__file__).resolve().parents[1]
ID = re.compile(r"(?<![A-Za-z0-9])([FBCWS]\d\d)(?![A-Za-z0-9])")


def find_ids(text: str) -> set[str]:
    """The ids in the names of the test functions of this source text, `test_C20_C21_handles_are_cleaned`."""
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    names = [function.name for function in functions if function.name.startswith("test_")]
    return {found for name in names for found in ID.findall(name.replace("_", " "))}


def named_ids() -> set[str]:
    """All ids that tests name anywhere beside this folder."""
    files = [file for file in TESTS.rglob("test_*.py") if file.parent != Path(__file__).resolve().parent]
    return set().union(*(find_ids(file.read_text(encoding="utf-8")) for file in files))


def test_every_covered_line_is_named_by_a_test() -> None:
    missing = sorted(COVERED - named_ids())
    assert not missing, f"{len(missing)} lines have no test: {' '.join(missing)}"


def test_every_line_is_covered_or_pending_and_only_one_of_them() -> None:
    groups = [COVERED, *PENDING.values()]
    assert frozenset[str]().union(*groups) == ALL
    assert [sorted(one & other) for one, other in combinations(groups, 2) if one & other] == []


def test_tests_name_no_line_that_does_not_exist() -> None:
    assert sorted(named_ids() - ALL) == []


def test_ids_are_found_in_names_of_tests_only() -> None:
    text = "def test_C19_ack(): ...\nasync def test_B27_B28_x(): ...\ndef helper_C20(): ...\ndef test_AC21x(): ...\n"
    assert find_ids(text) == {"C19", "B27", "B28"}
