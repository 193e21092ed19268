"""The settings of a step with `explode`. Pure, without Polars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec
from pydantic import Field

from tidegate.config.fields.base import Settings
from tidegate.config.fields.types import ValueCheck, check_below, check_column, describe_value, refusal

_WORDS: Final = ("position", "outer", "keep")
_REMEDY: Final = "write {column: item}, or {column: [key, value]} for a map"


class Explode(msgspec.Struct, frozen=True):
    """The column to explode, and the names of the resulting columns."""

    column: str
    made: tuple[str, ...]
    """One name for the elements of an array; two for the keys and values of a map."""
    position: str = ""
    """The name of the position column; empty: none."""
    outer: bool = False
    keep: bool = False

    @property
    def new(self) -> tuple[str, ...]:
        """The columns that it creates."""
        return (*self.made, self.position) if self.position else self.made


def _explode(value: object) -> Explode:
    if not isinstance(value, Mapping):
        raise refusal(f"expected a mapping, got {describe_value(value)}", _REMEDY)
    columns = [str(key) for key in value if key not in _WORDS]
    if len(columns) != 1:
        message = "there is no column to take apart" if not columns else f"`{columns[1][:60]}` is one column too many"
        remedy = f"{_REMEDY}; one step takes one column apart, besides it there are only {', '.join(_WORDS)}"
        raise refusal(message, remedy, at="" if not columns else columns[1])
    for word in ("outer", "keep"):
        if not isinstance(value.get(word, False), bool):
            raise refusal(f"expected true or false, got {describe_value(value[word])}", f"write {word}: true", at=word)
    column = columns[0]
    made = check_below(column, _made, value[column])
    position = check_below("position", check_column, value["position"]) if "position" in value else ""
    found = Explode(column, made, position, value.get("outer", False), value.get("keep", False))
    if twice := [name for name in found.new if found.new.count(name) > 1]:
        raise refusal(f"two columns would be named `{twice[0]}`", "choose another name for one of them")
    return found


def _made(names: object) -> tuple[str, ...]:
    listed = names if isinstance(names, list) else [names]
    if not 1 <= len(listed) <= 2:
        raise refusal("one name is needed, or two for a map", _REMEDY)
    return tuple(check_column(name) for name in listed)


_NAME: Final = {"type": "string"}
_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"position": _NAME, "outer": {"type": "boolean"}, "keep": {"type": "boolean"}},
    "additionalProperties": {"anyOf": [_NAME, {"type": "array", "items": _NAME, "minItems": 1, "maxItems": 2}]},
    "minProperties": 1,
}


class ExplodeSettings(Settings):
    """The keys of a step that takes arrays or maps apart."""

    INSIDE: ClassVar[Mapping[str, str]] = {
        "outer": "write it inside `explode`: {column: item, outer: true}",
        "position": "write it inside `explode`: {column: item, position: n}",
    }

    explode: Annotated[
        Explode | None,
        ValueCheck(_explode, _SCHEMA),
        Field(
            description="One row for each element of an array, `{items: item}`, or for each entry of a map, "
            "`{tags: [key, value]}`. The other columns are in each of these rows; the array or map is not, "
            "unless `keep: true` is set within the same braces. There you can also set `position: n`, which adds "
            "the position of the element, from 0, and `outer: true`, which emits one row for a record whose "
            "array is empty or NULL, with NULL in the new columns; otherwise such a record emits none. New "
            "columns come last: position, then elements. A record whose rows would take more than 256 MiB is a "
            "bad record (`RESULT_TOO_LARGE`)."
        ),
    ] = None
