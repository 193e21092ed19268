"""No persisted byte is pickled: all formats, both backends, rows in flight and savepoints, read and written (S21)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@pytest.mark.slow
def test_S21_everything_persisted_is_read_and_written_where_nothing_can_be_pickled(tmp_path: Path) -> None:
    files = shutil.copytree(HERE / "format-1", tmp_path / "files")
    run = subprocess.run(
        [sys.executable, "-m", "tests.golden.poisoned", str(files)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    done = run.stdout.splitlines()
    assert len(done) == 8, done
    for part in ("memory", "rocksdb", "savepoints", "rows in flight", "savepoint written and imported"):
        assert any(part in one for one in done), part
