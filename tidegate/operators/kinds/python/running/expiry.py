"""The `ttl` of a state: when an entry ends, and whether it still counts.

An entry ends its `ttl` after the last time that it was written, and not earlier than before if a late row writes it. In
event time, the entry has ended for a row if the row's time, or the watermark of its partition when it was read if that
was later, is past the end. So batches, restarts and the moment when an entry is really removed make no difference.
In processing time, the moment when a batch is processed decides.
"""

from __future__ import annotations

from typing import Any

from tidegate.config.fields.ttl import Ttl
from tidegate.operators.kinds.python.running.scope import RunningScope
from tidegate.operators.runtime import END_OF_TIME, LOWEST
from tidegate.operators.sweep import Sweep
from tidegate.state.base import KeyedState
from tidegate.state.snapshot import Value


class Expiry:
    """The expiry of the entries of one state. Without a `ttl`, they never end."""

    def __init__(self, ttl: Ttl | None, scope: RunningScope) -> None:
        self._ttl = ttl
        self._scope = scope
        self.lasting = ttl is None

    def stored(self, value: Any, before: Value | None) -> Value:
        """Returns an entry for the state. `before`: the entry that it replaces, which counts."""
        if self._ttl is None:
            return (value,)
        end = (self._scope.wall_ms if self._ttl.processing else self._scope.time_ms or 0) + self._ttl.time_ms
        if before is not None and before[1] is not None and before[1] > end:
            end = before[1]
        return (value, end)

    def visible(self, entry: Value | None) -> Value | None:
        """Returns an entry, or None if it has ended."""
        if entry is None or self._ttl is None or entry[1] is None:
            return entry
        scope = self._scope
        return None if (scope.wall_ms if self._ttl.processing else scope.reached_ms) > entry[1] else entry


class Removal:
    """Removes the ended entries of one state, in parts."""

    def __init__(self, ttl: Ttl, state: KeyedState[Any]) -> None:
        self._processing = ttl.processing
        self._sweep = Sweep(state, ttl.time_ms)

    def go_on(self, entries: int, watermark_ms: int, wall_ms: int) -> None:
        """Looks at this many entries. After an end of time none ends, because another start may bring more rows."""
        now_ms = wall_ms if self._processing else watermark_ms
        if now_ms not in (LOWEST, END_OF_TIME):
            self._sweep.go_on(now_ms, entries)
