"""The coordinator's abort in a slot: it reaches the handler of every subtask, whatever state that is in (C39).

Everything enters as it does in a running slot: barriers and rows through channels, the abort as a message to the loop.
"""

from __future__ import annotations

import pytest

from tests.task.fakes import ATTEMPT, FakeTotals, Row
from tests.task.rig import Rig
from tests.task.small_rigs import STALE, batch, controls, totals, turn
from tests.task.test_exactly_once import join_plan
from tests.task.topologies import shuffle_plan
from tidegate.coordinator.types import StateKind
from tidegate.ids import CheckpointId
from tidegate.operators.runtime import ROWS_MAX
from tidegate.task.elements import Barrier, CancelMarker
from tidegate.task.inflight import read_inflight
from tidegate.task.messages import Abandoned

ALIGNED, UNALIGNED = None, 0


class Receiver:
    """Slot 0 of two, whose `total` subtask has two input channels that the test fills."""

    def __init__(self, *, exactly_once: bool = True, unaligned: bool = False) -> None:
        self.rig = Rig(shuffle_plan(2, exactly_once=exactly_once), unaligned=unaligned)
        self.slot = self.rig.slots[0]

    def barrier(self, channel: int, checkpoint: int, after_ms: int | None = ALIGNED) -> None:
        barrier = Barrier(CheckpointId(checkpoint), self.rig.clock.ms, unaligned_after_ms=after_ms)
        self.slot.inputs[channel, 0].push(barrier)

    def row(self, channel: int, number: int) -> None:
        self.slot.inputs[channel, 0].push(batch((1, number)))

    def turns(self, times: int = 10) -> None:
        turn(self.rig, times)

    def abandon(self, checkpoint: int) -> None:
        self.rig.abandon_at(self.slot, checkpoint)

    @property
    def seen(self) -> list[int]:
        """Numbers of the rows that were processed, in order."""
        return [n for _, n in totals(self.rig).seen]

    @property
    def snapshots(self) -> int:
        return controls(self.rig).count("capture")

    def acknowledged(self, checkpoint: int) -> list[Row] | None:
        """The rows in the state of slot 0's part of the checkpoint; None without an ack."""
        self.rig.settle()
        acks = [ack for ack in self.rig.acks(checkpoint) if ack.subtask.vertex == "total"]
        return sorted(self.rig.rows_in_state(checkpoint)) if acks else None

    def in_flight(self, checkpoint: int) -> list[int]:
        """Numbers of the rows in flight that the ack lists."""
        states = [state for ack in self.rig.acks(checkpoint) for state in ack.states if state.kind is StateKind.INPUT]
        shapes = self.slot.loop.shapes
        pieces = [read_inflight(one.path, self.rig.files[one.path], shapes, range(128)) for one in states]
        return [n for piece in pieces for _, batch in piece for n in batch.frame["n"]]


MODES = {
    "aligner": {},
    "alternating": {"unaligned": True},
    "tracker": {"exactly_once": False},
}


@pytest.fixture(params=MODES)
def receiver(request: pytest.FixtureRequest) -> Receiver:
    """With each of the three handlers; its checkpoints are aligned where they can be."""
    return Receiver(**MODES[request.param])


# -- in every handler --------------------------------------------------------------------------------------------------


def test_C39_before_any_barrier_has_come(receiver: Receiver) -> None:
    receiver.abandon(1)
    receiver.barrier(0, 1)
    receiver.row(0, 10)
    receiver.turns()
    assert (receiver.seen, receiver.snapshots) == ([10], 0)
    receiver.barrier(1, 1)
    for channel in (0, 1):
        receiver.barrier(channel, 2)
    assert receiver.acknowledged(1) is None
    assert receiver.acknowledged(2) == [(1, 10)]


