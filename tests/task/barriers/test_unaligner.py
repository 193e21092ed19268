"""Unaligned checkpoints, as Alternating hands them to the Unaligner (contract B43-B47, B09-B21, B40)."""

from __future__ import annotations

import pytest

from tidegate.ids import CheckpointId
from tidegate.task.barriers.alternating import Alternating
from tidegate.task.barriers.handler import (
    CHECKPOINTS_TRACKED_MAX,
    Abort,
    AbortReason,
    Action,
    BarriersReceived,
    Notify,
    StreamCorrupt,
)
from tidegate.task.elements import Barrier, CancelMarker

SUBSUMED, CANCELLED = AbortReason.SUBSUMED, AbortReason.CANCELLED_UPSTREAM


def unaligner(channels: int = 3) -> Alternating:
    return Alternating(channels)


def overtaking(checkpoint: int, timestamp_ms: int = 0) -> Barrier:
    return Barrier(CheckpointId(checkpoint), timestamp_ms).as_unaligned()


def arrive(handler: Alternating, channel: int, checkpoint: int, now_ms: int = 1000) -> list[Action]:
    return handler.on_arrival(channel, overtaking(checkpoint), now_ms)


def cancel(handler: Alternating, channel: int, checkpoint: int) -> list[Action]:
    return handler.on_arrival(channel, CancelMarker(CheckpointId(checkpoint)), 1000)


def consume(handler: Alternating, channel: int, checkpoint: int) -> list[Action]:
    return handler.on_barrier(channel, overtaking(checkpoint), 1000)


def inflight(handler: Alternating, checkpoint: int) -> list[int]:
    return [c for c in range(handler.channels) if handler.has_inflight(c, CheckpointId(checkpoint))]


def notified(actions: list[Action]) -> list[int]:
    return [action.barrier.checkpoint for action in actions if isinstance(action, Notify)]


def test_B43_the_first_barrier_notifies_and_the_others_do_not() -> None:
    handler = unaligner()
    (notify,) = handler.on_arrival(1, overtaking(4, timestamp_ms=900), 1000)
    assert isinstance(notify, Notify)
    assert (notify.barrier.checkpoint, notify.barrier.is_unaligned) == (4, True)
    assert (notify.alignment_ms, notify.start_delay_ms) == (0, 100)
    assert arrive(handler, 0, 4) == []


def test_B46_the_last_barrier_tells_that_all_are_here_and_how_long_it_took() -> None:
    handler = unaligner(2)
    arrive(handler, 0, 4, now_ms=1000)
    assert arrive(handler, 1, 4, now_ms=1250) == [BarriersReceived(CheckpointId(4), 250)]


def test_B46_of_one_channel_all_barriers_are_here_at_once() -> None:
    actions = arrive(unaligner(1), 0, 4)
    assert [type(action) for action in actions] == [Notify, BarriersReceived]


def test_B44_B45_a_channel_has_inflight_data_until_its_barrier_is_consumed() -> None:
    handler = unaligner()
    assert inflight(handler, 1) == []
    arrive(handler, 0, 1)
    assert inflight(handler, 1) == [0, 1, 2]
    consume(handler, 0, 1)
    assert inflight(handler, 1) == [1, 2]
    arrive(handler, 2, 1)
    arrive(handler, 1, 1)
    assert inflight(handler, 1) == [1, 2]
    consume(handler, 2, 1)
    consume(handler, 1, 1)
    assert inflight(handler, 1) == []
    assert CheckpointId(1) not in handler._unaligner


def test_B47_what_arrives_is_recorded_until_the_barrier_of_the_channel_is_there() -> None:
    handler = unaligner(2)
    assert list(handler.recording(0)) == []
    arrive(handler, 0, 1)
    assert (list(handler.recording(0)), list(handler.recording(1))) == ([], [1])
    arrive(handler, 0, 2)
    assert (list(handler.recording(0)), list(handler.recording(1))) == ([], [1, 2])
    arrive(handler, 1, 1)
    assert list(handler.recording(1)) == [2]


