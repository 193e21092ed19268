"""The base classes of shapes, and the records that a shape expects in its output."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
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
LATE_TOPIC: Final = "late"
"""The topic of late rows, if there is one."""
TURN_S: Final = 6.0
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
    letters: ClassVar[bool] = False
    """Rows may become dead letters although their records are not bad."""
    retry: ClassVar[str] = ""
    """The input that is the retry topic of dead letters; it has no source in the file."""

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics that the pipeline writes to."""
        return (*self.outputs, DEAD_TOPIC) if self.bad or self.letters else self.outputs

    def steps_with(self, timing: Timing | None) -> Sequence[Step]:  # noqa: ARG002  # used by shapes with windows
        """Returns the steps of the file."""
        return self.steps

    def event_time_with(self, timing: Timing) -> Mapping[str, Any]:
        """Returns the event time of its sources."""
        idle: Any = {"advance": "wall-clock"} if timing.by_clock else timing.idle
        return {"event_time": "at", "watermark": {"delay": f"{timing.delay_ms}ms", "idle": idle}}

    def time_of(self, number: int, now_ms: int) -> int | None:  # noqa: ARG002  # used by shapes with event times
        """Returns the event time of record `number`, or None if there is none or the timing draws it."""
        return None

    def dress(self, record: InputRecord, now_ms: int) -> Record:
        """Returns the record as it is written to the topic."""
        return Record(record.customer.encode(), record.value, now_ms)

    def choose_inputs(self, topics: Sequence[str], now_s: float, timing: Timing | None) -> Sequence[str]:  # noqa: ARG002  # used by shapes with two inputs
        """Returns the topics that receive records now."""
        return topics


class ContentShape(Shape):
    """A shape whose output is compared record by record."""

    def name_of(self, topic: str, content: Content) -> Hashable:  # noqa: ARG002  # used by shapes with several topics
        """Returns the name of a record, which is unique in its topic (see `Produced.name`)."""
        assert content.row is not None
        return int(content.row["id"])


class DerivedShape(ContentShape):
    """A shape whose whole output is derived in advance."""

    waits: ClassVar[bool] = False
    """Rows may wait in the checkpoint after the positions have passed their records."""

    def derive(self, records: Sequence[InputRecord]) -> list[Produced]:
        """Returns everything that must come out for records in the order of their partitions."""
        raise NotImplementedError

    def count(self, records: Sequence[InputRecord], produced: Sequence[Produced]) -> Mapping[str, int]:  # noqa: ARG002  # used by shapes that count something
        """Returns what these records exercise, for the table of situations reached."""
        return {}


class Expected(msgspec.Struct, frozen=True):
    """A record that comes out once, unless a record that it depends on is late."""

    topic: str
    name: Hashable
    """Unique in its topic. If a shape repeats its records, the number of the repetition follows."""
    causes: frozenset[int]
    """The input records that it is made from."""
    due_ms: int | None
    """The time that the watermark must have reached; None if it comes out with the last of its causes."""
    content: Content
    any_of: frozenset[int] = frozenset()
    """Further input records, of which one is enough."""

    def is_made_from(self, done: AbstractSet[int]) -> bool:
        """Returns whether these input records are enough for it."""
        return self.causes <= done and (not self.any_of or not self.any_of.isdisjoint(done))


class OnTimeShape(ContentShape):
    """A shape whose output follows from the records that are not late, whatever the order of their arrival.

    Late records come out in a topic of their own, which shows how the pipeline has decided where both is right.
    `simulation/on_time.py` judges them.
    """

    windowed = True
    exactly_once = True
    growing = False
    bounded = False
    repeats: ClassVar[bool] = False
    """Records with the same content come out several times."""
    ordered: ClassVar[bool] = False
    """Records of a key come out in the order of the times for which they wait."""

    by_arrival: ClassVar[bool] = False
    """A step gives rows their event time, so that its watermark compares them in the order of their arrival."""

    def derive(self, records: Sequence[InputRecord], timing: Timing) -> list[Expected]:
        """Returns what comes out if exactly these records are not late."""
        raise NotImplementedError

    def accepted_until(self, record: InputRecord, timing: Timing) -> int:  # noqa: ARG002  # used by shapes with windows
        """Returns the watermark from which on the record is late."""
        assert record.at is not None
        return record.at

    def due_of(self, content: Content, records: Sequence[InputRecord], timing: Timing) -> int | None:  # noqa: ARG002  # used by shapes whose rows wait
        """Returns the earliest watermark with which a row may come out; None if it does not wait for one."""
        return None

    def causes_of(self, content: Content) -> tuple[int, ...]:  # noqa: ARG002  # used by shapes whose rows have records
        """Returns the records that a row names."""
        return ()

    def is_kept(self, record: InputRecord) -> bool:  # noqa: ARG002  # used by shapes with NULL keys
        """Returns False for a record that the pipeline may drop before anything compares it with a watermark."""
        return True

    def read_late(self, row: Mapping[str, Any]) -> int:
        """Returns the record that a late row is."""
        return int(row["id"])


def alternate(topics: Sequence[str], now_s: float) -> Sequence[str]:
    """Returns the topics that receive records now, if they become silent in turn, for long enough to be idle."""
    moment_s = now_s % TURN_S
    first, *others = topics
    return next(
        chosen
        for until_s, chosen in ((1.5, topics), (3.2, (first,)), (3.7, others), (4.4, topics), (TURN_S, others))
        if moment_s < until_s
    )


def read_content(record: Record) -> Content:
    """Decodes a record of a topic."""
    row = None if record.value is None else msgspec.json.decode(record.value)
    return Content(record.key, row, tuple(record.headers))
