"""What an expression must be to give rows an event time, at a source and in a step. Pure."""

from __future__ import annotations

from typing import Final

from tidegate.datatypes import DataType
from tidegate.expressions.expression import Expression, columns_of, quote_column
from tidegate.expressions.secrets import find_secrets, is_random

_INTEGERS: Final = frozenset({"tinyint", "smallint", "int"})
_CAST: Final = frozenset({"date", "timestamp_ntz"})
_CAST_AS_SECONDS: Final = frozenset({"float", "double", "decimal"})


def find_event_time_problem(found: Expression, text: str, *, is_column: bool, of: str) -> tuple[str, str] | None:
    """Returns message and remedy if an expression cannot be an event time; `of` names what has the columns."""
    inside = quote_column(text) if is_column else text
    from_columns = f"compute the event time from columns of the {of}"
    if not columns_of(found):
        return f"`{text}` is the same for all records", from_columns
    if found.type.kind not in ("timestamp", "bigint"):
        return f"`{text}` is {found.type}", _remedy(found.type, inside)
    if is_random(found) or any(find_secrets(found)):
        return f"`{text}` is encrypted, or needs a secret", f"{from_columns} that are not encrypted"
    return None


def _remedy(kind: DataType, text: str) -> str:
    either = "use a timestamp, or a bigint in ms since 1970"
    if kind.kind in _INTEGERS:
        return f"{either}; for seconds write `timestamp_seconds({text})`"
    if kind.kind in _CAST_AS_SECONDS:
        return f"{either}; for seconds write `cast({text} as timestamp)`"
    if kind.kind == "string":
        parsed = f"`to_timestamp({text}, 'dd/MM/yyyy HH:mm')` with its pattern"
        return f"{either}; write `cast({text} as timestamp)`, or {parsed}"
    if kind.kind in _CAST:
        return f"{either}; write `cast({text} as timestamp)`"
    return either
