"""Change events in Avro to rows. Each schema of events has its own reader, which knows the table's columns in it.

C reads whole batches of events into the declared columns (`native/avro.c`). Events that it leaves over, and all that
are not changes of rows, are read one by one with fastavro, which explains what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl
from typing_extensions import override

from tidegate.datatypes import STRING, TINYINT, DataType
from tidegate.formats.columns import make_column
from tidegate.formats.contract import Columns, Decoded
from tidegate.formats.failures import RecordFailure, describe_undeclared
from tidegate.formats.in_memory import Certain
from tidegate.formats.kinds.avro.columns import column_type
from tidegate.formats.kinds.avro.decoder import find_null_index, skip_step
from tidegate.formats.kinds.avro.reference import ReferenceReader
from tidegate.formats.kinds.avro.schema import AvroType, as_encoded
from tidegate.formats.kinds.debezium import ADDED, OP_FIELD
from tidegate.formats.kinds.debezium.avro_schemas import AFTER, BEFORE, Row, find_row, parse_event, project
from tidegate.formats.kinds.debezium.avro_values import (
    Read,
    UnfitValue,
    find_field_steps,
    find_reader,
    find_step,
    unchanged,
)
from tidegate.formats.kinds.debezium.envelope import (
    DELETE,
    ROWS,
    UPDATE,
    NoChange,
    find_no_change,
    is_unavailable,
    lacks_before,
    make_frame,
    no_row_before,
    not_in_log,
)
from tidegate.formats.row_kinds import BEFORE as ROW_BEFORE
from tidegate.formats.row_kinds import ROW_KIND
from tidegate.formats.schema_decoder import SchemaDecoder, SchemaReader, find_certain
from tidegate.formats.schema_ids import NoDeclaredField
from tidegate.formats.schemas import FormatOptions, SchemaKind, Schemas, SchemaText
from tidegate.native.avro import BodyDecoder, Step
from tidegate.native.columns import Rows
from tidegate.native.library import Library

_READ: Final = (BEFORE, AFTER, OP_FIELD)
_OPS_AFTER: Final = [op for op, side in ROWS.items() if side == AFTER]
"""Operations of events whose row is the one after the change."""
_AVAILABLE: Final = frozenset({"boolean", "int", "long", "float", "double", "fixed"})
"""Types that have no placeholder for an unavailable value."""


def change_decoder(declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> SchemaDecoder:
    """Creates the decoder of change events."""
    names = [name for name, _ in output]
    own = [(name, kind) for name, kind in declared if name not in ADDED]
    read = [(name, kind) for name, kind in own if name in names]
    kinds = [(ROW_KIND, TINYINT), *((f"{ROW_BEFORE}{name}", kind) for name, kind in read)] if options.row_kinds else []

    def open_reader(schema: SchemaText, prefix: bytes) -> SchemaReader:
        """Raises AvroRefusal."""
        event = parse_event(schema)
        row = find_row(event)
        if row.fields.keys().isdisjoint(name for name, _ in own):
            raise NoDeclaredField(f"a row: {describe_undeclared(row.fields, [name for name, _ in own])}")
        changes = _Changes(row, own, read, names, options)
        reference = ReferenceChanges(event, changes, len(prefix))
        certain = find_certain(lambda library: CertainChanges(library, event, changes, prefix))
        return SchemaReader(certain, reference.read)

    return SchemaDecoder(SchemaKind.AVRO, open_reader, [*output, *kinds], options, schemas)


class _Changes:
    """What is read of the events of one schema."""

    def __init__(self, row: Row, own: Columns, read: Columns, names: Sequence[str], options: FormatOptions) -> None:
        """`own` are the declared columns of the table, all of which are checked, and `read` those that are returned."""
        self.row = row
        self.own = own
        self.read = read
        self.retracts = options.row_kinds
        before, after = row.sides.get(BEFORE, {}), row.sides.get(AFTER, {})
        self.lacking = next((name for name, _ in own if name in after and name not in before), "")
        """A column that is missing from all rows before a change. Schemas written by Debezium have none."""
        self._names = names
        self._options = options

    def unit_of(self, name: str) -> str:
        """Returns the unit of integers in a column that stand for timestamps if their type does not define it."""
        return dict(self._options.timestamps_of).get(name, self._options.timestamps)

    def frame(self, ops: pl.Series, rows: Iterable[pl.Series], before: Iterable[pl.Series]) -> pl.DataFrame:
        """Returns the columns of the source. `before` holds columns of the rows before updates."""
        return make_frame(rows, ops, self._names, before if self.retracts else None)


class _Change(NamedTuple):
    """A change with the values of all declared columns."""

    op: str
    row: Sequence[Any]
    before: Sequence[Any] | None
    """The row before an update that must be retracted."""


class ReferenceChanges:
    """Reads any events one by one."""

    def __init__(self, event: AvroType, changes: _Changes, skipped: int) -> None:
        """The first `skipped` bytes of each body are not read. Raises AvroRefusal for a column to which no value of
        the writer's type can be converted.
        """
        row = changes.row
        self._of = changes
        self._readers: list[tuple[str, Read]] = []
        for name, kind in changes.own:
            known = row.fields.get(name)
            read = unchanged if known is None else find_reader(known, kind, row.place(name), changes.unit_of(name))
            self._readers.append((name, read))
        self._suspects = [
            name for name, _ in changes.own if name in row.fields and row.fields[name].bare.kind not in _AVAILABLE
        ]
        projected = project(event, row, changes.own)
        columns = [(field.name, column_type(field.type, field.name)) for field in projected.fields]
        self._events = ReferenceReader(as_encoded(event), projected, columns, skipped)
        self._fields = [name for name, _ in columns]

    def read(self, bodies: Sequence[bytes]) -> Decoded:
        """Returns the rows of the events that are changes, and the failures of the others."""
        events, failures = self._events.read_values(bodies)
        failed = {failure.row for failure in failures}
        changes: list[_Change] = []
        for row, values in zip((row for row in range(len(bodies)) if row not in failed), events, strict=True):
            try:
                changes.append(self._change(dict(zip(self._fields, values, strict=True))))
            except NoChange as error:
                failures.append(error.at(row))
            except UnfitValue as error:
                failures.append(RecordFailure(row, error.kind, str(error)))
        ops = pl.Series(OP_FIELD, [change.op for change in changes], dtype=pl.String())
        before = self._columns([change.before for change in changes if change.before is not None])
        return Decoded(self._of.frame(ops, self._columns([change.row for change in changes]), before), failures)

    def _change(self, event: Mapping[str, Any]) -> _Change:
        """Raises NoChange and UnfitValue."""
        op, before = event[OP_FIELD], event.get(BEFORE)
        found = find_no_change(op, "", before=before is not None, after=event.get(AFTER) is not None)
        if found is not None:
            raise found
        retracted = self._of.retracts and op in (UPDATE, DELETE)
        if retracted and before is None:
            raise no_row_before(op, BEFORE)
        if retracted and self._of.lacking:
            raise lacks_before(self._of.lacking, f"{BEFORE}.{self._of.lacking}")
        sides = [ROWS[op], BEFORE] if retracted and op == UPDATE else [ROWS[op]]
        for side in sides:
            for name in self._suspects:
                if is_unavailable(event[side].get(name)):
                    raise not_in_log(f"{side}.{name}")
        row, *more = [self._row(side, event[side]) for side in sides]
        return _Change(op, row, more[0] if more else None)

    def _row(self, side: str, values: Mapping[str, Any]) -> Sequence[Any]:
        """Returns the values of all declared columns. Raises UnfitValue."""
        row: list[Any] = []
        name = ""
        try:
            for name, read in self._readers:
                value = values.get(name)
                row.append(value if value is None or read is unchanged else read(value))
        except UnfitValue as error:
            raise error.inside(f"{side}.{name}") from error
        return row

    def _columns(self, rows: Sequence[Sequence[Any]]) -> list[pl.Series]:
        values = zip(*rows, strict=True) if rows else [()] * len(self._of.own)
        found = zip(self._of.own, values, strict=True)
        return [make_column(name, kind, column) for (name, kind), column in found if (name, kind) in self._of.read]


class CertainChanges(Certain):
    """Reads events in C. Leaves over what it is not certain of, and events that are not changes of rows."""

    def __init__(self, library: Library, event: AvroType, changes: _Changes, prefix: bytes) -> None:
        """Raises NotInC."""
        self._of = changes
        row = DataType("struct", fields=tuple(changes.own))
        record = DataType("struct", fields=((BEFORE, row), (AFTER, row), (OP_FIELD, STRING)))
        steps: list[Step] = []
        for name, one in ((field.name, field.type) for field in event.fields):
            if name in changes.row.sides:
                found = Step(
                    "record", null_at=find_null_index(one), steps=find_field_steps(one.bare, row, changes.unit_of)
                )
            else:
                found = find_step(one, STRING) if name == OP_FIELD else skip_step(one)
            steps.append(found if name not in _READ else found._replace(to=_READ.index(name)))
        self._events = BodyDecoder(library.free, record, steps, _READ, prefix)
        op, before, after = pl.col(OP_FIELD), pl.col(BEFORE).is_not_null(), pl.col(AFTER).is_not_null()
        good = (op.is_in(_OPS_AFTER) & after) | ((op == DELETE) & before & ~after)
        if changes.retracts:
            good &= (op != UPDATE) | before
        if changes.retracts and changes.lacking:
            good &= ~op.is_in([UPDATE, DELETE])
        self._good = good.fill_null(value=False).alias(OP_FIELD)

    @override
    def decode(self, addresses: int, lengths: int, count: int) -> Rows:
        events, left = self._events.decode(addresses, lengths, count)
        good = events.select_seq(self._good).to_series()
        if not good.all():
            unread = set(left)
            rows = [row for row in range(count) if row not in unread]
            left = sorted([*left, *(rows[place] for place in (~good).arg_true())])
            events = events.filter(good)
        ops = events.get_column(OP_FIELD)
        updates = (ops == UPDATE).arg_true()
        before = self._columns(BEFORE, events[updates]) if self._of.retracts else []
        return Rows(self._of.frame(ops, self._rows(ops, events), before), left)

    def _rows(self, ops: pl.Series, events: pl.DataFrame) -> list[pl.Series]:
        """Returns the row that each event is about."""
        deletes = ops == DELETE
        if not deletes.any():
            return self._columns(AFTER, events)
        if deletes.all():
            return self._columns(BEFORE, events)
        both = [
            pl.when(pl.col(OP_FIELD) == DELETE)
            .then(pl.col(BEFORE).struct.field(name))
            .otherwise(pl.col(AFTER).struct.field(name))
            .alias(name)
            for name, _ in self._of.read
        ]
        return events.select_seq(both).get_columns()

    def _columns(self, side: str, events: pl.DataFrame) -> list[pl.Series]:
        rows = events.get_column(side)
        return [rows.struct.field(name) for name, _ in self._of.read]
