"""Becomes another program that dies with its parent: `python launch.py PARENT_PID PROGRAM ARGUMENT...`.

This is a separate small program because code between fork and exec is unsafe in a process with threads. The kernel
sends the signal when the *thread* that started this program ends, so `server` starts all brokers from one thread that
lives as long as its process. It imports nothing from Tidegate and runs with `-I -S` to start quickly.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Requests SIGKILL on the parent's death and becomes the program."""
    parent, program = int(arguments[0]), arguments[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # the parent died before the request
        sys.exit(1)
    os.execv(program[0], program)  # noqa: S606  the list comes from `server`


if __name__ == "__main__":
    main(sys.argv[1:])
