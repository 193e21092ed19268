"""The process that slots are forked from, with all their modules imported once (ADR 66).

Otherwise every slot would import everything again after each kill, and hold its own copy of memory that could be
shared. It imports first, and then takes over the streams that connect a guard (`fork_guard.py`) with Spark.

It must load even if nothing else does, so that the first slot can report an interpreter that is too old or lacks a
package.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import sys
import warnings

from tidegate.parent import die_with_parent
from tidegate.slot import POLARS_THREADS
from tidegate.slot.fork_guard import is_own, take_over

WORKER = "pyspark.worker"
"""Spark's own part of a slot, which 4.x imports after the fork."""


def import_slots() -> None:
    """Imports what slots run; its pages stay shared, since garbage collection does not touch them."""
    os.environ["POLARS_MAX_THREADS"] = POLARS_THREADS
    gc.disable()  # there is no garbage yet, and each search takes longer than the one before
    try:
        for module in (WORKER, "tidegate.slot.worker", "tidegate.slot.deployment"):
            importlib.import_module(module)
        importlib.import_module("tidegate.kafka.channel").import_client()  # for the first transaction of each slot
    except Exception:  # noqa: BLE001 - the first slot fails with the same error, which its job reports to the daemon
        return
    finally:
        gc.enable()
    gc.collect()
    gc.freeze()


def accept_guard(stdin: socket.socket) -> socket.socket:
    """Returns the connection to a guard: standard input, or the first one of this user that it accepts."""
    if not stdin.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return stdin
    with stdin:
        while True:
            guard, _ = stdin.accept()
            if is_own(guard):
                return guard
            guard.close()


def serve() -> None:
    """Imports everything, waits for a guard, and forks slots until the executor ends."""
    die_with_parent(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stdin = socket.socket(fileno=os.dup(0))
    import_slots()
    guard = accept_guard(stdin)
    sys.argv[1:] = take_over(guard)
    from pyspark.daemon import manager

    # Idle threads of libraries (jemalloc's, Polars' sweeper) do not survive in slots, and are not needed there.
    warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
    manager()
    del guard  # the guard ends when this is closed


if __name__ == "__main__":
    serve()
