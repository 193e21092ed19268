"""min and max from which rows can be taken back: each different value of a group is an entry of a state, with how often
the group has it.

So a row costs one look-up, whatever the size of the group. When the extreme itself is gone, the next one is the first
or last of the group's entries in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.datatypes import DOUBLE
from tidegate.expressions.expression import AggregateCall
from tidegate.operators.aggregation.parts import Part
from tidegate.operators.aggregation.values import plain_from_key, plain_key
from tidegate.operators.kinds.aggregate.changes.kept import DOUBLES, extreme_parts
from tidegate.operators.kinds.aggregate.changes.tallies import Tally
from tidegate.state.base import KeyedState
from tidegate.state.order import Row
from tidegate.state.snapshot import Value

_EXTREME, _COUNT, _GONE = range(3)


class ExtremeTally:
    """See Retractable: `[extreme, count, whether the extreme is gone]`. `values` is shared with others of its type."""

    def __init__(self, name: str, call: AggregateCall, values: KeyedState[Any]) -> None:
        assert call.argument is not None
        kind = call.argument.type
        self._name = name
        self._greatest = call.function == "max"
        self._floating = kind.kind in DOUBLES
        self._values = values
        self.parts: Sequence[Part] = extreme_parts(call)
        self._counts: dict[tuple[int, Any], int] = {}
        """Of the group's number in the batch, and the value."""

    def load(self, value: Value) -> Tally:
        """See Retractable."""
        return [*value, False]

    def save(self, tally: Tally) -> Value:
        """See Retractable."""
        return tuple(tally[:_GONE])

    def begin(self, values: Sequence[Any], numbers: Sequence[int], keys: Sequence[Row]) -> list[Any]:
        """See Retractable."""
        kept = [None if value is None else plain_key(value) for value in values] if self._floating else values
        found = [None if value is None else (number, value) for value, number in zip(kept, numbers, strict=True)]
        asked = [one for one in dict.fromkeys(found) if one is not None]
        stored = self._values.get_many([(*keys[number], self._name, value) for number, value in asked])
        self._counts = {one: 0 if value is None else value[0] for one, value in zip(asked, stored, strict=True)}
        return found

    def add(self, tally: Tally, value: Any) -> None:
        """See Retractable."""
        if value is None:
            return
        self._counts[value] += 1
        tally[_COUNT] += 1
        extreme, new = tally[_EXTREME], value[1]
        if extreme is None or (new > extreme if self._greatest else new < extreme):
            tally[_EXTREME] = new

    def take(self, tally: Tally, value: Any) -> bool:
        """See Retractable."""
        if value is None:
            return True
        if not self._counts[value]:
            return False
        self._counts[value] -= 1
        tally[_COUNT] -= 1
        if not self._counts[value] and value[1] == tally[_EXTREME]:
            tally[_GONE] = True
        return True

    def is_empty(self, tally: Tally) -> bool:
        """See Retractable."""
        return not tally[_COUNT]

    def finish(self, tallies: Sequence[Tally], keys: Sequence[Row]) -> None:
        """See Retractable."""
        entries = {(*keys[number], self._name, value): count for (number, value), count in self._counts.items()}
        left = {entry: (count,) for entry, count in entries.items() if count}
        self._values.put_many(list(left), left.values())
        self._values.delete_many([entry for entry, count in entries.items() if not count])
        self._counts = {}
        gone = [(tally, (*key, self._name)) for tally, key in zip(tallies, keys, strict=True) if tally[_GONE]]
        for group, (tally, prefix) in zip(self._values.groups_of([one for _, one in gone]), gone, strict=True):
            first = next(iter(self._values.scan(group, prefix, limit=1, backwards=self._greatest)), None)
            tally[_EXTREME] = None if first is None else first[0][-1]
            tally[_GONE] = False

    def result(self, tally: Tally) -> Any:
        """See Retractable."""
        extreme = tally[_EXTREME]
        return plain_from_key(extreme, DOUBLE) if self._floating else extreme
