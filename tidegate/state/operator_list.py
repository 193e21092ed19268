"""State without keys: a list of values per subtask, redistributed when the number of subtasks changes.

The list is held in memory, whatever the backend. A snapshot contains all of it, or nothing if it has not changed. It is
meant for a few values per subtask, such as a reader's assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Generic

from tidegate.ids import CheckpointId
from tidegate.state.base import Share
from tidegate.state.declaration import StateDeclaration, StateForm
from tidegate.state.increments import Capture, Extent, File, Increments, RestoredLayer
from tidegate.state.snapshot import Value, encode_snapshot, read_entries

_GROUP: Final = 0
_ALL: Final = (None,)
"""The changed "key" since the last snapshot: the list as a whole."""


class OperatorList(Generic[File]):
    """A StoredState that holds the list of this subtask."""

    def __init__(self, operator: str, declaration: StateDeclaration, retained: int = 1) -> None:
        """`retained`: see Increments; if it is too low, it only costs a file. Raises ValueError for a keyed state."""
        if declaration.keyed:
            raise ValueError(f"state {declaration.name} of {operator} is keyed, not a list")
        self.declaration = declaration
        self._operator = operator
        self._values: tuple[Value, ...] = ()
        self._increments = Increments[File](retained)

    def __len__(self) -> int:
        """Returns the number of values."""
        return len(self._values)

    @property
    def values(self) -> tuple[Value, ...]:
        """The values of this subtask."""
        return self._values

    def replace(self, values: Iterable[Value]) -> None:
        """Replaces the list."""
        self._values = tuple(values)
        self._increments.touch(_ALL)

    def capture(self, checkpoint: CheckpointId, *, full: bool = False) -> Capture[File]:
        """Captures the list if it has changed. An empty list has no file: its step can be removed from the pipeline."""
        if not self._values:
            return Capture(None, keyed=False)
        extent = Extent[File](None) if full else self._increments.begin(checkpoint, len(_ALL))
        if extent.keys is None:
            return Capture(self._freeze(), keyed=False)
        return Capture(None, extent.builds_on, keyed=False)

    def stored(self, checkpoint: CheckpointId, files: Sequence[File]) -> None:
        """Records that the files of the checkpoint's snapshot are durable."""
        self._increments.stored(checkpoint, files)

    def completed(self, checkpoint: CheckpointId) -> None:
        """Records that the checkpoint is completed."""
        self._increments.completed(checkpoint)

    def abandoned(self, checkpoint: CheckpointId) -> None:
        """Records that the checkpoint was abandoned."""
        self._increments.abandoned(checkpoint)

    def restore(self, files: Iterable[bytes], share: Share) -> None:
        """Restores this subtask's share from the `files` of all former subtasks."""
        found = tuple(
            value
            for data in files
            for part in read_entries(data, range(_GROUP, _GROUP + 1), self._operator, self.declaration)
            for _, value in part
            if value is not None
        )
        self._values = deal_values(found, self.declaration.shape.form, share.subtask, share.parallelism)

    def restored(self, layers: Iterable[RestoredLayer[File]]) -> None:
        """Does nothing: the files are those of all subtasks."""

    def close(self) -> None:
        """Removes all values."""
        self._values = ()

    def _freeze(self) -> Callable[[], list[bytes]]:
        return partial(_encode, self._operator, self.declaration, self._values)


def deal_values(values: Sequence[Value], form: StateForm, subtask: int, parallelism: int) -> tuple[Value, ...]:
    """Returns a subtask's share of all values, in their order: everything, or its even part (like Flink's list states).

    The sizes of two parts differ by at most one. Raises ValueError for a keyed state, or a subtask that does not exist.
    """
    if not 0 <= subtask < parallelism:
        raise ValueError(f"subtask {subtask} is not within 0 .. {parallelism - 1}")
    match form:
        case StateForm.UNION:
            return tuple(values)
        case StateForm.SPLIT:
            return tuple(values[len(values) * subtask // parallelism : len(values) * (subtask + 1) // parallelism])
        case StateForm.KEYED:
            raise ValueError("keyed state is dealt out by key group")


def _encode(operator: str, declaration: StateDeclaration, values: Sequence[Value]) -> list[bytes]:
    return [encode_snapshot(operator, declaration, {_GROUP: [((), value) for value in values]})]
