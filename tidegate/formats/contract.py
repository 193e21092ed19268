"""The contract of a format: columns, decoder, encoder, and a section of the documentation.

A format is one module or package in `formats/kinds` with an instance of `Format` named `FORMAT`. `registry.py`
discovers it there, and no code outside refers to a format by name. docs/extending.md describes how to write one.
Decoders and encoders run in slots only. The daemon must not load Polars but reads the rest of a `Format`, so a format
imports Polars only where it creates decoders and encoders.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

import msgspec

from tidegate.config.fields.base import Settings
from tidegate.datatypes import NESTED, DataType, Schema
from tidegate.formats.failures import RecordFailure
from tidegate.formats.plain import parse_json, render_json
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, SchemaKind, Schemas, SchemaText

if TYPE_CHECKING:
    import polars as pl

Columns = Sequence[tuple[str, DataType]]
"""Names and types, in order."""

S = TypeVar("S", bound=Settings)

Headers = Sequence[tuple[str, bytes | None]]
"""Headers of one message, in order; names may repeat."""


class ValueMemory(NamedTuple):
    """The memory of a batch's values, for decoders in C; valid as long as the batch lives."""

    addresses: int
    """Address of an array of addresses, one per value."""
    lengths: int
    """Address of an array of 32-bit lengths, one per value; -1 for a tombstone."""
    rows: int


class FlatHeaders(NamedTuple):
    """The headers of a batch: the number per message, and the names and values of all in sequence.

    All three are empty if no message has headers.
    """

    counts: pl.Series
    names: pl.Series
    values: pl.Series


class Messages(Protocol):
    """A batch of messages as columns, all of the same length.

    Access to a column takes time, so a decoder accesses each column that it needs once. The source decides what backs
    the columns: message objects of a client, or its own memory.
    """

    def __len__(self) -> int:
        """Returns the number of messages."""

    @property
    def memory(self) -> ValueMemory | None:
        """The memory of the values; None if the values are Python objects."""

    @property
    def values(self) -> Sequence[bytes | None]:
        """Values; None for a tombstone."""

    @property
    def keys(self) -> Sequence[bytes | None]:
        """Keys; None for a message without a key."""

    @property
    def headers(self) -> Sequence[Headers | None]:
        """Headers; empty for a message without headers, None if the name of a header is not UTF-8."""

    @property
    def flat_headers(self) -> FlatHeaders | None:
        """`headers` as columns; None if they are available only as lists."""

    @property
    def timestamps_ms(self) -> Sequence[int | None]:
        """Milliseconds since 1970, of either timestamp type; None if the message has no timestamp.

        Any number can occur, since producers can set any.
        """

    @property
    def topics(self) -> Sequence[str]:
        """Topic of each message."""

    @property
    def partitions(self) -> Sequence[int]:
        """Partition of each message."""

    @property
    def offsets(self) -> Sequence[int]:
        """Offset of each message: ascending within a partition, possibly with gaps."""

    def part(self, start: int, end: int) -> Messages:
        """Returns the messages from index `start` up to, but not including, `end`."""


class _Values:
    memory = None

    def __init__(self, values: Sequence[bytes | None]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)


def messages_of_values(values: Sequence[bytes | None]) -> Messages:
    """Returns messages of which only the values are known, for decoders of formats with schemas."""
    messages: Any = _Values(values)
    return messages  # type: ignore[no-any-return]  # without the other parts


class Decoded(NamedTuple):
    """The rows of the good messages with exactly the requested columns, and the bad messages, both in order."""

    frame: pl.DataFrame
    failures: Sequence[RecordFailure]


class WaitingForSchema(NamedTuple):
    """Nothing is decoded, because a schema that the messages refer to is still being fetched.

    The same messages will be passed again.
    """

    wanted: str
    """The schema and where it comes from, for log messages."""


class Decoder(Protocol):
    """Decodes bytes to columns in a slot, one batch at a time."""

    def decode(self, messages: Messages) -> Decoded | WaitingForSchema:
        """Decodes a batch. Never blocks, and never raises because of the contents of a message.

        A decoder keeps nothing of a batch. After WaitingForSchema, or if a message makes the decoder raise
        nevertheless, the messages are passed again, possibly in other batches. `frame.height + len(failures)` equals
        the number of messages. An empty batch yields a frame without rows.
        """


