"""Ties the life of a process to that of its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent(parent: int | None = None) -> None:
    """Requests SIGKILL for this process when its parent dies; does nothing on systems other than Linux.

    With the parent's process id, raises SystemExit if the parent died before the request. The kernel watches the
    *thread* that started this process, which has to live as long as its own process.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        raise SystemExit(1)
