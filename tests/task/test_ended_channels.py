"""A channel that has ended delivers every later barrier, so alignments complete with the others (contract B42).

A source that has read everything stays: it has sent the end of event time, and still answers each trigger with a
barrier. So a channel ends by an element in its order and not by silence, and no handler has to know of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.task.fakes import ATTEMPT, FakeSource, Row
from tests.task.rig import Rig
from tests.task.topologies import shuffle_plan
from tidegate.ids import CheckpointId, VertexId
from tidegate.task.barriers.aligner import Aligner
from tidegate.task.barriers.alternating import Alternating
from tidegate.task.barriers.tracker import Tracker
from tidegate.task.elements import Barrier, Batch
from tidegate.task.messages import Trigger

ENDING: list[list[Row]] = [[(1, 1), (2, 2)]]
GOING_ON: list[list[Row]] = [[(1, 11), (2, 12)], [(1, 13)]]
HANDLERS = {
    "aligned": (True, False, None, Aligner),
    "at least once": (False, False, None, Tracker),
    "unaligned": (True, True, 0, Alternating),
    "with a limit that has not passed": (True, True, 60_000, Alternating),
}


class OneEnds:
    """The source of slot 0 is bounded, the others are not."""

    def __init__(self, *batches: Sequence[Sequence[Row]]) -> None:
        self._batches = batches

    def source(self, name: str, slot: int) -> FakeSource:
        return FakeSource(name, slot, self._batches[slot], bounded=slot == 0)

    def rows(self, operator: str, slot: int) -> list[Row]:
        return []

    def replay(self, task: VertexId, slot: int) -> list[tuple[int, Batch]]:
        return []


def rig_of(case: str) -> tuple[Rig, int | None]:
    """Two slots whose subtasks read from both sources, with the handler of the case."""
    exactly_once, unaligned, after_ms, handler = HANDLERS[case]
    rig = Rig(shuffle_plan(2, exactly_once=exactly_once), restored=OneEnds(ENDING, GOING_ON), unaligned=unaligned)
    gates = [task.inputs for slot in rig.slots for task in slot.loop.tasks]
    assert all(type(gate.handler) is handler for gate in gates if gate is not None)
    return rig, after_ms


def trigger_at(rig: Rig, slot: int, checkpoint: int, after_ms: int | None) -> None:
    barrier = Barrier(CheckpointId(checkpoint), rig.clock.ms, unaligned_after_ms=after_ms)
    rig.slots[slot].loop.on_trigger(Trigger(rig.plan.pipeline, ATTEMPT, barrier))


@pytest.mark.parametrize("case", HANDLERS)
def test_B42_a_channel_that_has_ended_delivers_each_later_barrier(case: str) -> None:
    rig, after_ms = rig_of(case)
    rig.settle()
    assert rig.finished_sources() == ["read"]
    for checkpoint in (1, 2):
        rig.trigger(checkpoint, after_ms=after_ms)
        rig.settle()
        assert rig.is_complete(checkpoint)
        assert rig.rows_in_state(checkpoint) == Counter(row for batch in (*ENDING, *GOING_ON) for row in batch)
        rig.complete(checkpoint)
    assert rig.declines() == []


@pytest.mark.parametrize("case", HANDLERS)
def test_B42_an_alignment_during_which_a_channel_ends_completes_with_the_others(case: str) -> None:
    rig, after_ms = rig_of(case)
    source = rig.slots[0].sources["read"]
    source.batches.clear()
    source.bounded = False
    rig.settle()
    trigger_at(rig, 1, 1, after_ms)
    rig.settle()
    assert not rig.is_complete(1)
    source.batches.extend(ENDING)
    source.bounded = True
    rig.settle()
    assert rig.finished_sources() == ["read"]
    assert not rig.is_complete(1)
    trigger_at(rig, 0, 1, after_ms)
    rig.settle()
    assert rig.is_complete(1)
    assert rig.declines() == []
    assert rig.rows_before(1) == Counter(row for batch in (*ENDING, *GOING_ON) for row in batch)
