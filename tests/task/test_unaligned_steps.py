"""An unaligned checkpoint in one subtask, step by step (contract B09-B11, B43-B50, F13, C35, F27)."""

from __future__ import annotations

from tests.task.fakes import FakeSource, Row
from tests.task.rig import Rig
from tests.task.small_rigs import barrier, batch, totals, turn
from tests.task.topologies import edge, plan_of, shuffle_plan, sink_node, source_node, totals_node, vertex
from tidegate.coordinator.types import StateKind
from tidegate.ids import CheckpointId, VertexId
from tidegate.operators.runtime import ROWS_MAX
from tidegate.task.barriers.handler import AbortReason
from tidegate.task.elements import Barrier, Batch, CancelMarker
from tidegate.task.inflight import read_inflight

UNALIGNED = 0


class TwoRows:
    """Two rows in flight towards slot 0. Implements rig.Restored."""

    def source(self, name: str, slot: int) -> FakeSource:
        return FakeSource(name, slot)

    def rows(self, operator: str, slot: int) -> list[Row]:
        return []

    def replay(self, task: VertexId, slot: int) -> list[tuple[int, Batch]]:
        return [(0, batch((1, 1))), (0, batch((1, 2)))] if (task, slot) == ("total", 0) else []


def overtaking(checkpoint: int, after_ms: int = UNALIGNED) -> Barrier:
    return Barrier(CheckpointId(checkpoint), 1_000_000, unaligned_after_ms=after_ms)


def receiver() -> Rig:
    """Tests push what they like into the two input channels of slot 0's `total` subtask, whose sink takes nothing."""
    rig = Rig(shuffle_plan(2), unaligned=True)
    rig.slots[0].sinks["write"].free = 0
    return rig


def inflight(rig: Rig, checkpoint: int) -> dict[StateKind, list[int]]:
    """The numbers in flight that the acks of slot 0 list."""
    found: dict[StateKind, list[int]] = {}
    for ack in rig.acks(checkpoint):
        for state in ack.states:
            if state.kind is not StateKind.OPERATOR and ack.subtask.index == 0:
                pieces = read_inflight(state.path, rig.files[state.path], rig.slots[0].loop.shapes, range(128))
                found[state.kind] = [n for _, piece in pieces for n in piece.frame["n"]]
    return found


def uploaded(rig: Rig) -> None:
    while rig.upload(rig.slots[0]):
        pass
    turn(rig, 1)


def test_B43_B45_B47_a_barrier_is_passed_on_at_once_and_the_rows_ahead_of_it_are_in_the_snapshot() -> None:
    rig = receiver()
    slot = rig.slots[0]
    slot.inputs[0, 0].push(batch((1, 1)))
    slot.inputs[1, 0].push(batch((1, 2)))
    slot.inputs[0, 0].push(overtaking(1))
    assert slot.trace.events == [("capture",), ("prepare", 1)]
    slot.inputs[0, 0].push(batch((1, 3)))
    slot.inputs[1, 0].push(batch((1, 4)))
    slot.inputs[1, 0].push(overtaking(1))
    slot.inputs[1, 0].push(batch((1, 5)))
    uploaded(rig)
    assert inflight(rig, 1) == {StateKind.INPUT: [1, 2, 4]}
    assert [ack.inflight_rows for ack in rig.acks(1)] == [3]
    assert not rig.rows_in_state(1)
    slot.sinks["write"].free = ROWS_MAX
    rig.settle()
    assert sorted(n for _, n in totals(rig).seen) == [1, 2, 3, 4, 5]


def test_B45_what_a_nearly_full_sink_has_no_room_for_stays_where_the_barrier_overtakes_it() -> None:
    rig = receiver()
    slot = rig.slots[0]
    slot.inputs[0, 0].push(batch((1, 1), (1, 2), (1, 3), (1, 4), (1, 5)))
    slot.sinks["write"].free = 2
    slot.loop.turn()
    slot.inputs[0, 0].push(overtaking(1))
    slot.inputs[1, 0].push(overtaking(1))
    uploaded(rig)
    assert [n for _, n in totals(rig).seen] == [1, 2]
    assert inflight(rig, 1) == {StateKind.INPUT: [3, 4, 5]}
    rig.settle()
    assert [n for _, n in totals(rig).seen] == [1, 2, 3, 4, 5]


