"""Settings of a source's event time: how it advances, and when a partition without records stops holding it back."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field

from tidegate.config.fields.base import Settings
from tidegate.config.fields.types import choice, choice_or, duration


class Idle(StrEnum):
    """The values of `watermark.idle`."""

    CAUGHT_UP = "caught-up"
    """A partition that was read up to its end does not hold back the watermark until it has records again."""
    NEVER = "never"
    """A partition holds the watermark back until it has records."""
    WALL_CLOCK = "wall-clock"
    """Like `caught-up`. In addition, while all partitions of a subtask are idle, its watermark follows the clock."""


BY_EVENT: Final = "event"
BY_ARRIVAL: Final = "arrival"


def render_idle(idle: Idle) -> str:
    """Renders it as written in the file."""
    return "{advance: wall-clock}" if idle is Idle.WALL_CLOCK else idle.value


IdleMode = Annotated[
    Idle,
    choice_or(
        (Idle.CAUGHT_UP.value, Idle.NEVER.value),
        "advance",
        choice(Idle.WALL_CLOCK.value),
        Idle.WALL_CLOCK.value,
        lambda word, advance: Idle(advance or word),
    ),
]


class WatermarkSettings(Settings):
    """Event time of a source: `watermark` says which records a window still waits for.

    The watermark of a partition is the highest event time of its records so far, less `delay` and a millisecond; it
    never goes back, not over a restart either. That of a source is the lowest of its partitions. A record is late for a
    window when the watermark of its own partition had passed the window's end before the record was read, so which
    records are late depends on the topic and on `delay` alone.
    """

    TITLE: ClassVar[str] = "Watermarks"
    delay_ms: Annotated[
        int,
        duration("0s", "366d"),
        Field(
            alias="delay",
            description="How much older a record may be than the newest one before it in its partition without "
            "being late. `0s` is for records that are in order within their partition, as the broker's "
            "timestamps are (`LogAppendTime`).",
        ),
    ] = 0
    idle: Annotated[
        IdleMode,
        Field(
            description="Whether partitions without new records hold the watermark back. `caught-up`: not once "
            "everything up to the last stable offset has been read and nothing has arrived for a second; a "
            "record that arrives later and is older than the watermark is late. `never`: they always do. "
            "`{advance: wall-clock}`: as `caught-up`, and while all partitions of a slot are idle its watermark "
            "follows the clock, minus `delay`, so that a silent topic also closes its windows. With `time: arrival` it "
            "is always so."
        ),
    ] = Idle.CAUGHT_UP
    ahead_ms: Annotated[
        int | None,
        duration("0s", "366d"),
        Field(
            alias="ahead",
            description="How far the `event_time` of a record may be after its Kafka timestamp. A record that "
            "is further ahead is bad: it would move the watermark of its partition for good, and all records "
            "after it would be late. A record without Kafka timestamp is not checked. Without `ahead` any time "
            "is accepted.",
        ),
    ] = None
