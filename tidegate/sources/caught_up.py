"""Decides when a partition is caught up: everything up to its last stable offset was emitted, and it stays there. Pure.

The client reports the end of a partition, the loop has emitted all records before it, some time passes, and then the
broker is asked whether the partition still ends there. Time alone decides nothing: without an answer nothing is known.
A downstream question whether a partition is still caught up (ADR 52) is sent at once, with its number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tidegate.ids import TopicPartition

STAYS_SECONDS: Final = 1.0
"""Seconds between the end and the request."""
AGAIN_SECONDS: Final = 5.0
"""Seconds until an unanswered request is repeated."""


class Due(msgspec.Struct, frozen=True):
    """A request to compare a partition with its last stable offset; `question` is 0 without a downstream question."""

    offset: int
    question: int = 0


class _Watched(msgspec.Struct):
    asked: Due
    due: float


class CaughtUp:
    """Partitions that are at their ends but not known to stay there."""

    def __init__(self) -> None:
        self._watched: dict[TopicPartition, _Watched] = {}

    def watch(self, ends: Mapping[TopicPartition, int], now: float) -> None:
        """Watches the ends that the loop has reached; a new end of a partition replaces the old one."""
        for part, offset in ends.items():
            self._watched[part] = _Watched(Due(offset), now + STAYS_SECONDS)

    def ask(self, questions: Mapping[TopicPartition, Due], now: float) -> None:
        """Asks whether partitions still end at these offsets, which the loop has reached."""
        for part, asked in questions.items():
            self._watched[part] = _Watched(asked, now)

    def due(self, now: float) -> dict[TopicPartition, Due]:
        """Returns the requests that are due."""
        return {part: one.asked for part, one in self._watched.items() if one.due <= now}

    def answer(
        self, part: TopicPartition, asked: Due, stable: int | None, now: float, *, is_open: bool = False
    ) -> bool:
        """Returns whether the partition is caught up, given its last stable offset; None if the broker did not answer.

        `is_open`: an undecided transaction has records after that offset, so more records are on their way.
        """
        one = self._watched.get(part)
        if one is None or one.asked != asked:
            return False  # its end has advanced since, or there is a newer question
        if stable is None or stable < asked.offset:  # a new leader may not know yet how far the log goes
            one.due = now + AGAIN_SECONDS
            return False
        if stable == asked.offset and is_open:
            one.due = now + STAYS_SECONDS
            return False
        del self._watched[part]  # there is more to read: its next end will be watched
        return stable == asked.offset
