"""Turns each source, step and sink into logical operators, checking every type against the schemas it reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import starmap

import msgspec

from tidegate.config.clusters import properties_of
from tidegate.config.errors import Problem
from tidegate.config.fields.base import Path
from tidegate.config.fields.records import TimestampUnits
from tidegate.config.fields.schemas import NamedSchema
from tidegate.config.fields.secrets import reveal
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.load import LoadedPipeline
from tidegate.config.models import SinkSettings, SourceSettings, StepSettings, read_section
from tidegate.config.properties import derive_client_properties
from tidegate.datatypes import BOOLEAN, STRING, DataType, map_of
from tidegate.expressions.errors import ExpressionError
from tidegate.expressions.expression import AggregateCall, ColumnReference, Expression, columns_of
from tidegate.expressions.parse import check_alone, parse_aggregate, parse_expression, parse_qualified
from tidegate.expressions.secrets import KeyUnusable, derive_key_bytes, find_secrets, name_and_form
from tidegate.expressions.typing_rules import common_type, derive_condition_remedy, with_type
from tidegate.formats import keys
from tidegate.formats.contract import FormatRefusal
from tidegate.formats.failures import BadRecordPolicy, combine_policies
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import FormatOptions, IdPlace, UnknownFields
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import DELETED, SKIP, TOMBSTONE, SourceOperator
from tidegate.operators.builtin.keyed_input import UNMATCHED, make_keyed_input
from tidegate.operators.builtin.projection import make_projection
from tidegate.operators.builtin.union import UnionOperator
from tidegate.operators.mistakes import Port, check_given, check_operator
from tidegate.operators.registry import choose_step_kind, step_kinds
from tidegate.operators.spec import LATE, Emits, Operator, RowKey
from tidegate.operators.step import NEEDS_RETRACTION, ColumnOrigin, InputContext, MatchedKeys, NamedInput, StepKind
from tidegate.plan.logical import Input, LogicalGraph, LogicalNode
from tidegate.plan.record_parts import (
    SinkParts,
    derive_event_time,
    derive_key,
    derive_metadata,
    derive_written_key,
    derive_written_schema,
)
from tidegate.plan.scope import Declared
from tidegate.plan.unions import derive_columns, derive_projection, find_disagreements
from tidegate.state.declaration import ORDERED_KINDS
from tidegate.user_code.describe import CodeDescription

KEY_KINDS = ORDERED_KINDS
"""Types whose equality is exact: the same on every machine, in every format."""


@dataclass(frozen=True, slots=True)
class PlacedExpression:
    """A typed expression, and the text at `path` from which it was parsed."""

    path: Path
    text: str
    expression: Expression


@dataclass(slots=True)
class Builder:
    """Adds operators to `graph` and to `problems`; the other fields describe each name."""

    loaded: LoadedPipeline
    graph: LogicalGraph = field(default_factory=dict)
    reads: dict[str, tuple[Input, ...]] = field(default_factory=dict)
    """The outputs that each step and sink reads, in the order of its inputs."""
    schemas: dict[str, dict[str, DataType]] = field(default_factory=dict)
    """Columns of every usable source and step; a name without an entry is not usable."""
    policies: dict[str, BadRecordPolicy] = field(default_factory=dict)
    """The policy for bad records, by name."""
    changelogs: dict[str, str] = field(default_factory=dict)
    """Sources and steps whose rows are changes of a table -> the source that they come from."""
    corrections: dict[str, str] = field(default_factory=dict)
    """Steps whose rows are results, some of which are retracted -> the step that retracts them."""
    repeats: dict[str, str] = field(default_factory=dict)
    """Steps whose rows are results, some of which are emitted again -> the step that emits them."""
    problems: list[Problem] = field(default_factory=list)
    warnings: list[tuple[str, Problem]] = field(default_factory=list)
    """Warnings with the name of the step that each concerns."""
    expressions: list[PlacedExpression] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    """The secrets that expressions name."""

    def add(self, one: Declared) -> None:
        """Adds a source, step or sink whose inputs were added before."""
        if isinstance(one.settings, SourceSettings):
            self._source(OperatorName(one.name), one.settings)
            return
        self.policies[one.name] = combine_policies(self.policies.get(name, BadRecordPolicy.FAIL) for name in one.inputs)
        results = [named.upstream for named in one.named if not named.operator] if one.named else one.inputs
        bases = [name.partition(".")[0] for name in results]
        given = [] if one.late_of else bases
        for known, names in ((self.changelogs, bases), (self.corrections, given), (self.repeats, given)):
            origin = next((known[name] for name in names if name in known), None)
            if origin is not None:
                known[one.name] = origin
        columns = self._input_columns(one)
        if columns is None:
            self.check_alone(one)
        elif isinstance(one.settings, StepSettings):
            self._step(one, one.settings, columns)
        else:
            self._sink(one, one.settings, columns)

    def check_alone(self, one: Declared) -> None:
        """Checks grammar, functions and user code of a step whose inputs are unusable, so that it has no columns."""
        step = one.settings
        if isinstance(step, SinkSettings) and step.headers is not None:
            for header, text in step.headers.add.items():
                self._alone((*one.path, "headers", "add", header), text)
        if isinstance(step, SinkSettings) and not isinstance(step.topic, str):
            self._alone((*one.path, "topic", "expression"), step.topic.expression)
        if not isinstance(step, StepSettings):
            return
        for kind in step_kinds():
            texts = [(path, text, False) for path, text in kind.expressions(step).items()]
            texts += [(path, text, True) for path, text in kind.aggregates(step).items()]
            for path, text, aggregate in texts:
                self._alone((*one.path, *path), text, aggregate=aggregate)
        for path, reference in choose_step_kind(step).code(step).items():
            self.code((*one.path, *path), reference)

    def _alone(self, path: Path, text: str, *, aggregate: bool = False) -> None:
        try:
            check_alone(text, aggregate=aggregate)
        except ExpressionError as error:
            self._inside(path, text, error)

    def code(self, path: Path, reference: str) -> CodeDescription | None:
        """Returns what a reference to user code names; None if it cannot be used, which is reported."""
        assert self.loaded.code is not None, "resolve_code comes first"
        found = self.loaded.code.found[reference]
        if isinstance(found, CodeDescription):
            return found
        self.problem(path, found.message, found.remedy)
        return None

    def problem(self, path: Path, message: str, remedy: str = "", *, at_key: bool = False) -> None:
        """Reports a problem at a path of the file."""
        self.problems.append(self.loaded.problem(path, message, remedy, at_key=at_key))

    # -- sources and inputs --------------------------------------------------------------------------------------------

    def _source(self, name: OperatorName, source: SourceSettings) -> None:
        record_format = FORMATS[source.format]
        if record_format.is_changelog:
            self.changelogs[name] = name
        policy = self.policies[name] = BadRecordPolicy(source.bad_records)
        unknown = source.unknown_fields
        schema = self.loaded.schemas.get(("sources", name, "schema"))
        options = FormatOptions(schema, IdPlace(source.schema_id), UnknownFields(unknown.what), unknown.column)
        units = source.written_as.timestamps or TimestampUnits()
        options = msgspec.structs.replace(
            options,
            timestamps=units.unit,
            timestamps_of=units.by_column,
            decimals=source.written_as.decimals or "",
            settings=read_section(source),
        )
        values = self._source_columns(name, source, options)
        if not values or not (source.all_topics or source.pattern):
            return
        key_kind, key_options, problems = derive_key(
            name, source, self.loaded.schemas.get(("sources", name, "key_schema"))
        )
        metadata, more = derive_metadata(name, source, values, key_kind)
        problems += more
        for path, message, remedy in problems:
            self.problem(path, message, remedy, at_key=path[-1] == "on_null")
        deleted = {DELETED: BOOLEAN} if source.on_null == TOMBSTONE else {}
        columns = {**values, **{one.name: one.type for one in metadata}, **deleted}
        self.schemas[name] = columns
        of_cluster = properties_of(self.loaded.settings, source.cluster)
        properties = derive_client_properties({**of_cluster, **source.kafka}, "consumer")
        operator = SourceOperator(
            name=name,
            topics=source.all_topics,
            format=source.format,
            schema=tuple(values.items()),
            output=tuple(columns.items()),
            start=source.start,
            until=source.until,
            bad_records=policy,
            kafka=reveal(properties),
            event_time=derive_event_time(self, name, source, columns),
            options=options,
            on_lost_input=source.on_lost_input,
            pattern=source.pattern or "",
            metadata=metadata,
            key_format=source.key_format or keys.TEXT,
            key_options=key_options,
            cluster=source.cluster,
            on_null=source.on_null or (SKIP if record_format.is_changelog else ""),
        )
        self.graph[name] = LogicalNode(operator)

    def _source_columns(self, name: str, source: SourceSettings, options: FormatOptions) -> dict[str, DataType]:
        """Returns the columns of a source's values; empty if they are unknown, which is reported."""
        record_format = FORMATS[source.format]
        try:
            if not isinstance(source.schema_, NamedSchema):
                columns = dict(record_format.read_columns(source.schema_ or {}, options))
                return columns | ({options.rest: map_of(STRING, STRING)} if options.rest and columns else {})
            if options.schema is None or options.schema.kind is not record_format.schema_kind:
                return {}
            return dict(record_format.schema_columns(options.schema))
        except FormatRefusal as refusal:
            place = (source.format, refusal.setting) if refusal.setting else ("schema",)
            self.problem(("sources", name, *place), refusal.message, refusal.remedy)
            return {}

    def _input_columns(self, one: Declared) -> dict[str, DataType] | None:
        """Returns the input columns: of the only input, of the first one if inputs are named, otherwise of the union.

        None if an input is unusable, or if several inputs in `from` have columns that do not fit together.
        """
        names = _names_read(one)
        inputs = {name: self.schemas[name] for name in names if name in self.schemas}
        mode = one.settings.columns if isinstance(one.settings, StepSettings) else None
        problems = [] if one.named or not inputs else list(find_disagreements(inputs, mode))
        for found in problems:
            self.problem(one.input_path(names.index(found.name)), found.message, found.remedy)
        if problems or not inputs or len(inputs) < len({*names}):
            return None
        if one.named:
            self.reads[one.name] = _inputs_of(one)
            return inputs[names[0]]
        columns = derive_columns(inputs, mode)
        self.reads[one.name] = tuple(
            self._project(one, name, read, derive_projection(inputs[name], columns))
            for name, read in zip(names, _inputs_of(one), strict=True)
        )
        return columns

    def _project(self, one: Declared, name: str, read: Input, projection: Mapping[str, Expression] | None) -> Input:
        """Returns an input of a union: the output that it names, or a projection of it."""
        if projection is None:
            return read
        before = make_projection(OperatorName(f"{one.name}.columns.{name}"), projection, self.policies[one.name])
        self.graph[before.name] = LogicalNode(before, (read,))
        return Input(before.name)

    def upstream(self, one: Declared, columns: Mapping[str, DataType], keys: tuple[str, ...] = ()) -> Input:
        """Returns the single output to read: that of a generated union if there are several inputs."""
        if len(one.inputs) == 1 and not one.late_of:
            (only,) = self.reads[one.name]
            return replace(only, keys=keys)
        name = OperatorName(f"{one.name}.union")
        self.graph[name] = LogicalNode(
            UnionOperator(name, tuple(columns.items()), self.policies[one.name]), self.reads[one.name]
        )
        return Input(name, keys=keys)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _step(self, one: Declared, step: StepSettings, columns: dict[str, DataType]) -> None:
        kind = choose_step_kind(step)
        source = self.changelogs.get(one.name)
        if source is not None and (reason := kind.refuses_changes(step)):
            message = f"`{kind.key}` of the inserts, updates and deletes of `{source}` {reason}"
            remedy = "read a topic of rows; `tidegate docs changes` has the steps that take changes"
            self.problem((*one.path, kind.key), message, remedy, at_key=True)
        self._refuse_repeats(one, step, kind)
        if all(getattr(step, key) is not None for key in kind.needs):  # otherwise reported by the checks of the file
            context = _Context(self, one, columns)
            kind.build(step, context)
            context.check()

    def _refuse_repeats(self, one: Declared, step: StepSettings, kind: StepKind) -> None:
        """Refuses a step that would count a result twice or cannot retract one."""
        of, counts = self.repeats.get(one.name), kind.counts(step)
        if of is None:
            return
        if one.name in self.corrections and (counts or kind.refuses_changes(step)):
            reason = NEEDS_RETRACTION if counts else kind.refuses_changes(step)
            message = f"`{kind.key}` of the results of `{of}`, which later records correct, {reason}"
        elif counts:
            message = f"`{kind.key}` of the results of `{of}`, which are emitted again, would count each of them"
        else:
            return
        remedy = f"remove `allowed_lateness` and `emit` of `{of}`, or read a step like it without them"
        self.problem((*one.path, kind.key), message, remedy, at_key=True)

    # -- sinks ---------------------------------------------------------------------------------------------------------

    def _sink(self, one: Declared, sink: SinkSettings, columns: dict[str, DataType]) -> None:
        record_format, settings = FORMATS[sink.format], read_section(sink)
        parts = SinkParts(self, one, sink, columns, self.reads[one.name])
        usable = parts.check()
        deleted = None if sink.on_null is None else sink.on_null.column
        try:
            left = {name: kind for name, kind in columns.items() if name != deleted}
            written = tuple(record_format.written_columns(left, FormatOptions(settings=settings)).items())
        except FormatRefusal as refusal:
            place = (sink.format, refusal.setting) if refusal.setting else ("format",)
            self.problem((*one.path, *place), refusal.message, refusal.remedy)
            return
        written_with = derive_written_schema(self, one, sink, dict(written))
        key_with = derive_written_key(self, one, sink, columns.get(parts.key or ""))
        if not usable or written_with is None or key_with is None or parts.topic is None:
            return
        name = OperatorName(one.name)
        reads = self.reads[one.name] if len(one.late_of) == 1 else (self.upstream(one, columns),)
        if len(parts.inputs) > len(columns):
            before = make_projection(OperatorName(f"{name}.{parts.made}"), parts.inputs, self.policies[one.name])
            self.graph[before.name] = LogicalNode(before, reads)
            reads = (Input(before.name),)
        of_cluster = properties_of(self.loaded.settings, sink.cluster)
        properties = derive_client_properties({**of_cluster, **sink.kafka}, "producer")
        operator = SinkOperator(
            name,
            parts.topic,
            sink.format,
            written,
            parts.key,
            sink.timestamp,
            self.policies[one.name],
            kafka=reveal(properties),
            options=msgspec.structs.replace(written_with.options, settings=settings),
            register=written_with.register,
            key_format=parts.key_format,
            partition=sink.partition,
            deleted=deleted,
            headers=parts.headers,
            key_options=key_with.options,
            key_register=key_with.register,
            cluster=sink.cluster,
        )
        self.graph[name] = LogicalNode(operator, reads)

    # -- expressions and columns ---------------------------------------------------------------------------------------

    def expression(
        self, path: Path, text: str, columns: Mapping[str, DataType], *, condition: bool = False
    ) -> Expression | None:
        """Parses and types an expression; None if it is invalid, which is reported."""
        return self._parsed(path, text, lambda: parse_expression(text, columns), condition=condition)

    def qualified(
        self,
        path: Path,
        text: str,
        inputs: Mapping[str, Mapping[str, DataType]],
        columns: Mapping[str, DataType],
        *,
        condition: bool = False,
    ) -> Expression | None:
        """Parses and types an expression over columns of named inputs; None if it is invalid, which is reported."""
        return self._parsed(path, text, lambda: parse_qualified(text, inputs, columns), condition=condition)

    def _parsed(self, path: Path, text: str, parse: Callable[[], Expression], *, condition: bool) -> Expression | None:
        try:
            found = parse()
        except ExpressionError as error:
            self._inside(path, text, error)
            return None
        self.expressions.append(PlacedExpression(path, text, found))
        if not self._secrets_sound(path, found):
            return None
        if condition and found.type.kind != "boolean":
            self.problem(path, f"is {found.type}, not boolean", derive_condition_remedy(found))
            return None
        return found

    def aggregate(
        self, path: Path, text: str, columns: Mapping[str, DataType], *, windowed: bool
    ) -> AggregateCall | None:
        """Parses and types an aggregate; None if it is invalid, which is reported."""
        try:
            call = parse_aggregate(text, columns, windowed=windowed)
        except ExpressionError as error:
            self._inside(path, text, error)
            return None
        self.expressions += [PlacedExpression(path, text, one) for one in call.expressions]
        return call if all(self._secrets_sound(path, one) for one in call.expressions) else None

    def _secrets_sound(self, path: Path, expression: Expression) -> bool:
        """Tells whether all `secret(...)` are existing keys; reports the others and records the valid ones."""
        given, problems, sound = self.loaded.settings.secrets, len(self.problems), True
        for call, is_key in find_secrets(expression):
            name, form = name_and_form(call)
            if not is_key:
                remedy = "write it as the key of aes_encrypt or aes_decrypt"
                self.problem(path, f"`secret('{name}')` would be visible: a secret cannot be a value", remedy)
            elif name not in given and name in self._written_secrets():
                sound = False  # that it cannot be read is reported at its own path
            elif name not in given:
                remedy = derive_suggestion(name, given, otherwise=f"add `{name}: ${{file:...}}` to `secrets`")
                self.problem(path, f"there is no secret `{name}`", remedy)
            else:
                text = given[name].get_secret_value()
                try:
                    derive_key_bytes(text, form)
                except KeyUnusable as error:
                    remedy = "correct the file, or name its encoding: secret('name', 'base64') or 'hex'"
                    self.problem(path, f"secret `{name}` is not a key: {error}", remedy)
                self.secrets[name] = text
        return sound and len(self.problems) == problems

    def _written_secrets(self) -> Collection[str]:
        """Returns the names of secrets in the file, readable or not."""
        written = self.loaded.values.get("secrets") if isinstance(self.loaded.values, dict) else None
        return written if isinstance(written, dict) else ()

    def _inside(self, path: Path, text: str, error: ExpressionError) -> None:
        found = self.loaded.problem_inside(path, text, error.line, error.column, error.problem, error.remedy)
        self.problems.append(found)

    def column(self, path: Path, name: str, columns: Mapping[str, DataType]) -> DataType | None:
        """Returns the type of a column; None if there is no such column, which is reported."""
        if name not in columns:
            self.problem(path, f"there is no column `{name}`", derive_suggestion(name, columns))
        return columns.get(name)

    def moment(self, path: Path, name: str, columns: Mapping[str, DataType]) -> None:
        """Reports a column that does not exist or holds no points in time."""
        kind = self.column(path, name, columns)
        if kind is not None and kind.kind not in ("timestamp", "bigint"):
            self.problem(path, f"`{name}` is {kind}", "use a timestamp, or a bigint in ms since 1970")

    def key(self, path: Path, name: str, columns: Mapping[str, DataType]) -> bool:
        """Tells whether rows can be partitioned by a column; if not, reports it."""
        kind = self.column(path, name, columns)
        if kind is not None and kind.kind not in KEY_KINDS:
            remedy = "cast it in a `select`, for instance to bigint or string"
            self.problem(path, f"`{name}` is {kind}, whose values cannot be compared exactly", remedy)
        return kind is not None and kind.kind in KEY_KINDS


