"""Processes as tests see them: those of a daemon (from the package's own helper), and signals to any."""

from __future__ import annotations

import os
import signal

from tidegate.daemon.processes import (
    Process,
    find_descendants,
    find_executors,
    find_slots,
    is_alive,
    read_processes,
)

__all__ = ["Process", "find_descendants", "find_executors", "find_slots", "is_alive", "kill", "read_processes"]


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> bool:
    """Send a signal; False when the process is gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
