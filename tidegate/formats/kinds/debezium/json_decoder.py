"""Change events in JSON to rows, with or without Connect's schema in each record.

Events are parsed one by one, and their rows decoded as JSON together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, TypeVar

import msgspec
import polars as pl
from typing_extensions import override

from tidegate.datatypes import holds_kind
from tidegate.formats.contract import Columns, Decoded, Decoder, Messages
from tidegate.formats.failures import RecordFailure
from tidegate.formats.kinds.debezium import ADDED, OP
from tidegate.formats.kinds.debezium.envelope import (
    DELETE,
    ROWS,
    UNAVAILABLE,
    UNAVAILABLE_BASE64,
    UNAVAILABLE_NUMBERS,
    UNAVAILABLE_UUID,
    UPDATE,
    NoChange,
    find_no_change,
    incomplete,
    is_unavailable,
    lacks_before,
    make_frame,
    no_row_before,
    not_in_log,
)
from tidegate.formats.kinds.debezium.json_values import Said, own_types, read_said
from tidegate.formats.kinds.json.reader import JsonDecoder, explain_failure
from tidegate.formats.schemas import FormatOptions

T = TypeVar("T")

_WHOLE_NUMBER: Final = "Expected `timestamp`, got `integer`"
_REWORDED: Final = {
    _WHOLE_NUMBER: f"{_WHOLE_NUMBER}: set its unit with `written_as`",
    "Expected `number | string | null`": "Expected `number | null`",
    "Invalid enum value": "Expected `number | null`, got the text",
}
"""Replacements for the beginning of a reason.

msgspec lists all types that a record may contain, but users expect the type of their column.
"""
SCHEMAS_MAX: Final = 64
"""Maximum number of cached schemas of a topic's records; a table has few over its lifetime."""


class ChangeDecoder(Decoder):
    """Decodes change events with or without a schema in each record."""

    def __init__(self, declared: Columns, output: Columns, options: FormatOptions) -> None:
        self._declared = [one for one in declared if one[0] not in ADDED]
        self._read_columns = [one for one in output if one[0] not in ADDED]
        self._options = options
        self._names = [name for name, _ in self._declared]
        self._marks = marks_of(self._declared)
        self._output = [name for name, _ in output]
        self._plain = self._made({})
        self._decoders: dict[bytes, JsonDecoder] = {}
        """Decoders by the schema in a record."""
        self._schema = b""
        """The schema of the last record; shared by further records, since most have the same one."""
        self._lacking = find_lacking(self._names) if options.row_kinds else None

    @override
    def decode(self, messages: Messages) -> Decoded:
        values = messages.values
        changes: list[Change] = []
        places: list[int] = []
        failures: list[RecordFailure] = []
        for row, value in enumerate(values):
            found = self._read(row, value)
            if isinstance(found, Change):
                changes.append(found)
                places.append(row)
            else:
                failures.append(found)
        frame, bad = self._decode_rows(changes, [change.row for change in changes])
        failed = {one.row for one in bad}
        failures += [_placed(one, changes[one.row].place, places[one.row]) for one in bad]
        if failed:
            changes, places = _without(changes, failed), _without(places, failed)
        before = None
        if self._lacking is not None:
            frame, changes, before = self._read_before(frame, changes, places, failures)
        ops = pl.Series(OP, [change.op for change in changes], dtype=pl.String)
        made = make_frame(frame.get_columns(), ops, self._output, before)
        return Decoded(made, sorted(failures, key=attrgetter("row")))

    def _read_before(
        self, frame: pl.DataFrame, changes: list[Change], places: list[int], failures: list[RecordFailure]
    ) -> tuple[pl.DataFrame, list[Change], list[pl.Series]]:
        """Reads the rows before updates; a change fails if either row does."""
        updates = [index for index, change in enumerate(changes) if change.before]
        changed = [changes[index] for index in updates]
        before, bad = self._decode_rows(changed, [one.before for one in changed])
        if bad:
            failures += [_placed(one, changes[updates[one.row]].place_before, places[updates[one.row]]) for one in bad]
            failed = {updates[one.row] for one in bad}
            changes = _without(changes, failed)
            frame = frame[_without(range(frame.height), failed)]
        return frame, changes, before.get_columns()

    def _decode_rows(
        self, changes: Sequence[Change], rows: Sequence[bytes]
    ) -> tuple[pl.DataFrame, Sequence[RecordFailure]]:
        """Returns good rows in order, and the bad ones; decodes each run of records with one schema together."""
        frames: list[pl.DataFrame] = []
        failures: list[RecordFailure] = []
        start = 0
        for schema, run in groupby(changes, attrgetter("schema")):
            end = start + sum(1 for _ in run)
            frame, bad = self._decoder(schema).decode_values(rows[start:end])
            frames.append(frame)
            failures += [msgspec.structs.replace(one, row=one.row + start) for one in bad] if start else bad
            start = end
        if not frames:
            frames.append(self._plain.decode_values([]).frame)
        return pl.concat(frames) if len(frames) > 1 else frames[0], failures

    def _decoder(self, schema: bytes) -> JsonDecoder:
        if not schema:
            return self._plain
        found = self._decoders.get(schema)
        if found is None:
            if len(self._decoders) == SCHEMAS_MAX:
                del self._decoders[next(iter(self._decoders))]
            found = self._decoders[schema] = self._made(read_said(schema))
        return found

    def _made(self, said: Mapping[str, Said]) -> JsonDecoder:
        own = own_types(self._options, said)
        return JsonDecoder(self._declared, self._read_columns, own=own, needs_field=True)

    def _read(self, row: int, value: bytes | None) -> Change | RecordFailure:
        try:
            change = read_change(value, self._lacking)  # type: ignore[arg-type]  # a tombstone raises TypeError
            place, lacking = change.place, find_unavailable(change.row, self._names, self._marks)
            if lacking is None and change.before:
                place, lacking = change.place_before, find_unavailable(change.before, self._names, self._marks)
        except NoChange as error:
            return error.at(row)
        except (ValueError, TypeError, RecursionError) as error:
            return explain_failure(row, value, error)
        if lacking is None:
            if change.schema == self._schema:
                change.schema = self._schema
            self._schema = change.schema
            return change
        return not_in_log(f"{place}.{lacking}").at(row)


def _without(values: Sequence[T], failed: set[int]) -> list[T]:
    return [value for index, value in enumerate(values) if index not in failed]


def _placed(failure: RecordFailure, place: str, row: int) -> RecordFailure:
    """Relates the failure of a change's row, which is at `place`, to its record."""
    message = failure.message
    for beginning, better in _REWORDED.items():
        if message.startswith(beginning):
            message = better + message.removeprefix(beginning)
            break
    return msgspec.structs.replace(failure, row=row, message=place_below(message, place))


# -- events ------------------------------------------------------------------------------------------------------------


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
