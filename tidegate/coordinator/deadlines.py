"""Deadlines by which transactions of the slots must be decided, before the broker aborts them. Pure.

A slot reports the age of its oldest transaction, including prepared ones until their checkpoint has completed. The
broker starts to count slightly later, by its own clock, which is never compared with Tidegate's.
"""

from __future__ import annotations

from tidegate.coordinator.events import OpenTransaction
from tidegate.ids import SubtaskId


class TransactionDeadlines:
    """Tracks deadlines, `margin_ms` before the broker's timeout but at most a quarter of it, to suit short timeouts."""

    def __init__(self, margin_ms: int) -> None:
        self._margin_ms = margin_ms
        self._open_until_ms: dict[SubtaskId, int] = {}

    def opened(self, event: OpenTransaction) -> None:
        """Records the oldest transaction of a subtask, or that it has none."""
        if event.age_ms is None:
            self._open_until_ms.pop(event.subtask, None)
            return
        margin_ms = min(self._margin_ms, event.timeout_ms // 4)
        self._open_until_ms[event.subtask] = event.now_ms - event.age_ms + event.timeout_ms - margin_ms

    def earliest(self) -> tuple[int, SubtaskId] | None:
        """Returns the earliest deadline and the subtask that it belongs to."""
        return min(((until, subtask) for subtask, until in self._open_until_ms.items()), default=None)
