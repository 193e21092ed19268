"""One subtask step by step: its barriers, channels and tree of operators (contract B01-B11, F07-F26)."""

from __future__ import annotations

import msgspec
import polars as pl
import pytest

from tests.task.fakes import ATTEMPT, FakeFilter, frame_of
from tests.task.rig import Rig
from tests.task.small_rigs import barrier, batch, controls, one_chain, receiver, totals, turn
from tests.task.topologies import (
    edge,
    filter_node,
    parallel_plan,
    plan_of,
    shuffle_plan,
    sink_node,
    source_node,
    totals_node,
    vertex,
)
from tidegate.formats.record_parts import CARRIED_HEADERS
from tidegate.ids import SlotIndex, SubtaskId, VertexId
from tidegate.operators.spec import Requirement
from tidegate.task.channels import InputChannel, LocalOutput
from tidegate.task.elements import Barrier, Batch
from tidegate.task.outputs import EdgeOutput

# -- the step of a barrier ---------------------------------------------------------------------------------------------


def test_B11_C33_barrier_then_snapshot_then_prepare_then_ack() -> None:
    plan = plan_of(
        1,
        [
            vertex(source_node("read", edges=(0,))),
            vertex(totals_node("total", children=(1,), edges=(1,)), sink_node("write")),
            vertex(totals_node("again", children=(1,)), sink_node("copy")),
        ],
        [edge(0, "read", "total"), edge(1, "total", "again")],
    )
    rig = Rig(plan)
    slot = rig.slots[0]
    slot.inputs[0, 0].push(barrier(4))
    slot.loop.turn()
    assert slot.trace.events == [("barrier", 4), ("capture",), ("prepare", 4)]
    assert not rig.acks(4)
    rig.upload(slot)
    (ack,) = rig.acks(4)
    assert ack.subtask.vertex == "total"


def test_B11_leftovers_of_an_older_checkpoint_are_cancelled_before_the_new_barrier_leaves() -> None:
    rig = Rig(
        plan_of(
            2,
            [
                vertex(source_node("read", edges=(0,))),
                vertex(totals_node("total", edges=(1,))),
                vertex(totals_node("again", children=(1,)), sink_node("write")),
            ],
            [edge(0, "read", "total", "k"), edge(1, "total", "again")],
        )
    )
    slot = rig.slots[0]
    slot.inputs[0, 0].push(barrier(1))
    slot.inputs[1, 0].push(barrier(2))
    slot.inputs[0, 0].push(barrier(2))
    turn(rig, 3)
    assert slot.trace.events[:3] == [("CancelMarker", 1), ("barrier", 2), ("capture",)]


def test_F14_rows_before_the_barrier_leave_before_it_and_rows_behind_it_after_it() -> None:
    rig = Rig(parallel_plan(1), batches=lambda name, slot: [[(1, 1)], [(1, 2)]])
    slot = rig.slots[0]
    source_task = slot.loop.tasks[0]
    source_task.turn()
    rig.trigger(1)
    source_task.turn()
    elements = [slot.inputs[0, 0].pop() for _ in range(3)]
    assert [type(element) for element in elements] == [Batch, Barrier, Batch]


def test_F08_the_position_at_the_barrier_is_acknowledged() -> None:
    rig = Rig(shuffle_plan(1), batches=lambda name, slot: [[(1, 1), (1, 2)], [(1, 3)]])
    turn(rig, 1)
    rig.trigger(1)
    turn(rig, 1)
    (ack,) = [ack for ack in rig.acks(1) if ack.positions]
    assert ack.subtask == SubtaskId(VertexId("read"), SlotIndex(0))
    assert [offset for _, offset in ack.positions[0].next_offsets] == [2]


def _gathering() -> Rig:
    rig = Rig(shuffle_plan(1), batches=lambda name, slot: [[(1, 1), (1, 2)], [(1, 3)]])
    for source in rig.slots[0].sources.values():
        source.gathers = True
    turn(rig, 3)
    return rig


