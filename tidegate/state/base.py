"""What every state backend offers. Access is by batch, and from the loop's thread only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

from tidegate.ids import CheckpointId
from tidegate.state.increments import Capture, File

Key = Any
"""The value of the key column, or a tuple of the values of several; None inside is NULL."""

Value = tuple[Any, ...]

GroupsOf = Callable[[list[tuple[Any, ...]]], Sequence[int]]
"""Key groups of keys (each a tuple of its columns); the hash lives in `tidegate.state.keygroups`."""


class KeyedState(Protocol[File]):
    """One state of one operator in one subtask."""

    def __len__(self) -> int:
        """Number of keys."""

    def get_many(self, keys: Collection[Key]) -> list[Value | None]:
        """The value of each key, None where there is none."""

    def put_many(self, keys: Collection[Key], values: Iterable[Value]) -> None:
        """Set values; of a repeated key the last counts."""

    def capture(self, checkpoint: CheckpointId, *, full: bool = False) -> Capture[File]:
        """The synchronous part of a snapshot. `full`: it builds on no other, and no other on it."""

    def stored(self, checkpoint: CheckpointId, files: Sequence[File]) -> None:
        """What `capture` has encoded for the checkpoint is durable."""

    def completed(self, checkpoint: CheckpointId) -> None:
        """The checkpoint counts."""

    def abandoned(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was given up."""

    def restore(self, files: Iterable[bytes], key_groups: range) -> None:
        """Add the entries of `key_groups` from each file; the last file that has a key counts. Raises StateUnreadable.

        Before the first access. The first snapshot behind it is full.
        """

    def close(self) -> None:
        """Free what it holds; what `capture` has returned may still be encoded."""
