"""What a shape is."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from tidegate.simulation.model_broker.log import Record

if TYPE_CHECKING:
    from tidegate.simulation.workload import InputRecord

Headers = tuple[tuple[str, bytes | None], ...]
SCHEMA: Final = {
    "id": "bigint",
    "customer": "string",
    "sku": "string",
    "quantity": "int",
    "price_cents": "bigint",
    "status": "string",
}
TIMED_SCHEMA: Final = {**SCHEMA, "at": "bigint"}
"""Where records have event times of their own."""


class Content(msgspec.Struct, frozen=True):
    """What a record of the output is."""

    key: bytes | None
    row: Mapping[str, Any] | None
    """Of the JSON value; None for a tombstone."""
    headers: Headers = ()


class Produced(msgspec.Struct, frozen=True):
    """A record that must come out, once."""

    topic: str
    name: Hashable
    """No other record of the topic has it."""
    lane: Hashable
    """Records of one lane come out in the order in which they are listed."""
    cause: int
    """The record of the input that makes it come out."""
    content: Content


class Shape:
    """One kind of pipeline. What is not said is as in every other pipeline."""

    inputs: ClassVar[tuple[str, ...]] = ("orders",)
    outputs: ClassVar[tuple[str, ...]]
    schema: ClassVar[Mapping[str, str]] = SCHEMA
    source: ClassVar[Mapping[str, Any]] = {}
    """More words of its source."""
    steps: ClassVar[Sequence[Mapping[str, Any]]]
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]]
    exactly_once: ClassVar[bool] = False
    """At least once it cannot be said in advance what comes out."""
    growing: ClassVar[bool] = True
    """Its topics may get more partitions."""
    new_topics: ClassVar[bool] = False
    """Topics appear while it runs."""
    bounded: ClassVar[bool] = True
    """It may end by itself."""
    waits: ClassVar[bool] = False
    """Rows wait in the checkpoint although the progress is past their records."""
    forgetful: ClassVar[bool] = False
    """Retention removes input before it was read."""

    def time_of(self, number: int, now_ms: int) -> int | None:  # noqa: ARG002  # of those with event times
        """The event time of record `number`; None where there is none."""
        return None

    def dress(self, record: InputRecord, now_ms: int) -> Record:
        """The record as it is in the topic."""
        return Record(record.customer.encode(), record.value, now_ms)

    def derive(self, records: Sequence[InputRecord]) -> list[Produced]:
        """All that must come out, of records in the order of their partitions."""
        raise NotImplementedError

    def count(self, records: Sequence[InputRecord], produced: Sequence[Produced]) -> Mapping[str, int]:  # noqa: ARG002  # of those that have some
        """What these records show of it, for the table of what was reached."""
        return {}

    def name_of(self, topic: str, content: Content) -> Hashable:  # noqa: ARG002  # of those with several topics
        """See Produced."""
        assert content.row is not None
        return int(content.row["id"])


def read_content(record: Record) -> Content:
    """Of a record in a topic."""
    row = None if record.value is None else msgspec.json.decode(record.value)
    return Content(record.key, row, tuple(record.headers))
