"""The sessions of some keys while rows join them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidegate.state.order import Row

Session = tuple[Any, ...]
"""Start and end, then what belongs to it, accumulators last."""


class ChangedWindows:
    """See the module."""

    def __init__(self, held: Mapping[Row, list[Session]], merge: Callable[[Session, Session], Session]) -> None:
        """`held`: what the state has of these keys; it is changed."""
        self.held = held
        self.gone: set[Row] = set()
        """Ends and keys of the sessions that were and are none any more."""
        self._merge = merge
        self._new: dict[int, Row] = {}
        """Those of the sessions that were not there before, by the identity of each."""

    def join(self, key: Row, new: Session, over_ms: int | None = None) -> bool:
        """Merge a session with those that it touches; one that has ended before `over_ms` is no more for it.

        False when it cannot join any and has ended so itself.
        """
        sessions = self.held[key]
        touched = [
            one for one in sessions if one[0] <= new[1] and new[0] <= one[1] and (over_ms is None or one[1] >= over_ms)
        ]
        if not touched and over_ms is not None and new[1] < over_ms:
            return False
        for one in touched:
            sessions.remove(one)
            if self._new.pop(id(one), None) is None:
                self.gone.add((one[1], *key))
            new = self._merge(new, one)
        sessions.append(new)
        self._new[id(new)] = (new[1], *key)
        return True

    @property
    def new(self) -> set[Row]:
        """Ends and keys of the sessions that were not there before."""
        return set(self._new.values())
