"""`key` and `aggregate`: running totals per key.

`runtime.py` has what runs; `running.py` the functions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from pydantic import Field

from tidegate.datatypes import DataType
from tidegate.expressions.bounds import FIXED_BYTES, GROWING, Bound, Bounds, derive_identity, sum_bounds
from tidegate.expressions.expression import AggregateCall, Column, Expression, columns_of, text_of
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName, StateName
from tidegate.operators.kinds.aggregate.running import Aggregate
from tidegate.operators.kinds.select import make_projection
from tidegate.operators.meaning import VERSION, Branch, Branches, Meaning, digest, digest_expression
from tidegate.operators.spec import Columns, Slot, StepOperator, texts_of
from tidegate.operators.step import StepContext, StepKind
from tidegate.settings.base import Path, Settings
from tidegate.settings.fields import Column as ColumnName
from tidegate.settings.fields import ExpressionText, Keys, choice
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.keygroups import KEY_HASH

if TYPE_CHECKING:
    from tidegate.operators.runtime import OperatorRuntime

TOTALS: Final = StateName("totals")


class AggregateSettings(Settings):
    """The keys of an aggregate."""

    key: Annotated[Keys | None, Field(description="Column or columns to group by; needs `aggregate`.")] = None
    aggregate: Annotated[
        dict[ColumnName, ExpressionText] | None,
        Field(min_length=1, description="Running totals per key: count, sum, min, max, avg, first, last."),
    ] = None
    emit: Annotated[
        str,
        choice("each", "latest"),
        Field(description="`each`: a total per input record; `latest`: the last one per key and batch."),
    ] = "each"


class AggregateOperator(StepOperator, frozen=True, tag="aggregate"):
    """Running totals per key. Arguments are plain columns: the kind puts a select before the exchange."""

    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, AggregateCall], ...]  # argument is a Column or None
    emit: str  # "each" | "latest"
    output: Columns
    bad_records: BadRecordPolicy

    def produces(self) -> Columns:
        """See Operator."""
        return self.output

    def reads(self) -> set[str]:
        """See Operator."""
        return {*self.keys, *(name for _, call in self.aggregates for name in columns_of(call.argument))}

    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        """See Operator. The accumulators of each key."""
        kinds = dict(self.output)
        aggregates = [Aggregate(name, call) for name, call in self.aggregates]
        shape = StateShape(
            keys=tuple(StateField(key, kinds[key]) for key in self.keys),
            values=tuple(
                StateField(f"{aggregate.name}.{part}", kind, nullable)
                for aggregate in aggregates
                for part, kind, nullable in aggregate.parts
            ),
            key_hash=KEY_HASH,
            max_parallelism=max_parallelism,
        )
        return (StateDeclaration(TOTALS, shape),)

    def passes(self, branches: Branches) -> Branches:  # noqa: ARG002  # whatever arrives becomes totals
        """See Operator."""
        return (Branch(self.name, {name: digest("total", self.name, self.emit, name) for name, _ in self.output}),)

    def means(self, branches: Branches) -> Meaning:
        """See Operator."""
        by_origin: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for branch in branches:
            parts = by_origin[branch.origin]
            conditions = digest("conditions", *sorted(branch.conditions))
            parts["the choice of records"].append(conditions)
            several = sum(other.origin == branch.origin for other in branches) > 1
            ways = (conditions,) if several else ()  # which of several ways a value goes is part of what it means
            for key in self.keys:
                parts[f"key `{key}`"].append(digest("key", branch.columns[key], *ways))
            for name, call in self.aggregates:
                parts[f"`{name}`"].append(digest("aggregate", *_digests_of(call, branch.columns), *ways))
        return {
            origin: {name: f"{VERSION}:{digest(*sorted(digests))}" for name, digests in parts.items()}
            for origin, parts in by_origin.items()
        }

    def arrives(self) -> Bounds:
        """See Operator. The arguments besides the keys."""
        arguments = [call.argument for _, call in self.aggregates if isinstance(call.argument, Column)]
        columns = (*self.output, *((argument.name, argument.type) for argument in arguments))
        return {name: derive_identity(name, kind) for name, kind in columns}

    def makes(self, columns: Bounds) -> tuple[Bounds, Bound]:
        """See Operator."""
        results = {
            name: columns[call.argument.name]
            if isinstance(call.argument, Column) and call.type.kind in GROWING
            else Bound({}, FIXED_BYTES)
            for name, call in self.aggregates
        }
        outgoing = {key: columns[key] for key in self.keys} | results
        return outgoing, sum_bounds(outgoing.values())

    def explains(self) -> dict[str, Any]:
        """See Operator."""
        calls = {name: _text_of(call) for name, call in self.aggregates}
        return {"key": list(self.keys), "aggregate": calls, "emit": self.emit, "output": texts_of(self.output)}

    def describes(self) -> list[str]:
        """See Operator."""
        lines = [f"{name} = {_text_of(call)}" for name, call in self.aggregates]
        return [*lines, f"keyed state by {', '.join(self.keys)}; emit {self.emit}"]

    def open(self, slot: Slot) -> OperatorRuntime:
        """See StepOperator."""
        from tidegate.operators.kinds.aggregate.runtime import AggregateRuntime

        return AggregateRuntime(self, slot.max_parallelism, slot.open_state)


class AggregateKind(StepKind):
    """See StepKind."""

    word = "aggregate"
    needs: ClassVar[Mapping[str, str]] = {"key": "add it: the column or columns to group by"}
    settings = AggregateSettings

    def aggregates(self, step: AggregateSettings) -> Mapping[Path, str]:
        """See StepKind."""
        return {("aggregate", column): text for column, text in (step.aggregate or {}).items()}

    def build(self, step: AggregateSettings, context: StepContext) -> None:
        """See StepKind."""
        keys, texts = step.key or (), step.aggregate or {}
        usable = bool(keys)
        for index, key in enumerate(keys):
            usable = context.key(("key", index), key) and usable
        calls: dict[str, AggregateCall] = {}
        for column, text in texts.items():
            path = ("aggregate", column)
            if column in keys:
                context.problem(path, f"`{column}` is a key already", "give the total another name", at_key=True)
                continue
            call = context.aggregate(path, text)
            if call is not None:
                calls[column] = call
        if not usable or len(calls) < len(texts):
            return
        types = {key: context.columns[key] for key in keys} | {column: call.type for column, call in calls.items()}
        context.gives(types)
        inputs, plain = _derive_inputs(keys, calls, context.columns)
        context.add(make_projection(OperatorName(f"{context.name}.input"), inputs, context.policy))
        operator = AggregateOperator(
            context.name, keys, tuple(plain.items()), step.emit, tuple(types.items()), context.policy
        )
        context.add(operator, keys)


def _derive_inputs(
    keys: tuple[str, ...], calls: Mapping[str, AggregateCall], columns: Mapping[str, DataType]
) -> tuple[dict[str, Expression], dict[str, AggregateCall]]:
    """What crosses the exchange, and the aggregates over plain columns of it. Equal arguments are sent once."""
    inputs: dict[str, Expression] = {key: Column(key, columns[key]) for key in keys}
    plain: dict[str, AggregateCall] = {}
    for column, call in calls.items():
        if call.argument is None:
            plain[column] = call
            continue
        name = next((known for known, one in inputs.items() if one == call.argument), None)
        if name is None:
            name = call.argument.name if isinstance(call.argument, Column) else f"{column}.argument"
            while name in inputs:
                name += "_"
            inputs[name] = call.argument
        plain[column] = AggregateCall(call.function, Column(name, call.argument.type), call.type)
    return inputs, plain


def _digests_of(call: AggregateCall, columns: Mapping[str, str]) -> tuple[str, str]:
    return call.function, "*" if call.argument is None else digest_expression(call.argument, columns)


def _text_of(call: AggregateCall) -> str:
    return f"{call.function}({'*' if call.argument is None else text_of(call.argument)})"


KIND = AggregateKind()
