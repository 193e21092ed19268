"""`explode`: a row for each element of an array, or for each entry of a map.

`settings.py` has the settings, `runtime.py` the runtime. ADR 45 explains why such a step begins a vertex.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from typing_extensions import override

from tidegate.config.fields.base import Path
from tidegate.datatypes import INT, DataType
from tidegate.expressions.bounds import Bound, Bounds, derive_identities, sum_bounds
from tidegate.formats.failures import BadRecordPolicy
from tidegate.operators.fingerprint import Lineages, digest
from tidegate.operators.kinds.explode.settings import Explode, ExplodeSettings
from tidegate.operators.spec import Columns, Slot, StepOperator, texts_of
from tidegate.operators.step import StepContext, StepKind

if TYPE_CHECKING:
    from tidegate.operators.runtime import OperatorRuntime


class ExplodeOperator(StepOperator, frozen=True, tag="explode"):
    """Splits one column into rows. A batch may yield many times its rows, so the operator begins a vertex: a batch with
    too large an output can be processed in parts.
    """

    BEGINS_VERTEX: ClassVar[bool] = True

    explode: Explode
    type: DataType
    """The type of the column to explode."""
    output: Columns
    bad_records: BadRecordPolicy

    @override
    def output_columns(self, output: str = "") -> Columns:
        return self.output

    @property
    def others(self) -> Columns:
        """The columns of the record that each of the rows repeats."""
        return tuple(column for column in self.pruned_columns() if column[0] not in self.explode.new)

    @override
    def reads(self, port: int = 0) -> set[str]:
        return {self.explode.column, *(name for name, _ in self.others)}

    @override
    def selects_by(self) -> frozenset[str]:
        return frozenset({self.explode.column})

    @override
    def preserves_record(self, output: str = "") -> bool:
        return True

    @override
    def splits_rows(self) -> bool:
        return True

    @override
    def lineage(self, lineages: Lineages) -> Lineages:
        column, new = self.explode.column, self.explode.new
        return tuple(
            msgspec.structs.replace(
                branch,
                columns=dict(branch.columns)
                | {name: digest("explode", str(place), branch.columns[column]) for place, name in enumerate(new)},
                conditions=branch.conditions
                | {digest("explode", "outer" if self.explode.outer else "inner", branch.columns[column])},
            )
            for branch in lineages
        )

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        """Returns each output column at its own size, since the output is cut to what the vertex takes at a time."""
        made = derive_identities(self.pruned_columns())
        return made, sum_bounds(columns.values()) + sum_bounds(made.values())

    @override
    def explains(self) -> dict[str, Any]:
        one = self.explode
        return {
            "explode": {one.column: list(one.made)},
            "position": one.position or None,
            "outer": one.outer,
            "keep": one.keep,
            "output": texts_of(self.pruned_columns()),
            "bad_records": self.bad_records,
        }

    @override
    def describes(self) -> list[str]:
        one = self.explode
        position = f" with its position {one.position}" if one.position else ""
        outer = "; empty or NULL: one row" if one.outer else "; empty or NULL: no row"
        return [f"a row for each of {one.column} as {', '.join(one.made)}{position}{outer}"]

    @override
    def open(self, slot: Slot) -> OperatorRuntime:
        from tidegate.operators.kinds.explode.runtime import ExplodeRuntime

        return ExplodeRuntime(self, slot.rows_max, slot.bytes_max)


class ExplodeKind(StepKind):
    """The kind of a step with `explode`."""

    word = "explode"
    examples = ("explode: {tags: tag}",)
    settings = ExplodeSettings

    @override
    def build(self, step: ExplodeSettings, context: StepContext) -> None:
        assert step.explode is not None
        one, path = step.explode, ("explode", step.explode.column)
        kind = context.column(path, one.column)
        if kind is None:
            return
        made = _derive_made(one, kind, path, context)
        others = {name: of for name, of in context.columns.items() if one.keep or name != one.column}
        for name in (name for name in made if name in others):
            remedy = "choose another name, or leave the other column out by a `select` before this step"
            context.problem(("explode",), f"there is a column `{name}` already", remedy)
        if made and not others.keys() & made.keys():
            columns = others | made
            context.declare_columns(columns)
            context.add(ExplodeOperator(context.name, one, kind, tuple(columns.items()), context.policy))


def _derive_made(one: Explode, kind: DataType, path: Path, context: StepContext) -> dict[str, DataType]:
    """Returns the new columns, or none after reporting what is wrong."""
    position = {one.position: INT} if one.position else {}
    if kind.kind not in ("array", "map") or kind.element is None:
        context.problem(path, f"`{one.column}` is {kind}", "only an array or a map can be taken apart", at_key=True)
        return {}
    if kind.kind == "map" and kind.key is not None:
        if len(one.made) == 2:
            return position | {one.made[0]: kind.key, one.made[1]: kind.element}
        message = f"`{one.column}` is {kind}: its entries need two names"
        context.problem(path, message, f"write {{{one.column}: [key, value]}}")
        return {}
    if len(one.made) == 1:
        return position | {one.made[0]: kind.element}
    context.problem(path, f"`{one.column}` is {kind}: its elements need one name", f"write {{{one.column}: item}}")
    return {}


KIND = ExplodeKind()
