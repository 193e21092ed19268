"""Cancellation markers in a running slot, with either consuming handler (contract B02, B09, B22-B26, B35-B41).

Everything arrives through the channels of a real loop; what counts is what the subtask declines, what it sends on, and
whose rows it processes.
"""

from __future__ import annotations

import pytest

from tests.task.fakes import FakeTotals
from tests.task.rig import Rig
from tests.task.small_rigs import barrier, batch
from tests.task.topologies import edge, plan_of, sink_node, source_node, totals_node, vertex
from tidegate.ids import CheckpointId
from tidegate.task.barriers.handler import AbortReason
from tidegate.task.elements import CancelMarker

CANCELLED = AbortReason.CANCELLED_UPSTREAM


class Middle:
    """Slot 0's `total` subtask between the sources of so many slots and a subtask after it."""

    def __init__(self, channels: int, *, exactly_once: bool) -> None:
        plan = plan_of(
            channels,
            [
                vertex(source_node("read", edges=(0,))),
                vertex(totals_node("total", edges=(1,))),
                vertex(totals_node("again", children=(1,)), sink_node("write")),
            ],
            [edge(0, "read", "total", "k"), edge(1, "total", "again")],
            exactly_once=exactly_once,
        )
        self.rig = Rig(plan)
        self.slot = self.rig.slots[0]
        self.task = self.slot.loop.tasks[1]

    def barrier(self, channel: int, *checkpoints: int) -> None:
        for checkpoint in checkpoints:
            self.slot.inputs[channel, 0].push(barrier(checkpoint))
            self.turns()

    def cancel(self, channel: int, *checkpoints: int) -> None:
        for checkpoint in checkpoints:
            self.slot.inputs[channel, 0].push(CancelMarker(CheckpointId(checkpoint)))
            self.turns()

    def row(self, channel: int, number: int) -> None:
        self.slot.inputs[channel, 0].push(batch((1, number)))
        self.turns()

    def turns(self) -> None:
        while self.task.turn():
            pass

    @property
    def declined(self) -> list[tuple[int, str]]:
        return [(each.checkpoint, each.reason) for each in self.rig.declines()]

    @property
    def sent_on(self) -> list[str]:
        """Barriers and cancellations, in order."""
        names = {"barrier": "barrier", "CancelMarker": "cancel"}
        return [f"{names[str(kind)]} {rest[0]}" for kind, *rest in self.slot.trace.events if kind in names]

    @property
    def seen(self) -> list[int]:
        total = self.slot.operators["total"]
        assert isinstance(total, FakeTotals)
        return [n for _, n in total.seen]

    def goes_on(self, checkpoint: int) -> bool:
        """Whether the next checkpoint is passed on and acknowledged."""
        assert self.task.inputs is not None
        for channel in range(len(self.task.inputs.channels)):
            self.barrier(channel, checkpoint)
        while self.rig.upload(self.slot):
            pass
        acks = [ack for ack in self.rig.acks(checkpoint) if ack.subtask == self.task.subtask]
        return self.sent_on[-1] == f"barrier {checkpoint}" and len(acks) == 1


def aligner(channels: int = 3) -> Middle:
    return Middle(channels, exactly_once=True)


def tracker(channels: int = 3) -> Middle:
    return Middle(channels, exactly_once=False)


# -- both --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [aligner, tracker])
def test_B02_B09_a_marker_is_swallowed_declined_and_sent_anew_and_the_channel_goes_on(make: object) -> None:
    middle = aligner() if make is aligner else tracker()
    middle.cancel(0, 1)
    middle.row(0, 10)
    assert (middle.declined, middle.sent_on, middle.seen) == ([(1, CANCELLED)], ["cancel 1"], [10])
    assert middle.goes_on(2)


# -- exactly once ------------------------------------------------------------------------------------------------------


def test_B36_one_channel_gives_up_a_newer_checkpoint_and_ignores_its_barrier_and_what_is_not_newer() -> None:
    middle = aligner(1)
    middle.barrier(0, 1)
    middle.cancel(0, 3)
    middle.barrier(0, 3)
    middle.cancel(0, 2, 3)
    assert (middle.declined, middle.sent_on) == ([(3, CANCELLED)], ["barrier 1", "cancel 3"])
    assert middle.goes_on(4)


def test_B35_B37_cancelling_the_running_checkpoint_releases_its_channels_and_it_never_completes() -> None:
    middle = aligner()
    middle.barrier(0, 1)
    middle.row(0, 10)
    assert middle.seen == []
    middle.cancel(1, 1)
    assert (middle.seen, middle.declined, middle.sent_on) == ([10], [(1, CANCELLED)], ["cancel 1"])
    middle.barrier(2, 1)
    middle.row(2, 12)
    assert (middle.seen, middle.sent_on) == ([10, 12], ["cancel 1"])
    assert middle.goes_on(2)


