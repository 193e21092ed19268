"""When a partition is caught up: everything up to its last stable offset was emitted, and it stays there. Pure.

The end of a partition is seen, the loop has emitted all records before it, a while passes, and then the broker is asked
whether the partition still ends there. Time alone decides nothing: without an answer nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tidegate.ids import TopicPartition

STAYS_SECONDS: Final = 1.0
"""Between the end and the question."""
AGAIN_SECONDS: Final = 5.0
"""Until the question is repeated that nobody has answered."""
ASKED_MAX: Final = 8
"""Partitions that are asked about in a round of the reader."""


class _Watched(msgspec.Struct):
    offset: int
    due: float


class CaughtUp:
    """Partitions that are at their ends and not known to stay there."""

    def __init__(self) -> None:
        self._watched: dict[TopicPartition, _Watched] = {}

    def watch(self, ends: Mapping[TopicPartition, int], now: float) -> None:
        """The loop has come to these ends; an earlier one of a partition is forgotten."""
        for part, offset in ends.items():
            self._watched[part] = _Watched(offset, now + STAYS_SECONDS)

    def due(self, now: float) -> list[tuple[TopicPartition, int]]:
        """What to ask about now, the longest waiting first."""
        found = [(one.due, part, one.offset) for part, one in self._watched.items() if one.due <= now]
        return [(part, offset) for _, part, offset in sorted(found)[:ASKED_MAX]]

    def answer(self, part: TopicPartition, offset: int, stable: int | None, now: float) -> bool:
        """Whether it is caught up at `offset`, given its last stable offset; None: nobody has answered."""
        one = self._watched.get(part)
        if one is None or one.offset != offset:
            return False  # its end has moved on while the question was asked
        if stable is None:  # each such question costs the reader time: the others wait, too
            for other in self._watched.values():
                other.due = max(other.due, now + AGAIN_SECONDS)
            return False
        if stable < offset:  # a new leader may not know yet how far it is
            one.due = now + AGAIN_SECONDS
            return False
        del self._watched[part]  # there is more to read: its next end will be watched
        return stable == offset
