"""The contract of a serializer of values and of its snapshot (S04).

A serializer says how values of a type are in a file. What a file keeps of it is its snapshot: the type's name, what
configures it, and the snapshots of the types within it, which together are a `DataType` of the header; and the version
in which that was written (`Serializer.versions`). Everything that is known of old bytes comes from there (S22).

`simple.py`, `numbers.py` and `composite.py` have the snapshots, `registry.py` finds them by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import msgspec

from tidegate.datatypes import DataType
from tidegate.state.compatibility import Judged
from tidegate.state.declaration import Evolution


class SnapshotUnreadable(ValueError):
    """Nobody here can rebuild a serializer from what was written of it."""


class ValueSerializer(msgspec.Struct, frozen=True):
    """How values of a type are in a file: msgpack of what `native` says, NULL is nil."""

    type: DataType
    native: Any
    """What msgspec decodes a value to."""
    nested: tuple[ValueSerializer, ...] = ()
    """Of the types within it, in a fixed order."""


class FieldPath(msgspec.Struct, frozen=True):
    """Where in a row a type is, and what was said about it."""

    evolution: Evolution = Evolution()
    begins: Mapping[str, Any] = MappingProxyType({})
    """What parts of accumulators begin with (`StateDeclaration.begins`)."""
    path: str = ""
    """Names of columns and fields down to here, joined by dots; empty where the columns themselves are."""
    holds_rows: bool = False
    """Whether here are an operator's own fields, such as a list of rows: columns are within them."""

    def within(self, name: str) -> FieldPath:
        """A field of what is here."""
        return FieldPath(self.evolution, path=self.name(name))

    def of_rows(self) -> FieldPath:
        """Where the columns are, within a field of what is here."""
        return FieldPath(self.evolution, self.begins)

    @property
    def renames(self) -> dict[str, str]:
        """Fields of what is here that were renamed: new name to former name. Of columns any, as they may have dots."""
        if not self.path:
            return self.evolution.columns
        found = ((*new.rpartition("."), old) for new, old in self.evolution.columns.items())
        return {new: old.rpartition(".")[2] for path, _, new, old in found if path == self.path}

    def column_of(self, field: str) -> str:
        """The column that a field of what is here is, or is a part of: only totals have parts."""
        return (field.rpartition(".")[0] or field) if self.holds_rows or self.begins else field

    def name(self, field: str) -> str:
        """A field of what is here, as users write it."""
        return f"{self.path}.{field}" if self.path else field


class SerializerSnapshot(ABC):
    """Of one serializer: a top-level class of its own, made without arguments and then filled (S19, S20)."""

    kind: ClassVar[str]
    """The name by which it is found; the type's own."""
    version: ClassVar[int] = 1
    """Of what `write` gives. A reader of a newer version reads the older ones, too (S05)."""

    @abstractmethod
    def take(self, serializer: ValueSerializer) -> None:
        """Become the snapshot of this one."""

    @abstractmethod
    def write(self) -> DataType:
        """What a header keeps."""

    @abstractmethod
    def read(self, version: int, written: DataType) -> None:
        """Become what was written in this version. Raises SnapshotUnreadable for what is none."""

    @abstractmethod
    def judge(self, new: ValueSerializer, place: FieldPath) -> Judged:
        """How values of this one fit the serializer of now, and how they become values of it."""

    @abstractmethod
    def restore(self) -> ValueSerializer:
        """The serializer that has written, from this snapshot alone."""
