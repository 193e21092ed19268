"""Snapshots of serializers by the names that files use. A file never refers to a class by its path, and nothing from a
file is executed (S21): a name that is not listed here is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidegate.datatypes import DataType
from tidegate.state.serializers.composite import ArraySnapshot, CompositeSnapshot, MapSnapshot, StructSnapshot
from tidegate.state.serializers.contract import SerializerSnapshot, SnapshotUnreadable, ValueSerializer
from tidegate.state.serializers.simple import (
    BigintSnapshot,
    BinarySnapshot,
    BooleanSnapshot,
    DateSnapshot,
    DecimalSnapshot,
    DoubleSnapshot,
    FloatSnapshot,
    IntSnapshot,
    SmallintSnapshot,
    StringSnapshot,
    TimestampNtzSnapshot,
    TimestampSnapshot,
    TinyintSnapshot,
)

FIRST: Final[Mapping[str, int]] = MappingProxyType({})
"""The versions if a file lists none: every type has version 1."""


class SerializerRegistry:
    """Registry that finds snapshots by name."""

    def __init__(self, *classes: type[SerializerSnapshot]) -> None:
        """Raises ValueError for a class that could not be found again, or for a duplicate."""
        self._by_name: dict[str, type[SerializerSnapshot]] = {}
        for one in classes:
            if "." in one.__qualname__ or one.__qualname__.startswith("_"):
                raise ValueError(f"{one.__qualname__} must be a public class at the top of its module")
            if one in self._by_name.values() or one.kind in self._by_name:
                raise ValueError(f"{one.kind} has a snapshot already: each serializer has one of its own")
            self._by_name[one.kind] = one

    def versions_of(self, kind: DataType) -> dict[str, int]:
        """Returns the versions to write with a type, for itself and its nested types, except those that are 1."""
        snapshot = self._find(kind.kind)
        found = {} if snapshot.version == 1 else {kind.kind: snapshot.version}
        for part in self.serializer_of(kind).nested:
            found |= self.versions_of(part.type)
        return found

    def read(self, written: DataType, versions: Mapping[str, int] = FIRST) -> SerializerSnapshot:
        """Rebuilds a snapshot from a file. Raises SnapshotUnreadable."""
        snapshot = self._find(written.kind)()
        version = versions.get(written.kind, 1)
        if not 1 <= version <= snapshot.version:
            raise SnapshotUnreadable(
                f"`{written.kind}` was written in version {version}, this release reads 1 to {snapshot.version}"
            )
        if isinstance(snapshot, CompositeSnapshot):
            snapshot.take_nested([self.read(part, versions) for part in snapshot.parts_of(written)])
        snapshot.read(version, written)
        return snapshot

    def serializer_of(self, kind: DataType) -> ValueSerializer:
        """Returns the current serializer of a type. Raises SnapshotUnreadable for a type that no state can contain."""
        return self.read(kind, {kind: one.version for kind, one in self._by_name.items()}).restore()

    def snapshot_of(self, serializer: ValueSerializer) -> SerializerSnapshot:
        """Returns the snapshot of a serializer."""
        snapshot = self._find(serializer.type.kind)()
        if isinstance(snapshot, CompositeSnapshot):
            snapshot.take_nested([self.snapshot_of(one) for one in serializer.nested])
        snapshot.take(serializer)
        return snapshot

    def _find(self, name: str) -> type[SerializerSnapshot]:
        try:
            return self._by_name[name]
        except KeyError:
            raise SnapshotUnreadable(f"no serializer is named `{name}`") from None


SERIALIZERS: Final = SerializerRegistry(
    BooleanSnapshot,
    TinyintSnapshot,
    SmallintSnapshot,
    IntSnapshot,
    BigintSnapshot,
    FloatSnapshot,
    DoubleSnapshot,
    DecimalSnapshot,
    StringSnapshot,
    BinarySnapshot,
    DateSnapshot,
    TimestampSnapshot,
    TimestampNtzSnapshot,
    ArraySnapshot,
    MapSnapshot,
    StructSnapshot,
)
