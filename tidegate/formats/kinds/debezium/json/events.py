"""Change events in JSON: the row of an event, and its metadata. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

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
    is_unavailable,
    lacks_before,
    no_row_before,
)

_PLACEHOLDERS: Final = (UNAVAILABLE, UNAVAILABLE_BASE64)
_MARKS: Final = tuple(f'"{one}"'.encode() for one in _PLACEHOLDERS)
_MARKS_OF_NUMBERS: Final = tuple(mark.join(map(str, UNAVAILABLE_NUMBERS)).encode() for mark in (",", ", "))
_MARKS_OF_TEXTS: Final = (f'"{UNAVAILABLE_UUID}"'.encode(),)
_NULL: Final = b"null"


class _Event(msgspec.Struct, gc=False):
    """The top level of a record, or its payload."""

    op: str | None = None
    before: msgspec.Raw = msgspec.Raw(_NULL)
    after: msgspec.Raw = msgspec.Raw(_NULL)
    payload: msgspec.Raw = msgspec.Raw()
    schema: msgspec.Raw = msgspec.Raw()


_DECODE: Final = msgspec.json.Decoder(_Event).decode


class Change(msgspec.Struct, gc=False):
    """An event before its row is decoded."""

    op: str
    row: bytes
    place: str
    """Path of the row from the top of the record."""
    before: bytes = b""
    """The row before an update, if requested."""
    place_before: str = ""
    schema: bytes = b""
    """The schema that the record contains, if any."""


def read_change(value: bytes, lacking: Callable[[bytes, bytes], str | None] | None = None) -> Change:
    """Parses an event. Raises NoChange, and what msgspec raises for JSON of another form.

    If `lacking` is given, rows before updates are required with all of their fields; it finds a missing one
    (`find_lacking`).
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
    """Checks the row before a change.

    An incomplete row cannot be retracted: a sum would keep what the missing columns had added.
    """
    if change.before == _NULL:
        raise no_row_before(change.op, change.place_before)
    try:
        field = lacking(change.before, after)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(place_below(str(error), change.place_before)) from error
    if field is not None:
        raise lacks_before(field, f"{change.place_before}.{field}")
    if change.op == DELETE:
        change.before = b""  # already the event's row


def find_lacking(names: Sequence[str]) -> Callable[[bytes, bytes], str | None]:
    """Returns a function that finds a field missing from the row before a change.

    It checks the fields that the row after the change has, or all after a delete: a table's row has all of its columns,
    including NULLs. It raises what msgspec raises for anything but an object; errors in the row after the change are
    left to that row's decoder.
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
    """Returns byte sequences of which a row with an unavailable value contains one, as a quick check."""
    arrays = [kind for _, kind in columns if holds_kind(kind, {"array"})]
    numbers = any(holds_kind(kind, {"tinyint", "smallint", "int", "bigint", "date"}) for kind in arrays)
    texts = any(holds_kind(kind, {"string"}) for kind in arrays)
    return (*_MARKS, *(_MARKS_OF_NUMBERS if numbers else ()), *(_MARKS_OF_TEXTS if texts else ()))


def find_unavailable(row: bytes, names: Sequence[str], marks: Sequence[bytes]) -> str | None:
    """Returns a field whose value, or a part of it, is not in the database's log; None if there is none."""
    if not any(mark in row for mark in marks):
        return None
    fields = msgspec.json.decode(row)
    if not isinstance(fields, dict):  # reported by the row's decoder
        return None
    return next((name for name in names if is_unavailable(fields.get(name))), None)


def _unwrap(payload: bytes) -> _Event:
    if payload == _NULL:
        raise incomplete("`payload` is null", "$.payload")
    try:
        return _DECODE(payload)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(place_below(str(error), "$.payload")) from error


def place_below(message: str, place: str) -> str:
    """Returns a reason with its path prefixed by another one."""
    text, at, inner = message.rpartition(" - at `$")
    return f"{text}{at[:-1]}{place}{inner}" if at else f"{message} - at `{place}`"
