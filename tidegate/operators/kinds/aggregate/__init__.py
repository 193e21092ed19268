"""`key` and `aggregate`: running totals per key."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec
from pydantic import Field
from typing_extensions import override

from tidegate.config.fields.base import Path, Settings
from tidegate.config.fields.steps import EACH, LATEST, EmitMode, Ttl, TtlKind
from tidegate.config.fields.types import Column as ColumnName
from tidegate.config.fields.types import ExpressionText, GroupKeys
from tidegate.datatypes import BIGINT, BOOLEAN, DataType
from tidegate.expressions.bounds import FIXED_BYTES, GROWING, Bound, Bounds, sum_bounds
from tidegate.expressions.expression import AggregateCall, Call, ColumnReference, Expression, Literal, can_fail
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName, StateName
from tidegate.operators.aggregates.contract import Aggregate, AggregateUse
from tidegate.operators.aggregates.registry import functions_for, make_aggregate
from tidegate.operators.builtin.kafka_source import DELETED
from tidegate.operators.builtin.projection import make_projection
from tidegate.operators.fingerprint import (
    EVENT_TIME,
    Lineage,
    Lineages,
    StateFingerprint,
    combine_digests,
    combine_times,
    digest,
    digest_expression,
)
from tidegate.operators.spec import Columns, Emits, Requirement, StepOperator
from tidegate.operators.step import StepContext, StepKind
from tidegate.state.declaration import (
    LASTS,
    Serializer,
    StateDeclaration,
    StateField,
    StateShape,
    total_parameter,
)
from tidegate.state.keygroups import KEY_HASH

TOTALS: Final = StateName("totals")
GROUPS: Final = StateName("groups")
"""The state of totals of changes: the number of rows in each group, and the accumulators of their values."""
_RESET_REMARK: Final = (
    "nothing is retracted: totals that were emitted stay in later steps and topics, and a retraction of a row that "
    "was counted before fails as INCONSISTENT_CHANGE; see `tidegate docs changes`"
)


class AggregateSettings(Settings):
    """The keys of an aggregate."""

    key: GroupKeys = None
    aggregate: Annotated[
        dict[ColumnName, ExpressionText] | None,
        Field(
            min_length=1,
            description="Per key, with `window` per key and window: `count(*)`, `sum(x)` ... "
            "(`tidegate docs expressions`).",
        ),
    ] = None
    emit: Annotated[
        EmitMode | None,
        Field(
            description="For running totals, `each`: a total per input record (the default); `latest`: the last "
            "one per key and batch, the only choice over changes. For windows, `on close`: a result when the "
            "window has ended (the default); `{every: 10s}` (1ms to 366d): also early results, every 10 s of "
            "event time in which a record has arrived; those of sessions have the column `_deleted boolean` "
            "(`tidegate docs windows`)."
        ),
    ] = None
    ttl: Annotated[
        TtlKind | None,
        Field(
            description="A key to which nothing is added for this long (1s to 365d) starts again, and its state "
            "is removed: `30d` or `{event_time: 30d}` by the event time of its records, `{processing_time: 30d}` "
            "by the clock. It may be added, changed and removed at any restart. Without it totals are kept "
            "forever."
        ),
    ] = None


class AggregateOperator(StepOperator, frozen=True, tag="aggregate"):
    """Running totals per key. Arguments are plain columns: the kind adds a select in front of the exchange."""

    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, AggregateCall], ...]  # each argument is a ColumnReference or None
    emit: str  # "each" | "latest"
    output: Columns
    bad_records: BadRecordPolicy
    ttl: Ttl | None = None
    use: ClassVar[AggregateUse] = AggregateUse.RUNNING

    @property
    def functions(self) -> list[Aggregate]:
        """New instances of the aggregates."""
        return [make_aggregate(name, call, self.use) for name, call in self.aggregates]

    @override
    def reads(self, port: int = 0) -> set[str]:
        return {*self.keys, *(name for _, call in self.aggregates for name in call.columns)}

    @override
    def preserves_record(self, output: str = "") -> bool:
        return False

    @override
    def made_from(self) -> Mapping[str, frozenset[str]]:
        return {name: frozenset(call.columns) for name, call in self.aggregates}

    @override
    def emits(self) -> Emits:
        return Emits.UPDATES

    @override
    def counts_updates(self) -> bool:
        return not all(one.picks_value for one in self.functions)

    @override
    def requires(self, port: int = 0) -> frozenset[Requirement]:
        by_time = self.ttl is not None and not self.ttl.processing
        return frozenset({Requirement.EVENT_TIME} if by_time else ())

    @override
    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        """Declares the accumulators of each key."""
        kinds = dict(self.output)
        functions = self.functions
        shape = StateShape(
            keys=tuple(StateField(key, kinds[key]) for key in self.keys),
            values=tuple(state_fields(functions)),
            key_hash=KEY_HASH,
            max_parallelism=max_parallelism,
            expires=self.ttl is not None,
            serializer=Serializer(
                parameters=encodings_of(functions) | ({} if self.ttl is None else {LASTS: self.ttl.lasts})
            ),
        )
        begins = zeros_of(one for one in functions if one.begins_late)
        optional = {f"{one.name}.{field.suffix}" for one in functions for field in one.fields if field.optional}
        return (StateDeclaration(TOTALS, shape, begins, frozenset(optional), in_columns=True),)

    @override
    def lineage(self, lineages: Lineages, output: str = "") -> Lineages:
        """Starts a new lineage, since everything that arrives becomes totals."""
        columns = {name: digest("total", self.name, self.emit, name) for name, _ in self.output}
        return (Lineage(self.name, columns, time=combine_times(self.name, lineages)),)

    @override
    def fingerprint(self, lineages: Lineages, port: int = 0) -> StateFingerprint:
        digests = derive_digests(lineages, self.keys, self.aggregates)
        times = ((one.origin, EVENT_TIME, one.time) for one in lineages if Requirement.EVENT_TIME in self.requires())
        return combine_digests(itertools.chain(digests, times))

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        outgoing = {key: columns[key] for key in self.keys} | bound_results(self.aggregates, columns)
        return outgoing, sum_bounds(outgoing.values())

    @override
    def describes(self) -> list[str]:
        lines = [f"{name} = {call.text}" for name, call in self.aggregates]
        ttl = "" if self.ttl is None else f"; ttl {self.ttl}"
        return [*lines, f"keyed state by {', '.join(self.keys)}; emit {self.emit}{ttl}"]


class ChangesOperator(AggregateOperator, frozen=True, tag="aggregate-changes"):
    """Running totals over changes, including retractions. The results are changes, with the column `_deleted`."""

    use: ClassVar[AggregateUse] = AggregateUse.CHANGES

    @override
    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        """Declares the groups first, then the values of extremes and distinct counts by their types.

        A total cannot be added while the groups have rows, because those could not be retracted from it.
        """
        kinds = dict(self.output)
        functions = self.functions
        shape = StateShape(
            keys=tuple(StateField(key, kinds[key]) for key in self.keys),
            values=(StateField("rows", BIGINT, nullable=False), *state_fields(functions)),
            key_hash=KEY_HASH,
            max_parallelism=max_parallelism,
            serializer=Serializer(parameters=encodings_of(functions)),
        )
        values = {one.name: one for one in (function.declare_values(shape) for function in functions) if one}
        groups = StateDeclaration(GROUPS, shape, needs_history=True, reset_remark=_RESET_REMARK)
        return (groups, *values.values())

    @override
    def requires(self, port: int = 0) -> frozenset[Requirement]:
        return frozenset({Requirement.ROW_KIND})

    @override
    def emits(self) -> Emits:
        return Emits.RETRACTIONS

    @override
    def unrepeatable(self) -> tuple[str, ...]:
        return (DELETED,)

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        """Counts two rows for each group: the one before and the one after."""
        outgoing, made = super().output_size(columns)
        return {**outgoing, DELETED: Bound({}, FIXED_BYTES)}, made + made

    @override
    def describes(self) -> list[str]:
        return [*super().describes(), "retracts rows; a group without rows is deleted"]


def state_fields(functions: Iterable[Aggregate]) -> Iterator[StateField]:
    """Yields the state fields for the accumulators of these aggregates."""
    for one in functions:
        for field in one.fields:
            yield StateField(f"{one.name}.{field.suffix}", field.type, field.nullable)


def zeros_of(functions: Iterable[Aggregate]) -> dict[str, Any]:
    """Returns the values of these fields without rows."""
    return {f"{one.name}.{field.suffix}": field.zero for one in functions for field in one.fields}


def encodings_of(functions: Iterable[Aggregate]) -> dict[str, str]:
    """Returns how values are encoded, for `Serializer.parameters`."""
    return {total_parameter(one.name): one.encoding for one in functions if one.encoding}


class AggregateKind(StepKind):
    """The kind of a step with `aggregate`."""

    key = "aggregate"
    examples = (
        "key: customer, aggregate: {n: count(*), most: max(amount), first: min(customer)}",
        "key: [customer, id], aggregate: {n: count(*)}, emit: latest",
    )
    needs: ClassVar[Mapping[str, str]] = {"key": "add it: the column or columns to group by"}
    settings = AggregateSettings

    @override
    def counts(self, step: Any) -> bool:
        return True

    @override
    def aggregates(self, step: AggregateSettings) -> Mapping[Path, str]:
        return {("aggregate", column): text for column, text in (step.aggregate or {}).items()}

    @override
    def build(self, step: AggregateSettings, context: StepContext) -> None:
        if step.emit not in (None, EACH, LATEST):
            remedy = "write each or latest, or add `window`"
            context.problem(("emit",), "this is for windows, not for running totals", remedy)
            return
        keys, calls = step.key or (), read_aggregates(step, context, CHANGED if context.changes else None)
        if calls is None or (context.changes and not _takes_back(step, calls, context)):
            return
        types = {key: context.columns[key] for key in keys} | {column: call.type for column, call in calls.items()}
        types |= CHANGED if context.changes else {}
        context.declare_columns(types)
        inputs, plain = derive_inputs(keys, calls, context.columns)
        context.add(make_projection(OperatorName(f"{context.name}.input"), inputs, context.policy))
        output, aggregates = tuple(types.items()), tuple(plain.items())
        if context.changes:
            operator: StepOperator = ChangesOperator(context.name, keys, aggregates, LATEST, output, context.policy)
        else:
            emit = step.emit or EACH
            operator = AggregateOperator(context.name, keys, aggregates, emit, output, context.policy, step.ttl)
        context.add(operator, keys)


CHANGED: Final[Mapping[str, DataType]] = {DELETED: BOOLEAN}
"""The columns of totals of changes besides the keys and the totals."""


def _takes_back(step: AggregateSettings, calls: Mapping[str, AggregateCall], context: StepContext) -> bool:
    """Returns True if these totals can be computed over changes. Reports those that cannot."""
    sound = True
    if step.emit == EACH:
        remedy = "remove it: over changes, there is one total per key and batch"
        context.problem(("emit",), "an update is two rows, and there is no total between them", remedy)
        sound = False
    if step.ttl is not None:
        remedy = "remove it: a group ends when its last row is deleted"
        context.problem(("ttl",), "a change may retract a row whose total has expired", remedy, at_key=True)
        sound = False
    for column, call in calls.items():
        if call.function not in functions_for(AggregateUse.CHANGES):
            context.problem(("aggregate", column), *_why_not(call))
            sound = False
    return sound


def _why_not(call: AggregateCall) -> tuple[str, str]:
    """Returns the message and the remedy for a function that is not supported over changes."""
    names = ", ".join(
        "count(distinct)" if name == "count_distinct" else name for name in sorted(functions_for(AggregateUse.CHANGES))
    )
    if call.function in ("first", "last"):
        reason, remedy = "the rows of a table have no order", f"use one of {names}, or read a topic of rows"
    elif call.function in ("collect_list", "collect_set"):
        reason = "this is not supported yet"
        remedy = "add the collected column to `key`: then each value has a row of its own"
    elif call.function in ("min_by", "max_by"):
        reason = "this is not supported yet"
        remedy = "use min or max of a text with both in it: max(concat(lpad(y, 20, '0'), ' ', x))"
    else:
        reason, remedy = "this is not supported yet", f"use one of {names}"
    return f"`{call.function}` cannot retract rows: {reason}", remedy


def read_aggregates(
    step: Any, context: StepContext, taken: Mapping[str, DataType] | None = None, *, windowed: bool = False
) -> dict[str, AggregateCall] | None:
    """Returns the typed aggregates of a step with `key` and `aggregate`, or None after reporting what is wrong.

    `taken`: names of columns that the step itself adds.
    """
    keys: tuple[str, ...] = step.key or ()
    texts: Mapping[str, str] = step.aggregate or {}
    own = taken or {}
    usable = bool(keys)
    for index, key in enumerate(keys):
        if key in own:
            there = key in context.columns
            remedy = "give it another name in a `select`" if there else "leave it out: every result has it"
            context.problem(("key", index), f"`{key}` is a column of the result", remedy)
            usable = False
        elif own and (total := next((one for one in texts if key.startswith(f"{one}.")), "")):
            remedy = "rename the key in a `select` before, or the total"
            context.problem(("key", index), f"`{key}` is reserved for a part of the total `{total}`", remedy)
            usable = False
        else:
            usable = context.key(("key", index), key) and usable
    calls: dict[str, AggregateCall] = {}
    for column, text in texts.items():
        path = ("aggregate", column)
        if column in keys or column in own:
            what = "a key" if column in keys else f"a column of {'every window' if windowed else 'totals of changes'}"
            context.problem(path, f"`{column}` is already {what}", "give the total another name", at_key=True)
            continue
        call = context.aggregate(path, text, windowed=windowed or bool(own))
        if call is not None:
            calls[column] = call
    return calls if usable and len(calls) == len(texts) else None


def derive_inputs(
    keys: tuple[str, ...],
    calls: Mapping[str, AggregateCall],
    columns: Mapping[str, DataType],
    also: Iterable[str] = (),
) -> tuple[dict[str, Expression], dict[str, AggregateCall]]:
    """Returns what crosses the exchange, and the aggregates over plain columns of it. Equal arguments are sent once.

    `also`: columns that cross it unchanged.
    """
    inputs: dict[str, Expression] = {key: ColumnReference(key, columns[key]) for key in (*keys, *also)}
    plain: dict[str, AggregateCall] = {}
    for column, call in calls.items():
        settled = call.others if call.function == "percentile_approx" else ()  # its percentage is not a column
        needed = (_where_needed(one, call.condition) for one in call.arguments if one not in settled)
        found = tuple(_input_of(f"{column}.argument", one, inputs) for one in needed)
        condition = None if call.condition is None else _input_of(f"{column}.condition", call.condition, inputs)
        argument = found[0] if found else None
        others = found[1:] or settled
        plain[column] = msgspec.structs.replace(call, argument=argument, others=others, condition=condition)
    return inputs, plain


def _where_needed(argument: Expression, condition: Expression | None) -> Expression:
    """Returns an argument that cannot fail for rows that FILTER excludes."""
    if condition is None or not can_fail(argument):
        return argument
    return Call("case", (condition, argument, Literal(None, argument.type)), argument.type)


def _input_of(name: str, argument: Expression, inputs: dict[str, Expression]) -> Expression:
    """Returns the plain column of an argument. Adds it to `inputs` as `name` unless it is already there."""
    for known, one in inputs.items():
        if one == argument:
            return ColumnReference(known, argument.type)
    if isinstance(argument, ColumnReference):
        name = argument.name
    while name in inputs:
        name += "_"
    inputs[name] = argument
    return ColumnReference(name, argument.type)


def derive_digests(
    lineages: Lineages, keys: Iterable[str], aggregates: Iterable[tuple[str, AggregateCall]]
) -> Iterator[tuple[str, str, str]]:
    """Yields digests of the selection of records, the keys and the aggregates of a step, for `combine_digests`."""
    calls = list(aggregates)
    for branch in lineages:
        conditions = digest("conditions", *sorted(branch.conditions))
        several = sum(other.origin == branch.origin for other in lineages) > 1
        ways = (conditions,) if several else ()  # with several paths, the path of a value is part of its meaning
        yield branch.origin, "the choice of records", conditions
        for key in keys:
            yield branch.origin, f"key `{key}`", digest("key", branch.columns[key], *ways)
        for name, call in calls:
            yield branch.origin, f"`{name}`", digest("aggregate", *digests_of(call, branch.columns), *ways)


def bound_results(aggregates: Iterable[tuple[str, AggregateCall]], columns: Bounds) -> dict[str, Bound]:
    """Returns the sizes of results. A result that is an input value is at most as large as its argument."""
    return {
        name: columns[call.argument.name]
        if isinstance(call.argument, ColumnReference) and call.type.kind in GROWING
        else Bound({}, FIXED_BYTES)
        for name, call in aggregates
    }


def digests_of(call: AggregateCall, columns: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the parts that determine the meaning of an aggregate."""
    digests = [call.function, *([digest_expression(one, columns) for one in call.arguments] or ["*"])]
    if call.condition is not None:
        digests += ["filter", digest_expression(call.condition, columns)]
    return *digests, *(["ignore nulls"] if call.ignore_nulls else [])


KIND = AggregateKind()
