"""Until when the transactions of the slots must be decided, before the broker aborts them. Pure.

A slot says how old its oldest transaction is, prepared ones included until their checkpoint has completed. The broker
counts from a little later, by its own clock, which is never compared with ours.
"""

from __future__ import annotations

from tidegate.coordinator.events import OpenTransaction
from tidegate.ids import SubtaskId


class TransactionDeadlines:
    """`margin_ms` before the broker's time limit, at most a quarter of it: a short limit would leave no time at all."""

    def __init__(self, margin_ms: int) -> None:
        self._margin_ms = margin_ms
        self._open_until_ms: dict[SubtaskId, int] = {}

    def opened(self, event: OpenTransaction) -> None:
        """The oldest transaction of a subtask, or none."""
        if event.age_ms is None:
            self._open_until_ms.pop(event.subtask, None)
            return
        margin_ms = min(self._margin_ms, event.timeout_ms // 4)
        self._open_until_ms[event.subtask] = event.now_ms - event.age_ms + event.timeout_ms - margin_ms

    def earliest(self) -> tuple[int, SubtaskId] | None:
        """The first moment at which a transaction comes too near its limit, and whose it is."""
        return min(((until, subtask) for subtask, until in self._open_until_ms.items()), default=None)