def test_C39_when_some_barriers_have_come_and_rows_wait_after_one(receiver: Receiver) -> None:
    receiver.barrier(0, 1)
    receiver.row(0, 10)
    receiver.row(0, 11)
    receiver.turns()
    receiver.abandon(1)
    receiver.turns()
    assert receiver.seen == [10, 11], "no channel is blocked for it any more"
    receiver.row(1, 20)
    receiver.barrier(1, 1)
    receiver.row(1, 21)
    receiver.turns()
    assert (receiver.seen, receiver.snapshots) == ([10, 11, 20, 21], 0)
    for channel in (0, 1):
        receiver.barrier(channel, 2)
    assert receiver.acknowledged(1) is None
    assert receiver.acknowledged(2) == [(1, 10), (1, 11), (1, 20), (1, 21)]


def test_C39_the_coordinator_knows_so_nothing_is_declined_and_nothing_cancelled(receiver: Receiver) -> None:
    receiver.barrier(0, 1)
    receiver.turns()
    receiver.abandon(1)
    receiver.barrier(1, 1)
    receiver.turns()
    assert receiver.rig.declines() == []
    assert "CancelMarker" not in controls(receiver.rig)


def test_C39_a_cancellation_that_comes_later_is_not_reported_again(receiver: Receiver) -> None:
    receiver.abandon(1)
    for channel in (0, 1):
        receiver.slot.inputs[channel, 0].push(CancelMarker(CheckpointId(1)))
    receiver.turns()
    assert receiver.rig.declines() == []


def test_C39_a_newer_one_that_is_given_up_leaves_the_older_one_alone(receiver: Receiver) -> None:
    receiver.barrier(0, 1)
    receiver.turns()
    receiver.abandon(2)
    receiver.row(1, 20)
    receiver.barrier(1, 1)
    assert receiver.acknowledged(1) == [(1, 20)]
    for channel in (0, 1):
        receiver.barrier(channel, 2)
    assert receiver.acknowledged(2) is None


def test_C39_when_it_was_snapshot_and_uploads_are_under_way(receiver: Receiver) -> None:
    for channel in (0, 1):
        receiver.barrier(channel, 1)
    receiver.turns()
    assert receiver.snapshots == 1
    receiver.abandon(1)
    assert receiver.acknowledged(1) is None
    assert totals(receiver.rig).told == [("abandoned", 1)]
    assert receiver.slot.sinks["write"].aborted_with == [1]


def test_C39_an_abort_of_another_attempt_changes_nothing(receiver: Receiver) -> None:
    receiver.barrier(0, 1)
    receiver.turns()
    receiver.slot.loop.on_abandoned(Abandoned(STALE, CheckpointId(1), "by the test"))
    receiver.barrier(1, 1)
    assert receiver.acknowledged(1) == []
    assert ATTEMPT != STALE


def test_C39_the_handlers_of_all_subtasks_of_a_slot_are_reached() -> None:
    """Two exchanges: a subtask after each of them has one barrier, and rows wait after it."""
    rig = Rig(join_plan(2))
    first = rig.slots[0]
    for index, number in ((0, 10), (2, 11)):
        first.inputs[1, index].push(Barrier(CheckpointId(1), 0))
        first.inputs[1, index].push(batch((1, number)))
    turn(rig, 5)
    total, again = (first.operators[name] for name in ("total", "again"))
    assert isinstance(total, FakeTotals)
    assert isinstance(again, FakeTotals)
    assert (total.seen, again.seen) == ([], [])
    rig.abandon_at(first, 1)
    turn(rig, 5)
    assert (1, 10) in total.seen
    assert (1, 11) in again.seen


# -- an alignment ------------------------------------------------------------------------------------------------------


