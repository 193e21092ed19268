"""Production code keeps every line of the contract, and a quick test notices its loss.

A name alone proves nothing, so each line has a mutant: a change of a piece of production code without which the line is
lost (`mutants_b.py`, `mutants_c.py`, `mutants_f.py`). If it is planted, a test that names the line must fail.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec
import pytest

from tests.contract.lines import ALL
from tests.contract.mutants import MUTANTS
from tests.contract.planter import Report, find_faults, ids_in

ROOT = Path(__file__).resolve().parents[2]
FUNCTION = re.compile(r"^\s*(?:async )?def (\w+)", re.MULTILINE)
"""Parsing all tests for these names would take twenty times as long."""
SESSION_S = 600
"""Limit of the planting session, which takes about 10 s of CPU time."""


def find_ids(text: str) -> set[str]:
    """Returns the ids in the names of the test functions of this source text, such as
    `test_C20_C21_handles_are_cleaned`.
    """
    return {found for name in FUNCTION.findall(text) for found in ids_in(name)}


@cache
def named_ids() -> dict[Path, set[str]]:
    """Returns the ids that tests name, by file, without those of this folder."""
    files = [file for file in (ROOT / "tests").rglob("test_*.py") if file.parent != Path(__file__).resolve().parent]
    return {file: find_ids(file.read_text(encoding="utf-8")) for file in sorted(files)}


@pytest.mark.slow
def test_a_test_notices_when_production_loses_the_line_it_names(tmp_path: Path) -> None:
    files = [str(file) for file, found in named_ids().items() if found and "e2e" not in file.parts]
    target = tmp_path / "report.json"
    options = ["-p", "tests.contract.planter", "-p", "no:randomly", "-p", "no:cacheprovider", "-q", "--tb=no"]
    # What one mutant leaves behind must not fail a test of the next.
    options += ["-p", "no:unraisableexception", "-p", "no:threadexception"]
    # A signal ends only the hanging test; a thread, as used elsewhere, would end the whole session.
    options += ["--timeout=60", "--timeout-method=signal", f"--contract-report={target}"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=SESSION_S,
        check=False,
    )
    assert target.exists(), ended.stdout + ended.stderr
    faults = find_faults(msgspec.json.decode(target.read_bytes(), type=Report), ALL)
    assert not faults, "\n".join(faults)


def test_every_line_has_a_mutant_and_no_other() -> None:
    assert {mutant.line for mutant in MUTANTS} == ALL


def test_tests_name_no_line_that_does_not_exist() -> None:
    assert sorted(set().union(*named_ids().values()) - ALL) == []


def test_ids_are_found_in_names_of_tests_only() -> None:
    text = "def test_C19_ack(): ...\nasync def test_B27_B28_x(): ...\ndef helper_C20(): ...\ndef test_AC21x(): ...\n"
    assert find_ids(text) == {"C19", "B27", "B28"}
