"""What happened, line by line: a digest of everything, and the last lines for people."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final

LINES_MAX: Final = 20_000


class Trace:
    """Lines with their virtual times. Two runs of one schedule have the same digest."""

    def __init__(self, keep: int = LINES_MAX) -> None:
        self.clock: Callable[[], float] = float
        self.lines: deque[str] = deque(maxlen=keep)
        self.told = 0
        self._digest = hashlib.sha256()

    def tell(self, text: str) -> None:
        """Add a line."""
        line = f"{self.clock():11.6f} {text}"
        self.told += 1
        self.lines.append(line)
        self._digest.update(line.encode())
        self._digest.update(b"\n")

    @property
    def digest(self) -> str:
        """Of all lines."""
        return self._digest.hexdigest()