def test_C39_of_two_alignments_the_running_one_is_given_up_and_the_next_one_completes() -> None:
    receiver = Receiver()
    receiver.barrier(0, 1)
    receiver.row(0, 10)
    receiver.barrier(0, 2)
    receiver.row(0, 30)
    receiver.turns()
    receiver.abandon(1)
    receiver.turns()
    assert receiver.seen == [10], "the channel waits again: for checkpoint 2"
    receiver.row(1, 20)
    receiver.barrier(1, 1)
    receiver.barrier(1, 2)
    assert receiver.acknowledged(2) == [(1, 10), (1, 20)]
    assert receiver.seen == [10, 20, 30]


# -- recordings and limits ---------------------------------------------------------------------------------------------


def test_C39_a_recording_is_dropped_and_the_rows_are_processed_all_the_same() -> None:
    receiver = Receiver(unaligned=True)
    receiver.slot.sinks["write"].free = 0
    receiver.row(0, 10)
    receiver.barrier(0, 1, UNALIGNED)
    receiver.row(1, 20)
    receiver.abandon(1)
    receiver.row(1, 21)
    receiver.barrier(1, 1, UNALIGNED)
    receiver.slot.sinks["write"].free = ROWS_MAX
    assert receiver.acknowledged(1) is None
    assert (sorted(receiver.seen), receiver.rig.files) == ([10, 20, 21], {})


def test_C39_of_two_recordings_the_other_one_loses_nothing() -> None:
    receiver = Receiver(unaligned=True)
    receiver.slot.sinks["write"].free = 0
    receiver.barrier(0, 1, UNALIGNED)
    receiver.barrier(0, 2, UNALIGNED)
    receiver.row(1, 20)
    receiver.abandon(1)
    receiver.row(1, 21)
    receiver.barrier(1, 1, UNALIGNED)
    receiver.row(1, 22)
    receiver.barrier(1, 2, UNALIGNED)
    assert receiver.acknowledged(1) is None
    assert receiver.acknowledged(2) == []
    assert receiver.in_flight(2) == [20, 21, 22]


def test_C39_who_waited_for_a_limit_waits_no_more() -> None:
    receiver = Receiver(unaligned=True)
    receiver.barrier(0, 1, 50)
    receiver.row(0, 10)
    receiver.turns()
    before = receiver.slot.loop.next_deadline_ms
    receiver.abandon(1)
    assert (before, receiver.slot.loop.next_deadline_ms) == (receiver.rig.clock.ms + 50, None)
    receiver.rig.clock.ms += 60
    receiver.turns()
    assert (receiver.seen, receiver.snapshots) == ([10], 0)


def test_C39_an_unaligned_one_that_waited_for_an_aligned_one_goes_on_at_once() -> None:
    receiver = Receiver(unaligned=True)
    receiver.barrier(0, 1, ALIGNED)
    receiver.turns()
    receiver.row(0, 10)
    receiver.barrier(0, 2, UNALIGNED)
    before = receiver.snapshots
    receiver.abandon(1)
    receiver.turns(1)
    assert (before, receiver.snapshots) == (0, 1)
    receiver.barrier(1, 1, ALIGNED)
    receiver.barrier(1, 2, UNALIGNED)
    assert receiver.acknowledged(2) is not None


def test_C39_a_barrier_that_waits_to_leave_holds_nothing_back_any_more() -> None:
    """At the sender: its limit no longer counts, and a later barrier overtakes what lies there."""
    rig = Rig(shuffle_plan(2), batches=lambda name, slot: [[(k, k) for k in range(20)]] if slot == 0 else [])
    first = rig.slots[0]
    first.loop.tasks[0].turn()
    rig.trigger(1, after_ms=50)
    rig.abandon(1)
    assert first.loop.next_deadline_ms is None
    assert [output.next_deadline_ms for output in first.remote.values()] == [None]
    rig.trigger(2, after_ms=UNALIGNED)
    rig.settle()
    acks = [ack for ack in rig.acks(2) if (ack.subtask.vertex, ack.subtask.index) == ("read", 0)]
    assert [state.kind for ack in acks for state in ack.states] == [StateKind.OUTPUT]
    assert rig.acks(1) == []
