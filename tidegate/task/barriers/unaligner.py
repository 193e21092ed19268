"""The handler of unaligned checkpoints: the snapshot is taken when the first barrier arrives (B43-B47).

Rules
- nothing is ever blocked; what lies ahead of a barrier that has not been consumed is in-flight data of its checkpoint;
- several checkpoints may be under way; snapshots are taken in the order of their ids;
- barriers of a channel arrive in the order of their ids, so one that is missing when a higher one arrives never comes:
  its checkpoint is given up;
- a checkpoint whose barriers are all here can no longer be cancelled here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegate.ids import CheckpointId
from tidegate.task.barriers.handler import (
    CHECKPOINTS_TRACKED_MAX,
    AbandonedIds,
    Abort,
    AbortReason,
    Action,
    BarriersReceived,
    ChannelIndex,
    Notify,
    StreamCorrupt,
    start_delay_ms,
)
from tidegate.task.elements import Barrier, Control


class _Tracked:
    """A checkpoint that was notified: where its barriers are."""

    __slots__ = ("consumed", "received", "started_ms")

    def __init__(self, received: set[ChannelIndex], consumed: set[ChannelIndex], started_ms: int) -> None:
        self.received = received
        self.consumed = consumed
        self.started_ms = started_ms


class Unaligner:
    """See the module. `newest` is the highest id of which a barrier has arrived."""

    watches_arrivals = True
    next_deadline_ms: int | None = None

    def __init__(self, channels: int) -> None:
        self.channels = channels
        self.newest = CheckpointId(0)
        self._tracked: dict[CheckpointId, _Tracked] = {}
        self._complete: set[CheckpointId] = set()
        self._given_up = AbandonedIds()

    def __contains__(self, checkpoint: CheckpointId) -> bool:
        """Whether it was notified and some of its barriers are not consumed yet."""
        return checkpoint in self._tracked

    def on_arrival(self, channel: ChannelIndex, control: Control, now_ms: int) -> list[Action]:
        """B43, B46; a cancellation is obeyed at once, wherever it stands in its channel."""
        if isinstance(control, Barrier):
            return self._on_barrier_arrived(channel, control, now_ms)
        return self._on_cancel_arrived(control.checkpoint)

    def begin(
        self,
        barrier: Barrier,
        received: Iterable[ChannelIndex],
        consumed: Iterable[ChannelIndex],
        started_ms: int,
        now_ms: int,
    ) -> list[Action]:
        """Notify a checkpoint whose first barrier came at `started_ms`; some barriers may have been consumed since."""
        checkpoint = barrier.checkpoint
        self.newest = max(self.newest, checkpoint)
        self._given_up.forget_up_to(checkpoint)
        self._tracked[checkpoint] = _Tracked(set(received), set(consumed), started_ms)
        notify = Notify(barrier, max(0, now_ms - started_ms), start_delay_ms(barrier, started_ms))
        return [*self._make_room(), notify, *self._complete_all(now_ms)]

    def give_up_skipped(self, channel: ChannelIndex, checkpoint: CheckpointId) -> list[Action]:
        """A barrier of `checkpoint` arrives: older ones that have not come on this channel never will."""
        skipped = [
            older
            for older, tracked in self._tracked.items()
            if older < checkpoint and older not in self._complete and channel not in tracked.received
        ]
        return [self._abort(older, AbortReason.SUBSUMED) for older in skipped]

    def on_barrier(self, channel: ChannelIndex, barrier: Barrier, now_ms: int) -> list[Action]:  # noqa: ARG002 - protocol
        """B44: from here on the channel has no in-flight data for the checkpoint."""
        tracked = self._tracked.get(barrier.checkpoint)
        if tracked is not None:
            tracked.consumed.add(channel)
            self._forget_consumed()
        return []

    def on_cancel(self, channel: ChannelIndex, checkpoint: CheckpointId) -> list[Action]:  # noqa: ARG002 - protocol
        """Was obeyed when it arrived."""
        return []

    def on_time(self, now_ms: int) -> list[Action]:  # noqa: ARG002 - protocol
        """Nothing waits for the clock."""
        return []

    def on_abandoned(self, checkpoint: CheckpointId) -> list[Action]:
        """Drop it; a first barrier that is still to come notifies nobody."""
        if checkpoint in self._tracked:
            self._drop(checkpoint)
        elif checkpoint > self.newest:
            self._given_up.add(checkpoint)
        return []

    def is_blocked(self, channel: ChannelIndex) -> bool:  # noqa: ARG002 - protocol
        """Never."""
        return False

    def recording(self, channel: ChannelIndex) -> Sequence[CheckpointId]:
        """B47: notified, and the channel's barrier is still to come."""
        return [
            checkpoint
            for checkpoint, tracked in self._tracked.items()
            if checkpoint not in self._complete and channel not in tracked.received
        ]

    def has_inflight(self, channel: ChannelIndex, checkpoint: CheckpointId) -> bool:
        """B45."""
        tracked = self._tracked.get(checkpoint)
        return tracked is not None and channel not in tracked.consumed

    def _on_barrier_arrived(self, channel: ChannelIndex, barrier: Barrier, now_ms: int) -> list[Action]:
        checkpoint = barrier.checkpoint
        actions = self.give_up_skipped(channel, checkpoint)
        tracked = self._tracked.get(checkpoint)
        if tracked is not None:
            if channel in tracked.received:
                raise StreamCorrupt(f"channel {channel}: second barrier of checkpoint {checkpoint}")
            tracked.received.add(channel)
            return actions + self._complete_all(now_ms)
        if checkpoint <= self.newest:
            return actions
        if checkpoint in self._given_up:
            self.newest = checkpoint
            self._given_up.forget_up_to(checkpoint)
            return actions
        return actions + self.begin(barrier.as_unaligned(), {channel}, (), now_ms, now_ms)

    def _on_cancel_arrived(self, checkpoint: CheckpointId) -> list[Action]:
        if checkpoint in self._tracked:
            cancelled = checkpoint not in self._complete
            return [self._abort(checkpoint, AbortReason.CANCELLED_UPSTREAM)] if cancelled else []
        if checkpoint <= self.newest or checkpoint in self._given_up:
            return []
        self._given_up.add(checkpoint)
        return [Abort(checkpoint, AbortReason.CANCELLED_UPSTREAM)]

    def _complete_all(self, now_ms: int) -> list[Action]:
        done: list[Action] = []
        for checkpoint, tracked in self._tracked.items():
            if checkpoint not in self._complete and len(tracked.received) >= self.channels:
                self._complete.add(checkpoint)
                done.append(BarriersReceived(checkpoint, max(0, now_ms - tracked.started_ms)))
        self._forget_consumed()
        return done

    def _forget_consumed(self) -> None:
        for checkpoint in sorted(self._complete):
            if len(self._tracked[checkpoint].consumed) >= self.channels:
                self._drop(checkpoint)

    def _make_room(self) -> list[Action]:
        """More than the bound: the oldest is given up."""
        if len(self._tracked) <= CHECKPOINTS_TRACKED_MAX:
            return []
        oldest = min(self._tracked)
        if oldest in self._complete:
            self._drop(oldest)
            return []
        return [self._abort(oldest, AbortReason.SUBSUMED)]

    def _abort(self, checkpoint: CheckpointId, reason: AbortReason) -> Abort:
        self._drop(checkpoint)
        return Abort(checkpoint, reason)

    def _drop(self, checkpoint: CheckpointId) -> None:
        del self._tracked[checkpoint]
        self._complete.discard(checkpoint)
