"""Which Python `make setup` takes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize(("version", "taken"), [((3, 10), False), ((3, 11), True), ((3, 13), True), ((3, 14), False)])
def test_a_python_that_the_locked_packages_have_no_wheels_for_is_refused(
    tmp_path: Path, version: tuple[int, int], taken: bool
) -> None:
    """pip compiled one, or failed where there is no compiler. What is taken is stopped by the next check."""
    python = tmp_path / "python"
    says = f"import sys; sys.version_info = {(*version, 0)}; exec(sys.argv[1])"
    python.write_text(f'#!/bin/sh\ncase $2 in *ensurepip*) exit 1;; esac\nexec {sys.executable} -I -c "{says}" "$2"\n')
    python.chmod(0o755)
    command = ["make", f"PYTHON={python}", f"VENV={tmp_path}/venv", "setup"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ran.returncode == 2
    assert ("cannot make virtual environments" in ran.stderr) is taken
    assert ("Python 3.11, 3.12 or 3.13 is needed" in ran.stderr) is not taken
    assert not (tmp_path / "venv").exists()


def test_a_checkout_below_tmp_is_refused_before_anything_is_built_for_the_chart() -> None:
    """It was refused by the tests, after ten minutes of building."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        command = ["make", "-f", str(ROOT / "Makefile"), "chart"]
        ran = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=60, check=False)
        assert (ran.returncode, list(Path(place).iterdir())) == (2, [])
        assert "the checkout is below /tmp" in ran.stderr
    command = ["make", "-f", str(ROOT / "Makefile"), "chart-place"]
    assert subprocess.run(command, cwd="/usr", capture_output=True, timeout=60, check=False).returncode == 0
