"""Counts the dead letters of the last minute, and stops the pipeline when there are too many. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Final

from tidegate.errors import PipelineStopped
from tidegate.formats.failures import FailureKind
from tidegate.ids import OperatorName

WINDOW_S: Final = 60
SHOWN_MAX: Final = 10


class TooManyDeadLetters(PipelineStopped):
    """More dead letters in a minute than `dead_letters.max_per_minute`: the fault is probably not in single records."""

    code = "too-many-dead-letters"


class DeadLetterCount:
    """Dead letters of one slot, or of all slots that report to the daemon. `per_minute_max` None: no limit."""

    def __init__(self, per_minute_max: int | None) -> None:
        self._max = per_minute_max
        self._found: deque[tuple[int, Counter[tuple[OperatorName, FailureKind]]]] = deque()
        """Counts by second, so that the number of entries does not depend on the limit."""
        self._total = 0

    def add(self, operator: OperatorName, kind: FailureKind, now_ms: float, letters: int = 1) -> None:
        """Adds `letters` dead letters at a time that never goes back. Raises TooManyDeadLetters."""
        if self._max is None:
            return
        second = int(now_ms // 1000)
        found = self._found
        while found and found[0][0] <= second - WINDOW_S:
            self._total -= found.popleft()[1].total()
        if not found or found[-1][0] != second:
            found.append((second, Counter()))
        found[-1][1][operator, kind] += letters
        self._total += letters
        if self._total > self._max:
            everything = sum((counts for _, counts in found), Counter[tuple[OperatorName, FailureKind]]())
            raise TooManyDeadLetters(describe_many(everything, self._max))


class DeadLetterRateLimit:
    """The limit for all slots of an attempt together, by their reports. Each slot also limits its own dead letters."""

    def __init__(self, per_minute_max: int | None) -> None:
        self._count = DeadLetterCount(per_minute_max)
        self._seen: dict[tuple[int, OperatorName, FailureKind], int] = {}

    def on_report(self, slot: int, letters: Mapping[OperatorName, Mapping[FailureKind, int]], now_ms: float) -> None:
        """Takes a slot's counts since the attempt began. Raises TooManyDeadLetters."""
        for operator, kinds in letters.items():
            for kind, total in kinds.items():
                new = total - self._seen.get((slot, operator, kind), 0)
                self._seen[slot, operator, kind] = total
                if new > 0:
                    self._count.add(operator, kind, now_ms, new)


def describe_many(counts: Counter[tuple[OperatorName, FailureKind]], per_minute_max: int) -> str:
    """Describes the most frequent failures and the remedy, for the operator on call."""
    named = [f"{count} {kind} in {operator}" for (operator, kind), count in counts.most_common(SHOWN_MAX)]
    more = ", and others" if len(counts) > SHOWN_MAX else ""
    return (
        f"more than {per_minute_max} dead letters in a minute (dead_letters.max_per_minute): "
        f"{', '.join(named)}{more}. Nothing was lost: records that are in no completed checkpoint are read again. "
        f"Correct the producer, the schema or the expression, or raise the limit, then start again"
    )
