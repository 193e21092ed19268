"""The exactly-once barrier handler, event by event (contract B01, B27-B41, F09, F13)."""

from __future__ import annotations

import pytest

from tidegate.ids import CheckpointId
from tidegate.task.barriers.aligner import Aligner
from tidegate.task.barriers.handler import (
    CHECKPOINTS_TRACKED_MAX,
    Abort,
    AbortReason,
    Action,
    Block,
    Notify,
    ReleaseAll,
    StreamCorrupt,
)
from tidegate.task.elements import Barrier

BLOCKED_BY_SEVEN = "channel 0: .* after its barrier of checkpoint 7"


def barrier(checkpoint: int, timestamp_ms: int = 0) -> Barrier:
    return Barrier(CheckpointId(checkpoint), timestamp_ms)


def cancelled(checkpoint: int) -> Abort:
    return Abort(CheckpointId(checkpoint), AbortReason.CANCELLED_UPSTREAM)


def blocked(aligner: Aligner) -> list[int]:
    return [channel for channel in range(aligner.channels) if aligner.is_blocked(channel)]


def complete(aligner: Aligner, checkpoint: int) -> None:
    for channel in range(aligner.channels):
        aligner.on_barrier(channel, barrier(checkpoint), 0)


def idle(channels: int = 3) -> Aligner:
    """Checkpoint 7 is complete."""
    aligner = Aligner(channels)
    complete(aligner, 7)
    return aligner


def running(channels: int = 3) -> Aligner:
    """Checkpoint 7 aligns: channel 0 has delivered its barrier."""
    aligner = Aligner(channels)
    aligner.on_barrier(0, barrier(7), 0)
    return aligner


def cancelled_idle(channels: int = 3) -> Aligner:
    """Checkpoint 7 was cancelled before any barrier of it came."""
    aligner = Aligner(channels)
    aligner.on_cancel(0, CheckpointId(7))
    return aligner


# -- one channel -------------------------------------------------------------------------------------------------------


def test_B27_one_channel_notifies_at_once_and_stays_open() -> None:
    aligner = Aligner(1)
    actions = aligner.on_barrier(0, barrier(1), 5)
    assert actions[-1] == Notify(barrier(1), 0, 5)
    assert blocked(aligner) == []


@pytest.mark.parametrize("checkpoint", [6, 7])
def test_B27_one_channel_ignores_a_barrier_that_is_not_newer(checkpoint: int) -> None:
    aligner = idle(1)
    assert aligner.on_barrier(0, barrier(checkpoint), 0) == []
    assert blocked(aligner) == []


def test_B36_one_channel_reports_a_newer_cancellation_and_ignores_its_barrier() -> None:
    aligner = idle(1)
    assert aligner.on_cancel(0, CheckpointId(8)) == [cancelled(8)]
    assert aligner.on_barrier(0, barrier(8), 0) == []
    assert aligner.on_barrier(0, barrier(9), 0)[-1] == Notify(barrier(9), 0, 0)


@pytest.mark.parametrize("checkpoint", [6, 7])
def test_B36_one_channel_ignores_a_cancellation_that_is_not_newer(checkpoint: int) -> None:
    assert idle(1).on_cancel(0, CheckpointId(checkpoint)) == []


# -- barriers ----------------------------------------------------------------------------------------------------------


def test_B12_nothing_is_blocked_at_the_start() -> None:
    assert blocked(Aligner(3)) == []


def test_B33_the_first_barrier_starts_the_alignment_and_blocks_its_channel() -> None:
    aligner = idle()
    assert aligner.on_barrier(1, barrier(8), 0) == [Block(1)]
    assert (aligner.current, aligner.aligning, blocked(aligner)) == (8, True, [1])


def test_B33_start_delay_and_duration_count_from_the_first_barrier() -> None:
    aligner = Aligner(2)
    aligner.on_barrier(1, Barrier(CheckpointId(8), 1000), 1030)
    done = aligner.on_barrier(0, Barrier(CheckpointId(8), 1000), 1230)
    assert done[-1] == Notify(Barrier(CheckpointId(8), 1000), 200, 30)


def test_B28_another_barrier_of_the_running_checkpoint_blocks_its_channel_too() -> None:
    aligner = running()
    assert aligner.on_barrier(2, barrier(7), 0) == [Block(2)]
    assert blocked(aligner) == [0, 2]


def test_B29_a_second_barrier_on_a_blocked_channel_is_a_corrupt_stream() -> None:
    with pytest.raises(StreamCorrupt, match=BLOCKED_BY_SEVEN):
        running().on_barrier(0, barrier(7), 0)


def test_B01_a_newer_barrier_from_a_blocked_channel_is_a_corrupt_stream() -> None:
    with pytest.raises(StreamCorrupt, match=BLOCKED_BY_SEVEN):
        running().on_barrier(0, barrier(8), 0)


