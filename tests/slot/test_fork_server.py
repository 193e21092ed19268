"""What slots are forked from: everything imported, nothing running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.processes import is_alive
from tests.waiting import PATIENCE_S, wait_until
from tidegate.slot import fork_guard
from tidegate.slot.fork_server import FROZEN_S
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


SERVER = """
import os, sys
from tidegate.slot.fork_server import start_guard
guard = start_guard()
print(os.getpid(), guard.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def guarded() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """What slots are forked from, as far as its guard is concerned, and the process id of that."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, FROZEN_S: "0.5"},
    )
    with server:
        assert server.stdout is not None
        pid, guard = map(int, server.stdout.readline().split())
        assert pid == server.pid
        yield server, guard
        server.kill()


@pytest.mark.slow
def test_a_frozen_server_is_killed_and_its_guard_ends(guarded: tuple[subprocess.Popen[str], int]) -> None:
    server, guard = guarded
    os.kill(server.pid, signal.SIGSTOP)
    assert server.wait(PATIENCE_S) == -signal.SIGKILL
    assert server.stderr is not None
    assert server.stderr.read() == (
        f"process {server.pid}, from which slots are forked, was frozen (SIGSTOP) for more than 0.5 s: it is killed, "
        "and its slots with it; Spark starts another one\n"
    )
    wait_until(lambda: not is_alive(guard), "the guard has ended")


@pytest.mark.slow
def test_a_guard_ends_with_its_server(guarded: tuple[subprocess.Popen[str], int]) -> None:
    server, guard = guarded
    assert is_alive(guard)
    assert server.stdin is not None
    server.stdin.close()
    assert server.wait(PATIENCE_S) == 0
    wait_until(lambda: not is_alive(guard), "the guard has ended")
    assert server.stderr is not None
    assert "frozen" not in server.stderr.read()


@pytest.mark.parametrize(
    ("states", "killed"),
    [
        pytest.param("T" * 8, True, id="as-long-as-is-allowed"),
        pytest.param("T" * 7 + "S" + "T" * 7, False, id="shorter-and-again"),
        pytest.param("SRDt" * 9, False, id="busy-waiting-for-a-disk-or-traced"),
    ],
)
def test_only_what_stays_frozen_is_killed(monkeypatch: pytest.MonkeyPatch, states: str, killed: bool) -> None:
    """Two looks a second; at the end of `states` the pipe from the server is at its end."""
    looks = iter(states)
    struck: list[int] = []
    seen = [next(looks)]

    def wait(*_: object) -> tuple[list[int], list[int], list[int]]:
        seen.append(next(looks, ""))
        return ([] if seen[-2] else [0]), [], []

    monkeypatch.setattr("tidegate.slot.fork_guard.select", SimpleNamespace(select=wait))
    monkeypatch.setattr("tidegate.slot.fork_guard.read_state", lambda _pid: seen[-2])
    monkeypatch.setattr(
        "tidegate.slot.fork_guard.os", SimpleNamespace(getppid=lambda: 7, kill=lambda *a: struck.append(a[0]))
    )
    assert fork_guard.watch(7, 2.0) is killed
    assert struck == ([7] if killed else [])


def test_the_state_of_a_process() -> None:
    assert fork_guard.read_state(os.getpid()) == "R"
    assert fork_guard.read_state(1 << 30) == ""


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