class _Input:
    """One input of a step while the step is built; `names` are the sources or steps that it reads, as written."""

    def __init__(self, builder: Builder, one: Declared, names: Sequence[str], columns: Mapping[str, DataType]) -> None:
        self.columns = columns
        self.policy = combine_policies(builder.policies.get(name, BadRecordPolicy.FAIL) for name in names)
        self.changes = any(name.partition(".")[0] in builder.changelogs for name in names)
        self._builder = builder
        self._one = one
        reads = zip(_names_read(one), builder.reads[one.name], strict=True)
        self._reads = tuple(read for name, read in reads if name in names)

    def expression(self, path: Path, text: str, *, condition: bool = False) -> Expression | None:
        return self._builder.expression((*self._one.path, *path), text, self.columns, condition=condition)

    def aggregate(self, path: Path, text: str, *, windowed: bool = False) -> AggregateCall | None:
        return self._builder.aggregate((*self._one.path, *path), text, self.columns, windowed=windowed)

    def column(self, path: Path, name: str) -> DataType | None:
        return self._builder.column((*self._one.path, *path), name, self.columns)

    def key(self, path: Path, name: str) -> bool:
        return self._builder.key((*self._one.path, *path), name, self.columns)

    def is_window_bound(self, column: str) -> bool:
        return _is_window_bound(self._builder.graph, self._reads, column)

    @property
    def row_key(self) -> RowKey | None:
        return self._builder.graph[self._reads[0].upstream].operator.row_key()

    def origins(self, *columns: str) -> tuple[ColumnOrigin, ...]:
        return tuple(_origins(self._builder.graph, self._reads, frozenset(columns)))

    @property
    def has_event_time(self) -> bool:
        return _has_event_time(self._builder.graph, self._reads)

    @property
    def in_partition_order(self) -> bool:
        return _is_in_partition_order(self._builder.graph, self._reads)


