"""What slots are forked from: everything imported, nothing running."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.spark.job_errors import derive_job_error, describe_failure

LOOK = """
import os, sys
from pathlib import Path
from tidegate.slot.fork_server import import_slots

def threads():
    names = [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]
    return sorted(name for name in names if name != "jemalloc_bg_thd")

sys.argv = ["", "pyspark.worker"]
import_slots()
lacking = {"pyspark.worker", "tidegate.slot.worker", "tidegate.slot.deployment", "polars"} - set(sys.modules)
print("lacking", sorted(lacking), "threads", threads()[:-1], threads()[-1], flush=True)
if os.fork() == 0:
    import polars
    frame = polars.DataFrame({"a": [1, 2, 1] * 100_000}).lazy().group_by("a").len().sort("a").collect()
    print("fork", frame.rows(), polars.thread_pool_size(), flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.slow
def test_a_fork_has_all_modules_and_makes_its_own_threads() -> None:
    """A thread of a library that is new here has to be looked at: what it locks at a fork stays locked (ADR 66)."""
    ran = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, timeout=120, check=False)
    assert ran.stdout.splitlines() == [
        f"lacking [] threads ['polars-ooc-clea'] {Path(sys.executable).name[:15]}",
        "fork [(1, 200000), (2, 100000)] 1",
    ], ran.stderr


def test_what_cannot_be_imported_is_left_to_the_first_slot(tmp_path: Path) -> None:
    """Whose error Spark brings to the daemon; a server that does not start says much less."""
    (tmp_path / "msgspec.py").write_text("raise ImportError('too old')\n")
    code = "import sys; sys.path.insert(0, sys.argv.pop()); from tidegate.slot.fork_server import *; import_slots()"
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


LACKING = """Job aborted due to stage failure: Could not recover from a failed barrier ResultStage.
org.apache.spark.SparkException:
Error from python worker:
  /usr/bin/python3: Error while finding module specification for 'tidegate.slot.fork_server' \
(ModuleNotFoundError: No module named 'tidegate')
PYTHONPATH was:
  /spark/python/lib/pyspark.zip
"""
"""Of Spark 4.3.0."""


def test_an_interpreter_without_tidegate_is_missing_a_module() -> None:
    text = describe_failure(LACKING)
    assert text == "ModuleNotFoundError: No module named 'tidegate'"
    assert "install" in derive_job_error(text).message