def test_B01_a_cancellation_from_a_blocked_channel_is_a_corrupt_stream() -> None:
    with pytest.raises(StreamCorrupt, match=BLOCKED_BY_SEVEN):
        running().on_cancel(0, CheckpointId(8))


def test_B30_a_newer_barrier_gives_the_running_checkpoint_up_and_starts_its_own_alignment() -> None:
    aligner = running()
    assert aligner.on_barrier(1, barrier(8), 0) == [
        ReleaseAll(),
        Abort(CheckpointId(7), AbortReason.SUBSUMED),
        Block(1),
    ]
    assert (aligner.current, blocked(aligner)) == (8, [1])


def test_B30_the_checkpoint_that_was_given_up_never_completes_afterwards() -> None:
    aligner = running(2)
    aligner.on_barrier(1, barrier(8), 0)
    assert aligner.on_barrier(0, barrier(8), 0)[-1] == Notify(barrier(8), 0, 0)
    assert aligner.on_barrier(0, barrier(7), 0) == []


def test_B31_an_older_barrier_is_ignored_while_aligning_and_its_channel_stays_open() -> None:
    aligner = running()
    assert aligner.on_barrier(1, barrier(6), 0) == []
    assert (aligner.current, blocked(aligner)) == (7, [0])


@pytest.mark.parametrize("checkpoint", [6, 7])
def test_B32_without_an_alignment_a_barrier_that_is_not_newer_is_ignored(checkpoint: int) -> None:
    aligner = idle()
    assert aligner.on_barrier(0, barrier(checkpoint), 0) == []
    assert (aligner.current, blocked(aligner)) == (7, [])


def test_B34_the_last_barrier_releases_every_channel_before_it_notifies() -> None:
    aligner = running()
    aligner.on_barrier(1, barrier(7), 0)
    assert aligner.on_barrier(2, barrier(7), 0) == [Block(2), ReleaseAll(), Notify(barrier(7), 0, 0)]
    assert (aligner.aligning, blocked(aligner)) == (False, [])


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_F09_notifies_only_when_every_channel_has_delivered_its_barrier(order: tuple[int, ...]) -> None:
    aligner = Aligner(3)
    answers = [aligner.on_barrier(channel, barrier(1), 0) for channel in order]
    assert [any(isinstance(action, Notify) for action in answer) for answer in answers] == [False, False, True]


def test_B34_the_alignment_lasts_from_the_first_to_the_last_barrier() -> None:
    aligner = Aligner(2)
    aligner.on_barrier(1, barrier(1, timestamp_ms=900), 1000)
    assert aligner.on_barrier(0, barrier(1, timestamp_ms=900), 1250)[-1] == Notify(
        barrier(1, timestamp_ms=900), alignment_ms=250, start_delay_ms=100
    )


def test_B34_a_clock_that_was_set_back_gives_no_negative_alignment() -> None:
    aligner = Aligner(2)
    aligner.on_barrier(1, barrier(1), 1000)
    assert aligner.on_barrier(0, barrier(1), 400)[-1] == Notify(barrier(1), 0, 1000)


def test_B30_the_new_alignment_is_measured_from_its_own_first_barrier() -> None:
    aligner = Aligner(2)
    aligner.on_barrier(0, barrier(1), 1000)
    aligner.on_barrier(1, barrier(2), 5000)
    assert aligner.on_barrier(0, barrier(2), 5010)[-1] == Notify(barrier(2), 10, 5000)


# -- cancellations -----------------------------------------------------------------------------------------------------


def test_B35_a_cancelled_checkpoint_has_no_barriers_and_never_completes() -> None:
    aligner = running()
    aligner.on_cancel(1, CheckpointId(7))
    assert [aligner.on_barrier(channel, barrier(7), 0) for channel in range(3)] == [[], [], []]
    assert blocked(aligner) == []


def test_B37_cancelling_the_running_checkpoint_releases_and_reports_it() -> None:
    aligner = running()
    assert aligner.on_cancel(1, CheckpointId(7)) == [ReleaseAll(), cancelled(7)]
    assert (aligner.aligning, blocked(aligner)) == (False, [])


def test_B38_cancelling_a_higher_one_ends_the_alignment_and_reports_the_higher_one_alone() -> None:
    aligner = running()
    assert aligner.on_cancel(1, CheckpointId(9)) == [ReleaseAll(), cancelled(9)]
    assert (aligner.current, aligner.aligning, blocked(aligner)) == (9, False, [])


def test_B38_alignment_times_start_afresh_behind_it() -> None:
    aligner = Aligner(2)
    aligner.on_barrier(0, barrier(1), 1000)
    aligner.on_cancel(1, CheckpointId(2))
    aligner.on_barrier(0, barrier(3), 8000)
    assert aligner.on_barrier(1, barrier(3), 8001)[-1] == Notify(barrier(3), 1, 8000)


