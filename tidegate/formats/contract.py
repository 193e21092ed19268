"""What a format is: its columns, its decoder, its encoder, and its section of the documentation.

A format is one module or package in `formats/kinds` with an instance of `Format` named `FORMAT`; `registry.py` finds
it there, and nothing outside knows a format by its name. How to write one is in docs/extending.md. Decoders and
encoders run in slots only; the daemon, which must not load Polars, reads the rest of a `Format`, so a format imports
Polars where it makes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, NamedTuple, Protocol

import msgspec

from tidegate.datatypes import DataType, Schema
from tidegate.formats.failures import RecordFailure
from tidegate.formats.plain import parse_json, render_json
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, SchemaKind, Schemas, SchemaText

if TYPE_CHECKING:
    import polars as pl

Columns = Sequence[tuple[str, DataType]]
"""Names and types, in order."""

Headers = Sequence[tuple[str, bytes | None]]
"""Of one message, in order; names may repeat."""


class ValueMemory(NamedTuple):
    """Where the values of a batch are, for decoders in C, as long as the batch lives."""

    addresses: int
    """Of so many addresses, one for each value."""
    lengths: int
    """Of so many numbers of 32 bits; -1: a tombstone."""
    rows: int


class Messages(Protocol):
    """A batch of messages as columns, all of the same length.

    A column costs time when it is asked for, so a decoder asks for what it reads, once. What is behind the columns is
    the source's business: a client's message objects, or its own memory.
    """

    def __len__(self) -> int:
        """Of the batch."""

    @property
    def memory(self) -> ValueMemory | None:
        """Where the values are; None where they are Python's objects."""

    @property
    def values(self) -> Sequence[bytes | None]:
        """None: a tombstone."""

    @property
    def keys(self) -> Sequence[bytes | None]:
        """None: no key."""

    @property
    def headers(self) -> Sequence[Headers | None]:
        """Empty where a message has none. None: the name of one is not UTF-8."""

    @property
    def timestamps_ms(self) -> Sequence[int | None]:
        """Since 1970, of either type, and of any size: producers write what they like. None: the message has none."""

    @property
    def topics(self) -> Sequence[str]:
        """Names."""

    @property
    def partitions(self) -> Sequence[int]:
        """Numbers."""

    @property
    def offsets(self) -> Sequence[int]:
        """Ascending within a partition, not without gaps."""

    def part(self, start: int, end: int) -> Messages:
        """The messages from index `start` up to `end`, exclusive."""


class Decoded(NamedTuple):
    """Rows of the good messages in order, with exactly the columns that were asked for; and the bad ones, in order."""

    frame: pl.DataFrame
    failures: Sequence[RecordFailure]


class FileValues(NamedTuple):
    """What is in a file of a format's own kind."""

    schema: SchemaText
    """Of the file. Each of the values begins with its id."""
    values: Iterator[bytes]
    """It raises ValueError where the file is damaged."""


class WaitingForSchema(NamedTuple):
    """Nothing is decoded: a schema that the messages name is being fetched. The same messages are offered again."""

    wanted: str
    """For messages: which schema, and from where."""


class Decoder(Protocol):
    """Bytes to columns, in a slot, a batch at a time."""

    def decode(self, messages: Messages) -> Decoded | WaitingForSchema:
        """Never blocks, and never raises for what a message contains.

        Keeps nothing of a batch: after WaitingForSchema, and when one of its messages makes the decoder raise all the
        same, the messages come again, maybe in other batches. `frame.height + len(failures)` is their number; of no
        message it makes a frame without rows.
        """


class Encoded(msgspec.Struct, frozen=True):
    """The columns of records, each row of the frame a record; failing rows are there, too, with anything in them.

    `columns` has `value` (Binary; NULL is written as none), and of the others what the format is to set: `headers`
    (of the type `record_parts.HEADERS_TYPE`) and `partition` (Int32; NULL is chosen by the key). Key, timestamp and
    topic are the sink's business.
    """

    columns: pl.DataFrame
    failures: Sequence[RecordFailure] = ()


class Encoder(Protocol):
    """Columns to records, in a slot, a frame at a time."""

    def encode(self, frame: pl.DataFrame) -> Encoded:
        """Never raises for what a row contains. What Kafka or the topic would refuse is found after it."""


