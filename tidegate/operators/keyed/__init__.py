"""Steps with keys and state: everything that follows from keys, columns and state, so that a kind declares only its own
part.

Late rows are an output of some of them: the key `late` of the file, and its columns. `runtime.py` does the same for
runtimes, and `lateness.py` for late rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Annotated, Any, ClassVar, Final

import msgspec
from pydantic import Field
from typing_extensions import override

from tidegate.config.fields.base import Path, Settings
from tidegate.config.fields.types import StepName
from tidegate.datatypes import STRING, TIMESTAMP, DataType
from tidegate.expressions.bounds import FIXED_BYTES, Bound, Bounds, sum_bounds
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import StateName
from tidegate.operators.fingerprint import Lineage, Lineages, StateFingerprint, combine_digests, combine_times, digest
from tidegate.operators.spec import LATE, Columns, Emits, Requirement, Rest, StepOperator
from tidegate.operators.step import NEEDS_RETRACTION, StepContext, StepKind
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.keygroups import KEY_HASH

STATE: Final = StateName("state")


class KeyedOperator(StepOperator, frozen=True):
    """A step whose rows are exchanged by key and share a state per key.

    By default it drops rows or passes them on unchanged. A step that emits results of its own overrides
    `preserves_record` and `REST`.
    """

    REST: ClassVar[Rest] = Rest.FILTERED

    keys: tuple[str, ...]
    columns: Columns
    """All columns that arrive."""
    bad_records: BadRecordPolicy

    # -- declared by a kind --------------------------------------------------------------------------------------------

    def state_values(self) -> tuple[StateField, ...]:
        """Returns the fields that the state holds for each key."""
        return ()

    def added_columns(self) -> Columns:
        """Returns the columns that it adds to those that arrive."""
        return ()

    def deciding_columns(self) -> tuple[str, ...]:
        """Returns the columns besides the keys whose values affect its state."""
        return ()

    def held_columns(self) -> tuple[str, ...]:
        """Returns the columns besides the keys that its state holds. Each can be added, and removed by name."""
        return ()

    def parameters(self) -> dict[str, Any]:
        """Returns the settings that determine the meaning of its state: by default all fields that the kind adds."""
        common = KeyedOperator.__struct_fields__
        own = (name for name in self.__struct_fields__ if name not in common)
        return {name: msgspec.to_builtins(getattr(self, name)) for name in own}

    # -- derived from the declarations ---------------------------------------------------------------------------------

    @override
    def output_columns(self, output: str = "") -> Columns:
        return (*self.columns, *self.added_columns())

    @override
    def reads(self, port: int = 0) -> set[str]:
        passed = {name for name, _ in self.pruned_columns()} - {name for name, _ in self.added_columns()}
        return passed | {*self.keys, *self.deciding_columns(), *self.held_columns()}

    def shape(self, values: tuple[StateField, ...], max_parallelism: int) -> StateShape:
        """Returns the shape of a state by the keys."""
        kinds = dict(self.columns)
        keys = tuple(StateField(key, kinds[key]) for key in self.keys)
        return StateShape(keys, values, key_hash=KEY_HASH, max_parallelism=max_parallelism)

    @override
    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        return (StateDeclaration(STATE, self.shape(self.state_values(), max_parallelism)),)

    @override
    def lineage(self, lineages: Lineages, output: str = "") -> Lineages:
        """Adds a condition to the lineage of rows that it passes on. Results of its own have a new origin."""
        if not self.preserves_record() or self.emits() is Emits.LATEST:
            columns = {name: digest(self.kind, self.name, name) for name, _ in self.output_columns()}
            return (Lineage(self.name, columns, time=combine_times(self.name, lineages)),)
        return tuple(map(self._pass_branch, lineages))

    def _pass_branch(self, branch: Lineage) -> Lineage:
        condition = digest(*self.digested(branch))
        return branch.filtered(condition).extended({name: digest(condition, name) for name, _ in self.added_columns()})

    @override
    def fingerprint(self, lineages: Lineages, port: int = 0) -> StateFingerprint | None:
        return combine_digests(chain.from_iterable(map(self._parts, lineages)))

    def _parts(self, branch: Lineage) -> Iterator[tuple[str, str, str]]:
        conditions = sorted(branch.conditions)
        yield branch.origin, "what is kept", digest(*self.digested(branch), branch.time, *conditions)
        for name in self.held_columns():
            if name not in (*self.keys, *self.deciding_columns()):
                yield branch.origin, f"`{name}`", digest("kept", branch.columns[name], *conditions)

    def digested(self, branch: Lineage) -> tuple[str, ...]:
        """Returns the kind, its settings, and digests of the keys and of the other deciding columns."""
        deciding = (branch.columns[name] for name in (*self.keys, *self.deciding_columns()))
        return self.kind, *map(str, self.parameters().values()), *deciding

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        """Counts the columns that it adds as numbers."""
        added = {name: Bound({}, FIXED_BYTES) for name, _ in self.added_columns()}
        outgoing = {name: columns[name] for name, _ in self.columns if name in columns} | added
        return outgoing, sum_bounds(outgoing.values())

    @override
    def describes(self) -> list[str]:
        settings = ", ".join(f"{name} {value}" for name, value in self.parameters().items())
        keys = ", ".join(self.keys)
        return [f"{self.kind} {settings} per {keys}", f"keyed state by {keys}"]


REASONS: Final[Columns] = (("_reason", STRING), ("_watermark", TIMESTAMP))
"""What late rows have besides the columns that arrive: the reason, and the watermark that makes them late."""


class LateSettings(Settings):
    """The key of steps that can find a record late."""

    late: Annotated[
        StepName | None,
        Field(
            description="A sink without `from` that gets the late records, with the columns `_reason` and "
            "`_watermark`. Without it they are only counted."
        ),
    ] = None


def derive_late(step: LateSettings, context: StepContext) -> dict[str, DataType] | None:
    """Returns the columns of the step's late rows. Empty if late rows are not requested; None if they are impossible,
    which is reported.

    Declares the columns as the step's output `late`.
    """
    if step.late is None:
        return {}
    taken = [name for name, _ in REASONS if name in context.columns]
    if taken:
        remedy = "rename it in a `select` before this step"
        context.problem(("late",), f"`{taken[0]}` is a column of late records, and of these records", remedy)
        return None
    late = {**context.columns, **dict(REASONS)}
    context.declare_columns(late, LATE)
    return late


def columns_read(late: Columns) -> set[str]:
    """Returns the columns of late rows that arrive from the input."""
    return {name for name, _ in late} - dict(REASONS).keys()


def pass_late(name: str, lineages: Lineages) -> Lineages:
    """Returns the lineages of a step's late rows, which leave as they arrived (see `fingerprint.py`)."""
    reasons = {column: digest("late", name, column) for column, _ in REASONS}
    return tuple(branch.extended(reasons) for branch in lineages)


