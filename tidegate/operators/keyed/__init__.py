"""Steps with keys and state: what follows from keys, columns and state, so that a kind declares only what is its own.

`runtime.py` has the same for what runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, ClassVar, Final

import msgspec
from typing_extensions import override

from tidegate.expressions.bounds import FIXED_BYTES, Bound, Bounds, sum_bounds
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import StateName
from tidegate.operators.fingerprint import Lineage, Lineages, StateFingerprint, combine_digests, combine_times, digest
from tidegate.operators.spec import Columns, Emits, Rest, StepOperator, texts_of
from tidegate.operators.step import NEEDS_RETRACTION, StepContext, StepKind
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.keygroups import KEY_HASH

STATE: Final = StateName("state")


class KeyedOperator(StepOperator, frozen=True):
    """A step whose rows are exchanged by key and share a state per key.

    By default it passes rows on as they came, or drops them. One that emits results of its own overrides
    `preserves_record`, and `REST` with it.
    """

    REST: ClassVar[Rest] = Rest.FILTERED

    keys: tuple[str, ...]
    columns: Columns
    """All that arrive."""
    bad_records: BadRecordPolicy

    # -- what a kind declares ------------------------------------------------------------------------------------------

    def state_values(self) -> tuple[StateField, ...]:
        """Return what the state holds for each key."""
        return ()

    def added_columns(self) -> Columns:
        """Return the columns that its rows have besides those that arrive."""
        return ()

    def deciding_columns(self) -> tuple[str, ...]:
        """Return the columns besides the keys whose values its state depends on."""
        return ()

    def held_columns(self) -> tuple[str, ...]:
        """Return the columns besides the keys that its state holds: each may be added, and given up by name."""
        return ()

    def parameters(self) -> dict[str, Any]:
        """Return the settings that decide what its state means: by default all fields that the kind adds."""
        common = KeyedOperator.__struct_fields__
        own = (name for name in self.__struct_fields__ if name not in common)
        return {name: msgspec.to_builtins(getattr(self, name)) for name in own}

    # -- what follows from it ------------------------------------------------------------------------------------------

    @override
    def output_columns(self, output: str = "") -> Columns:  # there is one
        return (*self.columns, *self.added_columns())

    @override
    def reads(self, port: int = 0) -> set[str]:  # there is one
        passed = {name for name, _ in self.pruned_columns()} - {name for name, _ in self.added_columns()}
        return passed | {*self.keys, *self.deciding_columns(), *self.held_columns()}

    @override
    def preserves_record(self, output: str = "") -> bool:  # there is one
        return True

    def shape(self, values: tuple[StateField, ...], max_parallelism: int) -> StateShape:
        """Return the shape of a state by the keys."""
        kinds = dict(self.columns)
        keys = tuple(StateField(key, kinds[key]) for key in self.keys)
        return StateShape(keys, values, key_hash=KEY_HASH, max_parallelism=max_parallelism)

    @override
    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        return (StateDeclaration(STATE, self.shape(self.state_values(), max_parallelism)),)

    @override
    def lineage(self, lineages: Lineages) -> Lineages:
        """Rows that it passes on have passed a condition more; results of its own are a new origin."""
        if not self.preserves_record() or self.emits() is Emits.LATEST:
            columns = {name: digest(self.kind, self.name, name) for name, _ in self.output_columns()}
            return (Lineage(self.name, columns, time=combine_times(self.name, lineages)),)
        return tuple(
            msgspec.structs.replace(
                branch,
                columns={
                    **branch.columns,
                    **{name: digest(digest(*self.words(branch)), name) for name, _ in self.added_columns()},
                },
                conditions=branch.conditions | {digest(*self.words(branch))},
            )
            for branch in lineages
        )

    @override
    def fingerprint(self, lineages: Lineages, port: int = 0) -> StateFingerprint | None:  # there is one
        return combine_digests(chain.from_iterable(map(self._parts, lineages)))

    def _parts(self, branch: Lineage) -> Iterator[tuple[str, str, str]]:
        conditions = sorted(branch.conditions)
        yield branch.origin, "what is kept", digest(*self.words(branch), branch.time, *conditions)
        for name in self.held_columns():
            if name not in (*self.keys, *self.deciding_columns()):
                yield branch.origin, f"`{name}`", digest("kept", branch.columns[name], *conditions)

    def words(self, branch: Lineage) -> tuple[str, ...]:
        """The kind, its settings, and what the keys and the other columns that decide are made of."""
        deciding = (branch.columns[name] for name in (*self.keys, *self.deciding_columns()))
        return self.kind, *map(str, self.parameters().values()), *deciding

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:  # there is one
        """Columns that it adds are taken for numbers."""
        added = {name: Bound({}, FIXED_BYTES) for name, _ in self.added_columns()}
        outgoing = {name: columns[name] for name, _ in self.columns if name in columns} | added
        return outgoing, sum_bounds(outgoing.values())

    @override
    def explains(self) -> dict[str, Any]:
        return {"key": list(self.keys), **self.parameters(), "output": texts_of(self.pruned_columns())}

    @override
    def describes(self) -> list[str]:
        settings = ", ".join(f"{name} {value}" for name, value in self.parameters().items())
        keys = ", ".join(self.keys)
        return [f"{self.kind} {settings} per {keys}", f"keyed state by {keys}"]


class KeyedKind(StepKind):
    """A kind of step with `key`, whose operator is a KeyedOperator."""

    needs: ClassVar[Mapping[str, str]] = {"key": "add it: the column or columns that records have in common"}
    operator: ClassVar[type[KeyedOperator]]

    def fields(self, step: Any, context: StepContext) -> dict[str, Any] | None:
        """Return the fields of the operator that the kind adds; None when something is wrong, which is reported."""
        raise NotImplementedError

    @override
    def counts(self, step: Any) -> bool:  # all of them
        return True

    @override
    def refuses_changes(self, step: Any) -> str:  # all of them
        return NEEDS_RETRACTION

    @override
    def build(self, step: Any, context: StepContext) -> None:
        keys: tuple[str, ...] = step.key
        usable = [context.key(("key", index), key) for index, key in enumerate(keys)]
        fields = self.fields(step, context)
        if fields is None:
            return
        operator = self.operator(context.name, keys, tuple(context.columns.items()), context.policy, **fields)
        context.declare_columns(dict(operator.output_columns()))
        if all(usable):
            context.add(operator, keys)
