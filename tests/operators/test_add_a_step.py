"""docs/add-a-step.md, taken literally: its files are those of the tests, and what it says to run passes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "add-a-step.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w/.]+)`[^\n]*:\n\n```\w*\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("name", FILES)
def test_the_page_has_the_files_that_are_checked_and_run(name: str) -> None:
    text = (
        (Path(__file__).parent / name)
        .read_text(encoding="utf-8")
        .replace("tests.operators.kinds", "tidegate.operators.kinds")
    )
    assert FILES[name] == text
    assert len(FILES) == 4


def test_what_the_page_says_to_run_passes(tmp_path: Path) -> None:
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tests.operators.follow_page", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed  the first of a customer passes, then every second" in done.stdout
    assert "8 passed" in done.stdout, "the contract with both sources, and six of its own"
