"""The handler where unaligned checkpoints are allowed: each one is assigned to the Aligner or to the Unaligner (B48).

A checkpoint *waits* from its first arriving barrier until it is notified or aborted here. Rules:
- an aligned checkpoint waits for the Aligner; an unaligned one moves to the Unaligner at once; one with a time limit
  waits for the Aligner until the limit, counted from the arrival of its first barrier, or until one of its barriers
  arrives unaligned;
- snapshots are taken in the order of ids: a checkpoint that moves takes older ones with a time limit along, and waits
  for an older aligned one;
- a barrier that is missing on a channel where a higher one arrives never comes, so its checkpoint is aborted;
- cancellations take effect on arrival; the Aligner never sees one.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.ids import CheckpointId
from tidegate.task.barriers.aligner import Aligner
from tidegate.task.barriers.handler import (
    CHECKPOINTS_TRACKED_MAX,
    AbandonedIds,
    Abort,
    AbortReason,
    Action,
    ChannelIndex,
    Notify,
    StreamCorrupt,
)
from tidegate.task.barriers.unaligner import Unaligner
from tidegate.task.elements import Barrier, CancelMarker, CheckpointControl


class _Waiting:
    """A checkpoint that is not decided here. `due_ms` is when it moves to the Unaligner; None for never."""

    __slots__ = ("barrier", "consumed", "due_ms", "received", "since_ms")

    def __init__(self, barrier: Barrier, now_ms: int) -> None:
        self.barrier = barrier
        self.since_ms = now_ms
        self.due_ms: int | None = None
        self.received: set[ChannelIndex] = set()
        self.consumed: set[ChannelIndex] = set()

    def receive(self, channel: ChannelIndex, barrier: Barrier) -> None:
        if channel in self.received:
            raise StreamCorrupt(f"channel {channel}: second barrier of checkpoint {barrier.checkpoint}")
        self.received.add(channel)
        if barrier.unaligned_after_ms is not None:
            due_ms = self.since_ms + barrier.unaligned_after_ms
            self.due_ms = due_ms if self.due_ms is None else min(self.due_ms, due_ms)


class Alternating:
    """The handler for exactly-once with unaligned checkpoints. `newest` is the highest id of which a barrier has
    arrived.
    """

    watches_arrivals = True

    def __init__(self, channels: int) -> None:
        self.channels = channels
        self.newest = CheckpointId(0)
        self._aligner = Aligner(channels)
        self._unaligner = Unaligner(channels)
        self._waiting: dict[CheckpointId, _Waiting] = {}
        self._given_up = AbandonedIds()

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next checkpoint moves to the Unaligner; those that wait for an aligned one do not count."""
        if not self._waiting:
            return None
        dues: list[int] = []
        for _, waiting in sorted(self._waiting.items()):
            if waiting.due_ms is None:
                break
            dues.append(waiting.due_ms)
        return min(dues, default=None)

    def on_arrival(self, channel: ChannelIndex, control: CheckpointControl, now_ms: int) -> list[Action]:
        """Applies the module's rules to a barrier or cancellation that arrives."""
        if isinstance(control, Barrier):
            return self._on_barrier_arrived(channel, control, now_ms)
        return self._on_cancel_arrived(channel, control, now_ms)

    def on_barrier(self, channel: ChannelIndex, barrier: Barrier, now_ms: int) -> list[Action]:
        """Passes a waiting checkpoint's barrier to the Aligner; any other is tracked or old."""
        waiting = self._waiting.get(barrier.checkpoint)
        if waiting is None:
            self._unaligner.on_barrier(channel, barrier.checkpoint)
            return []
        waiting.consumed.add(channel)
        return self._aligned(self._aligner.on_barrier(channel, barrier, now_ms), now_ms)

    def on_cancel(self, channel: ChannelIndex, checkpoint: CheckpointId) -> list[Action]:  # noqa: ARG002 - protocol
        """Does nothing: the cancellation took effect when it arrived."""
        return []

    def on_time(self, now_ms: int) -> list[Action]:
        """Moves checkpoints whose limit has passed to the Unaligner, together with all that wait before them."""
        ready: list[CheckpointId] = []
        last = 0
        for checkpoint, waiting in sorted(self._waiting.items()):
            if waiting.due_ms is None:
                break
            ready.append(checkpoint)
            if waiting.due_ms <= now_ms:
                last = len(ready)
        actions: list[Action] = []
        for checkpoint in ready[:last]:
            waiting = self._waiting[checkpoint]
            actions += self._remove(checkpoint)
            actions += self._unaligner.begin(
                waiting.barrier.as_unaligned(), waiting.received, waiting.consumed, waiting.since_ms, now_ms
            )
        return actions

    def on_abandoned(self, checkpoint: CheckpointId) -> list[Action]:
        """Stops waiting for it. Checkpoints that waited for it move at the next `on_time`, which is due at once."""
        if checkpoint in self._waiting:
            return self._remove(checkpoint)
        if checkpoint > self.newest:
            self._given_up.add(checkpoint)
            return []
        self._unaligner.on_abandoned(checkpoint)
        return []

    def is_blocked(self, channel: ChannelIndex) -> bool:
        """Returns whether the Aligner blocks the channel."""
        return self._aligner.is_blocked(channel)

    def recording(self, channel: ChannelIndex) -> Sequence[CheckpointId]:
        """Returns the checkpoints that record the channel (B47)."""
        return self._unaligner.recording(channel)

    def has_inflight(self, channel: ChannelIndex, checkpoint: CheckpointId) -> bool:
        """Returns whether the channel has in-flight data (B45); an aligned checkpoint has none."""
        return self._unaligner.has_inflight(channel, checkpoint)

    def _on_barrier_arrived(self, channel: ChannelIndex, barrier: Barrier, now_ms: int) -> list[Action]:
        checkpoint = barrier.checkpoint
        actions = self._give_up_skipped(channel, checkpoint)
        if checkpoint in self._unaligner:
            return actions + self._unaligner.on_arrival(channel, barrier, now_ms)
        waiting = self._waiting.get(checkpoint)
        if waiting is None:
            if checkpoint <= self.newest:
                return actions + self.on_time(now_ms)
            self.newest = checkpoint
            abandoned = checkpoint in self._given_up
            self._given_up.forget_up_to(checkpoint)
            if abandoned:
                return actions + self.on_time(now_ms)
            waiting = self._waiting[checkpoint] = _Waiting(barrier, now_ms)
            if len(self._waiting) > CHECKPOINTS_TRACKED_MAX:
                actions += self._give_up(min(self._waiting), AbortReason.SUBSUMED)
        waiting.receive(channel, barrier)
        return actions + self.on_time(now_ms)

    def _on_cancel_arrived(self, channel: ChannelIndex, cancel: CancelMarker, now_ms: int) -> list[Action]:
        checkpoint = cancel.checkpoint
        if checkpoint in self._waiting:
            return self._give_up(checkpoint, AbortReason.CANCELLED_UPSTREAM) + self.on_time(now_ms)
        if checkpoint in self._unaligner:
            return self._unaligner.on_arrival(channel, cancel, now_ms)
        if checkpoint <= self.newest or checkpoint in self._given_up:
            return []
        self._given_up.add(checkpoint)
        return [Abort(checkpoint, AbortReason.CANCELLED_UPSTREAM)]

    def _give_up_skipped(self, channel: ChannelIndex, checkpoint: CheckpointId) -> list[Action]:
        actions = self._unaligner.give_up_skipped(channel, checkpoint)
        for older in sorted(self._waiting):
            if older < checkpoint and channel not in self._waiting[older].received:
                actions += self._give_up(older, AbortReason.SUBSUMED)
        return actions

    def _give_up(self, checkpoint: CheckpointId, reason: AbortReason) -> list[Action]:
        return [*self._remove(checkpoint), Abort(checkpoint, reason)]

    def _remove(self, checkpoint: CheckpointId) -> list[Action]:
        """Stops waiting for the checkpoint and releases the channels that it blocks."""
        del self._waiting[checkpoint]
        return self._aligner.on_abandoned(checkpoint) if checkpoint == self._aligner.current else []

    def _aligned(self, actions: list[Action], now_ms: int) -> list[Action]:
        """Completes the Aligner's actions: a notified checkpoint no longer waits, and those that waited for it move."""
        for action in actions:
            if isinstance(action, Notify):
                del self._waiting[action.barrier.checkpoint]
        return actions + self.on_time(now_ms)
