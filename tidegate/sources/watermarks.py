"""Watermarks of the partitions of one source subtask, and what the subtask sends from them. Pure (ADR 34).

The watermark of a partition follows its records (`event_times.py`) and is part of the positions. A valve whose channels
are the partitions combines them. Elements to be sent wait in two lists: one for those that precede the rows of a batch
(active again) and one for those that follow them (watermarks, idle).

No watermark passes an idle partition until the broker has been asked about it since (`take_questions`, ADR 52).

A watermark that follows the clock also waits for these answers. It moves to a moment once every partition is known to
have been read up to where it ended at that moment. While a broker is unavailable it stands still.

If event time is the time of arrival, a watermark that is sent becomes that of all partitions, and `kafka.py` gives a
row that is behind it the next instant. So no row is late.

After a restore no partition is idle until it is known to be caught up again. Records may have arrived while the
pipeline was down, and they must not be late because another partition was read first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidegate.config.fields.records import Idle
from tidegate.ids import TopicPartition
from tidegate.operators.builtin.kafka_source import EventTime
from tidegate.operators.runtime import END_OF_TIME, LOWEST, Out
from tidegate.task.elements import StillIdle, StreamStatus, TimeControl, TimeElement, Watermark
from tidegate.task.valve import Valve


class SourceWatermarks:
    """The watermarks of one subtask. `watches` tells whether `on_caught_up` has an effect."""

    def __init__(
        self,
        event_time: EventTime,
        partitions: Sequence[TopicPartition],
        restored: Mapping[TopicPartition, int],
        *,
        bounded: bool,
    ) -> None:
        self.event_time = event_time
        self.watches = event_time.idle is not Idle.NEVER and not bounded
        self._lag_ms = event_time.delay_ms + 1
        self._advances = event_time.idle is Idle.WALL_CLOCK and not bounded
        self._arrival = event_time.arrival
        self._moment_ms: int | None = None
        """When the clock asked whether everything is still idle, until that is answered."""
        self._marks = {part: restored.get(part, LOWEST) for part in partitions}
        self._channels = {part: channel for channel, part in enumerate(partitions)}
        self._valve: Valve | None = None
        self._sent_ms = LOWEST
        self._before: list[TimeControl] = []
        self._after: list[TimeControl] = []
        self._still_idle = False
        if partitions:
            self._valve = Valve(len(partitions))
            for part, mark in self._marks.items():
                self._put(self._before, self._valve.on_watermark(self._channels[part], mark))
        else:  # not waited for; a bounded one has ended (W02)
            self._before.append(Watermark(END_OF_TIME) if bounded else StreamStatus(idle=True))

    # -- what happens --------------------------------------------------------------------------------------------------

    def on_records(self, marks: Mapping[TopicPartition, int]) -> None:
        """Handles records read from these partitions, whose watermarks are now `marks`, LOWEST if there is none yet.

        Without a watermark, all records were bad: no row has arrived. An idle partition then stays idle, since it could
        not send a watermark, and a subtask that reads from it would wait for one.
        """
        valve = self._opened()
        marks = {part: mark for part, mark in marks.items() if mark != LOWEST}
        for part in marks:
            self._put(self._before, valve.on_status(self._channels[part], idle=False))
        for part, mark in marks.items():
            self._marks[part] = max(mark, self._marks[part]) if self._arrival else mark
            self._put(self._after, valve.on_watermark(self._channels[part], mark))

    def on_caught_up(self, part: TopicPartition, question: int = 0) -> None:
        """Handles a partition that was read up to its last stable offset and stays there, as an answer to this
        question.
        """
        valve, channel = self._opened(), self._channels[part]
        self._put(self._after, valve.on_status(channel, idle=True))
        self._put(self._after, valve.on_still_idle(channel, question))

    def on_end(self, parts: Iterable[TopicPartition]) -> None:
        """Handles partitions whose bounded read has ended (W02). Their marks stay: stored watermarks come from data
        only.
        """
        for part in parts:
            self._put(self._after, self._opened().on_watermark(self._channels[part], END_OF_TIME))

    def on_added(self, parts: Iterable[TopicPartition]) -> None:
        """Adds partitions. They hold the watermark back until they have records or are caught up."""
        new = [part for part in parts if part not in self._channels]
        self._marks.update(dict.fromkeys(new, self._sent_ms if self._arrival else LOWEST))
        if self._valve is None and new:
            self._valve = Valve(len(new))
            self._channels = {part: channel for channel, part in enumerate(new)}
            self._before.append(StreamStatus(idle=False))
            return
        for part in new:
            self._channels[part] = self._opened().add_channel()

    def on_clock(self, now_ms: int) -> None:
        """Asks whether all partitions are still idle, if they are and the watermark follows the clock.

        Once all have answered, the watermark is that of a record of this moment.
        """
        if self.advancing and self._moment_ms is None:
            self._moment_ms = now_ms
            self._opened().ask()

    def ask_still_idle(self) -> None:
        """Handles a downstream question. A subtask without partitions can answer at once."""
        self._still_idle = self._valve is None
        if self._valve is not None:
            self._valve.ask()

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def marks(self) -> Mapping[TopicPartition, int]:
        """The watermark of each partition, LOWEST if there is none yet."""
        return self._marks

    def snapshot(self) -> tuple[tuple[TopicPartition, int], ...]:
        """Returns the watermarks for the positions: partitions in order, without those that have none."""
        return tuple(sorted(self.known()))

    def known(self) -> list[tuple[TopicPartition, int]]:
        """Returns the watermarks of the partitions that have one. Safe from any thread."""
        return [each for each in list(self._marks.items()) if each[1] != LOWEST]

    @property
    def advancing(self) -> bool:
        """Whether the watermark follows the clock now."""
        return self._advances and self._valve is not None and self._valve.idle

    @property
    def held_back_by(self) -> TopicPartition | None:
        """The partition with the lowest watermark among those that are waited for."""
        channel = None if self._valve is None else self._valve.held_back_by()
        return next((part for part, own in list(self._channels.items()) if own == channel), None)

    @property
    def idle_partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that are not waited for. Safe from any thread."""
        idle = set() if self._valve is None else set(self._valve.idle_channels())
        return tuple(part for part, channel in list(self._channels.items()) if channel in idle)

    def take_questions(self) -> list[tuple[TopicPartition, int]]:
        """Returns the idle partitions to ask the broker about, each with the number of the question."""
        if self._valve is None:
            return []
        asked = self._valve.take_questions()
        parts = {channel: part for part, channel in self._channels.items()} if asked else {}
        return [(parts[channel], question) for channel, question in asked]

    def question_of(self, part: TopicPartition) -> int:
        """Returns the number of the open question about a partition; 0 if there is none."""
        return self._opened().question_of(self._channels[part])

    def take_still_idle(self) -> bool:
        """Returns whether the last downstream question was answered with yes."""
        still, self._still_idle = self._still_idle, False
        if still and self._valve is not None and not self._valve.idle:
            self._valve.ask()  # it has got its first partition since, and answers when that one is idle
            return False
        return still

    @property
    def waiting(self) -> bool:
        """Whether elements wait to be sent."""
        return bool(self._before or self._after)

    # -- what is sent --------------------------------------------------------------------------------------------------

    def send_before(self, out: Out) -> None:
        """Sends what precedes the rows of a batch: no row follows IDLE (W05)."""
        controls, self._before = self._before, []
        _send(controls, out)

    def send_after(self, out: Out) -> None:
        """Sends what follows the rows of a batch."""
        controls, self._after = self._after, []
        _send(controls, out)

    def _opened(self) -> Valve:
        if self._valve is None:
            raise RuntimeError("a source without partitions has read records")
        return self._valve

    def _put(self, controls: list[TimeControl], found: Iterable[TimeElement]) -> None:
        """Queues elements. The clock may be ahead of the valve, and a source that follows the clock is never idle."""
        for one in found:
            if isinstance(one, StillIdle):
                self._on_still_idle(controls)
            elif isinstance(one, StreamStatus):
                if not self._advances:
                    controls.append(one)
            elif one.time_ms > self._sent_ms or (one.time_ms == self._sent_ms and not self._advances):
                self._sent_ms = one.time_ms
                if self._arrival and one.time_ms != END_OF_TIME:
                    self._raise(one.time_ms)
                if controls and isinstance(controls[-1], Watermark) and one.time_ms != END_OF_TIME:
                    controls.pop()  # but the last one before the end of time makes due what that does not
                controls.append(one)

    def _on_still_idle(self, controls: list[TimeControl]) -> None:
        """Answers whoever asked: a subtask downstream, or the clock. A source that follows the clock is never idle, so
        nothing downstream asks it.
        """
        if not self._advances:
            self._still_idle = True
        elif self._moment_ms is not None:
            reached_ms, self._moment_ms = self._moment_ms - self._lag_ms, None
            self._raise(reached_ms)  # so that it is part of the positions
            self._put(controls, [Watermark(reached_ms)])

    def _raise(self, time_ms: int) -> None:
        """Raises the watermarks of all partitions to this time."""
        self._marks = {part: max(mark, time_ms) for part, mark in self._marks.items()}


def _send(controls: Iterable[TimeControl], out: Out) -> None:
    for one in controls:
        if isinstance(one, Watermark):
            out.watermark(one.time_ms)
        else:
            out.status(one.idle)
