"""The settings of a step with `keep`. Pure, without Polars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from pydantic import Field

from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.fields.types import GroupKeys, ValueCheck, check_below, choice, integer, refusal, require_text
from tidegate.operators.late import LateSettings

EACH: Final = "each"
ON_CLOSE: Final = "on close"
PLACES_MAX: Final = 1000
_REMEDY: Final = "write last, or {by: column, n: 3}"
_ORDER: Final = choice("desc", "asc")
_EMIT: Final = choice(EACH, ON_CLOSE)
_PLACES: Final = integer(1, PLACES_MAX)


class Keep(msgspec.Struct, frozen=True):
    """The records of a key to keep. `places` 0: the last one."""

    by: str = ""
    places: int = 0
    descending: bool = True
    emit: str = ""
    """EACH or ON_CLOSE; empty if the file does not set it."""


def _keep(value: object) -> Keep:
    if not isinstance(value, Mapping):
        text = require_text(value, "last or {by: column, n: 3}", _REMEDY)
        if text != "last":
            raise refusal(f"`{text[:60]}` is not one of the choices", _REMEDY)
        return Keep()
    known = ("by", "n", "order", "emit")
    for key in value:
        if key not in known:
            raise refusal("unknown key", derive_suggestion(str(key), known), at=str(key))
    for key in ("by", "n"):
        if key not in value:
            raise refusal(f"`{key}` is missing", f"add it, for instance {_REMEDY.partition(', or ')[2]}")
    return Keep(
        check_below("by", lambda name: require_text(name, "a column name"), value["by"]),
        check_below("n", _PLACES.check, value["n"]),
        check_below("order", _ORDER.check, value.get("order", "desc")) == "desc",
        check_below("emit", _EMIT.check, value["emit"]) if "emit" in value else "",
    )


_SCHEMA: Final[Mapping[str, Any]] = {
    "anyOf": [
        {"type": "string", "enum": ["last"]},
        {
            "type": "object",
            "properties": {
                "by": {"type": "string"},
                "n": dict(_PLACES.schema),
                "order": dict(_ORDER.schema),
                "emit": dict(_EMIT.schema),
            },
            "required": ["by", "n"],
            "additionalProperties": False,
        },
    ]
}


class KeepSettings(LateSettings):
    """The keys of a step that keeps the last or the best records of each key."""

    key: GroupKeys = None
    keep: Annotated[
        Keep | None,
        ValueCheck(_keep, _SCHEMA),
        Field(
            description="`last`: passes a record unless one of its key with a later event time has already "
            "passed. `{by: column, order: desc, n: 3}`: the n best records of each key, at most 1000, with their "
            "`rank`. With `emit: each`, every change emits the ranks that it changes; the newest record of a key "
            "and rank is the valid one. With `emit: on close`, the records of a key that share one event time, "
            "as the results of a window do, are ranked once, when the watermark passes it. That is the default "
            "if `key` has `window_start` or `window_end`."
        ),
    ] = None
