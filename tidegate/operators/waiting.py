"""Rows that an operator keeps until something else arrives: how its gauges say so, and the text about it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from tidegate.config.fields.counts import render_count

WAITING_ROWS: Final = "waiting_rows"
"""The gauge with the number of these rows."""
WAITING_UNTIL: Final = "waiting_until_ms"
"""The gauge with the time at which the last of them gives up, ms since 1970."""


class Waiting(msgspec.Struct, frozen=True):
    """What the rows that `WAITING_ROWS` counts are, and what they wait for."""

    inputs: tuple[str, ...]
    """The inputs whose rows wait, as the step names them."""
    awaited: tuple[str, ...]
    """The inputs that they wait for."""
    by_clock: bool = False
    """Whether `WAITING_UNTIL` is a time of the clock; otherwise it is event time."""

    def describe(self, gauges: Mapping[str, int], render_moment: Callable[[int], object]) -> str:
        """Returns which rows wait for what, and until when; empty if no row waits."""
        rows = gauges.get(WAITING_ROWS, 0)
        if not rows:
            return ""
        awaited = "the other input" if {*self.awaited} == {*self.inputs} else _names(self.awaited)
        text = f"{render_count(rows, 'row')} of {_names(self.inputs)} {'waits' if rows == 1 else 'wait'} for {awaited}"
        until = gauges.get(WAITING_UNTIL)
        if until is None:
            return text
        return f"{text} until {'' if self.by_clock else 'event time '}{render_moment(until)}"


def add_gauges(total: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """Adds the gauges of another subtask: numbers are added, and the later of two times counts."""
    added = dict(total)
    for name, value in more.items():
        before = added.get(name)
        added[name] = value if before is None else max(before, value) if name == WAITING_UNTIL else before + value
    return added


def _names(inputs: tuple[str, ...]) -> str:
    return " and ".join(f"`{name}`" for name in inputs)
