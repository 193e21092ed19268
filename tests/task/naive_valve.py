"""A valve as its rules are written down (contract W08-W18), for comparison."""

from __future__ import annotations

from tidegate.operators.runtime import END_OF_TIME, LOWEST
from tidegate.task.elements import StreamStatus, TimeControl, Watermark


class NaiveValve:
    """Channel by channel, with everything computed from the start each time."""

    def __init__(self, channels: int) -> None:
        self.marks = [LOWEST] * channels
        self.idle = [False] * channels
        self.late: set[int] = set()
        self.resuming: set[int] = set()
        """Active again, without a watermark since."""
        self.out = LOWEST
        self.all_idle = False
        self.waited: set[int] = set()
        """The same, but of those with a higher watermark, too."""
        self.silent = False
        """The valve is active again, and has not said where it is."""
        self.said = LOWEST
        """The last watermark that has come out; while it is silent it may be further."""

    def going_on(self) -> list[int]:
        return [c for c, mark in enumerate(self.marks) if mark != END_OF_TIME]

    def push(self, channel: int, what: int | bool) -> list[TimeControl]:
        out = self.say(self.react(channel, what))
        self.said = max([self.said, *(one.time_ms for one in out if isinstance(one, Watermark))])
        return out

    def react(self, channel: int, what: int | bool) -> list[TimeControl]:
        if isinstance(what, bool):
            if self.marks[channel] == END_OF_TIME or self.idle[channel] == what:
                return []
            self.idle[channel] = what
            self.late.discard(channel)
            held = what and (self.marks[channel] == self.out or channel in self.resuming)
            self.resuming.discard(channel)
            self.waited.discard(channel)
            if not what:
                self.waited.add(channel)
                if self.marks[channel] < self.out:
                    self.resuming.add(channel)
            # those that are idle are asked, and answer at once
            answers = self.all_idle and not what and any(self.idle[c] for c in self.going_on())
            return self.derive(held=held, looks=held or answers)
        if self.all_idle or self.idle[channel]:
            return []
        self.waited.discard(channel)
        if what <= self.marks[channel] and channel not in self.resuming:
            return []
        held = self.marks[channel] == self.out or channel in self.resuming
        self.marks[channel] = max(what, self.marks[channel])
        if self.marks[channel] >= self.out:
            self.late.discard(channel)
        elif channel in self.resuming:
            self.late.add(channel)
        self.resuming.discard(channel)
        return self.derive(held=held, looks=True)

    def say(self, out: list[TimeControl]) -> list[TimeControl]:
        """While it is silent nothing but statuses; where it is, once all that are active have said where they are."""
        if not self.silent:
            return out
        statuses = [one for one in out if isinstance(one, StreamStatus)]
        if self.waited or self.out == LOWEST:
            self.silent = bool(self.waited)
            return [*statuses]
        self.silent = False
        return [*statuses, Watermark(self.out)]

    def reached(self, channel: int) -> int:
        return max(self.marks[channel], self.out) if channel in self.resuming else self.marks[channel]

    def derive(self, *, held: bool, looks: bool) -> list[TimeControl]:
        active = [c for c in self.going_on() if not self.idle[c]]
        wanted: int | None = None
        if not self.going_on():
            wanted = END_OF_TIME
        elif active:
            aligned = [self.reached(c) for c in active if c not in self.late]
            if aligned and looks:
                wanted = min(aligned)
        elif held:
            wanted = max(self.marks[c] for c in self.going_on())
        changed: list[TimeControl] = []
        if self.all_idle and active:
            self.all_idle, self.silent = False, True
            changed.append(StreamStatus(idle=False))
        falls_idle = not self.all_idle and not active and bool(self.going_on())
        if wanted is not None and wanted > self.out:
            self.out = wanted
            changed.append(Watermark(wanted))
        elif falls_idle and self.out > self.said:
            changed.append(Watermark(self.out))
        if falls_idle:
            self.all_idle, self.silent = True, False
            changed.append(StreamStatus(idle=True))
        return changed