def test_F08_F14_a_barrier_takes_the_batch_that_gathers_and_stands_behind_it() -> None:
    rig = _gathering()
    rig.trigger(1)
    elements = [rig.slots[0].inputs[0, 0].pop() for _ in range(2)]
    assert [type(element) for element in elements] == [Batch, Barrier]
    rig.trigger(2)
    offsets = [ack.positions[0].next_offsets[0][1] for number in (1, 2) for ack in rig.acks(number) if ack.positions]
    assert offsets == [2, 3]


def test_a_barrier_takes_nothing_from_a_source_on_hold_nor_does_a_final_one() -> None:
    rig = _gathering()
    rig.hold("read")
    rig.trigger(1)
    rig.hold()
    rig.trigger(2, final=True)
    offsets = [ack.positions[0].next_offsets[0][1] for number in (1, 2) for ack in rig.acks(number) if ack.positions]
    assert offsets == [0, 0]


def test_C28_C36_one_ack_of_a_chain_carries_positions_states_and_committables() -> None:
    rig = one_chain()
    turn(rig, 1)
    rig.trigger(1)
    rig.settle()
    (ack,) = rig.acks(1)
    assert (ack.attempt, ack.checkpoint, ack.subtask) == (ATTEMPT, 1, SubtaskId(VertexId("read"), SlotIndex(0)))
    assert [positions.source for positions in ack.positions] == ["read"]
    assert [state.operator for state in ack.states] == ["total"]
    assert [committable.sink for committable in ack.committables] == ["write"]
    assert (ack.upload_ms, ack.prepare_ms) == (7.0, 2.5)
    assert (ack.written_bytes, ack.inflight_rows) == (len("[[1,1],[2,2]]"), 0)


def test_F26_a_subtask_without_state_and_sinks_acknowledges_at_once() -> None:
    rig = receiver(parallelism=1)
    rig.trigger(1)
    (ack,) = rig.acks(1)
    assert (ack.subtask.vertex, ack.states, ack.committables, ack.alignment_ms) == ("read", (), (), 0)


def test_C30_F24_the_ack_waits_for_the_upload() -> None:
    rig = one_chain()
    rig.trigger(1)
    rig.settle(uploads=False)
    assert not rig.acks(1)
    rig.upload(rig.slots[0])
    assert len(rig.acks(1)) == 1


def test_F24_the_ack_waits_for_the_prepare_of_the_sink() -> None:
    rig = one_chain()
    sink = rig.slots[0].sinks["write"]
    sink.holds_prepares = True
    rig.trigger(1)
    rig.settle()
    assert not rig.acks(1)
    sink.holds_prepares = False
    turn(rig, 1)
    assert len(rig.acks(1)) == 1


def test_F23_the_captured_state_does_not_see_later_rows() -> None:
    rig = one_chain()
    turn(rig, 1)
    rig.trigger(1)
    rig.settle(uploads=False)
    assert [n for _, n in totals(rig).seen] == [1, 2, 3]
    rig.upload(rig.slots[0])
    assert sorted(rig.rows_in_state(1)) == [(1, 1), (2, 2)]


def test_F07_two_checkpoints_may_be_uploading_at_the_same_time() -> None:
    rig = one_chain()
    for checkpoint in (1, 2):
        rig.trigger(checkpoint)
        rig.settle(uploads=False)
    slot = rig.slots[0]
    slot.jobs.reverse()
    rig.upload(slot)
    assert (len(rig.acks(1)), len(rig.acks(2))) == (0, 1)
    rig.upload(slot)
    assert len(rig.acks(1)) == 1


def test_B07_the_ack_tells_start_delay_and_alignment() -> None:
    rig = receiver()
    slot = rig.slots[0]
    slot.inputs[0, 0].push(barrier(1, timestamp_ms=rig.clock.ms))
    rig.clock.ms += 30
    turn(rig, 1)
    rig.clock.ms += 200
    slot.inputs[1, 0].push(barrier(1, timestamp_ms=rig.clock.ms - 230))
    turn(rig, 1)
    rig.upload(slot)
    (ack,) = rig.acks(1)
    assert (ack.start_delay_ms, ack.alignment_ms) == (30, 200)


