"""Small rigs and looks into them, shared by the tests of the slot loop and its subtasks."""

from __future__ import annotations

from tests.task.fakes import ATTEMPT, FakeTotals, Row, frame_of
from tests.task.rig import Rig
from tests.task.topologies import (
    plan_of,
    shuffle_plan,
    sink_node,
    source_node,
    totals_node,
    vertex,
)
from tidegate.ids import Attempt, CheckpointId
from tidegate.task.elements import Barrier, Batch

STALE = Attempt(ATTEMPT - 1)


def batch(*rows: Row) -> Batch:
    frame = frame_of(rows)
    return Batch(frame, int(frame.estimated_size()))


def barrier(checkpoint: int, timestamp_ms: int = 1_000_000, *, final: bool = False) -> Barrier:
    return Barrier(CheckpointId(checkpoint), timestamp_ms, final)


def totals(rig: Rig, slot: int = 0) -> FakeTotals:
    operator = rig.slots[slot].operators["total"]
    assert isinstance(operator, FakeTotals)
    return operator


def one_chain() -> Rig:
    """A single slot with a source, an operator with state and a sink in one vertex."""
    chain = vertex(source_node("read", children=(1,)), totals_node("total", children=(2,)), sink_node("write"))
    return Rig(plan_of(1, [chain]), batches=lambda name, slot: [[(1, 1), (2, 2)], [(1, 3)]])


def receiver(*, exactly_once: bool = True, parallelism: int = 2) -> Rig:
    """A rig without rows: tests push what they like into the input channels of slot 0's `total` subtask."""
    return Rig(shuffle_plan(parallelism, exactly_once=exactly_once))


def turn(rig: Rig, times: int, slot: int = 0) -> None:
    for _ in range(times):
        rig.slots[slot].loop.turn()


def controls(rig: Rig, slot: int = 0) -> list[object]:
    return [event[0] for event in rig.slots[slot].trace.events]
