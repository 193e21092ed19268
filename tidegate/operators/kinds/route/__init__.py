"""`route`: sends each row to the first of several named outputs whose condition is true."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Annotated, Any, ClassVar, Final

import msgspec
from pydantic import Field
from typing_extensions import override

from tidegate.config.fields.base import Path, Settings
from tidegate.config.fields.types import ExpressionText, StepName
from tidegate.datatypes import INT
from tidegate.expressions.bounds import Bound, Bounds, derive_bound, sum_bounds
from tidegate.expressions.expression import Call, Expression, Literal, columns_of, text_of
from tidegate.formats.failures import BadRecordPolicy
from tidegate.operators.fingerprint import Lineages, derive_conjuncts, digest, digest_expression
from tidegate.operators.spec import DEAD, LATE, Columns, Rest, StepOperator
from tidegate.operators.step import StepContext, StepKind

ELSE: Final = "else"


class RouteSettings(Settings):
    """The keys of a route."""

    route: Annotated[
        dict[StepName, ExpressionText] | None,
        Field(
            min_length=1,
            description="Named outputs, each with a condition in Spark SQL: `{big: amount >= 100, rest: else}`. "
            "A record goes to the first output whose condition is true; NULL is not true. `else`, which comes "
            "last, takes all others; without it they are dropped, and counted as filtered. An output is read as "
            "`step.output`, for instance `kinds.big`.",
        ),
    ] = None


class Output(msgspec.Struct, frozen=True):
    """One output. Without a condition, it takes the rows that no other output takes."""

    name: str
    condition: Expression | None
    columns: Columns


class RouteOperator(StepOperator, frozen=True, tag="route"):
    """An operator without a main output. It evaluates conditions up to the first that is true. A row fails if one of
    them fails.
    """

    REST: ClassVar[Rest] = Rest.FILTERED

    outputs: tuple[Output, ...]
    bad_records: BadRecordPolicy

    @property
    def choice(self) -> Expression:
        """The expression for the index of a row's output; -1 for none."""
        cases = [(one.condition, Literal(index, INT)) for index, one in self._conditional()]
        last = next((index for index, one in enumerate(self.outputs) if one.condition is None), -1)
        return Call("case", (*chain.from_iterable(cases), Literal(last, INT)), INT)

    def _conditional(self) -> list[tuple[int, Any]]:
        return [(index, one) for index, one in enumerate(self.outputs) if one.condition is not None]

    @override
    def reads(self, port: int = 0) -> set[str]:
        passed = {name for one in self.side_outputs() for name, _ in self.pruned_columns(one)}
        return passed | columns_of(self.choice)

    @override
    def side_outputs(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.outputs)

    @override
    def output_columns(self, output: str = "") -> Columns:
        return next((one.columns for one in self.outputs if one.name == output), ())

    @override
    def selects_by(self) -> frozenset[str]:
        return columns_of(self.choice)

    @override
    def lineage(self, lineages: Lineages, output: str = "") -> Lineages:
        """Adds the condition of an output and the negated conditions before it. Later conditions have no effect."""
        if output not in self.side_outputs():
            return lineages
        place = self.side_outputs().index(output)
        condition = self.outputs[place].condition
        taken = [one.condition for one in self.outputs[:place] if one.condition is not None]
        asked = [] if condition is None else list(derive_conjuncts(condition))
        return tuple(
            branch.filtered(
                *(digest_expression(one, branch.columns) for one in asked),
                *(digest("not", digest_expression(one, branch.columns)) for one in taken),
            )
            for branch in lineages
        )

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        kept = {name: columns[name] for one in self.side_outputs() for name, _ in self.pruned_columns(one)}
        return kept, derive_bound(self.choice, columns) + sum_bounds(kept.values())

    @override
    def describes(self) -> list[str]:
        lines = [f"{one.name}: {ELSE if one.condition is None else text_of(one.condition)}" for one in self.outputs]
        dropped = self.outputs[-1].condition is not None
        return [*lines, *(["records that match none of them are dropped"] if dropped else [])]


class RouteKind(StepKind):
    """The kind of a step with `route`."""

    key = "route"
    examples = ("route: {big: amount > 2, small: amount > 1}",)
    settings = RouteSettings

    @override
    def outputs(self, step: RouteSettings) -> Mapping[str, Path]:
        return {name: ("route", name) for name in step.route or ()}

    @override
    def expressions(self, step: RouteSettings) -> Mapping[Path, str]:
        return {("route", name): text for name, text in (step.route or {}).items() if text != ELSE}

    @override
    def build(self, step: RouteSettings, context: StepContext) -> None:
        assert step.route is not None
        conditions: dict[str, Expression | None] = {}
        for place, (name, text) in enumerate(step.route.items(), start=1):
            context.declare_columns(context.columns, name)
            if name in (DEAD, LATE):
                context.problem(("route", name), f"the name `{name}` is reserved", "choose another name", at_key=True)
            elif text != ELSE:
                condition = context.expression(("route", name), text, condition=True)
                conditions |= {} if condition is None else {name: condition}
            elif place < len(step.route) or place == 1:
                message = "`else` takes the records that match no condition before it"
                context.problem(("route", name), message, "put it last, after at least one condition")
            else:
                conditions[name] = None
        if len(conditions) == len(step.route):
            columns = tuple(context.columns.items())
            outputs = tuple(Output(name, condition, columns) for name, condition in conditions.items())
            context.add(RouteOperator(context.name, outputs, context.policy))


KIND = RouteKind()
