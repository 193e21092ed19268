"""The at-least-once barrier handler, event by event (contract B12, B14-B26, F09, F19)."""

from __future__ import annotations

import pytest

from tidegate.ids import CheckpointId
from tidegate.task.barriers.handler import CHECKPOINTS_TRACKED_MAX, Abort, AbortReason, Notify, StreamCorrupt
from tidegate.task.barriers.tracker import Tracker
from tidegate.task.elements import Barrier


def barrier(checkpoint: int, timestamp_ms: int = 0) -> Barrier:
    return Barrier(CheckpointId(checkpoint), timestamp_ms)


def notify(checkpoint: int, start_delay_ms: int = 0) -> Notify:
    return Notify(barrier(checkpoint), 0, start_delay_ms)


def cancelled(checkpoint: int) -> Abort:
    return Abort(CheckpointId(checkpoint), AbortReason.CANCELLED_UPSTREAM)


def with_pending(*checkpoints: int, channels: int = 2) -> Tracker:
    """Channel 0 has delivered the barriers of these checkpoints, no other channel anything."""
    tracker = Tracker(channels)
    for checkpoint in checkpoints:
        assert tracker.on_barrier(0, barrier(checkpoint), 0) == []
    return tracker


# -- one channel -------------------------------------------------------------------------------------------------------


def test_B15_one_channel_notifies_each_barrier_at_once_with_alignment_zero() -> None:
    tracker = Tracker(1)
    assert [tracker.on_barrier(0, barrier(checkpoint), 3) for checkpoint in (1, 2, 5)] == [
        [notify(1, 3)],
        [notify(2, 3)],
        [notify(5, 3)],
    ]


def test_B22_one_channel_reports_a_cancellation_at_once() -> None:
    tracker = Tracker(1)
    assert tracker.on_cancel(0, CheckpointId(4)) == [cancelled(4)]


def test_B22_a_cancelled_checkpoint_of_one_channel_is_never_notified() -> None:
    tracker = Tracker(1)
    tracker.on_cancel(0, CheckpointId(4))
    assert tracker.on_barrier(0, barrier(4), 0) == []
    assert tracker.on_barrier(0, barrier(5), 0) == [notify(5)]


# -- barriers ----------------------------------------------------------------------------------------------------------


def test_B14_no_channel_is_ever_blocked() -> None:
    tracker = with_pending(1, 2, channels=3)
    assert [tracker.is_blocked(channel) for channel in range(3)] == [False] * 3


def test_B16_several_checkpoints_are_counted_side_by_side() -> None:
    tracker = with_pending(1, 2, 3)
    assert [tracker.on_barrier(1, barrier(checkpoint), 0) for checkpoint in (1, 2, 3)] == [
        [notify(1)],
        [notify(2)],
        [notify(3)],
    ]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_F09_notifies_only_when_every_channel_has_delivered_its_barrier(order: tuple[int, ...]) -> None:
    tracker = Tracker(3)
    assert [tracker.on_barrier(channel, barrier(1), 0) for channel in order] == [[], [], [notify(1)]]


def test_B17_a_full_count_takes_every_earlier_checkpoint_out_of_the_queue() -> None:
    tracker = with_pending(1, 2, 3)
    assert tracker.on_barrier(1, barrier(2), 0) == [notify(2)]
    assert tracker.on_barrier(1, barrier(3), 0) == [notify(3)]
    assert tracker.on_barrier(1, barrier(1), 0) == []


def test_B17_an_aborted_checkpoint_with_a_full_count_is_not_notified_and_takes_earlier_ones_along() -> None:
    tracker = with_pending(1, 2)
    tracker.on_abandoned(CheckpointId(2))
    assert tracker.on_barrier(1, barrier(2), 0) == []
    assert tracker.on_barrier(1, barrier(1), 0) == []


def test_B18_the_start_delay_is_that_of_the_first_barrier() -> None:
    tracker = Tracker(2)
    tracker.on_barrier(1, barrier(1, timestamp_ms=100), 130)
    assert tracker.on_barrier(0, barrier(1, timestamp_ms=100), 900) == [Notify(barrier(1, timestamp_ms=100), 0, 30)]


def test_B12_the_time_between_first_and_last_barrier_is_no_alignment() -> None:
    tracker = Tracker(2)
    tracker.on_barrier(0, barrier(1), 0)
    assert tracker.on_barrier(1, barrier(1), 5000) == [Notify(barrier(1), 0, 0)]


def test_B19_an_unknown_checkpoint_that_is_not_above_the_latest_is_ignored() -> None:
    tracker = with_pending(5)
    assert tracker.on_barrier(1, barrier(4), 0) == []
    assert tracker.on_barrier(0, barrier(4), 0) == []
    assert tracker.on_barrier(1, barrier(5), 0) == [notify(5)]


def test_B20_the_oldest_of_too_many_is_dropped() -> None:
    tracker = with_pending(*range(1, CHECKPOINTS_TRACKED_MAX + 2))
    assert tracker.on_barrier(1, barrier(1), 0) == []
    assert tracker.on_barrier(1, barrier(2), 0) == [notify(2)]


