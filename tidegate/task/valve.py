"""Combines the event time of several inputs: watermarks and idleness of channels. Pure (contract W07-W19, seed 003).

Rules, after Flink's `StatusWatermarkValve`:
- the output is the lowest watermark of the *aligned* channels, and it only grows;
- an idle channel is not aligned; a channel that becomes active again with a watermark below the output is late, and
  does not hold back the others until it has caught up;
- when the last active channel becomes idle, nothing is waited for any more: the highest watermark of all is output, if
  that channel was the one that held it back.

Two rules are ours (ADR 52), since rows that were present when a watermark was read must not be late by it:
- No watermark passes an idle channel until the channel has been asked whether it is still idle and has confirmed it
  (`take_questions`).
- A channel that becomes active again holds back the others until its first watermark. That watermark follows its first
  rows and the rows of everything that it has read from: a valve sends it only after its idle channels have also
  answered.

A channel at the end of time is ignored until all channels are: an input that has ended reveals nothing about one that
is only idle (Flink would end the pipeline then). Before the end of time, the highest watermark of all channels is
output. Otherwise the last watermark of the data, and what it makes due, would depend on which channel ends last.

A valve is not checkpointed: it starts at the lowest watermark, and its inputs raise it again (ADR 34).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tidegate.operators.runtime import END_OF_TIME, LOWEST
from tidegate.task.elements import StillIdle, StreamStatus, TimeControl, TimeElement, Watermark


class _Channel:
    __slots__ = ("aligned", "asked_ms", "data_ms", "idle", "question", "resuming", "silent", "sure_ms", "watermark_ms")

    def __init__(self, *, idle: bool) -> None:
        self.watermark_ms = LOWEST
        self.data_ms = LOWEST
        """The last watermark other than END_OF_TIME."""
        self.idle = idle
        self.aligned = not idle
        self.silent = False
        """Active again, without a watermark since."""
        self.resuming = False
        """Active again, after a watermark below the output."""
        self.sure_ms = LOWEST
        """While idle: it had nothing left when the others had reached this time."""
        self.question = 0
        self.asked_ms: int | None = None
        """How far the others were at the last question, while it is unanswered."""

    @property
    def ended(self) -> bool:
        return self.watermark_ms == END_OF_TIME

    @property
    def lets_pass_ms(self) -> int:
        """Its watermark, or more if an idle channel has confirmed more. A row late by the channel's own watermark may
        be late.
        """
        return max(self.sure_ms, self.watermark_ms)

    def ask(self, reached_ms: int) -> None:
        self.question += 1
        self.asked_ms = reached_ms

    def become(self, *, idle: bool) -> None:
        """Changes the status and forgets what was known about the channel while it was idle."""
        self.idle, self.silent = idle, not idle
        self.sure_ms, self.asked_ms = LOWEST, None


class Valve:
    """One per input port of a vertex, and one per source subtask, whose channels are its partitions.

    `watermark_ms` and `idle` are its output. After it becomes active again, the watermark may still be withheld.
    """

    def __init__(self, channels: int) -> None:
        """Begins active at the lowest watermark, with every channel aligned (W07). Raises ValueError
        without channels.
        """
        if channels < 1:
            raise ValueError("a valve needs at least one channel")
        self.watermark_ms = LOWEST
        self.idle = False
        self._channels = [_Channel(idle=False) for _ in range(channels)]
        self._questions: dict[int, None] = {}
        """Channels to be asked, in order."""
        self._wanted_ms = LOWEST
        """The watermark that would be output if all idle channels had answered."""
        self._resumed = False
        """A channel has become active since the minimum was last computed: it may be the only one that counts."""
        self._goal_ms: int | None = None
        """All are idle; this watermark must be output before the idle status, once they have answered."""
        self._asked = False
        """A downstream subtask asks whether everything is still idle; it is answered when everything is."""
        self._unsure: set[int] = set()
        """Idle channels that have not answered since a question arrived, or since the valve became active again."""
        self._owes_watermark = False
        """The valve is active again and has not sent a watermark yet.

        It sends one when all its channels have sent theirs or confirmed that they are still idle: rows of any of them
        may be in transit, and a subtask that reads from the valve waits for them.
        """
        self._unsaid = False
        """The watermark has advanced since, and is withheld as well."""

    def add_channel(self) -> int:
        """Adds a partition found at run time, and returns its index.

        It holds back the others until it has caught up or is idle. While all channels are idle, it starts idle.
        """
        self._channels.append(_Channel(idle=self.idle or self._goal_ms is not None))
        return len(self._channels) - 1

    def on_watermark(self, channel: int, time_ms: int) -> list[TimeControl]:
        """Returns what a channel's watermark causes to be output (W08-W11). While the valve is idle, every channel is
        idle or ended.
        """
        one = self._channels[channel]
        if one.idle:
            return []
        before_ms, one.watermark_ms = one.watermark_ms, max(one.watermark_ms, time_ms)
        if time_ms != END_OF_TIME:
            one.data_ms = one.watermark_ms
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
        # A channel ahead of the pending output was not the one that held it back.
        return self._advance() if self._resumed or before_ms <= self._wanted_ms else []

    def on_status(self, channel: int, idle: bool) -> list[TimeControl]:
        """Returns what a channel's change to idle or active causes to be output (W12-W18)."""
        one = self._channels[channel]
        if one.idle == idle or one.ended:
            return []
        one.become(idle=idle)
        self._unsure.discard(channel)
        if not idle:
            self._questions.pop(channel, None)  # an answer would cover what it has received since
            return self._resume(one)
        held = one.aligned and (one.resuming or one.watermark_ms <= self._wanted_ms)  # lower: a channel just added
        one.aligned = one.resuming = False
        if self._all_idle():
            return self._turn_idle(flush=held)
        return self._with_owed(self._advance() if held else [])

    def on_still_idle(self, channel: int, question: int) -> list[TimeElement]:
        """Returns what a channel's answer causes to be output. An answer to an older question is ignored."""
        one = self._channels[channel]
        if one.asked_ms is None or one.question != question:
            return []
        one.sure_ms, one.asked_ms = max(one.sure_ms, one.asked_ms), None
        was_idle, answers = self.idle, channel in self._unsure  # before falling idle, which asks all channels again
        self._unsure.discard(channel)
        if self._goal_ms is not None:
            return [*self._fall_idle(self._goal_ms)]
        out: list[TimeElement] = [*self._with_owed(self._advance())]
        if was_idle and answers and not self._unsure:
            self._asked = False
            out.append(StillIdle())
        return out

    def ask(self) -> None:
        """Asks whether everything is still idle: `StillIdle` is output once every channel has confirmed it."""
        self._asked = True
        if self.idle:
            self._ask_all()

    def take_questions(self) -> list[tuple[int, int]]:
        """Returns the channels to be asked whether they are still idle, each with the number of the question."""
        channels, self._questions = self._questions, {}
        return [(channel, self._channels[channel].question) for channel in channels]

    def question_of(self, channel: int) -> int:
        """Returns the number of the question that the channel has not answered; 0 if there is none."""
        one = self._channels[channel]
        return 0 if one.asked_ms is None else one.question

    def idle_channels(self) -> list[int]:
        """Returns the channels that are not waited for because they are idle. Safe from any thread."""
        return [index for index, one in enumerate(self._channels) if one.idle]

    def held_back_by(self) -> int | None:
        """Returns the channel that is waited for: the aligned one with the lowest watermark, or one with an open
        question.

        Returns None if no channel is waited for.
        """
        waiting = [
            (one.lets_pass_ms, index)
            for index, one in enumerate(self._channels)
            if not one.ended and (one.aligned or one.asked_ms is not None)
        ]
        return min(waiting)[1] if waiting else None

    def _with_owed(self, out: list[TimeControl]) -> list[TimeControl]:
        """Returns the output unchanged, or the owed watermark once it may be sent."""
        if not self._owes_watermark:
            return out
        if self._unsure or any(one.silent for one in self._channels):
            return out
        self._owes_watermark = self._unsaid = False
        return [] if self.watermark_ms == LOWEST else [Watermark(self.watermark_ms)]

    def _all_idle(self) -> bool:
        """Returns whether all channels that have not ended are idle."""
        return all(one.idle or one.ended for one in self._channels)

    def _resume(self, one: _Channel) -> list[TimeControl]:
        """Handles a channel that becomes active (W17, W18)."""
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
        """Handles a channel at the end of time; `held` tells whether it was the one that held back the others."""
        if all(one.ended for one in self._channels):
            return [*self._raise(max(one.data_ms for one in self._channels)), *self._raise(END_OF_TIME)]
        if self._all_idle():
            return self._turn_idle(flush=held)
        return self._advance()

    def _turn_idle(self, *, flush: bool) -> list[TimeControl]:
        """Handles the last active channel becoming idle (W14, W15)."""
        marks_ms = [one.watermark_ms for one in self._channels if not one.ended] if flush else []
        return self._fall_idle(max([self._wanted_ms, *marks_ms]))

    def _fall_idle(self, goal_ms: int) -> list[TimeControl]:
        """Turns idle after this watermark, which has to wait for the answers."""
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
        """Raises the output to the lowest watermark (W11, W16)."""
        self._resumed = False
        return self._raise(self._lowest_ms())

    def _lowest_ms(self) -> int:
        """Returns the lowest watermark of the aligned channels; LOWEST without any.

        A channel that resumes may be below the output.
        """
        aligned = (one.watermark_ms for one in self._channels if one.aligned and not one.ended)
        return min(aligned, default=LOWEST)

    def _raise(self, time_ms: int) -> list[TimeControl]:
        """Raises the output as far as the idle channels are known to allow, and asks them about the rest."""
        self._wanted_ms = max(self._wanted_ms, time_ms)
        if time_ms <= self.watermark_ms:
            return []
        reached_ms = time_ms
        for channel, one in enumerate(self._channels):
            if one.idle and one.lets_pass_ms < time_ms:
                reached_ms = min(reached_ms, one.lets_pass_ms)
                if one.asked_ms is None or channel in self._questions:  # not asked yet, or the question was not taken
                    self._ask(channel, one, time_ms)
        if reached_ms <= self.watermark_ms:
            return []
        self.watermark_ms = reached_ms
        self._unsaid = self._owes_watermark
        return [] if self._unsaid else [Watermark(reached_ms)]

    def _ask_all(self) -> None:
        """Asks the idle channels whether they still are."""
        self._unsure.clear()
        for channel, one in enumerate(self._channels):
            if one.idle and not one.ended:
                self._ask(channel, one, one.sure_ms)
                self._unsure.add(channel)

    def _ask(self, channel: int, one: _Channel, reached_ms: int) -> None:
        one.ask(reached_ms)
        self._questions[channel] = None


