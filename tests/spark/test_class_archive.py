"""Class archives: which options a JVM gets, that Spark's driver starts from one, and that nothing depends on it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.dev.broker import DevelopmentBroker
from tidegate.dev.broker.artifacts import fetch_jars
from tidegate.dev.broker.server import broker_archive
from tidegate.dev.prepare import prepare
from tidegate.spark.class_archive import SILENT, ArchiveFailed, spark_archive
from tidegate.spark.java import find_java

JavaMaker = Callable[[bool, str], Path]


@pytest.fixture(scope="module")
def kept_jars() -> Path:
    """Where all other tests have them from."""
    return fetch_jars()[0].parent


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def make_java(tmp_path: Path) -> JavaMaker:
    """A Java with or without an archive of its own classes; its program is a shell script."""

    def make(has_base: bool, script: str) -> Path:
        java = tmp_path / "jdk" / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o755)
        if has_base:
            base = tmp_path / "jdk" / "lib" / "server" / "classes.jsa"
            base.parent.mkdir(parents=True)
            base.touch()
        return java

    return make


def test_there_are_options_only_when_the_archive_is_there(make_java: JavaMaker, tmp_path: Path) -> None:
    archive = spark_archive(make_java(True, "exit 1"))
    assert archive.options == []
    new = tmp_path / "new"
    assert archive.prepare(new) == [f"-XX:ArchiveClassesAtExit={new}", SILENT]
    new.touch()
    archive.keep(new)
    assert archive.options == [f"-XX:SharedArchiveFile={archive.file}", SILENT]
    archive.prepare(new)
    assert archive.options == [], "while a new one is made the old one is not used"


def test_a_java_without_an_archive_of_its_own_gets_one_below(make_java: JavaMaker, tmp_path: Path) -> None:
    archive = spark_archive(make_java(False, 'for word; do last=$word; done; : > "${last#*=}"'))
    new = tmp_path / "new"
    base = archive.prepare(new)[0].removeprefix("-XX:SharedArchiveFile=")
    assert Path(base).is_file()
    new.touch()
    archive.keep(new)
    assert archive.options[0] == f"-XX:SharedArchiveFile={base}:{archive.file}"
    Path(base).unlink()
    assert archive.options == []


def test_a_java_that_cannot_make_archives_is_told(make_java: JavaMaker, tmp_path: Path) -> None:
    with pytest.raises(ArchiveFailed, match="no archive of its own classes: not today"):
        spark_archive(make_java(False, "echo not today; exit 3")).prepare(tmp_path / "new")


def test_a_jvm_that_ended_without_an_archive_is_told(make_java: JavaMaker, tmp_path: Path) -> None:
    with pytest.raises(ArchiveFailed, match="without an archive; Spark starts without one"):
        spark_archive(make_java(True, "exit 0")).keep(tmp_path / "new")


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ArchiveFailed, match=r"no class archive was written to .*/file/cache: .*Not a directory"):
        CliRunner().invoke(prepare, catch_exceptions=False, standalone_mode=False)


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"no archive" * 1000])
def test_a_damaged_archive_keeps_no_jvm_from_starting_in_silence(content: bytes) -> None:
    archive = spark_archive(find_java())
    archive.prepare(archive.file.with_suffix(".new"))
    archive.file.write_bytes(content)
    ran = subprocess.run([find_java(), *archive.options, "--version"], capture_output=True, text=True, check=False)
    assert archive.options
    assert ran.returncode == 0
    assert "cds" not in ran.stdout + ran.stderr


START = """
import sys
from pathlib import Path
from tidegate.spark.host import SparkHost
host = SparkHost("archived", "local[1]", {"spark.driver.extraJavaOptions": sys.argv[2]}, Path(sys.argv[1]))
host.start(1)
host.stop()
"""


@pytest.mark.slow
@pytest.mark.deep
def test_sparks_driver_and_brokers_start_from_the_archives_that_prepare_makes(tmp_path: Path, kept_jars: Path) -> None:
    (tmp_path / "cache" / kept_jars.name).symlink_to(kept_jars)
    spark, broker = spark_archive(find_java()), broker_archive(find_java(), fetch_jars())
    assert python("-m", "tidegate", "prepare", "--broker").splitlines() == [
        f"Spark's JVMs now start from {spark.file}",
        f"development brokers now start from {broker.file}",
    ]
    loaded = tmp_path / "loaded"
    python("-c", START, str(tmp_path), f"-Xlog:class+load:file={loaded}")
    check_archived(loaded, "org.apache.spark.")
    loaded = tmp_path / "loaded-by-broker"
    with DevelopmentBroker(tmp_path / "broker", jvm_options=[*broker.options, f"-Xlog:class+load:file={loaded}"]):
        check_archived(loaded, "org.apache.kafka.")


def check_archived(loaded: Path, package: str) -> None:
    """Nearly all of the classes that a JVM has loaded come from archives; `loaded` is its log of them."""
    lines = loaded.read_text().splitlines()
    archived = sum("shared objects file" in line for line in lines)
    assert archived > 0.8 * len(lines), f"{archived} of {len(lines)} classes come from archives"
    assert sum(package in line and "file (top)" in line for line in lines) > 500
    assert sum("source: file:" in line for line in lines) < 100, "classes that are still read from jars"


def python(*arguments: str) -> str:
    """What it prints; a process of its own, because pyspark keeps to the first JVM of a process."""
    ran = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=400, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "Traceback" not in ran.stderr
    return ran.stdout
