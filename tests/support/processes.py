"""Processes in tests: finds those of a daemon with the package's own helpers, and sends signals."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tidegate.spark.work_directory import (
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
    """Returns the pids of executor JVMs below a daemon or a Spark worker."""
    return [process.pid for process in find_descendants(root) if "CoarseGrainedExecutorBackend" in process.command]


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> bool:
    """Sends a signal; returns False if the process is already gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def frozen(pids: Sequence[int]) -> Iterator[None]:
    """Stops these processes (SIGSTOP) within the block. All of them must exist when it begins."""
    try:
        for pid in pids:
            assert kill(pid, signal.SIGSTOP), f"process {pid} is gone"
        yield
    finally:
        for pid in pids:
            kill(pid, signal.SIGCONT)
