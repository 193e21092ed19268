"""What both backends do alike: they keep track of changed keys, and capture all entries or only those (F28)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Generic

from tidegate.ids import CheckpointId
from tidegate.state.base import GroupsOf, Key, Value
from tidegate.state.increments import Capture, Extent, File, Increments
from tidegate.state.snapshot import StateShape

Encode = Callable[[], Iterable[bytes]]
"""Gives the files of a moment that has passed; may run on another thread."""


class IncrementalState(ABC, Generic[File]):
    """A KeyedState without its storage."""

    def __init__(self, operator: str, name: str, shape: StateShape, groups_of: GroupsOf, retained: int = 1) -> None:
        """`retained`: see Increments."""
        self._operator = operator
        self._name = name
        self._shape = shape
        self._groups_of = groups_of
        self._single = len(shape.keys) == 1
        self._increments = Increments[File](retained)

    @abstractmethod
    def __len__(self) -> int:
        """See KeyedState."""

    @abstractmethod
    def _put(self, keys: Collection[Key], values: Iterable[Value]) -> None:
        """As `put_many`, without taking note."""

    @abstractmethod
    def _freeze_all(self) -> Encode:
        """The moment's entries, all of them."""

    @abstractmethod
    def _freeze(self, keys: Collection[Key]) -> Encode:
        """The moment's entries of these keys, at least one."""

    def put_many(self, keys: Collection[Key], values: Iterable[Value]) -> None:
        """See KeyedState."""
        self._put(keys, values)
        self._increments.touch(keys)

    def capture(self, checkpoint: CheckpointId, *, full: bool = False) -> Capture[File]:
        """See KeyedState."""
        extent = Extent[File](None) if full else self._increments.begin(checkpoint, len(self))
        if extent.keys is None:
            return Capture(self._freeze_all())
        if not extent.keys:
            return Capture(None, extent.builds_on)
        return Capture(self._freeze(extent.keys), extent.builds_on)

    def stored(self, checkpoint: CheckpointId, files: Sequence[File]) -> None:
        """See KeyedState."""
        self._increments.stored(checkpoint, files)

    def completed(self, checkpoint: CheckpointId) -> None:
        """See KeyedState."""
        self._increments.completed(checkpoint)

    def abandoned(self, checkpoint: CheckpointId) -> None:
        """See KeyedState."""
        self._increments.abandoned(checkpoint)

    def _rows(self, keys: Iterable[Key]) -> list[tuple[Any, ...]]:
        """Keys as tuples of their columns."""
        return [(key,) for key in keys] if self._single else list(keys)

    def _keys(self, rows: Iterable[tuple[Any, ...]]) -> list[Key]:
        """The opposite."""
        return [row[0] for row in rows] if self._single else list(rows)
