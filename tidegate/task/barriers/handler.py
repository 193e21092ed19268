"""What every barrier handler takes and returns.

A handler sees the control elements of all input channels of one subtask (B06: summed over its edges) and answers with
actions. It holds no channel, clock or socket: the caller passes the time in and carries the actions out, in order.
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
"""More ids than this are not remembered, the oldest goes first (B20; Flink's value)."""

ChannelIndex = int
"""Position of an input channel within its subtask, 0 .. channels - 1."""


class AbortReason(StrEnum):
    """Why a subtask gave a checkpoint up; distinct values, reported to the coordinator (B10)."""

    CANCELLED_UPSTREAM = "declined: a cancellation marker arrived"
    SUBSUMED = "declined: a newer checkpoint's barrier arrived first"
    SNAPSHOT_FAILED = "declined: the snapshot failed"


class Block(msgspec.Struct, frozen=True):
    """Process nothing more of this channel; it goes on receiving (C35)."""

    channel: ChannelIndex


class ReleaseAll(msgspec.Struct, frozen=True):
    """Every channel may be processed again."""


class Notify(msgspec.Struct, frozen=True):
    """Pass the barrier on and take the snapshot (B07): all barriers are here, or the first one overtakes."""

    barrier: Barrier
    alignment_ms: int
    start_delay_ms: int


class Abort(msgspec.Struct, frozen=True):
    """The checkpoint is given up here: decline it and send a cancellation marker downstream (B09)."""

    checkpoint: CheckpointId
    reason: AbortReason


class BarriersReceived(msgspec.Struct, frozen=True):
    """Every channel has delivered the barrier of an unaligned checkpoint: all that is in flight is known (B46)."""

    checkpoint: CheckpointId
    alignment_ms: int
    """Between the first and the last barrier."""


Action = Block | ReleaseAll | Notify | Abort | BarriersReceived


class StreamCorrupt(TidegateError):
    """The channels delivered what cannot be: two barriers of one checkpoint on one channel, or data while blocked."""

    code = "stream-corrupt"
    exit_code = 4


class AbandonedIds:
    """Checkpoints that the coordinator gave up before any barrier of theirs came here.

    They are remembered instead of moving the handler's newest id forward: an older checkpoint may still be alive (F07).
    """

    def __init__(self) -> None:
        self._ids: set[CheckpointId] = set()

    def __contains__(self, checkpoint: CheckpointId) -> bool:
        return checkpoint in self._ids

    def add(self, checkpoint: CheckpointId) -> None:
        """Remember it; beyond the bound the oldest is forgotten, whose barriers then align for nobody, harmlessly."""
        self._ids.add(checkpoint)
        if len(self._ids) > CHECKPOINTS_TRACKED_MAX:
            self._ids.remove(min(self._ids))

    def forget_up_to(self, newest: CheckpointId) -> None:
        """Ids that are no longer above the newest are refused by comparison alone."""
        self._ids = {checkpoint for checkpoint in self._ids if checkpoint > newest}


class BarrierHandler(Protocol):
    """The contract of all handlers. Checkpoint ids only grow (B13).

    An element *arrives* when its channel receives it, and is *consumed* when it has reached the head of its channel and
    is taken. Aligned barriers are handled when consumed, unaligned ones when they arrive. Every element arrives before
    it is consumed.
    """

    @property
    def watches_arrivals(self) -> bool:
        """Whether arrivals must be reported; otherwise they need not be."""

    def on_arrival(self, channel: ChannelIndex, control: CheckpointControl, now_ms: int) -> list[Action]:
        """A control element has arrived. Raises StreamCorrupt on a repeat."""

    def on_barrier(self, channel: ChannelIndex, barrier: Barrier, now_ms: int) -> list[Action]:
        """A barrier was consumed. Raises StreamCorrupt on a repeat (B21, B29)."""

    def on_cancel(self, channel: ChannelIndex, checkpoint: CheckpointId) -> list[Action]:
        """A cancellation marker was consumed."""

    def on_time(self, now_ms: int) -> list[Action]:
        """`next_deadline_ms` has come."""

    def on_abandoned(self, checkpoint: CheckpointId) -> list[Action]:
        """The coordinator gave the checkpoint up: stop waiting for it. It knows, so nothing is declined."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When `on_time` is due, ms since 1970; None while only elements can change anything."""

    def is_blocked(self, channel: ChannelIndex) -> bool:
        """Whether the channel's data must wait (B12: never, unless aligning)."""

    def recording(self, channel: ChannelIndex) -> Sequence[CheckpointId]:
        """Checkpoints to which a batch that arrives on the channel now belongs as in-flight data (B47)."""

    def has_inflight(self, channel: ChannelIndex, checkpoint: CheckpointId) -> bool:
        """Whether what is not consumed of the channel belongs to the unaligned checkpoint as far as its barrier (B45).

        From the notification until the barrier is consumed.
        """


class ConsumingHandler(BarrierHandler):
    """What a handler answers that looks at consumed elements only (B12)."""

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
    """Time between the trigger and the first barrier here, never negative (B08)."""
    return max(0, now_ms - barrier.timestamp_ms)
