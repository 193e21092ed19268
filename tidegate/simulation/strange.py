"""Unexpected acknowledgements. No connection delivers them, but a wrong report from a peer must not count."""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from tidegate.ids import SlotIndex, SubtaskId
from tidegate.task.messages import Acknowledged

KEPT: Final = 64
NOWHERE: Final = SlotIndex(99)
"""A slot index beyond that of any plan."""


class UnexpectedAcks:
    """The unexpected acknowledgements of one world."""

    def __init__(self) -> None:
        self._sent: deque[Acknowledged] = deque(maxlen=KEPT)

    def note(self, message: Acknowledged) -> None:
        """Remembers an acknowledgement that is sent."""
        self._sent.append(message)

    def make(self, kind: str, message: Acknowledged) -> list[Acknowledged]:
        """Returns what precedes an acknowledgement.

        "stale": the newest one of the same subtask in an older attempt, if any. "unknown": the same one for a subtask
        that does not exist.
        """
        ack = message.ack
        if kind == "unknown":
            nobody = SubtaskId(ack.subtask.vertex, NOWHERE)
            return [Acknowledged(msgspec.structs.replace(ack, subtask=nobody, states=(), committables=()))]
        if kind == "stale":
            older = [one for one in self._sent if one.ack.subtask == ack.subtask and one.ack.attempt < ack.attempt]
            return older[-1:]
        return []
