"""`missing` of a lookup: what becomes of a row of the stream without a row in the table; a word, or `wait 30s`."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.fields.types import ValueCheck, duration, refusal, require_text
from tidegate.config.fields.units import render_duration

NULL: Final = "null"
DROP: Final = "drop"
FAIL: Final = "fail"
WAIT: Final = "wait"
_WORDS: Final = (NULL, DROP, FAIL)
_REMEDY: Final = 'write "null", drop, fail or wait 30s'
_DURATION: Final = duration("10ms", "1h")


class Missing(msgspec.Struct, frozen=True):
    """One of the words, and how long a row waits for a row of the table."""

    word: str = NULL
    wait_ms: int = 0

    def __str__(self) -> str:
        return f"{self.word} {render_duration(self.wait_ms)}" if self.word == WAIT else self.word


def _missing(value: object) -> Missing:
    text = require_text(value, '"null", drop, fail or wait 30s', _REMEDY)
    word, _, time = text.partition(" ")
    if word == WAIT and time:
        return Missing(WAIT, _DURATION.check(time.strip()))
    if text not in _WORDS:
        near = derive_suggestion(text, _WORDS)
        remedy = near if near.startswith("did you mean") else _REMEDY
        raise refusal(f"`{text[:60]}` is not one of the choices", remedy)
    return Missing(text)


MissingMode = Annotated[
    Missing,
    ValueCheck(
        _missing,
        {
            "type": "string",
            "pattern": "^(null|drop|fail|wait +([0-9]+(ms|s|m|h))+)$",
            "examples": [*_WORDS, "wait 30s"],
        },
    ),
]
