"""The table's rows in events of one schema: their columns as written, checked, and converted to declared columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import polars as pl

from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Columns
from tidegate.formats.failures import RecordFailure
from tidegate.formats.kinds.avro.columns import column_type
from tidegate.formats.kinds.debezium.avro.schemas import AFTER, BEFORE, Row, plain
from tidegate.formats.kinds.debezium.avro.values import Convert, find_conversion, find_unavailable
from tidegate.formats.kinds.debezium.envelope import DELETE, OP_FIELD, not_in_log
from tidegate.formats.schemas import FormatOptions

Failed = dict[int, RecordFailure]
"""Failures by the index of the event; the first reason counts."""


class Half(NamedTuple):
    """Rows of events as written: the rows that events are about, or the rows before updates."""

    written: pl.DataFrame
    places: Sequence[int]
    """Indexes of the events."""
    deletes: pl.Series | None
    """Which of the rows are in `before`; None for all."""

    def place(self, row: int) -> str:
        """Returns the field that contains the row."""
        return BEFORE if self.deletes is None or self.deletes[row] else AFTER


class _Column(NamedTuple):
    """A column of the table. All columns are checked; `wanted` ones are returned."""

    name: str
    convert: Convert | None
    """None if values are unchanged."""
    wanted: bool


class TableRows:
    """Reads the declared columns of a table from events."""

    def __init__(self, row: Row, declared: Columns, output: Columns, options: FormatOptions) -> None:
        """Raises AvroRefusal for a column to which no value of the writer's type can be converted."""
        fields, wanted = row.fields, {name for name, _ in output}
        self._columns = list(_columns_of(row, declared, wanted, options))
        self._absent = [
            pl.Series(name, [None], dtype=polars_type(kind))
            for name, kind in declared
            if name in wanted and name not in fields
        ]
        """Columns that the table does not have."""
        self._unavailable = [
            found.fill_null(value=False).alias(one.name)
            for one in self._columns
            if (found := find_unavailable(pl.col(one.name), fields[one.name])) is not None
        ]
        self._parts = {side: [_part(side, one.name, row) for one in self._columns] for side in (BEFORE, AFTER)}

    def of_events(self, events: pl.DataFrame) -> Half:
        """Returns the row that each event is about."""
        deletes = events.get_column(OP_FIELD) == DELETE
        if not deletes.any():
            parts = self._parts[AFTER]
        elif deletes.all():
            parts = self._parts[BEFORE]
        else:
            both = zip(self._columns, self._parts[BEFORE], self._parts[AFTER], strict=True)
            deleted = pl.col(OP_FIELD) == DELETE
            parts = [pl.when(deleted).then(before).otherwise(after).alias(one.name) for one, before, after in both]
        return Half(_select(events, parts), range(events.height), deletes)

    def before(self, events: pl.DataFrame, places: pl.Series) -> Half:
        """Returns the rows before some of the events."""
        return Half(_select(events[places], self._parts[BEFORE]), places.to_list(), None)

    def find_unavailable(self, half: Half, failed: Failed) -> None:
        """Adds failures of rows with a value that is not in the database's log."""
        if not self._unavailable:
            return
        for found in half.written.select_seq(self._unavailable).get_columns():
            for row in found.arg_true() if found.any() else ():
                place = half.places[row]
                failed.setdefault(place, not_in_log(f"{half.place(row)}.{found.name}").at(place))

    def convert(self, half: Half, failed: Failed) -> list[pl.Series]:
        """Returns the requested columns."""
        made: list[pl.Series] = []
        for name, convert, wanted in self._columns:
            column = half.written.get_column(name)
            if convert is not None:
                column, unfit = convert(column)
                for row, kind, message, inside in unfit:
                    text = f"{message} - at `{half.place(row)}.{name}{inside}`"
                    failed.setdefault(half.places[row], RecordFailure(half.places[row], kind, text))
            if wanted:
                made.append(column.alias(name))
        return [*made, *(one.new_from_index(0, half.written.height) for one in self._absent)]


def _select(events: pl.DataFrame, parts: Sequence[pl.Expr]) -> pl.DataFrame:
    return events.select_seq(parts) if parts else pl.DataFrame(height=events.height)


def _columns_of(row: Row, declared: Columns, wanted: set[str], options: FormatOptions) -> Iterator[_Column]:
    units, fields = dict(options.timestamps_of), row.fields
    for name, kind in declared:
        if name in fields:
            unit = units.get(name, options.timestamps)
            yield _Column(name, find_conversion(fields[name], kind, row.place(name), unit), name in wanted)


def _part(side: str, name: str, row: Row) -> pl.Expr:
    """Returns a column of the row on one side, NULL if there is none."""
    if name in row.sides.get(side, {}):
        return pl.col(side).struct.field(name)
    return pl.lit(None, polars_type(column_type(plain(row.fields[name]), name))).alias(name)
