"""`ttl`: how long a step keeps idle state; `30d`, `{event_time: 30d}` or `{processing_time: 30d}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.fields.types import ValueCheck, check_below, duration, refusal
from tidegate.config.fields.units import render_duration

_CLOCKS: Final = ("event_time", "processing_time")
_REMEDY: Final = "write 30d, {event_time: 30d} or {processing_time: 30d}"
_DURATION: Final = duration("1s", "365d")


class Ttl(msgspec.Struct, frozen=True):
    """A time to live, measured in event time or processing time."""

    time_ms: int
    processing: bool = False

    @property
    def lasts(self) -> str:
        """The text recorded in the state (`StateShape.serializer`)."""
        return f"{self.time_ms} ms of {'processing' if self.processing else 'event'} time"

    def __str__(self) -> str:
        return f"{render_duration(self.time_ms)} of {'processing' if self.processing else 'event'} time"


def check_ttl(value: object) -> Ttl:
    """Converts a value of a file, or of a declaration in Python. Raises PydanticCustomError (`refusal`)."""
    if not isinstance(value, Mapping):
        return Ttl(_DURATION.check(value))
    for key in value:
        if key not in _CLOCKS:
            raise refusal("unknown key", derive_suggestion(str(key), _CLOCKS), at=str(key))
    if len(value) != 1:
        raise refusal("the mapping needs exactly one key", _REMEDY)
    ((clock, text),) = value.items()
    return Ttl(check_below(clock, _DURATION.check, text), processing=clock == "processing_time")


_TIME: Final = dict(_DURATION.schema)
TtlKind = Annotated[
    Ttl,
    ValueCheck(
        check_ttl,
        {
            "anyOf": [
                _TIME,
                *(
                    {"type": "object", "properties": {clock: _TIME}, "required": [clock], "additionalProperties": False}
                    for clock in _CLOCKS
                ),
            ]
        },
    ),
]