class _Context(_Input):
    """One step while it is built."""

    def __init__(self, builder: Builder, one: Declared, columns: Mapping[str, DataType]) -> None:
        super().__init__(builder, one, _names_read(one), columns)
        self.name = OperatorName(one.name)
        self.several = len(one.inputs) > 1
        self._named = {
            named.alias: _Input(builder, one, (named.reads,), builder.schemas[named.reads]) for named in one.named
        }
        self._ports = dict(zip(self._named, ([read] for read in builder.reads[one.name]), strict=False))
        """The outputs that arrive on the port of each named input."""
        self._code = choose_step_kind(one.settings).code(one.settings) if isinstance(one.settings, StepSettings) else {}
        self._last: OperatorName | None = None
        self._given: dict[str, Mapping[str, DataType]] = {}

    def of(self, alias: str) -> InputContext:
        return self._named[alias]

    def qualified(
        self,
        path: Path,
        text: str,
        aliases: Collection[str],
        columns: Mapping[str, DataType] | None = None,
        *,
        condition: bool = False,
    ) -> Expression | None:
        inputs = {alias: one.columns for alias, one in self._named.items() if alias in aliases}
        return self._builder.qualified((*self._one.path, *path), text, inputs, columns or {}, condition=condition)

    def problem(self, path: Path, message: str, remedy: str = "", *, at_key: bool = False) -> None:
        self._builder.problem((*self._one.path, *path), message, remedy, at_key=at_key)

    def warn(self, path: Path, message: str, remedy: str = "", *, at_key: bool = False) -> None:
        found = self._builder.loaded.problem((*self._one.path, *path), message, remedy, at_key=at_key)
        self._builder.warnings.append((self.name, found))

    def code(self, path: Path) -> CodeDescription | None:
        return self._builder.code((*self._one.path, *path), self._code[path])

    def declare_columns(self, columns: Mapping[str, DataType], output: str = "") -> None:
        name = f"{self.name}.{output}" if output else self.name
        self._given[output] = columns
        self._builder.schemas[name] = dict(columns)
        self._builder.policies[name] = self.policy

    def match_keys(self, keys: Mapping[Path, Mapping[str, str]], preserved: Collection[str] = ()) -> MatchedKeys | None:
        types = [self._match(path, columns) for path, columns in keys.items()]
        matched = [kind for kind in types if kind is not None]
        if len(matched) < len(types):
            return None
        found: dict[str, tuple[str, ...]] = {}
        for alias, one in self._named.items():
            columns: dict[str, Expression] = {name: ColumnReference(name, kind) for name, kind in one.columns.items()}
            names = [columns_by[alias] for columns_by in keys.values()]
            found[alias] = tuple(starmap(partial(_put_key, columns), zip(names, matched, strict=True)))
            before = OperatorName(f"{self.name}.{alias}")
            operator = make_keyed_input(before, columns, found[alias], one.policy, preserved=alias in preserved)
            self._builder.graph[before] = LogicalNode(operator, tuple(self._ports[alias]))
            self._ports[alias] = [Input(before, output) for output in ("", *operator.side_outputs())]
        return MatchedKeys(found, tuple(matched))

    def _match(self, path: Path, columns: Mapping[str, str]) -> DataType | None:
        """Returns the common type of a key on all inputs; None if there is none, which is reported."""
        usable = [self._named[alias].key(path, name) for alias, name in columns.items()]
        if not all(usable):
            return None
        types = [self._named[alias].columns[name] for alias, name in columns.items()]
        found: DataType | None = types[0]
        for kind in types[1:]:
            found = found and common_type(found, kind)
        if found is None or found.kind not in KEY_KINDS:
            texts = " and ".join(
                f"`{name}` of `{alias}` is {kind}" for (alias, name), kind in zip(columns.items(), types, strict=True)
            )
            self.problem(path, f"{texts}: their values cannot be compared exactly", "cast one of them in a `select`")
            return None
        return found

    def add(self, operator: Operator, keys: tuple[str, ...] | Mapping[str, tuple[str, ...]] = ()) -> None:
        if not isinstance(keys, tuple):
            inputs = tuple(
                replace(read, port=port, alias=alias, keys=() if read.output == UNMATCHED else keys.get(alias, ()))
                for port, (alias, reads) in enumerate(self._ports.items())
                for read in reads
            )
        elif self._last is not None:
            inputs = (Input(self._last, keys=keys),)
        elif operator.JOINS:
            inputs = self._builder.reads[self._one.name]
        else:
            inputs = (self._builder.upstream(self._one, self.columns, keys),)
        if all(one.upstream in self._builder.graph for one in inputs):  # omits inputs that have a problem of their own
            check_operator(operator, _ports_of(self._builder.graph, inputs))
        self._builder.graph[operator.name] = LogicalNode(operator, inputs)
        self._last = operator.name
        if self._named and operator.preserves_record():  # the records go on that arrived on port 0
            self._builder.policies[self.name] = next(iter(self._named.values())).policy
        if operator.name != self.name:  # a named input of another step may read it
            self._builder.schemas[operator.name] = dict(operator.output_columns())
            self._builder.policies[operator.name] = self.policy
        if operator.emits() is Emits.RETRACTIONS:
            self._builder.changelogs.setdefault(self.name, self.name)
        if operator.emits() in (Emits.REVISIONS, Emits.CORRECTIONS):
            self._builder.repeats[self.name] = self.name
        if operator.emits() is Emits.CORRECTIONS:
            self._builder.corrections[self.name] = self.name

    def check(self) -> None:
        """Checks the columns declared to readers against the last operator, if any. Raises OperatorMistake."""
        if self._last is not None:
            check_given(self._builder.graph[self._last].operator, self._given)


