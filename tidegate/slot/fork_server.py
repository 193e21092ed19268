"""The executor process that its slots are forked from, with all their modules imported once.

Spark runs it instead of `pyspark.daemon` (`spark.python.daemon.module`), whose work it does. Without it, every slot
would import everything again after each kill, and hold its own copy of memory that could be shared (ADR 66).

It must load even if nothing else does, so that the first slot can report an interpreter that is too old or lacks a
package.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Final

from tidegate.slot import POLARS_THREADS

FROZEN_S: Final = "TIDEGATE_FROZEN_S"
"""Environment variable: the seconds for which this process may be frozen, as long as a slot may be silent."""


def import_slots() -> None:
    """Imports what slots run; its pages stay shared, since garbage collection does not touch them."""
    os.environ["POLARS_MAX_THREADS"] = POLARS_THREADS
    try:
        # The arguments name Spark's own part of a worker, which 4.x imports after the fork.
        for module in (*sys.argv[1:], "tidegate.slot.worker", "tidegate.slot.deployment"):
            importlib.import_module(module)
        importlib.import_module("tidegate.kafka.connecting").import_client()  # for the first transaction of each slot
    except Exception:  # noqa: BLE001 - the first slot fails with the same error, which its job reports to the daemon
        return
    gc.collect()
    gc.freeze()


def start_guard() -> subprocess.Popen[bytes] | None:
    """Starts the process that kills this one if it is frozen.

    It ends with the last process that holds the other end of its standard input: this one, and the slots forked from
    it. Standard output belongs to Spark.
    """
    limit_s = os.environ.get(FROZEN_S)
    if limit_s is None:
        return None
    guard = str(Path(__file__).with_name("fork_guard.py"))
    with contextlib.suppress(OSError):
        return subprocess.Popen(
            [sys.executable, "-IS", guard, str(os.getpid()), limit_s],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
    return None


def serve() -> None:
    """Forks slots until the executor ends."""
    guard = start_guard()
    from pyspark.daemon import manager

    # Idle threads of libraries (jemalloc's, Polars' sweeper) do not survive in slots, and are not needed there.
    warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
    import_slots()
    manager()
    del guard  # its pipe was open until here


if __name__ == "__main__":
    serve()
