"""Tests the two distributions built from the tree: the runtime without its simulation, and the simulation."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.tidy.tree import PACKAGE, ROOT
from tidegate import __version__

DOCS = ROOT / "docs"


def files_of(folder: Path, target: Path) -> set[str]:
    """Builds the wheel in `folder` and returns the modules and pages of the package in it."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = target.glob("*.whl")
    with ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith("tidegate/") and name.endswith((".py", ".md"))}


@pytest.mark.slow
def test_every_module_is_in_one_of_the_two_wheels_and_every_page_in_the_first(tmp_path: Path) -> None:
    runtime = files_of(ROOT, tmp_path / "runtime")
    simulation = files_of(ROOT / "packaging" / "simulation", tmp_path / "simulation")
    assert {name for name in runtime | simulation if name.startswith("tidegate/simulation/")} == simulation
    assert not runtime & simulation
    everything = {path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py")}
    everything |= {f"tidegate/pages/{path.relative_to(DOCS).as_posix()}" for path in DOCS.rglob("*.md")}
    assert runtime | simulation == everything


def test_the_extra_asks_for_the_simulation_of_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"]["simulation"] == [f"tidegate-simulation=={__version__}"]
