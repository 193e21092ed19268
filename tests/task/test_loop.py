"""The slot loop step by step: giving up, committables, sources, backpressure (contract B09, B10, C12, C37, F16)."""

from __future__ import annotations

import pytest

from tests.coordinator.values import handle
from tests.task.fakes import ATTEMPT, VirtualClock
from tests.task.rig import Rig
from tests.task.small_rigs import STALE, barrier, batch, controls, one_chain, receiver, totals, turn
from tests.task.topologies import (
    edge,
    parallel_plan,
    plan_of,
    shuffle_plan,
    sink_node,
    source_node,
    totals_node,
    vertex,
)
from tidegate.coordinator.types import StateHandle
from tidegate.errors import AttemptFailed
from tidegate.ids import Attempt, CheckpointId, OperatorName, TopicPartition
from tidegate.operators.runtime import ROWS_MAX
from tidegate.task.barriers.handler import AbortReason
from tidegate.task.channels import CREDIT_BYTES
from tidegate.task.elements import CancelMarker
from tidegate.task.loop import Uploaded
from tidegate.task.messages import Acknowledged, AddPartitions, Declined, Trigger, decode_slot_message, encode_message

# -- giving up ---------------------------------------------------------------------------------------------------------


def test_B02_B09_a_cancellation_is_declined_and_sent_on_once() -> None:
    plan = plan_of(
        2,
        [
            vertex(source_node("read", edges=(0,))),
            vertex(totals_node("total", edges=(1,))),
            vertex(totals_node("again", children=(1,)), sink_node("write")),
        ],
        [edge(0, "read", "total", "k"), edge(1, "total", "again", "n")],
    )
    rig = Rig(plan)
    slot = rig.slots[0]
    for sender in (0, 1):
        slot.inputs[sender, 0].push(CancelMarker(CheckpointId(3)))
    slot.loop.tasks[1].turn()
    slot.loop.tasks[1].turn()
    assert slot.trace.events == [("CancelMarker", 3)] * 2  # one for each subtask downstream
    (decline,) = rig.declines()
    assert (decline.subtask.vertex, decline.checkpoint, decline.attempt) == ("total", 3, ATTEMPT)
    assert decline.reason == AbortReason.CANCELLED_UPSTREAM


def test_B10_B30_a_subsumed_checkpoint_is_declined_with_its_own_reason() -> None:
    rig = receiver()
    slot = rig.slots[0]
    slot.inputs[0, 0].push(barrier(1))
    slot.inputs[1, 0].push(barrier(2))
    turn(rig, 2)
    (decline,) = rig.declines()
    assert (decline.checkpoint, decline.reason) == (1, AbortReason.SUBSUMED)


def test_a_failed_upload_declines_its_checkpoint_and_drops_its_other_parts() -> None:
    rig = one_chain()
    slot = rig.slots[0]
    slot.sinks["write"].holds_prepares = True
    rig.trigger(1)
    rig.upload(slot, error="disk full")
    (decline,) = rig.declines()
    assert (decline.checkpoint, decline.reason, decline.detail) == (1, AbortReason.SNAPSHOT_FAILED, "disk full")
    slot.sinks["write"].holds_prepares = False
    rig.settle()
    assert not rig.acks(1)
    rig.abandon(1)
    assert not slot.loop._pending
    rig.trigger(2)
    rig.settle()
    assert len(rig.acks(2)) == 1


def test_B13_a_sink_that_answers_a_newer_checkpoint_first_ends_the_attempt() -> None:
    """Its ack would complete without the transaction of the older one, whose rows the state has counted."""
    rig = one_chain()
    sink = rig.slots[0].sinks["write"]
    sink.holds_prepares = True
    rig.trigger(1)
    rig.trigger(2)
    rig.settle()
    sink._finished.reverse()
    sink.holds_prepares = False
    with pytest.raises(AttemptFailed, match="answered checkpoint 2 before checkpoint 1"):
        rig.settle()
    assert not rig.acks(2)


def test_an_abandoned_checkpoint_is_never_acknowledged_and_the_next_one_is() -> None:
    rig = one_chain()
    rig.trigger(1)
    rig.abandon(1)
    rig.settle()
    assert not rig.acks(1)
    assert rig.slots[0].sinks["write"].aborted_with == [1]
    rig.trigger(2)
    rig.settle()
    assert len(rig.acks(2)) == 1