def _ports_of(graph: LogicalGraph, inputs: Iterable[Input]) -> dict[int, Port]:
    ports: dict[int, Port] = {}
    for one in inputs:
        keys = one.keys or (ports[one.port].keys if one.port in ports else ())
        ports[one.port] = Port(graph[one.upstream].operator.output_columns(one.output), keys)
    return ports


def _put_key(columns: dict[str, Expression], name: str, kind: DataType) -> str:
    """Returns the column that holds a key as this type, adding one to `columns` if necessary."""
    key = with_type(0, columns[name], kind)
    if key == columns[name]:
        return name
    made = f"{name}.key"
    while made in columns:
        made += "_"
    columns[made] = key
    return made


def _is_window_bound(graph: LogicalGraph, inputs: Iterable[Input], column: str) -> bool:
    """Tells whether a column is the unchanged bound of a window on every path.

    A path without a window carries plain records.
    """
    ways = [(one, graph[one.upstream]) for one in inputs]
    return bool(ways) and all(_is_bound_after(graph, one.output, node, column) for one, node in ways)


def _is_bound_after(graph: LogicalGraph, output: str, node: LogicalNode, column: str) -> bool:
    operator = node.operator
    if operator.window_columns():
        return output != LATE and column in operator.window_columns()
    computed = operator.computes().get(column)
    if computed is not None and not isinstance(computed, ColumnReference):
        return False
    return _is_window_bound(graph, node.inputs, column if computed is None else computed.name)


