"""The settings of a pipeline file, with defaults.

Values only: what code injects (clock, storage, clients) is not here. Attributes have their unit last (`interval_ms`);
the key in the file is the alias (`interval`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Protocol

from pydantic import Field, SecretStr, create_model

from tidegate.config.cases import CaseSettings
from tidegate.config.deployment import (
    CheckpointSettings,
    HttpSettings,
    LoggingSettings,
    RestartSettings,
    RuntimeSettings,
    SavepointSettings,
    StateSettings,
)
from tidegate.config.errors import PathProblem
from tidegate.config.fields.base import Path, Settings
from tidegate.config.fields.foreign_terms import SINK_TERMS, SOURCE_TERMS, STEP_TERMS, TOP_TERMS
from tidegate.config.fields.records import (
    BY_ARRIVAL,
    BY_EVENT,
    DeadLetterSettings,
    HeaderSettings,
    KeySchema,
    MetadataSettings,
    SinkTopic,
    TombstoneSettings,
    TopicChoiceSettings,
    TopicsSettings,
    Unknown,
    UnknownFieldsMode,
    WatermarkSettings,
    WrittenAsSettings,
)
from tidegate.config.fields.schemas import (
    RegistrySettings,
    SchemaId,
    Secrets,
    SourceSchema,
    WrittenSchema,
    WrittenSchemaId,
)
from tidegate.config.fields.steps import SourceWas, StepState, StepWas
from tidegate.config.fields.types import (
    Cluster,
    CodePaths,
    Column,
    ExpressionText,
    Flag,
    Names,
    OtherCluster,
    PipelineName,
    Properties,
    Start,
    StepName,
    Until,
    choice,
    integer,
)
from tidegate.formats.contract import Format
from tidegate.formats.keys import KEY_FORMATS
from tidegate.formats.registry import DEFAULT, FORMATS
from tidegate.ids import MAIN_CLUSTER
from tidegate.operators.builtin.kafka_source import ON_LOST_CONTINUE, ON_LOST_STOP
from tidegate.operators.registry import step_kinds

UNION_COMMON: Final = "common"
UNION_ALL: Final = "all"

_WRITTEN = {name: one for name, one in FORMATS.items() if one.writes}
_NEEDED = ", ".join(name for name, one in FORMATS.items() if one.needs_schema)
_FIXED = ", ".join(name for name, one in FORMATS.items() if one.fixed_columns is not None)


# -- sections with the settings of a format: `{format: delimited, delimited: {separator: "|"}}` -----------------------
# A format declares the models (`Format.source_settings`, `Format.sink_settings`); a section has the format's name.


class _End(Protocol):
    """A source or a sink."""

    format: str


def derive_format_sections(model_of: Callable[[Format], type[Settings]]) -> Mapping[str, Any]:
    """Returns the fields of sources or of sinks for the sections of all formats that have one."""
    return {
        _field(name): (
            Annotated[model_of(one) | None, Field(alias=name, description=f"Settings of the format {name}.")],
            None,
        )
        for name, one in FORMATS.items()
        if model_of(one).model_fields
    }


def read_section(end: _End) -> dict[str, Any]:
    """Returns what the section of the format of a source or sink sets, as plain values."""
    section: Settings | None = getattr(end, _field(end.format), None)
    return {} if section is None else section.model_dump(mode="json", by_alias=True, exclude_unset=True)


def decide_section_problems(path: Path, end: _End) -> Iterator[PathProblem]:
    """Yields a problem for each section of another format than that of the source or sink at `path`."""
    for name in FORMATS:
        if name != end.format and getattr(end, _field(name), None) is not None:
            message = f"these are settings of the format {name}, and the format is {end.format}"
            yield PathProblem((*path, name), message, f"write `format: {name}`, or remove them", at_key=True)


def _field(name: str) -> str:
    """Returns the attribute of a section; the name alone could be that of a method of models, as `json` is."""
    return f"{name.replace('-', '_')}_settings"


# -- sources, steps and sinks ------------------------------------------------------------------------------------------


class BaseSourceSettings(TopicsSettings):
    """A Kafka source."""

    INSIDE: ClassVar[Mapping[str, str]] = SOURCE_TERMS
    cluster: Cluster = MAIN_CLUSTER
    format: Annotated[str, choice(*FORMATS), Field(description="How the records' bytes are read.")] = DEFAULT
    schema_: Annotated[
        SourceSchema | None,
        Field(
            alias="schema",
            description=f"Columns and Spark types; needed for {_NEEDED}; fixed for {_FIXED}. For formats with schemas "
            "also `{file: ...}` or `{registry: ...}`.",
        ),
    ] = None
    metadata: Annotated[
        MetadataSettings, Field(description="Columns for the parts of a record other than its value.")
    ] = MetadataSettings()
    key_format: Annotated[
        str | None,
        choice(*KEY_FORMATS),
        Field(
            description="How the key is read for `metadata.key`: `string` (the default, UTF-8), `json` and `avro` (as "
            "`key_schema` says) or `raw` (its bytes). A key that cannot be read makes the record bad."
        ),
    ] = None
    key_schema: Annotated[
        KeySchema | None,
        Field(
            description="Type of a `json` or `avro` key, for instance `bigint`, or its fields: `{id: bigint, "
            "region: string}`. For an `avro` key also `{file: ...}` or `{registry: ...}`, as in `schema` of a "
            "source."
        ),
    ] = None
    on_null: Annotated[
        str | None,
        choice("bad", "skip", "tombstone"),
        Field(
            description="A record without value: `bad` is a bad record (the default), `skip` leaves it out (it "
            "counts as filtered), `tombstone` makes it a row whose columns of the schema are all NULL, and gives "
            "every row the column `_deleted boolean`. Not for raw, where `value` is NULL. For debezium and "
            "debezium-avro `skip` is the default, and there is no `tombstone`."
        ),
    ] = None
    schema_id: Annotated[
        SchemaId,
        Field(
            description="Where a record has the id of its schema, for formats with schemas: in front of its "
            "value (`prefix`); the id or GUID in its header `__value_schema_id`, and in front of the value if it "
            "has no such header (`header`); or nowhere (`none`). Also for `avro` keys, whose header is "
            "`__key_schema_id`. Not every registry supports GUIDs; Confluent's does."
        ),
    ] = "prefix"
    unknown_fields: Annotated[
        UnknownFieldsMode,
        Field(
            description="Fields that `schema` does not name: `skip` them; or, for json and formats that are read "
            "like it, `fail` (the record is bad) or `{keep: rest}`: the column `rest`, a map of strings, holds those "
            "at the top level of the record."
        ),
    ] = Unknown()
    written_as: Annotated[
        WrittenAsSettings,
        Field(description="How ambiguous values were written: for debezium, and timestamps for debezium-avro."),
    ] = WrittenAsSettings()
    time: Annotated[
        str,
        choice(BY_EVENT, BY_ARRIVAL),
        Field(
            description="`event`: event time is that of `event_time`. `arrival`: it is when the record arrived at "
            "Kafka, no record is late, and while the source is at the end of its topics, event time follows the "
            "clock. Not with `event_time`, `watermark.idle` and `watermark.ahead`."
        ),
    ] = BY_EVENT
    event_time: Annotated[
        ExpressionText | None,
        Field(
            description="When the event of a record happened: a column of the source, or an expression over its "
            "columns such as `timestamp_seconds(at)`, that gives a timestamp, or a bigint in ms since 1970. A "
            "record for which it is NULL, cannot be computed, or is outside the years 1 to 9999 is a bad record. "
            "By default the Kafka timestamp, if a step needs event time; then a record without one is bad."
        ),
    ] = None
    watermark: Annotated[WatermarkSettings, Field(description="How event time advances; used if a step needs it.")] = (
        WatermarkSettings()
    )
    start: Annotated[
        Start,
        Field(
            description="Where to start without a checkpoint: earliest, latest, a timestamp, or, for one topic, "
            "{partition: offset}."
        ),
    ] = "earliest"
    until: Annotated[
        Until,
        Field(
            description="Where to stop: never, latest (the ends at the start), a timestamp. The ends are fixed "
            "when the read starts, and a stop before them does not move them. Another `until` applies once all "
            "bounded sources have reached theirs; `never` applies immediately."
        ),
    ] = "never"
    bad_records: Annotated[
        str,
        choice("dead-letter", "fail", "skip"),
        Field(
            description="Records that cannot be read, computed or written: `dead-letter` writes them to the topic of "
            "`dead_letters` and continues, `fail` stops the pipeline, `skip` leaves them out. All are counted."
        ),
    ] = "fail"
    was: SourceWas = None
    on_lost_input: Annotated[
        str,
        choice(ON_LOST_STOP, ON_LOST_CONTINUE),
        Field(
            description="If retention has removed records before they were read: `stop` the pipeline with the "
            "lost offsets, or `continue` at the first offset that exists. In the latter case the lost range is "
            "in the journal, the log (as an error) and `tidegate_lost_input_records_total`. A topic that was "
            "created again, or truncated at its end, always stops it."
        ),
    ] = ON_LOST_STOP
    kafka: Annotated[
        Properties, Field(description="librdkafka properties of this source, overriding those of its cluster.")
    ] = {}


if TYPE_CHECKING:
    SourceSettings = BaseSourceSettings
else:
    SourceSettings = create_model(
        "SourceSettings",
        __base__=BaseSourceSettings,
        __doc__=BaseSourceSettings.__doc__,
        **derive_format_sections(attrgetter("source_settings")),
    )
    """A source with the sections of every format: each format reads its own."""


class BaseStepSettings(Settings):
    """What every step has, whatever its kind."""

    INSIDE: ClassVar[Mapping[str, str]] = STEP_TERMS
    name: Annotated[StepName, Field(description="Name of the step and of its state.")]
    from_: Annotated[
        Names | None,
        Field(
            alias="from",
            description="Source or step to read; a list reads all of them, a union. Required for every step that does "
            "not name its inputs by other keys.",
        ),
    ] = None
    columns: Annotated[
        str | None,
        choice(UNION_COMMON, UNION_ALL),
        Field(
            description="Columns of several inputs in `from`: `common` keeps those that all of them have, `all` keeps "
            "every one, which is NULL in the rows of inputs without it. Without it, inputs must have the same columns. "
            "A column has one type in all of them."
        ),
    ] = None
    was: StepWas = None
    state: StepState = None


def _go_together() -> Iterator[tuple[str, list[str]]]:
    """Yields the keys of kinds that go with keys of other kinds, and those."""
    keys = {kind.key for kind in step_kinds()}
    for kind in step_kinds():
        others = [key for key in kind.other_keys if key in keys]
        if others:
            yield kind.key, others


if TYPE_CHECKING:
    StepSettings = BaseStepSettings
else:
    StepSettings = create_model(
        "StepSettings",
        __base__=(
            *(kind.settings for kind in reversed(step_kinds()) if kind.settings is not Settings),
            BaseStepSettings,
        ),
        __doc__="One step: exactly one of "
        + ", ".join(f"`{kind.key}`" for kind in step_kinds() if kind.key)
        + "; "
        + ", ".join(f"`{key}` goes with {', '.join(f'`{one}`' for one in others)}" for key, others in _go_together())
        + ". With none and several inputs it is a union.",
    )
    """A step with the keys of every kind of operator that there is: each kind reads its own."""


class BaseSinkSettings(Settings):
    """A Kafka sink."""

    INSIDE: ClassVar[Mapping[str, str]] = SINK_TERMS
    from_: Annotated[
        Names | None,
        Field(
            alias="from",
            description="Source or step to write; a list writes all of them. Only a sink that a step names as `late` "
            "has none.",
        ),
    ] = None
    topic: Annotated[
        SinkTopic,
        Field(
            description="The topic to write; or `{expression: ..., allow: [...]}`: the topic of each record, "
            "from a list."
        ),
    ]
    cluster: Cluster = MAIN_CLUSTER
    format: Annotated[
        str,
        choice(*_WRITTEN),
        Field(description="; ".join(f"`{name}`: {one.writes}" for name, one in _WRITTEN.items()) + "."),
    ] = DEFAULT
    key: Annotated[
        Column | None,
        Field(description="Column whose text is the record key; a raw sink uses the column `key` if there is one."),
    ] = None
    key_format: Annotated[
        str | None,
        choice(*KEY_FORMATS),
        Field(
            description="How the key is written: `string` (the default: its text; binary as it is), `json` and "
            "`avro` (any column without floating-point numbers and maps) or `raw` (a binary column as it is)."
        ),
    ] = None
    key_schema: Annotated[
        WrittenSchema | None,
        Field(
            description="Schema that an `avro` key is written with, as `schema`; by default derived from the "
            "column and registered as `<topic>-key`."
        ),
    ] = None
    headers: Annotated[HeaderSettings | None, Field(description="Headers of the records; none by default.")] = None
    partition: Annotated[
        Column | None,
        Field(
            description="Column with the number of the partition that a record goes to, an integer; a partition "
            "that the topic does not have makes a bad record. A start is refused if the numbers are those of a "
            "source's partitions and the topic has fewer. With NULL, and without this setting, the key decides."
        ),
    ] = None
    on_null: Annotated[
        TombstoneSettings | None, Field(description="Rows that are written as tombstones; none by default.")
    ] = None
    timestamp: Annotated[
        Column | None,
        Field(
            description="Column that is the record's timestamp: timestamp, or bigint in ms since 1970. NULL is "
            "the time of writing. The broker soon deletes records that are older than the topic's "
            "`retention.ms`. Kafka stores no timestamp up to 1970-01-01T00:00:00Z itself, and a topic none "
            "outside its `message.timestamp.before.max.ms` and `.after.max.ms` (an hour ahead by default): such "
            "a record is a bad record (`bad_records` of its source)."
        ),
    ] = None
    schema_: Annotated[
        WrittenSchema | None,
        Field(alias="schema", description="Schema that records are written with, for formats with schemas."),
    ] = None
    schema_id: WrittenSchemaId = "prefix"
    kafka: Annotated[
        Properties,
        Field(
            description="librdkafka properties of this sink, such as `compression.type`, overriding those of its "
            "cluster."
        ),
    ] = {}

    @property
    def all_topics(self) -> tuple[str, ...]:
        """The topics that it may write."""
        return self.topic.allow if isinstance(self.topic, TopicChoiceSettings) else (self.topic,)


if TYPE_CHECKING:
    SinkSettings = BaseSinkSettings
else:
    SinkSettings = create_model(
        "SinkSettings",
        __base__=BaseSinkSettings,
        __doc__=BaseSinkSettings.__doc__,
        **derive_format_sections(attrgetter("sink_settings")),
    )
    """A sink with the sections of every format."""


class PipelineSettings(Settings):
    """One file is one pipeline and all of its settings."""

    TITLE: ClassVar[str] = "The file"
    INSIDE: ClassVar[Mapping[str, str]] = TOP_TERMS
    version: Annotated[int, integer(1, 1), Field(description="Version of the file format.")]
    name: Annotated[
        PipelineName,
        Field(
            description="Name of the pipeline in metrics, consumer group, transactional ids and state; never change it."
        ),
    ]
    strict: Annotated[Flag, Field(description="Refuse a start for every problem that `tidegate doctor` reports.")] = (
        False
    )
    kafka: Annotated[
        Properties,
        Field(
            description="librdkafka properties of the cluster named `kafka`, for every source and sink without "
            "`cluster`; `bootstrap.servers` is required."
        ),
    ]
    clusters: Annotated[
        dict[OtherCluster, Properties],
        Field(
            description="Other clusters by name, each with all of its librdkafka properties: "
            "`{us: {bootstrap.servers: ...}}`. Nothing of `kafka` applies to them (`tidegate docs clusters`)."
        ),
    ] = {}
    spark: Annotated[Properties, Field(description="Spark properties; `master` is local[parallelism] by default.")] = {}
    parallelism: Annotated[
        int, integer(1, 1024), Field(description="Number of slots: Spark tasks, each of which runs the whole graph.")
    ] = 1
    max_parallelism: Annotated[
        int, integer(1, 32768), Field(description="Number of key groups; fixed for the life of the state.")
    ] = 128
    checkpoints: Annotated[
        CheckpointSettings,
        Field(description="When checkpoints are taken, what they guarantee, and where they are stored."),
    ]
    savepoints: Annotated[SavepointSettings, Field(description="Where savepoints may be written.")] = (
        SavepointSettings()
    )
    state: Annotated[StateSettings, Field(description="Keyed state.")] = StateSettings()
    restart: Annotated[RestartSettings, Field(description="How failed attempts are retried.")] = RestartSettings()
    runtime: Annotated[RuntimeSettings, Field(description="Heartbeats, timeouts and encryption.")] = RuntimeSettings()
    http: Annotated[HttpSettings, Field(description="Metrics and probes.")] = HttpSettings()
    logging: Annotated[LoggingSettings, Field(description="Log output.")] = LoggingSettings()
    registry: Annotated[
        RegistrySettings | None, Field(description="The schema registry, for formats with schemas.")
    ] = None
    secrets: Secrets = {}
    code: Annotated[
        CodePaths,
        Field(
            description="Wheels of pure Python, whose modules functions and steps of yours can import, and data files, "
            'which steps open by `self.file("model.bin")`. Paths are relative to the directory of this file.'
        ),
    ] = ()
    sources: Annotated[dict[StepName, SourceSettings], Field(description="Kafka sources by name.")]
    steps: Annotated[
        list[StepSettings], Field(max_length=1000, description="The steps between sources and sinks, in any order.")
    ] = []
    sinks: Annotated[dict[StepName, SinkSettings], Field(description="Kafka sinks by name.")]
    dead_letters: Annotated[
        DeadLetterSettings | None, Field(description="Topic for records that could not be processed.")
    ] = None
    tests: Annotated[
        list[CaseSettings], Field(max_length=1000, description="Cases for `tidegate test FILE`; a run ignores them.")
    ] = []

    @property
    def spark_master(self) -> str:
        """The Spark master, `local[parallelism]` by default."""
        master = self.spark.get("master", f"local[{self.parallelism}]")
        return master.get_secret_value() if isinstance(master, SecretStr) else str(master)
