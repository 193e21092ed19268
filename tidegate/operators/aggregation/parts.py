"""What an accumulator of each function is made of: the columns of partial results and the fields of the state.

Nothing here imports Polars: the plan declares states by it.
"""

from __future__ import annotations

from typing import Any, Final

from tidegate.datatypes import BIGINT, BINARY, INT, DataType
from tidegate.expressions.expression import AggregateCall

Part = tuple[str, DataType, bool]
"""Suffix of its name, type, and whether it can be NULL."""

INTEGER_SUM: Final[tuple[Part, ...]] = (("low", BIGINT, True), ("carry", BIGINT, True))
EXACT_SUM: Final[tuple[Part, ...]] = (
    ("units", BIGINT, True),
    ("fraction", BIGINT, True),
    ("fine", BIGINT, True),
    ("rest", BINARY, True),
)
SQUARES: Final[tuple[Part, ...]] = tuple((f"squares_{suffix}", kind, null) for suffix, kind, null in EXACT_SUM)
DECIMAL_SUM: Final[tuple[Part, ...]] = (*INTEGER_SUM, ("high", BIGINT, True))
COUNT: Final[Part] = ("count", BIGINT, False)
TIME: Final = "__tidegate_time"
"""The column of event times, ms since 1970."""

VALUES_MAX: Final = 100_000
BYTES_MAX: Final = 4 << 20
"""Of the values that a group may keep."""
KEEPING: Final = frozenset({"count_distinct", "collect_set", "collect_list"})
"""Functions whose accumulators keep the values themselves."""

_LISTS: Final = frozenset({"times", "values", "bins", "counts"})
BIGINTS: Final = DataType("array", element=BIGINT)
_SUMS: Final = {"double": EXACT_SUM, "decimal": DECIMAL_SUM}
_KEYS: Final = {"float": INT, "double": BIGINT, "date": INT, "timestamp": BIGINT, "timestamp_ntz": BIGINT}


def key_type(kind: DataType) -> DataType:
    """The type of the keys by which values are ordered and compared (`values.py`)."""
    return _KEYS.get(kind.kind, kind)


def derive_parts(call: AggregateCall) -> tuple[Part, ...]:
    """The parts of an accumulator of `call`, in order."""
    match call.function:
        case "count":
            return (COUNT,)
        case "sum":
            return _SUMS.get(call.type.kind, INTEGER_SUM)
        case "avg":
            return (*_SUMS[call.type.kind], COUNT)
        case "min" | "max" | "bool_and" | "bool_or":
            return ((call.function, call.type, True),)
        case "first" | "last":
            return (("by", BIGINT, True), ("value", call.type, True))
        case "min_by" | "max_by":
            return (("by", call.others[0].type, True), ("value", call.type, True))
        case "stddev_samp" | "stddev_pop" | "var_samp" | "var_pop":
            return (*EXACT_SUM, *SQUARES, COUNT)
        case "count_distinct" | "collect_set":
            return (("values", _array_of_keys(call), True),)
        case "collect_list":
            return (("times", BIGINTS, True), ("values", _array_of_keys(call), True))
        case "approx_count_distinct":
            return (("sketch", BINARY, True),)
        case "percentile_approx":
            return (("level", INT, False), ("bins", BIGINTS, False), ("counts", BIGINTS, False))
    raise ValueError(f"unknown aggregate function {call.function!r}")


def derive_beginning(part: Part) -> Any:
    """What a part has where no row has been counted: merged with an accumulator it leaves that as it is."""
    suffix, kind, nullable = part
    if kind.kind == "array" and suffix in _LISTS:
        return ()  # NULL says that there were too many
    return None if nullable else 0


def derive_encoding(call: AggregateCall) -> str:
    """How the values are kept, where the types of the parts do not say it; empty where they do.

    It is in the headers of state files: a sum in units of 0.01 is none in units of 0.0001.
    """
    if call.function in ("sum", "avg") and call.type.kind == "decimal":
        assert call.argument is not None
        return f"units of scale {call.argument.type.scale}"
    if call.function in KEEPING:
        return _kind_of_keys(call)
    if call.function == "approx_count_distinct":
        assert call.argument is not None
        kind = call.argument.type
        return (
            f"hashes of decimals of scale {kind.scale}"
            if kind.kind == "decimal"
            else f"hashes of {_kind_of_keys(call)}"
        )
    return ""


def _kind_of_keys(call: AggregateCall) -> str:
    assert call.argument is not None
    kind = call.argument.type.kind
    return "integers" if kind in ("tinyint", "smallint", "int", "bigint") else f"{kind} values"


def _array_of_keys(call: AggregateCall) -> DataType:
    assert call.argument is not None
    return DataType("array", element=key_type(call.argument.type))
