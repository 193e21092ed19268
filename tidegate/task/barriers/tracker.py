"""The at-least-once handler: counts barriers and never blocks a channel (F19, B14-B26).

Rules:
- a queue of pending ids, ascending, each with the channels that have delivered it; a completed id removes every earlier
  one (B17);
- a cancelled id stays in the queue, is still counted, is reported once and never triggers (B24).
"""

from __future__ import annotations

from collections import OrderedDict

from tidegate.ids import CheckpointId
from tidegate.task.barriers.handler import (
    CHECKPOINTS_TRACKED_MAX,
    AbandonedIds,
    Abort,
    AbortReason,
    Action,
    ChannelIndex,
    ConsumingHandler,
    Notify,
    StreamCorrupt,
    start_delay_ms,
)
from tidegate.task.elements import Barrier


class _Pending:
    """A checkpoint that some channels have not delivered yet; `barrier` is None while only cancellations
    have arrived.
    """

    __slots__ = ("aborted", "barrier", "channels", "start_delay_ms")

    def __init__(self, barrier: Barrier | None, start_delay_ms: int, *, aborted: bool) -> None:
        self.barrier = barrier
        self.start_delay_ms = start_delay_ms
        self.channels: set[ChannelIndex] = set()
        self.aborted = aborted


class Tracker(ConsumingHandler):
    """The at-least-once handler. `latest` is the highest id seen."""

    def __init__(self, channels: int) -> None:
        self.channels = channels
        self.latest = CheckpointId(0)
        self._pending: OrderedDict[CheckpointId, _Pending] = OrderedDict()
        self._abandoned = AbandonedIds()

    def is_blocked(self, channel: ChannelIndex) -> bool:  # noqa: ARG002  # signature of BarrierHandler
        """Returns False: no channel is ever blocked (B14)."""
        return False

    def on_barrier(self, channel: ChannelIndex, barrier: Barrier, now_ms: int) -> list[Action]:
        """Counts the barrier and completes the checkpoint with the last one (B15-B21)."""
        checkpoint = barrier.checkpoint
        entry = self._pending.get(checkpoint)
        if entry is None:
            if checkpoint <= self.latest:
                return []
            aborted = checkpoint in self._abandoned
            entry = self._append(checkpoint, _Pending(barrier, start_delay_ms(barrier, now_ms), aborted=aborted))
        elif channel in entry.channels:
            raise StreamCorrupt(f"channel {channel}: second barrier of checkpoint {checkpoint}")
        entry.channels.add(channel)
        return self._complete(checkpoint)

    def on_cancel(self, channel: ChannelIndex, checkpoint: CheckpointId) -> list[Action]:
        """Cancels the checkpoint (B22-B26). An old id that is no longer pending only aborts still older ones."""
        actions = self._abort_older(checkpoint)
        entry = self._pending.get(checkpoint)
        if entry is None:
            if checkpoint <= self.latest:
                return actions
            entry = self._append(checkpoint, _Pending(None, 0, aborted=checkpoint in self._abandoned))
        entry.channels.add(channel)
        if not entry.aborted:
            entry.aborted = True
            actions.append(Abort(checkpoint, AbortReason.CANCELLED_UPSTREAM))
        return actions + self._complete(checkpoint)

    def on_abandoned(self, checkpoint: CheckpointId) -> list[Action]:
        """Keeps counting the checkpoint, but never triggers it. The coordinator knows, so nothing is reported."""
        entry = self._pending.get(checkpoint)
        if entry is not None:
            entry.aborted = True
        elif checkpoint > self.latest:
            self._abandoned.add(checkpoint)
        return []

    def _append(self, checkpoint: CheckpointId, entry: _Pending) -> _Pending:
        """Appends an entry and drops the oldest beyond the bound (B18, B20)."""
        self.latest = checkpoint
        self._abandoned.forget_up_to(checkpoint)
        self._pending[checkpoint] = entry
        if len(self._pending) > CHECKPOINTS_TRACKED_MAX:
            self._pending.popitem(last=False)
        return entry

    def _abort_older(self, checkpoint: CheckpointId) -> list[Action]:
        """Removes every lower pending id from the queue and reports each once (B23)."""
        popped = [(older, self._pending.pop(older)) for older in list(self._pending) if older < checkpoint]
        return [Abort(older, AbortReason.CANCELLED_UPSTREAM) for older, entry in popped if not entry.aborted]

    def _complete(self, checkpoint: CheckpointId) -> list[Action]:
        """Removes a fully counted entry and all earlier ones from the queue (B17). There is no alignment (B12)."""
        entry = self._pending[checkpoint]
        if len(entry.channels) < self.channels:
            return []
        while self._pending and next(iter(self._pending)) <= checkpoint:
            self._pending.popitem(last=False)
        if entry.aborted or entry.barrier is None:
            return []
        return [Notify(entry.barrier, 0, entry.start_delay_ms)]