def test_B46_the_ack_waits_for_the_last_barrier_and_tells_how_long_that_took() -> None:
    rig = receiver()
    slot = rig.slots[0]
    slot.inputs[0, 0].push(overtaking(1))
    uploaded(rig)
    assert not rig.acks(1)
    rig.clock.ms += 400
    slot.inputs[1, 0].push(overtaking(1))
    (ack,) = rig.acks(1)
    assert (ack.alignment_ms, [state.kind for state in ack.states]) == (400, [StateKind.OPERATOR])


def test_F24_the_ack_waits_for_the_upload_of_the_rows_in_flight() -> None:
    rig = receiver()
    slot = rig.slots[0]
    slot.inputs[0, 0].push(batch((1, 1)))
    slot.inputs[0, 0].push(overtaking(1))
    slot.inputs[1, 0].push(overtaking(1))
    rig.upload(slot)
    turn(rig, 1)
    assert not rig.acks(1)
    rig.upload(slot)
    assert len(rig.acks(1)) == 1


def test_B49_an_alignment_that_takes_too_long_becomes_a_recording() -> None:
    rig = receiver()
    slot = rig.slots[0]
    slot.inputs[0, 0].push(overtaking(1, after_ms=50))
    slot.inputs[1, 0].push(batch((1, 1)))
    turn(rig, 2)
    slot.inputs[0, 0].push(batch((1, 2)))
    rig.clock.ms += 49
    turn(rig, 1)
    assert slot.trace.events == []
    assert slot.loop.next_deadline_ms == rig.clock.ms + 1
    rig.clock.ms += 1
    turn(rig, 1)
    assert slot.trace.events == [("capture",), ("prepare", 1)]
    slot.inputs[1, 0].push(overtaking(1))
    uploaded(rig)
    assert inflight(rig, 1) == {StateKind.INPUT: [1]}
    slot.sinks["write"].free = ROWS_MAX
    rig.settle()
    assert sorted(n for _, n in totals(rig).seen) == [1, 2]


def test_B49_a_source_whose_barrier_waits_to_leave_acknowledges_when_it_has_left_or_overtaken() -> None:
    rig = Rig(shuffle_plan(2), batches=lambda name, slot: [[(k, k) for k in range(20)]] if slot == 0 else [])
    slot = rig.slots[0]
    slot.loop.tasks[0].turn()
    rig.trigger(1, after_ms=50)
    slot.loop.tasks[0].turn()
    assert not [ack for ack in rig.acks(1) if ack.subtask.index == 0]
    rig.clock.ms += 50
    turn(rig, 2)
    uploaded(rig)
    (numbers,) = inflight(rig, 1).values()
    (ack,) = [ack for ack in rig.acks(1) if ack.subtask.index == 0]
    assert [state.kind for state in ack.states] == [StateKind.OUTPUT]
    assert set(numbers) < set(range(20))
    assert numbers


def test_B50_rows_in_flight_are_processed_before_anything_of_a_channel_and_are_recorded_again() -> None:
    rig = Rig(shuffle_plan(2), unaligned=True, restored=TwoRows())
    slot = rig.slots[0]
    slot.inputs[0, 0].push(barrier(1))
    slot.inputs[0, 0].push(batch((1, 3)))
    slot.inputs[1, 0].push(barrier(1))
    turn(rig, 1)
    assert [n for _, n in totals(rig).seen] == [1]
    slot.inputs[0, 0].push(overtaking(2))
    slot.inputs[1, 0].push(overtaking(2))
    assert slot.trace.events == [], "the aligned checkpoint waits for the replay, and the unaligned one for it"
    turn(rig, 3)
    uploaded(rig)
    assert rig.rows_in_state(1).total() == 2
    assert inflight(rig, 2) == {StateKind.INPUT: [3]}


