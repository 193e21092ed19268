"""Serializers that nothing configures: the same name fits as it is, any other not at all (S12), except a date, which is
the midnight of a timestamp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from tidegate.datatypes import BINARY, BOOLEAN, DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType
from tidegate.state.compatibility import AS_IS, Fit, Judged, refused
from tidegate.state.serializers.contract import FieldPath, SerializerSnapshot, SnapshotUnreadable, ValueSerializer

DAY_US: Final = 86_400_000_000


class SimpleSnapshot(SerializerSnapshot):
    """The serializer is what the supplier gives: so it is rebuilt, and so another one is told apart (S13)."""

    supplier: ClassVar[Callable[[], ValueSerializer]]

    def take(self, serializer: ValueSerializer) -> None:
        """See Snapshot. There is nothing to be taken."""

    def write(self) -> DataType:
        """See Snapshot."""
        return self.restore().type

    def read(self, version: int, written: DataType) -> None:  # noqa: ARG002  # there is one
        """See Snapshot."""
        if written != self.restore().type:
            raise SnapshotUnreadable(f"`{written}` says more than its name")

    def judge(self, new: ValueSerializer, place: FieldPath) -> Judged:
        """See Snapshot."""
        return AS_IS if new == self.restore() else refuse_type(self.write(), new, place)

    def restore(self) -> ValueSerializer:
        """See Snapshot."""
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

    def judge(self, new: ValueSerializer, place: FieldPath) -> Judged:
        """See Snapshot. A date is the midnight with which it begins, in UTC for a timestamp."""
        if new.type in (TIMESTAMP, TIMESTAMP_NTZ):
            return Judged(((Fit.AFTER_MIGRATION, f"{place.path} was date and is {new.type}"),), _midnight)
        return super().judge(new, place)


def _midnight(days: int) -> int:
    return days * DAY_US
