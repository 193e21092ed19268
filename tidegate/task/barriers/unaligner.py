"""Unaligned checkpoints from their notification until nothing of theirs is in flight (B43-B47).

The Alternating handler decides when one begins here, and asks only about those that have.

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
    Abort,
    AbortReason,
    Action,
    BarriersReceived,
    ChannelIndex,
    Notify,
    StreamCorrupt,
    start_delay_ms,
)
from tidegate.task.elements import Barrier, CheckpointControl


class _Tracked:
    """A checkpoint that was notified: where its barriers are."""

    __slots__ = ("consumed", "received", "started_ms")

    def __init__(self, received: set[ChannelIndex], consumed: set[ChannelIndex], started_ms: int) -> None:
        self.received = received
        self.consumed = consumed
        self.started_ms = started_ms


class Unaligner:
    """See the module."""

    def __init__(self, channels: int) -> None:
        self.channels = channels
        self._tracked: dict[CheckpointId, _Tracked] = {}
        self._complete: set[CheckpointId] = set()

    def __contains__(self, checkpoint: CheckpointId) -> bool:
        """Whether it was notified and some of its barriers are not consumed yet."""
        return checkpoint in self._tracked

    def on_arrival(self, channel: ChannelIndex, control: CheckpointControl, now_ms: int) -> list[Action]:
        """A control element of a checkpoint that has begun arrives; a cancellation is obeyed wherever it stands in its
        channel, unless all barriers are here. Raises StreamCorrupt on a repeated barrier.
        """
        checkpoint = control.checkpoint
        if not isinstance(control, Barrier):
            cancelled = checkpoint not in self._complete
            return [self._abort(checkpoint, AbortReason.CANCELLED_UPSTREAM)] if cancelled else []
        tracked = self._tracked[checkpoint]
        if channel in tracked.received:
            raise StreamCorrupt(f"channel {channel}: second barrier of checkpoint {checkpoint}")
        tracked.received.add(channel)
        return self._complete_all(now_ms)

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

    def on_barrier(self, channel: ChannelIndex, checkpoint: CheckpointId) -> None:
        """B44: consumed, so from here on the channel has no in-flight data for the checkpoint."""
        tracked = self._tracked.get(checkpoint)
        if tracked is not None:
            tracked.consumed.add(channel)
            self._forget_consumed()

    def on_abandoned(self, checkpoint: CheckpointId) -> None:
        """The coordinator gave it up."""
        if checkpoint in self._tracked:
            self._drop(checkpoint)

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