class FormatRefusal(Exception):
    """Columns that cannot be written in a format. Becomes a problem of the pipeline file, at the sink's `format`."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class Format(ABC):
    """Everything about one format. Its name in pipeline files is that of its module."""

    name: ClassVar[str]
    writes: ClassVar[str]
    """What a sink writes, as part of a sentence: `an object of all columns`. Empty: there are only sources of it."""
    page: ClassVar[str]
    """Its section of docs/pipeline.md, in Markdown without a heading."""
    needs_schema: ClassVar[bool] = False
    """A source has to say what its columns are: as columns, or by a schema where there are schemas of the format."""
    schema_kind: ClassVar[SchemaKind | None] = None
    """The language of the schemas that records of the format are written with; None: there are none."""
    finds_unknown_fields: ClassVar[bool] = False
    """Its records may have fields that no column names, and a source says what becomes of them."""
    keeps_unknown_fields: ClassVar[bool] = False
    """Such fields can be kept as text, by their names."""
    reads_tombstones: ClassVar[bool] = False
    """A message without value is a row like any other. Else it is a bad record, unless the source leaves it out or
    makes a row of it: then the decoder does not get it.
    """
    is_changelog: ClassVar[bool] = False
    """Its records are inserts, updates and deletes of a table's rows. A source leaves tombstones out, since a delete is
    a record of its own before them; steps that cannot take a row back are refused. With `row_kinds` of the options the
    frames of its decoder have two things more: the kind of each row, and the row before each update (`row_kinds.py`).
    """
    written_as: ClassVar[Collection[str]] = frozenset()
    """Words of a source's `written_as`: what its records may not say of how their values were written."""
    fixed_columns: ClassVar[Schema | None] = None
    """What every source has; a `schema` only chooses among them."""

    def read_columns(self, declared: Schema) -> Schema:
        """The columns of a source; `declared` is its `schema`, empty without one. Empty where that is not enough.

        Raises FormatRefusal for columns that no record has.
        """
        if self.fixed_columns is None:
            return declared
        return {name: kind for name, kind in self.fixed_columns.items() if not declared or name in declared}

    def written_columns(self, columns: Schema) -> Schema:
        """Those of a sink's input that its records hold. Raises FormatRefusal."""
        return columns

    def read_schema(self, data: bytes) -> SchemaText:
        """What is in a file that a `schema` names. Raises FormatRefusal."""
        assert self.schema_kind is not None
        try:
            return SchemaText(self.schema_kind, data.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise FormatRefusal("it is not UTF-8 text", "save the file as UTF-8") from error

    def select_message(self, schema: SchemaText, message: str) -> SchemaText:
        """The same schema with the message that the file names; empty: it names none. Raises FormatRefusal."""
        if message:
            raise FormatRefusal(f"a schema in {schema.kind} has no messages to choose among", "remove `message`")
        return schema

    def schema_columns(self, schema: SchemaText) -> Schema:
        """The columns of a source whose `schema` is a text of `schema_kind`. Raises FormatRefusal."""
        raise NotImplementedError

    def derive_schema(self, columns: Schema, name: str) -> SchemaText:
        """What a sink's records are written with where the pipeline file has no schema; `name` is for the record.

        The same columns and name make the same text in every release: a registry compares it. Raises FormatRefusal.
        """
        raise NotImplementedError

    def check_schema(self, schema: SchemaText, columns: Schema) -> None:
        """Whether every row of these columns can be written with a schema. Raises FormatRefusal."""
        raise NotImplementedError

    def key_record(self, schema: SchemaText, field: str) -> SchemaText:
        """The schema of a record with one field, whose bytes are those of the field alone: a key may be of any type."""
        raise NotImplementedError

    def derive_key_schema(self, kind: DataType, name: str) -> SchemaText:
        """As derive_schema, of keys; a record without a key has none, so nothing in it is null at the top.

        Raises FormatRefusal.
        """
        raise NotImplementedError

    def schema_name(self, schema: SchemaText) -> str:
        """The full name of a schema's record, for subjects that are named after it. Raises FormatRefusal."""
        raise NotImplementedError

    def default_key(self, columns: Schema) -> str | None:  # noqa: ARG002 - for formats that have one
        """The column that is the record key where the sink names none."""
        return None

    def from_plain(self, value: Any, options: FormatOptions = NO_OPTIONS) -> bytes:  # noqa: ARG002 - for those with schemas
        """The bytes of a value as people write it in YAML or JSON, for tests and previews. Raises FormatRefusal."""
        try:
            return render_json(value).encode()
        except ValueError as error:
            raise FormatRefusal("JSON has no infinities and no NaN", "write null") from error

    def to_json(self, data: bytes, options: FormatOptions = NO_OPTIONS) -> bytes:  # noqa: ARG002 - for those with schemas
        """What a sink of the format has written, as JSON: the same bytes where it is JSON. Raises ValueError."""
        return data

    def to_plain(self, data: bytes, options: FormatOptions = NO_OPTIONS) -> Any:
        """The inverse of `from_plain`, for what a sink of the format has written; numbers with a fraction are decimals.

        Raises ValueError.
        """
        return parse_json(self.to_json(data, options))

    def file_values(self, stream: BinaryIO, options: FormatOptions) -> FileValues | None:  # noqa: ARG002 - for those with files
        """The values in a file of the format's own kind, whose first bytes `stream.peek` shows; None for any other.

        Raises ValueError for what is none.
        """
        return None

    @abstractmethod
    def decoder(self, declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> Decoder:
        """Makes frames of the columns `output`, which are some of `declared`. A value of any declared column that is
        not what its type says makes the message bad.
        """

    def schema_mark(self, options: FormatOptions) -> bytes:  # noqa: ARG002  # for formats with schemas
        """What is in front of every value of a sink, or in a header of its record, to say what it was written with."""
        return b""

    @abstractmethod
    def encoder(self, columns: Columns, options: FormatOptions) -> Encoder:
        """Writes `columns` of a frame that may have others, too."""
