"""The runtime of a step with keys: opens its states as declared and reads keys in the form that states use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar, cast

import polars as pl

from tidegate.datatypes import is_reserved
from tidegate.formats.columns import plain_values
from tidegate.ids import StateName
from tidegate.operators.keyed import KeyedOperator
from tidegate.operators.runtime import OperatorRuntime, OperatorState, Out, system_columns
from tidegate.operators.spec import Slot
from tidegate.state.base import GroupsOf, Key, KeyedState
from tidegate.state.keygroups import key_groups_of_keys
from tidegate.state.operator_list import OperatorList
from tidegate.state.snapshot import Value

Spec = TypeVar("Spec", bound=KeyedOperator)


class KeyedRuntime(OperatorRuntime, Generic[Spec]):
    """The base of runtimes of steps with keys. A subclass implements `process`."""

    def __init__(self, operator: Spec, slot: Slot) -> None:
        self.operator = operator
        self._output = [name for name, _ in operator.pruned_columns()]
        kinds = dict(operator.columns)
        self._known = kinds.keys() | {name for name, _ in operator.output_columns()}
        key_kinds = [kinds[key] for key in operator.keys]
        self.groups_of: GroupsOf = lambda keys: key_groups_of_keys(keys, key_kinds, slot.max_parallelism)
        """Returns the key groups of keys as tuples."""
        self.states: dict[StateName, OperatorState] = {
            one.name: slot.open_state(operator.name, one, self.groups_of)
            if one.keyed
            else cast("OperatorState", OperatorList[Any](operator.name, one))
            for one in operator.states(slot.max_parallelism)
        }

    @property
    def state(self) -> KeyedState[Any]:
        """The first state."""
        return cast("KeyedState[Any]", next(iter(self.states.values())))

    def keys_of(self, batch: pl.DataFrame) -> list[Key]:
        """Returns the key of each row: the value of its column, or a tuple if there are several."""
        columns = [plain_values(batch[key]) for key in self.operator.keys]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def look_up(self, keys: Sequence[Key]) -> dict[Key, Value | None]:
        """Returns the state's value for each of these keys, once per key."""
        known = dict.fromkeys(keys)
        return dict(zip(known, self.state.get_many(known), strict=True))

    def pass_on(self, batch: pl.DataFrame, places: Sequence[int], out: Out) -> None:
        """Emits the rows at these places, with the system columns. `batch` may have columns that the operator adds.

        Raises ValueError for a column that neither arrives nor is declared: it would be lost silently.
        """
        unknown = [name for name in batch.columns if name not in self._known and not is_reserved(name)]
        if unknown:
            raise ValueError(f"pass_on() gets the column `{unknown[0]}`, which output_columns() does not have")
        passed = batch if len(places) == batch.height else batch[places]
        out.emit(passed[self._output + system_columns(batch)])
