"""`emit`: when a step with `aggregate` emits its results; a word, or `{every: 10s}`."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from tidegate.config.fields.types import choice_or, duration

EACH: Final = "each"
LATEST: Final = "latest"
ON_CLOSE: Final = "on close"


class EmitEvery(msgspec.Struct, frozen=True):
    """Early results of a window at this interval of event time."""

    every_ms: int


EmitMode = Annotated[
    str | EmitEvery,
    choice_or(
        (EACH, LATEST, ON_CLOSE),
        "every",
        duration("1ms", "366d"),
        "10s",
        lambda word, every_ms: word if every_ms is None else EmitEvery(every_ms),
    ),
]
