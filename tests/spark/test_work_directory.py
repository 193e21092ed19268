"""Temporary directories of daemons: what a killed one leaves is swept, what a living one uses is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S
from tidegate.slot.fork_guard import SERVER
from tidegate.spark import work_directory
from tidegate.spark.work_directory import (
    MARK,
    OsProcess,
    WorkDirectory,
    cache_directory,
    choose_slots,
    find_work_directories,
    sweep_work_directories,
)


@pytest.fixture
def gone() -> int:
    """A process id that nobody has."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_X36_only_directories_of_daemons_that_are_gone_are_swept(tmp_path: Path, gone: int) -> None:
    left = tmp_path / f"tidegate-{gone}-abc_12"
    (left / "spark").mkdir(parents=True)
    (left / MARK).touch()
    kept = [tmp_path / f"tidegate-{os.getppid()}-abc_12", tmp_path / "tidegate-demo-abc", tmp_path / "other"]
    for each in kept:
        each.mkdir()
    assert sweep_work_directories(tmp_path) == [left]
    assert all(each.is_dir() for each in kept)


def test_X36_what_an_earlier_daemon_of_this_process_id_has_left_is_swept_by_its_lock(tmp_path: Path) -> None:
    """A container that is started again has the same process ids, and the same temporary directory."""
    left = tmp_path / f"tidegate-{os.getpid()}-abc_12"
    left.mkdir()
    (left / MARK).touch()
    made = WorkDirectory(tmp_path)
    assert list(tmp_path.iterdir()) == [made.path]
    assert sweep_work_directories(tmp_path) == []
    made.remove()


def test_X36_a_directory_in_use_is_kept_where_process_ids_mean_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As between containers that share a temporary directory."""
    made = WorkDirectory(tmp_path)
    monkeypatch.setattr(work_directory, "is_alive", lambda _pid: False)
    assert sweep_work_directories(tmp_path) == []
    assert made.path.is_dir()
    made.remove()


def test_X36_a_directory_of_somebodys_with_such_a_name_is_left_alone(tmp_path: Path, gone: int) -> None:
    """A checkpoint directory, say: `file:///tmp/tidegate-2026-totals`."""
    mine = tmp_path / f"tidegate-{gone}-totals"
    (mine / "journal").mkdir(parents=True)
    WorkDirectory(tmp_path).remove()
    assert [path for path in tmp_path.rglob("*") if path.name != MARK] == [mine, mine / "journal"]


def test_X36_what_is_left_of_a_removal_that_was_killed_is_removed_later(
    tmp_path: Path, gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / f"tidegate-{gone}-abc_12"
    (left / "spark").mkdir(parents=True)
    for name in (MARK, "token", "zz"):
        (left / name).touch()
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            sweep_work_directories(tmp_path)
    assert sweep_work_directories(tmp_path) == [left]
    assert not left.exists()


def killed(*_: object, **_named: object) -> None:
    raise KeyboardInterrupt


def test_X36_a_link_with_such_a_name_leads_nowhere(tmp_path: Path, gone: int) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    link = tmp_path / f"tidegate-{gone}-abc"
    link.symlink_to(tmp_path / "mine")
    assert sweep_work_directories(tmp_path) == []
    assert find_work_directories(tmp_path) == []
    assert (tmp_path / "mine" / "letter").read_text() == "dear"


def test_X36_directories_of_other_users_are_theirs_to_remove(
    tmp_path: Path, gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / f"tidegate-{gone}-abc"
    other.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert sweep_work_directories(tmp_path) == []
    assert find_work_directories(tmp_path) == []
    assert other.is_dir()


def test_a_new_directory_carries_the_process_id_and_is_private(tmp_path: Path) -> None:
    made = WorkDirectory(tmp_path)
    assert made.path.name.startswith(f"tidegate-{os.getpid()}-")
    assert made.path.stat().st_mode & 0o777 == 0o700
    made.remove()
    made.remove()
    assert list(tmp_path.iterdir()) == []


def test_X36_a_program_that_fails_before_it_could_remove_its_directory_leaves_none(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from tidegate.spark.work_directory import WorkDirectory\n"
        "kept = WorkDirectory(pathlib.Path(sys.argv[1])); (kept.path / 'spark').mkdir(); raise SystemExit(2)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, timeout=PATIENCE_S)
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TIDEGATE_CACHE": "/own", "XDG_CACHE_HOME": "/xdg", "HOME": "/h"}, "/own"),
        ({"XDG_CACHE_HOME": "/xdg", "HOME": "/h"}, "/xdg/tidegate"),
        ({"HOME": "/h"}, "/h/.cache/tidegate"),
    ],
)
def test_cache_is_where_the_user_says(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str
) -> None:
    for name in ("TIDEGATE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_directory() == Path(expected)


DRIVER = OsProcess(10, 9, "S", "java -cp jars org.SparkSubmit --conf spark.python.daemon.module=pyspark.daemon shell ")
"""Its command has the module's name; with no executors it is the parent of Spark's own fork server."""
EXECUTOR = OsProcess(20, 10, "S", "java -cp jars CoarseGrainedExecutorBackend ")


@pytest.mark.parametrize("parent", [DRIVER, EXECUTOR], ids=["local", "executors"])
@pytest.mark.parametrize("command", [f"python -m {SERVER} 9 ", "python -m pyspark.daemon "])
def test_slots_are_the_forks_of_a_fork_server_and_nothing_above_or_below_them(parent: OsProcess, command: str) -> None:
    server = OsProcess(30, parent.pid, "S", command)
    slots = [OsProcess(31, 30, "S", command), OsProcess(32, 30, "R", command)]
    starting = OsProcess(40, 31, "R", command)  # a process that a slot starts, before its exec
    below = [DRIVER, EXECUTOR, server, *slots, starting, OsProcess(50, 30, "S", "python -m another ")]
    assert choose_slots(below) == [31, 32]
