"""Tests the two distributions built from the tree: the runtime without its simulation, and the simulation."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.tidy.tree import PACKAGE, ROOT
from tidegate import __version__
from tidegate.daemon.http.server import CONTENT_TYPES, FILES

DOCS = ROOT / "docs"
COOKBOOK = ROOT / "examples" / "cookbook"


SUFFIXES = (".py", ".md", *CONTENT_TYPES)


def files_of(folder: Path, target: Path) -> tuple[set[str], set[str]]:
    """Builds the wheel in `folder` without compiled code and returns the package's files in it, and the licences."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    environ = {**os.environ, "TIDEGATE_BUILD_NATIVE": "0"}
    built = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = target.glob("*.whl")
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    files = {name for name in names if name.startswith("tidegate/")}
    files = {name for name in files if name.endswith(SUFFIXES) or name.startswith("tidegate/cookbook/")}
    return files, {name.partition(".dist-info/licenses/")[2] for name in names} - {""}


@pytest.mark.slow
def test_every_module_is_in_one_of_the_two_wheels_and_all_else_in_the_first(tmp_path: Path) -> None:
    runtime, licences = files_of(ROOT, tmp_path / "runtime")
    simulation, _ = files_of(ROOT / "packaging" / "simulation", tmp_path / "simulation")
    assert {name for name in runtime | simulation if name.startswith("tidegate/simulation/")} == simulation
    assert not runtime & simulation
    everything = {one.relative_to(ROOT).as_posix() for one in PACKAGE.rglob("*") if one.suffix in SUFFIXES}
    everything |= {f"tidegate/pages/{path.relative_to(DOCS).as_posix()}" for path in DOCS.rglob("*.md")}
    everything |= {f"tidegate/cookbook/{path.name}" for path in COOKBOOK.iterdir() if path.is_file()}
    assert {f"tidegate/daemon/http/static/{name}" for name in FILES} < runtime
    assert runtime | simulation == everything
    assert licences == {"LICENSE", *(f"tidegate/daemon/http/static/{name}" for name in FILES if "LICENSE" in name)}


def test_the_extra_asks_for_the_simulation_of_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"]["simulation"] == [f"tidegate-simulation=={__version__}"]
