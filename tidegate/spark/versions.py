"""Determines which Spark, Java and Python are installed, and decides which are refused as hosts of slots (ADR 64).

Only barrier jobs of the RDD interface are used, so all Spark versions in the range are equivalent. Versions that were
seen to fail are refused. Versions in the range that are newer than any tested one (docs/compatibility.md) are allowed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

SPARK_MIN: Final = (3, 5)
SPARK_END: Final = (4, 4)
"""The first version that is too new: nothing is known about it."""
JAVA_MAX: Final[Mapping[tuple[int, int], int]] = {(3, 5): 21, (4, 0): 21}
"""The newest LTS Java on which these Spark versions start. On 25 they fail: `getSubject is not supported`."""
ASK_S: Final = 30.0
REMOTE: Final = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""Variables that make pyspark a client of Spark Connect."""
_NUMBER: Final = re.compile(r"(\d+)\.(\d+)")
_LINE: Final = re.compile(r"""^__version__[^=]*=\s*["']([^"']+)""", re.MULTILINE)
_JAR: Final = re.compile(r"spark-core_[\d.]+-(\d[^/]*)\.jar")

_INSTALL: Final = "pip install 'pyspark>=3.5,<4.4' in the version of the cluster"


class InstalledSpark(msgspec.Struct, frozen=True):
    """The installed Spark that a session would use. An empty version means that there is none."""

    library: str
    """Version of the Python package pyspark."""
    jars: str
    """Version of the jars that its JVM would load: those of SPARK_HOME, if that is set."""
    home: str
    """The directory of the jars, or where they would be."""


class RuntimeProblem(msgspec.Struct, frozen=True):
    """The reason why a session could not be created, and the remedy.

    `name` is the property of `spark:`; empty if it concerns none.
    """

    message: str
    remedy: str
    name: str = ""


def read_spark() -> InstalledSpark:
    """Reads the versions from files; pyspark is not imported."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return InstalledSpark("", "", os.environ.get("SPARK_HOME", ""))
    package = Path(spec.origin).parent
    home = Path(os.environ.get("SPARK_HOME") or _home_of(package))
    return InstalledSpark(_read_library(package), _read_jars(home), str(home))


def _home_of(package: Path) -> Path:
    """Returns the package itself if it contains the jars; otherwise the Spark that it is part of.

    In an unpacked Spark it is SPARK/python/pyspark.
    """
    return package if (package / "jars").is_dir() else package.parents[1]


def _read_library(package: Path) -> str:
    try:
        found = _LINE.search((package / "version.py").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""
    return found[1] if found else ""


def _read_jars(home: Path) -> str:
    names = sorted(path.name for path in (home / "jars").glob("spark-core_*.jar"))
    found = _JAR.fullmatch(names[0]) if names else None
    return found[1] if found else ""


def read_python(program: str) -> str:
    """Returns the version of an interpreter on this machine, such as 3.12; empty if it does not run."""
    command = [program, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout.strip() if ran.returncode == 0 else ""


def here() -> str:
    """Returns the version of the interpreter that runs the daemon."""
    return "{}.{}".format(*sys.version_info)


# -- pure --------------------------------------------------------------------------------------------------------------


def decide_spark_problem(spark: InstalledSpark, environ: Mapping[str, str]) -> RuntimeProblem | None:
    """Decides why this Spark cannot host slots; None if it can."""
    remote = [name for name in REMOTE if environ.get(name)]
    if remote:
        return RuntimeProblem(
            f"{remote[0]} is set, which makes pyspark a client of Spark Connect: it has no barrier jobs",
            f"unset {remote[0]}; the daemon is a Spark driver itself",
        )
    if not spark.library:
        return RuntimeProblem("pyspark is not installed for the daemon's interpreter", _INSTALL)
    if not spark.jars:
        return RuntimeProblem(
            f"pyspark {spark.library} has no Spark with it ({spark.home} has no jars/spark-core): a package for Spark "
            "Connect, or a wrong SPARK_HOME",
            f"{_INSTALL}, or set SPARK_HOME to a Spark of this version",
        )
    version = _minor(spark.library)
    if not SPARK_MIN <= version < SPARK_END:
        return RuntimeProblem(f"pyspark is {spark.library}; Tidegate runs on Spark {_text(SPARK_MIN)} to 4.3", _INSTALL)
    if _minor(spark.jars) != version:
        return RuntimeProblem(
            f"pyspark is {spark.library}, and the Spark in {spark.home} is {spark.jars}",
            f"pip install 'pyspark=={_text(_minor(spark.jars))}.*', or unset SPARK_HOME",
        )
    return None


def decide_language_problems(library: str, java: int | None, python: str, workers: str) -> Iterator[RuntimeProblem]:
    """Decides what is wrong with Java (None: unknown) and the Pythons of daemon and slots (empty: unknown)."""
    java_max = JAVA_MAX.get(_minor(library))
    if java is not None and java_max is not None and java > java_max:
        yield RuntimeProblem(
            f"Spark {library} does not run on Java {java}", f"set JAVA_HOME to a Java of version 17 to {java_max}"
        )
    if workers and _minor(workers) != _minor(python):
        yield RuntimeProblem(
            f"slots would run on Python {workers}, the daemon runs on {python}",
            f"name an interpreter of Python {python} that has Tidegate with its packages, or remove the setting",
            "spark.pyspark.python",
        )


def _minor(version: str) -> tuple[int, int]:
    found = _NUMBER.match(version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
