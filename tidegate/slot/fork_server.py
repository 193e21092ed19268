"""The process of an executor that its slots are forked from, with all their modules imported once.

Spark runs it in place of `pyspark.daemon` (`spark.python.daemon.module`), whose work it does. Without it every slot
imports everything again after each kill, and has a copy of its own of what others have too (ADR 66).

It must load where nothing else does: an interpreter that is too old or lacks a package has its say in the first slot.
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
"""In the environment: for so many seconds this process may be frozen, as a slot may be silent."""


def import_slots() -> None:
    """Import what slots run; the pages of it stay shared, since no collection of garbage touches them."""
    os.environ["POLARS_MAX_THREADS"] = POLARS_THREADS
    try:
        # The arguments name Spark's own part of a worker, which 4.x imports after the fork.
        for module in (*sys.argv[1:], "tidegate.slot.worker", "tidegate.slot.deployment"):
            importlib.import_module(module)
    except Exception:  # noqa: BLE001 - the first slot fails with the same, and its job's error reaches the daemon
        return
    gc.collect()
    gc.freeze()


def start_guard() -> subprocess.Popen[bytes] | None:
    """Start what kills this process when it is frozen. It ends with the last process that has the other end of its
    standard input: this one, and the slots that are forked from it. Standard output is Spark's.
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
    """Fork slots until the executor ends."""
    guard = start_guard()
    from pyspark.daemon import manager

    # Threads of libraries that do nothing yet (jemalloc's, Polars' sweeper) do not live on in slots; none is missed.
    warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
    import_slots()
    manager()
    del guard  # its pipe was open until here


if __name__ == "__main__":
    serve()
