"""`emit`: when a step with `aggregate` emits its results; a word, or `{every: 10s}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.fields.types import ValueCheck, check_below, duration, refusal, require_text

EACH: Final = "each"
LATEST: Final = "latest"
ON_CLOSE: Final = "on close"
_WORDS: Final = (EACH, LATEST, ON_CLOSE)
_REMEDY: Final = "write each, latest, on close or {every: 10s}"
_DURATION: Final = duration("1ms", "366d")


class EmitEvery(msgspec.Struct, frozen=True):
    """Early results of a window at this interval of event time."""

    every_ms: int


def _emit(value: object) -> str | EmitEvery:
    if not isinstance(value, Mapping):
        text = require_text(value, "each, latest, on close or {every: 10s}", _REMEDY)
        if text not in _WORDS:
            raise refusal(
                f"`{text[:60]}` is not one of the choices", derive_suggestion(text, _WORDS, otherwise=_REMEDY)
            )
        return text
    unknown = [str(key) for key in value if key != "every"]
    if unknown or not value:
        raise refusal("unknown key" if unknown else "the mapping is empty", _REMEDY, at=unknown[0] if unknown else "")
    return EmitEvery(check_below("every", _DURATION.check, value["every"]))


EmitMode = Annotated[
    str | EmitEvery,
    ValueCheck(
        _emit,
        {
            "anyOf": [
                {"type": "string", "enum": list(_WORDS)},
                {
                    "type": "object",
                    "properties": {"every": dict(_DURATION.schema)},
                    "required": ["every"],
                    "additionalProperties": False,
                },
            ]
        },
    ),
]
