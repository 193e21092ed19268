"""The process of an executor that its slots are forked from, with all their modules imported once.

Spark runs it in place of `pyspark.daemon` (`spark.python.daemon.module`), whose work it does. Without it every slot
imports everything again after each kill, and has a copy of its own of what others have too (ADR 66).

It must load where nothing else does: an interpreter that is too old or lacks a package has its say in the first slot.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import warnings

from tidegate.slot import POLARS_THREADS


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


def serve() -> None:
    """Fork slots until the executor ends."""
    from pyspark.daemon import manager

    # Threads of libraries that do nothing yet (jemalloc's, Polars' sweeper) do not live on in slots; none is missed.
    warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
    import_slots()
    manager()


if __name__ == "__main__":
    serve()
