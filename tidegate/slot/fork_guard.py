"""Kills the process that slots are forked from if it is frozen (SIGSTOP): Spark waits for its answer without a limit.

`fork_server.py` runs it as a file, without slow imports. Its standard input is a pipe from the server: when the pipe
ends, the server and its slots are gone. Spark replaces a killed server with another, which has its own guard.
"""

from __future__ import annotations

import os
import select
import signal
import sys

LOOK_S = 0.5
FROZEN = "T"
"""State of a process that a signal has stopped. A traced process and one that waits for a CPU have other states."""
REPORT_S = 2.0
"""Seconds that the server is given beyond its limit, so that its slots can report before they are killed with it."""


def read_state(pid: int) -> str:
    """Returns the state letter of `proc(5)`; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - quick to start
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def watch(server: int, limit_s: float) -> bool:
    """Returns when the server has ended: True if it was killed here after being frozen for too long.

    It counts how often the server was seen frozen: if the whole machine was suspended, that time does not count.
    """
    frozen_looks = 0
    while frozen_looks * LOOK_S < limit_s + REPORT_S:
        if select.select([0], [], [], LOOK_S)[0] or os.getppid() != server:
            return False
        frozen_looks = frozen_looks + 1 if read_state(server) == FROZEN else 0
    os.kill(server, signal.SIGKILL)
    return True


def main() -> None:
    """Runs the guard. Arguments: the server's process id, and for how many seconds it may be frozen."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for others of the group; this one ends with the server
    server, limit_s = int(sys.argv[1]), float(sys.argv[2])
    if watch(server, limit_s):
        message = (
            f"process {server}, from which slots are forked, was frozen (SIGSTOP) for more than {limit_s:g} s: it is "
            "killed, and its slots with it; Spark starts another one"
        )
        print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
