"""Serializers with others within them: arrays, maps, structs.

A composite snapshot keeps those of its parts, in a fixed order; each is judged by itself, and the worst verdict wins
(S14). It defines its version, its parts, and how the serializer is rebuilt from theirs (S15). What it keeps besides,
its *outer* information, is written, read and judged by three methods that come as a set; by default there is none
(S16). The outer version says how the outer information is written, whatever the parts' versions are (S17).
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
    """See the module."""

    def __init_subclass__(cls) -> None:
        own = [name for name in _OUTER if getattr(cls, name) is not getattr(CompositeSnapshot, name)]
        if own and len(own) < len(_OUTER):
            raise TypeError(f"{cls.__qualname__} defines {', '.join(own)}: {', '.join(_OUTER)} come as a set")

    def __init__(self) -> None:
        self._nested: tuple[SerializerSnapshot, ...] = ()

    @staticmethod
    @abstractmethod
    def parts_of(written: DataType) -> tuple[DataType, ...]:
        """The types within one, in the order of the nested snapshots. Raises SnapshotUnreadable when one is missing."""

    @abstractmethod
    def rebuild(self, nested: tuple[ValueSerializer, ...]) -> ValueSerializer:
        """The serializer over these, with the outer information."""

    def convert(self, parts: Sequence[Convert | None]) -> Convert | None:
        """Of a value, by what happens to its parts; at least one of them changes. For those that `judge` asks."""
        raise NotImplementedError

    def write_outer(self) -> DataType | None:
        """A type with the outer information alone."""
        return None

    def read_outer(self, version: int, written: DataType) -> None:
        """Take the outer information, written in this version."""

    def judge_outer(self, new: ValueSerializer, place: FieldPath) -> Judged:  # noqa: ARG002  # there is none
        """How the outer information fits; may judge the parts with it, by names."""
        return AS_IS

    def take_nested(self, nested: Sequence[SerializerSnapshot]) -> None:
        """The snapshots of its parts."""
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
        """Part by part."""
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
    """Values of one type, NULL among them."""

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
    """Keys and values: an array of the structs that its entries are."""

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
    """Fields by name; the names are its outer information."""

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
    def read_outer(self, version: int, written: DataType) -> None:  # there is one
        self._names = tuple(name for name, _ in written.fields)

    @override
    def judge_outer(self, new: ValueSerializer, place: FieldPath) -> Judged:
        """Which field goes on as which decides what its parts are judged by."""
        old = [
            WrittenField(StateField(name, one.write()), one)
            for name, one in zip(self._names, self._nested, strict=True)
        ]
        names = (name for name, _ in new.type.fields)
        fields = [(StateField(name, one.type), one) for name, one in zip(names, new.nested, strict=True)]
        return judge_fields(old, fields, place)

    @override
    def judge(self, new: ValueSerializer, place: FieldPath) -> Judged:
        """Fields by their names, not by their places."""
        return self.judge_outer(new, place) if new.type.kind == self.kind else refuse_type(self.write(), new, place)


def struct_native(kinds: Sequence[DataType], nested: Sequence[ValueSerializer]) -> Any:
    """What msgspec decodes a struct of nullable fields to."""
    assert len(kinds) == len(nested)
    return tuple[tuple(one.native | None for one in nested)]  # type: ignore[misc]  # built at run time for msgspec


def _same(value: Any) -> Any:
    return value


def _there(written: DataType, part: DataType | None) -> DataType:
    if part is None:
        raise SnapshotUnreadable(f"a `{written.kind}` does not say what is in it")
    return part