class Encoded(msgspec.Struct, frozen=True):
    """Columns of records, one row per row of the input frame. Failed rows are included; their contents are undefined.

    `columns` has `value` (Binary; NULL for a record without a value) and those of the following that the format sets:
    `headers` (of type `record_parts.HEADERS_TYPE`) and `partition` (Int32; for NULL the key determines the partition).
    The sink sets key, timestamp and topic.
    """

    columns: pl.DataFrame
    failures: Sequence[RecordFailure] = ()


class Encoder(Protocol):
    """Encodes columns as records in a slot, one frame at a time."""

    def encode(self, frame: pl.DataFrame) -> Encoded:
        """Encodes a frame. Never raises because of the contents of a row.

        Records that Kafka or the topic would reject are found afterwards.
        """


class FormatRefusal(Exception):
    """Columns that a format does not support. Reported as a problem of the pipeline file.

    The place is the `schema` of a source or the `format` of a sink, or `setting` of the format's section.
    """

    def __init__(self, message: str, remedy: str, setting: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.setting = setting


class Format(ABC):
    """Everything about one format. Its module's name is the format's name in pipeline files."""

    name: ClassVar[str]
    writes: ClassVar[str]
    """What a sink writes, as part of a sentence: `an object of all columns`. Empty for a format that only sources
    support.
    """
    page: ClassVar[str]
    """The format's page in docs/formats, in Markdown without a title."""
    needs_schema: ClassVar[bool] = False
    """A source must declare its columns, or, if the format has schemas, refer to one."""
    schema_kind: ClassVar[SchemaKind | None] = None
    """The language of the schemas with which records of this format are written; None if there are none."""
    finds_unknown_fields: ClassVar[bool] = False
    """Records may have fields without a column, and a source sets how they are handled: they can be kept as text."""
    reads_tombstones: ClassVar[bool] = False
    """A message without a value is a row like any other.

    If False, it is a bad record, unless the source skips it or converts it to a row; the decoder does not receive it in
    these cases.
    """
    is_text: ClassVar[bool] = True
    """Values are texts, so a line of a file can be one. For other formats, a line is a value in JSON (`from_plain`)."""
    is_changelog: ClassVar[bool] = False
    """Records are inserts, updates and deletes of a table's rows.

    A source skips tombstones, because a delete precedes them as a record of its own. Steps that cannot process
    retractions are rejected. With the option `row_kinds`, the decoder's frames also contain the kind of each row and,
    for each update, the row before it (`row_kinds.py`).
    """
    written_as: ClassVar[Collection[str]] = frozenset()
    """Options of a source's `written_as`: how values were written, where the records themselves may not tell."""
    fixed_columns: ClassVar[Schema | None] = None
    """The columns of every source of this format; a `schema` can only select from them."""
    part_columns: ClassVar[Mapping[str, str]] = {}
    """Those fixed columns that are parts of the record which `metadata` also has, by their names there."""
    source_settings: ClassVar[type[Settings]] = Settings
    """The section of a source that has the format's name; `Settings` itself if there is none.

    Values are plain (texts, numbers, booleans, lists and sections of them), and their checks accept what they return.
    """
    sink_settings: ClassVar[type[Settings]] = Settings
    """The section of a sink that has the format's name."""

    def read_columns(self, declared: Schema, options: FormatOptions = NO_OPTIONS) -> Schema:  # noqa: ARG002 - for formats with settings
        """Returns the columns of a source. Empty if `declared` is not sufficient.

        `declared` is the source's `schema`, empty if it has none. Raises FormatRefusal for columns that no record has.
        """
        if self.fixed_columns is None:
            return declared
        return {name: kind for name, kind in self.fixed_columns.items() if not declared or name in declared}

    def written_columns(self, columns: Schema, options: FormatOptions = NO_OPTIONS) -> Schema:  # noqa: ARG002 - for formats with settings
        """Returns those columns of a sink's input that its records contain. Raises FormatRefusal."""
        return columns

    def read_schema(self, data: bytes, directories: Sequence[Path] = ()) -> SchemaText:  # noqa: ARG002  # for overrides
        """Parses the contents of a file that a `schema` refers to. Files that it imports are in `directories`, the
        nearest one first. Raises FormatRefusal.
        """
        assert self.schema_kind is not None
        try:
            return SchemaText(self.schema_kind, data.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise FormatRefusal("it is not UTF-8 text", "save the file as UTF-8") from error

    def compile_schema(self, schema: SchemaText) -> SchemaText:
        """Returns a schema of the registry as decoders read it, if that is not its text. It may start a process.

        A schema that cannot be compiled is returned as it is.
        """
        return schema

    def select_message(self, schema: SchemaText, message: str) -> SchemaText:
        """Returns the schema with the message that the file selects; empty if it selects none. Raises FormatRefusal."""
        if message:
            raise FormatRefusal(f"a schema in {schema.kind} has no messages", "remove `message`")
        return schema

    def schema_columns(self, schema: SchemaText) -> Schema:
        """Returns the columns of a source whose `schema` is a text of `schema_kind`. Raises FormatRefusal."""
        raise NotImplementedError

    def derive_schema(self, columns: Schema, name: str) -> SchemaText:
        """Derives the schema of a sink's records if the pipeline file has none; `name` becomes the name of the record.

        The same columns and name yield the same text in every release, because a registry compares it. Raises
        FormatRefusal.
        """
        raise NotImplementedError

    def check_schema(self, schema: SchemaText, columns: Schema) -> None:
        """Checks that every row of these columns can be written with a schema. Raises FormatRefusal."""
        raise NotImplementedError

    def key_record(self, schema: SchemaText, field: str) -> SchemaText:
        """Returns the schema of a record with one field, whose bytes equal those of the field alone: keys can be of any
        type.
        """
        raise NotImplementedError

    def derive_key_schema(self, kind: DataType, name: str) -> SchemaText:
        """Derives the schema of keys, like `derive_schema`. A key's top level is never null: such a record has no key.

        Raises FormatRefusal.
        """
        raise NotImplementedError

    def schema_name(self, schema: SchemaText) -> str:
        """Returns the full name of a schema's record, for subjects named after it. Raises FormatRefusal."""
        raise NotImplementedError

    def default_key(self, columns: Schema) -> str | None:  # noqa: ARG002 - for formats that have one
        """Returns the column that becomes the record key if the sink does not name one."""
        return None

    def skipped_values(self, declared: Columns, options: FormatOptions) -> Collection[bytes]:  # noqa: ARG002 - for formats with header lines
        """Returns the values of records that a source skips, such as header lines; they count as filtered."""
        return ()

    def from_plain(self, value: Any, options: FormatOptions = NO_OPTIONS) -> bytes:  # noqa: ARG002 - for those with schemas
        """Encodes a value as written by people in YAML or JSON, for tests and previews. Raises FormatRefusal."""
        try:
            return render_json(value).encode()
        except ValueError as error:
            raise FormatRefusal("JSON has neither infinities nor NaN", "write null") from error

    def to_json(self, data: bytes, options: FormatOptions = NO_OPTIONS) -> bytes:  # noqa: ARG002 - for those with schemas
        """Converts a value written by a sink of this format to JSON; returns it unchanged if it is JSON. Raises
        ValueError.
        """
        return data

    def to_plain(self, data: bytes, options: FormatOptions = NO_OPTIONS) -> Any:
        """Inverts `from_plain` for a value written by a sink of this format; numbers with a fraction become decimals.

        Raises ValueError.
        """
        return parse_json(self.to_json(data, options))

    @abstractmethod
    def decoder(self, declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> Decoder:
        """Creates a decoder to frames with the columns `output`, a subset of `declared`.

        A message is bad if the value of any declared column does not match its type.
        """

    def schema_mark(self, options: FormatOptions) -> bytes:  # noqa: ARG002  # for formats with schemas
        """Returns the prefix of every value of a sink, or the value of its header, that identifies the schema."""
        return b""

    def written_headers(self, columns: Schema, options: FormatOptions) -> Collection[str]:  # noqa: ARG002  # for formats that write headers
        """Returns the names of all headers that a sink's encoder may set, and which are not passed on."""
        return ()

    @abstractmethod
    def encoder(self, columns: Columns, options: FormatOptions) -> Encoder:
        """Creates an encoder for `columns` of a frame that may have further columns."""


def read_settings(kind: type[S], options: FormatOptions) -> S:
    """Returns the format's section of a source or sink, which has `kind`; missing values have their defaults."""
    return kind.model_validate(options.settings)


def refuse_nested(columns: Schema, what: str) -> None:
    """Raises FormatRefusal for arrays, maps and structs. `what` holds a value: `a field of a line`."""
    for name, kind in columns.items():
        if kind.kind in NESTED:
            message = f"{what} holds a single value, but the column `{name}` is {kind}"
            raise FormatRefusal(
                message, f"make it a string: `from_json` and `to_json({name})` in a `select` convert it"
            )
