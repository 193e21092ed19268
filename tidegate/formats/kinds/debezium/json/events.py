"""Change events in JSON: which row one has, and what it says of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from tidegate.datatypes import holds_kind
from tidegate.formats.contract import Columns
from tidegate.formats.kinds.debezium.envelope import (
    DELETE,
    ROWS,
    UNAVAILABLE,
    UNAVAILABLE_BASE64,
    UNAVAILABLE_NUMBERS,
    UNAVAILABLE_UUID,
    UPDATE,
    find_no_change,
    incomplete,
    lacks_before,
    no_row_before,
)

_PLACEHOLDERS: Final = (UNAVAILABLE, UNAVAILABLE_BASE64)
_MARKS: Final = tuple(f'"{one}"'.encode() for one in _PLACEHOLDERS)
_MARKS_OF_NUMBERS: Final = tuple(mark.join(map(str, UNAVAILABLE_NUMBERS)).encode() for mark in (",", ", "))
_MARKS_OF_TEXTS: Final = (f'"{UNAVAILABLE_UUID}"'.encode(),)
_NULL: Final = b"null"


class _Event(msgspec.Struct, gc=False):
    """At the top of a record, or its payload."""

    op: str | None = None
    before: msgspec.Raw = msgspec.Raw(_NULL)
    after: msgspec.Raw = msgspec.Raw(_NULL)
    payload: msgspec.Raw = msgspec.Raw()
    schema: msgspec.Raw = msgspec.Raw()


_DECODE: Final = msgspec.json.Decoder(_Event).decode


class Change(msgspec.Struct, gc=False):
    """What is known of an event before its row is decoded."""

    op: str
    row: bytes
    place: str
    """Of the row, from the top of the record."""
    before: bytes = b""
    """The row before an update, where it was asked for."""
    place_before: str = ""
    schema: bytes = b""
    """Of the record, where it is in it."""


def read_change(value: bytes, lacking: Callable[[bytes, bytes], str | None] | None = None) -> Change:
    """Raises NoChange, and what msgspec raises for anything that is no JSON of this form.

    `lacking`: rows before updates are wanted, and all of their fields; it finds one that they lack (`find_lacking`).
    """
    event, top, schema = _DECODE(value), "$", b""
    if wrapped := bytes(event.payload):
        if event.op is not None:
            raise incomplete("the record has both `op` and `payload`", "$")
        schema = bytes(event.schema)
        event, top = _unwrap(wrapped), "$.payload"
    op = event.op or ""
    row = bytes(event.before if op == DELETE else event.after)
    if op not in ROWS or row == _NULL or (op == DELETE and bytes(event.after) != _NULL):
        before, after = (bytes(one) != _NULL for one in (event.before, event.after))
        found = find_no_change(event.op, f"{top}.", before=before, after=after)
        assert found is not None
        raise found
    change = Change(op, row, f"{top}.{ROWS[op]}", schema=schema)
    if lacking is not None and op in (UPDATE, DELETE):
        change.before, change.place_before = bytes(event.before), f"{top}.before"
        _check_before(change, b"" if op == DELETE else row, lacking)
    return change


def _check_before(change: Change, after: bytes, lacking: Callable[[bytes, bytes], str | None]) -> None:
    """Half a row cannot be taken back: a sum would keep what the other half had added."""
    if change.before == _NULL:
        raise no_row_before(change.op, change.place_before)
    try:
        field = lacking(change.before, after)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(place_below(str(error), change.place_before)) from error
    if field is not None:
        raise lacks_before(field, f"{change.place_before}.{field}")
    if change.op == DELETE:
        change.before = b""  # it is the row already


def find_lacking(names: Sequence[str]) -> Callable[[bytes, bytes], str | None]:
    """Finds a field that a row before a change lacks: of those that the row after it has, or of all after a delete.

    A table's row has all of its columns, NULLs included. Raises what msgspec raises for anything that is no object;
    what is wrong with the row after it is its decoder's business.
    """
    fields = [(f"field_{index}", msgspec.Raw, msgspec.Raw()) for index in range(len(names))]
    rename = {f"field_{index}": name for index, name in enumerate(names)}
    row = msgspec.defstruct("Row", fields, rename=rename, gc=False)
    decode = msgspec.json.Decoder(row).decode
    own = list(zip(rename, names, strict=True))

    def find(before: bytes, after: bytes) -> str | None:
        known = decode(before)
        missing = [(key, name) for key, name in own if not getattr(known, key)]
        if not missing or not after:
            return missing[0][1] if missing else None
        try:
            now = decode(after)
        except msgspec.ValidationError:
            return None
        return next((name for key, name in missing if getattr(now, key)), None)

    return find


def marks_of(columns: Columns) -> Sequence[bytes]:
    """What is in a row with a value that the database's log does not have; looked for before anything else."""
    arrays = [kind for _, kind in columns if holds_kind(kind, {"array"})]
    numbers = any(holds_kind(kind, {"tinyint", "smallint", "int", "bigint", "date"}) for kind in arrays)
    texts = any(holds_kind(kind, {"string"}) for kind in arrays)
    return (*_MARKS, *(_MARKS_OF_NUMBERS if numbers else ()), *(_MARKS_OF_TEXTS if texts else ()))


def find_unavailable(row: bytes, names: Sequence[str], marks: Sequence[bytes]) -> str | None:
    """A field of these whose value, or a part of it, the database's log does not have; None: there is none."""
    if not any(mark in row for mark in marks):
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
            return value in ([UNAVAILABLE_UUID], UNAVAILABLE_NUMBERS) or any(map(_is_unavailable, value))
        case dict():
            return any(map(_is_unavailable, value.values()))
    return False


def _unwrap(payload: bytes) -> _Event:
    if payload == _NULL:
        raise incomplete("`payload` is null", "$.payload")
    try:
        return _DECODE(payload)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(place_below(str(error), "$.payload")) from error


def place_below(message: str, place: str) -> str:
    """A reason whose place is below another one."""
    text, at, inner = message.rpartition(" - at `$")
    return f"{text}{at[:-1]}{place}{inner}" if at else f"{message} - at `{place}`"
