"""The settings of a step with windows, and their combined meaning. Pure, without Polars."""

from __future__ import annotations

import zoneinfo
from functools import cache
from math import gcd
from typing import Annotated, ClassVar, Final

import msgspec
from pydantic import Field

from tidegate.config.fields.base import Settings
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.fields.types import ValueCheck, duration, refusal, require_text
from tidegate.config.fields.units import MILLISECONDS, render_duration
from tidegate.ids import StateName
from tidegate.operators.keyed import LateSettings

SLICES: Final = StateName("slices")
"""Partial results by local end of the slice and by key."""
EXTRA: Final = StateName("extra")
"""Rows that count for one result but not for all results of their slice, by due time and key."""
GATHERED: Final = StateName("gathered")
"""What the last early result of a window was made of, by local end of the window and by key."""
TIMERS: Final = StateName("timers")
"""Pending results that are not just an entry of `slices`, by due time and key. Also the ends of sessions."""
SESSIONS: Final = StateName("sessions")
"""The open sessions of a key."""
KEPT_SESSIONS: Final = StateName("kept_sessions")
"""The open sessions of a key and those kept for correction by late rows."""
EARLY_SESSIONS: Final = StateName("early_sessions")
"""The sessions of a key if they also have early results."""
EARLY: Final = StateName("early")
"""Pending early results of sessions, by due time and key."""
AHEAD: Final = StateName("ahead")
"""Sessions of rows that are younger than the next early result, by due time and key."""
PENDING_LATE_ROWS: Final = StateName("pending_late")
"""Partial results of session rows below the watermark of their partition, by that watermark and key."""
LATE_ROWS: Final = StateName("late_rows")
"""The same rows as a whole, for the output `late` if they turn out to be late."""
EMITTED: Final = StateName("emitted")
"""Sessions whose current result was emitted, by end and key."""


DAY_MS: Final = MILLISECONDS["d"]
SLICES_MAX: Final = 10_000
"""The maximum number of slices that are merged for one window."""
EARLY_WINDOWS_MAX: Final = 100
"""The maximum number of windows with early results that contain a record, each with its own results."""


class Windowing(msgspec.Struct, frozen=True):
    """The windows of a step. Tumbling: `every_ms` is `size_ms`. Session: `size_ms` is the gap, `every_ms` is 0."""

    size_ms: int
    every_ms: int
    offset_ms: int = 0
    time_zone: str = ""
    early_ms: int = 0
    """The interval of early results. In tumbling and sliding windows it counts from their start; 0: none."""

    @property
    def session(self) -> bool:
        """True if windows end after a gap without rows."""
        return not self.every_ms

    @property
    def overlapping(self) -> bool:
        """True if a row may be in several windows."""
        return not self.session and self.every_ms != self.size_ms

    @property
    def single(self) -> bool:
        """True if a window is one slice."""
        return self.every_ms == self.size_ms and not self.early_ms

    def __str__(self) -> str:
        if self.session:
            return f"session {render_duration(self.size_ms)}"
        parts = [f"tumbling {render_duration(self.size_ms)}"]
        if self.every_ms != self.size_ms:
            parts = [f"sliding {render_duration(self.size_ms)} every {render_duration(self.every_ms)}"]
        if self.offset_ms:
            parts.append(f"offset {render_duration(self.offset_ms)}")
        if self.time_zone:
            parts.append(self.time_zone)
        return ", ".join(parts)


def _zone(value: object) -> str:
    text = require_text(value, "a time zone", "for instance Europe/Berlin")
    zones = _zones()
    if zones and text not in zones:
        raise refusal(
            f"`{text[:60]}` is not a time zone", derive_suggestion(text, zones, otherwise="as Europe/Berlin or UTC")
        )
    return text


@cache
def _zones() -> tuple[str, ...]:
    """Returns the names in the system's time zone database. Empty if there is no database; the slots then check the
    name.

    Two entries are not zones: the setting of this machine, which may differ on another, and that of a machine before
    setup.
    """
    return tuple(sorted(zoneinfo.available_timezones() - {"localtime", "Factory"}))


class WindowSettings(Settings):
    """Windows of event time: one of `tumbling`, `sliding` with `every`, and `session`."""

    TITLE: ClassVar[str] = "Windows"
    tumbling_ms: Annotated[
        int | None,
        duration("1ms", "366d"),
        Field(alias="tumbling", description="Length of consecutive windows."),
    ] = None
    sliding_ms: Annotated[
        int | None,
        duration("1ms", "366d"),
        Field(alias="sliding", description="Length of overlapping windows; needs `every`."),
    ] = None
    every_ms: Annotated[
        int | None, duration("1ms", "366d"), Field(alias="every", description="How often a sliding window starts.")
    ] = None
    session_ms: Annotated[
        int | None,
        duration("1ms", "366d"),
        Field(alias="session", description="A window per key that ends when the key has had no record for this long."),
    ] = None
    offset_ms: Annotated[
        int | None,
        duration("1ms", "366d"),
        Field(
            alias="offset",
            description="Shifts the start of windows from multiples of their size since 1970-01-01T00:00, which "
            "was a Thursday: weeks from Monday are `{tumbling: 7d, offset: 4d}`.",
        ),
    ] = None
    time_zone: Annotated[
        str | None,
        ValueCheck(_zone, {"type": "string", "examples": ["Europe/Berlin"]}),
        Field(
            description="Windows of whole days start at midnight of this zone (shifted by `offset`): some last "
            "23 or 25 hours. From 2100 on a zone has its standard time all year."
        ),
    ] = None


