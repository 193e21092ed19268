"""Which handler a checkpoint goes to, and when it goes over to the other (contract B48, B49, B09-B11, B30)."""

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
ALIGNED, UNALIGNED = None, 0


class Subtask:
    """A handler with its queues: what arrives waits there until it is consumed."""

    def __init__(self, channels: int = 2) -> None:
        self.handler = Alternating(channels)
        self.now_ms = 1000
        self.queues: list[list[Barrier | CancelMarker]] = [[] for _ in range(channels)]

    def arrive(self, channel: int, checkpoint: int, after_ms: int | None) -> list[str]:
        return self._arrive(channel, Barrier(CheckpointId(checkpoint), 1000, unaligned_after_ms=after_ms))

    def cancel(self, channel: int, checkpoint: int) -> list[str]:
        return self._arrive(channel, CancelMarker(CheckpointId(checkpoint)))

    def _arrive(self, channel: int, control: Barrier | CancelMarker) -> list[str]:
        self.queues[channel].append(control)
        return told(self.handler.on_arrival(channel, control, self.now_ms))

    def consume(self, channel: int) -> list[str]:
        assert not self.handler.is_blocked(channel)
        control = self.queues[channel].pop(0)
        if isinstance(control, Barrier):
            return told(self.handler.on_barrier(channel, control, self.now_ms))
        return told(self.handler.on_cancel(channel, control.checkpoint))

    def wait(self, ms: int) -> list[str]:
        self.now_ms += ms
        deadline_ms = self.handler.next_deadline_ms
        if deadline_ms is None or deadline_ms > self.now_ms:
            return []
        return told(self.handler.on_time(self.now_ms))

    def abandon(self, checkpoint: int) -> list[str]:
        return told(self.handler.on_abandoned(CheckpointId(checkpoint)))

    @property
    def blocked(self) -> list[int]:
        return [channel for channel in range(len(self.queues)) if self.handler.is_blocked(channel)]

    def inflight(self, checkpoint: int) -> list[int]:
        channels = range(len(self.queues))
        return [channel for channel in channels if self.handler.has_inflight(channel, CheckpointId(checkpoint))]


def told(actions: list[Action]) -> list[str]:
    """The actions that the subtask carries out, in short."""
    said: list[str] = []
    for action in actions:
        if isinstance(action, Notify):
            said.append(f"{'overtake' if action.barrier.is_unaligned else 'notify'} {action.barrier.checkpoint}")
        elif isinstance(action, Abort):
            said.append(f"{'subsumed' if action.reason is SUBSUMED else 'cancelled'} {action.checkpoint}")
        elif isinstance(action, BarriersReceived):
            said.append(f"received {action.checkpoint}")
    return said


def test_B48_an_aligned_checkpoint_is_aligned() -> None:
    subtask = Subtask()
    assert subtask.arrive(0, 1, ALIGNED) + subtask.arrive(1, 1, ALIGNED) == []
    assert (subtask.consume(0), subtask.blocked) == ([], [0])
    assert (subtask.consume(1), subtask.blocked, subtask.inflight(1)) == (["notify 1"], [], [])


def test_B48_an_unaligned_checkpoint_is_notified_when_its_first_barrier_arrives() -> None:
    subtask = Subtask()
    assert subtask.arrive(0, 1, UNALIGNED) == ["overtake 1"]
    assert (subtask.blocked, subtask.inflight(1)) == ([], [0, 1])
    assert subtask.consume(0) == []
    assert subtask.arrive(1, 1, UNALIGNED) == ["received 1"]


def test_B48_with_a_limit_an_alignment_that_ends_in_time_stays_aligned() -> None:
    subtask = Subtask()
    subtask.arrive(0, 1, 50)
    subtask.arrive(1, 1, 50)
    subtask.consume(0)
    assert subtask.wait(49) == []
    assert subtask.consume(1) == ["notify 1"]
    assert (subtask.handler.next_deadline_ms, subtask.inflight(1)) == (None, [])


