"""The words of a source's event time: when a partition without records stops holding the watermark back."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

from tidegate.settings.fields import Check, describe_value, refusal, require_text
from tidegate.settings.suggest import derive_suggestion


class Idle(StrEnum):
    """What `watermark.idle` says."""

    CAUGHT_UP = "caught-up"
    """A partition that is known to be read up to its end holds nobody back until it has records again."""
    NEVER = "never"
    """A partition holds the watermark back until it has records."""
    WALL_CLOCK = "wall-clock"
    """As `caught-up`; and while all partitions of a subtask are idle, its watermark follows the clock."""


_WORDS: Final = (Idle.CAUGHT_UP.value, Idle.NEVER.value)
_REMEDY: Final = "write caught-up, never, or {advance: wall-clock}"


def _idle(value: object) -> Idle:
    if isinstance(value, Mapping):
        return _advance(value)
    text = require_text(value, "caught-up, never or {advance: wall-clock}", _REMEDY)
    if text not in _WORDS:
        near = derive_suggestion(text, _WORDS)
        remedy = near if near.startswith("did you mean") else _REMEDY
        raise refusal(f"`{text[:60]}` is not one of the choices", remedy)
    return Idle(text)


def _advance(value: Mapping[object, object]) -> Idle:
    unknown = [str(key) for key in value if key != "advance"]
    if unknown or not value:
        raise refusal("unknown key" if unknown else "the mapping is empty", _REMEDY, at=unknown[0] if unknown else "")
    if value["advance"] != Idle.WALL_CLOCK.value:
        what = describe_value(value["advance"])
        raise refusal(f"{what} is not one of the choices", "only wall-clock is supported", at="advance")
    return Idle.WALL_CLOCK


def render_idle(idle: Idle) -> str:
    """As the file has it."""
    return "{advance: wall-clock}" if idle is Idle.WALL_CLOCK else idle.value


IdleWord = Annotated[
    Idle,
    Check(
        _idle,
        {
            "anyOf": [
                {"type": "string", "enum": list(_WORDS)},
                {
                    "type": "object",
                    "properties": {"advance": {"type": "string", "enum": [Idle.WALL_CLOCK.value]}},
                    "required": ["advance"],
                    "additionalProperties": False,
                },
            ]
        },
    ),
]
