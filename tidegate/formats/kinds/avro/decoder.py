"""Messages to rows: in C, by the steps of a writer's schema (`native/avro.c`), or one by one (`reference.py`).

There are no steps for types that fastavro checks more closely or converts: unions of several types, promotions to and
from strings, and defaults within a value. Such schemas are not read in C at all.
"""

from __future__ import annotations

from typing import Final

import msgspec
import polars as pl
from typing_extensions import override

from tidegate.datatypes import FIRST_DAY, FIRST_MOMENT, LAST_DAY, LAST_MOMENT, DataType
from tidegate.formats.contract import Columns
from tidegate.formats.failures import describe_undeclared
from tidegate.formats.in_memory import Certain
from tidegate.formats.kinds.avro.columns import column_type
from tidegate.formats.kinds.avro.reference import ReferenceReader, default_series
from tidegate.formats.kinds.avro.resolution import align, find_field, fit_columns
from tidegate.formats.kinds.avro.schema import DAY, MICROS, AvroType, parse_schema
from tidegate.formats.schema_decoder import NotInC, SchemaDecoder, SchemaReader, find_certain
from tidegate.formats.schema_ids import NoDeclaredField
from tidegate.formats.schemas import FormatOptions, SchemaKind, Schemas, SchemaText
from tidegate.native.avro import NO_NULL, PASSED_OVER, BodyDecoder, Step
from tidegate.native.columns import Rows
from tidegate.native.library import Library

INT: Final = (-(2**31), 2**31 - 1)
_SAME: Final = frozenset({"boolean", "float", "double", "bytes", "string"})
_WIDER: Final = frozenset({("int", "long"), ("int", "double"), ("long", "double"), ("float", "double")})


class AvroDecoder(SchemaDecoder):
    """A decoder that, without a schema in `options`, finds declared columns in the writer's schema by name."""

    def __init__(
        self,
        declared: Columns,
        output: Columns,
        options: FormatOptions,
        schemas: Schemas,
    ) -> None:
        self._declared = declared
        self._reader = None if options.schema is None else parse_schema(options.schema)
        super().__init__(SchemaKind.AVRO, self._open_reader, output, options, schemas)

    def _open_reader(self, schema: SchemaText, prefix: bytes) -> SchemaReader:
        """Raises AvroRefusal."""
        writer = parse_schema(schema)
        if self._reader is None:
            fitted = fit_columns(writer, self._declared)
        else:
            declared = {name for name, _ in self._declared}
            fields = tuple(field for field in self._reader.fields if field.name in declared)
            fitted = align(writer, msgspec.structs.replace(self._reader, fields=fields))
        _require_field(writer, fitted)
        reader, output = writer if fitted == writer else fitted, self._output
        certain = find_certain(lambda library: CertainReader(library, writer, reader, output, prefix))
        return SchemaReader(certain, ReferenceReader(writer, reader, output, len(prefix)).read)


def _require_field(writer: AvroType, fitted: AvroType) -> None:
    """Raises NoDeclaredField if no column is read from a writer's record with fields: all columns would be NULL."""
    if not writer.fields or any(find_field(writer, field) for field in fitted.fields):
        return
    names = [field.name for field in writer.fields]
    is_change = "op" in names and ("before" in names or "after" in names)
    hint = "it looks like the schema of change events: use `format: debezium-avro`" if is_change else ""
    raise NoDeclaredField(describe_undeclared(names, (field.name for field in fitted.fields), hint))


# -- steps for C -------------------------------------------------------------------------------------------------------


class CertainReader(Certain):
    """Reads records of one writer's schema into frames of `columns`, which are fields of `reader`."""

    def __init__(self, library: Library, writer: AvroType, reader: AvroType, columns: Columns, prefix: bytes) -> None:
        """Raises NotInC."""
        wanted = dict(columns)
        self._names = list(wanted)
        self._constants: list[pl.Series] = []
        fields: list[tuple[str, DataType]] = []
        places: dict[int, tuple[int, AvroType]] = {}
        for field in reader.fields:
            found = find_field(writer, field)
            if found is not None:
                _claim(places, writer.fields.index(found), len(fields), field.type)
                fields.append((field.name, wanted.get(field.name) or column_type(field.type, field.name)))
            elif field.name in wanted:
                self._constants.append(default_series(field.name, wanted[field.name], field.type, field.default))
        record = DataType("struct", fields=tuple(fields))
        self._decoder = BodyDecoder(library.free, record, _steps(writer, places), self._names, prefix)

    @override
    def decode(self, addresses: int, lengths: int, count: int) -> Rows:
        frame, left = self._decoder.decode(addresses, lengths, count)
        if self._constants:
            frame = frame.hstack([one.new_from_index(0, frame.height) for one in self._constants])
        return Rows(frame if frame.columns == self._names else frame.select(self._names), left)