def test_F07_several_checkpoints_are_under_way_and_each_is_complete_by_itself() -> None:
    handler = unaligner(2)
    assert notified(arrive(handler, 0, 1) + arrive(handler, 0, 2)) == [1, 2]
    assert arrive(handler, 1, 1) == [BarriersReceived(CheckpointId(1), 0)]
    assert arrive(handler, 1, 2) == [BarriersReceived(CheckpointId(2), 0)]


def test_B10_a_checkpoint_that_a_channel_skips_is_given_up_as_subsumed() -> None:
    handler = unaligner(2)
    arrive(handler, 0, 1)
    actions = arrive(handler, 1, 2)
    assert actions[0] == Abort(CheckpointId(1), SUBSUMED)
    assert notified(actions) == [2]
    assert (list(handler.recording(1)), inflight(handler, 1)) == ([], [])
    assert arrive(handler, 0, 2) == [BarriersReceived(CheckpointId(2), 0)]


def test_a_checkpoint_whose_barriers_are_all_here_is_not_given_up_by_a_newer_one() -> None:
    handler = unaligner(1)
    arrive(handler, 0, 1)
    assert [type(action) for action in arrive(handler, 0, 2)] == [Notify, BarriersReceived]
    assert inflight(handler, 1) == [0]


def test_B13_an_older_id_that_is_not_known_is_ignored() -> None:
    handler = unaligner(2)
    arrive(handler, 0, 5)
    assert arrive(handler, 1, 4) == []
    assert CheckpointId(5) in handler._unaligner


def test_B09_a_cancellation_that_arrives_gives_the_checkpoint_up_once() -> None:
    handler = unaligner()
    arrive(handler, 0, 3)
    assert cancel(handler, 1, 3) == [Abort(CheckpointId(3), CANCELLED)]
    assert cancel(handler, 2, 3) == []
    assert arrive(handler, 2, 3) == []
    assert (list(handler.recording(1)), inflight(handler, 3)) == ([], [])


def test_B40_a_cancellation_before_the_first_barrier_is_reported_and_its_barriers_start_nothing() -> None:
    handler = unaligner()
    assert cancel(handler, 1, 3) == [Abort(CheckpointId(3), CANCELLED)]
    assert cancel(handler, 0, 3) == []
    assert notified(arrive(handler, 0, 2)) == [2]
    assert arrive(handler, 0, 3) == []


def test_a_cancellation_of_a_checkpoint_that_has_all_its_barriers_changes_nothing() -> None:
    handler = unaligner(1)
    arrive(handler, 0, 3)
    assert cancel(handler, 0, 3) == []
    assert inflight(handler, 3) == [0]


def test_what_the_coordinator_gave_up_is_dropped_without_a_report() -> None:
    handler = unaligner(2)
    arrive(handler, 0, 1)
    assert handler.on_abandoned(CheckpointId(1)) == []
    assert handler.on_abandoned(CheckpointId(2)) == []
    assert arrive(handler, 1, 1) + arrive(handler, 0, 2) == []
    assert notified(arrive(handler, 0, 3)) == [3]


def test_B21_a_second_barrier_on_a_channel_is_a_corrupt_stream() -> None:
    handler = unaligner(2)
    arrive(handler, 0, 1)
    with pytest.raises(StreamCorrupt, match="channel 0: second barrier of checkpoint 1"):
        arrive(handler, 0, 1)


def test_B20_beyond_the_bound_the_oldest_is_given_up() -> None:
    handler = unaligner(2)
    actions = [arrive(handler, 0, checkpoint) for checkpoint in range(1, CHECKPOINTS_TRACKED_MAX + 2)]
    assert actions[-1][0] == Abort(CheckpointId(1), SUBSUMED)
    assert len(list(handler.recording(1))) == CHECKPOINTS_TRACKED_MAX


def test_nothing_is_ever_blocked_and_nothing_waits_for_the_clock() -> None:
    handler = unaligner()
    arrive(handler, 0, 1)
    assert not any(handler.is_blocked(channel) for channel in range(3))
    assert (handler.next_deadline_ms, handler.on_time(10**15)) == (None, [])
