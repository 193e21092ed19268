"""Serializers that contain others: arrays, maps, structs.

A composite snapshot holds those of its parts in a fixed order. Each part is judged separately, and the worst verdict
wins (S14). A subclass defines its version, its parts, and how the serializer is rebuilt from theirs (S15). Anything
else it records is its *outer* information. Three methods, which must be defined together, write, read and judge it; by
default there is none (S16). The outer version describes how the outer information is written, independently of the
versions of the parts (S17).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from typing_extensions import override

from tidegate.datatypes import DataType, entry_of
from tidegate.state.compatibility import AS_IS, Convert, Judged
from tidegate.state.declaration import StateField
from tidegate.state.serializers.contract import FieldPath, SerializerSnapshot, SnapshotUnreadable, ValueSerializer
from tidegate.state.serializers.fields import WrittenField, judge_fields, unless_null
from tidegate.state.serializers.simple import refuse_type

_OUTER: Final = ("write_outer", "read_outer", "judge_outer")


class CompositeSnapshot(SerializerSnapshot):
    """The snapshot of a serializer that contains others."""

    def __init_subclass__(cls) -> None:
        own = [name for name in _OUTER if getattr(cls, name) is not getattr(CompositeSnapshot, name)]
        if own and len(own) < len(_OUTER):
            raise TypeError(f"{cls.__qualname__} defines {', '.join(own)}: {', '.join(_OUTER)} come as a set")

    def __init__(self) -> None:
        self._nested: tuple[SerializerSnapshot, ...] = ()

    @staticmethod
    @abstractmethod
    def parts_of(written: DataType) -> tuple[DataType, ...]:
        """Returns the nested types in the order of the nested snapshots. Raises SnapshotUnreadable if one is absent."""

    @abstractmethod
    def rebuild(self, nested: tuple[ValueSerializer, ...]) -> ValueSerializer:
        """Returns the serializer over these, with the outer information."""

    def convert(self, parts: Sequence[Convert | None]) -> Convert | None:
        """Returns the conversion of a value from those of its parts, at least one of which changes. Called by
        `judge`.
        """
        raise NotImplementedError

    def write_outer(self) -> DataType | None:
        """Returns a type that contains only the outer information."""
        return None

    def read_outer(self, version: int, written: DataType) -> None:
        """Takes the outer information, which was written in this version."""

    def judge_outer(self, new: ValueSerializer, place: FieldPath) -> Judged:  # noqa: ARG002  # unused by default
        """Judges the outer information, and may judge the parts by name at the same time."""
        return AS_IS

    def take_nested(self, nested: Sequence[SerializerSnapshot]) -> None:
        """Takes the snapshots of its parts."""
        self._nested = tuple(nested)

    @override
    def take(self, serializer: ValueSerializer) -> None:
        self.read_outer(self.version, serializer.type)

    @override
    def write(self) -> DataType:
        return self.restore().type

    @override
    def read(self, version: int, written: DataType) -> None:
        self.read_outer(version, written)

    @override
    def judge(self, new: ValueSerializer, place: FieldPath) -> Judged:
        """Judges the outer information and each part."""
        if new.type.kind != self.kind:
            return refuse_type(self.write(), new, place)
        outer = self.judge_outer(new, place)
        found = [old.judge(one, place) for old, one in zip(self._nested, new.nested, strict=True)]
        converts = [one.convert for one in found]
        differences = (*outer.differences, *(text for one in found for text in one.differences))
        return Judged(differences, self.convert(converts) if any(converts) else None)

    @override
    def restore(self) -> ValueSerializer:
        return self.rebuild(tuple(one.restore() for one in self._nested))


class ArraySnapshot(CompositeSnapshot):
    """The snapshot for arrays of one type, whose values may be NULL."""

    kind = "array"

    @staticmethod
    @override
    def parts_of(written: DataType) -> tuple[DataType, ...]:
        return (_there(written, written.element),)

    @override
    def rebuild(self, nested: tuple[ValueSerializer, ...]) -> ValueSerializer:
        (element,) = nested
        native = tuple[element.native | None, ...]  # type: ignore[name-defined]  # built at run time for msgspec
        return ValueSerializer(DataType("array", element=element.type), native, nested)

    @override
    def convert(self, parts: Sequence[Convert | None]) -> Convert | None:
        (element,) = parts
        assert element is not None
        change = unless_null(element)
        return lambda values: tuple(map(change, values))


class MapSnapshot(CompositeSnapshot):
    """The snapshot for maps, which are stored as arrays of entry structs."""

    kind = "map"

    @staticmethod
    @override
    def parts_of(written: DataType) -> tuple[DataType, ...]:
        return _there(written, written.key), _there(written, written.element)

    @override
    def rebuild(self, nested: tuple[ValueSerializer, ...]) -> ValueSerializer:
        key, value = nested
        kind = DataType("map", element=value.type, key=key.type)
        entry = struct_native([part for _, part in entry_of(kind).fields], nested)
        return ValueSerializer(kind, tuple[entry, ...], nested)  # type: ignore[valid-type]  # built at run time for msgspec

    @override
    def convert(self, parts: Sequence[Convert | None]) -> Convert | None:
        key, value = (_same if one is None else unless_null(one) for one in parts)
        return lambda entries: tuple((key(name), value(held)) for name, held in entries)


class StructSnapshot(CompositeSnapshot):
    """The snapshot for structs. The names of the fields are its outer information."""

    kind = "struct"

    def __init__(self) -> None:
        super().__init__()
        self._names: tuple[str, ...] = ()

    @staticmethod
    @override
    def parts_of(written: DataType) -> tuple[DataType, ...]:
        return tuple(kind for _, kind in written.fields)

    @override
    def rebuild(self, nested: tuple[ValueSerializer, ...]) -> ValueSerializer:
        fields = tuple((name, one.type) for name, one in zip(self._names, nested, strict=True))
        kind = DataType("struct", fields=fields)
        return ValueSerializer(kind, struct_native([one.type for one in nested], nested), nested)

    @override
    def write_outer(self) -> DataType:
        return DataType("struct", fields=tuple((name, DataType("void")) for name in self._names))

    @override
    def read_outer(self, version: int, written: DataType) -> None:  # there is only one version
        self._names = tuple(name for name, _ in written.fields)

    @override
    def judge_outer(self, new: ValueSerializer, place: FieldPath) -> Judged:
        """Judges the parts by name: the names decide which field continues as which."""
        old = [
            WrittenField(StateField(name, one.write()), one)
            for name, one in zip(self._names, self._nested, strict=True)
        ]
        names = (name for name, _ in new.type.fields)
        fields = [(StateField(name, one.type), one) for name, one in zip(names, new.nested, strict=True)]
        return judge_fields(old, fields, place)

    @override
    def judge(self, new: ValueSerializer, place: FieldPath) -> Judged:
        """Judges fields by name, not by position."""
        return self.judge_outer(new, place) if new.type.kind == self.kind else refuse_type(self.write(), new, place)


def struct_native(kinds: Sequence[DataType], nested: Sequence[ValueSerializer]) -> Any:
    """Returns the type to which msgspec decodes a struct of nullable fields."""
    assert len(kinds) == len(nested)
    return tuple[tuple(one.native | None for one in nested)]  # type: ignore[misc]  # built at run time for msgspec


def _same(value: Any) -> Any:
    return value


def _there(written: DataType, part: DataType | None) -> DataType:
    if part is None:
        raise SnapshotUnreadable(f"a `{written.kind}` does not say what is in it")
    return part
