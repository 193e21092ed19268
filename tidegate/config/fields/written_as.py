"""Settings for the values of a source's records: `written_as`, where the same JSON may have several meanings, and
`unknown_fields`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

import msgspec
from pydantic import Field

from tidegate.config.fields.base import Settings
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.fields.types import ValueCheck, check_below, check_column, choice, choice_or, refusal, require_text

_UNITS: Final = ("ms", "us", "ns")
_REMEDY: Final = "write ms, us, ns or {column: unit, ...}"


class TimestampUnits(msgspec.Struct, frozen=True):
    """The unit of all timestamp columns, or the units of some."""

    unit: str = ""  # ms | us | ns
    by_column: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.unit or f"{{{', '.join(f'{column}: {unit}' for column, unit in self.by_column)}}}"


def _timestamp_units(value: object) -> TimestampUnits:
    if not isinstance(value, Mapping):
        return TimestampUnits(_unit(value))
    if not value:
        raise refusal("the mapping is empty", _REMEDY)
    return TimestampUnits(
        by_column=tuple((check_column(name), check_below(name, _unit, unit)) for name, unit in value.items())
    )


def _unit(value: object) -> str:
    text = require_text(value, f"one of {', '.join(_UNITS)}", _REMEDY)
    if text not in _UNITS:
        raise refusal(f"`{text[:60]}` is not one of the choices", derive_suggestion(text, _UNITS, otherwise=_REMEDY))
    return text


class WrittenAsSettings(Settings):
    """How ambiguous values in JSON were written. What is not specified is refused, never guessed."""

    TITLE: ClassVar[str] = "Written values"
    timestamps: Annotated[
        TimestampUnits | None,
        ValueCheck(
            _timestamp_units,
            {
                "anyOf": [
                    {"type": "string", "enum": list(_UNITS)},
                    {"type": "object", "additionalProperties": {"type": "string", "enum": list(_UNITS)}},
                ]
            },
        ),
        Field(
            description="The unit of integers in columns of timestamps, since 1970: `ms` (Debezium with "
            "`time.precision.mode=connect`), `us` (`microseconds`) or `ns`. Debezium's default, `adaptive`, "
            "writes columns with at most three digits of a second in `ms` and others in `us`, so a table may "
            "need both: `{created: ms, changed: us}`. Without it such a number makes the record bad; a wrong "
            "unit is not noticed. Records that include their schema (`schemas.enable`, Avro) need no unit."
        ),
    ] = None
    decimals: Annotated[
        str | None,
        choice("text", "base64", "schema"),
        Field(
            description="What texts in columns of decimals are: `text`, a number "
            "(`decimal.handling.mode=string`), `base64`, the bytes of the unscaled number (`precise`), or "
            "`schema`: records include their schema (`schemas.enable`), and a text in a record without one is "
            "bad. A `debezium` source with a decimal column, or decimals within one, needs it. If decimals are "
            "numbers (`double`, `decimal.format=NUMERIC`), write `text`. A schema in a record takes precedence."
        ),
    ] = None


class Unknown(msgspec.Struct, frozen=True):
    """The treatment of unknown fields; `column` holds them if they are kept."""

    what: str = "skip"  # skip | fail | keep
    column: str = ""

    def __str__(self) -> str:
        return f"{{keep: {self.column}}}" if self.column else self.what


UnknownFieldsMode = Annotated[
    Unknown,
    choice_or(
        ("skip", "fail"),
        "keep",
        ValueCheck(check_column, {"type": "string"}),
        "column",
        lambda what, column: Unknown(what, column or ""),
    ),
]
