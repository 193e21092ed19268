"""Known bugs of event time, each planted by replacing a function of the product; see `planted.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tidegate.ids import TopicPartition
from tidegate.operators.event_time import EventClock
from tidegate.operators.kinds.window.running.base import WindowRuntime
from tidegate.operators.runtime import Out
from tidegate.sources.positions import CaughtUp, Due
from tidegate.sources.watermarks import SourceWatermarks
from tidegate.state.time_ordered import Timed, TimeOrdered
from tidegate.task.elements import StreamStatus, TimeControl, TimeElement, Watermark
from tidegate.task.input_gate import InputGate
from tidegate.task.valve import Valve
from tidegate.task.vertex import VertexTask

Patch = pytest.MonkeyPatch


def rows_in_flight_judged_by_the_watermark_after_them(patch: Patch) -> None:
    """After a restore the watermarks of the sources, which are after the rows in flight, come before those rows."""
    real = VertexTask._replay_next

    def replay_next(self: VertexTask, inputs: InputGate) -> bool:
        for index, channel in enumerate(inputs.channels):
            while self.chain.room and len(channel) and isinstance(channel.head, Watermark | StreamStatus):
                control = channel.pop(1, 1)
                assert isinstance(control, Watermark | StreamStatus)
                self._on_event_time(inputs, index, control)
        return real(self, inputs)

    patch.setattr(VertexTask, "_replay_next", replay_next)


def watermarks_of_partitions_not_restored(patch: Patch) -> None:
    """The watermark of a partition goes back with a restart."""
    real = SourceWatermarks.__init__

    def init(
        self: SourceWatermarks, event_time: Any, partitions: Any, restored: Mapping[TopicPartition, int], **rest: Any
    ) -> None:
        real(self, event_time, partitions, {}, **rest)

    patch.setattr(SourceWatermarks, "__init__", init)


def watermark_of_the_operator_not_restored(patch: Patch) -> None:
    patch.setattr(EventClock, "before_snapshot", lambda self: None)


def idle_partition_holds_the_watermark_back(patch: Patch) -> None:
    patch.setattr(SourceWatermarks, "on_caught_up", lambda self, part, question: None)


def idle_channel_holds_the_watermark_back(patch: Patch) -> None:
    """W16 and W14: nobody looks again when the channel that was waited for turns idle."""
    real, answered = Valve.on_status, Valve.on_still_idle

    def on_status(self: Valve, channel: int, idle: bool) -> list[TimeControl]:
        return [one for one in real(self, channel, idle) if isinstance(one, StreamStatus)]

    def on_still_idle(self: Valve, channel: int, question: int) -> list[TimeElement]:
        return [one for one in answered(self, channel, question) if not isinstance(one, Watermark)]

    patch.setattr(Valve, "on_status", on_status)
    patch.setattr(Valve, "on_still_idle", on_still_idle)


def windows_not_deleted_with_their_firing(patch: Patch) -> None:
    """They are taken from what is in memory, and are still in the next checkpoint."""
    real = TimeOrdered.take_due

    def take_due(self: TimeOrdered, until_ms: int, limit: int) -> list[Timed]:
        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(self._state, "delete_scanned", lambda keys: None)
            return real(self, until_ms, limit)

    patch.setattr(TimeOrdered, "take_due", take_due)


def idle_by_a_bare_timer(patch: Patch) -> None:
    """A partition from which nothing has come for a while is idle, whatever its broker says or does not say."""
    real = CaughtUp.answer

    def answer(
        self: CaughtUp, part: TopicPartition, asked: Due, _stable: int | None, now: float, *, is_open: bool
    ) -> bool:
        return real(self, part, asked, asked.offset, now)

    patch.setattr(CaughtUp, "answer", answer)


def idle_channels_passed_without_a_question(patch: Patch) -> None:
    """ADR 52: what they have not read yet is late, although it was there before the others were read."""
    real = Valve._raise

    def raise_(self: Valve, time_ms: int) -> list[TimeControl]:
        for channel in self._channels:
            channel.sure_ms = max(channel.sure_ms, time_ms)
        return real(self, time_ms)

    patch.setattr(Valve, "_raise", raise_)


def watermark_passed_on_before_what_it_makes_due(patch: Patch) -> None:
    """W20 the other way round."""
    real = WindowRuntime.on_watermark

    def on_watermark(self: WindowRuntime, watermark_ms: int, out: Out) -> None:
        out.watermark(watermark_ms)
        real(self, watermark_ms, out)

    patch.setattr(WindowRuntime, "on_watermark", on_watermark)
