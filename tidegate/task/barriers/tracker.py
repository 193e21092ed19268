"""The at-least-once handler: counts barriers and never blocks a channel (F19, B14-B26).

Rules
- a queue of pending ids, ascending, each with the channels that have delivered it; a completed id takes every earlier
  one with it (B17);
- a cancelled id stays in the queue, counts on, is reported once and never triggers (B24).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from tidegate.ids import CheckpointId
from tidegate.task.barriers.handler import (
    Abort,
    AbortReason,
    Action,
    ChannelIndex,
    Notify,
    StreamCorrupt,
    start_delay_ms,
)
from tidegate.task.elements import Barrier

CHECKPOINTS_TRACKED_MAX: Final = 50
"""More pending ids than this and the oldest is dropped (B20; Flink's value)."""


class _Pending:
    __slots__ = ("aborted", "barrier", "channels", "start_delay_ms", "started_ms")

    def __init__(self, barrier: Barrier | None, now_ms: int, *, aborted: bool) -> None:
        self.barrier = barrier
        self.started_ms = now_ms
        self.start_delay_ms = start_delay_ms(barrier, now_ms) if barrier else 0
        self.channels: set[ChannelIndex] = set()
        self.aborted = aborted


class Tracker:
    """See the module. `latest` is the highest id seen."""

    def __init__(self, channels: int) -> None:
        self.channels = channels
        self.latest = CheckpointId(0)
        self._pending: OrderedDict[CheckpointId, _Pending] = OrderedDict()
        self._closed: set[ChannelIndex] = set()

    def is_blocked(self, channel: ChannelIndex) -> bool:
        """Never (B14)."""
        return False

    def on_barrier(self, channel: ChannelIndex, barrier: Barrier, now_ms: int) -> list[Action]:
        """B15-B21."""
        checkpoint = barrier.checkpoint
        entry = self._pending.get(checkpoint)
        if entry is None:
            if checkpoint <= self.latest:
                return []
            self.latest = checkpoint
            entry = self._pending[checkpoint] = _Pending(barrier, now_ms, aborted=False)
            if len(self._pending) > CHECKPOINTS_TRACKED_MAX:
                self._pending.popitem(last=False)
        elif channel in entry.channels:
            raise StreamCorrupt(f"channel {channel}: second barrier of checkpoint {checkpoint}")
        entry.channels.add(channel)
        if entry.barrier is None:
            entry.barrier = barrier
        return self._complete(checkpoint, now_ms)

    def on_cancel(self, channel: ChannelIndex, checkpoint: CheckpointId) -> list[Action]:
        """B22-B26."""
        entry = self._pending.get(checkpoint)
        if entry is None and checkpoint <= self.latest:
            return []
        actions = self._abort_older(checkpoint)
        if entry is None:
            self.latest = checkpoint
            entry = self._pending[checkpoint] = _Pending(None, 0, aborted=False)
        entry.channels.add(channel)
        if not entry.aborted:
            entry.aborted = True
            actions.append(Abort(checkpoint, AbortReason.CANCELLED_UPSTREAM))
        return actions + self._complete(checkpoint, 0)

    def on_end(self, channel: ChannelIndex, now_ms: int) -> list[Action]:
        """B42: the closed channel counts for every pending checkpoint; the newest complete one takes the rest along."""
        self._closed.add(channel)
        for checkpoint in reversed(list(self._pending)):
            actions = self._complete(checkpoint, now_ms)
            if actions or checkpoint not in self._pending:
                return actions
        return []

    def on_abandoned(self, checkpoint: CheckpointId) -> list[Action]:
        """Keep counting it, but never trigger it; the coordinator knows, so nothing is reported."""
        entry = self._pending.get(checkpoint)
        if entry is None and checkpoint > self.latest:
            self.latest = checkpoint
            self._pending[checkpoint] = _Pending(None, 0, aborted=True)
        elif entry is not None:
            entry.aborted = True
        return []

    def _abort_older(self, checkpoint: CheckpointId) -> list[Action]:
        """B23: every pending id below leaves the queue; each is reported once."""
        actions: list[Action] = []
        for older in [pending for pending in self._pending if pending < checkpoint]:
            if not self._pending.pop(older).aborted:
                actions.append(Abort(older, AbortReason.CANCELLED_UPSTREAM))
        return actions

    def _complete(self, checkpoint: CheckpointId, now_ms: int) -> list[Action]:
        """B17: a full count takes the entry and all earlier ones out of the queue."""
        entry = self._pending[checkpoint]
        if len(entry.channels | self._closed) < self.channels:
            return []
        while self._pending and next(iter(self._pending)) <= checkpoint:
            self._pending.popitem(last=False)
        if entry.aborted or entry.barrier is None:
            return []
        alignment_ms = 0 if self.channels == 1 else max(0, now_ms - entry.started_ms)
        return [Notify(entry.barrier, alignment_ms, entry.start_delay_ms)]
