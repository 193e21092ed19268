"""Temporary directories of daemons: what a killed one leaves is swept, what a living one uses is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tidegate.daemon.work_directory import make_work_directory, sweep_work_directories


def test_only_directories_of_daemons_that_are_gone_are_swept(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = tmp_path / f"tidegate-{gone.pid}-abc_12"
    (left / "spark").mkdir(parents=True)
    kept = [tmp_path / f"tidegate-{os.getpid()}-abc_12", tmp_path / "tidegate-demo-abc", tmp_path / "other"]
    for each in kept:
        each.mkdir()
    assert sweep_work_directories(tmp_path) == [left]
    assert all(each.is_dir() for each in kept)


def test_a_new_directory_carries_the_process_id(tmp_path: Path) -> None:
    made = make_work_directory(tmp_path)
    assert made.is_dir()
    assert made.name.startswith(f"tidegate-{os.getpid()}-")