# -- alignment in a subtask --------------------------------------------------------------------------------------------


def test_B01_F13_a_blocked_channel_is_left_alone_and_the_others_go_on() -> None:
    rig = receiver()
    slot = rig.slots[0]
    slot.inputs[0, 0].push(barrier(1))
    slot.inputs[0, 0].push(batch((1, 100)))
    slot.inputs[1, 0].push(batch((1, 1)))
    slot.inputs[1, 0].push(batch((1, 2)))
    turn(rig, 10)
    assert [n for _, n in totals(rig).seen] == [1, 2]
    assert len(slot.inputs[0, 0]) == 1


def test_F14_buffered_rows_follow_in_their_order_when_the_alignment_ends() -> None:
    rig = receiver()
    slot = rig.slots[0]
    slot.inputs[0, 0].push(barrier(1))
    for number in (100, 101):
        slot.inputs[0, 0].push(batch((1, number)))
    turn(rig, 3)
    slot.inputs[1, 0].push(barrier(1))
    turn(rig, 3)
    assert [n for _, n in totals(rig).seen] == [100, 101]
    rig.upload(slot)
    assert not rig.rows_in_state(1)


def test_B14_F19_at_least_once_processes_rows_behind_a_barrier_at_once() -> None:
    rig = receiver(exactly_once=False)
    slot = rig.slots[0]
    slot.inputs[0, 0].push(barrier(1))
    slot.inputs[0, 0].push(batch((1, 100)))
    turn(rig, 2)
    assert [n for _, n in totals(rig).seen] == [100]
    slot.inputs[1, 0].push(barrier(1))
    turn(rig, 1)
    rig.upload(slot)
    assert sorted(rig.rows_in_state(1)) == [(1, 100)]


def test_F10_a_sink_prepares_only_when_every_input_has_delivered_the_barrier() -> None:
    rig = receiver(parallelism=3)
    slot = rig.slots[0]
    for sender in (2, 0, 1):
        assert "prepare" not in controls(rig)
        slot.inputs[sender, 0].push(barrier(1))
        turn(rig, 2)
    assert controls(rig).count("prepare") == 1


def test_F21_a_subtask_with_one_input_never_aligns() -> None:
    rig = Rig(parallel_plan(1))
    slot = rig.slots[0]
    for element in (barrier(1), batch((1, 1)), barrier(2)):
        slot.inputs[0, 0].push(element)
    turn(rig, 3)
    rig.settle()
    assert [ack.alignment_ms for ack in (*rig.acks(1), *rig.acks(2))] == [0, 0]


def test_channels_take_turns() -> None:
    rig = receiver(parallelism=3)
    slot = rig.slots[0]
    for sender in range(3):
        for number in range(2):
            slot.inputs[sender, 0].push(batch((1, 10 * sender + number)))
    turn(rig, 6)
    assert [n for _, n in totals(rig).seen] == [0, 10, 20, 1, 11, 21]


# -- the tree of operators ---------------------------------------------------------------------------------------------


def test_rows_reach_every_way_out_of_a_vertex() -> None:
    plan = plan_of(
        1,
        [
            vertex(
                source_node("read", children=(1, 2, 4)),
                filter_node("odd", children=(3,)),
                totals_node("total"),
                sink_node("write"),
                sink_node("copy"),
            )
        ],
    )
    rig = Rig(plan, batches=lambda n, s: [[(1, 1), (1, 2)]], operators={"odd": lambda: FakeFilter(unwanted=[2])})
    rig.settle()
    slot = rig.slots[0]
    assert (slot.sinks["write"].open, slot.sinks["copy"].open) == ([(1, 1)], [(1, 1), (1, 2)])
    assert totals(rig).seen == [(1, 1), (1, 2)]
    rig.trigger(1)
    rig.settle()
    (ack,) = rig.acks(1)
    assert {committable.sink for committable in ack.committables} == {"write", "copy"}


