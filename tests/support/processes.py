"""Processes as tests see them: those of a daemon (from the package's own helper), and signals to any."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tidegate.spark.processes import (
    OsProcess,
    find_descendants,
    find_slots,
    is_alive,
    read_processes,
)

__all__ = [
    "OsProcess",
    "find_descendants",
    "find_executors",
    "find_slots",
    "frozen",
    "is_alive",
    "kill",
    "read_processes",
]


def find_executors(root: int) -> list[int]:
    """Executor JVMs below a daemon or a worker of Spark."""
    return [process.pid for process in find_descendants(root) if "CoarseGrainedExecutorBackend" in process.command]


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> bool:
    """Send a signal; False when the process is gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def frozen(pids: Sequence[int]) -> Iterator[None]:
    """These processes are stopped (SIGSTOP) within the block; all of them must be there when it begins."""
    try:
        for pid in pids:
            assert kill(pid, signal.SIGSTOP), f"process {pid} is gone"
        yield
    finally:
        for pid in pids:
            kill(pid, signal.SIGCONT)
