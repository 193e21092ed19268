"""The events of a run, line by line. Text is formatted only on request, because most traces are never printed."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final

LINES_MAX: Final = 20_000
ANSWER_MAX: Final = 160


class Trace:
    """Lines with their virtual times. Two runs of the same schedule have the same digest."""

    def __init__(self, keep: int = LINES_MAX) -> None:
        self.clock: Callable[[], float] = float
        self._told = 0
        self._kept: deque[tuple[float, str, tuple[object, ...]]] = deque(maxlen=keep)

    def tell(self, text: str, *answer: object) -> None:
        """Adds a line, optionally with an answer, which is formatted only when the line is requested."""
        self._told += 1
        self._kept.append((self.clock(), text, answer))

    @property
    def lines(self) -> list[str]:
        """The last lines."""
        return [
            f"{at_s:11.6f} {text}" + "".join(f" -> {str(value)[:ANSWER_MAX]}" for value in answer)
            for at_s, text, answer in self._kept
        ]

    @property
    def digest(self) -> str:
        """A digest of the last lines and of the total number of lines."""
        return hashlib.sha256("\n".join([str(self._told), *self.lines]).encode()).hexdigest()
