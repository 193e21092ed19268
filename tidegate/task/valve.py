"""Event time of several inputs as one: watermarks and idleness of channels, merged. Pure (contract W07-W19, seed 003).

Rules, after Flink's `StatusWatermarkValve`
- what comes out is the lowest watermark of the *aligned* channels, and it only grows;
- an idle channel is not aligned; one that is active again and reports a watermark below what came out is late, and
  holds nobody back until it has caught up;
- when the last active channel turns idle, nothing is waited for any more: the highest watermark of all comes out, if
  that channel was the one that held it back.

Two rules are ours (ADR 52): rows that were there when a watermark was read must not be late by it.
- Nothing passes an idle channel that has not been asked since whether it is still idle (`take_questions`).
- A channel that is active again holds the others back until its first watermark. That follows its first rows, and
  those of all that it has read from: a valve sends it when its idle channels have answered, too.

A channel at the end of time counts as if it was not there, until all are: an input that has ended says nothing about
one that is only idle (Flink would take the pipeline to its end then). A valve is in no checkpoint: it starts at the
lowest, and what comes in raises it again (ADR 34).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from tidegate.operators.runtime import END_OF_TIME, LOWEST
from tidegate.task.elements import StillIdle, StreamStatus, TimeControl, TimeElement, Watermark


class _Channel:
    __slots__ = ("aligned", "asked_ms", "idle", "question", "resuming", "silent", "sure_ms", "watermark_ms")

    def __init__(self, *, idle: bool) -> None:
        self.watermark_ms = LOWEST
        self.idle = idle
        self.aligned = not idle
        self.silent = False
        """Active again, and has not said where it is."""
        self.resuming = False
        """The same of one whose watermark was lower than what had come out."""
        self.sure_ms = LOWEST
        """While idle: it has nothing that was there when the others had come so far."""
        self.question = 0
        self.asked_ms: int | None = None
        """How far the others were at the last question, while there is no answer."""

    @property
    def ended(self) -> bool:
        return self.watermark_ms == END_OF_TIME

    @property
    def lets_pass_ms(self) -> int:
        """Its watermark; of an idle one at least that: what is late by its own watermark may be late."""
        return max(self.sure_ms, self.watermark_ms)

    def ask(self, reached_ms: int) -> None:
        self.question += 1
        self.asked_ms = reached_ms

    def become(self, *, idle: bool) -> None:
        """What was known of it while it was idle is over."""
        self.idle, self.silent = idle, not idle
        self.sure_ms, self.asked_ms = LOWEST, None


class Valve:
    """One per input port of a vertex, and one per source subtask, whose channels are its partitions.

    `watermark_ms` and `idle` are what has come out of it; where it is active again the watermark may still wait.
    """

    def __init__(self, channels: int) -> None:
        """W07. Raises ValueError without channels."""
        if channels < 1:
            raise ValueError("a valve needs at least one channel")
        self.watermark_ms = LOWEST
        self.idle = False
        self._channels = [_Channel(idle=False) for _ in range(channels)]
        self._questions: dict[int, None] = {}
        """Channels that are to be asked, in order."""
        self._wanted_ms = LOWEST
        """What would have come out if all idle channels had answered."""
        self._resumed = False
        """A channel is active again since the minimum was looked for: it may be the only one that counts."""
        self._goal_ms: int | None = None
        """All are idle, and this is to come out in front of that, when they have answered."""
        self._asked = False
        """Somebody downstream asks whether all is still idle; it is answered when all is."""
        self._unsure: set[int] = set()
        """Idle channels that have not answered since somebody asked, or since the valve is active again."""
        self._owes_watermark = False
        """It is active again, and has not said where it is. It does when all its channels have, or have answered that
        they are still idle: rows of any of them may be on their way, and whoever reads from it waits for them."""
        self._unsaid = False
        """It has come further since, which waits for that, too."""

    def add_channel(self) -> int:
        """A partition that was found while it runs, and its index.

        It holds the others back from now on, until it has caught up or is idle. While all are idle it is idle, too.
        """
        self._channels.append(_Channel(idle=self.idle or self._goal_ms is not None))
        return len(self._channels) - 1

    def on_watermark(self, channel: int, time_ms: int) -> list[TimeControl]:
        """What comes out when this came in: W08-W11. While the valve is idle, every channel is, or has ended."""
        one = self._channels[channel]
        if one.idle:
            return []
        before_ms, one.watermark_ms = one.watermark_ms, max(one.watermark_ms, time_ms)
        known, one.silent = time_ms <= before_ms and not one.resuming, False
        return self._with_owed([] if known else self._take_watermark(one, before_ms))

    def _take_watermark(self, one: _Channel, before_ms: int) -> list[TimeControl]:
        resumed, one.resuming = one.resuming, False
        if one.ended:
            return self._end(held=one.aligned and (resumed or before_ms <= self._wanted_ms))
        if resumed:
            one.aligned = one.watermark_ms >= self.watermark_ms
            return self._advance()
        one.aligned = one.aligned or one.watermark_ms >= self.watermark_ms
        # A channel that was ahead of what would have come out did not hold it back, if others did.
        return self._advance() if self._resumed or before_ms <= self._wanted_ms else []

    def on_status(self, channel: int, idle: bool) -> list[TimeControl]:
        """What comes out when the channel turned idle or active: W12-W18."""
        one = self._channels[channel]
        if one.idle == idle or one.ended:
            return []
        one.become(idle=idle)
        self._unsure.discard(channel)
        if not idle:
            self._questions.pop(channel, None)  # an answer would be about what it has had since
            return self._resume(one)
        held = one.aligned and (one.resuming or one.watermark_ms <= self._wanted_ms)  # below it: one that was added
        one.aligned = one.resuming = False
        if self._all_idle():
            return self._turn_idle(flush=held)
        return self._with_owed(self._advance() if held else [])

    def on_still_idle(self, channel: int, question: int) -> list[TimeElement]:
        """What comes out when the channel has answered this question; an answer to an older one says too little."""
        one = self._channels[channel]
        if one.asked_ms is None or one.question != question:
            return []
        one.sure_ms, one.asked_ms = max(one.sure_ms, one.asked_ms), None
        was_idle, answers = self.idle, channel in self._unsure  # before it falls idle, when it asks all channels again
        self._unsure.discard(channel)
        if self._goal_ms is not None:
            return [*self._fall_idle(self._goal_ms)]
        out: list[TimeElement] = [*self._with_owed(self._advance())]
        if was_idle and answers and not self._unsure:
            self._asked = False
            out.append(StillIdle())
        return out

    def ask(self) -> None:
        """Somebody asks whether all is still idle: `StillIdle` comes out when it is, and every channel says so."""
        self._asked = True
        if self.idle:
            self._ask_all()

    def take_questions(self) -> list[tuple[int, int]]:
        """Channels that are to be asked whether they are still idle, and the number of the question."""
        channels, self._questions = self._questions, {}
        return [(channel, self._channels[channel].question) for channel in channels]

    def question_of(self, channel: int) -> int:
        """The number of the question that the channel has not answered; 0 for none."""
        one = self._channels[channel]
        return 0 if one.asked_ms is None else one.question

    def held_back_by(self) -> int | None:
        """The channel that is waited for: the aligned one with the lowest watermark, or one that has to answer.

        None when nobody is.
        """
        waiting = [
            (one.lets_pass_ms, index)
            for index, one in enumerate(self._channels)
            if not one.ended and (one.aligned or one.asked_ms is not None)
        ]
        return min(waiting)[1] if waiting else None

    def _with_owed(self, out: list[TimeControl]) -> list[TimeControl]:
        """The same, or where it is when that can be said."""
        if not self._owes_watermark:
            return out
        if self._unsure or any(one.silent for one in self._channels):
            return out
        self._owes_watermark = self._unsaid = False
        return [] if self.watermark_ms == LOWEST else [Watermark(self.watermark_ms)]

    def _all_idle(self) -> bool:
        """Of those that have not ended."""
        return all(one.idle or one.ended for one in self._channels)

    def _resume(self, one: _Channel) -> list[TimeControl]:
        """W17, W18."""
        one.aligned = True
        one.resuming = one.watermark_ms < self.watermark_ms
        self._goal_ms = None
        self._wanted_ms = max(self.watermark_ms, min(self._wanted_ms, self._lowest_ms()))
        self._resumed = True
        if not self.idle:
            return []
        self.idle, self._owes_watermark = False, True
        self._ask_all()
        return [StreamStatus(idle=False)]

    def _end(self, *, held: bool) -> list[TimeControl]:
        """A channel is at the end of time; whether it was the one that held the others back."""
        if all(one.ended for one in self._channels):
            return self._raise(END_OF_TIME)
        if self._all_idle():
            return self._turn_idle(flush=held)
        return self._advance()

    def _turn_idle(self, *, flush: bool) -> list[TimeControl]:
        """W14, W15."""
        marks_ms = [one.watermark_ms for one in self._channels if not one.ended] if flush else []
        return self._fall_idle(max([self._wanted_ms, *marks_ms]))

    def _fall_idle(self, goal_ms: int) -> list[TimeControl]:
        """Idle after this watermark, which has to wait for the answers."""
        flushed = self._raise(goal_ms)
        if self.watermark_ms < goal_ms:
            self._goal_ms = goal_ms
            return flushed
        if self._unsaid:
            flushed = [Watermark(self.watermark_ms)]
        self._goal_ms, self.idle = None, True
        self._owes_watermark = self._unsaid = False
        self._unsure.clear()
        if self._asked:
            self._ask_all()
        return [*flushed, StreamStatus(idle=True)]

    def _advance(self) -> list[TimeControl]:
        """W11, W16."""
        self._resumed = False
        return self._raise(self._lowest_ms())

    def _lowest_ms(self) -> int:
        """Of the aligned channels; LOWEST without any. One that resumes may be below what has come out."""
        aligned = (one.watermark_ms for one in self._channels if one.aligned and not one.ended)
        return min(aligned, default=LOWEST)

    def _raise(self, time_ms: int) -> list[TimeControl]:
        """As far as the idle ones are known to let pass; they are asked about the rest."""
        self._wanted_ms = max(self._wanted_ms, time_ms)
        if time_ms <= self.watermark_ms:
            return []
        reached_ms = time_ms
        for channel, one in enumerate(self._channels):
            if one.idle and one.lets_pass_ms < time_ms:
                reached_ms = min(reached_ms, one.lets_pass_ms)
                if one.asked_ms is None or channel in self._questions:  # not asked yet, or not taken
                    self._ask(channel, one, time_ms)
        if reached_ms <= self.watermark_ms:
            return []
        self.watermark_ms = reached_ms
        self._unsaid = self._owes_watermark
        return [] if self._unsaid else [Watermark(reached_ms)]

    def _ask_all(self) -> None:
        """The idle ones, whether they still are."""
        self._unsure.clear()
        for channel, one in enumerate(self._channels):
            if one.idle and not one.ended:
                self._ask(channel, one, one.sure_ms)
                self._unsure.add(channel)

    def _ask(self, channel: int, one: _Channel, reached_ms: int) -> None:
        one.ask(reached_ms)
        self._questions[channel] = None


_NOTHING_MORE: Final = (StillIdle(), Watermark(END_OF_TIME))
"""What comes out of a valve whose channels have delivered everything that there was."""


class Inputs:
    """All input channels of a vertex: a valve for each port, and a valve whose channels are the ports (W19).

    A watermark passes an idle port as it passes an idle channel: when the port has answered that it is still idle,
    which it does when all its channels have.
    """

    def __init__(self, ports: Sequence[int], gating: Collection[int] = ()) -> None:
        """`ports[i]` is the port of channel i; of the `gating` ones it is reported that they have caught up.

        Raises ValueError when there are no ports, or when one has no channel.
        """
        count = len(set(ports))
        self._ports = [Valve(ports.count(port)) for port in range(count)]
        self._across = Valve(count) if count != 1 else None
        self._places = [(port, ports[:index].count(port)) for index, port in enumerate(ports)]
        self._channels = {place: index for index, place in enumerate(self._places)}
        self._awaited = set(gating)
        """Ports that open a gate and have not caught up yet."""
        self._caught_up: list[int] = []
        for port in self._awaited:
            self._ports[port].ask()

    def on_control(self, channel: int, control: TimeElement) -> list[TimeElement]:
        """Return what the operators are given when a channel has delivered this; `StillIdle` is for who has asked."""
        port, place = self._places[channel]
        valve = self._ports[port]
        if isinstance(control, StillIdle):
            out = valve.on_still_idle(place, control.question)
        else:
            out = [*_forward(valve, place, control)]
        if port in self._awaited and out and out[-1] in _NOTHING_MORE:
            self._awaited.discard(port)
            self._caught_up.append(port)
        if self._across is None:
            return out
        return [each for one in out for each in self._on_port(self._across, port, one)]

    def take_caught_up(self) -> Sequence[int]:
        """Return the gating ports that have caught up since the last call, each once.

        All channels of such a port have answered, after their rows, that they are still idle, or they have ended.
        """
        if not self._caught_up:
            return ()
        ports, self._caught_up = self._caught_up, []
        return ports

    def ask(self) -> None:
        """As `Valve.ask`, of all inputs."""
        if self._across is None:
            self._ports[0].ask()
        else:
            self._across.ask()
            self._ask_ports(self._across)

    def take_questions(self) -> list[tuple[int, int]]:
        """As `Valve.take_questions`, of all channels."""
        return [
            (self._channels[port, place], question)
            for port, valve in enumerate(self._ports)
            for place, question in valve.take_questions()
        ]

    def _on_port(self, across: Valve, port: int, control: TimeElement) -> Sequence[TimeElement]:
        """The valve of a port let this out. Its answer is to the newest question, since each one asks all channels."""
        out: Sequence[TimeElement]
        if isinstance(control, StillIdle):
            out = across.on_still_idle(port, across.question_of(port))
        else:
            out = _forward(across, port, control)
        self._ask_ports(across)
        return out

    def _ask_ports(self, across: Valve) -> None:
        for port, _ in across.take_questions():
            self._ports[port].ask()


def _forward(valve: Valve, channel: int, control: TimeControl) -> list[TimeControl]:
    if isinstance(control, Watermark):
        return valve.on_watermark(channel, control.time_ms)
    return valve.on_status(channel, control.idle)