def test_B39_cancelling_a_lower_one_is_ignored_while_aligning() -> None:
    aligner = running()
    assert aligner.on_cancel(1, CheckpointId(6)) == []
    assert (aligner.current, blocked(aligner)) == (7, [0])


def test_B40_a_cancellation_that_comes_first_is_reported_and_its_barriers_start_nothing() -> None:
    aligner = idle()
    assert aligner.on_cancel(0, CheckpointId(8)) == [cancelled(8)]
    assert [aligner.on_barrier(channel, barrier(8), 0) for channel in (1, 2)] == [[], []]
    assert blocked(aligner) == []
    assert aligner.on_barrier(0, barrier(9), 0) == [Block(0)]


@pytest.mark.parametrize("checkpoint", [6, 7])
@pytest.mark.parametrize("state", [idle, cancelled_idle], ids=["completed", "cancelled"])
def test_B41_a_cancellation_that_is_not_newer_is_ignored_without_an_alignment(state: object, checkpoint: int) -> None:
    aligner = idle() if state is idle else cancelled_idle()
    assert aligner.on_cancel(1, CheckpointId(checkpoint)) == []
    assert aligner.current == 7


# -- the coordinator's word --------------------------------------------------------------------------------------------


def test_B40_an_abandoned_running_checkpoint_is_released_and_not_reported() -> None:
    aligner = running()
    assert aligner.on_abandoned(CheckpointId(7)) == [ReleaseAll()]
    assert [aligner.on_barrier(channel, barrier(7), 0) for channel in (1, 2)] == [[], []]
    assert blocked(aligner) == []


def test_B40_a_checkpoint_abandoned_before_its_barriers_came_starts_no_alignment() -> None:
    aligner = idle(2)
    assert aligner.on_abandoned(CheckpointId(8)) == []
    assert [aligner.on_barrier(channel, barrier(8), 0) for channel in (0, 1)] == [[], []]
    assert blocked(aligner) == []


def test_F07_abandoning_a_later_checkpoint_leaves_the_running_one_alone() -> None:
    aligner = running(2)
    assert aligner.on_abandoned(CheckpointId(8)) == []
    assert aligner.on_barrier(1, barrier(7), 0)[-1] == Notify(barrier(7), 0, 0)


def test_F07_abandoning_a_later_checkpoint_leaves_one_that_is_still_to_come_alone() -> None:
    aligner = idle(2)
    aligner.on_abandoned(CheckpointId(9))
    aligner.on_barrier(0, barrier(8), 0)
    assert aligner.on_barrier(1, barrier(8), 0)[-1] == Notify(barrier(8), 0, 0)


def test_B30_a_barrier_of_an_abandoned_checkpoint_still_proves_that_the_running_one_cannot_complete() -> None:
    aligner = running(2)
    aligner.on_abandoned(CheckpointId(8))
    assert aligner.on_barrier(1, barrier(8), 0) == [ReleaseAll(), Abort(CheckpointId(7), AbortReason.SUBSUMED)]
    assert blocked(aligner) == []


def test_B10_a_cancellation_of_what_the_coordinator_abandoned_is_not_reported_again() -> None:
    aligner = running(2)
    aligner.on_abandoned(CheckpointId(8))
    assert aligner.on_cancel(1, CheckpointId(8)) == [ReleaseAll()]


@pytest.mark.parametrize("checkpoint", [6, 7])
def test_B41_abandoning_an_old_checkpoint_changes_nothing(checkpoint: int) -> None:
    aligner = idle()
    assert aligner.on_abandoned(CheckpointId(checkpoint)) == []
    assert aligner.on_barrier(0, barrier(8), 0) == [Block(0)]


def test_abandoned_checkpoints_are_remembered_within_a_bound() -> None:
    aligner = Aligner(1)
    for checkpoint in range(1, CHECKPOINTS_TRACKED_MAX + 2):
        aligner.on_abandoned(CheckpointId(checkpoint))
    assert aligner.on_barrier(0, barrier(1), 0)[-1] == Notify(barrier(1), 0, 0)
    answers: list[list[Action]] = [
        aligner.on_barrier(0, barrier(checkpoint), 0) for checkpoint in range(2, CHECKPOINTS_TRACKED_MAX + 2)
    ]
    assert answers == [[]] * CHECKPOINTS_TRACKED_MAX


def test_abandoned_checkpoints_are_forgotten_when_a_newer_one_comes() -> None:
    aligner = Aligner(1)
    for checkpoint in (1, 2, 4):
        aligner.on_abandoned(CheckpointId(checkpoint))
    aligner.on_barrier(0, barrier(3), 0)
    assert aligner._abandoned._ids == {4}


def test_B40_giving_up_an_older_checkpoint_releases_nothing() -> None:
    aligner = running()
    assert aligner.on_abandoned(CheckpointId(6)) == []
    assert blocked(aligner) == [0]
