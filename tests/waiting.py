"""Waiting for a condition with a deadline: the only way a test waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 300.0
"""For what a daemon, a broker or Spark does: ends a hang, and says nothing about how long anything may take."""
POLL_S: Final = 0.01
POLL_S_MAX: Final = 0.5
SHARE: Final = 4
"""A wait lasts so many times longer than the look before it: who waits must not keep a core from what is waited for."""
_never = threading.Event()


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Return as soon as `condition` is true; fail the test when it is not within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        began = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        assert now < deadline, f"not within {timeout_s} s: {what}"
        _never.wait(min(POLL_S_MAX, max(POLL_S, SHARE * (now - began))))
