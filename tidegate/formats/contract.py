"""What a format is: its columns, its decoder, its encoder, and its section of the documentation.

A format is one module or package in `formats/kinds` with an instance of `Format` named `FORMAT`; `registry.py` finds
it there, and nothing outside knows a format by its name. How to write one is in docs/extending.md. Decoders and
encoders run in slots only; the daemon, which must not load Polars, reads the rest of a `Format`, so a format imports
Polars where it makes them.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import msgspec

from tidegate.datatypes import DataType, Schema
from tidegate.formats.failures import RecordFailure

if TYPE_CHECKING:
    import polars as pl

Columns = Sequence[tuple[str, DataType]]
"""Names and types, in order."""

Headers = Sequence[tuple[str, bytes | None]]
"""Of one message, in order; names may repeat."""


class Messages(Protocol):
    """A batch of messages as columns, all of the same length.

    A column costs time when it is asked for, so a decoder asks for what it reads, once. What is behind the columns is
    the source's business: a client's message objects today.
    """

    def __len__(self) -> int:
        """Of the batch."""

    @property
    def values(self) -> Sequence[bytes | None]:
        """None: a tombstone."""

    @property
    def keys(self) -> Sequence[bytes | None]:
        """None: no key."""

    @property
    def headers(self) -> Sequence[Headers]:
        """Empty where a message has none."""

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

    `columns` has `value`, and of the others what the sink is to set: `key` (both Binary; NULL is written as none),
    `timestamp` (Int64, ms since 1970; NULL is the time of writing), `headers` (List of Struct of `name` String and
    `value` Binary), `partition` (Int32; NULL is chosen by the key) and `topic` (String; NULL is the sink's own).
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
    """What a sink writes, as part of a sentence: `an object of all columns`."""
    page: ClassVar[str]
    """Its section of docs/pipeline.md, in Markdown without a heading."""
    needs_schema: ClassVar[bool] = False
    """A source has to declare its columns."""
    fixed_columns: ClassVar[Schema | None] = None
    """What every source has; a `schema` only chooses among them."""

    def read_columns(self, declared: Schema) -> Schema:
        """The columns of a source; `declared` is its `schema`, empty without one. Empty where that is not enough."""
        if self.fixed_columns is None:
            return declared
        return {name: kind for name, kind in self.fixed_columns.items() if not declared or name in declared}

    def written_columns(self, columns: Schema) -> Schema:
        """Those of a sink's input that its records hold. Raises FormatRefusal."""
        return columns

    def default_key(self, columns: Schema) -> str | None:  # noqa: ARG002 - for formats that have one
        """The column that is the record key where the sink names none."""
        return None

    def from_plain(self, value: Any) -> bytes:
        """The bytes of a value as people write it in YAML or JSON, for tests and previews. Raises FormatRefusal."""
        try:
            return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except ValueError as error:
            raise FormatRefusal("JSON has no infinities and no NaN", "write null") from error

    def to_plain(self, data: bytes) -> Any:
        """The inverse of `from_plain`, for what a sink of the format has written. Raises ValueError."""
        return json.loads(data)

    @abstractmethod
    def decoder(self, declared: Columns, output: Columns) -> Decoder:
        """Makes frames of the columns `output`, which are some of `declared`. A value of any declared column that is
        not what its type says makes the message bad.
        """

    @abstractmethod
    def encoder(self, columns: Columns, key: str | None, timestamp: str | None) -> Encoder:
        """Writes `columns`. `key` and `timestamp` name columns of the frame, which need not be among them."""
