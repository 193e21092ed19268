"""The last things that happened, reported when something impossible follows."""

from __future__ import annotations

from collections import deque
from typing import Final

from tidegate.errors import PipelineStopped

STORY_MAX: Final = 40


class ProtocolBroken(PipelineStopped):
    """Something that the protocol rules out has happened; continuing could lose or duplicate records."""

    code = "protocol-broken"


class Story:
    """A bounded log of short lines."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=STORY_MAX)

    def tell(self, line: str) -> None:
        """Add a line; the oldest goes when there are too many."""
        self._lines.append(line)

    def broken(self, problem: str) -> ProtocolBroken:
        """The error to raise: the problem, then what came before it, oldest first."""
        told = "; ".join(self._lines) or "nothing"
        return ProtocolBroken(
            f"{problem}; this is a bug in Tidegate, please report it with what came before: {told}",
            story=tuple(self._lines),
        )
