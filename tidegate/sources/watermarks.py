"""Watermarks of the partitions of one source subtask, and what the subtask sends of them. Pure (ADR 34).

The watermark of a partition follows its records (`event_times.py`) and is part of the positions. Together they are what
comes out of a valve whose channels are the partitions. What is to be sent waits in two lists, one for what belongs in
front of the rows of a batch (active again) and one for what comes after them (watermarks, idle).

Nothing passes an idle partition that the broker has not been asked about since (`take_questions`, ADR 52).

After a restore no partition is idle until it is known again that it is caught up: while the pipeline was away records
may have come to it, and those must not be late because another partition was read first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidegate.config.fields.event_time import Idle
from tidegate.ids import TopicPartition
from tidegate.operators.builtin.kafka_source import EventTime
from tidegate.operators.runtime import END_OF_TIME, LOWEST, Out
from tidegate.task.elements import StillIdle, StreamStatus, TimeControl, TimeElement, Watermark
from tidegate.task.valve import Valve


class SourceWatermarks:
    """Of one subtask. `watches`: whether `on_caught_up` means anything to it."""

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
        else:  # nobody waits for it; if it is bounded it has ended (W02)
            self._before.append(Watermark(END_OF_TIME) if bounded else StreamStatus(idle=True))

    # -- what happens --------------------------------------------------------------------------------------------------

    def on_records(self, marks: Mapping[TopicPartition, int]) -> None:
        """Records of these partitions were read; their watermarks are now these, LOWEST for none yet.

        Where there is none, all records were bad: no row has come. An idle partition stays idle then, since it could
        not say where it is, and whoever reads from it would wait for that.
        """
        valve = self._opened()
        marks = {part: mark for part, mark in marks.items() if mark != LOWEST}
        for part in marks:
            self._put(self._before, valve.on_status(self._channels[part], idle=False))
        for part, mark in marks.items():
            self._marks[part] = mark
            self._put(self._after, valve.on_watermark(self._channels[part], mark))

    def on_caught_up(self, part: TopicPartition, question: int = 0) -> None:
        """Everything up to the last stable offset was read, and it stays there; asked because of this question."""
        valve, channel = self._opened(), self._channels[part]
        self._put(self._after, valve.on_status(channel, idle=True))
        self._put(self._after, valve.on_still_idle(channel, question))

    def on_end(self, parts: Iterable[TopicPartition]) -> None:
        """A bounded read has come to the ends of these (W02). Their marks stay: what is stored is by data."""
        for part in parts:
            self._put(self._after, self._opened().on_watermark(self._channels[part], END_OF_TIME))

    def on_added(self, parts: Iterable[TopicPartition]) -> None:
        """New partitions hold the watermark back until they have records or are caught up."""
        new = [part for part in parts if part not in self._channels]
        self._marks.update(dict.fromkeys(new, LOWEST))
        if self._valve is None and new:
            self._valve = Valve(len(new))
            self._channels = {part: channel for channel, part in enumerate(new)}
            self._before.append(StreamStatus(idle=False))
            return
        for part in new:
            self._channels[part] = self._opened().add_channel()

    def on_clock(self, now_ms: int) -> None:
        """While all partitions are idle the watermark is where a record of this moment would bring it, if that is what
        the file asks for. It becomes theirs, so it is in the positions.
        """
        if not self.advancing:
            return
        reached_ms = now_ms - self._lag_ms
        self._marks = {part: max(mark, reached_ms) for part, mark in self._marks.items()}
        self._put(self._after, [Watermark(reached_ms)])

    def ask_still_idle(self) -> None:
        """Somebody downstream asks. A subtask without partitions knows."""
        self._still_idle = self._valve is None
        if self._valve is not None:
            self._valve.ask()

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def marks(self) -> Mapping[TopicPartition, int]:
        """The watermark of each partition, LOWEST for none yet."""
        return self._marks

    def snapshot(self) -> tuple[tuple[TopicPartition, int], ...]:
        """For the positions: partitions in order, without those that have none."""
        return tuple(sorted((part, mark) for part, mark in self._marks.items() if mark != LOWEST))

    @property
    def advancing(self) -> bool:
        """Whether `on_clock` moves it."""
        return self._advances and self._valve is not None and self._valve.idle

    @property
    def held_back_by(self) -> TopicPartition | None:
        """The partition with the lowest watermark of those that are waited for."""
        channel = None if self._valve is None else self._valve.held_back_by()
        return next((part for part, own in list(self._channels.items()) if own == channel), None)

    def take_questions(self) -> list[tuple[TopicPartition, int]]:
        """Idle partitions that the broker is to be asked about, each with the number of the question."""
        if self._valve is None:
            return []
        asked = self._valve.take_questions()
        parts = {channel: part for part, channel in self._channels.items()} if asked else {}
        return [(parts[channel], question) for channel, question in asked]

    def question_of(self, part: TopicPartition) -> int:
        """The number of the question about a partition that has no answer yet; 0 for none."""
        return self._opened().question_of(self._channels[part])

    def take_still_idle(self) -> bool:
        """Whether the last question from downstream has its answer, and it is yes."""
        still, self._still_idle = self._still_idle, False
        if still and self._valve is not None and not self._valve.idle:
            self._valve.ask()  # it has got its first partition since: answered when that one is idle
            return False
        return still

    @property
    def waiting(self) -> bool:
        """Whether something is to be sent."""
        return bool(self._before or self._after)

    # -- what is sent --------------------------------------------------------------------------------------------------

    def send_before(self, out: Out) -> None:
        """In front of the rows of a batch: no row follows IDLE (W05)."""
        controls, self._before = self._before, []
        _send(controls, out)

    def send_after(self, out: Out) -> None:
        """After the rows of a batch."""
        controls, self._after = self._after, []
        _send(controls, out)

    def _opened(self) -> Valve:
        if self._valve is None:
            raise RuntimeError("a source without partitions has read records")
        return self._valve

    def _put(self, controls: list[TimeControl], found: Iterable[TimeElement]) -> None:
        """The clock may have gone further than the valve, and one that the clock moves is never idle."""
        for one in found:
            if isinstance(one, StillIdle):
                self._still_idle = True
            elif isinstance(one, StreamStatus):
                if not self._advances:
                    controls.append(one)
            elif one.time_ms > self._sent_ms or (one.time_ms == self._sent_ms and not self._advances):
                self._sent_ms = one.time_ms
                if controls and isinstance(controls[-1], Watermark):
                    controls.pop()
                controls.append(one)


def _send(controls: Iterable[TimeControl], out: Out) -> None:
    for one in controls:
        if isinstance(one, Watermark):
            out.watermark(one.time_ms)
        else:
            out.status(one.idle)
