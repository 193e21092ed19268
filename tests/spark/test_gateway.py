"""The driver's JVM: what it prints is logged, and its SPARK_HOME."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tests.spark.test_java import fake_java
from tidegate.spark.gateway import JvmOutput, link_home
from tidegate.spark.host import SparkHost

REJECTED = (
    "java.util.concurrent.RejectedExecutionException: Task Future(<not completed>) rejected from "
    "java.util.concurrent.ThreadPoolExecutor@20d2a452[Shutting down, pool size = 1, active threads = 1]"
)
TRACE = (REJECTED, "\tat java.base/java.lang.Thread.run(Thread.java:840)", "Caused by: x.Y", "\t... 3 more")


def warned(caplog: pytest.LogCaptureFixture, lines: tuple[str, ...], *, ending: bool) -> list[str]:
    """The lines that become warnings."""
    output = JvmOutput()
    if ending:
        output.session_ends()
    caplog.set_level(logging.DEBUG, "spark")
    with output.writer() as descriptor:
        os.write(descriptor, "".join(f"{line}\n" for line in lines).encode())
    output.wait_end(10)
    assert len(caplog.records) == len(lines)
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


def test_work_too_late_for_a_closing_session_is_chatter_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    lines = (*TRACE, "java.lang.OutOfMemoryError: Java heap space", "\tat a.B.c(B.java:1)", *TRACE)
    assert warned(caplog, lines, ending=True) == list(lines[4:6])


def test_while_the_session_lives_the_same_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert warned(caplog, TRACE, ending=False) == list(TRACE)


def test_a_pool_that_refuses_for_another_reason_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    full = REJECTED.replace("Shutting down", "Running")
    assert warned(caplog, (full, TRACE[1]), ending=True) == [full, TRACE[1]]


def test_known_lines_of_a_start_are_chatter(caplog: pytest.LogCaptureFixture) -> None:
    assert warned(caplog, ("WARNING: Using incubator modules: x", "Picked up JAVA_TOOL_OPTIONS"), ending=False) == []


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark whose directory some cluster has written to."""
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    (home / "work" / "app-1").mkdir(parents=True)
    (home / "RELEASE").write_text("Spark")
    monkeypatch.setenv("SPARK_HOME", str(home))
    return home


def test_all_of_spark_is_there_but_the_place_its_workers_write_to(installed: Path, tmp_path: Path) -> None:
    home = link_home(tmp_path)
    assert sorted(entry.name for entry in home.iterdir()) == ["RELEASE", "jars"]
    assert (home / "jars").resolve() == installed / "jars"


@pytest.mark.parametrize(("master", "own"), [("local-cluster[2,1,512]", True), ("local[2]", False), ("yarn", False)])
def test_X36_workers_of_a_local_cluster_write_into_the_daemons_own_directory(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str, own: bool
) -> None:
    """They wrote below SPARK_HOME, where it stayed, or where nobody but the owner of the environment may."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME", "SPARK_LOCAL_HOSTNAME", "SPARK_LAUNCHER_OPTS",
                 "SPARK_LOCAL_DIRS"):  # fmt: skip
        monkeypatch.setenv(name, "so that it is undone")
    work = tmp_path / "work"
    work.mkdir()
    SparkHost("shop", master, {}, work)._prepare(fake_java(tmp_path / "java", "21.0.1"))
    assert Path(os.environ["SPARK_HOME"]).parent == (work if own else installed.parent)


@pytest.mark.parametrize(("master", "name"), [("spark://there:7077", "10.1.2.3"), ("local[2]", "localhost")])
def test_executors_call_the_driver_by_an_address_and_slots_call_the_daemon_by_the_same(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str, name: str
) -> None:
    """By its name only this machine may know itself."""
    monkeypatch.setenv("SPARK_LOCAL_HOSTNAME", "so that it is undone")
    monkeypatch.delenv("SPARK_LOCAL_HOSTNAME")
    for other in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME", "SPARK_LAUNCHER_OPTS", "SPARK_LOCAL_DIRS"):
        monkeypatch.setenv(other, "so that it is undone")
    monkeypatch.setattr("tidegate.spark.host.find_driver_host", lambda _master, _properties: "10.1.2.3")
    work = tmp_path / "work"
    work.mkdir()
    SparkHost("shop", master, {}, work)._prepare(fake_java(tmp_path / "java", "21.0.1"))
    assert os.environ["SPARK_LOCAL_HOSTNAME"] == name