def test_a_filter_that_keeps_nothing_sends_nothing() -> None:
    rig = Rig(
        parallel_plan(1),
        batches=lambda name, slot: [[(1, 1)]],
        operators={"pass": lambda: FakeFilter(unwanted=[1])},
    )
    turn(rig, 1)
    assert len(rig.slots[0].inputs[0, 0]) == 0


def test_an_edge_carries_its_columns_and_the_engines_own() -> None:
    rig = Rig(parallel_plan(1), batches=lambda name, slot: [[(1, 1)]])
    turn(rig, 1)
    element = rig.slots[0].inputs[0, 0].pop()
    assert isinstance(element, Batch)
    assert element.frame.columns == ["k", "n", "__tidegate_partition", "__tidegate_offset"]


@pytest.mark.parametrize("headers", [True, False])
def test_an_edge_carries_the_headers_of_records_where_they_are_kept(headers: bool) -> None:
    channel = InputChannel()
    one = msgspec.structs.replace(edge(0, "read", "write"), carries=(Requirement.HEADERS,) if headers else ())
    output = EdgeOutput(one, [LocalOutput(channel)], 128)
    output.emit(frame_of([(1, 1)]).with_columns(pl.lit(None).alias(CARRIED_HEADERS)))
    element = channel.pop()
    assert isinstance(element, Batch)
    assert element.frame.columns == ["k", "n", *([CARRIED_HEADERS] if headers else [])]


def test_B03_a_subtask_without_input_has_nothing_to_do() -> None:
    rig = receiver()
    assert not rig.slots[0].loop.tasks[1].turn()


def test_B06_channels_of_all_inputs_align_together() -> None:
    plan = plan_of(
        2,
        [
            vertex(source_node("read", edges=(0,))),
            vertex(source_node("second", edges=(1,))),
            vertex(totals_node("total", children=(1,)), sink_node("write")),
        ],
        [edge(0, "read", "total", "k"), edge(1, "second", "total", "k")],
    )
    rig = Rig(plan)
    slot = rig.slots[0]
    for sender, index in [(0, 0), (1, 0), (0, 1)]:
        slot.inputs[sender, index].push(barrier(1))
    turn(rig, 10)
    assert controls(rig) == []
    slot.inputs[1, 1].push(barrier(1))
    turn(rig, 1)
    assert controls(rig) == ["capture", "prepare"]


def test_F06_rows_belong_to_the_checkpoint_whose_barrier_follows_them() -> None:
    rig = receiver(parallelism=1)
    slot = rig.slots[0]
    for element in (batch((1, 1)), barrier(1), batch((1, 2)), barrier(2)):
        slot.inputs[0, 0].push(element)
    turn(rig, 4)
    rig.settle()
    assert list(slot.sinks["write"].transactions.values()) == [[(1, 1)], [(1, 2)]]
    assert [sorted(rig.rows_in_state(checkpoint)) for checkpoint in (1, 2)] == [[(1, 1)], [(1, 1), (1, 2)]]


def test_F25_a_snapshot_is_a_job_whose_synchronous_part_is_done() -> None:
    rig = one_chain()
    slot = rig.slots[0]
    turn(rig, 1)
    rig.trigger(1)
    (job,) = slot.jobs
    assert (job.subtask.vertex, job.checkpoint, job.operator) == ("read", 1, "total")
    assert list(job.encode()) == [b"[[1,1],[2,2]]"]
    assert slot.loop.turn()


@pytest.mark.slow
def test_tiny_batches_cannot_fill_a_local_channel_without_bound() -> None:
    rig = Rig(parallel_plan(1), batches=lambda name, slot: [[(1, n)] for n in range(5000)])
    slot = rig.slots[0]
    slot.sinks["write"].free = 0
    rig.settle()
    assert 1000 < len(slot.inputs[0, 0]) < 2100
