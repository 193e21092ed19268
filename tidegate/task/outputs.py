"""The outputs of a vertex: an edge distributes rows to the subtasks of the next vertex by key group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidegate.formats.record_parts import CARRIED_HEADERS
from tidegate.ids import CheckpointId, SlotIndex
from tidegate.operators.runtime import system_columns
from tidegate.operators.spec import Requirement
from tidegate.plan.assignment import key_group_range
from tidegate.plan.graph import Edge
from tidegate.state.keygroups import KeyGroupPartitioner
from tidegate.task.channels import OutputChannel
from tidegate.task.elements import Batch, Control

if TYPE_CHECKING:
    import polars as pl

BATCH_OVERHEAD_BYTES: Final = 1024
"""Charged per batch in addition to its values, so that a queue of tiny batches stays within its byte limit."""


class EdgeOutput:
    """One edge of one subtask. `channels[i]` leads to subtask i; a forward edge has only the channel to its
    own slot.
    """

    def __init__(self, edge: Edge, channels: Sequence[OutputChannel], max_parallelism: int) -> None:
        self._edge = edge
        self.channels = channels
        owned = [key_group_range(SlotIndex(i), len(channels), max_parallelism) for i in range(len(channels))]
        self._partitioner = KeyGroupPartitioner(edge.keys, owned, max_parallelism)
        self._columns = [name for name, _ in edge.columns]
        self._left = () if Requirement.HEADERS in edge.carries else (CARRIED_HEADERS,)

    @property
    def writable(self) -> bool:
        """Whether every channel accepts another batch: one full channel holds back the whole subtask."""
        return all(channel.writable for channel in self.channels)

    def emit(self, frame: pl.DataFrame) -> None:
        """Sends rows on. Order per key is preserved because each key has one channel."""
        wanted = self._columns + [name for name in system_columns(frame) if name not in self._left]
        if wanted != frame.columns:
            frame = frame[:, wanted]  # `select` would be a query, and `frame[wanted]` tries rows first
        if len(self.channels) == 1:
            self._send(self.channels[0], frame)
            return
        for channel, part in zip(self.channels, self._partitioner.split(frame), strict=True):
            if part.height:
                self._send(channel, part)

    def broadcast(self, control: Control) -> None:
        """Sends a control element to every channel, after earlier elements unless it is an unaligned barrier (F05,
        F09).
        """
        for channel in self.channels:
            channel.emit(control)

    def on_time(self, now_ms: int) -> None:
        """Lets barriers that have waited longer than their limit overtake."""
        for channel in self.channels:
            channel.on_time(now_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """When `on_time` is due; None while no barrier with a limit waits."""
        deadlines = [channel.next_deadline_ms for channel in self.channels]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def forget(self, checkpoint: CheckpointId) -> None:
        """Discards an aborted checkpoint."""
        for channel in self.channels:
            channel.forget(checkpoint)

    @staticmethod
    def _send(channel: OutputChannel, frame: pl.DataFrame) -> None:
        channel.emit(Batch(frame, int(frame.estimated_size()) + BATCH_OVERHEAD_BYTES))
