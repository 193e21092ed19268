"""Values in one total order, equal only when they are the same to the last bit.

Doubles and floats have two zeros, and NaN differs from itself: comparing them would make a result depend on which row
came first. Their order here is -0.0 before 0.0, and one NaN after every number; NULL comes before everything.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, Final

from tidegate.datatypes import BIGINT, INT, DataType

if TYPE_CHECKING:
    import polars as pl

FLOATING: Final = frozenset({"float", "double"})
_DOUBLE, _BITS = struct.Struct("<d"), struct.Struct("<q")
_FLOAT, _BITS_OF_FLOAT = struct.Struct("<f"), struct.Struct("<i")
_MOST: Final = {"float": 2**31 - 1, "double": 2**63 - 1}
_KEYS: Final = {"float": INT, "double": BIGINT, "date": INT, "timestamp": BIGINT, "timestamp_ntz": BIGINT}


def key_type(kind: DataType) -> DataType:
    """The type of the keys by which values are ordered and compared."""
    return _KEYS.get(kind.kind, kind)


def order_key(values: pl.Series, kind: DataType) -> pl.Series:
    """A column that compares as the values do: integers for floats and doubles, else the physical values."""
    if kind.kind not in FLOATING:
        return values.to_physical() if values.dtype.is_temporal() else values
    from tidegate.formats.columns import polars_type

    nan = values.is_nan()
    one_nan = values.set(nan, math.nan) if nan.any() else values
    return _turned(one_nan.cast(polars_type(kind)).reinterpret(dtype=polars_type(key_type(kind))), _MOST[kind.kind])


def equal_key(values: pl.Series, kind: DataType) -> pl.Series:
    """As `order_key`, but -0.0 is 0.0: they are one value where equal values are one."""
    keys = order_key(values, kind)
    if kind.kind not in FLOATING:
        return keys
    import polars as pl

    negative_zero = keys.eq_missing(-1)
    return keys.zip_with(~negative_zero, pl.Series([0], dtype=keys.dtype)) if negative_zero.any() else keys


def from_order_key(keys: pl.Series, kind: DataType) -> pl.Series:
    """The values again, in a column of their type."""
    from tidegate.formats.columns import polars_type

    if kind.kind not in FLOATING:
        return keys.cast(polars_type(kind)) if keys.dtype != polars_type(kind) else keys
    return _turned(keys, _MOST[kind.kind]).reinterpret(dtype=polars_type(kind))


def _turned(bits: pl.Series, most: int) -> pl.Series:
    """Negative numbers the other way round: the greater their magnitude, the smaller. It undoes itself."""
    negative = bits < 0
    return (bits ^ most).zip_with(negative, bits) if negative.any() else bits


def plain_key(value: Any) -> Any:
    """As `order_key`, of a plain value that is not NULL; floats and doubles have the same order as doubles."""
    if not isinstance(value, float):
        return value
    bits: int = _BITS.unpack(_DOUBLE.pack(math.nan if math.isnan(value) else value))[0]
    return bits ^ _MOST["double"] if bits < 0 else bits


def kept_key(value: Any, kind: DataType) -> Any:
    """As `order_key`, of a plain value of a column of type `kind` that is not NULL."""
    if kind.kind != "float":
        return plain_key(value)
    bits: int = _BITS_OF_FLOAT.unpack(_FLOAT.pack(math.nan if math.isnan(value) else value))[0]
    return bits ^ _MOST["float"] if bits < 0 else bits


def plain_from_key(key: Any, kind: DataType) -> Any:
    """As `from_order_key`, of a plain key of a column of type `kind`."""
    if kind.kind not in FLOATING or key is None:
        return key
    most = _MOST[kind.kind]
    bits = key ^ most if key < 0 else key
    pack, unpack = (_BITS, _DOUBLE) if kind.kind == "double" else (_BITS_OF_FLOAT, _FLOAT)
    return unpack.unpack(pack.pack(bits))[0]


def rank(value: Any) -> tuple[Any, ...]:
    """Sorts plain values and NULL, which comes first."""
    return () if value is None else (plain_key(value),)