def test_B49_with_a_limit_it_goes_over_when_the_first_barrier_has_waited_so_long() -> None:
    subtask = Subtask(3)
    subtask.arrive(0, 1, 50)
    subtask.wait(20)
    subtask.arrive(1, 1, 50)
    subtask.consume(1)
    assert (subtask.blocked, subtask.handler.next_deadline_ms) == ([1], 1050)
    assert subtask.wait(30) == ["overtake 1"]
    assert (subtask.blocked, subtask.inflight(1)) == ([], [0, 2])
    assert list(subtask.handler.recording(2)) == [1]
    assert list(subtask.handler.recording(0)) == []
    assert subtask.arrive(2, 1, 50) == ["received 1"]
    assert subtask.consume(0) + subtask.consume(2) == []
    assert subtask.inflight(1) == []


def test_B49_it_goes_over_when_one_of_its_barriers_comes_as_overtaking() -> None:
    subtask = Subtask()
    subtask.arrive(0, 1, 5000)
    subtask.consume(0)
    assert subtask.arrive(1, 1, UNALIGNED) == ["overtake 1", "received 1"]
    assert (subtask.blocked, subtask.inflight(1)) == ([], [1])


def test_the_alignment_that_was_given_up_is_told_with_the_notification() -> None:
    handler = Alternating(2)
    handler.on_arrival(0, Barrier(CheckpointId(1), 900, unaligned_after_ms=50), 1000)
    (notify,) = handler.on_time(1060)
    assert isinstance(notify, Notify)
    assert (notify.alignment_ms, notify.start_delay_ms) == (60, 100)


def test_F07_an_aligned_one_behind_an_unaligned_one_in_flight() -> None:
    """A savepoint or the final checkpoint is triggered while an unaligned checkpoint is being recorded."""
    subtask = Subtask()
    subtask.arrive(0, 1, UNALIGNED)
    subtask.arrive(0, 2, ALIGNED)
    assert subtask.consume(0) + subtask.consume(0) == []
    assert (subtask.blocked, list(subtask.handler.recording(1))) == ([0], [1])
    assert subtask.arrive(1, 1, UNALIGNED) == ["received 1"]
    subtask.arrive(1, 2, ALIGNED)
    assert subtask.consume(1) == []
    assert subtask.consume(1) == ["notify 2"]


def test_B13_an_unaligned_one_waits_behind_an_older_aligned_one() -> None:
    """Snapshots are taken in the order of their ids, and a savepoint is never given up for a checkpoint."""
    subtask = Subtask()
    subtask.arrive(0, 1, ALIGNED)
    assert subtask.arrive(0, 2, UNALIGNED) == []
    assert (subtask.handler.next_deadline_ms, subtask.wait(10_000)) == (None, [])
    subtask.consume(0)
    subtask.arrive(1, 1, ALIGNED)
    assert subtask.consume(1) == ["notify 1", "overtake 2"]
    assert subtask.inflight(2) == [0, 1]


def test_an_unaligned_one_takes_an_older_one_with_a_limit_along() -> None:
    subtask = Subtask()
    subtask.arrive(0, 1, 5000)
    assert subtask.arrive(0, 2, UNALIGNED) == ["overtake 1", "overtake 2"]


def test_what_waited_behind_a_cancelled_aligned_one_goes_over_at_once() -> None:
    subtask = Subtask()
    subtask.arrive(0, 1, ALIGNED)
    subtask.arrive(0, 2, UNALIGNED)
    assert subtask.cancel(1, 1) == ["cancelled 1", "overtake 2"]


def test_what_waited_behind_an_abandoned_aligned_one_goes_over_at_the_next_look_at_the_clock() -> None:
    subtask = Subtask()
    subtask.arrive(0, 1, ALIGNED)
    subtask.consume(0)
    subtask.arrive(0, 2, UNALIGNED)
    assert (subtask.abandon(1), subtask.blocked) == ([], [])
    assert subtask.wait(0) == ["overtake 2"]