Problem = tuple[str, str, str]
"""A key of `window` (or empty for the whole), the problem, and the remedy."""


def derive_windowing(window: WindowSettings, early_ms: int) -> Windowing | list[Problem]:
    """Returns the windows that the settings define, or the problems with them."""
    given = {"tumbling": window.tumbling_ms, "sliding": window.sliding_ms, "session": window.session_ms}
    chosen = [(kind, size) for kind, size in given.items() if size is not None]
    if len(chosen) != 1:
        message = (
            "no kind of window is given" if not chosen else f"both `{chosen[0][0]}` and `{chosen[1][0]}` are given"
        )
        return [("" if not chosen else chosen[1][0], message, "write one of tumbling, sliding and session")]
    [(kind, size_ms)] = chosen
    problems = [*_misplaced(window, kind), *_sizes(window, kind, size_ms)]
    every_ms = {"tumbling": size_ms, "sliding": window.every_ms or size_ms, "session": 0}[kind]
    if early_ms and every_ms:
        problems += _early(size_ms, every_ms, early_ms)
    if problems:
        return problems
    return Windowing(size_ms, every_ms, window.offset_ms or 0, window.time_zone or "", early_ms)


def _misplaced(window: WindowSettings, kind: str) -> list[Problem]:
    problems: list[Problem] = []
    if kind == "sliding" and window.every_ms is None:
        problems.append(("", "`every` is missing", "add it: how often a window begins"))
    if kind != "sliding" and window.every_ms is not None:
        problems.append(("every", f"a {kind} window has no `every`", "remove it, or write sliding"))
    if kind == "session":
        for key, value in (("offset", window.offset_ms), ("time_zone", window.time_zone)):
            if value is not None:
                problems.append((key, f"a session has no `{key}`: it begins with a record", "remove it"))
    return problems


def _sizes(window: WindowSettings, kind: str, size_ms: int) -> list[Problem]:
    problems: list[Problem] = []
    every_ms = window.every_ms if kind == "sliding" and window.every_ms is not None else size_ms
    if every_ms > size_ms:
        remedy = "make it at most the size: records between two windows would be in none"
        problems.append(("every", f"is more than the size, {render_duration(size_ms)}", remedy))
    elif size_ms // every_ms > SLICES_MAX:
        remedy = f"make it at least {render_duration(-(-size_ms // SLICES_MAX))}"
        problems.append(("every", f"a record would be in {size_ms // every_ms:,} windows", remedy))
    if kind != "session" and window.offset_ms is not None and window.offset_ms >= every_ms:
        limit = f"less than {render_duration(every_ms)}"
        problems.append(("offset", f"is not {limit}, after which the windows repeat", f"make it {limit}"))
    if kind != "session" and window.time_zone is not None and gcd(size_ms, every_ms) % DAY_MS:
        key = kind if size_ms % DAY_MS else "every"
        remedy = "use whole days, as 1d, or remove `time_zone`"
        problems.append((key, "a window in a time zone lasts whole days", remedy))
    return problems


def _early(size_ms: int, every_ms: int, early_ms: int) -> list[Problem]:
    if early_ms >= size_ms:
        return [("emit", f"is not less than the window, {render_duration(size_ms)}", _part_of(size_ms))]
    if size_ms % early_ms:
        return [("emit", f"the window is not a multiple of {render_duration(early_ms)}", _part_of(size_ms))]
    if size_ms // early_ms > SLICES_MAX:
        return [("emit", f"a window would give {size_ms // early_ms:,} results", "make it longer")]
    if size_ms // every_ms > EARLY_WINDOWS_MAX:
        message = f"a record would be in {size_ms // every_ms:,} windows, and each would give early results"
        remedy = f"make `every` at least {render_duration(-(-size_ms // EARLY_WINDOWS_MAX))}, or remove `emit`"
        return [("emit", message, remedy)]
    return []


def _part_of(size_ms: int) -> str:
    """Returns the remedy, with an interval that is accepted."""
    parts = next(parts for parts in (6, 5, 4, 3, 2, size_ms) if size_ms % parts == 0)
    if size_ms == 1:
        return "remove it"
    return f"make it a part of {render_duration(size_ms)}, as {render_duration(size_ms // parts)}"


class WindowStepSettings(LateSettings):
    """The keys of a step with windows, besides those of an aggregate."""

    window: Annotated[
        WindowSettings | None,
        Field(description="Aggregates per key and window of event time instead of running totals; see Windows below."),
    ] = None
    allowed_lateness_ms: Annotated[
        int | None,
        duration("0s", "366d"),
        Field(
            alias="allowed_lateness",
            description="How long after its end a window is kept for late records; each batch with late records "
            "emits a corrected result. For sessions, the results have the column `_deleted boolean`, as those "
            "with early results do: a record that merges two sessions retracts the result of the later one with "
            "a row that has `_deleted`.",
        ),
    ] = None
