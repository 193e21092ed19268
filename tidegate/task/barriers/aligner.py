"""The exactly-once handler: a channel that has delivered its barrier waits until every channel has (F13, B27-B41).

Rules:
- one alignment at a time; a higher id aborts the running one (B30);
- a checkpoint that was cancelled, here, upstream or by the coordinator, has zero barriers and can never complete (B35,
  B40);
- nothing is taken from a blocked channel (B01, B29);
- blocks are released before the notification, so that elements after the barrier are processed after it (B34, F14).
"""

from __future__ import annotations

from tidegate.ids import CheckpointId
from tidegate.task.barriers.handler import (
    AbandonedIds,
    Abort,
    AbortReason,
    Action,
    Block,
    ChannelIndex,
    ConsumingHandler,
    Notify,
    ReleaseAll,
    StreamCorrupt,
    start_delay_ms,
)
from tidegate.task.elements import Barrier


class Aligner(ConsumingHandler):
    """The exactly-once handler. `current` is the newest checkpoint seen: completed, running or cancelled."""

    def __init__(self, channels: int) -> None:
        self.channels = channels
        self.current = CheckpointId(0)
        self._barrier: Barrier | None = None
        self._started_ms = 0
        self._start_delay_ms = 0
        self._received: set[ChannelIndex] = set()
        self._abandoned = AbandonedIds()

    @property
    def aligning(self) -> bool:
        """Whether some, but not all, barriers of `current` have arrived."""
        return self._barrier is not None

    def is_blocked(self, channel: ChannelIndex) -> bool:
        """Returns whether the channel is blocked: from its barrier until the alignment ends."""
        return channel in self._received

    def on_barrier(self, channel: ChannelIndex, barrier: Barrier, now_ms: int) -> list[Action]:
        """Blocks the channel and completes the checkpoint with the last barrier (B27-B35)."""
        checkpoint = barrier.checkpoint
        self._check_released(channel, f"barrier of checkpoint {checkpoint}")
        if self._is_old(checkpoint):
            return []
        if checkpoint == self.current:
            self._received.add(channel)
            return [Block(channel), *self._complete(now_ms)]
        actions: list[Action] = []
        if self._barrier is not None:
            actions = [*self._release(), Abort(self.current, AbortReason.SUBSUMED)]
        if checkpoint in self._abandoned:
            self._advance(checkpoint)
            return actions
        self._advance(checkpoint)
        return actions + self._start(channel, barrier, now_ms)

    def on_cancel(self, channel: ChannelIndex, checkpoint: CheckpointId) -> list[Action]:
        """Ends the alignment on a cancellation of the running or of a higher checkpoint (B36-B41)."""
        self._check_released(channel, f"cancellation of checkpoint {checkpoint}")
        if self._is_old(checkpoint):
            return []
        known = checkpoint in self._abandoned
        released = self._release()
        self._advance(checkpoint)
        return released if known else [*released, Abort(checkpoint, AbortReason.CANCELLED_UPSTREAM)]

    def on_abandoned(self, checkpoint: CheckpointId) -> list[Action]:
        """Releases the running alignment of this checkpoint; a later barrier of it starts no alignment (B40)."""
        if checkpoint > self.current:
            self._abandoned.add(checkpoint)
            return []
        return self._release() if checkpoint == self.current else []

    def _check_released(self, channel: ChannelIndex, what: str) -> None:
        if channel in self._received:
            raise StreamCorrupt(f"channel {channel}: {what} after its barrier of checkpoint {self.current}")

    def _is_old(self, checkpoint: CheckpointId) -> bool:
        """Returns whether the id is below the newest, or the newest itself if completed or cancelled (B31, B32, B39,
        B41).
        """
        return checkpoint < self.current or (checkpoint == self.current and self._barrier is None)

    def _advance(self, checkpoint: CheckpointId) -> None:
        self.current = checkpoint
        self._abandoned.forget_up_to(checkpoint)

    def _start(self, channel: ChannelIndex, barrier: Barrier, now_ms: int) -> list[Action]:
        """Starts an alignment (B33)."""
        self._barrier = barrier
        self._started_ms = now_ms
        self._start_delay_ms = start_delay_ms(barrier, now_ms)
        self._received = {channel}
        return [Block(channel), *self._complete(now_ms)]

    def _complete(self, now_ms: int) -> list[Action]:
        barrier = self._barrier
        if barrier is None or len(self._received) < self.channels:
            return []
        released = self._release()
        return [*released, Notify(barrier, max(0, now_ms - self._started_ms), self._start_delay_ms)]

    def _release(self) -> list[Action]:
        held, self._received, self._barrier = self._received, set(), None
        return [ReleaseAll()] if held else []