@pytest.mark.parametrize("before", [(), (handle(1),)])
def test_F28_the_upload_of_an_increment_is_known_as_one(before: tuple[StateHandle, ...]) -> None:
    """Read as a whole snapshot, it would be all that is left of the state."""
    rig = receiver()
    totals(rig).builds_on = before
    for sender in (0, 1):
        rig.slots[0].inputs[sender, 0].push(barrier(2))
    turn(rig, 2)
    assert [job.increment for job in rig.slots[0].jobs] == [bool(before)]


def test_a_barrier_is_taken_although_there_is_no_room_for_the_rows_of_another_channel() -> None:
    rig = receiver()
    slot = rig.slots[0]
    slot.sinks["write"].free = 0
    slot.inputs[0, 0].push(batch((1, 1)))
    slot.inputs[1, 0].push(barrier(1))
    turn(rig, 2)
    assert [len(slot.inputs[sender, 0]) for sender in (0, 1)] == [1, 0]


def test_abandoning_releases_the_channels_that_wait_for_it() -> None:
    rig = receiver()
    slot = rig.slots[0]
    slot.inputs[0, 0].push(barrier(1))
    slot.inputs[0, 0].push(batch((1, 1)))
    turn(rig, 2)
    assert not totals(rig).seen
    rig.abandon(1)
    turn(rig, 1)
    assert [n for _, n in totals(rig).seen] == [1]


def test_an_upload_that_ends_after_its_checkpoint_was_abandoned_is_ignored() -> None:
    rig = one_chain()
    slot = rig.slots[0]
    rig.trigger(1)
    rig.settle(uploads=False)
    (job,) = slot.jobs
    rig.abandon(1)
    slot.loop.on_uploaded(Uploaded(job.subtask, job.checkpoint, (), "cancelled", 0.0))
    assert not rig.declines()


# -- committables ------------------------------------------------------------------------------------------------------


def producers(rig: Rig, checkpoint: int) -> list[int]:
    (ack,) = [ack for ack in rig.acks(checkpoint) if ack.committables]
    return [committable.producer_id for committable in ack.committables]


def test_every_ack_repeats_the_committables_that_no_completion_has_confirmed() -> None:
    rig = one_chain()
    for checkpoint in (1, 2):
        rig.trigger(checkpoint)
        rig.settle()
    rig.complete(2, "p.write.0.0")
    rig.trigger(3)
    rig.settle()
    assert [producers(rig, checkpoint) for checkpoint in (1, 2, 3)] == [[0], [0, 1], [2]]
    assert rig.slots[0].sinks["write"].completed_with == [(2, frozenset({"p.write.0.0"}))]


def test_the_committables_of_an_abandoned_checkpoint_go_with_the_next() -> None:
    rig = one_chain()
    rig.trigger(1)
    rig.abandon(1)
    rig.trigger(2)
    rig.settle()
    assert producers(rig, 2) == [0, 1]


def test_F16_an_ack_does_not_carry_the_transaction_of_a_later_interval() -> None:
    rig = one_chain()
    sink = rig.slots[0].sinks["write"]
    sink.holds_prepares = True
    for checkpoint in (1, 2):
        rig.trigger(checkpoint)
        rig.settle()
    sink.holds_prepares = False
    rig.settle()
    assert [producers(rig, checkpoint) for checkpoint in (1, 2)] == [[0], [0, 1]]


# -- stale attempts ----------------------------------------------------------------------------------------------------


def test_C37_messages_of_another_attempt_are_ignored() -> None:
    rig = one_chain()
    rig.trigger(1)
    rig.trigger(9, attempt=STALE)
    rig.abandon(1, attempt=STALE)
    rig.complete(1, attempt=STALE)
    rig.settle()
    sink = rig.slots[0].sinks["write"]
    assert (len(rig.acks(1)), rig.acks(9)) == (1, [])
    assert (sink.aborted_with, sink.completed_with) == ([], [])


