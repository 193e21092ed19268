"""Any column type and values of it, as a state has them (`formats.columns.plain_values`)."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from tidegate.datatypes import (
    FIRST_DAY,
    FIRST_MOMENT,
    LAST_DAY,
    LAST_MOMENT,
    MAX_PRECISION,
    DataType,
    decimal_of,
    decimal_of_units,
    map_of,
)

DECIMALS: Final = st.integers(1, MAX_PRECISION).flatmap(lambda p: st.builds(decimal_of, st.just(p), st.integers(0, p)))
KEYS: Final = DECIMALS | st.sampled_from(
    ("boolean", "tinyint", "smallint", "int", "bigint", "string", "binary", "date", "timestamp", "timestamp_ntz")
).map(DataType)
"""Types whose values are exact."""
PLAIN: Final = KEYS | st.sampled_from(("float", "double")).map(DataType)
TYPES: Final = st.recursive(
    PLAIN,
    lambda below: (
        below.map(lambda one: DataType("array", element=one))
        | st.dictionaries(st.sampled_from(("a", "b c", "}:")), below, min_size=1, max_size=3).map(
            lambda fields: DataType("struct", fields=tuple(fields.items()))
        )
        | st.builds(map_of, KEYS, below)
    ),
    max_leaves=5,
)
_BITS: Final = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_OTHERS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "boolean": st.booleans(),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    "binary": st.binary(max_size=8),
    "date": st.integers(FIRST_DAY, LAST_DAY),
    "timestamp": st.integers(FIRST_MOMENT, LAST_MOMENT),
    "timestamp_ntz": st.integers(FIRST_MOMENT, LAST_MOMENT),
}


def values_of(kind: DataType) -> st.SearchStrategy[Any]:
    """Plain values, with NULL among them."""
    return st.none() | known_values_of(kind)


def known_values_of(kind: DataType) -> st.SearchStrategy[Any]:
    """Plain values without NULL, which may be within them."""
    if kind.kind == "map":
        assert kind.key is not None
        assert kind.element is not None
        entries = st.dictionaries(known_values_of(kind.key), values_of(kind.element), max_size=3)
        return entries.map(lambda found: tuple(found.items()))
    if kind.element is not None:
        return st.lists(values_of(kind.element), max_size=3).map(tuple)
    if kind.kind == "struct":
        return st.tuples(*(values_of(part) for _, part in kind.fields))
    if kind.kind == "decimal":
        most = 10**kind.precision - 1
        return st.integers(-most, most).map(lambda units: decimal_of_units(units, kind.scale))
    if kind.kind in _BITS:
        most = 1 << _BITS[kind.kind]
        return st.integers(-most, most - 1)
    return _OTHERS[kind.kind]
