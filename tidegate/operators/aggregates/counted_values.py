"""Aggregates of changes that need all values of a group. Each distinct value is an entry of a state, with its number of
occurrences.

So a row costs one lookup, whatever the size of the group. Aggregates with arguments of one type share a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from typing_extensions import override

from tidegate.datatypes import BIGINT, STRING, DataType
from tidegate.expressions.expression import AggregateCall
from tidegate.ids import StateName
from tidegate.operators.aggregates.contract import Aggregate, AggregateUse, Numbers, Value
from tidegate.operators.aggregates.values import FLOATING, plain_key
from tidegate.state.base import KeyedState
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.order import Row

AGGREGATE: Final = StateField("aggregate", STRING, nullable=False)
"""The name of the aggregate for which a value is kept."""


class CountedValues(Aggregate):
    """The base of these aggregates. `begin` returns pairs of the key's number and the value."""

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
