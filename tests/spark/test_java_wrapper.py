"""A Java without the vector module gets a stand-in that takes Spark's option away."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tidegate.spark.java import lacks_vector_module, write_wrapped_home


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ('JAVA_VERSION="25.0.2"\nMODULES="java.base java.sql"\n', True),
        ('MODULES="java.base jdk.incubator.vector java.sql"\n', False),
        ('JAVA_VERSION="17.0.15"\n', False),
        (None, False),
    ],
)
def test_missing_module_is_read_from_the_release_file(tmp_path: Path, release: str | None, expected: bool) -> None:
    if release is not None:
        (tmp_path / "release").write_text(release)
    assert lacks_vector_module(tmp_path) is expected


def test_stand_in_passes_every_argument_but_that_option(tmp_path: Path) -> None:
    home = tmp_path / "a home"
    (home / "bin").mkdir(parents=True)
    real = home / "bin" / "java"
    real.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    real.chmod(0o755)
    wrapped = write_wrapped_home(home, tmp_path / "cache")
    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "", "-Dx=$y", "Main", "--add-modules=other"]
    ran = subprocess.run([wrapped / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert ran.stdout == "<-cp><a b:*><><-Dx=$y><Main><--add-modules=other>"


def test_stand_in_is_made_once(tmp_path: Path) -> None:
    first = write_wrapped_home(tmp_path, tmp_path / "cache")
    made = (first / "bin" / "java").stat().st_mtime_ns
    assert write_wrapped_home(tmp_path, tmp_path / "cache") == first
    assert (first / "bin" / "java").stat().st_mtime_ns == made
    assert [entry.name for entry in (first / "bin").iterdir()] == ["java"]
