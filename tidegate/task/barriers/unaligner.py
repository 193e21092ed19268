"""Unaligned checkpoints from their notification until none of their data is in flight (B43-B47).

The Alternating handler decides when one begins here, and calls only for those that have.

Rules:
- nothing is ever blocked; data ahead of a barrier that has not been consumed is in-flight data of its checkpoint;
- several checkpoints may be in progress; snapshots are taken in the order of their ids;
- barriers of a channel arrive in the order of their ids, so one that is missing when a higher one arrives never comes,
  and its checkpoint is aborted;
- a checkpoint whose barriers have all arrived can no longer be cancelled here.
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
    """A notified checkpoint and the channels whose barriers have been received and consumed."""

    __slots__ = ("consumed", "received", "started_ms")

    def __init__(self, received: set[ChannelIndex], consumed: set[ChannelIndex], started_ms: int) -> None:
        self.received = received
        self.consumed = consumed
        self.started_ms = started_ms


class Unaligner:
    """The unaligned checkpoints in progress at one subtask."""

    def __init__(self, channels: int) -> None:
        self.channels = channels
        self._tracked: dict[CheckpointId, _Tracked] = {}
        self._complete: set[CheckpointId] = set()

    def __contains__(self, checkpoint: CheckpointId) -> bool:
        """Whether it was notified and some of its barriers are not consumed yet."""
        return checkpoint in self._tracked

    def on_arrival(self, channel: ChannelIndex, control: CheckpointControl, now_ms: int) -> list[Action]:
        """Handles a control element of a checkpoint in progress. Raises StreamCorrupt on a repeated barrier.

        A cancellation takes effect wherever it is in its channel, unless all barriers have arrived.
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
        """Notifies a checkpoint whose first barrier arrived at `started_ms`; some barriers may have been consumed
        since.
        """
        checkpoint = barrier.checkpoint
        self._tracked[checkpoint] = _Tracked(set(received), set(consumed), started_ms)
        notify = Notify(barrier, max(0, now_ms - started_ms), start_delay_ms(barrier, started_ms))
        return [*self._make_room(), notify, *self._complete_all(now_ms)]

    def give_up_skipped(self, channel: ChannelIndex, checkpoint: CheckpointId) -> list[Action]:
        """Aborts older checkpoints whose barrier has not arrived on this channel: it never will."""
        skipped = [
            older
            for older, tracked in self._tracked.items()
            if older < checkpoint and older not in self._complete and channel not in tracked.received
        ]
        return [self._abort(older, AbortReason.SUBSUMED) for older in skipped]

    def on_barrier(self, channel: ChannelIndex, checkpoint: CheckpointId) -> None:
        """Ends the channel's in-flight data for the checkpoint, whose barrier was consumed (B44)."""
        tracked = self._tracked.get(checkpoint)
        if tracked is not None:
            tracked.consumed.add(channel)
            self._forget_consumed()

    def on_abandoned(self, checkpoint: CheckpointId) -> None:
        """Drops a checkpoint that the coordinator aborted."""
        if checkpoint in self._tracked:
            self._drop(checkpoint)

    def recording(self, channel: ChannelIndex) -> Sequence[CheckpointId]:
        """Returns notified checkpoints whose barrier is still to arrive on the channel (B47)."""
        return [
            checkpoint
            for checkpoint, tracked in self._tracked.items()
            if checkpoint not in self._complete and channel not in tracked.received
        ]

    def has_inflight(self, channel: ChannelIndex, checkpoint: CheckpointId) -> bool:
        """Returns whether unconsumed data of the channel belongs to the checkpoint (B45)."""
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
        """Aborts the oldest checkpoint if there are more than the bound."""
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
