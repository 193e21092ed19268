"""Parts of records other than values that sources read and sinks write, the event time of sources, and the schemas that
sinks write with: checked and typed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from tidegate.config.fields.base import Path
from tidegate.config.fields.records import ALL, BY_ARRIVAL, NONE, Idle
from tidegate.config.fields.schemas import NamedSchema, WrittenSchema
from tidegate.config.models import SinkSettings, SourceSettings, read_section
from tidegate.datatypes import BINARY, STRING, DataType, Kind, Schema, holds_kind
from tidegate.expressions.event_time import find_event_time_problem
from tidegate.expressions.expression import ColumnReference, Expression
from tidegate.expressions.typing_rules import derive_cast_remedy
from tidegate.formats import keys
from tidegate.formats.contract import FormatRefusal
from tidegate.formats.record_parts import HeaderRules
from tidegate.formats.registry import FORMATS
from tidegate.formats.schema_ids import KEY_HEADER, VALUE_HEADER
from tidegate.formats.schema_keys import check_key_schema, check_key_type, derive_key_schema, key_type
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, IdPlace, Registration, SchemaText
from tidegate.operators.builtin.kafka_sink import TopicChoice
from tidegate.operators.builtin.kafka_source import DELETED, PARTS, TOMBSTONE, EventTime, MetadataColumn
from tidegate.plan.logical import Input, find_loss
from tidegate.plan.scope import Declared

if TYPE_CHECKING:
    from tidegate.plan.steps import Builder

WHOLE: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
INEXACT: Final[frozenset[Kind]] = frozenset({"float", "double", "map"})
"""Types whose equal values may have different texts: floats through rounding, maps through the order of entries."""

Found = tuple[Path, str, str]
"""Path, message, remedy."""


def derive_key(
    name: str, source: SourceSettings, schema: SchemaText | None
) -> tuple[DataType | None, FormatOptions, list[Found]]:
    """Returns the type of a source's keys (None if unknown), the options for reading them, and problems.

    `schema` is the one that `key_schema` names.
    """
    declared = None if isinstance(source.key_schema, NamedSchema) else source.key_schema
    if source.key_format != keys.AVRO:
        return keys.derive_key_type(source.key_format or keys.TEXT, declared), NO_OPTIONS, []
    options = FormatOptions(schema, IdPlace(source.schema_id))
    try:
        if schema is not None:
            return key_type(schema), options, []
        if declared is not None:
            check_key_type(declared)
    except FormatRefusal as refusal:
        return None, options, [(("sources", name, "key_schema"), refusal.message, refusal.remedy)]
    return declared, options, []


def derive_metadata(
    name: str, source: SourceSettings, values: Mapping[str, DataType], key_kind: DataType | None
) -> tuple[tuple[MetadataColumn, ...], list[Found]]:
    """Returns the columns of a source besides those of its `values`, and problems with them."""
    path: Path = ("sources", name)
    columns: list[MetadataColumn] = []
    problems: list[Found] = []
    listed = source.schema_ if isinstance(source.schema_, dict) else values if source.schema_ else {}
    taken = {value: "`schema`" if value in listed else f"every {source.format} source" for value in values}
    if source.on_null == TOMBSTONE and not FORMATS[source.format].is_changelog:  # changelogs refuse it anyway
        if DELETED in taken:
            message = f"`{DELETED}` is a column of {taken[DELETED]}, but it marks tombstones"
            problems.append(((*path, "on_null"), message, "rename it, or use skip"))
        taken[DELETED] = "`on_null: tombstone`"
    for part, column in source.metadata.parts.items():
        kind = PARTS.get(part) or key_kind
        if column in taken:
            message = f"`{column}` is a column of {taken[column]} already"
            problems.append(((*path, "metadata", part), message, "give the column another name"))
        elif kind is not None:  # otherwise the checks of the file have reported it
            columns.append(MetadataColumn(part, column, kind))
        taken.setdefault(column, f"`metadata.{part}`")
    return tuple(columns), problems


class SinkParts:
    """Record parts of one sink while the plan is built. Call `check` first; use the rest only if it returns True."""

    def __init__(
        self,
        builder: Builder,
        one: Declared,
        sink: SinkSettings,
        columns: Mapping[str, DataType],
        inputs: Sequence[Input],
    ) -> None:
        """`inputs` are the outputs that the sink reads."""
        self._builder = builder
        self._path_of = one.path
        self._reads = inputs
        self._sink = sink
        self._columns = columns
        self.key = FORMATS[sink.format].default_key(columns) if sink.key is None else sink.key
        self.key_format = sink.key_format or keys.TEXT
        self.inputs: dict[str, Expression] = {name: ColumnReference(name, kind) for name, kind in columns.items()}
        """All columns that the sink may read: input columns, one for each added header, and that of the topic."""
        self.added: tuple[tuple[str, str], ...] = ()
        self.topic: str | TopicChoice | None = None

    @property
    def headers(self) -> HeaderRules | None:
        """The header rules of the file, or None."""
        headers = self._sink.headers
        if headers is None:
            return None
        passed = None if headers.pass_ == ALL else headers.pass_ if isinstance(headers.pass_, tuple) else ()
        drop = (*headers.drop, *self._stale()) if headers.pass_ == ALL else headers.drop
        drop = (*drop, *self._written_headers()) if headers.pass_ != NONE else drop
        return HeaderRules(passed, drop, headers.rename, self.added, tuple(headers.add.values()))

    def _written_headers(self) -> tuple[str, ...]:
        """Returns the headers that the format sets, if the columns of the sink may be written."""
        options = FormatOptions(settings=read_section(self._sink))
        return tuple(FORMATS[self._sink.format].written_headers(dict(self._columns), options))

    def _stale(self) -> list[str]:
        """Returns headers about the encoding that would be wrong for records of this sink, and so mislead readers.

        If no source declares such headers, they matter only to readers of the same format, which check them before the
        bytes. Renamed headers mislead nobody.
        """
        sources = self._builder.loaded.settings.sources.values()
        known = IdPlace.HEADER in (self._sink.schema_id, *(one.schema_id for one in sources))
        copied = self.key is not None and self._columns.get(self.key) == BINARY
        stale = {
            VALUE_HEADER: FORMATS[self._sink.format].schema_kind is not None
            or (known and self._sink.format != keys.RAW),
            KEY_HEADER: self.key_format == keys.AVRO
            or (known and self.key_format != keys.RAW and not (self.key_format == keys.TEXT and copied)),
        }
        renamed = self._sink.headers.rename if self._sink.headers is not None else {}
        return [name for name, told in stale.items() if told and name not in renamed]

    @property
    def made(self) -> str:
        """The purpose of the computed columns; part of the name of the operator that computes them."""
        return "headers" if self.added else "topic"

    def check(self) -> bool:
        """Checks everything, reports problems, and returns whether all of it can be used."""
        before = len(self._builder.problems)
        self._check_key()
        if self._sink.timestamp is not None:
            self._builder.moment(self._path("timestamp"), self._sink.timestamp, self._columns)
        if self._sink.partition is not None:
            self._check_type("partition", self._sink.partition, WHOLE, "a whole number", "cast it to int in a `select`")
        self._check_tombstones()
        self._check_headers()
        self._choose_topic()
        return len(self._builder.problems) == before

    def _path(self, *below: str) -> Path:
        return (*self._path_of, *below)

    def _check_type(self, key: str, name: str, kinds: frozenset[str], what: str, remedy: str, *below: str) -> None:
        path = self._path(key, *below)
        kind = self._builder.column(path, name, self._columns)
        if kind is not None and kind.kind not in kinds:
            self._builder.problem(path, f"`{name}` is {kind}, not {what}", remedy)

    def _check_key(self) -> None:
        if self.key is None:
            if self._sink.key_format is not None:
                message = "the sink has no key"
                self._builder.problem(self._path("key_format"), message, "add `key`: the column that is the record key")
            return
        if self.key_format == keys.TEXT:
            self._builder.key(self._path("key"), self.key, self._columns)
        elif self.key_format == keys.RAW:
            remedy = "cast it in a `select`, or write `key_format: string`"
            self._check_type("key", self.key, frozenset({"binary"}), "binary, as a raw key requires", remedy)
        else:
            kind = self._builder.column(self._path("key"), self.key, self._columns)
            if kind is not None and holds_kind(kind, INEXACT):
                remedy = "cast it in a `select`, for instance to bigint or string"
                message = f"`{self.key}` is {kind}, whose values cannot be compared exactly"
                self._builder.problem(self._path("key"), message, remedy)

    def _check_tombstones(self) -> None:
        on_null = self._sink.on_null
        if on_null is None:
            return
        if on_null.column == DELETED and DELETED not in self._columns and self._gets_changes():
            remedy = f"pass it on: a `select` before the sink needs `{DELETED}: {DELETED}`"
            self._builder.problem(self._path("on_null", "column"), f"there is no column `{DELETED}`", remedy)
        else:
            self._check_type(
                "on_null",
                on_null.column,
                frozenset({"boolean"}),
                "boolean",
                "compare it with something in a `select`",
                "column",
            )
        if self.key is None:
            message = "a tombstone needs a key, and this sink has none"
            self._builder.problem(self._path("on_null"), message, "add `key`: the column that is the record key")
        elif on_null.column == self.key:
            self._builder.problem(self._path("on_null", "column"), f"`{self.key}` is the key", "name another column")

    def _gets_changes(self) -> bool:
        name = self._path_of[-1]
        return name in self._builder.changelogs or name in self._builder.corrections

    def _check_headers(self) -> None:
        headers = self._sink.headers
        if headers is None:
            return
        rules = self.headers
        assert rules is not None
        if rules.pass_through:
            self._check_loss()
        for key in ("drop", "rename") if not rules.pass_through else ():
            if getattr(headers, key):
                message = "no headers are passed on"
                self._builder.problem(self._path("headers", key), message, "add `pass: all`, or remove it", at_key=True)
        added: list[tuple[str, str]] = []
        for place, (header, text) in enumerate(headers.add.items()):
            path = self._path("headers", "add", header)
            expression = self._builder.expression(path, text, self._columns)
            if expression is None:
                continue
            if expression.type.kind not in ("string", "binary"):
                remedy = derive_cast_remedy(expression, STRING)
                self._builder.problem(path, f"is {expression.type}, not a string or binary", remedy)
                continue
            added.append((header, self._add(f"headers.{place}", expression)))
        self.added = tuple(added)

    def _add(self, column: str, expression: Expression) -> str:
        """Adds a column for the result of an expression; returns its name."""
        while column in self.inputs:
            column += "_"
        self.inputs[column] = expression
        return column

    def _choose_topic(self) -> None:
        topic = self._sink.topic
        if isinstance(topic, str):
            self.topic = topic
            return
        path = self._path("topic", "expression")
        expression = self._builder.expression(path, topic.expression, self._columns)
        if expression is None:
            return
        if expression.type.kind != "string":
            self._builder.problem(path, f"is {expression.type}, not a string", derive_cast_remedy(expression, STRING))
            return
        self.topic = TopicChoice(self._add("topic", expression), topic.allow, topic.expression)

    def _check_loss(self) -> None:
        lost = find_loss(self._builder.graph, self._reads)
        if lost is not None:
            step = lost.partition(".")[0]
            message = f"the headers of records are lost in `{step}`, whose rows are made from several records"
            remedy = "read them as a column, `metadata: {headers: ...}` of the source, or write `pass: none`"
            self._builder.problem(self._path("headers", "pass"), message, remedy)


def derive_event_time(
    builder: Builder, name: str, source: SourceSettings, columns: Mapping[str, DataType]
) -> EventTime:
    """Derives the event time as declared and reports problems. `logical.py` decides later whether it is needed."""
    watermark, text = source.watermark, source.event_time
    if source.time == BY_ARRIVAL:
        return EventTime(None, watermark.delay_ms, Idle.WALL_CLOCK, arrival=True)
    how = EventTime(None, watermark.delay_ms, watermark.idle, watermark.ahead_ms)
    if text is None:
        if watermark.ahead_ms is not None:
            remedy = "name a column, or remove `ahead`: brokers have `message.timestamp.after.max.ms`"
            message = "has no effect without `event_time`: the Kafka timestamp is the event time"
            builder.problem(("sources", name, "watermark", "ahead"), message, remedy)
        return how
    path: Path = ("sources", name, "event_time")
    if text in columns:  # even if the name would parse as an expression
        found: Expression | None = ColumnReference(text, columns[text])
    else:
        found = builder.expression(path, text, columns)
    if found is None:
        return how
    written = " ".join(text.split())
    problem = find_event_time_problem(found, written, is_column=text in columns, of="source")
    if problem is not None:
        builder.problem(path, *problem)
    if isinstance(found, ColumnReference):
        return msgspec.structs.replace(how, column=found.name)
    return msgspec.structs.replace(how, expression=found, written=written)


class WrittenWith(msgspec.Struct, frozen=True):
    """The options and registration of a schema, for SinkOperator."""

    options: FormatOptions = NO_OPTIONS
    register: Registration | None = None


def derive_written_schema(builder: Builder, one: Declared, sink: SinkSettings, columns: Schema) -> WrittenWith | None:
    """Derives the schema of a sink's values; `columns` are those written.

    None if there is none; that is reported here, or was when the schema was looked up.
    """
    record_format = FORMATS[sink.format]
    if record_format.schema_kind is None:
        return WrittenWith()
    name = sink.topic if isinstance(sink.topic, str) else one.name
    return _written_with(
        builder,
        _Part((*one.path, "schema"), (*one.path, "format"), "value", sink.schema_ or WrittenSchema(), sink),
        lambda: record_format.derive_schema(columns, name),
        lambda text: record_format.check_schema(text, columns),
        record_format.schema_name,
    )


def derive_written_key(
    builder: Builder, one: Declared, sink: SinkSettings, kind: DataType | None
) -> WrittenWith | None:
    """Derives the schema of a sink's keys, whose column has the type `kind`, like derive_written_schema."""
    if sink.key_format != keys.AVRO or kind is None:
        return WrittenWith()
    name = sink.topic if isinstance(sink.topic, str) else one.name
    return _written_with(
        builder,
        _Part((*one.path, "key_schema"), (*one.path, "key_format"), "key", sink.key_schema or WrittenSchema(), sink),
        lambda: derive_key_schema(kind, name),
        lambda text: check_key_schema(text, kind),
        FORMATS[keys.AVRO].schema_name,
    )


