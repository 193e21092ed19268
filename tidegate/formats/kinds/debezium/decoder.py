"""Change events to rows: the events are taken apart one by one, their rows decoded as JSON together."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

import msgspec
import polars as pl

from tidegate.formats.contract import Columns, Decoded, Messages
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.debezium import ADDED, DELETED, OP
from tidegate.formats.kinds.debezium.envelopes import (
    DELETE,
    Change,
    NoChange,
    find_unavailable,
    place_below,
    read_change,
)
from tidegate.formats.kinds.debezium.values import own_types
from tidegate.formats.kinds.json.reader import JsonDecoder, explain_failure
from tidegate.formats.schemas import FormatOptions

_WHOLE_NUMBER: Final = "Expected `datetime | null`, got `int`"


class ChangeDecoder:
    """See Decoder."""

    def __init__(self, declared: Columns, output: Columns, options: FormatOptions) -> None:
        rows = [one for one in declared if one[0] not in ADDED]
        self._names = [name for name, _ in rows]
        self._output = [name for name, _ in output]
        self._rows = JsonDecoder(rows, [one for one in output if one[0] not in ADDED], own=own_types(options))

    def decode(self, messages: Messages) -> Decoded:
        """See Decoder."""
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
        frame, bad = self._rows.decode_values([change.row for change in changes])
        failed = {one.row for one in bad}
        failures += [_placed(one, changes[one.row], places[one.row]) for one in bad]
        if failed:
            changes = [change for index, change in enumerate(changes) if index not in failed]
        return Decoded(self._with_added(frame, changes), sorted(failures, key=attrgetter("row")))

    def _read(self, row: int, value: bytes | None) -> Change | RecordFailure:
        try:
            change = read_change(value)  # type: ignore[arg-type]  # a tombstone is a TypeError
            lacking = find_unavailable(change.row, self._names)
        except NoChange as error:
            return error.at(row)
        except (ValueError, TypeError, RecursionError) as error:
            return explain_failure(row, value, error)
        if lacking is None:
            return change
        message = "the value was not in the database's log (`REPLICA IDENTITY FULL` puts it there)"
        return RecordFailure(row, FailureKind.INCOMPLETE_CHANGE, f"{message} - at `{change.place}.{lacking}`")

    def _with_added(self, frame: pl.DataFrame, changes: Sequence[Change]) -> pl.DataFrame:
        if not self._output:
            return pl.DataFrame(height=len(changes))
        added = [
            pl.Series(DELETED, [change.op == DELETE for change in changes], dtype=pl.Boolean),
            pl.Series(OP, [change.op for change in changes], dtype=pl.String),
        ]
        wanted = [one for one in added if one.name in self._output]
        return pl.DataFrame([*frame.get_columns(), *wanted]).select(self._output)


def _placed(failure: RecordFailure, change: Change, row: int) -> RecordFailure:
    """A failure of a change's row, in the terms of its record."""
    message = failure.message
    if message.startswith(_WHOLE_NUMBER):
        hint = f"{_WHOLE_NUMBER}: `written_as` says what it counts"
        message = hint + message.removeprefix(_WHOLE_NUMBER)
    return msgspec.structs.replace(failure, row=row, message=place_below(message, change.place))
