"""What the operators of `keep` have in common: all columns pass, and what is kept is what the state means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidegate.formats.failures import BadRecordPolicy
from tidegate.operators.meaning import VERSION, Branch, Branches, Meaning, combine_digests, combine_times, digest
from tidegate.operators.spec import Columns, Requirement, StepOperator
from tidegate.state.declaration import StateField, StateShape
from tidegate.state.keygroups import KEY_HASH

_VERSION: Final = VERSION + 2
"""Of the digests: before, all columns were parts, of steps that hold none of them, too; and at first one part."""


class KeepOperator(StepOperator, frozen=True):
    """What both have in common. No column is left out, whoever reads it: equal rows would not be told apart."""

    keys: tuple[str, ...]
    columns: Columns
    bad_records: BadRecordPolicy

    def output_columns(self, output: str = "") -> Columns:  # noqa: ARG002  # there is one
        """See Operator."""
        return self.columns

    def reads(self, port: int = 0) -> set[str]:  # noqa: ARG002  # there is one
        """See Operator."""
        return {name for name, _ in self.columns}

    def requires(self, port: int = 0) -> frozenset[Requirement]:  # noqa: ARG002  # there is one
        """See Operator."""
        return frozenset({Requirement.EVENT_TIME})

    def passes(self, branches: Branches) -> Branches:
        """See Operator. Whatever arrives becomes its results."""
        columns = {column: digest(self.kind, self.name, column) for column, _ in self.output_columns()}
        return (Branch(self.name, columns, time=combine_times(self.name, branches)),)

    def means(self, branches: Branches, port: int = 0) -> Meaning:  # noqa: ARG002  # there is one
        """See Operator. A column that is held and does not decide is a part of its own: it may be added, and given up
        by name.
        """
        return combine_digests((part for branch in branches for part in self._digests(branch)), _VERSION)

    def _digests(self, branch: Branch) -> Iterator[tuple[str, str, str]]:
        deciding = (*self.keys, *self.ordered_by())
        conditions = sorted(branch.conditions)
        columns = [branch.columns[name] for name in deciding]
        yield branch.origin, "what is kept", digest(*self.words(), *columns, branch.time, *conditions)
        for name in self.holds():
            if name not in deciding:
                yield branch.origin, f"`{name}`", digest("kept", branch.columns[name], *conditions)

    def holds(self) -> tuple[str, ...]:
        """The columns that are in the state besides the keys."""
        return ()

    def ordered_by(self) -> tuple[str, ...]:
        """The columns that decide besides the keys."""
        return ()

    def words(self) -> tuple[str, ...]:
        """What decides besides columns."""
        return (self.kind,)

    def shape(self, values: tuple[StateField, ...], max_parallelism: int) -> StateShape:
        """Of a state by the keys."""
        kinds = dict(self.columns)
        keys = tuple(StateField(key, kinds[key]) for key in self.keys)
        return StateShape(keys, values, key_hash=KEY_HASH, max_parallelism=max_parallelism)
