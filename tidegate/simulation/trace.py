"""What happened, line by line. Nothing is made into text before somebody asks: most traces are never printed."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final

LINES_MAX: Final = 20_000
ANSWER_MAX: Final = 160


class Trace:
    """Lines with their virtual times. Two runs of one schedule have the same digest."""

    def __init__(self, keep: int = LINES_MAX) -> None:
        self.clock: Callable[[], float] = float
        self._told = 0
        self._kept: deque[tuple[float, str, tuple[object, ...]]] = deque(maxlen=keep)

    def tell(self, text: str, *answer: object) -> None:
        """Add a line, maybe with an answer, which is shown as it is when the line is asked for."""
        self._told += 1
        self._kept.append((self.clock(), text, answer))

    @property
    def lines(self) -> list[str]:
        """The last ones."""
        return [
            f"{at_s:11.6f} {text}" + "".join(f" -> {str(value)[:ANSWER_MAX]}" for value in answer)
            for at_s, text, answer in self._kept
        ]

    @property
    def digest(self) -> str:
        """Of the last lines, and of how many there were."""
        return hashlib.sha256("\n".join([str(self._told), *self.lines]).encode()).hexdigest()
