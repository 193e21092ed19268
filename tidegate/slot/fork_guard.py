"""Kills the process that slots are forked from when it is frozen (SIGSTOP): Spark waits for its answer without a limit.

Run as a file by `fork_server.py`, with nothing imported that takes time. Its standard input is a pipe from the server:
when that is at its end, the server and its slots are gone. A server that has been killed is replaced by Spark, which
starts the next one with its own guard.
"""

from __future__ import annotations

import os
import select
import signal
import sys

LOOK_S = 0.5
FROZEN = "T"
"""State of a process that a signal has stopped. One that is traced has another, and one that waits for a CPU, too."""
REPORT_S = 2.0
"""So much later than its slots report it the server is killed, and they with it."""


def read_state(pid: int) -> str:
    """The letter of `proc(5)`; empty when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - quick to start
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def watch(server: int, limit_s: float) -> bool:
    """Returns when the server has ended: True if it was killed here, after it had been frozen for so long.

    What counts is how often it was seen frozen: a machine that was stopped as a whole has not been waiting.
    """
    frozen_looks = 0
    while frozen_looks * LOOK_S < limit_s + REPORT_S:
        if select.select([0], [], [], LOOK_S)[0] or os.getppid() != server:
            return False
        frozen_looks = frozen_looks + 1 if read_state(server) == FROZEN else 0
    os.kill(server, signal.SIGKILL)
    return True


def main() -> None:
    """Arguments: the server's process id, and for how many seconds it may be frozen."""
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
