"""Waiting for a condition with a deadline: the only way a test waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 300.0
"""For what a daemon, a broker or Spark does: ends a hang, and says nothing about how long anything may take."""
POLL_S = 0.01
_never = threading.Event()


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Return as soon as `condition` is true; fail the test when it is not within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        _never.wait(POLL_S)
