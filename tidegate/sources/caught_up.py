"""When a partition is caught up: everything up to its last stable offset was emitted, and it stays there. Pure.

The end of a partition is seen, the loop has emitted all records before it, a while passes, and then the broker is asked
whether the partition still ends there. Time alone decides nothing: without an answer nothing is known. When somebody
needs to know whether a partition is still caught up (ADR 52), it is asked again, at once, and with the number of the
question.
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


class Due(msgspec.Struct, frozen=True):
    """A partition is to be compared with its last stable offset; `question` is 0 where nobody has asked."""

    offset: int
    question: int = 0


class _Watched(msgspec.Struct):
    asked: Due
    due: float


class CaughtUp:
    """Partitions that are at their ends and not known to stay there."""

    def __init__(self) -> None:
        self._watched: dict[TopicPartition, _Watched] = {}

    def watch(self, ends: Mapping[TopicPartition, int], now: float) -> None:
        """The loop has come to these ends; an earlier one of a partition is forgotten."""
        for part, offset in ends.items():
            self._watched[part] = _Watched(Due(offset), now + STAYS_SECONDS)

    def ask(self, questions: Mapping[TopicPartition, Due], now: float) -> None:
        """The loop has come to these offsets, and asks whether the partitions still end there."""
        for part, asked in questions.items():
            self._watched[part] = _Watched(asked, now)

    def due(self, now: float) -> dict[TopicPartition, Due]:
        """What to ask about now."""
        return {part: one.asked for part, one in self._watched.items() if one.due <= now}

    def answer(
        self, part: TopicPartition, asked: Due, stable: int | None, now: float, *, is_open: bool = False
    ) -> bool:
        """Whether it is caught up, given its last stable offset; None: nobody has answered.

        `is_open`: a transaction that is not decided yet has records after that offset, so more is on its way.
        """
        one = self._watched.get(part)
        if one is None or one.asked != asked:
            return False  # its end has moved on meanwhile, or it was asked about again
        if stable is None or stable < asked.offset:  # a new leader may not know yet how far it is
            one.due = now + AGAIN_SECONDS
            return False
        if stable == asked.offset and is_open:
            one.due = now + STAYS_SECONDS
            return False
        del self._watched[part]  # there is more to read: its next end will be watched
        return stable == asked.offset
