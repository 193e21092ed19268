"""`unknown_fields`: what happens to fields that a source's schema does not name; a word, or `{keep: column}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.fields.types import ValueCheck, check_below, check_column, refusal, require_text

_WORDS = ("skip", "fail")
_REMEDY = "write skip, fail or {keep: column}"


class Unknown(msgspec.Struct, frozen=True):
    """The treatment of unknown fields; `column` holds them if they are kept."""

    what: str = "skip"  # skip | fail | keep
    column: str = ""

    def __str__(self) -> str:
        return f"{{keep: {self.column}}}" if self.column else self.what


def _unknown(value: object) -> Unknown:
    if not isinstance(value, Mapping):
        text = require_text(value, "skip, fail or {keep: column}", _REMEDY)
        if text not in _WORDS:
            raise refusal(
                f"`{text[:60]}` is not one of the choices", derive_suggestion(text, _WORDS, otherwise=_REMEDY)
            )
        return Unknown(text)
    others = [str(key) for key in value if key != "keep"]
    if others or not value:
        raise refusal("unknown key" if others else "the mapping is empty", _REMEDY, at=others[0] if others else "")
    return Unknown("keep", check_below("keep", check_column, value["keep"]))


UnknownFieldsMode = Annotated[
    Unknown,
    ValueCheck(
        _unknown,
        {
            "anyOf": [
                {"type": "string", "enum": list(_WORDS)},
                {
                    "type": "object",
                    "properties": {"keep": {"type": "string"}},
                    "required": ["keep"],
                    "additionalProperties": False,
                },
            ]
        },
    ),
]
