"""min, max and count(distinct) from which rows can be taken back: each different value of a group is an entry of a
state, with how often the group has it.

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
from tidegate.operators.kinds.aggregate.changes.kept import DISTINCT, DOUBLES, kept_parts
from tidegate.operators.kinds.aggregate.changes.tallies import Retractable, Tally
from tidegate.state.base import KeyedState
from tidegate.state.order import Row
from tidegate.state.snapshot import Value

_EXTREME, _COUNT, _GONE = range(3)
_DIFFERENT = 0


def make_values_tally(name: str, call: AggregateCall, values: KeyedState[Any]) -> Retractable:
    """The function of a call that needs all values of a group; `values` is the state for them."""
    return (DistinctTally if call.function == DISTINCT else ExtremeTally)(name, call, values)


class _ValuesTally:
    """What they have in common. `values` is shared with others of its type."""

    def __init__(self, name: str, call: AggregateCall, values: KeyedState[Any]) -> None:
        assert call.argument is not None
        self._name = name
        self._floating = call.argument.type.kind in DOUBLES
        self._values = values
        self.parts: Sequence[Part] = kept_parts(call)
        self._counts: dict[tuple[int, Any], int] = {}
        """Of the group's number in the batch, and the value."""

    def begin(self, values: Sequence[Any], numbers: Sequence[int], keys: Sequence[Row]) -> list[Any]:
        """See Retractable."""
        kept = [None if value is None else self._key_of(value) for value in values] if self._floating else values
        found = [None if value is None else (number, value) for value, number in zip(kept, numbers, strict=True)]
        asked = [one for one in dict.fromkeys(found) if one is not None]
        stored = self._values.get_many([(*keys[number], self._name, value) for number, value in asked])
        self._counts = {one: 0 if value is None else value[0] for one, value in zip(asked, stored, strict=True)}
        return found

    def _key_of(self, value: float) -> Any:
        return plain_key(value)

    def is_empty(self, tally: Tally) -> bool:
        """See Retractable."""
        return not tally[_COUNT]

    def _write(self, keys: Sequence[Row]) -> None:
        entries = {(*keys[number], self._name, value): count for (number, value), count in self._counts.items()}
        left = {entry: (count,) for entry, count in entries.items() if count}
        self._values.put_many(list(left), left.values())
        self._values.delete_many([entry for entry, count in entries.items() if not count])
        self._counts = {}


class DistinctTally(_ValuesTally):
    """See Retractable: `[different values, count]`. Two zeros are one value, and so is NaN, as in a key."""

    def _key_of(self, value: float) -> Any:
        return plain_key(value + 0.0)

    def load(self, value: Value) -> Tally:
        """See Retractable."""
        return list(value)

    def save(self, tally: Tally) -> Value:
        """See Retractable."""
        return tuple(tally)

    def add(self, tally: Tally, value: Any) -> None:
        """See Retractable."""
        if value is None:
            return
        tally[_DIFFERENT] += not self._counts[value]
        self._counts[value] += 1
        tally[_COUNT] += 1

    def take(self, tally: Tally, value: Any) -> bool:
        """See Retractable."""
        if value is None:
            return True
        if not self._counts[value]:
            return False
        self._counts[value] -= 1
        tally[_DIFFERENT] -= not self._counts[value]
        tally[_COUNT] -= 1
        return True

    def finish(self, tallies: Sequence[Tally], keys: Sequence[Row]) -> None:  # noqa: ARG002  # all is in them
        """See Retractable."""
        self._write(keys)

    def result(self, tally: Tally) -> Any:
        """See Retractable."""
        return tally[_DIFFERENT]


class ExtremeTally(_ValuesTally):
    """See Retractable: `[extreme, count, whether the extreme is gone]`."""

    def __init__(self, name: str, call: AggregateCall, values: KeyedState[Any]) -> None:
        super().__init__(name, call, values)
        self._greatest = call.function == "max"

    def load(self, value: Value) -> Tally:
        """See Retractable."""
        return [*value, False]

    def save(self, tally: Tally) -> Value:
        """See Retractable."""
        return tuple(tally[:_GONE])

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

    def finish(self, tallies: Sequence[Tally], keys: Sequence[Row]) -> None:
        """See Retractable."""
        self._write(keys)
        gone = [(tally, (*key, self._name)) for tally, key in zip(tallies, keys, strict=True) if tally[_GONE]]
        for group, (tally, prefix) in zip(self._values.groups_of([one for _, one in gone]), gone, strict=True):
            first = next(iter(self._values.scan(group, prefix, limit=1, backwards=self._greatest)), None)
            tally[_EXTREME] = None if first is None else first[0][-1]
            tally[_GONE] = False

    def result(self, tally: Tally) -> Any:
        """See Retractable."""
        extreme = tally[_EXTREME]
        return plain_from_key(extreme, DOUBLE) if self._floating else extreme
