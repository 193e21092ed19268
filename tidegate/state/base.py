"""What every state offers: to the task that snapshots and restores it, and to the operator that keeps things in it.

Access is by batch, and from the loop's thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from tidegate.ids import CheckpointId
from tidegate.state.declaration import StateDeclaration
from tidegate.state.increments import Capture, File
from tidegate.state.order import Row
from tidegate.state.snapshot import Value

Key = Any
"""The value of the key column, or a tuple of the values of several; None inside is NULL."""

GroupsOf = Callable[[list[Row]], Sequence[int]]
"""Key groups of keys (each a tuple of the columns that count); the hash lives in `keygroups.py`."""


class Share(msgspec.Struct, frozen=True):
    """Which part of an operator's state a subtask restores."""

    key_groups: range
    subtask: int = 0
    parallelism: int = 1


class StoredState(Protocol[File]):
    """One state of one operator in one subtask, as its snapshots see it."""

    declaration: StateDeclaration
    """What the operator has declared. At a restore it is set with what the user says about older entries."""

    def __len__(self) -> int:
        """Number of entries."""

    def capture(self, checkpoint: CheckpointId, *, full: bool = False) -> Capture[File]:
        """The synchronous part of a snapshot. `full`: it builds on no other, and no other on it."""

    def stored(self, checkpoint: CheckpointId, files: Sequence[File]) -> None:
        """What `capture` has encoded for the checkpoint is durable."""

    def completed(self, checkpoint: CheckpointId) -> None:
        """The checkpoint counts."""

    def abandoned(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was given up."""

    def restore(self, files: Iterable[bytes], share: Share) -> None:
        """Add what each file has for this share; the last file that has a key counts. Raises StateUnreadable.

        Before the first access. The first snapshot after it is full.
        """

    def close(self) -> None:
        """Free what it holds; what `capture` has returned may still be encoded."""


class KeyedState(StoredState[File], Protocol[File]):
    """Values by key."""

    def get_many(self, keys: Collection[Key]) -> list[Value | None]:
        """The value of each key, None where there is none."""

    def put_many(self, keys: Collection[Key], values: Iterable[Value]) -> None:
        """Set values; of a repeated key the last counts."""

    def delete_many(self, keys: Collection[Key]) -> None:
        """Forget these keys; those that are not there are passed over."""

    def delete_scanned(self, keys: Mapping[int, Sequence[Key]]) -> None:
        """Forget keys that scans have given, by their key groups, each group in order: nothing is looked up again."""

    def get(self, key: Key) -> Value | None:
        """As `get_many`, for what is rare."""

    def put(self, key: Key, value: Value) -> None:
        """As `put_many`, for what is rare."""

    def delete(self, key: Key) -> None:
        """As `delete_many`, for what is rare."""

    def keys(self) -> Iterator[Key]:
        """All keys of the moment of the call, in no particular order: the state may be changed meanwhile."""

    def groups_of(self, keys: Collection[Key]) -> Sequence[int]:
        """The key group of each key, or of what is known of it: at least the columns that count for the group."""

    def scan(
        self,
        group: int,
        prefix: Row = (),
        *,
        start: Row = (),
        limit: int | None = None,
        backwards: bool = False,
    ) -> Iterator[tuple[Key, Value]]:
        """Entries of a key group whose keys begin with `prefix`, in the order of their keys (see `order.py`).

        With `start`, the first columns of a key or all: the entries from there on. It sees the moment of the call: the
        state may be changed meanwhile. The first scan of a state in memory sorts its keys, and from then on new ones
        are sorted in when their group is scanned. Raises ValueError: `start` goes neither with a prefix nor backwards.
        """
