"""Serializers of single values.

Of values without configuration only the same type fits, as it is (S12). The exception is a date, which can become the
timestamp of its midnight. A number fits another type that holds all its values exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, ClassVar, Final

from typing_extensions import override

from tidegate.datatypes import (
    BINARY,
    BOOLEAN,
    DATE,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    decimal_of_units,
    units_of,
)
from tidegate.state.compatibility import AS_IS, CannotConvert, Convert, Fit, Judged, refused
from tidegate.state.serializers.contract import FieldPath, SerializerSnapshot, SnapshotUnreadable, ValueSerializer

DAY_US: Final = 86_400_000_000


class SimpleSnapshot(SerializerSnapshot):
    """The snapshot of a fixed serializer, which the supplier returns for rebuilding and comparison (S13)."""

    supplier: ClassVar[Callable[[], ValueSerializer]]

    @override
    def take(self, serializer: ValueSerializer) -> None:
        """Does nothing: there is no configuration."""

    @override
    def write(self) -> DataType:
        return self.restore().type

    @override
    def read(self, version: int, written: DataType) -> None:  # there is only one version
        if written != self.restore().type:
            raise SnapshotUnreadable(f"`{written}` says more than its name")

    @override
    def judge(self, new: ValueSerializer, place: FieldPath) -> Judged:
        return AS_IS if new == self.restore() else refuse_type(self.write(), new, place)

    @override
    def restore(self) -> ValueSerializer:
        return type(self).supplier()


def refuse_type(written: DataType, new: ValueSerializer, place: FieldPath) -> Judged:
    """Returns the verdict for types that never convert to each other."""
    return refused(f"{place.path} was {written} and is {new.type}")


class BooleanSnapshot(SimpleSnapshot):
    """The snapshot for booleans."""

    kind = "boolean"
    supplier = staticmethod(lambda: ValueSerializer(BOOLEAN, bool))


class StringSnapshot(SimpleSnapshot):
    """The snapshot for strings."""

    kind = "string"
    supplier = staticmethod(lambda: ValueSerializer(STRING, str))


class BinarySnapshot(SimpleSnapshot):
    """The snapshot for byte strings."""

    kind = "binary"
    supplier = staticmethod(lambda: ValueSerializer(BINARY, bytes))


class TimestampSnapshot(SimpleSnapshot):
    """The snapshot for timestamps, in microseconds since 1970, UTC."""

    kind = "timestamp"
    supplier = staticmethod(lambda: ValueSerializer(TIMESTAMP, int))


class TimestampNtzSnapshot(SimpleSnapshot):
    """The snapshot for timestamps without a time zone, in microseconds since 1970 in local time."""

    kind = "timestamp_ntz"
    supplier = staticmethod(lambda: ValueSerializer(TIMESTAMP_NTZ, int))


class DateSnapshot(SimpleSnapshot):
    """The snapshot for dates, in days since 1970."""

    kind = "date"
    supplier = staticmethod(lambda: ValueSerializer(DATE, int))

    @override
    def judge(self, new: ValueSerializer, place: FieldPath) -> Judged:
        """Judges the other type. A date becomes the timestamp of its midnight, which is UTC for `timestamp`."""
        if new.type in (TIMESTAMP, TIMESTAMP_NTZ):
            return Judged(((Fit.AFTER_MIGRATION, f"{place.path} was date and is {new.type}"),), _midnight)
        return super().judge(new, place)


def _midnight(days: int) -> int:
    return days * DAY_US


_DIGITS: Final[Mapping[str, int]] = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""The integer digits that a decimal needs to hold every value of a kind; narrower kinds first."""
_EXACT: Final[Mapping[str, frozenset[str]]] = {
    "float": frozenset({"tinyint", "smallint"}),
    "double": frozenset({"tinyint", "smallint", "int"}),
}
"""Kinds whose values a floating-point kind holds exactly."""


class NumberSnapshot(SerializerSnapshot):
    """The snapshot for numbers of one kind."""

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
    def read(self, version: int, written: DataType) -> None:  # there is only one version
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
    """Returns how numbers of one type become numbers of another."""
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
    """The snapshot for 8-bit integers."""

    kind = "tinyint"
    native = int


class SmallintSnapshot(NumberSnapshot):
    """The snapshot for 16-bit integers."""

    kind = "smallint"
    native = int


class IntSnapshot(NumberSnapshot):
    """The snapshot for 32-bit integers."""

    kind = "int"
    native = int


class BigintSnapshot(NumberSnapshot):
    """The snapshot for 64-bit integers."""

    kind = "bigint"
    native = int


class FloatSnapshot(NumberSnapshot):
    """The snapshot for floats, which are stored as doubles."""

    kind = "float"
    native = float


class DoubleSnapshot(NumberSnapshot):
    """The snapshot for 64-bit floating-point numbers."""

    kind = "double"
    native = float


class DecimalSnapshot(NumberSnapshot):
    """The snapshot for decimals, which are configured by precision and scale."""

    kind = "decimal"
    native: ClassVar[type[Any]] = Decimal
