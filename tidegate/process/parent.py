"""A process that does not outlive the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent(parent: int | None = None) -> None:
    """SIGKILL for this process when its parent dies; on systems other than Linux nothing.

    With the parent's process id, raises SystemExit if it died before it was asked. The kernel goes by the *thread* that
    started this process, which has to live as long as its own.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        raise SystemExit(1)
