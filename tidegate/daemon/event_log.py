"""What has happened to a pipeline, newest first: the events behind `GET /api/v1/events`. Pure.

Bounded and in memory, so a new daemon begins with `started`. The log has all of it, and more, for longer.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import Final

import msgspec

from tidegate.ids import Attempt

EVENTS_MAX: Final = 300
DETAIL_CHARACTERS_MAX: Final = 20_000
TEXT_CHARACTERS_MAX: Final = 1000


class EventKind(StrEnum):
    """What kind of thing has happened."""

    STARTED = "started"
    """The daemon has started."""
    RUNNING = "running"
    """Records flow."""
    RESTARTED = "restarted"
    """An attempt has failed, and another one follows."""
    FAILED = "failed"
    """An attempt has failed, and the daemon ends."""
    CHECKPOINT_FAILED = "checkpoint_failed"
    SAVEPOINT = "savepoint"
    HOLD = "hold"
    """A source is on hold."""
    RESUMED = "resumed"
    """A source is no longer on hold."""
    UPGRADED = "upgraded"
    """The pipeline has changed since the checkpoint that an attempt restores."""
    STATE = "state"
    """The pipeline has entered another state."""
    COMMAND = "command"
    """A command was given over HTTP."""


class PipelineEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that has happened."""

    at_ms: int
    """Unix time in milliseconds."""
    kind: EventKind
    text: str
    """One sentence."""
    detail: str = ""
    """The whole error, with its traceback where it has one."""
    attempt: Attempt | None = None
    """The attempt at that time; null before the first."""


class EventList(msgspec.Struct, frozen=True):
    """The newest events, newest first."""

    events: list[PipelineEvent]


class EventLog:
    """The newest events of a daemon; used by one thread at a time."""

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        self._events: deque[PipelineEvent] = deque(maxlen=events_max)

    def add(self, event: PipelineEvent) -> None:
        """Adds an event as the newest."""
        text, detail = event.text[:TEXT_CHARACTERS_MAX], event.detail[:DETAIL_CHARACTERS_MAX]
        self._events.append(msgspec.structs.replace(event, text=text, detail=detail))

    @property
    def events(self) -> tuple[PipelineEvent, ...]:
        """The events that are kept, newest first."""
        return tuple(reversed(self._events))
