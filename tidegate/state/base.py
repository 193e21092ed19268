"""The interface of state: for the task that snapshots and restores it, and for the operator that stores values in it.

Access is by batch, and only from the loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from tidegate.ids import CheckpointId
from tidegate.state.declaration import StateDeclaration
from tidegate.state.increments import Capture, File, RestoredLayer
from tidegate.state.order import Row
from tidegate.state.snapshot import Value

if TYPE_CHECKING:
    import polars as pl

Key = Any
"""The value of the key column, or a tuple of values if there are several key columns. None inside is NULL."""

GroupsOf = Callable[[list[Row]], Sequence[int]]
"""Returns the key groups of keys, which are tuples of the columns that count for it. `keygroups.py` has the hash."""


class NumberedKeys(msgspec.Struct, frozen=True):
    """The keys of a batch, numbered in the order in which they first occur."""

    numbers: pl.Series
    """UInt32, for each row: the number of the row's key."""
    count: int
    """The number of keys."""
    found: Any
    """What the backend remembers about these keys between calls."""


class Share(msgspec.Struct, frozen=True):
    """The part of an operator's state that a subtask restores."""

    key_groups: range
    subtask: int = 0
    parallelism: int = 1


class StoredState(Protocol[File]):
    """One state of one operator in one subtask, as seen by snapshots."""

    declaration: StateDeclaration
    """The operator's declaration. At a restore it includes what the user has decided about existing entries."""

    def __len__(self) -> int:
        """Returns the number of entries."""

    def capture(self, checkpoint: CheckpointId, *, full: bool = False) -> Capture[File]:
        """Takes the synchronous part of a snapshot. A `full` snapshot and others do not build on each other."""

    def stored(self, checkpoint: CheckpointId, files: Sequence[File]) -> None:
        """Records that the files which `capture` encoded for the checkpoint are durable."""

    def completed(self, checkpoint: CheckpointId) -> None:
        """Records that the checkpoint is completed."""

    def abandoned(self, checkpoint: CheckpointId) -> None:
        """Records that the checkpoint was abandoned."""

    def restore(self, files: Iterable[bytes], share: Share) -> None:
        """Adds the entries of each file that belong to this share. The last file that contains a key wins.

        Must be called before the first access. The first snapshot after it is full, unless `restored` is called.
        Raises StateUnreadable.
        """

    def restored(self, layers: Iterable[RestoredLayer[File]]) -> None:
        """Lets the next snapshots build on the files of `restore`, which contain exactly the current entries.

        Must be called before the first access. A list ignores it.
        """

    def close(self) -> None:
        """Releases all resources. What `capture` has returned can still be encoded."""


class KeyedState(StoredState[File], Protocol[File]):
    """Values by key."""

    def get_many(self, keys: Collection[Key]) -> list[Value | None]:
        """Returns the value of each key, or None if the key does not exist."""

    def put_many(self, keys: Collection[Key], values: Iterable[Value]) -> None:
        """Sets values. The last value of a repeated key wins."""

    def delete_many(self, keys: Collection[Key]) -> None:
        """Removes these keys and ignores those that do not exist."""

    def delete_scanned(self, keys: Mapping[int, Sequence[Key]]) -> None:
        """Removes keys that scans have returned, by key group and sorted in each. They are not looked up again."""

    def number_keys(self, columns: Sequence[pl.Series]) -> NumberedKeys:
        """Numbers the keys of a batch. `columns` are its key columns, in the declared order and types.

        The result is valid until the state changes. Only `put_columns` with this result leaves it valid.
        """

    def get_columns(self, keys: NumberedKeys) -> tuple[pl.Series, list[pl.Series]]:
        """Returns which keys exist (Boolean), and a column for each value field, in the declared types.

        The columns have one row for each key. A key that does not exist has NULLs. If entries can expire, the last
        column is the time when they do. Names of columns mean nothing.
        """

    def put_columns(self, keys: NumberedKeys, values: Sequence[pl.Series]) -> None:
        """Sets the values of all these keys, from columns as `get_columns` returns them."""

    def get(self, key: Key) -> Value | None:
        """Returns one value, like `get_many`; for rare access only."""

    def put(self, key: Key, value: Value) -> None:
        """Sets one value, like `put_many`; for rare access only."""

    def delete(self, key: Key) -> None:
        """Removes one key, like `delete_many`; for rare access only."""

    def keys(self) -> Iterator[Key]:
        """Iterates over the keys as of the call, in no particular order. The state may change during the iteration."""

    def groups_of(self, keys: Collection[Key]) -> Sequence[int]:
        """Returns the key group of each key. Only the columns that count for the group are needed."""

    def scan(
        self,
        group: int,
        prefix: Row = (),
        *,
        start: Row = (),
        limit: int | None = None,
        backwards: bool = False,
    ) -> Iterator[tuple[Key, Value]]:
        """Iterates over the entries of a key group whose keys begin with `prefix`, in key order (see `order.py`).

        `start` is a key or its first columns: the scan begins there. The scan sees the state as of the call; the state
        may change during the iteration. The first scan of a state in memory sorts its keys. From then on, new keys are
        sorted in when their group is scanned. Raises ValueError if `start` is combined with a prefix or with
        `backwards`.
        """

    def scan_keys(self, group: int, start: Row, limit: int) -> list[Key]:
        """Returns the keys that a scan from `start` yields, without reading their values."""
