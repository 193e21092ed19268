"""Decodes values that name the schema with which they were written: one reader for each schema.

What C can decode with certainty is read in C (`in_memory.py`), where the format has such a reader. All else is read by
the format's reference, which reports what is wrong with a record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter, itemgetter, methodcaller
from typing import Any, Final

import msgspec
from typing_extensions import override

from tidegate.formats.columns import Part, merge_parts
from tidegate.formats.contract import Columns, Decoded, Decoder, Messages, WaitingForSchema
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.in_memory import Certain, MemoryDecoder, decode_values_of
from tidegate.formats.schema_ids import PREFIX_BYTES, SchemaRefusal, find_schema, refuse_schema, schema_id_of
from tidegate.formats.schemas import FormatOptions, IdPlace, SchemaKind, Schemas, SchemaText
from tidegate.native.library import Library, loaded

READERS_MAX: Final = 1000
"""Maximum number of cached readers by the prefix of records; with more, they are created again."""
_MALFORMED: Final = {
    SchemaKind.AVRO: FailureKind.MALFORMED_AVRO,
    SchemaKind.JSON: FailureKind.MALFORMED_JSON,
    SchemaKind.PROTOBUF: FailureKind.MALFORMED_PROTOBUF,
}


class NotInC(Exception):
    """There is no reader in C for a schema; the message has the reason."""


class SchemaReader:
    """Reads records written with one schema: in C, and those that it leaves over with `reference`."""

    def __init__(self, certain: Certain | None, reference: Callable[[Sequence[Any]], Decoded]) -> None:
        """`certain` is the result of `find_certain`. Both produce the same columns, and receive values as they are."""
        self.certain = certain
        self.reference = reference

    def read(self, values: Sequence[bytes]) -> Decoded:
        """Returns rows and failures in order."""
        if self.certain is None:
            return self.reference(values)
        return decode_values_of(MemoryDecoder(self.certain, self.reference), values)


def find_certain(create: Callable[[Library], Certain]) -> Certain | None:
    """Returns the reader in C that `create` returns; None if the library is not available, or it raises NotInC."""
    library = loaded()
    with suppress(NotInC):
        return None if library is None else create(library)
    return None


def id_of(value: bytes) -> bytes:
    """Returns the prefix of a value with the id of its schema, or as much of it as there is."""
    return value[:PREFIX_BYTES]


class SchemaDecoder(Decoder):
    """Decodes values into frames with the columns of `output`."""

    def __init__(
        self,
        kind: SchemaKind,
        open_reader: Callable[[SchemaText, bytes], SchemaReader | RecordFailure],
        output: Columns,
        options: FormatOptions,
        schemas: Schemas,
        prefix_of: Callable[[bytes], bytes] = id_of,
    ) -> None:
        """`open_reader` receives the writer's schema and the prefix of the values, which is empty if they have none.

        It raises SchemaRefusal if no record of the schema can be read, and returns a failure if those with the prefix
        cannot. `prefix_of` returns the prefix of a value that may be invalid.
        """
        self._kind = kind
        self._open = open_reader
        self._output = output
        self._options = options
        self._schemas = schemas
        self._prefix_of = prefix_of
        self._written: dict[bytes, SchemaReader | RecordFailure] = {}
        """Readers, or failures of all records, by the prefix of records."""
        self._most: SchemaReader | None = None
        """The reader of most records in the last batch."""
        self._bare = options.ids is IdPlace.NONE and options.schema is not None
        if self._bare and options.schema is not None:
            self._written[b""] = open_reader(options.schema, b"")

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
        groups = [(self._find(prefix), rows) for prefix, rows in self._grouped(values)]  # requests all schemas at once
        waiting = next((found for found, _ in groups if isinstance(found, WaitingForSchema)), None)
        if waiting is not None:
            return waiting
        readers = [(len(rows), found) for found, rows in groups if isinstance(found, SchemaReader)]
        self._most = max(readers, key=itemgetter(0), default=(0, None))[1]
        for found, rows in groups:
            if isinstance(found, RecordFailure):
                failures += [RecordFailure(row, found.kind, found.message) for row in rows]
                continue
            assert isinstance(found, SchemaReader)
            own: Any = values if len(rows) == len(values) else [values[row] for row in rows]  # None is another group
            frame, bad = found.read(own)
            failed = {one.row for one in bad}
            parts.append(([row for place, row in enumerate(rows) if place not in failed] if failed else rows, frame))
            failures += [RecordFailure(rows[one.row], one.kind, one.message) for one in bad]
        return Decoded(merge_parts(parts, self._output), sorted(failures, key=attrgetter("row")))

    def _grouped(self, values: Sequence[bytes | None]) -> list[tuple[bytes | None, Sequence[int]]]:
        """Groups rows by the prefix with the schema id: None for tombstones, empty for empty values."""
        if not values:
            return []
        first = self._key(values[0])
        known = first is not None and isinstance(self._written.get(first), SchemaReader) and None not in values
        if known and all(map(methodcaller("startswith", first), values)):  # the most frequent case
            return [(first, range(len(values)))]
        groups: dict[bytes | None, list[int]] = {}
        for row, value in enumerate(values):
            groups.setdefault(self._key(value), []).append(row)
        return list(groups.items())

    def _key(self, value: bytes | None) -> bytes | None:
        if value is None:
            return None
        return b"" if self._bare else self._prefix_of(value)

    def _find(self, prefix: bytes | None) -> SchemaReader | WaitingForSchema | RecordFailure:
        """Returns the reader for records of a group, or why there is none."""
        if prefix is not None and prefix in self._written:
            return self._written[prefix]
        schema = find_schema(prefix and id_of(prefix), self._schemas, _MALFORMED[self._kind])
        if prefix is None or not isinstance(schema, SchemaText):
            assert not isinstance(schema, SchemaText)
            return schema  # not cached, since it may be registered before the next record
        if len(self._written) >= READERS_MAX:
            self._written.clear()
        found = self._written[prefix] = self._made(schema, prefix)
        return found

    def _made(self, schema: SchemaText, prefix: bytes) -> SchemaReader | RecordFailure:
        try:
            if schema.kind is self._kind:
                return self._open(schema, prefix)
            refusal = SchemaRefusal(f"it is in {schema.kind}")
        except SchemaRefusal as refused:
            refusal = refused
        failure = refuse_schema(self._schemas, schema_id_of(prefix), self._options, str(refusal))
        return msgspec.structs.replace(failure, kind=refusal.kind)
