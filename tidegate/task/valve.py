"""Event time of several inputs as one: watermarks and idleness of channels, merged. Pure (contract W07-W19, seed 003).

Rules, after Flink's `StatusWatermarkValve`
- what comes out is the lowest watermark of the *aligned* channels, and it only grows;
- an idle channel is not aligned; one that is active again is late until it has caught up with what came out, and holds
  nobody back meanwhile;
- when the last active channel turns idle, nothing is waited for any more: the highest watermark of all comes out, if
  that channel was the one that held it back.

A channel at the end of time counts as if it was not there, until all are: an input that has ended says nothing about
one that is only idle (Flink would take the pipeline to its end then). A valve is in no checkpoint: it starts at the
lowest, and what comes in raises it again (ADR 34).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.operators.runtime import END_OF_TIME, LOWEST
from tidegate.task.elements import StreamStatus, TimeControl, Watermark


class _Channel:
    __slots__ = ("aligned", "idle", "watermark_ms")

    def __init__(self, *, idle: bool) -> None:
        self.watermark_ms = LOWEST
        self.idle = idle
        self.aligned = not idle

    @property
    def ended(self) -> bool:
        return self.watermark_ms == END_OF_TIME


class Valve:
    """One per input port of a vertex, and one per source subtask, whose channels are its partitions.

    `watermark_ms` and `idle` are what has come out of it.
    """

    def __init__(self, channels: int) -> None:
        """W07. Raises ValueError without channels."""
        if channels < 1:
            raise ValueError("a valve needs at least one channel")
        self.watermark_ms = LOWEST
        self.idle = False
        self._channels = [_Channel(idle=False) for _ in range(channels)]

    def add_channel(self) -> int:
        """A partition that was found while it runs, and its index.

        It holds the others back from now on, until it has caught up or is idle. While all are idle it is idle, too.
        """
        self._channels.append(_Channel(idle=self.idle))
        return len(self._channels) - 1

    def on_watermark(self, channel: int, time_ms: int) -> list[TimeControl]:
        """What comes out when this came in: W08-W11. While the valve is idle, every channel is, or has ended."""
        one = self._channels[channel]
        if one.idle or time_ms <= one.watermark_ms:
            return []
        before_ms, one.watermark_ms = one.watermark_ms, time_ms
        if one.ended:
            return self._end(before_ms)
        one.aligned = one.aligned or time_ms >= self.watermark_ms
        # A channel that was ahead of what has come out did not hold it back.
        return self._advance() if before_ms <= self.watermark_ms else []

    def on_status(self, channel: int, idle: bool) -> list[TimeControl]:
        """What comes out when the channel turned idle or active: W12-W18."""
        one = self._channels[channel]
        if one.idle == idle or one.ended:
            return []
        one.idle = idle
        if not idle:
            return self._resume(one)
        held = one.aligned and one.watermark_ms <= self.watermark_ms  # below it: one that was added
        one.aligned = False
        if self._all_idle():
            return self._turn_idle(flush=held)
        return self._advance() if held else []

    def held_back_by(self) -> int | None:
        """The aligned channel with the lowest watermark; None when nobody is waited for."""
        aligned = [(one.watermark_ms, index) for index, one in enumerate(self._channels) if one.aligned]
        lowest_ms, index = min(aligned, default=(END_OF_TIME, -1))
        return None if lowest_ms == END_OF_TIME else index

    def _all_idle(self) -> bool:
        """Of those that have not ended."""
        return all(one.idle or one.ended for one in self._channels)

    def _resume(self, one: _Channel) -> list[TimeControl]:
        """W17, W18."""
        one.aligned = one.watermark_ms >= self.watermark_ms
        if not self.idle:
            return []
        self.idle = False
        return [StreamStatus(idle=False)]

    def _end(self, before_ms: int) -> list[TimeControl]:
        """A channel is at the end of time; its watermark was `before_ms`."""
        if all(one.ended for one in self._channels):
            return self._raise(END_OF_TIME)
        if self._all_idle():
            return self._turn_idle(flush=before_ms == self.watermark_ms)
        return self._advance()

    def _turn_idle(self, *, flush: bool) -> list[TimeControl]:
        """W14, W15."""
        highest_ms = max(one.watermark_ms for one in self._channels if not one.ended)
        flushed = self._raise(highest_ms) if flush else []
        self.idle = True
        return [*flushed, StreamStatus(idle=True)]

    def _advance(self) -> list[TimeControl]:
        """W11, W16."""
        aligned = [one.watermark_ms for one in self._channels if one.aligned and not one.ended]
        return self._raise(min(aligned)) if aligned else []

    def _raise(self, time_ms: int) -> list[TimeControl]:
        if time_ms <= self.watermark_ms:
            return []
        self.watermark_ms = time_ms
        return [Watermark(time_ms)]


class Combined:
    """The inputs of a vertex as one (W19): the lowest watermark of the ports that are not idle, which only grows.

    It is idle when all of them are. A port at the end of time counts as in Valve.
    """

    def __init__(self, ports: int) -> None:
        """Raises ValueError without ports."""
        if ports < 1:
            raise ValueError("event time needs at least one input")
        self.watermark_ms = LOWEST
        self.idle = False
        self._watermarks = [LOWEST] * ports
        self._idle = [False] * ports

    def on_watermark(self, port: int, time_ms: int) -> list[TimeControl]:
        """A valve let this out."""
        self._watermarks[port] = max(self._watermarks[port], time_ms)
        return self._update()

    def on_status(self, port: int, idle: bool) -> list[TimeControl]:
        """A valve let this out."""
        self._idle[port] = idle
        return self._update()

    def _update(self) -> list[TimeControl]:
        going_on = [port for port, watermark_ms in enumerate(self._watermarks) if watermark_ms != END_OF_TIME]
        waited_for = [self._watermarks[port] for port in going_on if not self._idle[port]]
        changed: list[TimeControl] = []
        idle = bool(going_on) and not waited_for
        if idle != self.idle:
            self.idle = idle
            changed.append(StreamStatus(idle))
        lowest_ms = min(waited_for, default=END_OF_TIME)
        if not idle and lowest_ms > self.watermark_ms:
            self.watermark_ms = lowest_ms
            changed.append(Watermark(lowest_ms))
        return changed


class Inputs:
    """All input channels of a vertex: a valve for each port, and what they come to together."""

    def __init__(self, ports: Sequence[int]) -> None:
        """`ports[i]` is the port of channel i. Raises ValueError when there are none, or when a port has none."""
        count = max(ports, default=-1) + 1
        self._combined = Combined(count)
        self._valves = [Valve(ports.count(port)) for port in range(count)]
        self._places = [(port, ports[:index].count(port)) for index, port in enumerate(ports)]

    def on_control(self, channel: int, control: TimeControl) -> list[TimeControl]:
        """What the operators are given when a channel has delivered this."""
        port, place = self._places[channel]
        valve = self._valves[port]
        if isinstance(control, Watermark):
            out = valve.on_watermark(place, control.time_ms)
        else:
            out = valve.on_status(place, control.idle)
        return [each for one in out for each in self._combine(port, one)]

    def _combine(self, port: int, control: TimeControl) -> list[TimeControl]:
        if isinstance(control, Watermark):
            return self._combined.on_watermark(port, control.time_ms)
        return self._combined.on_status(port, control.idle)
