"""The contract of a serializer of values and of its snapshot (S04).

A serializer defines how values of a type are stored in a file. The file records a snapshot of it. This consists of the
type's name, its configuration and the snapshots of nested types, which together are a `DataType` of the header, and of
the version in which they were written (`Serializer.versions`). Old bytes are interpreted from this information alone
(S22). `simple.py` and `composite.py` contain the snapshots; `registry.py` finds them by name.
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
    """A serializer that cannot be rebuilt from what was written about it."""


class ValueSerializer(msgspec.Struct, frozen=True):
    """The stored form of values of a type: msgpack of the `native` type, with nil for NULL."""

    type: DataType
    native: Any
    """The type to which msgspec decodes a value."""
    nested: tuple[ValueSerializer, ...] = ()
    """The serializers of the nested types, in a fixed order."""


class FieldPath(msgspec.Struct, frozen=True):
    """The position of a type in a row, and the user's decisions about it."""

    evolution: Evolution = Evolution()
    begins: Mapping[str, Any] = MappingProxyType({})
    """Initial values of accumulator parts (`StateDeclaration.begins`)."""
    path: str = ""
    """Names of columns and fields down to here, joined by dots; empty at the level of the columns themselves."""
    holds_rows: bool = False
    """Whether this level contains an operator's own fields, such as a list of rows, with the columns inside them."""

    def within(self, name: str) -> FieldPath:
        """Returns the path of a field at this level."""
        return FieldPath(self.evolution, path=self.name(name))

    def of_rows(self) -> FieldPath:
        """Returns the path of the columns inside a field at this level."""
        return FieldPath(self.evolution, self.begins)

    @property
    def renames(self) -> dict[str, str]:
        """Renamed fields at this level: new name to former name. At the level of columns, names may contain dots."""
        if not self.path:
            return self.evolution.columns
        found = ((*new.rpartition("."), old) for new, old in self.evolution.columns.items())
        return {new: old.rpartition(".")[2] for path, _, new, old in found if path == self.path}

    def column_of(self, field: str) -> str:
        """Returns the column that a field at this level is, or is a part of. Only totals have parts."""
        return (field.rpartition(".")[0] or field) if self.holds_rows or self.begins else field

    def name(self, field: str) -> str:
        """Returns a field at this level as users write it."""
        return f"{self.path}.{field}" if self.path else field


class SerializerSnapshot(ABC):
    """The snapshot of one serializer: a top-level class, created without arguments and then filled (S19, S20)."""

    kind: ClassVar[str]
    """The name by which it is found, which is that of the type."""
    version: ClassVar[int] = 1
    """The version of the output of `write`. A reader of a newer version also reads the older ones (S05)."""

    @abstractmethod
    def take(self, serializer: ValueSerializer) -> None:
        """Takes the configuration of this serializer."""

    @abstractmethod
    def write(self) -> DataType:
        """Returns the type for the header."""

    @abstractmethod
    def read(self, version: int, written: DataType) -> None:
        """Takes the configuration that was written in this version. Raises SnapshotUnreadable if it is invalid."""

    @abstractmethod
    def judge(self, new: ValueSerializer, place: FieldPath) -> Judged:
        """Judges how values of this serializer fit the current one, and returns their conversion."""

    @abstractmethod
    def restore(self) -> ValueSerializer:
        """Rebuilds the serializer that wrote the values from this snapshot alone."""
