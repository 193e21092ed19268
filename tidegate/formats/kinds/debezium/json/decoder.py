"""Change events to rows: the events are parsed one by one, their rows decoded as JSON together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, TypeVar

import msgspec
import polars as pl
from typing_extensions import override

from tidegate.formats.contract import Columns, Decoded, Decoder, Messages
from tidegate.formats.failures import RecordFailure
from tidegate.formats.kinds.debezium import ADDED, OP
from tidegate.formats.kinds.debezium.changes import make_frame
from tidegate.formats.kinds.debezium.envelope import NoChange, not_in_log
from tidegate.formats.kinds.debezium.json.events import (
    Change,
    find_lacking,
    find_unavailable,
    marks_of,
    place_below,
    read_change,
)
from tidegate.formats.kinds.debezium.json.schemas import Said, read_said
from tidegate.formats.kinds.debezium.json.values import own_types
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
