"""The most recent events, reported when an event follows that should be impossible."""

from __future__ import annotations

from collections import deque
from typing import Final

from tidegate.errors import PipelineStopped

STORY_MAX: Final = 40


class ProtocolBroken(PipelineStopped):
    """An event occurred that the protocol rules out; continuing could lose or duplicate records."""

    code = "protocol-broken"


class Story:
    """A bounded log of short lines."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=STORY_MAX)

    def tell(self, line: str) -> None:
        """Adds a line, dropping the oldest if there are too many."""
        self._lines.append(line)

    def broken(self, problem: str) -> ProtocolBroken:
        """Returns the error to raise: the problem, then the events before it, oldest first."""
        told = "; ".join(self._lines) or "nothing"
        return ProtocolBroken(
            f"{problem}; this is a bug in Tidegate, please report it with what came before: {told}",
            story=tuple(self._lines),
        )
