"""A kind of step that the product does not have: one folder next to the others, and each mistake in it has a name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.operators.planted import ADDS_A_COLUMN_THAT_ARRIVES, MISTAKES

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = Path(__file__).with_name("kinds") / "sample"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of each planted mistake, and of `sample` itself."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.operators.newcomer", str(tmp_path_factory.mktemp("planted"))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_a_step_with_keys_is_at_most_80_lines_in_files_of_its_own(said: dict[str, str]) -> None:
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in SAMPLE.glob("*.py")) <= 80
    assert said["sample"] == "", "it keeps the contract"


def test_the_file_the_explanation_and_the_reference_know_it(said: dict[str, str]) -> None:
    assert said["in the reference"] == "## Sample"
    assert said["in the schema"] == "every"
    assert said["explained"] == "sample every 3 per customer"


def test_what_it_passes_are_no_totals(said: dict[str, str]) -> None:
    assert said["warnings"] == ""


def test_a_column_that_arrives_and_is_added_is_a_problem_of_the_file(said: dict[str, str]) -> None:
    assert re.search(
        r"contract\.yaml:\d+:\d+.*" + re.escape(ADDS_A_COLUMN_THAT_ARRIVES.said), said[ADDS_A_COLUMN_THAT_ARRIVES.word]
    )


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one.word)
def test_a_mistake_is_named_with_its_operator(mistake: tuple[str, str], said: dict[str, str]) -> None:
    word, expected, *_ = mistake
    assert expected in said[word]
    operator = rf"operator `tried` \(SampleOperator\)|operator SampleOperator \(.*{word}\)"
    named = rf"{operator}|kind \S+\.{word}:|steps\.tried\.{word}"
    assert re.search(named, said[word])
