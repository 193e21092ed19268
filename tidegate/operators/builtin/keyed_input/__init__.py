"""The operator in front of the exchange on each of several inputs whose rows are matched by key.

The key group is a hash of the key's text, so a key needs one type on all inputs. A row with a NULL key matches nothing.
It is dropped, or, if unmatched rows of the input are results, it stays in its slot, because an exchange by key would
send all of them to one slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from typing_extensions import override

from tidegate.expressions.expression import Expression, columns_of
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.builtin.projection import SelectOperator
from tidegate.operators.fingerprint import Lineages, digest, digest_expression
from tidegate.operators.runtime import OperatorRuntime
from tidegate.operators.spec import Rest, Slot

UNMATCHED: Final = "unmatched"
"""The side output of rows with a NULL key."""


class KeyedInputOperator(SelectOperator, frozen=True, tag="keyed-input"):
    """Emits all columns that arrive, and the keys with their common types."""

    REST: ClassVar[Rest] = Rest.FILTERED

    keys: tuple[str, ...]
    preserved: bool
    """True if rows with a NULL key go to a side output."""

    @override
    def side_outputs(self) -> tuple[str, ...]:
        return (UNMATCHED,) if self.preserved else ()

    @override
    def unpruned(self, output: str = "") -> set[str]:
        """Returns the keys as well, because they decide which rows are emitted."""
        return super().unpruned(output).union(self.keys)

    @override
    def selects_by(self) -> frozenset[str]:
        columns = dict(self.columns)
        return frozenset(name for key in self.keys for name in columns_of(columns[key]))

    @override
    def lineage(self, lineages: Lineages, output: str = "") -> Lineages:
        columns, condition = dict(self.columns), "null" if output == UNMATCHED else "not null"
        return tuple(
            one.filtered(digest(condition, *(digest_expression(columns[key], before.columns) for key in self.keys)))
            for before, one in zip(lineages, super().lineage(lineages), strict=True)
        )

    @override
    def describes(self) -> list[str]:
        rest = "skip the exchange" if self.preserved else "are dropped"
        return [f"keys {', '.join(self.keys)}; rows with a NULL key {rest}"]

    @override
    def open(self, slot: Slot) -> OperatorRuntime:
        from tidegate.operators.builtin.keyed_input.runtime import KeyedInputRuntime

        return KeyedInputRuntime(self)


def make_keyed_input(
    name: OperatorName,
    columns: Mapping[str, Expression],
    keys: tuple[str, ...],
    policy: BadRecordPolicy,
    *,
    preserved: bool,
) -> KeyedInputOperator:
    """Creates the operator in front of the exchange of one input."""
    output = tuple((column, expression.type) for column, expression in columns.items())
    return KeyedInputOperator(name, tuple(columns.items()), output, policy, keys, preserved)
