"""Records that stop the pipeline under `bad_records: fail`. Pure.

A batch passes through the operators one after another, so the first failure found need not belong to the first record:
a source may reject the third record before a step fails on the second. Therefore no error is raised while a batch is
being processed. Its bad records are collected, and the error names the first one of the lowest partition.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Final

from tidegate.errors import PipelineStopped
from tidegate.formats.failures import FailureKind, RecordFailure, RecordPlace
from tidegate.ids import OperatorName

_REMEDY = (
    "nothing was lost. Correct the record's producer, the expression or the topic's settings. Or set bad_records: "
    "dead-letter to write such records to a topic of their own, or bad_records: skip to omit and count them"
)


class BadRecord(PipelineStopped):
    """A record could not be processed, and the pipeline file sets `bad_records: fail`."""

    code = "bad-record"


class FatalRecords:
    """The failures since the batch began."""

    def __init__(self) -> None:
        self._first: tuple[RecordPlace | None, str] | None = None
        self._places: set[RecordPlace] = set()
        self._without_place = 0

    def add(self, place: RecordPlace | None, where: str, failure: RecordFailure) -> None:
        """Adds a failure; the first one found for a record counts. `place` is None for a result of several records."""
        if place is None:
            self._without_place += 1
        else:
            self._places.add(place)
        if self._first is None or _precedes(place, self._first[0]):
            self._first = place, f"{where}: {failure}"

    def raise_first(self) -> None:
        """Raises BadRecord if any record has failed."""
        if self._first is None:
            return
        place, text = self._first
        more = len(self._places) + self._without_place - 1
        others = f"; its batch has {more} more bad record{'s' if more != 1 else ''}" if more else ""
        raise BadRecord(f"{text}{others}; {_REMEDY}", place=place)


def _precedes(place: RecordPlace | None, other: RecordPlace | None) -> bool:
    return place is not None and (other is None or place < other)


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
