"""What a process sets for itself: the limit of open files, the search for cyclic garbage, the signals that stop it."""

from __future__ import annotations

import gc
import resource
import signal
from typing import Final

DESCRIPTORS_MAX: Final = 65_536
"""Enough for every process here, and low enough for programs that iterate over all possible descriptors."""


def raise_descriptor_limit() -> int:
    """Raises the soft limit of open files to the hard one, up to DESCRIPTORS_MAX; returns the limit in effect.

    The usual soft limit of 1,024 exists for programs that call select(2). py4j does, but only for connections that are
    opened early, before there can be that many. Children inherit the limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


GARBAGE: Final = (100_000, 50, 100)
"""Thresholds of the three generations where there are many new objects that form no cycles.

With Python's own, half the time of a restore is spent in the search, and up to 0.3 s of a daemon's start.
"""


def collect_rarely() -> None:
    """Applies the thresholds to this process from now on.

    The search stops every thread of a process, and finds next to nothing.
    """
    gc.set_threshold(*GARBAGE)


def exclude_present_objects() -> None:
    """Excludes what exists now from later searches. Collects the garbage first, also what was excluded before.

    Of a daemon these are its modules and clients. A search through all of them takes 30 to 50 ms, in which no
    checkpoint proceeds.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def ending_signals() -> list[signal.Signals]:
    """Lists the signals that stop a daemon.

    SIGHUP, sent when a terminal closes, is left out if the parent has it ignored (`nohup`).
    """
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hangs_up else [])]
