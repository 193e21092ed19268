"""One change event: which row it has, and what it says of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from tidegate.datatypes import holds_kind
from tidegate.formats.contract import Columns
from tidegate.formats.failures import FailureKind, RecordFailure

UNAVAILABLE: Final = "__debezium_unavailable_value"
"""Debezium's word for a value that it does not have (`unavailable.value.placeholder`)."""
UNAVAILABLE_BASE64: Final = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
"""The same in a column of bytes."""
UNAVAILABLE_NUMBERS: Final = list(UNAVAILABLE.encode())
"""The same in a column of arrays of whole numbers or dates: its bytes as numbers. (In one of decimals it is NULL.)"""
UNAVAILABLE_UUID: Final = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
"""The one element of such an array of UUIDs, made of it."""
_PLACEHOLDERS: Final = (UNAVAILABLE, UNAVAILABLE_BASE64)
_MARKS: Final = tuple(f'"{one}"'.encode() for one in _PLACEHOLDERS)
_MARKS_OF_NUMBERS: Final = tuple(mark.join(map(str, UNAVAILABLE_NUMBERS)).encode() for mark in (",", ", "))
_MARKS_OF_TEXTS: Final = (f'"{UNAVAILABLE_UUID}"'.encode(),)

ROWS: Final = {"c": "after", "r": "after", "u": "after", "d": "before"}
"""Where the row is, by `op`."""
OP_FIELD: Final = "op"
DELETE: Final = "d"
UPDATE: Final = "u"
_REMEDY: Final = "PostgreSQL writes it with `REPLICA IDENTITY FULL`, MySQL with `binlog_row_image=FULL`"
_NO_ROW: Final = {"t": "truncates the table", "m": "is a logical message"}
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


class NoChange(Exception):
    """An event that is no insert, update or delete of a row."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message

    def at(self, row: int) -> RecordFailure:
        """As a failure."""
        return RecordFailure(row, self.kind, self.message)


def read_change(value: bytes, lacking: Callable[[bytes, bytes], str | None] | None = None) -> Change:
    """Raises NoChange, and what msgspec raises for anything that is no JSON of this form.

    `lacking`: rows before updates are wanted, and all of their fields; it finds one that they lack (`find_lacking`).
    """
    event, top, schema = _DECODE(value), "$", b""
    if wrapped := bytes(event.payload):
        if event.op is not None:
            raise _incomplete("the record has both `op` and `payload`", "$")
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


def find_no_change(op: str | None, top: str, *, before: bool, after: bool) -> NoChange | None:
    """Why an event is no change of a row, with a row in `before` and `after` or not; None: it is one.

    :param top: what the names of fields begin with in places.
    """
    if op is None:
        return _incomplete("the record has no `op`: it is no change event", top.removesuffix(".") or OP_FIELD)
    place = ROWS.get(op)
    if place is None:
        what = _NO_ROW.get(op, "is unknown")
        message = f"the event `{op[:20]}` {what}, and has no row - at `{top}{OP_FIELD}`"
        return NoChange(FailureKind.UNSUPPORTED_CHANGE, message)
    if not (before if op == DELETE else after):
        return _incomplete(f"the event `{op}` has no row in `{place}`", f"{top}{place}")
    return _incomplete("a delete has a row in `after`", f"{top}after") if op == DELETE and after else None


def no_row_before(op: str, place: str) -> NoChange:
    """Of a change that has to be taken back."""
    return _incomplete(f"the event `{op}` has no row in `before`, which has to be taken back ({_REMEDY})", place)


def lacks_before(field: str, place: str) -> NoChange:
    """Of one whose row before it has not all columns."""
    return _incomplete(f"the row in `before` has no `{field}`, and has to be taken back ({_REMEDY})", place)


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
        raise _incomplete("`payload` is null", "$.payload")
    try:
        return _DECODE(payload)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(place_below(str(error), "$.payload")) from error


def place_below(message: str, place: str) -> str:
    """A reason whose place is below another one."""
    text, at, inner = message.rpartition(" - at `$")
    return f"{text}{at[:-1]}{place}{inner}" if at else f"{message} - at `{place}`"


def not_in_log(place: str) -> NoChange:
    """Of a change with a value that Debezium does not have."""
    return _incomplete("the value was not in the database's log (`REPLICA IDENTITY FULL` puts it there)", place)


def _incomplete(message: str, place: str) -> NoChange:
    return NoChange(FailureKind.INCOMPLETE_CHANGE, f"{message} - at `{place}`")
