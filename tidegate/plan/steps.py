"""One declared source, step or sink -> logical operators, with every type checked against the schemas it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.config.checks import RAW_COLUMNS
from tidegate.config.errors import Problem
from tidegate.config.load import LoadedPipeline
from tidegate.config.models import SinkSettings, SourceSettings, StepSettings
from tidegate.config.properties import derive_client_properties
from tidegate.config.values import Path
from tidegate.datatypes import DataType
from tidegate.expressions.errors import ExpressionError
from tidegate.expressions.expression import AggregateCall, Column, Expression
from tidegate.expressions.parse import check_alone, parse_aggregate, parse_expression
from tidegate.formats.failures import BadRecordPolicy, combine_policies
from tidegate.ids import OperatorName
from tidegate.plan.graph import (
    AggregateOperator,
    FilterOperator,
    SelectOperator,
    SinkOperator,
    SourceOperator,
    UnionOperator,
)
from tidegate.plan.logical import LogicalGraph, LogicalNode
from tidegate.plan.scope import Declared
from tidegate.settings.secrets import reveal
from tidegate.settings.suggest import derive_suggestion

KEY_KINDS = frozenset(["boolean", "tinyint", "smallint", "int", "bigint", "string", "binary", "date", "timestamp"])
"""Types whose equality is exact: the same on every machine, in every format."""

UNWRITABLE = frozenset(["void", "interval"])
"""Types that exist inside expressions only."""


@dataclass(frozen=True, slots=True)
class PlacedExpression:
    """A typed expression and the text at `path` that it was written as."""

    path: Path
    text: str
    expression: Expression


@dataclass(slots=True)
class Builder:
    """Adds operators to `graph` and to `problems`; the other fields say what each name stands for."""

    loaded: LoadedPipeline
    graph: LogicalGraph = field(default_factory=dict)
    schemas: dict[str, dict[str, DataType]] = field(default_factory=dict)
    """Columns of every usable source and step; a name without an entry is not usable."""
    policies: dict[str, BadRecordPolicy] = field(default_factory=dict)
    """What happens to bad records of a name."""
    problems: list[Problem] = field(default_factory=list)
    expressions: list[PlacedExpression] = field(default_factory=list)

    def add(self, one: Declared) -> None:
        """A declared source, step or sink whose inputs were added before."""
        if isinstance(one.settings, SourceSettings):
            self._source(OperatorName(one.name), one.settings)
            return
        self.policies[one.name] = combine_policies(self.policies.get(name, BadRecordPolicy.FAIL) for name in one.inputs)
        columns = self._input_columns(one)
        if columns is None:
            self.look_alone(one)
        elif isinstance(one.settings, StepSettings):
            self._step(one, one.settings, columns)
        else:
            self._sink(one, one.settings, columns)

    def look_alone(self, one: Declared) -> None:
        """A step whose inputs are unusable: its columns are unknown, but not the grammar and functions it uses."""
        step = one.settings
        if not isinstance(step, StepSettings):
            return
        texts: dict[Path, str] = {("where",): step.where} if step.where is not None else {}
        texts |= {("select", column): text for column, text in (step.select or {}).items()}
        texts |= {("aggregate", column): text for column, text in (step.aggregate or {}).items()}
        for path, text in texts.items():
            try:
                check_alone(text, aggregate=path[0] == "aggregate")
            except ExpressionError as error:
                self._inside((*one.path, *path), text, error)

    def _problem(self, path: Path, message: str, remedy: str = "", *, at_key: bool = False) -> None:
        self.problems.append(self.loaded.problem(path, message, remedy, at_key=at_key))

    # -- sources and inputs --------------------------------------------------------------------------------------------

    def _source(self, name: OperatorName, source: SourceSettings) -> None:
        policy = self.policies[name] = BadRecordPolicy(source.bad_records)
        columns = source.schema_ or {}
        if source.format == "raw":
            columns = {word: kind for word, kind in RAW_COLUMNS.items() if not source.schema_ or word in source.schema_}
        if not columns or not source.all_topics:
            return
        self.schemas[name] = columns
        properties = derive_client_properties({**self.loaded.settings.kafka, **source.kafka}, "consumer")
        operator = SourceOperator(
            name=name,
            topics=source.all_topics,
            format=source.format,
            schema=tuple(columns.items()),
            output=tuple(columns.items()),
            start=source.start,
            until=source.until,
            bad_records=policy,
            kafka=reveal(properties),
        )
        self.graph[name] = LogicalNode(operator)

    def _input_columns(self, one: Declared) -> dict[str, DataType] | None:
        """The columns that arrive; None when an input is unusable or the inputs disagree."""
        first: dict[str, DataType] | None = None
        agreed = True
        for index, name in enumerate(one.inputs):
            columns = self.schemas.get(name)
            if columns is None:
                agreed = False
            elif first is None:
                first = columns
            elif message := _disagreement(one.inputs[0], first, name, columns):
                agreed = False
                remedy = "bring the inputs to the same columns with `select`"
                self._problem(one.input_path(index), message, remedy)
        return first if agreed else None

    def _upstream(self, one: Declared, columns: Mapping[str, DataType]) -> OperatorName:
        """The one operator to read: a generated union when there are several inputs."""
        if len(one.inputs) == 1:
            return OperatorName(one.inputs[0])
        name = OperatorName(f"{one.name}.union")
        inputs = tuple(map(OperatorName, one.inputs))
        self.graph[name] = LogicalNode(UnionOperator(name, tuple(columns.items()), self.policies[one.name]), inputs)
        return name

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _step(self, one: Declared, step: StepSettings, columns: dict[str, DataType]) -> None:
        if step.where is not None:
            self._filter(one, step.where, columns)
        elif step.select is not None:
            self._select(one, step.select, columns)
        elif step.aggregate is not None:
            if step.key is not None:
                self._aggregate(one, step.key, step.aggregate, step.emit, columns)
        elif len(one.inputs) > 1:
            name, inputs = OperatorName(one.name), tuple(map(OperatorName, one.inputs))
            self.graph[name] = LogicalNode(UnionOperator(name, tuple(columns.items()), self.policies[one.name]), inputs)
            self.schemas[name] = columns

    def _filter(self, one: Declared, text: str, columns: dict[str, DataType]) -> None:
        path = (*one.path, "where")
        self.schemas[one.name] = columns
        predicate = self._expression(path, text, columns)
        if predicate is None:
            return
        if predicate.type.kind != "boolean":
            self._problem(path, f"is {predicate.type}, not boolean", "compare it with something, for instance `x > 0`")
            return
        name = OperatorName(one.name)
        operator = FilterOperator(name, predicate, tuple(columns.items()), self.policies[one.name])
        self.graph[name] = LogicalNode(operator, (self._upstream(one, columns),))

    def _select(self, one: Declared, texts: Mapping[str, str], columns: dict[str, DataType]) -> None:
        made: dict[str, Expression] = {}
        for column, text in texts.items():
            path = (*one.path, "select", column)
            expression = self._expression(path, text, columns)
            if expression is not None and expression.type.kind in UNWRITABLE:
                self._problem(path, f"is {expression.type}: no column has that type", "cast it, for instance as string")
            elif expression is not None:
                made[column] = expression
        if len(made) < len(texts):
            return  # which columns there are is unknown: what reads this step is not looked at
        self.schemas[one.name] = {column: expression.type for column, expression in made.items()}
        name = OperatorName(one.name)
        self.graph[name] = LogicalNode(
            _projection(name, made, self.policies[one.name]), (self._upstream(one, columns),)
        )

    def _aggregate(
        self, one: Declared, keys: tuple[str, ...], texts: Mapping[str, str], emit: str, columns: dict[str, DataType]
    ) -> None:
        usable = True
        for key in keys:
            usable = self._key(self._list_path((*one.path, "key"), keys, key), key, columns) and usable
        calls: dict[str, AggregateCall] = {}
        for column, text in texts.items():
            path = (*one.path, "aggregate", column)
            if column in keys:
                self._problem(path, f"`{column}` is a key already", "give the total another name", at_key=True)
                continue
            try:
                call = calls[column] = parse_aggregate(text, columns)
            except ExpressionError as error:
                self._inside(path, text, error)
            else:
                if call.argument is not None:
                    self.expressions.append(PlacedExpression(path, text, call.argument))
        if not usable or len(calls) < len(texts):
            return
        types = {key: columns[key] for key in keys} | {column: call.type for column, call in calls.items()}
        self.schemas[one.name] = types
        inputs, plain = _aggregate_inputs(keys, calls, columns)
        name, upstream, policy = OperatorName(one.name), self._upstream(one, columns), self.policies[one.name]
        front = OperatorName(f"{one.name}.input")
        self.graph[front] = LogicalNode(_projection(front, inputs, policy), (upstream,))
        operator = AggregateOperator(name, keys, tuple(plain.items()), emit, tuple(types.items()), policy)
        self.graph[name] = LogicalNode(operator, (front,), keys)

    # -- sinks ---------------------------------------------------------------------------------------------------------

    def _sink(self, one: Declared, sink: SinkSettings, columns: dict[str, DataType]) -> None:
        key = sink.key
        if key is None and sink.format == "raw" and "key" in columns:
            key = "key"  # as it was read: a copy of a topic keeps its keys, and with them the order per key
        usable = key is None or self._key((*one.path, "key"), key, columns)
        if sink.timestamp is not None:
            path = (*one.path, "timestamp")
            kind = self._column(path, sink.timestamp, columns)
            if kind is not None and kind.kind not in ("timestamp", "bigint"):
                self._problem(path, f"`{sink.timestamp}` is {kind}", "use a timestamp, or a bigint in ms since 1970")
        written = tuple(columns.items())
        if sink.format == "raw":
            value = columns.get("value")
            if value is None or value.kind not in ("string", "binary"):
                message = "a raw sink writes the column `value`, " + (
                    f"which is {value}" if value else "which is not there"
                )
                self._problem((*one.path, "format"), message, "select a string or binary column `value`, or use json")
                return
            written = (("value", value),)
        if not usable:
            return
        name = OperatorName(one.name)
        properties = derive_client_properties({**self.loaded.settings.kafka, **sink.kafka}, "producer")
        policy = self.policies[one.name]
        operator = SinkOperator(
            name, sink.topic, sink.format, written, key, sink.timestamp, policy, kafka=reveal(properties)
        )
        self.graph[name] = LogicalNode(operator, (self._upstream(one, columns),))

    # -- expressions and columns ---------------------------------------------------------------------------------------

    def _expression(self, path: Path, text: str, columns: Mapping[str, DataType]) -> Expression | None:
        try:
            found = parse_expression(text, columns)
        except ExpressionError as error:
            self._inside(path, text, error)
            return None
        self.expressions.append(PlacedExpression(path, text, found))
        return found

    def _inside(self, path: Path, text: str, error: ExpressionError) -> None:
        found = self.loaded.problem_inside(path, text, error.line, error.column, error.problem, error.remedy)
        self.problems.append(found)

    def _column(self, path: Path, name: str, columns: Mapping[str, DataType]) -> DataType | None:
        if name not in columns:
            self._problem(path, f"there is no column `{name}`", derive_suggestion(name, columns))
        return columns.get(name)

    def _key(self, path: Path, name: str, columns: Mapping[str, DataType]) -> bool:
        kind = self._column(path, name, columns)
        if kind is not None and kind.kind not in KEY_KINDS:
            remedy = "cast it in a `select`, for instance to bigint or string"
            self._problem(path, f"`{name}` is {kind}, whose values cannot be compared exactly", remedy)
        return kind is not None and kind.kind in KEY_KINDS

    def _list_path(self, path: Path, names: tuple[str, ...], name: str) -> Path:
        return (*path, names.index(name))


def _projection(name: OperatorName, columns: Mapping[str, Expression], policy: BadRecordPolicy) -> SelectOperator:
    output = tuple((column, expression.type) for column, expression in columns.items())
    return SelectOperator(name, tuple(columns.items()), output, policy)


def _aggregate_inputs(
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


def _disagreement(first_name: str, first: Mapping[str, DataType], name: str, columns: Mapping[str, DataType]) -> str:
    for column in [*first, *(word for word in columns if word not in first)]:
        if column not in columns or column not in first:
            lacking, having = (name, first_name) if column not in columns else (first_name, name)
            return f"`{lacking}` has no column `{column}`, `{having}` has"
        if first[column] != columns[column]:
            return f"column `{column}` is {first[column]} in `{first_name}` and {columns[column]} in `{name}`"
    return ""
