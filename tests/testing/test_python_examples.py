"""The examples of steps in Python: their cases pass, in several slots."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.user_code import describe_here
from tidegate.config.load import read_pipeline
from tidegate.plan.build import build_plan
from tidegate.testing.cases import CaseRunner

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "python"
SLOTS = 2
LINES_MAX = 45
"""An example is read, and copied."""


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_cases_of_an_example_pass(path: Path) -> None:
    loaded = describe_here(read_pipeline(path, {}))
    runner = CaseRunner(loaded, build_plan(loaded), SLOTS)
    assert loaded.settings.tests
    for case in loaded.settings.tests:
        assert runner.run(case).failures == (), case.name


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES_MAX
