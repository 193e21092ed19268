"""Values in one total order, in which values are equal only if they are identical to the last bit.

Doubles and floats have two zeros, and NaN differs from itself, so comparing them directly would make a result depend on
the order of rows. In this order, -0.0 is before 0.0, a single NaN is after every number, and NULL is before everything.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from tidegate.datatypes import BIGINT, INT, STRING, DataType
from tidegate.expressions.expression import AggregateCall
from tidegate.ids import StateName
from tidegate.operators.aggregates.contract import Aggregate, AggregateUse, Numbers, Value
from tidegate.state.base import KeyedState
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.order import Row

if TYPE_CHECKING:
    import polars as pl

FLOATING: Final = frozenset({"float", "double"})
_DOUBLE, _BITS = struct.Struct("<d"), struct.Struct("<q")
_FLOAT, _BITS_OF_FLOAT = struct.Struct("<f"), struct.Struct("<i")
_MOST: Final = {"float": 2**31 - 1, "double": 2**63 - 1}
_KEYS: Final = {"float": INT, "double": BIGINT, "date": INT, "timestamp": BIGINT, "timestamp_ntz": BIGINT}


def key_type(kind: DataType) -> DataType:
    """Returns the type of the keys by which values are ordered and compared."""
    return _KEYS.get(kind.kind, kind)


def order_key(values: pl.Series, kind: DataType) -> pl.Series:
    """Returns a column that compares as the values do: integers for floats and doubles, otherwise physical values."""
    if kind.kind not in FLOATING:
        return values.to_physical() if values.dtype.is_temporal() else values
    from tidegate.formats.columns import polars_type

    nan = values.is_nan()
    one_nan = values.set(nan, math.nan) if nan.any() else values
    return _turned(one_nan.cast(polars_type(kind)).reinterpret(dtype=polars_type(key_type(kind))), _MOST[kind.kind])


def equal_key(values: pl.Series, kind: DataType) -> pl.Series:
    """Returns the keys of `order_key` with -0.0 as 0.0, for functions that treat equal values as one."""
    keys = order_key(values, kind)
    if kind.kind not in FLOATING:
        return keys
    import polars as pl

    negative_zero = keys.eq_missing(-1)
    return keys.zip_with(~negative_zero, pl.Series([0], dtype=keys.dtype)) if negative_zero.any() else keys


def from_order_key(keys: pl.Series, kind: DataType) -> pl.Series:
    """Returns the values of order keys, in a column of their type."""
    from tidegate.formats.columns import polars_type

    if kind.kind not in FLOATING:
        return keys.cast(polars_type(kind)) if keys.dtype != polars_type(kind) else keys
    return _turned(keys, _MOST[kind.kind]).reinterpret(dtype=polars_type(kind))


def _turned(bits: pl.Series, most: int) -> pl.Series:
    """Reverses the order of negative numbers: the greater their magnitude, the smaller. It is its own inverse."""
    negative = bits < 0
    return (bits ^ most).zip_with(negative, bits) if negative.any() else bits


def plain_key(value: Any) -> Any:
    """Returns the key of `order_key` for a plain non-NULL value. Floats and doubles share the order of doubles."""
    if not isinstance(value, float):
        return value
    bits: int = _BITS.unpack(_DOUBLE.pack(math.nan if math.isnan(value) else value))[0]
    return bits ^ _MOST["double"] if bits < 0 else bits


def kept_key(value: Any, kind: DataType) -> Any:
    """Returns the key of `order_key` for a plain, non-NULL value of a column of type `kind`."""
    if kind.kind != "float":
        return plain_key(value)
    bits: int = _BITS_OF_FLOAT.unpack(_FLOAT.pack(math.nan if math.isnan(value) else value))[0]
    return bits ^ _MOST["float"] if bits < 0 else bits


def plain_from_key(key: Any, kind: DataType) -> Any:
    """Returns the value of a plain key of a column of type `kind`; the inverse of `kept_key`."""
    if kind.kind not in FLOATING or key is None:
        return key
    most = _MOST[kind.kind]
    bits = key ^ most if key < 0 else key
    pack, unpack = (_BITS, _DOUBLE) if kind.kind == "double" else (_BITS_OF_FLOAT, _FLOAT)
    return unpack.unpack(pack.pack(bits))[0]


def rank(value: Any) -> tuple[Any, ...]:
    """Returns a sort key for plain values and NULL, which comes first."""
    return () if value is None else (plain_key(value),)


AGGREGATE: Final = StateField("aggregate", STRING, nullable=False)
"""The name of the aggregate for which a value is kept."""


class CountedValues(Aggregate):
    """The base of aggregates of changes that need all values of a group. `begin` returns pairs of the key's number and
    the value.

    Each distinct value is an entry of a state, with its number of occurrences. So a row costs one lookup, whatever the
    size of the group. Aggregates with arguments of one type share a state.
    """

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse) -> None:
        super().__init__(name, call, use)
        assert call.argument is not None
        self.floating = call.argument.type.kind in FLOATING
        self.kept: DataType = BIGINT if self.floating else call.argument.type
        """The type in which values are kept: floating-point values as ordered keys."""
        self.encoding = f"{self.kept} {'of doubles' if self.floating else 'values'}"
        self.counts: dict[tuple[int, Any], int] = {}
        """How often each value of the batch occurs, by the pairs from `begin`."""
        self.values: KeyedState[Any]

    @override
    def declare_values(self, groups: StateShape) -> StateDeclaration:
        kind = self.kept
        digits = f"_{kind.precision}_{kind.scale}" if kind.kind == "decimal" else ""
        shape = StateShape(
            keys=(*groups.keys, AGGREGATE, StateField("value", kind, nullable=False)),
            values=(StateField("count", BIGINT, nullable=False),),
            key_hash=groups.key_hash,
            max_parallelism=groups.max_parallelism,
            suffix=2,
        )
        return StateDeclaration(StateName(f"values_{kind.kind}{digits}"), shape, names_columns=AGGREGATE.name)

    @override
    def open_values(self, values: KeyedState[Any]) -> None:
        self.values = values

    @override
    def begin(self, values: Sequence[Any], numbers: Numbers, keys: Sequence[Row]) -> Sequence[Any]:
        kept = [None if value is None else self.key_of(value) for value in values] if self.floating else values
        found = [None if value is None else (number, value) for value, number in zip(kept, numbers, strict=True)]
        asked = [one for one in dict.fromkeys(found) if one is not None]
        stored = self.values.get_many([(*keys[number], self.name, value) for number, value in asked])
        self.counts = {one: 0 if value is None else value[0] for one, value in zip(asked, stored, strict=True)}
        return found

    def key_of(self, value: float) -> Any:
        """Returns the form in which a floating-point value is kept."""
        return plain_key(value)

    @override
    def finish(self, accumulators: Sequence[Value], keys: Sequence[Row]) -> Sequence[Value]:
        entries = {(*keys[number], self.name, value): count for (number, value), count in self.counts.items()}
        left = {entry: (count,) for entry, count in entries.items() if count}
        self.values.put_many(list(left), left.values())
        self.values.delete_many([entry for entry, count in entries.items() if not count])
        self.counts = {}
        return accumulators
