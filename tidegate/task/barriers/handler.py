"""What every barrier handler takes and returns.

A handler sees the control elements of all input channels of one subtask (B06: summed over its edges) and returns
actions. It holds no channel, clock or socket: the caller passes in the time and carries out the actions in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec
from typing_extensions import override

from tidegate.errors import TidegateError
from tidegate.ids import CheckpointId
from tidegate.task.elements import Barrier, CheckpointControl

CHECKPOINTS_TRACKED_MAX: Final = 50
"""At most this many ids are remembered; the oldest is dropped first (B20; Flink's value)."""

ChannelIndex = int
"""Position of an input channel within its subtask, 0 .. channels - 1."""


class AbortReason(StrEnum):
    """Why a subtask aborted a checkpoint; distinct values, reported to the coordinator (B10)."""

    CANCELLED_UPSTREAM = "declined: a cancellation marker arrived"
    SUBSUMED = "declined: a newer checkpoint's barrier arrived first"
    SNAPSHOT_FAILED = "declined: the snapshot failed"


class Block(msgspec.Struct, frozen=True):
    """The action to process nothing more from this channel, which continues to receive (C35)."""

    channel: ChannelIndex


class ReleaseAll(msgspec.Struct, frozen=True):
    """The action to process every channel again."""


class Notify(msgspec.Struct, frozen=True):
    """The action to pass the barrier on and take the snapshot (B07): all barriers have arrived, or the first one
    overtakes.
    """

    barrier: Barrier
    alignment_ms: int
    start_delay_ms: int


class Abort(msgspec.Struct, frozen=True):
    """The action to abort the checkpoint here: decline it and send a cancellation marker downstream (B09)."""

    checkpoint: CheckpointId
    reason: AbortReason


class BarriersReceived(msgspec.Struct, frozen=True):
    """Notice that every channel has delivered the barrier of an unaligned checkpoint: all rows in flight are known
    (B46).
    """

    checkpoint: CheckpointId
    alignment_ms: int
    """Between the first and the last barrier."""


Action = Block | ReleaseAll | Notify | Abort | BarriersReceived


class StreamCorrupt(TidegateError):
    """The channels delivered an invalid sequence: two barriers of one checkpoint on one channel, or data
    while blocked.
    """

    code = "stream-corrupt"
    exit_code = 4


class AbandonedIds:
    """Checkpoints that the coordinator aborted before any of their barriers arrived here.

    They are remembered instead of advancing the handler's newest id: an older checkpoint may still be active (F07).
    """

    def __init__(self) -> None:
        self._ids: set[CheckpointId] = set()

    def __contains__(self, checkpoint: CheckpointId) -> bool:
        return checkpoint in self._ids

    def add(self, checkpoint: CheckpointId) -> None:
        """Remembers the id. Beyond the bound the oldest is forgotten; its barriers then align in vain, which is
        harmless.
        """
        self._ids.add(checkpoint)
        if len(self._ids) > CHECKPOINTS_TRACKED_MAX:
            self._ids.remove(min(self._ids))

    def forget_up_to(self, newest: CheckpointId) -> None:
        """Forgets ids up to the newest, which are rejected by comparison alone."""
        self._ids = {checkpoint for checkpoint in self._ids if checkpoint > newest}


class BarrierHandler(Protocol):
    """The contract of all handlers. Checkpoint ids only grow (B13).

    An element *arrives* when its channel receives it, and is *consumed* when it has reached the head of its channel and
    is taken. Aligned barriers are handled when consumed, unaligned ones when they arrive. Every element arrives before
    it is consumed.
    """

    @property
    def watches_arrivals(self) -> bool:
        """Whether arrivals must be reported to the handler."""

    def on_arrival(self, channel: ChannelIndex, control: CheckpointControl, now_ms: int) -> list[Action]:
        """Handles a control element that has arrived. Raises StreamCorrupt on a repeat."""

    def on_barrier(self, channel: ChannelIndex, barrier: Barrier, now_ms: int) -> list[Action]:
        """Handles a barrier that was consumed. Raises StreamCorrupt on a repeat (B21, B29)."""

    def on_cancel(self, channel: ChannelIndex, checkpoint: CheckpointId) -> list[Action]:
        """Handles a cancellation marker that was consumed."""

    def on_time(self, now_ms: int) -> list[Action]:
        """Acts when `next_deadline_ms` is reached."""

    def on_abandoned(self, checkpoint: CheckpointId) -> list[Action]:
        """Stops waiting for a checkpoint that the coordinator aborted. The coordinator knows, so nothing is
        declined.
        """

    @property
    def next_deadline_ms(self) -> int | None:
        """When `on_time` is due, ms since 1970; None while only elements can change anything."""

    def is_blocked(self, channel: ChannelIndex) -> bool:
        """Returns whether the channel's data must wait (B12: only during alignment)."""

    def recording(self, channel: ChannelIndex) -> Sequence[CheckpointId]:
        """Returns the checkpoints to which a batch that arrives on the channel now belongs as in-flight data (B47)."""

    def has_inflight(self, channel: ChannelIndex, checkpoint: CheckpointId) -> bool:
        """Returns whether unconsumed data of the channel up to the checkpoint's barrier belongs to the checkpoint
        (B45).

        This holds from the notification until the barrier is consumed.
        """


class ConsumingHandler(BarrierHandler):
    """The defaults of a handler that reacts only to consumed elements (B12)."""

    watches_arrivals: bool = False
    next_deadline_ms: int | None = None

    @override
    def on_arrival(self, channel: ChannelIndex, control: CheckpointControl, now_ms: int) -> list[Action]:
        return []

    @override
    def on_time(self, now_ms: int) -> list[Action]:
        return []

    @override
    def recording(self, channel: ChannelIndex) -> Sequence[CheckpointId]:
        return ()

    @override
    def has_inflight(self, channel: ChannelIndex, checkpoint: CheckpointId) -> bool:
        return False


def start_delay_ms(barrier: Barrier, now_ms: int) -> int:
    """Returns the time between the trigger and the first barrier here, never negative (B08)."""
    return max(0, now_ms - barrier.timestamp_ms)
