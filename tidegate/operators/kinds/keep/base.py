"""What the operators of `keep` have in common: all columns pass, and what is kept is what the state means."""

from __future__ import annotations

from collections import defaultdict

from tidegate.formats.failures import BadRecordPolicy
from tidegate.operators.meaning import VERSION, Branch, Branches, Meaning, digest
from tidegate.operators.spec import Columns, StepOperator
from tidegate.state.declaration import StateField, StateShape
from tidegate.state.keygroups import KEY_HASH


class KeepOperator(StepOperator, frozen=True):
    """What both have in common. No column is left out, whoever reads it: equal rows would not be told apart."""

    keys: tuple[str, ...]
    columns: Columns
    bad_records: BadRecordPolicy

    def produces(self) -> Columns:
        """See Operator."""
        return self.columns

    def reads(self) -> set[str]:
        """See Operator."""
        return {name for name, _ in self.columns}

    def needs_time(self) -> bool:
        """See Operator."""
        return True

    def passes(self, branches: Branches) -> Branches:  # noqa: ARG002  # whatever arrives becomes its results
        """See Operator."""
        name = self.name
        return (Branch(name, {column: digest(self.kind, name, column) for column, _ in self.produces()}),)

    def means(self, branches: Branches) -> Meaning:
        """See Operator."""
        by_origin: defaultdict[str, list[str]] = defaultdict(list)
        for branch in branches:
            columns = [branch.columns[name] for name in (*self.keys, *self.ordered_by())]
            by_origin[branch.origin].append(digest(*self.words(), *columns, *sorted(branch.conditions)))
        return {
            origin: {"what is kept": f"{VERSION}:{digest(*sorted(digests))}"} for origin, digests in by_origin.items()
        }

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
