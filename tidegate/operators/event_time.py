"""The watermark that an operator keeps across restarts, and operators whose results become due by it. Pure.

In every attempt the incoming watermark begins at its lowest value, and sources send theirs before the rows in flight
are processed again. So an operator that decides which rows are late, or fires timers, keeps its own watermark in the
checkpoint, as it was at the barrier. What was closed then stays closed for the key groups that the subtask had. (W10 to
W18 are about the incoming watermark, `task/valve.py`.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from tidegate.datatypes import BIGINT
from tidegate.operators.runtime import END_OF_TIME, LOWEST, ROWS_MAX, OperatorRuntime, Out
from tidegate.state.declaration import StateField, StateForm, declare_list
from tidegate.state.operator_list import OperatorList

if TYPE_CHECKING:
    import polars as pl

TIME: Final = "__tidegate_time"
"""The column of a row's event time, ms since 1970, never NULL."""
BEHIND: Final = "__tidegate_behind"
"""By how many ms the watermark of the row's own partition had passed its event time when it was read; 0: it had not."""
TIMER: Final = "__tidegate_timer"
"""The column with the name of a timer, in rows that stand for timers whose call has failed."""
WATERMARK: Final = declare_list(
    "watermark",
    tuple(StateField(name, BIGINT, nullable=False) for name in ("first_group", "end_group", "watermark_ms")),
    StateForm.UNION,
)
"""One entry per range of key groups: its first group, the first group after it, and its watermark at the barrier."""


class EventClock:
    """The watermark of one subtask of an operator. It is kept by key group while a restored watermark is ahead."""

    def __init__(self, operator: str, key_groups: range) -> None:
        """`key_groups`: those of the subtask."""
        self.state = OperatorList[Any](operator, WATERMARK)
        """One of the operator's states; restored before the first query."""
        self.watermark_ms = LOWEST
        """The incoming watermark: timers up to it are due."""
        self._groups = key_groups
        self._data_ms = LOWEST
        """The last watermark other than END_OF_TIME."""
        self._fired: dict[int, int] = {}
        """By key group, the latest time that an end of time has made due."""
        self._restored: dict[int, int] | None = None
        """By key group; empty once the watermark has passed all of them. None: not read yet."""
        self._restored_max = LOWEST
        self._before: Mapping[int, int] | None = None

    def advance(self, watermark_ms: int) -> None:
        """Receives a watermark. One that is not higher changes nothing."""
        if watermark_ms <= self.watermark_ms:
            return
        self.watermark_ms = watermark_ms
        if watermark_ms != END_OF_TIME:
            self._data_ms = watermark_ms
            self._forget_passed()

    @property
    def ending(self) -> bool:
        """True after an end of time: timers that fire must then be recorded."""
        return self.watermark_ms == END_OF_TIME

    def fired(self, times: Iterable[int], groups: Iterable[int]) -> None:
        """Records that timers of these times, for keys of these groups, have fired after an end of time or are
        forgotten.

        A later start needs this. It is kept by key group: kept by subtask, another parallelism would find different
        rows late.
        """
        for time_ms, group in zip(times, groups, strict=True):
            self._fired[group] = max(time_ms, self._fired.get(group, LOWEST))

    def ended(self, lateness_ms: int) -> None:
        """Records that an end of time has made everything due, and that the results that late records could still
        correct are gone.

        A later start then accepts no record for what was closed, whatever lateness it allows. This call covers what
        watermarks had closed earlier. An operator that forgets something records it with a time that is later by the
        lateness, since a snapshot may come in between.
        """
        if self._data_ms != LOWEST:
            for group in self._groups:
                self._fired[group] = max(self._data_ms + lateness_ms, self._fired.get(group, LOWEST))

    def _reached_ms(self, group: int) -> int:
        """Returns the time up to which this attempt has closed the keys of the group."""
        return max(self._data_ms, self._fired.get(group, LOWEST))

    @property
    def uniform(self) -> bool:
        """True if all key groups have the incoming watermark; otherwise some have a higher one from a restore."""
        return not self._ahead() or self.watermark_ms >= self._restored_max

    def watermark_of(self, groups: Iterable[int]) -> list[int]:
        """Returns the watermark of each of these key groups. Times up to it are closed for the keys of the group."""
        ahead = self._ahead()
        return [max(self.watermark_ms, ahead.get(group, LOWEST)) for group in groups]

    def closed(self, times: pl.Series, groups: Callable[[], Sequence[int]]) -> pl.Series:
        """Returns which of these times, ms since 1970, the watermark of their key group has passed.

        `groups` returns the key group of each time. It is called only if a restored watermark is ahead and affects the
        result.
        """
        passed = times <= self.watermark_ms
        if self.uniform or not (~passed & (times <= self._restored_max)).any():
            return passed
        return times <= type(times)("watermark", self.watermark_of(groups()), dtype=times.dtype)

    @property
    def width(self) -> int:
        """The number of the subtask's key groups."""
        return len(self._groups)

    def restored(self) -> Mapping[int, int]:
        """Returns the restored watermark of each own key group that has one, even if it has been passed."""
        if self._before is None:
            found: dict[int, int] = {}
            for first, end, watermark_ms in self.state.values:
                for group in range(max(first, self._groups.start), min(end, self._groups.stop)):
                    found[group] = max(watermark_ms, found.get(group, LOWEST))
            self._before = found
        return self._before

    def before_snapshot(self) -> None:
        """Copies the watermarks of the subtask's key groups into the state."""
        values = tuple(self._ranges())
        self.restored()  # read before it is overwritten
        if values != self.state.values:
            self.state.replace(values)

    def _ranges(self) -> Iterable[tuple[int, int, int]]:
        ahead = self._ahead()
        for watermark_ms, part in groupby(
            self._groups, lambda group: max(self._reached_ms(group), ahead.get(group, LOWEST))
        ):
            groups = list(part)
            if watermark_ms != LOWEST:
                yield groups[0], groups[-1] + 1, watermark_ms

    def _ahead(self) -> dict[int, int]:
        """Returns restored watermarks of own key groups that may be higher than the incoming one."""
        if self._restored is None:
            self._restored = dict(self.restored())
            self._restored_max = max(self._restored.values(), default=LOWEST)
            self._forget_passed()
        return self._restored

    def _forget_passed(self) -> None:
        """Drops restored watermarks once passed. An end of time does not pass them: the next checkpoint needs them."""
        if self._restored and self._data_ms >= self._restored_max:
            self._restored = {}


