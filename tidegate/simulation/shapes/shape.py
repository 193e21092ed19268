"""The base classes of shapes, and the records that a shape expects in its output."""

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
"""The schema of records with event times of their own."""
DEAD_TOPIC: Final = "dead"
"""The topic of dead letters."""


class Content(msgspec.Struct, frozen=True):
    """The contents of an output record."""

    key: bytes | None
    row: Mapping[str, Any] | None
    """The decoded JSON value; None for a tombstone."""
    headers: Headers = ()


class Produced(msgspec.Struct, frozen=True):
    """A record that must come out exactly once."""

    topic: str
    name: Hashable
    """Unique in its topic."""
    lane: Hashable
    """Records of one lane come out in the order in which they are listed."""
    causes: frozenset[int]
    """The input records that it is made from. It comes out when the last of them is processed."""
    content: Content


class Shape:
    """One kind of pipeline: its specific settings in the file, and the form of its records."""

    inputs: ClassVar[tuple[str, ...]] = ("orders",)
    """Topics, which are also the names of the sources."""
    outputs: ClassVar[tuple[str, ...]]
    """Topics, without the dead-letter topic."""
    schema: ClassVar[Mapping[str, str]] = SCHEMA
    source: ClassVar[Mapping[str, Any]] = {}
    """Further settings of every source."""
    own: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Input -> further settings of its source."""
    steps: ClassVar[Sequence[Step]] = ()
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]]
    bad: ClassVar[Mapping[int, str]] = {}
    """Which of every seven records fail, and where; they become dead letters."""
    windowed: ClassVar[bool] = False
    """Records have event times drawn by the schedule's timing, and there are windows."""
    exactly_once: ClassVar[bool] = False
    """Requires exactly-once, because with at-least-once the output cannot be derived in advance."""
    growing: ClassVar[bool] = True
    """Its topics may get more partitions."""
    new_topics: ClassVar[bool] = False
    """Topics appear while it runs."""
    bounded: ClassVar[bool] = True
    """The pipeline may end by itself."""
    forgetful: ClassVar[bool] = False
    """Retention removes input before it is read."""

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics that the pipeline writes to."""
        return (*self.outputs, DEAD_TOPIC) if self.bad else self.outputs

    def steps_with(self, timing: Timing | None) -> Sequence[Step]:  # noqa: ARG002  # used by shapes with windows
        """Returns the steps of the file."""
        return self.steps

    def time_of(self, number: int, now_ms: int) -> int | None:  # noqa: ARG002  # used by shapes with event times
        """Returns the event time of record `number`, or None if there is none or the timing draws it."""
        return None

    def dress(self, record: InputRecord, now_ms: int) -> Record:
        """Returns the record as it is written to the topic."""
        return Record(record.customer.encode(), record.value, now_ms)


class DerivedShape(Shape):
    """A shape whose whole output is derived in advance."""

    waits: ClassVar[bool] = False
    """Rows may wait in the checkpoint after the positions have passed their records."""

    def derive(self, records: Sequence[InputRecord]) -> list[Produced]:
        """Returns everything that must come out for records in the order of their partitions."""
        raise NotImplementedError

    def count(self, records: Sequence[InputRecord], produced: Sequence[Produced]) -> Mapping[str, int]:  # noqa: ARG002  # used by shapes that count something
        """Returns what these records exercise, for the table of situations reached."""
        return {}

    def name_of(self, topic: str, content: Content) -> Hashable:  # noqa: ARG002  # used by shapes with several topics
        """Returns the name of a record, which is unique in its topic (see `Produced.name`)."""
        assert content.row is not None
        return int(content.row["id"])


def read_content(record: Record) -> Content:
    """Decodes a record of a topic."""
    row = None if record.value is None else msgspec.json.decode(record.value)
    return Content(record.key, row, tuple(record.headers))
