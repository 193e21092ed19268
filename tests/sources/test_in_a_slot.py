"""A source in its subtask: what the operators after it see of event time, and when its end is reported."""

from __future__ import annotations

from typing import Any

import polars as pl

from tests.sources.scripted import NAME, P0, P1, Scripted, order
from tests.task.fakes import ATTEMPT, VirtualClock
from tests.task.topologies import plan_of, source_node, totals_node, vertex
from tidegate.config.fields.records import Idle
from tidegate.coordinator.types import SourcePositions
from tidegate.ids import CheckpointId, OperatorName, SlotIndex, SubtaskId
from tidegate.operators.builtin.kafka_source import EventTime
from tidegate.operators.runtime import END_OF_TIME, ROWS_MAX, OperatorRuntime, Out
from tidegate.task.elements import Barrier
from tidegate.task.loop import SlotLoop
from tidegate.task.messages import Acknowledged, SlotMessage, SourceFinished, Trigger
from tidegate.task.operator_chain import Runtimes
from tidegate.task.vertex import VertexTask

AT = EventTime("at", 0)


class Witness(OperatorRuntime):
    """Notes all that it is given."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.free = ROWS_MAX

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        self.seen.append(batch["id"].to_list())

    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        self.seen.append(watermark_ms)

    def on_status(self, idle: bool, out: Out) -> None:
        self.seen.append("idle" if idle else "active")

    def before_snapshot(self) -> None:
        self.seen.append("barrier")

    @property
    def room(self) -> int:
        return self.free


class Slot:
    """A loop with one subtask: the source and the witness."""

    def __init__(self, one: Scripted) -> None:
        self.sent: list[SlotMessage] = []
        self.witness = Witness()
        self.clock = VirtualClock()
        self.loop = SlotLoop("p", ATTEMPT, self.clock, self.sent.append, lambda _: None, lambda *_: None)
        (part,) = plan_of(
            1, [vertex(source_node("orders", children=(1,)), totals_node(OperatorName("seen")))], []
        ).vertices
        self.task = VertexTask(
            part,
            SubtaskId(part.id, SlotIndex(0)),
            self.loop,
            Runtimes(one.source, {1: self.witness}),
            {},
        )
        self.loop.tasks.append(self.task)

    def settle(self) -> list[Any]:
        """What the witness sees until nothing moves."""
        while self.loop.turn() or self._due:
            pass
        seen, self.witness.seen = self.witness.seen, []
        return seen

    @property
    def _due(self) -> bool:
        deadline_ms = self.loop.next_deadline_ms
        return deadline_ms is not None and deadline_ms <= self.clock.ms

    def trigger(self, checkpoint: int, *, final: bool = False) -> None:
        barrier = Barrier(CheckpointId(checkpoint), self.clock.ms, final)
        self.loop.on_trigger(Trigger("p", ATTEMPT, barrier))

    def acked(self) -> SourcePositions:
        """The positions of the newest ack."""
        acks = [message.ack for message in self.sent if isinstance(message, Acknowledged)]
        return acks[-1].positions[0]

    @property
    def reported(self) -> list[SlotMessage]:
        """That the source has finished."""
        return [message for message in self.sent if isinstance(message, SourceFinished)]


def test_W01_W02_the_end_of_time_comes_after_the_last_rows_and_in_front_of_the_final_barrier() -> None:
    ends = SourcePositions(NAME, ((P0, 0), (P1, 0)), ((P0, 2), (P1, 0)))
    with Scripted(AT, ends, until="latest") as one:
        slot = Slot(one)
        one.client.put(P0, order(1, 100), order(2, 200))
        one.gather()
        assert slot.settle() == [[1, 2], 199, END_OF_TIME]
        assert slot.reported == [SourceFinished(NAME)]
        slot.trigger(1, final=True)
        assert slot.settle() == ["barrier"]
        assert slot.acked().watermarks == ((P0, 199),), "what is stored is by data"


def test_W02_without_room_for_the_end_of_time_nothing_is_reported() -> None:
    ends = SourcePositions(NAME, ((P0, 0),), ((P0, 0),))
    with Scripted(AT, ends, partitions=(P0,), until="latest") as one:
        slot = Slot(one)
        slot.witness.free = 0
        assert slot.settle() == []
        assert slot.reported == []
        slot.witness.free = ROWS_MAX
        assert slot.settle() == [END_OF_TIME]
        assert slot.reported == [SourceFinished(NAME)]


def test_W05_no_row_reaches_an_operator_while_the_source_is_idle() -> None:
    with Scripted(AT, partitions=(P0,)) as one:
        slot = Slot(one)
        one.client.put(P0, order(1, 100))
        one.client.end(P0)
        one.gather()
        assert slot.settle() == [[1], 99]
        one.stay()
        assert slot.settle() == ["idle"]
        one.client.put(P0, order(2, 200))
        one.gather()
        assert slot.settle() == ["active", [2], 199]


def test_F08_the_watermarks_of_a_barrier_are_those_after_the_rows_in_front_of_it() -> None:
    with Scripted(AT) as one:
        slot = Slot(one)
        one.client.put(P0, order(1, 100))
        one.gather()
        slot.settle()
        slot.trigger(1)
        one.client.put(P0, order(2, 300))
        one.gather()
        assert slot.settle() == ["barrier", [2]]
        assert slot.acked() == SourcePositions(NAME, ((P0, 1), (P1, 0)), (), ((P0, 99),), "at")
        slot.trigger(2)
        assert slot.acked() == SourcePositions(NAME, ((P0, 2), (P1, 0)), (), ((P0, 299),), "at")


def test_the_clock_moves_a_silent_source_until_its_final_barrier() -> None:
    with Scripted(EventTime("at", 0, Idle.WALL_CLOCK), partitions=(P0,)) as one:
        slot = Slot(one)
        one.client.put(P0, order(1, 100))
        one.client.end(P0)
        one.gather()
        slot.settle()
        one.stay()
        first_ms = slot.clock.ms

        def asked() -> list[Any]:
            assert slot.settle() == [], "the broker is asked first"
            one.gather()
            return slot.settle()

        assert asked() == [first_ms - 1]
        slot.clock.ms += 999
        assert asked() == []
        slot.clock.ms += 1
        assert asked() == [first_ms + 999]
        slot.trigger(1, final=True)
        slot.clock.ms += 5000
        assert slot.settle() == ["barrier"]
        assert slot.loop.next_deadline_ms is None
        assert slot.acked().watermarks == ((P0, first_ms + 999),)