@pytest.mark.parametrize(
    ("pipeline", "attempt", "checkpoint", "why"),
    [
        ("another", ATTEMPT, 3, "it is of pipeline another, and this slot works for p"),
        ("p", STALE, 3, f"it is of attempt {STALE}, and this is attempt {ATTEMPT}"),
        ("p", Attempt(ATTEMPT + 1), 3, f"it is of attempt {ATTEMPT + 1}, and this is attempt {ATTEMPT}"),
        ("p", ATTEMPT, 2, "checkpoint 2 was triggered before it, and ids only grow"),
        ("p", ATTEMPT, 1, "checkpoint 2 was triggered before it, and ids only grow"),
    ],
)
def test_C37_C40_a_trigger_that_is_not_the_next_of_this_attempt_is_ignored_and_logged(
    pipeline: str, attempt: Attempt, checkpoint: int, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = one_chain()
    loop, sink = rig.slots[0].loop, rig.slots[0].sinks["write"]
    rig.trigger(2)
    rig.settle()
    loop.on_trigger(Trigger(pipeline, attempt, barrier(checkpoint)))
    rig.settle()
    (record,) = caplog.records
    assert (record.levelname, record.message) == ("WARNING", f"trigger of checkpoint {checkpoint} is ignored: {why}")
    assert (len(rig.acks(2)), len(sink.transactions)) == (1, 1), "nothing was snapshot or prepared for it"
    loop.on_trigger(Trigger("p", ATTEMPT, barrier(3)))
    rig.settle()
    assert len(rig.acks(3)) == 1, "what is ignored does not count as triggered"


# -- sources -----------------------------------------------------------------------------------------------------------


def test_C12_only_sources_are_triggered() -> None:
    rig = receiver()
    rig.trigger(1)
    assert {ack.subtask.vertex for ack in rig.acks(1)} == {"read"}
    assert "capture" not in controls(rig)


def test_behind_a_final_barrier_a_source_returns_no_more_rows() -> None:
    rig = one_chain()
    source = rig.slots[0].sources["read"]
    turn(rig, 1)
    rig.trigger(1, final=True)
    polls = source.polls
    rig.settle()
    assert (source.polls, source.returned) == (polls, [(1, 1), (2, 2)])
    assert rig.is_complete(1)


def test_a_final_checkpoint_that_was_abandoned_is_repeated_by_a_stopped_source() -> None:
    rig = Rig(shuffle_plan(2), batches=lambda name, slot: [[(n, 10 * slot + n) for n in range(5)]])
    rig.settle()
    rig.trigger(1, final=True)
    rig.abandon(1)
    rig.settle()
    rig.trigger(2, final=True)
    rig.settle()
    assert rig.is_complete(2)
    assert rig.rows_in_transactions(2) == rig.rows_before(2)
    assert rig.rows_before(2).total() == 10


def test_a_bounded_source_reports_its_end_once() -> None:
    rig = Rig(shuffle_plan(2), batches=lambda name, slot: [[(1, slot)]], bounded=True)
    assert not rig.finished_sources()
    rig.settle()
    turn(rig, 3)
    assert rig.finished_sources() == ["read", "read"]


def test_nothing_moves_before_all_slots_are_deployed() -> None:
    rig = one_chain()
    slot = rig.slots[0]
    slot.loop.begun = False
    assert not slot.loop.turn()
    assert slot.sources["read"].polls == 0


def test_an_unbounded_source_reports_no_end() -> None:
    rig = one_chain()
    rig.settle()
    assert not rig.finished_sources()


def test_a_bounded_pipeline_ends_with_a_final_checkpoint_that_holds_everything() -> None:
    rig = Rig(shuffle_plan(3), batches=lambda name, slot: [[(n, 100 * slot + n) for n in range(40)]] * 1, bounded=True)
    rig.settle()
    assert len(rig.finished_sources()) == 3
    rig.trigger(1, final=True)
    rig.settle()
    assert rig.is_complete(1)
    assert rig.rows_in_transactions(1).total() == rig.rows_in_state(1).total() == 120


def test_an_empty_batch_of_a_source_is_progress_but_goes_nowhere() -> None:
    rig = Rig(shuffle_plan(1), batches=lambda name, slot: [[]])
    slot = rig.slots[0]
    assert slot.loop.turn()
    assert len(slot.inputs[0, 0]) == 0
    assert not slot.loop.turn()


# -- backpressure ------------------------------------------------------------------------------------------------------


def test_a_sink_that_is_not_ready_holds_its_source_back() -> None:
    rig = one_chain()
    slot = rig.slots[0]
    slot.sinks["write"].free = 0
    assert not slot.loop.turn()
    for waited_ms in (5.0, 2.0):
        slot.loop.waited(waited_ms)
    assert (slot.sources["read"].polls, slot.loop.counters.backpressured_ms) == (0, 7.0)
    slot.sinks["write"].free = ROWS_MAX
    assert slot.loop.turn()
    for waited_ms in (3.0, 1.0):
        slot.loop.waited(waited_ms)
    assert (slot.loop.counters.backpressured_ms, slot.loop.counters.idle_ms) == (7.0, 4.0)


def test_who_is_held_up_is_the_first_operator_of_the_subtask_that_has_no_room() -> None:
    rig = Rig(shuffle_plan(1), batches=lambda name, slot: [[(1, 1)]])
    slot = rig.slots[0]
    slot.sinks["write"].free = 0
    for waited_ms in (5.0, 2.0):
        slot.loop.waited(waited_ms)
    held_up = {
        node.operator.name: counts.blocked_ms
        for task in slot.loop.tasks
        for node, counts in zip(task.vertex.nodes, task.chain.meter.counts, strict=True)
    }
    (first, *_) = next(
        task for task in slot.loop.tasks if "write" in {n.operator.name for n in task.vertex.nodes}
    ).vertex.nodes
    assert {name: spent for name, spent in held_up.items() if spent} == {first.operator.name: 7.0}


def test_barriers_pass_a_source_and_a_subtask_that_are_held_back() -> None:
    rig = Rig(parallel_plan(1), batches=lambda name, slot: [[(1, 1)]])
    slot = rig.slots[0]
    slot.sinks["write"].free = 0
    rig.trigger(1)
    rig.settle()
    assert rig.is_complete(1)


def test_a_batch_in_front_of_a_barrier_is_not_overtaken_when_there_is_no_room() -> None:
    rig = receiver(parallelism=1)
    slot = rig.slots[0]
    slot.sinks["write"].free = 0
    slot.inputs[0, 0].push(batch((1, 1)))
    slot.inputs[0, 0].push(barrier(1))
    turn(rig, 3)
    assert (len(slot.inputs[0, 0]), controls(rig)) == (2, [])


@pytest.mark.slow
def test_a_full_channel_holds_the_source_back_through_the_subtasks_between() -> None:
    rows = [(n % 7, n) for n in range(20_000)]  # 320 KB a batch
    rig = Rig(parallel_plan(1), batches=lambda name, slot: [rows] * 20)
    slot = rig.slots[0]
    slot.sinks["write"].free = 0
    rig.settle()
    assert 0 < len(slot.sources["read"].batches) < 20
    assert CREDIT_BYTES <= slot.inputs[0, 0].queued_bytes < CREDIT_BYTES + (1 << 20)
    slot.sinks["write"].free = ROWS_MAX
    rig.settle()
    assert not slot.sources["read"].batches
    assert len(slot.sinks["write"].open) == 400_000


def test_busy_time_is_counted_when_something_moved() -> None:
    class TickingClock(VirtualClock):
        def elapsed_ms(self) -> float:
            self.ms += 4
            return float(self.ms)

    rig = one_chain()
    slot = rig.slots[0]
    slot.loop._clock = TickingClock()
    rig.settle()
    assert slot.loop.counters.busy_ms == 8.0


# -- messages ----------------------------------------------------------------------------------------------------------


def test_what_a_slot_sends_survives_its_encoding() -> None:
    rig = one_chain()
    rig.trigger(1)
    rig.settle()
    rig.trigger(2)
    rig.upload(rig.slots[0], error="no")
    messages = rig.slots[0].sent
    assert {type(message) for message in messages} == {Acknowledged, Declined}
    for message in messages:
        assert decode_slot_message(encode_message(message)[4:]) == message


# -- new partitions ----------------------------------------------------------------------------------------------------


def test_C37_new_partitions_reach_their_source_only_and_those_of_another_attempt_nobody() -> None:
    rig = one_chain()
    slot = rig.slots[0]
    for attempt, source, index in ((STALE, "read", 5), (ATTEMPT, "another", 6), (ATTEMPT, "read", 7)):
        order = AddPartitions(attempt, OperatorName(source), (TopicPartition("orders", index),))
        slot.loop.on_partitions(order)
    assert slot.sources["read"].added == [TopicPartition("orders", 7)]
