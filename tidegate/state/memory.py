"""Keyed state in a dict. Values are immutable tuples, so a shallow copy of the dict is a snapshot (F23)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic

from tidegate.ids import CheckpointId
from tidegate.state.base import GroupsOf, Key, Value
from tidegate.state.increments import Capture, Extent, File, Increments
from tidegate.state.snapshot import Entry, StateShape, encode_snapshot, read_entries


class MemoryState(Generic[File]):
    """See KeyedState."""

    def __init__(self, operator: str, name: str, shape: StateShape, groups_of: GroupsOf, retained: int = 1) -> None:
        """`retained`: see Increments."""
        self._operator = operator
        self._name = name
        self._shape = shape
        self._groups_of = groups_of
        self._single = len(shape.keys) == 1
        self._entries: dict[Key, Value] = {}
        self._increments = Increments[File](retained)

    def __len__(self) -> int:
        """See KeyedState."""
        return len(self._entries)

    def get_many(self, keys: Collection[Key]) -> list[Value | None]:
        """See KeyedState."""
        return list(map(self._entries.get, keys))

    def put_many(self, keys: Collection[Key], values: Iterable[Value]) -> None:
        """See KeyedState."""
        self._entries.update(zip(keys, values, strict=True))
        self._increments.touch(keys)

    def capture(self, checkpoint: CheckpointId, *, full: bool = False) -> Capture[File]:
        """See KeyedState."""
        extent = Extent[File](None) if full else self._increments.begin(checkpoint, len(self._entries))
        if extent.keys is None:
            return Capture(partial(self._encode, self._entries.copy()))
        if not extent.keys:
            return Capture(None, extent.builds_on)
        entries = self._entries
        return Capture(partial(self._encode, {key: entries[key] for key in extent.keys}), extent.builds_on)

    def stored(self, checkpoint: CheckpointId, files: Sequence[File]) -> None:
        """See KeyedState."""
        self._increments.stored(checkpoint, files)

    def completed(self, checkpoint: CheckpointId) -> None:
        """See KeyedState."""
        self._increments.completed(checkpoint)

    def abandoned(self, checkpoint: CheckpointId) -> None:
        """See KeyedState."""
        self._increments.abandoned(checkpoint)

    def restore(self, files: Iterable[bytes], key_groups: range) -> None:
        """See KeyedState."""
        for data in files:
            for entries in read_entries(data, key_groups, self._operator, self._name, self._shape):
                self._entries.update((key[0] if self._single else key, value) for key, value in entries)

    def close(self) -> None:
        """See KeyedState."""
        self._entries.clear()

    def _encode(self, frozen: Mapping[Key, Value]) -> list[bytes]:
        keys: list[tuple[Any, ...]] = [(key,) for key in frozen] if self._single else list(frozen)
        groups: defaultdict[int, list[Entry]] = defaultdict(list)
        for group, entry in zip(self._groups_of(keys), zip(keys, frozen.values(), strict=True), strict=True):
            groups[group].append(entry)
        return [encode_snapshot(self._operator, self._name, self._shape, groups)]