class _Part(NamedTuple):
    """The schema settings for a sink's values, or keys."""

    path: Path
    format_path: Path
    name: str
    """The suffix in names of subjects."""
    settings: WrittenSchema
    sink: SinkSettings


def _written_with(
    builder: Builder,
    part: _Part,
    derive: Callable[[], SchemaText],
    check: Callable[[SchemaText], None],
    name_of: Callable[[SchemaText], str],
) -> WrittenWith | None:
    """Derives the schema, or checks the one that the file names. The functions raise FormatRefusal."""
    settings, text = part.settings, builder.loaded.schemas.get(part.path)
    named = settings.file is not None or (settings.registry is not None and settings.register_ == "existing")
    if named and text is None:
        return None
    try:
        if text is None:
            text = derive()
        else:
            check(text)
        ids, registered = IdPlace(part.sink.schema_id), settings.file is None and text.id != 0
        if ids is not IdPlace.NONE and not registered:
            text = msgspec.structs.replace(text, subject=_subject(part, text, name_of))
    except FormatRefusal as refusal:
        builder.problem(part.path if named else part.format_path, refusal.message, refusal.remedy)
        return None
    register = None if ids is IdPlace.NONE or registered else Registration(settings.register_)
    return WrittenWith(FormatOptions(text, ids), register)


def _subject(part: _Part, text: SchemaText, name_of: Callable[[SchemaText], str]) -> str:
    """Returns the subject under which the schema is registered. Raises FormatRefusal."""
    settings, topic = part.settings, part.sink.topic
    if settings.registry is not None:
        return settings.registry
    if settings.subject != "record" and not isinstance(topic, str):
        raise FormatRefusal(
            "the one schema of all records is not registered for each of several topics",
            f"name its subject: `{part.path[-1]}: {{registry: NAME}}`"
            + (", or write `schema: {subject: record}`" if part.name == "value" else ""),
        )
    if settings.subject == "topic":
        return f"{topic}-{part.name}"
    try:
        name = name_of(text)
    except FormatRefusal as refusal:  # a key, which may have any type; a value's schema was checked before
        message = f"the subject is named after the record, but the {part.name} is not a record"
        raise FormatRefusal(message, f"name it: `{part.path[-1]}: {{registry: NAME}}`") from refusal
    return name if settings.subject == "record" else f"{topic}-{name}"
