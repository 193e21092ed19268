"""Messages to rows: finds the schema of each record, and reads what was written with it.

C reads what it can decode with certainty (`in_memory.py`). fastavro reads everything else and reports what is wrong
with a record (`values.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter, itemgetter, methodcaller
from typing import Any, Final, Protocol

import msgspec
import polars as pl
from typing_extensions import override

from tidegate.formats.columns import Part, merge_parts
from tidegate.formats.contract import Columns, Decoded, Decoder, Messages, WaitingForSchema
from tidegate.formats.failures import FailureKind, RecordFailure, describe_undeclared
from tidegate.formats.in_memory import Certain, MemoryDecoder, decode_values_of
from tidegate.formats.kinds.avro.in_memory import CertainReader, NotInC
from tidegate.formats.kinds.avro.resolution import align, find_field, fit_columns
from tidegate.formats.kinds.avro.schema import AvroRefusal, AvroType, NoDeclaredField, parse_schema
from tidegate.formats.kinds.avro.values import ReferenceReader
from tidegate.formats.schema_ids import PREFIX_BYTES, find_schema, refuse_schema, schema_id_of
from tidegate.formats.schemas import FormatOptions, IdPlace, Schemas, SchemaText
from tidegate.native.library import Library, loaded

_ANY: Final = b"any"
"""The common prefix of all values that do not carry a schema id."""


class Reference(Protocol):
    """A reader of records written with one schema that reads any record and reports what is wrong with one."""

    def read(self, bodies: Sequence[bytes], /) -> tuple[pl.DataFrame, list[RecordFailure]]:
        """Returns the rows of good records in order, and the failures."""


class SchemaReader:
    """Reads records written with one schema: in C, and those that it leaves over with `reference`."""

    def __init__(self, certain: Certain | None, reference: Reference) -> None:
        """`certain` is the result of `find_certain`. Both produce the same columns."""
        self.certain = certain
        self.reference = reference

    def read(self, bodies: Sequence[bytes]) -> tuple[list[Part], list[RecordFailure]]:
        """Returns parts with all good rows, in any order, and the bad records."""
        parts: list[Part] = []
        left: Sequence[int] = range(len(bodies))
        if self.certain is not None:
            frame, left = decode_values_of(self.certain, bodies)
            unread = set(left)
            parts.append(([row for row in range(len(bodies)) if row not in unread], frame))
            if not left:
                return parts, []
        frame, failures = self.reference.read([bodies[row] for row in left])
        bad = {failure.row for failure in failures}
        parts.append(([row for place, row in enumerate(left) if place not in bad], frame))
        return parts, [RecordFailure(left[one.row], one.kind, one.message) for one in failures]


def find_certain(create: Callable[[Library], Certain]) -> Certain | None:
    """Returns the reader in C that `create` returns; None if the library is not available, or it raises NotInC."""
    library = loaded()
    with suppress(NotInC):
        return None if library is None else create(library)
    return None


class SchemaDecoder(Decoder):
    """Decodes values into frames with the columns of `output`, with a separate reader for each schema."""

    def __init__(
        self,
        open_reader: Callable[[SchemaText, bytes], SchemaReader],
        output: Columns,
        options: FormatOptions,
        schemas: Schemas,
    ) -> None:
        """`open_reader` receives the writer's schema and the prefix of the values. It raises AvroRefusal."""
        self._open = open_reader
        self._output = output
        self._options = options
        self._schemas = schemas
        self._written: dict[bytes, SchemaReader | RecordFailure] = {}
        """Readers, or failures of all records of a schema, by the prefix of records."""
        self._most: SchemaReader | None = None
        """The reader of most records in the last batch."""
        self._bare: SchemaReader | None = None
        if options.ids is IdPlace.NONE and options.schema is not None:
            self._bare = open_reader(options.schema, b"")

    @override
    def decode(self, messages: Messages) -> Decoded | WaitingForSchema:
        memory, most = messages.memory, self._most
        if memory is None or most is None or most.certain is None:
            return self.decode_values(messages.values)
        left = 0

        def careful(values: Sequence[bytes | None]) -> Decoded | WaitingForSchema:
            nonlocal left
            left = len(values)
            return self.decode_values(values)

        decoded = MemoryDecoder(most.certain, careful).decode(memory)
        if 2 * left < memory.rows:
            self._most = most  # rather than the reader of those few
        return decoded

    def decode_values(self, values: Sequence[bytes | None]) -> Decoded | WaitingForSchema:
        """Returns the rows of the good values in order, and the bad ones."""
        parts: list[Part] = []
        failures: list[RecordFailure] = []
        groups = [(self._find(key), rows) for key, rows in self._grouped(values)]  # requests all schemas at once
        waiting = next((found for found, _ in groups if isinstance(found, WaitingForSchema)), None)
        if waiting is not None:
            return waiting
        readers = [
            (len(rows), found) for found, rows in groups if not isinstance(found, WaitingForSchema | RecordFailure)
        ]
        self._most = max(readers, key=itemgetter(0), default=(0, None))[1]
        for found, rows in groups:
            assert not isinstance(found, WaitingForSchema)
            if isinstance(found, RecordFailure):
                failures += [RecordFailure(row, found.kind, found.message) for row in rows]
                continue
            whole = len(rows) == len(values)
            bodies: Any = values if whole else [values[row] for row in rows]  # None is in a separate group
            read, bad = found.read(bodies)
            parts += read if whole else [([rows[place] for place in places], frame) for places, frame in read]
            failures += [RecordFailure(rows[one.row], one.kind, one.message) for one in bad]
        return Decoded(merge_parts(parts, self._output), sorted(failures, key=attrgetter("row")))

    def _grouped(self, values: Sequence[bytes | None]) -> list[tuple[bytes | None, Sequence[int]]]:
        """Groups rows by the prefix with the schema id: None for tombstones, empty for empty values."""
        if not values:
            return []
        if self._all_alike(values):
            return [(self._key(values[0]), range(len(values)))]
        groups: dict[bytes | None, list[int]] = {}
        for row, value in enumerate(values):
            groups.setdefault(self._key(value), []).append(row)
        return list(groups.items())

    def _all_alike(self, values: Sequence[bytes | None]) -> bool:
        """Returns whether all values certainly have the same schema, which is the most frequent case."""
        if not all(values):
            return False
        first = self._key(values[0]) or b""
        if self._bare is not None:
            return True
        return len(first) == PREFIX_BYTES and all(map(methodcaller("startswith", first), values))

    def _key(self, value: bytes | None) -> bytes | None:
        return value and (value[:PREFIX_BYTES] if self._bare is None else _ANY)

    def _find(self, key: bytes | None) -> SchemaReader | WaitingForSchema | RecordFailure:
        """Returns the reader for records of a group, or why there is none."""
        if key and self._bare is not None:
            return self._bare
        prefix = key or b""
        if prefix not in self._written:
            found = find_schema(key, self._schemas, FailureKind.MALFORMED_AVRO)
            if not isinstance(found, SchemaText):
                return found  # not cached, since it may be registered before the next record
            self._written[prefix] = self._made(found, prefix)
        return self._written[prefix]

    def _made(self, schema: SchemaText, prefix: bytes) -> SchemaReader | RecordFailure:
        try:
            return self._open(schema, prefix)
        except AvroRefusal as refusal:
            failure = refuse_schema(self._schemas, schema_id_of(prefix), self._options, str(refusal))
            return msgspec.structs.replace(failure, kind=refusal.kind)


def _require_field(writer: AvroType, fitted: AvroType) -> None:
    """Raises NoDeclaredField if no column is read from a writer's record with fields: all columns would be NULL."""
    if not writer.fields or any(find_field(writer, field) for field in fitted.fields):
        return
    names = [field.name for field in writer.fields]
    is_change = "op" in names and ("before" in names or "after" in names)
    hint = "it looks like the schema of change events: use `format: debezium-avro`" if is_change else ""
    raise NoDeclaredField("", describe_undeclared(names, (field.name for field in fitted.fields), hint))


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
        super().__init__(self._open_reader, output, options, schemas)

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
        return SchemaReader(certain, ReferenceReader(writer, reader, output, len(prefix)))