class Inputs:
    """All input channels of a vertex: a valve for each port, and a valve whose channels are the ports (W19).

    A watermark passes an idle port as it passes an idle channel: once the port has confirmed that it is still idle,
    which it does when all its channels have. A port whose rows have no event time does not hold back those that have
    it: results have the event time of their rows.
    """

    def __init__(self, ports: Sequence[int], untimed: Collection[int] = ()) -> None:
        """`ports[i]` is the port of channel i; the rows of `untimed` ports have no event time.

        Raises ValueError when there are no ports, or when one has no channel.
        """
        count = len(set(ports))
        self._ports = [Valve(ports.count(port)) for port in range(count)]
        self._counted = [port for port in range(count) if port not in untimed] or [*range(count)]
        self._across = Valve(len(self._counted)) if len(self._counted) != 1 else None
        self._places = [(port, ports[:index].count(port)) for index, port in enumerate(ports)]
        self._channels = {place: index for index, place in enumerate(self._places)}

    def on_control(self, channel: int, control: TimeElement) -> list[TimeElement]:
        """Returns what an element from a channel causes: input for the operators, and `StillIdle` for whoever asked."""
        port, place = self._places[channel]
        if port not in self._counted:
            return []
        valve = self._ports[port]
        if isinstance(control, StillIdle):
            out = valve.on_still_idle(place, control.question)
        else:
            out = [*_forward(valve, place, control)]
        if self._across is None:
            return out
        return [each for one in out for each in self._on_port(self._across, self._counted.index(port), one)]

    def ask(self) -> None:
        """Asks all inputs, as `Valve.ask` does."""
        if self._across is None:
            self._ports[self._counted[0]].ask()
        else:
            self._across.ask()
            self._ask_ports(self._across)

    def take_questions(self) -> list[tuple[int, int]]:
        """Returns the questions to all channels, as `Valve.take_questions` does."""
        return [
            (self._channels[port, place], question)
            for port, valve in enumerate(self._ports)
            for place, question in valve.take_questions()
        ]

    def _on_port(self, across: Valve, place: int, control: TimeElement) -> Sequence[TimeElement]:
        """Handles the output of a port's valve, which is a channel of `across`. Its answer is to the newest question,
        since each one asks all channels.
        """
        out: Sequence[TimeElement]
        if isinstance(control, StillIdle):
            out = across.on_still_idle(place, across.question_of(place))
        else:
            out = _forward(across, place, control)
        self._ask_ports(across)
        return out

    def _ask_ports(self, across: Valve) -> None:
        for place, _ in across.take_questions():
            self._ports[self._counted[place]].ask()


def _forward(valve: Valve, channel: int, control: TimeControl) -> list[TimeControl]:
    if isinstance(control, Watermark):
        return valve.on_watermark(channel, control.time_ms)
    return valve.on_status(channel, control.idle)
