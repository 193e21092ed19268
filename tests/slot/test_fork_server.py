"""What slots are forked from: everything imported, nothing running."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.processes import is_alive
from tests.waiting import PATIENCE_S, wait_until
from tidegate.slot import fork_guard
from tidegate.slot.fork_guard import EARLY_SERVER, FROZEN_S
from tidegate.spark.gateway import early_server
from tidegate.spark.job_errors import derive_job_error, describe_failure

LOOK = """
import os, sys
from pathlib import Path
from tidegate.slot.fork_server import import_slots

def threads():
    names = [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]
    return sorted(name for name in names if name != "jemalloc_bg_thd")

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


MANAGER = """
import os, sys

def manager():
    print(os.getpid(), *sys.argv[1:], os.environ["OF_SPARK"], flush=True)
    sys.stdin.read()
"""


class Guard:
    """A guard as Spark starts it, whose server has nothing to import and waits for the end of standard input."""

    def __init__(self, path: Path, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tidegate.slot.fork_guard", "worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(path), "OF_SPARK": "set", FROZEN_S: "0.5", **environment},
        )
        assert self.process.stdout is not None
        server, argument, variable = self.process.stdout.readline().split()
        assert (argument, variable) == ("worker", "set")
        self.server = int(server)

    def close_stdin(self) -> None:
        """What Spark does at the end of an executor."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def read_errors(self) -> str:
        """Reads standard error to its end."""
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def wait(self) -> None:
        """Waits until both have ended."""
        self.process.wait(PATIENCE_S)
        wait_until(lambda: not is_alive(self.server), "the server has ended")


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    """A `pyspark` whose manager tells what it was given."""
    package = tmp_path / "pyspark"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "daemon.py").write_text(MANAGER)
    return tmp_path


@pytest.fixture
def guard(stub: Path) -> Iterator[Callable[..., Guard]]:
    """Makes guards that are gone after the test."""
    with contextlib.ExitStack() as stack:

        def make(**environment: str) -> Guard:
            made = Guard(stub, **environment)
            stack.enter_context(made.process)
            stack.callback(made.process.kill)
            return made

        yield make


@pytest.mark.slow
def test_a_frozen_server_is_killed_and_its_guard_ends(guard: Callable[..., Guard]) -> None:
    guarded = guard()
    os.kill(guarded.server, signal.SIGSTOP)
    guarded.wait()
    assert guarded.read_errors() == (
        f"process {guarded.server}, from which slots are forked, was frozen (SIGSTOP) for more than 0.5 s: it is "
        "killed, and its slots with it; Spark starts another one\n"
    )


@pytest.mark.slow
def test_a_guard_ends_with_its_server_and_a_server_with_its_guard(guard: Callable[..., Guard]) -> None:
    first, second = guard(), guard()
    first.close_stdin()
    first.wait()
    assert first.read_errors() == ""
    second.process.kill()
    second.wait()


@pytest.mark.slow
def test_an_early_server_is_taken_over_once(
    guard: Callable[..., Guard], stub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(stub))
    with early_server() as early:
        first, second = (guard(**{EARLY_SERVER: early.address}) for _ in range(2))
        assert early._process is not None
        assert (first.server == early._process.pid, second.server == early._process.pid) == (True, False)
        first.close_stdin()
        wait_until(lambda: first.process.poll() is not None, "its guard has ended")
    assert not is_alive(first.server)
    assert is_alive(second.server)


@pytest.mark.slow
def test_an_early_server_ends_with_a_start_that_is_refused(stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(stub))
    with early_server() as early:
        assert early._process is not None
    assert early._process.returncode == -signal.SIGKILL


def test_another_user_is_not_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address without a file has no permissions."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert fork_guard.is_own(ours)
        monkeypatch.setattr("os.geteuid", lambda: 12345)
        assert not fork_guard.is_own(ours)


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
    monkeypatch.setattr("tidegate.slot.fork_guard.os", SimpleNamespace(kill=lambda *a: struck.append(a[0])))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert fork_guard.watch(ours, 7, 2.0) is killed
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