def test_B30_a_checkpoint_that_a_channel_skips_is_given_up_before_the_newer_one_is_passed_on() -> None:
    subtask = Subtask()
    subtask.arrive(0, 1, ALIGNED)
    subtask.consume(0)
    assert subtask.arrive(1, 2, UNALIGNED) == ["subsumed 1", "overtake 2"]
    assert subtask.blocked == []


def test_B09_a_cancellation_ends_the_alignment_when_it_arrives() -> None:
    subtask = Subtask()
    subtask.arrive(0, 1, ALIGNED)
    subtask.consume(0)
    assert subtask.cancel(1, 1) == ["cancelled 1"]
    assert subtask.blocked == []
    assert subtask.consume(1) == []
    assert subtask.arrive(1, 1, ALIGNED) == []
    assert subtask.consume(1) == []


def test_B40_a_cancellation_first_is_reported_once_and_its_barriers_start_nothing() -> None:
    subtask = Subtask()
    assert subtask.cancel(0, 2) + subtask.cancel(1, 2) == ["cancelled 2"]
    assert subtask.arrive(0, 2, UNALIGNED) + subtask.arrive(1, 2, UNALIGNED) == []
    assert subtask.arrive(0, 3, UNALIGNED) == ["overtake 3"]


def test_what_the_coordinator_gave_up_neither_aligns_nor_overtakes() -> None:
    subtask = Subtask()
    for checkpoint in (1, 2):
        subtask.abandon(checkpoint)
    assert subtask.arrive(0, 1, ALIGNED) + subtask.arrive(0, 2, UNALIGNED) == []
    assert subtask.consume(0) == []
    assert subtask.blocked == []


def test_an_abandoned_recording_is_dropped() -> None:
    subtask = Subtask()
    subtask.arrive(0, 1, UNALIGNED)
    subtask.abandon(1)
    assert (list(subtask.handler.recording(1)), subtask.inflight(1)) == ([], [])
    assert subtask.arrive(1, 1, UNALIGNED) == []


def test_B29_a_second_barrier_on_a_channel_is_a_corrupt_stream() -> None:
    subtask = Subtask()
    subtask.arrive(0, 1, ALIGNED)
    with pytest.raises(StreamCorrupt, match="channel 0: second barrier of checkpoint 1"):
        subtask.arrive(0, 1, ALIGNED)


def test_B20_beyond_the_bound_the_oldest_waiting_one_is_given_up() -> None:
    subtask = Subtask()
    said = [subtask.arrive(0, checkpoint, ALIGNED) for checkpoint in range(1, CHECKPOINTS_TRACKED_MAX + 2)]
    assert said[-1] == ["subsumed 1"]


def test_B11_all_that_a_channel_skips_are_told() -> None:
    subtask = Subtask()
    subtask.arrive(0, 1, 1000)
    subtask.arrive(0, 2, 1000)
    assert subtask.arrive(1, 3, 1000) == ["subsumed 1", "subsumed 2"]


def test_B49_the_shortest_limit_of_its_barriers_counts() -> None:
    subtask = Subtask(3)
    subtask.arrive(0, 1, 100)
    subtask.arrive(1, 1, 1000)
    assert subtask.wait(100) == ["overtake 1"]


def test_F27_a_complete_checkpoint_that_is_abandoned_is_forgotten_before_the_next_one() -> None:
    subtask = Subtask()
    subtask.arrive(0, 1, UNALIGNED)
    subtask.arrive(1, 1, UNALIGNED)
    subtask.abandon(1)
    assert subtask.arrive(0, 2, UNALIGNED) == ["overtake 2"]
    assert subtask.arrive(1, 2, UNALIGNED) == ["received 2"]