def _claim(places: dict[int, tuple[int, AvroType]], written: int, read: int, kind: AvroType) -> None:
    if written in places:
        raise NotInC("two fields of the reader's get their values from one of the writer's")
    places[written] = read, kind


def _steps(writer: AvroType, places: dict[int, tuple[int, AvroType]]) -> tuple[Step, ...]:
    """Returns the steps of a record's fields. `places` maps a written field to its target and the type to read."""
    return tuple(
        _step(field.type, places[index][1])._replace(to=places[index][0]) if index in places else skip_step(field.type)
        for index, field in enumerate(writer.fields)
    )


def _step(writer: AvroType, reader: AvroType) -> Step:
    null_at = find_null_index(writer)
    if reader.bare.kind == "union":
        raise NotInC("a union of several types")
    required = writer.nullable and not reader.nullable
    return _value(writer.bare, reader.bare)._replace(null_at=null_at, required=required)


def find_null_index(one: AvroType) -> int:
    """Returns the index of null in a union of null and one type, NO_NULL for any other type. Raises NotInC."""
    if one.nullable:
        return next(at for at, each in enumerate(one.branches) if each.kind == "null")
    if one.kind == "union":
        raise NotInC("a union of several types")
    return NO_NULL


def _value(writer: AvroType, reader: AvroType) -> Step:
    """Returns the step of a value that is not NULL."""
    kind = writer.kind
    if kind in ("array", "map") and reader.kind == kind and writer.items is not None and reader.items is not None:
        return Step(kind, steps=(_step(writer.items, reader.items),))
    if kind == reader.kind == "record":
        return Step(kind, steps=_steps(writer, _inner_places(writer, reader)))
    if kind == reader.kind == "enum" and set(writer.symbols) <= set(reader.symbols):
        return Step(kind, symbols=writer.symbols)
    if kind == reader.kind == "fixed" and writer.size == reader.size:
        return Step(kind, size=writer.size, scale=reader.scale)
    if kind != reader.kind and (kind, reader.kind) not in _WIDER:
        raise NotInC(f"{kind} as {reader.kind}")
    if reader.logical == "uuid":
        return Step("uuid")
    if kind in ("int", "long"):
        return _whole(kind, reader)
    if kind in _SAME:
        return Step(kind, scale=reader.scale)
    raise NotInC(f"{kind} as {reader.kind}")


def _whole(kind: str, reader: AvroType) -> Step:
    logical = reader.logical
    if logical == "date":
        return Step(kind, bounds=(FIRST_DAY, LAST_DAY))
    if logical in DAY:
        return Step(kind, bounds=(0, DAY[logical] - 1))
    if logical:
        factor, divisor = MICROS[logical.rpartition("-")[2]]
        return Step(kind, factor=factor, divisor=divisor, bounds=(FIRST_MOMENT, LAST_MOMENT))
    return Step(kind, bounds=INT) if reader.kind == "int" else Step(kind)


def _inner_places(writer: AvroType, reader: AvroType) -> dict[int, tuple[int, AvroType]]:
    """Returns where the fields of a struct go. All are read; those that the writer lacks are NULL."""
    places: dict[int, tuple[int, AvroType]] = {}
    for place, field in enumerate(reader.fields):
        found = find_field(writer, field)
        if found is not None:
            _claim(places, writer.fields.index(found), place, field.type)
        elif not (field.has_default and field.default is None):
            raise NotInC("a default within a value")
    return places


def skip_step(one: AvroType) -> Step:
    """Returns the step that skips a value."""
    return Step(one.kind, PASSED_OVER, size=one.size, steps=tuple(map(skip_step, one.inside)), symbols=one.symbols)