class LateKeyedOperator(KeyedOperator, frozen=True, kw_only=True):
    """A step with keys that detects late rows and emits them on its output `late` if anything reads it."""

    late: Columns = ()
    """The columns of late rows, without system columns; empty if nothing reads them."""

    @override
    def parameters(self) -> dict[str, Any]:
        return {name: value for name, value in super().parameters().items() if name != "late"}

    @override
    def output_columns(self, output: str = "") -> Columns:
        return self.late if output == LATE else super().output_columns()

    @override
    def side_outputs(self) -> tuple[str, ...]:
        return (LATE,) if self.late else ()

    @override
    def reads(self, port: int = 0) -> set[str]:
        return super().reads(port) | columns_read(self.pruned_columns(LATE))

    @override
    def requires(self, port: int = 0) -> frozenset[Requirement]:
        return frozenset({Requirement.EVENT_TIME})

    @override
    def lineage(self, lineages: Lineages, output: str = "") -> Lineages:
        return pass_late(self.name, lineages) if output == LATE else super().lineage(lineages)

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        outgoing, _ = super().output_size(columns, port)
        reasons = REASONS if self.pruned_columns(LATE) else ()
        whole = {**outgoing, **{name: Bound({}, FIXED_BYTES) for name, _ in reasons}}
        return whole, sum_bounds(whole.values())


class KeyedKind(StepKind):
    """A kind of step with `key`, whose operator is a KeyedOperator; if it is a LateKeyedOperator, its settings are
    LateSettings.
    """

    needs: ClassVar[Mapping[str, str]] = {"key": "add it: the column or columns that records have in common"}
    operator: ClassVar[type[KeyedOperator]]

    def fields(self, step: Any, context: StepContext) -> dict[str, Any] | None:
        """Returns the operator fields that the kind adds, or None after reporting what is wrong."""
        raise NotImplementedError  # refused at registration

    @override
    def counts(self, step: Any) -> bool:
        return True

    @override
    def refuses_changes(self, step: Any) -> str:
        return NEEDS_RETRACTION

    def keys_of(self, step: Any) -> tuple[Path, tuple[str, ...]]:
        """Returns where in the step the columns of the key are, and the columns."""
        return ("key",), step.key

    @override
    def build(self, step: Any, context: StepContext) -> None:
        place, keys = self.keys_of(step)
        usable = [context.key((*place, index), key) for index, key in enumerate(keys)]
        fields = self.fields(step, context)
        if issubclass(self.operator, LateKeyedOperator):
            late = derive_late(step, context)
            fields = None if fields is None or late is None else {**fields, "late": tuple(late.items())}
        if fields is None:
            return
        columns = tuple(context.columns.items())
        try:
            operator = self.operator(context.name, keys, columns, context.policy, **fields)
        except TypeError as error:
            where = f"kind {type(self).__module__}"
            raise TypeError(f"{where}: fields() does not fit {self.operator.__name__}: {error}") from error
        names = [name for name, _ in operator.output_columns()]
        for name, _ in operator.added_columns():
            if names.count(name) > 1:
                remedy = "rename it with a `select` before this step"
                context.problem((self.key,), f"there is already a column `{name}`", remedy)
                return
        context.declare_columns(dict(operator.output_columns()))
        if all(usable):
            context.add(operator, keys)