def test_B50_rows_that_wait_to_be_replayed_belong_to_the_next_unaligned_checkpoint() -> None:
    rig = Rig(shuffle_plan(2), unaligned=True, restored=TwoRows())
    slot = rig.slots[0]
    turn(rig, 1)
    slot.inputs[0, 0].push(batch((1, 3)))
    for sender in (0, 1):
        slot.inputs[sender, 0].push(overtaking(1))
    uploaded(rig)
    assert inflight(rig, 1) == {StateKind.INPUT: [2, 3]}
    assert [n for _, n in sorted(rig.rows_in_state(1))] == [1]


# -- giving up ---------------------------------------------------------------------------------------------------------


def test_B09_B10_a_cancellation_during_a_recording_is_declined_with_its_reason() -> None:
    rig = receiver()
    slot = rig.slots[0]
    slot.inputs[0, 0].push(overtaking(1))
    slot.inputs[1, 0].push(CancelMarker(CheckpointId(1)))
    (decline,) = rig.declines()
    assert (decline.checkpoint, decline.reason) == (1, AbortReason.CANCELLED_UPSTREAM)
    slot.inputs[1, 0].push(overtaking(1))
    rig.settle()
    assert not rig.acks(1)


def test_B09_an_upload_that_fails_behind_a_cancellation_declines_nothing_more() -> None:
    rig = receiver()
    slot = rig.slots[0]
    slot.inputs[0, 0].push(overtaking(1))
    slot.inputs[1, 0].push(CancelMarker(CheckpointId(1)))
    rig.upload(slot, error="disk full")
    assert [each.reason for each in rig.declines()] == [AbortReason.CANCELLED_UPSTREAM]


def test_B11_leftovers_of_an_older_checkpoint_are_cancelled_before_the_new_barrier_leaves() -> None:
    plan = plan_of(
        2,
        [
            vertex(source_node("read", edges=(0,))),
            vertex(totals_node("total", edges=(1,))),
            vertex(totals_node("again", children=(1,)), sink_node("write")),
        ],
        [edge(0, "read", "total", "k"), edge(1, "total", "again", "n")],
    )
    rig = Rig(plan, unaligned=True)
    slot = rig.slots[0]
    slot.inputs[0, 0].push(overtaking(1))
    slot.trace.events.clear()
    slot.inputs[1, 0].push(overtaking(2))
    ours = [event for event in slot.trace.events if event[0] in ("CancelMarker", "barrier", "capture")]
    assert ours[:4] == [("CancelMarker", 1)] * 2 + [("barrier", 2), ("capture",)]


def test_F27_an_abandoned_recording_leaves_nothing_and_its_files_are_named_for_deletion() -> None:
    rig = receiver()
    slot = rig.slots[0]
    slot.inputs[0, 0].push(overtaking(1))
    rig.upload(slot)
    rig.abandon(1)
    assert [handle.operator for handle in rig.deleted] == ["total"]
    assert not slot.loop._pending
    assert not slot.loop.tasks[1]._recordings
    slot.inputs[1, 0].push(overtaking(1))
    rig.settle()
    assert (rig.acks(1), rig.declines()) == ([], [])
    for sender in (0, 1):
        slot.inputs[sender, 0].push(overtaking(2))
    uploaded(rig)
    assert len(rig.acks(2)) == 1


def test_B50_files_of_rows_in_flight_name_their_edges() -> None:
    """A file without them would not be read at the next restore."""
    rig = receiver()
    slot = rig.slots[0]
    slot.inputs[0, 0].push(batch((1, 1)))
    for sender in (0, 1):
        slot.inputs[sender, 0].push(overtaking(1))
    turn(rig, 1)
    assert [job.edges for job in slot.jobs if job.kind is StateKind.INPUT] == [("read -> total",)]


def test_a_failed_upload_of_rows_in_flight_declines_the_checkpoint_once() -> None:
    rig = receiver()
    slot = rig.slots[0]
    slot.inputs[0, 0].push(batch((1, 1)))
    for sender in (0, 1):
        slot.inputs[sender, 0].push(overtaking(1))
    for _ in range(2):
        rig.upload(slot, error="disk full")
    assert [(each.checkpoint, each.reason) for each in rig.declines()] == [(1, AbortReason.SNAPSHOT_FAILED)]
