"""What totals of changes keep of min, max and count(distinct), for the plan: parts of a group's entry, and a state for
the values.
"""

from __future__ import annotations

from typing import Final

from tidegate.datatypes import BIGINT, STRING, DataType
from tidegate.expressions.expression import AggregateCall
from tidegate.ids import StateName
from tidegate.operators.aggregation.parts import COUNT, Part
from tidegate.state.declaration import StateDeclaration, StateField, StateShape

DOUBLES: Final = frozenset({"float", "double"})
DISTINCT: Final = "count_distinct"


def value_type(kind: DataType) -> DataType:
    """The type that values are kept as: keys that have an order (`aggregation/values.py`)."""
    return BIGINT if kind.kind in DOUBLES else kind


def kept_parts(call: AggregateCall) -> tuple[Part, ...]:
    """What is kept of it in its group's own entry."""
    assert call.argument is not None
    if call.function == DISTINCT:
        return ("distinct", BIGINT, False), COUNT
    return ("extreme", value_type(call.argument.type), True), COUNT


def derive_kept(call: AggregateCall) -> str:
    """What is kept of the values of a call, where the types of the parts do not say it (`StateShape.serializer`)."""
    if call.argument is None:
        return "rows"
    kind = call.argument.type
    if call.function in ("sum", "avg") and kind.kind not in DOUBLES:
        return f"units of scale {kind.scale}"
    if call.function in ("min", "max", DISTINCT):
        return f"{value_type(kind)} {'of doubles' if kind.kind in DOUBLES else 'values'}"
    return "values"


AGGREGATE: Final = StateField("aggregate", STRING, nullable=False)
"""By its name: aggregates of one type share a state."""


def declare_values(call: AggregateCall, groups: StateShape) -> StateDeclaration:
    """The state for the values of a call, beside one with the shape `groups`."""
    assert call.argument is not None
    kind = value_type(call.argument.type)
    digits = f"_{kind.precision}_{kind.scale}" if kind.kind == "decimal" else ""
    shape = StateShape(
        keys=(*groups.keys, AGGREGATE, StateField("value", kind, nullable=False)),
        values=(StateField("count", BIGINT, nullable=False),),
        key_hash=groups.key_hash,
        max_parallelism=groups.max_parallelism,
        suffix=2,
    )
    return StateDeclaration(StateName(f"values_{kind.kind}{digits}"), shape, names_columns=AGGREGATE.name)