class DueResultsRuntime(OperatorRuntime):
    """Emits what a watermark makes due, in several calls if it is much, before it passes the watermark on (W20).

    A higher watermark replaces one that waits for its results. The end of time does not, because it makes less due: it
    repeats nothing.

    A subclass implements `emit_due`, and sets `_clock`.
    """

    _clock: EventClock
    _pending_ms: int | None = None
    """The watermark that waits for its results."""
    _ends: bool = False
    """Whether the end of time follows that watermark."""
    _status_after: bool | None = None
    """The status to pass on after that watermark."""

    def emit_due(self, watermark_ms: int, rows_max: int, out: Out) -> bool:
        """Emits some of the results that a watermark makes due, at most about `rows_max`. Returns True if more are
        due.
        """
        raise NotImplementedError

    def advance(self, watermark_ms: int) -> None:
        """Begins with a watermark: from now on, lateness is judged by it."""
        self._clock.advance(watermark_ms)

    def passed_on(self, watermark_ms: int) -> int:
        """Returns the watermark that follows the results of a watermark."""
        return watermark_ms

    @property
    @override
    def settled(self) -> bool:
        return self._pending_ms is None

    @override
    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        if watermark_ms == END_OF_TIME and self._pending_ms is not None:
            self._ends = True
            return
        self.advance(watermark_ms)
        self._pending_ms = watermark_ms
        self._go_on(ROWS_MAX, out)

    @override
    def on_status(self, idle: bool, out: Out) -> None:
        """Holds a status back while a watermark waits, because nothing may be emitted between idle and active (W05)."""
        if self._pending_ms is None:
            out.status(idle)
        else:
            self._status_after = idle

    @override
    def poll(self, rows_max: int, out: Out) -> bool:
        if self._pending_ms is None:
            return False
        self._go_on(rows_max, out)
        return True

    @override
    def before_snapshot(self) -> None:
        self._clock.before_snapshot()

    def _go_on(self, rows_max: int, out: Out) -> None:
        watermark_ms = self._pending_ms
        assert watermark_ms is not None
        if self.emit_due(watermark_ms, rows_max, out):
            return
        self._pending_ms = None
        out.watermark(self.passed_on(watermark_ms))
        if self._ends:
            self._ends = False
            self.on_watermark(END_OF_TIME, out)
        elif self._status_after is not None:
            idle, self._status_after = self._status_after, None
            out.status(idle)
