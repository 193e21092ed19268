"""Numbers: each fits what holds all its values exactly.

Integers and doubles are in msgpack as they are, whatever their width: a wider one of their kind reads the same bytes.
A bigint becomes a double where that is exact, which is found value by value. A decimal is its text in a file, with all
digits of its scale: numbers of msgpack have 64 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar, Final

from typing_extensions import override

from tidegate.datatypes import DataType, decimal_of_units, units_of
from tidegate.state.compatibility import AS_IS, CannotConvert, Convert, Fit, Judged
from tidegate.state.serializers.contract import FieldPath, SerializerSnapshot, SnapshotUnreadable, ValueSerializer
from tidegate.state.serializers.simple import refuse_type

_DIGITS: Final[Mapping[str, int]] = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""Whole digits that a decimal needs for every value of a kind; narrower kinds first."""
_EXACT: Final[Mapping[str, frozenset[str]]] = {
    "float": frozenset({"tinyint", "smallint"}),
    "double": frozenset({"tinyint", "smallint", "int"}),
}
"""Kinds whose values a floating one holds all."""


class NumberSnapshot(SerializerSnapshot):
    """Of numbers of one kind."""

    native: ClassVar[type]

    def __init__(self) -> None:
        self._type = DataType(self.kind)

    @override
    def take(self, serializer: ValueSerializer) -> None:
        self._type = serializer.type

    @override
    def write(self) -> DataType:
        return self._type

    @override
    def read(self, version: int, written: DataType) -> None:  # there is one
        if written != DataType(written.kind, precision=written.precision, scale=written.scale):
            raise SnapshotUnreadable(f"`{written}` has types within it")
        self._type = written

    @override
    def judge(self, new: ValueSerializer, place: FieldPath) -> Judged:
        if new.type == self._type:
            return AS_IS
        fit, convert = widen(self._type, new.type)
        if fit is Fit.INCOMPATIBLE:
            return refuse_type(self._type, new, place)
        return Judged(((fit, f"{place.path} was {self._type} and is {new.type}"),), convert)

    @override
    def restore(self) -> ValueSerializer:
        return ValueSerializer(self._type, self.native)


def widen(old: DataType, new: DataType) -> tuple[Fit, Convert | None]:
    """How numbers of a type become numbers of another one."""
    if old.kind in _DIGITS:
        return _widen_integer(old, new)
    if old.kind == "float" and new.kind == "double":
        return Fit.AFTER_RECONFIGURATION, None
    if old.kind == new.kind == "decimal" and new.scale >= old.scale and _whole(new) >= _whole(old):
        if new.scale == old.scale:
            return Fit.AFTER_RECONFIGURATION, None
        more = 10 ** (new.scale - old.scale)
        return Fit.AFTER_MIGRATION, lambda value: decimal_of_units(units_of(value, old.scale) * more, new.scale)
    return Fit.INCOMPATIBLE, None


def _widen_integer(old: DataType, new: DataType) -> tuple[Fit, Convert | None]:
    kinds = list(_DIGITS)
    if new.kind in _DIGITS and kinds.index(new.kind) > kinds.index(old.kind):
        return Fit.AFTER_RECONFIGURATION, None
    if new.kind == "decimal" and _whole(new) >= _DIGITS[old.kind]:
        more = 10**new.scale
        return Fit.AFTER_MIGRATION, lambda value: decimal_of_units(value * more, new.scale)
    if old.kind in _EXACT.get(new.kind, ()):
        return Fit.AFTER_MIGRATION, float
    return (Fit.AFTER_MIGRATION, _exact_double) if new.kind == "double" else (Fit.INCOMPATIBLE, None)


def _whole(kind: DataType) -> int:
    return kind.precision - kind.scale


def _exact_double(value: int) -> float:
    found = float(value)
    if int(found) != value:
        raise CannotConvert(f"{value} is no double: the nearest one is {int(found)}")
    return found


class TinyintSnapshot(NumberSnapshot):
    """8 bits."""

    kind = "tinyint"
    native = int


class SmallintSnapshot(NumberSnapshot):
    """16 bits."""

    kind = "smallint"
    native = int


class IntSnapshot(NumberSnapshot):
    """32 bits."""

    kind = "int"
    native = int


class BigintSnapshot(NumberSnapshot):
    """64 bits."""

    kind = "bigint"
    native = int


class FloatSnapshot(NumberSnapshot):
    """A float, kept as the double that it is."""

    kind = "float"
    native = float


class DoubleSnapshot(NumberSnapshot):
    """64 bits."""

    kind = "double"
    native = float


class DecimalSnapshot(NumberSnapshot):
    """Precision and scale configure it."""

    kind = "decimal"
    native: ClassVar[type[Any]] = Decimal
