"""The sessions of some keys while rows join them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidegate.state.order import Row

Session = tuple[Any, ...]
"""Start and end, then further fields, and the accumulators last."""


class ChangedWindows:
    """Sessions by key, with a record of which ones disappear and which are new."""

    def __init__(self, held: Mapping[Row, list[Session]], merge: Callable[[Session, Session], Session]) -> None:
        """`held`: the sessions of these keys in the state; it is modified."""
        self.held = held
        self.gone: set[Row] = set()
        """Ends and keys of the earlier sessions that no longer exist."""
        self._merge = merge
        self._new: dict[int, Row] = {}
        """Ends and keys of the new sessions, by the identity of each."""

    def join(self, key: Row, new: Session, over_ms: int | None = None) -> bool:
        """Merges a session with those that it touches, except those that ended before `over_ms`.

        Returns False if it touches none and itself ended before `over_ms`.
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
        """Ends and keys of the new sessions."""
        return set(self._new.values())
