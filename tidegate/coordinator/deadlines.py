"""Until when the open and the prepared transactions must be decided, before the broker aborts them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.coordinator.events import OpenTransaction
from tidegate.coordinator.types import Committable
from tidegate.ids import SubtaskId


class TransactionDeadlines:
    """`margin_ms` before the broker's time limit, at most a quarter of it: a short limit would leave no time at all."""

    def __init__(self, margin_ms: int) -> None:
        self._margin_ms = margin_ms
        self._open_until_ms: dict[SubtaskId, int] = {}

    def opened(self, event: OpenTransaction) -> None:
        """The oldest transaction of a subtask, or none."""
        if event.opened_at_ms is None:
            self._open_until_ms.pop(event.subtask, None)
        else:
            self._open_until_ms[event.subtask] = self._decide_by_ms(event.opened_at_ms, event.timeout_ms)

    def earliest(self, undecided: Iterable[Committable]) -> tuple[int, str] | None:
        """The first moment at which a transaction comes too near its limit, and which; `undecided` are the prepared."""
        limits = [(until, f"the open transaction of {subtask}") for subtask, until in self._open_until_ms.items()]
        limits += [
            (self._decide_by_ms(one.opened_at_ms, one.timeout_ms), f"transaction {one.transactional_id}")
            for one in undecided
        ]
        return min(limits, default=None)

    def _decide_by_ms(self, opened_at_ms: int, timeout_ms: int) -> int:
        return opened_at_ms + timeout_ms - min(self._margin_ms, timeout_ms // 4)
