"""Serializers that nothing configures: the same name fits as it is, any other not at all (S12), except a date, which is
the midnight of a timestamp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from typing_extensions import override

from tidegate.datatypes import BINARY, BOOLEAN, DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType
from tidegate.state.compatibility import AS_IS, Fit, Judged, refused
from tidegate.state.serializers.contract import FieldPath, SerializerSnapshot, SnapshotUnreadable, ValueSerializer

DAY_US: Final = 86_400_000_000


class SimpleSnapshot(SerializerSnapshot):
    """The serializer is what the supplier gives: so it is rebuilt, and so another one is told apart (S13)."""

    supplier: ClassVar[Callable[[], ValueSerializer]]

    @override
    def take(self, serializer: ValueSerializer) -> None:
        """There is nothing to be taken."""

    @override
    def write(self) -> DataType:
        return self.restore().type

    @override
    def read(self, version: int, written: DataType) -> None:  # there is one
        if written != self.restore().type:
            raise SnapshotUnreadable(f"`{written}` says more than its name")

    @override
    def judge(self, new: ValueSerializer, place: FieldPath) -> Judged:
        return AS_IS if new == self.restore() else refuse_type(self.write(), new, place)

    @override
    def restore(self) -> ValueSerializer:
        return type(self).supplier()


def refuse_type(written: DataType, new: ValueSerializer, place: FieldPath) -> Judged:
    """The verdict for types of which one never becomes the other."""
    return refused(f"{place.path} was {written} and is {new.type}")


class BooleanSnapshot(SimpleSnapshot):
    """true and false."""

    kind = "boolean"
    supplier = staticmethod(lambda: ValueSerializer(BOOLEAN, bool))


class StringSnapshot(SimpleSnapshot):
    """Texts."""

    kind = "string"
    supplier = staticmethod(lambda: ValueSerializer(STRING, str))


class BinarySnapshot(SimpleSnapshot):
    """Bytes."""

    kind = "binary"
    supplier = staticmethod(lambda: ValueSerializer(BINARY, bytes))


class TimestampSnapshot(SimpleSnapshot):
    """Microseconds since 1970, UTC."""

    kind = "timestamp"
    supplier = staticmethod(lambda: ValueSerializer(TIMESTAMP, int))


class TimestampNtzSnapshot(SimpleSnapshot):
    """Microseconds since 1970 of a clock on some wall."""

    kind = "timestamp_ntz"
    supplier = staticmethod(lambda: ValueSerializer(TIMESTAMP_NTZ, int))


class DateSnapshot(SimpleSnapshot):
    """Days since 1970."""

    kind = "date"
    supplier = staticmethod(lambda: ValueSerializer(DATE, int))

    @override
    def judge(self, new: ValueSerializer, place: FieldPath) -> Judged:
        """A date is the midnight with which it begins, in UTC for a timestamp."""
        if new.type in (TIMESTAMP, TIMESTAMP_NTZ):
            return Judged(((Fit.AFTER_MIGRATION, f"{place.path} was date and is {new.type}"),), _midnight)
        return super().judge(new, place)


def _midnight(days: int) -> int:
    return days * DAY_US
