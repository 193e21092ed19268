"""One change event: which row it has, and what it says of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tidegate.formats.failures import FailureKind, RecordFailure

UNAVAILABLE: Final = "__debezium_unavailable_value"
"""Debezium's word for a value that it does not have (`unavailable.value.placeholder`)."""
UNAVAILABLE_BASE64: Final = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
"""The same in a column of bytes."""
_PLACEHOLDERS: Final = (UNAVAILABLE, UNAVAILABLE_BASE64)
_MARKS: Final = tuple(f'"{one}"'.encode() for one in _PLACEHOLDERS)

ROWS: Final = {"c": "after", "r": "after", "u": "after", "d": "before"}
"""Where the row is, by `op`."""
DELETE: Final = "d"
_NO_ROW: Final = {"t": "truncates the table", "m": "is a logical message"}
_NULL: Final = b"null"


class _Event(msgspec.Struct, gc=False):
    """At the top of a record, or its payload."""

    op: str | None = None
    before: msgspec.Raw = msgspec.Raw(_NULL)
    after: msgspec.Raw = msgspec.Raw(_NULL)
    payload: msgspec.Raw = msgspec.Raw()


_DECODE: Final = msgspec.json.Decoder(_Event).decode


class Change(msgspec.Struct, gc=False):
    """What is known of an event before its row is decoded."""

    op: str
    row: bytes
    place: str
    """Of the row, from the top of the record."""


class NoChange(Exception):
    """An event that is no insert, update or delete of a row."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message

    def at(self, row: int) -> RecordFailure:
        """As a failure."""
        return RecordFailure(row, self.kind, self.message)


def read_change(value: bytes) -> Change:
    """Raises NoChange, and what msgspec raises for anything that is no JSON of this form."""
    event, top = _DECODE(value), "$"
    if wrapped := bytes(event.payload):
        if event.op is not None:
            raise _incomplete("the record has both `op` and `payload`", "$")
        event, top = _unwrap(wrapped), "$.payload"
    op = event.op
    if op is None:
        raise _incomplete("the record has no `op`: it is no change event", top)
    place = ROWS.get(op)
    if place is None:
        what = _NO_ROW.get(op, "is unknown")
        raise NoChange(FailureKind.UNSUPPORTED_CHANGE, f"the event `{op[:20]}` {what}, and has no row - at `{top}.op`")
    row = bytes(getattr(event, place))
    if row == _NULL:
        raise _incomplete(f"the event `{op}` has no row in `{place}`", f"{top}.{place}")
    if op == DELETE and bytes(event.after) != _NULL:
        raise _incomplete("a delete has a row in `after`", f"{top}.after")
    return Change(op, row, f"{top}.{place}")


def find_unavailable(row: bytes, names: Sequence[str]) -> str | None:
    """A field of these whose value, or a part of it, the database's log does not have; None: there is none."""
    if not any(mark in row for mark in _MARKS):
        return None
    fields = msgspec.json.decode(row)
    if not isinstance(fields, dict):  # which the row's decoder reports
        return None
    return next((name for name in names if _is_unavailable(fields.get(name))), None)


def _is_unavailable(value: Any) -> bool:
    match value:
        case str():
            return value in _PLACEHOLDERS
        case list():
            return any(map(_is_unavailable, value))
        case dict():
            return any(map(_is_unavailable, value.values()))
    return False


def _unwrap(payload: bytes) -> _Event:
    if payload == _NULL:
        raise _incomplete("`payload` is null", "$.payload")
    try:
        return _DECODE(payload)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(place_below(str(error), "$.payload")) from error


def place_below(message: str, place: str) -> str:
    """A reason whose place is below another one."""
    text, at, inner = message.rpartition(" - at `$")
    return f"{text}{at[:-1]}{place}{inner}" if at else f"{message} - at `{place}`"


def _incomplete(message: str, place: str) -> NoChange:
    return NoChange(FailureKind.INCOMPLETE_CHANGE, f"{message} - at `{place}`")
