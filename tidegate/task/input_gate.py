"""The input of a subtask: its channels with their barriers and event time, and restored rows in flight.

Rows in flight are processed before anything from a channel (B50). The channels take turns; a channel blocked by
alignment waits.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

from tidegate.operators.spec import Requirement
from tidegate.plan.graph import Edge
from tidegate.task.barriers.handler import Action, BarrierHandler
from tidegate.task.channels import InputChannel
from tidegate.task.elements import Barrier, Batch, CheckpointControl, Element, TimeElement
from tidegate.task.valve import Inputs


class InputGate:
    """The channels of one subtask, read in turn, and the rows in flight to replay first."""

    def __init__(
        self,
        channels: Sequence[InputChannel],
        edges: Sequence[Edge],
        handler: BarrierHandler,
        replay: Iterable[tuple[int, Batch]] = (),
    ) -> None:
        """`edges` are those of the channels; `replay` holds rows in flight with their edges, oldest first."""
        self.channels = channels
        self.handler = handler
        self.ports = {edge.index: edge.port for edge in edges}
        self.nodes = {edge.index: edge.node for edge in edges}
        """By edge the node that takes its rows."""
        retries = {edge.index for edge in edges if edge.retries}
        by_channel = [self.ports[channel.edge] for channel in channels if channel.edge not in retries]
        timed = {edge.port for edge in edges if not edge.retries and Requirement.EVENT_TIME in edge.carries}
        self._timed_channels = len(by_channel)
        """Channels of replayed dead letters come last. They take no part in event time."""
        self._event_time = Inputs(by_channel, {*by_channel} - timed) if by_channel else None
        self._behind = Counter(by_channel)
        """By port the channels that have not caught up."""
        self._gating = {edge.port for edge in edges if edge.order.comes_first}
        self.replay = deque(replay)
        self._turn_of = 0

    def take(self, room_for: Callable[[Element], int], bytes_max: int) -> tuple[int, Element] | None:
        """Takes the next element and the index of its channel; None if there is nothing to take or no room for it."""
        count = len(self.channels)
        for step in range(count):
            index = (self._turn_of + step) % count
            channel = self.channels[index]
            if not len(channel) or self.handler.is_blocked(index):
                continue
            rows = room_for(channel.head)
            if not rows:
                continue
            self._turn_of = (index + 1) % count
            return index, channel.pop(rows, bytes_max)
        return None

    def take_replayed(self, rows_max: int, bytes_max: int) -> tuple[int, Batch]:
        """Takes the oldest rows in flight and the index of their edge."""
        edge, batch = self.replay.popleft()
        rows = batch.rows_within(rows_max, bytes_max)
        if rows < batch.frame.height:
            batch, rest = batch.split(rows)
            self.replay.appendleft((edge, rest))
        return edge, batch

    def put_back(self, edge: int, batches: Iterable[Batch]) -> None:
        """Puts back rows that have no room yet, in front of all others, the last batch first."""
        self.replay.extendleft((edge, batch) for batch in batches)

    def on_control(self, channel: int, control: CheckpointControl, now_ms: int) -> list[Action]:
        """Handles a barrier or cancellation marker taken from its channel (B02)."""
        if isinstance(control, Barrier):
            return self.handler.on_barrier(channel, control, now_ms)
        return self.handler.on_cancel(channel, control.checkpoint)

    def on_caught_up(self, channel: int) -> int | None:
        """Handles a channel that has caught up. Returns its port if that opens a gate now."""
        port = self.ports[self.channels[channel].edge]
        self._behind[port] -= 1
        return port if port in self._gating and not self._behind[port] else None

    @property
    def caught_up(self) -> bool:
        """Whether all channels have caught up with what the sources held when the attempt started."""
        return not self._behind.total()

    def inflight(self, barrier: Barrier) -> dict[int, tuple[int, Sequence[Batch]]]:
        """Returns the rows in the channels that an unaligned barrier has overtaken: by channel, with the edge."""
        return {
            index: (channel.edge, channel.batches_ahead_of(barrier.checkpoint))
            for index, channel in enumerate(self.channels)
            if self.handler.has_inflight(index, barrier.checkpoint)
        }

    def on_event_time(self, channel: int, control: TimeElement) -> list[TimeElement]:
        """Returns what event time from a channel causes, as `Inputs.on_control` does."""
        if self._event_time is None or channel >= self._timed_channels:
            return []
        return self._event_time.on_control(channel, control)

    def ask(self, *, all_idle: bool = False) -> None:
        """Asks idle inputs whether they are still idle; `all_idle`: all of them, because the subtask was asked."""
        if self._event_time is None:
            return
        if all_idle:
            self._event_time.ask()
        for index, question in self._event_time.take_questions():
            self.channels[index].ask(question)
