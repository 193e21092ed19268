"""Serializers without configuration: only the same type fits, as it is (S12). The exception is a date, which can become
the timestamp of its midnight.
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