def _origins(
    graph: LogicalGraph, inputs: Iterable[Input], columns: frozenset[str], *, chosen: bool = False
) -> Iterator[ColumnOrigin]:
    for one in inputs:
        node = graph.get(one.upstream)
        if node is None:  # it has a problem of its own
            continue
        operator = node.operator
        results = operator.emits() is Emits.LATEST or not operator.preserves_record(one.output)
        if results or not node.inputs:
            yield ColumnOrigin(operator, columns, chosen)
            continue
        computed = operator.computes()
        above = (columns_of(computed[name]) if name in computed else {name} for name in columns)
        chosen_here = chosen or operator.selects_by() is not None
        yield from _origins(graph, node.passing(one.output), frozenset().union(*above), chosen=chosen_here)


def _names_read(one: Declared) -> tuple[str, ...]:
    """Returns the names of the outputs and operators that it reads."""
    return tuple(named.reads for named in one.named) or one.inputs


def _has_event_time(graph: LogicalGraph, inputs: Iterable[Input]) -> bool:
    """Returns whether the event time of all rows is declared; inputs with a problem of their own do not count."""
    for one in inputs:
        node = graph.get(one.upstream)
        if node is None or node.operator.ASSIGNS_TIME:
            continue
        if isinstance(node.operator, SourceOperator):
            time = node.operator.event_time
            if time is None or not (time.text or time.arrival):
                return False
        elif not _has_event_time(graph, node.passing(one.output)):
            return False
    return True


def _is_in_partition_order(graph: LogicalGraph, inputs: Sequence[Input]) -> bool:
    while len(inputs) == 1 and not inputs[0].keys:
        (one,) = inputs
        node = graph.get(one.upstream)
        if node is None or not node.operator.preserves_record(one.output) or not node.operator.keeps_order():
            return False
        if isinstance(node.operator, SourceOperator):
            return True
        inputs = node.inputs
    return False


def _inputs_of(one: Declared) -> tuple[Input, ...]:
    if one.late_of:
        return tuple(Input(OperatorName(name), LATE) for name in one.late_of)
    if one.named:
        return tuple(map(_input_of, one.named))
    parts = [name.partition(".") for name in one.inputs]
    return tuple(Input(OperatorName(name), output) for name, _, output in parts)


def _input_of(named: NamedInput) -> Input:
    name, _, output = named.upstream.partition(".")
    return Input(OperatorName(named.reads)) if named.operator else Input(OperatorName(name), output)