def test_B20_as_many_as_the_bound_are_all_tracked() -> None:
    tracker = with_pending(*range(1, CHECKPOINTS_TRACKED_MAX + 1))
    assert tracker.on_barrier(1, barrier(1), 0) == [notify(1)]


def test_B21_a_repeated_barrier_on_one_channel_is_reported_as_a_corrupt_stream() -> None:
    with pytest.raises(StreamCorrupt, match="channel 0: second barrier of checkpoint 3"):
        with_pending(3, channels=3).on_barrier(0, barrier(3), 0)


# -- cancellations -----------------------------------------------------------------------------------------------------


def test_B23_a_cancellation_aborts_every_pending_checkpoint_below_it_once() -> None:
    tracker = with_pending(1, 2, 3)
    assert tracker.on_cancel(1, CheckpointId(3)) == [cancelled(1), cancelled(2), cancelled(3)]
    assert [tracker.on_barrier(1, barrier(checkpoint), 0) for checkpoint in (1, 2)] == [[], []]


def test_B23_a_checkpoint_that_was_aborted_already_is_not_reported_again() -> None:
    tracker = with_pending(1, 2, 3, channels=3)
    assert tracker.on_cancel(1, CheckpointId(1)) == [cancelled(1)]
    assert tracker.on_cancel(1, CheckpointId(3)) == [cancelled(2), cancelled(3)]


def test_B23_an_unknown_cancellation_between_pending_ones_aborts_those_below_it() -> None:
    tracker = with_pending(3, 5)
    assert tracker.on_cancel(1, CheckpointId(4)) == [cancelled(3)]
    assert tracker.on_barrier(1, barrier(5), 0) == [notify(5)]


def test_B24_a_pending_checkpoint_is_reported_at_its_first_cancellation_only() -> None:
    tracker = with_pending(1, channels=3)
    assert tracker.on_cancel(1, CheckpointId(1)) == [cancelled(1)]
    assert tracker.on_cancel(2, CheckpointId(1)) == []


def test_B24_a_cancellation_counts_as_the_barrier_of_its_channel() -> None:
    tracker = with_pending(1)
    assert tracker.on_cancel(1, CheckpointId(1)) == [cancelled(1)]
    assert not tracker._pending


def test_B24_an_aborted_checkpoint_is_counted_on_and_never_notified() -> None:
    tracker = with_pending(1, channels=3)
    tracker.on_cancel(1, CheckpointId(1))
    assert list(tracker._pending) == [1]
    assert tracker.on_barrier(2, barrier(1), 0) == []
    assert not tracker._pending


def test_B25_a_cancellation_above_the_latest_is_reported_and_becomes_the_latest() -> None:
    tracker = with_pending(1, 2, channels=3)
    assert tracker.on_cancel(1, CheckpointId(5)) == [cancelled(1), cancelled(2), cancelled(5)]
    assert (tracker.latest, list(tracker._pending)) == (5, [5])
    assert [tracker.on_barrier(channel, barrier(5), 0) for channel in (0, 2)] == [[], []]
    assert not tracker._pending


@pytest.mark.parametrize("old", [1, 2])
def test_B26_a_trailing_cancellation_is_ignored(old: int) -> None:
    tracker = with_pending(2)
    tracker.on_barrier(1, barrier(2), 0)
    tracker.on_barrier(0, barrier(3), 0)
    assert tracker.on_cancel(1, CheckpointId(old)) == []
    assert tracker.on_barrier(1, barrier(3), 0) == [notify(3)]


# -- the coordinator's word --------------------------------------------------------------------------------------------


def test_B24_an_abandoned_pending_checkpoint_is_counted_on_and_never_notified() -> None:
    tracker = with_pending(1)
    assert tracker.on_abandoned(CheckpointId(1)) == []
    assert tracker.on_barrier(1, barrier(1), 0) == []
    assert not tracker._pending


def test_B24_a_cancellation_of_what_the_coordinator_abandoned_is_not_reported() -> None:
    tracker = with_pending(1, channels=3)
    tracker.on_abandoned(CheckpointId(1))
    tracker.on_abandoned(CheckpointId(2))
    assert tracker.on_cancel(1, CheckpointId(1)) == []
    assert tracker.on_cancel(1, CheckpointId(2)) == []


def test_B24_a_checkpoint_abandoned_before_its_barriers_came_is_never_notified() -> None:
    tracker = Tracker(2)
    tracker.on_abandoned(CheckpointId(1))
    assert [tracker.on_barrier(channel, barrier(1), 0) for channel in (0, 1)] == [[], []]
    assert not tracker._pending


def test_F07_abandoning_a_later_checkpoint_leaves_one_that_is_still_to_come_alone() -> None:
    tracker = Tracker(2)
    tracker.on_abandoned(CheckpointId(2))
    tracker.on_barrier(0, barrier(1), 0)
    assert tracker.on_barrier(1, barrier(1), 0) == [notify(1)]


def test_B20_abandoned_checkpoints_do_not_grow_the_queue() -> None:
    tracker = Tracker(2)
    for checkpoint in range(1, 3 * CHECKPOINTS_TRACKED_MAX):
        tracker.on_abandoned(CheckpointId(checkpoint))
    assert not tracker._pending
    assert len(tracker._abandoned._ids) == CHECKPOINTS_TRACKED_MAX