def test_B38_cancelling_a_higher_one_while_aligning_ends_the_alignment_and_reports_the_higher_one_alone() -> None:
    middle = aligner()
    middle.barrier(0, 1)
    middle.row(0, 10)
    middle.cancel(1, 2)
    assert (middle.seen, middle.declined, middle.sent_on) == ([10], [(2, CANCELLED)], ["cancel 2"])
    middle.barrier(1, 1, 2)
    middle.barrier(2, 1, 2)
    assert middle.sent_on == ["cancel 2"], "neither of them can complete"
    assert middle.goes_on(3)


def test_B39_cancelling_a_lower_one_while_aligning_is_ignored() -> None:
    middle = aligner()
    middle.barrier(0, 2)
    middle.row(0, 10)
    middle.cancel(1, 1)
    assert (middle.seen, middle.declined, middle.sent_on) == ([], [], [])
    middle.barrier(1, 2)
    middle.barrier(2, 2)
    assert (middle.seen, middle.sent_on) == ([10], ["barrier 2"])


def test_B40_a_cancellation_that_comes_first_is_reported_and_its_barriers_block_and_start_nothing() -> None:
    middle = aligner()
    middle.cancel(0, 1)
    for channel in (1, 2):
        middle.barrier(channel, 1)
        middle.row(channel, 10 + channel)
    assert (middle.declined, middle.sent_on, middle.seen) == ([(1, CANCELLED)], ["cancel 1"], [11, 12])
    assert middle.goes_on(2)


@pytest.mark.parametrize("checkpoint", [1, 2])
def test_B41_a_cancellation_that_is_not_newer_is_ignored_when_nothing_aligns(checkpoint: int) -> None:
    middle = aligner()
    for channel in range(3):
        middle.barrier(channel, 2)
    middle.cancel(1, checkpoint)
    assert (middle.declined, middle.sent_on) == ([], ["barrier 2"])
    assert middle.goes_on(3)


def test_B41_the_second_cancellation_of_a_checkpoint_is_not_reported_again() -> None:
    middle = aligner()
    for channel in range(3):
        middle.cancel(channel, 1)
    assert (middle.declined, middle.sent_on) == ([(1, CANCELLED)], ["cancel 1"])


# -- at least once -----------------------------------------------------------------------------------------------------


def test_B22_one_channel_reports_a_cancellation_at_once_and_never_passes_that_checkpoint_on() -> None:
    middle = tracker(1)
    middle.cancel(0, 1)
    assert (middle.declined, middle.sent_on) == ([(1, CANCELLED)], ["cancel 1"])
    middle.barrier(0, 1)
    assert middle.sent_on == ["cancel 1"]
    assert middle.goes_on(2)


def test_B23_a_cancellation_gives_up_every_pending_one_below_it_once() -> None:
    middle = tracker()
    middle.barrier(0, 1, 2, 3)
    middle.cancel(1, 1)
    middle.cancel(1, 3)
    assert middle.declined == [(1, CANCELLED), (2, CANCELLED), (3, CANCELLED)]
    assert middle.sent_on == ["cancel 1", "cancel 2", "cancel 3"]
    middle.barrier(2, 1, 2, 3)
    assert len(middle.sent_on) == 3
    assert middle.goes_on(4)


def test_B24_a_cancelled_one_counts_on_is_reported_once_and_never_passed_on() -> None:
    middle = tracker()
    middle.barrier(0, 1)
    middle.cancel(1, 1)
    middle.cancel(2, 1)
    assert (middle.declined, middle.sent_on) == ([(1, CANCELLED)], ["cancel 1"])
    middle.barrier(0, 2)
    middle.cancel(1, 2)
    middle.barrier(2, 2)
    assert (middle.declined[1:], middle.sent_on[1:]) == ([(2, CANCELLED)], ["cancel 2"])
    assert middle.goes_on(3)


def test_B25_a_cancellation_above_the_latest_is_reported_and_takes_the_older_ones_along() -> None:
    middle = tracker()
    middle.barrier(0, 1)
    middle.cancel(1, 3)
    assert middle.declined == [(1, CANCELLED), (3, CANCELLED)]
    middle.barrier(2, 1)
    middle.barrier(0, 2, 3)
    middle.barrier(1, 2)
    middle.barrier(2, 2, 3)
    assert middle.sent_on == ["cancel 1", "cancel 3"], "what is below the latest is not begun any more"
    assert middle.goes_on(4)


@pytest.mark.parametrize("checkpoint", [1, 2])
def test_B26_a_cancellation_of_an_old_one_is_ignored(checkpoint: int) -> None:
    middle = tracker()
    for channel in range(3):
        middle.barrier(channel, 2)
    middle.cancel(0, checkpoint)
    assert (middle.declined, middle.sent_on) == ([], ["barrier 2"])
    assert middle.goes_on(3)
