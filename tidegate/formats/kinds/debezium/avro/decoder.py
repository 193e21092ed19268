"""Change events in Avro to rows: the decoder of `avro` reads the events, and whole batches of them are split up.

Each schema of events has its own reader, which knows the columns of the table in that schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl
from typing_extensions import override

from tidegate.datatypes import TINYINT, DataType
from tidegate.formats.columns import Part, polars_type
from tidegate.formats.contract import Columns
from tidegate.formats.failures import RecordFailure, describe_undeclared
from tidegate.formats.in_memory import Certain
from tidegate.formats.kinds.avro.columns import column_type
from tidegate.formats.kinds.avro.decoder import SchemaDecoder, SchemaReader, WriterReader
from tidegate.formats.kinds.avro.schema import NoDeclaredField
from tidegate.formats.kinds.debezium import ADDED
from tidegate.formats.kinds.debezium.avro.schemas import AFTER, BEFORE, Row, find_row, parse_event, plain, project
from tidegate.formats.kinds.debezium.avro.values import Convert, find_conversion, find_unavailable
from tidegate.formats.kinds.debezium.changes import make_frame
from tidegate.formats.kinds.debezium.envelope import (
    DELETE,
    OP_FIELD,
    ROWS,
    UPDATE,
    NoChange,
    find_no_change,
    lacks_before,
    no_row_before,
    not_in_log,
)
from tidegate.formats.row_kinds import BEFORE as ROW_BEFORE
from tidegate.formats.row_kinds import ROW_KIND
from tidegate.formats.schemas import FormatOptions, Schemas, SchemaText
from tidegate.native.columns import Rows

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


_OPS_AFTER: Final = [op for op, side in ROWS.items() if side == AFTER]
"""Operations of events whose row is the one after the change."""


def change_decoder(declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> SchemaDecoder:
    """Creates the decoder of change events."""
    kinds: list[tuple[str, DataType]] = []
    if options.row_kinds:
        kinds = [(ROW_KIND, TINYINT), *((f"{ROW_BEFORE}{name}", kind) for name, kind in _read(declared, output))]

    def open_reader(schema: SchemaText, prefix: bytes) -> ChangeReader:
        return ChangeReader(schema, declared, output, options, prefix)

    return SchemaDecoder(open_reader, [*output, *kinds], options, schemas)


def _read(declared: Columns, output: Columns) -> list[tuple[str, DataType]]:
    """Returns the requested columns of the table, in their order."""
    wanted = {name for name, _ in output}
    return [(name, kind) for name, kind in declared if name in wanted and name not in ADDED]


class ChangeReader(SchemaReader):
    """Reads events that were written with one schema."""

    def __init__(
        self,
        schema: SchemaText,
        declared: Columns,
        output: Columns,
        options: FormatOptions,
        prefix: bytes,
    ) -> None:
        """Raises AvroRefusal."""
        event = parse_event(schema)
        row = find_row(event)
        own = [(name, kind) for name, kind in declared if name not in ADDED]
        names = [name for name, _ in own]
        if row.fields.keys().isdisjoint(names):
            raise NoDeclaredField("", f"a row: {describe_undeclared(row.fields, names)}")
        self._table = TableRows(row, own, output, options)
        self._output = [name for name, _ in output]
        self._no_updates = [pl.Series(name, [], dtype=polars_type(kind)) for name, kind in _read(declared, output)]
        self._takes_back = options.row_kinds
        before, after = row.sides.get(BEFORE, {}), row.sides.get(AFTER, {})
        self._lacking = next((name for name, _ in own if name in after and name not in before), "")
        """A column that is missing from all rows before a change. Schemas written by Debezium have none."""
        self._good = self._is_change(row.sides)
        read = project(event, row, own)
        columns = [(field.name, column_type(field.type, field.name)) for field in read.fields]
        self._reader = WriterReader(plain(event), read, columns, prefix)

    @property
    @override
    def certain(self) -> Certain | None:
        events = self._reader.certain
        return None if events is None else _CertainChanges(events, self.changes)

    @override
    def read(self, bodies: Sequence[bytes], /) -> tuple[list[Part], list[RecordFailure]]:
        parts, failures = self._reader.read(bodies)
        made: list[Part] = []
        for rows, events in parts:
            frame, bad = self.changes(events)
            made.append(([row for place, row in enumerate(rows) if place not in bad] if bad else rows, frame))
            failures += [msgspec.structs.replace(one, row=rows[place]) for place, one in bad.items()]
        return made, failures

    def changes(self, events: pl.DataFrame) -> tuple[pl.DataFrame, Failed]:
        """Returns the rows of good events, and the bad ones by index; the `row` of these has no meaning."""
        good = events.select_seq(self._good).to_series()
        if good.all():
            return self._changes(events)
        bad = {place: self._why(events.row(place, named=True)).at(place) for place in (~good).arg_true()}
        places = good.arg_true()
        frame, failed = self._changes(events[places])
        return frame, bad | {places[place]: failure for place, failure in failed.items()}

    def _is_change(self, sides: Mapping[str, Any]) -> pl.Expr:
        """Returns whether an event has its row and the rows that it retracts."""
        op, no = pl.col(OP_FIELD), pl.lit(value=False)
        before, after = (pl.col(side).is_not_null() if side in sides else no for side in (BEFORE, AFTER))
        good = (op.is_in(_OPS_AFTER) & after) | ((op == DELETE) & before & ~after)
        if self._takes_back:
            good &= (op != UPDATE) | before
            good &= ~op.is_in([UPDATE, DELETE]) if self._lacking else pl.lit(value=True)
        return good.fill_null(value=False).alias(OP_FIELD)

    def _why(self, event: Mapping[str, Any]) -> NoChange:
        """Returns why an event is not a change of a row, or not one that can be retracted."""
        op, before = event[OP_FIELD], event.get(BEFORE) is not None
        found = find_no_change(op, "", before=before, after=event.get(AFTER) is not None)
        if found is not None:
            return found
        return lacks_before(self._lacking, f"{BEFORE}.{self._lacking}") if before else no_row_before(op, BEFORE)

    def _changes(self, events: pl.DataFrame) -> tuple[pl.DataFrame, Failed]:
        """Converts events that have their rows."""
        table, failed = self._table, Failed()
        ops = events.get_column(OP_FIELD)
        updates = (ops == UPDATE).arg_true() if self._takes_back else _NONE
        halves = [table.of_events(events)]
        if len(updates):
            halves.append(table.before(events, updates))
        for half in halves:
            table.find_unavailable(half, failed)
        rows, *before = [table.convert(half, failed) for half in halves]
        found = {one.name: one for half in before for one in half}
        retracted = [found.get(one.name, one) for one in self._no_updates] if self._takes_back else None
        frame = make_frame(rows, ops, self._output, retracted)
        if failed:
            frame = frame.filter(~pl.int_range(pl.len()).is_in(sorted(failed)))
        return frame, failed


class _CertainChanges(Certain):
    """Decodes changes in C; bad events are left over, so that the reference reader explains them."""

    def __init__(self, events: Certain, changes: Callable[[pl.DataFrame], tuple[pl.DataFrame, Failed]]) -> None:
        self._events = events
        self._changes = changes

    @override
    def decode(self, addresses: int, lengths: int, count: int) -> Rows:
        events, left = self._events.decode(addresses, lengths, count)
        frame, bad = self._changes(events)
        if bad:
            unread = set(left)
            rows = [row for row in range(count) if row not in unread]
            left = sorted([*left, *(rows[place] for place in bad)])
        return Rows(frame, left)


_NONE: Final = pl.Series([], dtype=pl.UInt32())
