"""Messages to rows: the schema of each record, the fast path for all of a batch that have the same, and fastavro."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter, itemgetter, methodcaller
from typing import Any, Final, Protocol

import msgspec
import polars as pl
from polars.exceptions import PanicException

from tidegate.formats.columns import Part, merge_parts
from tidegate.formats.contract import Columns, Decoded, Messages, WaitingForSchema
from tidegate.formats.failures import FailureKind, RecordFailure, describe_undeclared
from tidegate.formats.in_memory import Certain, MemoryDecoder
from tidegate.formats.kinds.avro.fast import FastReader
from tidegate.formats.kinds.avro.in_memory import CertainReader, NotInC
from tidegate.formats.kinds.avro.resolution import align, find_field, fit_columns
from tidegate.formats.kinds.avro.schema import AvroRefusal, AvroType, NoDeclaredField, parse_schema
from tidegate.formats.kinds.avro.values import ReferenceReader
from tidegate.formats.kinds.avro.wire import NotVectorised
from tidegate.formats.schema_ids import PREFIX_BYTES, find_schema, refuse_schema, schema_id_of
from tidegate.formats.schemas import FormatOptions, IdPlace, Schemas, SchemaText
from tidegate.native.library import loaded

FAST_ROWS_MIN: Final = 48
"""Fewer are read by fastavro in less time."""
PAUSE_MAX: Final = 64
"""Batches that fastavro gets at once after one that Polars has panicked at, which it reports on stderr, or of which
fastavro had to read more than a quarter: the number doubles up to this.
"""
_ANY: Final = b"any"
"""What all values have in common where nothing says what schema they have."""


class WriterReader:
    """Reads what was written with one schema."""

    def __init__(
        self, writer: AvroType, reader: AvroType, output: Columns, prefix: bytes, rows_min: int = FAST_ROWS_MIN
    ) -> None:
        self.reference = ReferenceReader(writer, reader, output, same=writer is reader)
        self.certain = _find_certain(writer, reader, output, prefix)
        """Where values are no Python objects."""
        self.fast: FastReader | None = None
        self._rows_min = rows_min
        self._skipped = len(prefix)
        self._pause = self._paused = 0
        with suppress(NotVectorised):
            self.fast = FastReader(writer, reader, output, prefix)

    def read_whole(self, values: Sequence[Any]) -> pl.DataFrame | None:
        """All of a batch, if every value is a record of this schema, prefix included: else None."""
        if self.fast is None or self._paused or len(values) < self._rows_min:
            return None
        try:
            frame, doubtful = self.fast.read(values)
        except (pl.exceptions.PolarsError, PanicException, OSError, TypeError):  # TypeError: of a tombstone
            return None
        return None if doubtful else frame

    def read(self, bodies: Sequence[bytes], *, tried: bool = False) -> tuple[list[Part], list[RecordFailure]]:
        """In any order; together all rows. `tried`: `read_whole` was, in vain."""
        parts: list[Part] = []
        left = self._read_fast(bodies, parts, tried=tried)
        if not left:
            return parts, []
        frame, failures = self.reference.read([bodies[row] for row in left], self._skipped)
        bad = {failure.row for failure in failures}
        parts.append(([row for place, row in enumerate(left) if place not in bad], frame))
        return parts, [RecordFailure(left[one.row], one.kind, one.message) for one in failures]

    def _read_fast(self, bodies: Sequence[bytes], parts: list[Part], *, tried: bool) -> Sequence[int]:
        """Adds to `parts`; the rows that are left."""
        everything = range(len(bodies))
        if self.fast is None or len(bodies) < self._rows_min:
            return everything
        if self._paused:
            self._paused -= 1
            return everything
        left: list[int] = []
        middle = len(bodies) // 2
        waiting: list[Sequence[int]] = [everything[:middle], everything[middle:]] if tried else [everything]
        budget = (2 if tried else 3) * len(bodies)
        panicked = False
        while waiting:
            rows = waiting.pop()
            budget -= len(rows)
            if panicked or budget < 0 or len(rows) < self._rows_min:
                left += rows
                continue
            try:
                frame, doubtful = self.fast.read(bodies if len(rows) == len(bodies) else [bodies[row] for row in rows])
            except PanicException:
                panicked = True
                left += rows
            except (pl.exceptions.PolarsError, OSError):
                middle = len(rows) // 2
                waiting += [rows[:middle], rows[middle:]]
            else:
                left += _sort_out(rows, frame, doubtful, parts, waiting)
        worth = not panicked and len(left) <= len(bodies) // 4
        self._pause = self._paused = 0 if worth else min(PAUSE_MAX, self._pause * 2 or 1)
        return sorted(left)


def _find_certain(writer: AvroType, reader: AvroType, output: Columns, prefix: bytes) -> CertainReader | None:
    library = loaded()
    with suppress(NotInC):
        return None if library is None else CertainReader(library, writer, reader, output, prefix)
    return None


def _sort_out(
    rows: Sequence[int], frame: pl.DataFrame, doubtful: Sequence[int], parts: list[Part], waiting: list[Sequence[int]]
) -> Sequence[int]:
    """Keeps the rows that are right. Of many others only the first is surely wrong: it hides where the next begins."""
    if not doubtful:
        parts.append((rows, frame))
        return ()
    wrong = set(doubtful)
    parts.append(
        (
            [row for place, row in enumerate(rows) if place not in wrong],
            frame.filter(~pl.int_range(pl.len()).is_in(list(doubtful)))
            if frame.columns
            else pl.DataFrame(height=len(rows) - len(wrong)),
        )
    )
    others = [rows[place] for place in doubtful]
    if len(others) <= max(2, len(rows) // 16):
        return others
    waiting.append(others[1:])
    return others[:1]


class SchemaReader(Protocol):
    """Reads what was written with one schema. `WriterReader` does; so may what makes something else of its frames."""

    @property
    def certain(self) -> Certain | None:
        """What reads values that are no Python objects; None: nothing does."""

    def read_whole(self, values: Sequence[Any], /) -> pl.DataFrame | None:
        """All of a batch, if every value is a good record of this schema, prefix included: else None."""

    def read(self, bodies: Sequence[bytes], /, *, tried: bool = False) -> tuple[list[Part], list[RecordFailure]]:
        """In any order; together all rows. `tried`: `read_whole` was, in vain."""


class SchemaDecoder:
    """Decodes values into frames with the columns of `output`, those of each schema by a reader of its own."""

    def __init__(
        self,
        open_reader: Callable[[SchemaText, bytes], SchemaReader],
        output: Columns,
        options: FormatOptions,
        schemas: Schemas,
    ) -> None:
        """`open_reader` gets what values were written with, and what they begin with. It raises AvroRefusal."""
        self._open = open_reader
        self._output = output
        self._options = options
        self._schemas = schemas
        self._written: dict[bytes, SchemaReader | RecordFailure] = {}
        """By what records begin with."""
        self._usual: SchemaReader | None = None
        """Of the last batch, if all of its records had one schema and were good."""
        self._most: SchemaReader | None = None
        """Of most records of the last batch."""
        self._bare: SchemaReader | None = None
        if options.ids is IdPlace.NONE and options.schema is not None:
            self._bare = open_reader(options.schema, b"")

    def decode(self, messages: Messages) -> Decoded | WaitingForSchema:
        """See Decoder."""
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
            self._most = most  # and not of those few
        return decoded

    def decode_values(self, values: Sequence[bytes | None]) -> Decoded | WaitingForSchema:
        """Rows of the good values in order, and the bad ones."""
        usual, self._usual = self._usual, None
        frame = None if usual is None else usual.read_whole(values)
        if frame is not None:
            self._usual = usual
            return Decoded(frame, ())
        parts: list[Part] = []
        failures: list[RecordFailure] = []
        groups = [(self._find(key), rows) for key, rows in self._grouped(values)]  # all schemas are asked for at once
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
            bodies: Any = values if whole else [values[row] for row in rows]  # None is in a group of its own
            read, bad = found.read(bodies, tried=whole and found is usual)
            self._usual = found if whole and not bad else None
            parts += read if whole else [([rows[place] for place in places], frame) for places, frame in read]
            failures += [RecordFailure(rows[one.row], one.kind, one.message) for one in bad]
        return Decoded(merge_parts(parts, self._output), sorted(failures, key=attrgetter("row")))

    def _grouped(self, values: Sequence[bytes | None]) -> list[tuple[bytes | None, Sequence[int]]]:
        """Rows by what says which schema they have: None for tombstones, nothing for empty values."""
        if not values:
            return []
        if self._all_alike(values):
            return [(self._key(values[0]), range(len(values)))]
        groups: dict[bytes | None, list[int]] = {}
        for row, value in enumerate(values):
            groups.setdefault(self._key(value), []).append(row)
        return list(groups.items())

    def _all_alike(self, values: Sequence[bytes | None]) -> bool:
        """Whether surely all have the same schema, which is most often so."""
        if not all(values):
            return False
        first = self._key(values[0]) or b""
        if self._bare is not None:
            return True
        return len(first) == PREFIX_BYTES and all(map(methodcaller("startswith", first), values))

    def _key(self, value: bytes | None) -> bytes | None:
        return value and (value[:PREFIX_BYTES] if self._bare is None else _ANY)

    def _find(self, key: bytes | None) -> SchemaReader | WaitingForSchema | RecordFailure:
        """What reads records of a group, or why nothing does."""
        if key and self._bare is not None:
            return self._bare
        prefix = key or b""
        if prefix not in self._written:
            found = find_schema(key, self._schemas, FailureKind.MALFORMED_AVRO)
            if not isinstance(found, SchemaText):
                return found  # not kept: it may be registered by the time of the next record
            self._written[prefix] = self._made(found, prefix)
        return self._written[prefix]

    def _made(self, schema: SchemaText, prefix: bytes) -> SchemaReader | RecordFailure:
        try:
            return self._open(schema, prefix)
        except AvroRefusal as refusal:
            failure = refuse_schema(self._schemas, schema_id_of(prefix), self._options, str(refusal))
            return msgspec.structs.replace(failure, kind=refusal.kind)


def _require_field(writer: AvroType, fitted: AvroType) -> None:
    """Raises NoDeclaredField for a writer's record with fields, of which no column is read: all of it would be NULL."""
    if not writer.fields or any(find_field(writer, field) for field in fitted.fields):
        return
    names = [field.name for field in writer.fields]
    is_change = "op" in names and ("before" in names or "after" in names)
    hint = "it looks like that of change events: use `format: debezium-avro`" if is_change else ""
    raise NoDeclaredField("", describe_undeclared(names, (field.name for field in fitted.fields), hint))


class AvroDecoder(SchemaDecoder):
    """Without a schema in `options` the columns that are declared are looked for in the writer's."""

    def __init__(
        self,
        declared: Columns,
        output: Columns,
        options: FormatOptions,
        schemas: Schemas,
        fast_rows_min: int = FAST_ROWS_MIN,
    ) -> None:
        self._declared = declared
        self._rows_min = fast_rows_min
        self._reader = None if options.schema is None else parse_schema(options.schema)
        super().__init__(self._open_reader, output, options, schemas)

    def _open_reader(self, schema: SchemaText, prefix: bytes) -> WriterReader:
        """Raises AvroRefusal."""
        writer = parse_schema(schema)
        if self._reader is None:
            fitted = fit_columns(writer, self._declared)
        else:
            declared = {name for name, _ in self._declared}
            fields = tuple(field for field in self._reader.fields if field.name in declared)
            fitted = align(writer, msgspec.structs.replace(self._reader, fields=fields))
        _require_field(writer, fitted)
        return WriterReader(writer, writer if fitted == writer else fitted, self._output, prefix, self._rows_min)
