"""What a shape is."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from tidegate.simulation.model_broker.log import Record

if TYPE_CHECKING:
    from tidegate.simulation.timing import Timing
    from tidegate.simulation.workload import InputRecord

Step = Mapping[str, Any]
"""A step of a pipeline file."""

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
DEAD_TOPIC: Final = "dead"
"""Of dead letters."""


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
    causes: frozenset[int]
    """The records of the input that it is made of: it comes out when the last of them is processed."""
    content: Content


class Shape:
    """One kind of pipeline: what its file sets beyond what all files set, and what its records look like."""

    inputs: ClassVar[tuple[str, ...]] = ("orders",)
    """Topics, which are also the names of the sources."""
    outputs: ClassVar[tuple[str, ...]]
    """Topics, without that of dead letters."""
    schema: ClassVar[Mapping[str, str]] = SCHEMA
    source: ClassVar[Mapping[str, Any]] = {}
    """Further settings of each source."""
    own: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """By input further settings of its source alone."""
    steps: ClassVar[Sequence[Step]] = ()
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]]
    bad: ClassVar[Mapping[int, str]] = {}
    """Which of every seven records fail, and where; they become dead letters."""
    windowed: ClassVar[bool] = False
    """Records have event times that the schedule's timing draws, and there are windows."""
    exactly_once: ClassVar[bool] = False
    """At least once it cannot be said in advance what comes out."""
    growing: ClassVar[bool] = True
    """Its topics may get more partitions."""
    new_topics: ClassVar[bool] = False
    """Topics appear while it runs."""
    bounded: ClassVar[bool] = True
    """It may end by itself."""
    forgetful: ClassVar[bool] = False
    """Retention removes input before it was read."""

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics that it writes to."""
        return (*self.outputs, DEAD_TOPIC) if self.bad else self.outputs

    def steps_with(self, timing: Timing | None) -> Sequence[Step]:  # noqa: ARG002  # of those with windows
        """The steps of the file."""
        return self.steps

    def time_of(self, number: int, now_ms: int) -> int | None:  # noqa: ARG002  # of those with event times
        """The event time of record `number`; None where there is none, or the timing draws it."""
        return None

    def dress(self, record: InputRecord, now_ms: int) -> Record:
        """The record as it is in the topic."""
        return Record(record.customer.encode(), record.value, now_ms)


class DerivedShape(Shape):
    """A shape whose whole output is said in advance."""

    waits: ClassVar[bool] = False
    """Rows wait in the checkpoint although the progress is past their records."""

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
