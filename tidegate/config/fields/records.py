"""What sources read and sinks write: topics, parts of a record besides its value, event time, ambiguous values."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

import msgspec
from pydantic import Discriminator, Field, Tag

from tidegate.config.fields.base import Settings
from tidegate.config.fields.schemas import COLUMNS, NAMED, NamedSchema, form_of
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.fields.types import (
    Cluster,
    Column,
    ColumnType,
    ExpressionText,
    Topic,
    TopicPattern,
    Topics,
    ValueCheck,
    check_below,
    check_column,
    check_topics,
    choice,
    choice_or,
    compile_pattern,
    duration,
    integer,
    refusal,
    require_text,
)
from tidegate.datatypes import DataType
from tidegate.ids import MAIN_CLUSTER

ALL: Final = "all"
NONE: Final = "none"
_WORDS_REMEDY: Final = "write all, none, or a list of names: [trace, source]"


def _name(value: object) -> str:
    """Checks the name of a header: any text, even empty, that the Kafka client does not truncate."""
    name = "" if value == "" else require_text(value, "the name of a header")
    if "\0" in name:
        raise refusal("the name of the header has a NUL character", "remove it: the Kafka client ends the name there")
    return name


def _list(value: object) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not items:
        raise refusal("expected names of headers", "write [trace, source]")
    return tuple(dict.fromkeys(map(_name, items)))


def _passed(value: object) -> str | tuple[str, ...]:
    if isinstance(value, list):
        return _list(value)
    text = require_text(value, "all, none or a list of names", _WORDS_REMEDY)
    if text not in (ALL, NONE):
        raise refusal(f"`{text[:60]}` is not one of the choices", _WORDS_REMEDY)
    return text


def _renamed(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping) or not value:
        raise refusal("expected a mapping of headers to their new names", "write {old: new}")
    return {_name(old): check_below(old, _name, new) for old, new in value.items()}


def _key_schema(value: object) -> DataType:
    """Parses a type, or the fields of an object."""
    kind: Any = ColumnType.__metadata__[0]  # type: ignore[attr-defined]  # of an Annotated
    name: Any = Column.__metadata__[0]  # type: ignore[attr-defined]  # of an Annotated
    if not isinstance(value, Mapping):
        found: DataType = kind.check(value)
        return found
    if not value:
        raise refusal("is empty", "name the fields of the key, for instance {id: bigint}")
    return DataType(
        "struct",
        fields=tuple((name.check(field), check_below(field, kind.check, text)) for field, text in value.items()),
    )


_NAMES_SCHEMA: Final = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_TYPE_SCHEMA: Final = {"type": "string", "examples": ["bigint", "array<string>"]}

KeyType = Annotated[
    DataType,
    ValueCheck(
        _key_schema,
        {"anyOf": [_TYPE_SCHEMA, {"type": "object", "additionalProperties": _TYPE_SCHEMA, "minProperties": 1}]},
    ),
]
KeySchema = Annotated[Annotated[KeyType, Tag(COLUMNS)] | Annotated[NamedSchema, Tag(NAMED)], Discriminator(form_of)]
PassedHeaders = Annotated[
    str | tuple[str, ...], ValueCheck(_passed, {"anyOf": [{"type": "string", "enum": [ALL, NONE]}, _NAMES_SCHEMA]})
]
HeaderNames = Annotated[tuple[str, ...], ValueCheck(_list, {"anyOf": [{"type": "string"}, _NAMES_SCHEMA]})]
RenamedHeaders = Annotated[
    dict[str, str],
    ValueCheck(_renamed, {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1}),
]


class MetadataSettings(Settings):
    """Columns of a source for the parts of its records other than the value: the name of a column for each part that is
    wanted. They are ordinary columns. A column that no step reads is not read from the records, except keys, headers
    and timestamps, which could be malformed.
    """

    key: Annotated[
        Column | None, Field(description="The record's key as `key_format` says; NULL if there is none.")
    ] = None
    headers: Annotated[
        Column | None,
        Field(
            description="`array<struct<key: string, value: binary>>`: all headers in their order, including "
            "repeated ones; the value may be NULL. A name that is not UTF-8 makes the record bad. The Kafka "
            "client cuts a name off at a NUL character."
        ),
    ] = None
    timestamp: Annotated[
        Column | None,
        Field(
            description="`timestamp`: of the record, whichever of Kafka's two it is. NULL if there is none; a "
            "negative number counts as none, because Kafka's clients write -1 for it. A timestamp after the year "
            "9999 makes the record bad. `event_time` may name it."
        ),
    ] = None
    partition: Annotated[Column | None, Field(description="`int`.")] = None
    offset: Annotated[Column | None, Field(description="`bigint`.")] = None
    topic: Annotated[Column | None, Field(description="`string`.")] = None

    @property
    def parts(self) -> dict[str, str]:
        """The requested parts -> the names of their columns."""
        found = {part: getattr(self, part) for part in type(self).model_fields}
        return {part: column for part, column in found.items() if column is not None}


class HeaderSettings(Settings):
    """Headers of the records that a sink writes: first those that are passed on, in their order, then those that are
    added, in theirs. Without this section none are written.
    """

    pass_: Annotated[
        PassedHeaders,
        Field(
            alias="pass",
            description="Headers of the source record that a row came from: `all`, `none`, or the names of "
            "some. Their order, repeated names and NULL values are kept. `all` leaves out `__value_schema_id` "
            "and `__key_schema_id` if the sink writes with another schema or none, unless `rename` has them. "
            "Refused after steps whose rows are made of several records.",
        ),
    ] = NONE
    drop: Annotated[HeaderNames, Field(description="Names of headers that are not passed on.")] = ()
    rename: Annotated[RenamedHeaders, Field(description="New names of headers that are passed on.")] = {}
    add: Annotated[
        dict[Annotated[str, ValueCheck(_name, {"type": "string"})], ExpressionText],
        Field(
            description="Headers by Spark SQL expressions over the columns that arrive, strings or binary; NULL "
            "is a header with a NULL value. A header of the same name that is passed on stays, unless `drop` has "
            "it."
        ),
    ] = {}


class TombstoneSettings(Settings):
    """Rows that a sink writes as tombstones: a key and a NULL value, which deletes the key in a compacted topic."""

    TITLE: ClassVar[str] = "Tombstones"
    column: Annotated[
        Column,
        Field(
            description="A boolean column: if it is true, the row is a tombstone. It is not part of the value. "
            "A tombstone without a key is a bad record."
        ),
    ]
    write: Annotated[str, choice("tombstone"), Field(description="How these rows are written.")] = "tombstone"


# -- topics of sources, sinks and dead letters -------------------------------------------------------------------------

TOPIC_NAME: Final = "<topic>"
TOPIC_CHOICE: Final = "<choice>"
"""Tags of the two forms of a sink's `topic` in pydantic's paths; they do not occur in a file."""
ALLOWED_MAX: Final = 100
"""Limited because every transaction of a sink looks up each of its topics before it begins."""

INTERNAL_PREFIX: Final = "__"
"""Prefix of Kafka's internal topics, which no pattern matches."""


def matches_pattern(pattern: str | None, topic: str) -> bool:
    """Tells whether a topic matches a pattern; False without a pattern."""
    if not pattern or topic.startswith(INTERNAL_PREFIX):
        return False
    return compile_pattern(pattern).isinstance_python(topic)


class TopicsSettings(Settings):
    """One of `topic`, `topics` and `pattern`."""

    topic: Annotated[Topic | None, Field(description="The topic to read; or `topics`, or `pattern`.")] = None
    topics: Annotated[Topics | None, Field(description="Several topics whose records have the same schema.")] = None
    pattern: Annotated[
        TopicPattern | None,
        Field(
            description="A regular expression without lookaround and backreferences: all topics whose whole names "
            "match, except those that begin with `__`. New ones are looked up about once a minute. When there is one, "
            "the attempt ends, "
            "and the next one reads it from its first record, whatever `start` says. A topic that was deleted, "
            "or that a changed pattern no longer matches, stops the pipeline. With a pattern, `until` and "
            "`bad_records: dead-letter` are not supported yet."
        ),
    ] = None

    def reads(self, topic: str) -> bool:
        """Tells whether the topic is listed by name or matches the pattern."""
        return topic in self.all_topics or matches_pattern(self.pattern, topic)

    @property
    def example_topic(self) -> str:
        """The topic of test records that name none; for a pattern, the pattern itself."""
        return self.all_topics[0] if self.all_topics else self.pattern or ""

    @property
    def all_topics(self) -> tuple[str, ...]:
        """The topics that are listed by name."""
        return self.topics if self.topics is not None else (self.topic,) if self.topic is not None else ()


def _allowed(value: object) -> tuple[str, ...]:
    found = check_topics(value)
    if len(found) > ALLOWED_MAX:
        raise refusal(
            f"the list has {len(found)} topics", f"at most {ALLOWED_MAX}: write several sinks after a `route`"
        )
    return found


class TopicChoiceSettings(Settings):
    """Instead of a name: the topic of each record, by an expression, from a list."""

    TITLE: ClassVar[str] = "Topics of sinks"
    expression: Annotated[
        ExpressionText,
        Field(
            description="Spark SQL expression over the columns that arrive, a string: the name of the topic. "
            "NULL, or a topic that is not in `allow`, makes a bad record (`NO_TOPIC`)."
        ),
    ]
    allow: Annotated[
        tuple[str, ...],
        ValueCheck(_allowed, {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": ALLOWED_MAX}),
        Field(description=f"The possible topics, at most {ALLOWED_MAX}. A start checks all of them."),
    ]


def _form_of_topic(value: object) -> str:
    return TOPIC_CHOICE if isinstance(value, Mapping | TopicChoiceSettings) else TOPIC_NAME


SinkTopic = Annotated[
    Annotated[Topic, Tag(TOPIC_NAME)] | Annotated[TopicChoiceSettings, Tag(TOPIC_CHOICE)], Discriminator(_form_of_topic)
]


UNLIMITED: Final = "unlimited"
_LETTERS: Final = integer(1, 1_000_000_000)


def _per_minute(value: object) -> int | None:
    return None if value == UNLIMITED else _LETTERS.check(value)


class DeadLetterSettings(Settings):
    """The topic for records that could not be processed, for sources with `bad_records: dead-letter`.

    A letter has the record's key, value and headers, and headers with the reason (KIP-1034 and our own). It is written
    in the transaction of the checkpoint that has the progress past the record, or of a later one: it waits where bytes
    have to be read back.
    """

    topic: Annotated[
        Topic,
        Field(
            description="The topic to write; no source or sink of the file may use it. It must not be "
            "compacted, and should accept records as large as those of the sources."
        ),
    ]
    cluster: Cluster = MAIN_CLUSTER
    retry_topic: Annotated[
        Topic | None,
        Field(
            description="A topic of its own for replays: `tidegate dead-letters replay` writes letters of steps and "
            "sinks there, and the pipeline processes their rows at the step that failed. It must not be compacted, "
            "and needs the record size and the retention of `topic`. Without it, replays write whole records again."
        ),
    ] = None
    per_minute_max: Annotated[
        int | None,
        ValueCheck(_per_minute, {"anyOf": [dict(_LETTERS.schema), {"const": UNLIMITED}]}),
        Field(
            alias="max_per_minute",
            description="More dead letters in a minute stop the pipeline with the reason and exit code 4; `unlimited` "
            "for no limit.",
        ),
    ] = 1000


# -- event time: how it advances, and when a partition without records stops holding it back ---------------------------


class Idle(StrEnum):
    """The values of `watermark.idle`."""

    CAUGHT_UP = "caught-up"
    """A partition that was read up to its end does not hold back the watermark until it has records again."""
    NEVER = "never"
    """A partition holds the watermark back until it has records."""
    WALL_CLOCK = "wall-clock"
    """Like `caught-up`. In addition, while all partitions of a subtask are idle, its watermark follows the clock."""


BY_EVENT: Final = "event"
BY_ARRIVAL: Final = "arrival"


def render_idle(idle: Idle) -> str:
    """Renders it as written in the file."""
    return "{advance: wall-clock}" if idle is Idle.WALL_CLOCK else idle.value


IdleMode = Annotated[
    Idle,
    choice_or(
        (Idle.CAUGHT_UP.value, Idle.NEVER.value),
        "advance",
        choice(Idle.WALL_CLOCK.value),
        Idle.WALL_CLOCK.value,
        lambda word, advance: Idle(advance or word),
    ),
]


class WatermarkSettings(Settings):
    """Event time of a source: `watermark` says which records a window still waits for.

    The watermark of a partition is the highest event time of its records so far, less `delay` and a millisecond; it
    never goes back, not over a restart either. That of a source is the lowest of its partitions. A record is late for a
    window when the watermark of its own partition had passed the window's end before the record was read, so which
    records are late depends on the topic and on `delay` alone.
    """

    TITLE: ClassVar[str] = "Watermarks"
    delay_ms: Annotated[
        int,
        duration("0s", "366d"),
        Field(
            alias="delay",
            description="How much older a record may be than the newest one before it in its partition without "
            "being late. `0s` is for records that are in order within their partition, as the broker's "
            "timestamps are (`LogAppendTime`).",
        ),
    ] = 0
    idle: Annotated[
        IdleMode,
        Field(
            description="Whether partitions without new records hold the watermark back. `caught-up`: not once "
            "everything up to the last stable offset has been read and nothing has arrived for a second; a "
            "record that arrives later and is older than the watermark is late. `never`: they always do. "
            "`{advance: wall-clock}`: as `caught-up`, and while all partitions of a slot are idle its watermark "
            "follows the clock, minus `delay`, so that a silent topic also closes its windows. With `time: arrival` it "
            "is always so."
        ),
    ] = Idle.CAUGHT_UP
    ahead_ms: Annotated[
        int | None,
        duration("0s", "366d"),
        Field(
            alias="ahead",
            description="How far the `event_time` of a record may be after its Kafka timestamp. A record that "
            "is further ahead is bad: it would move the watermark of its partition for good, and all records "
            "after it would be late. A record without Kafka timestamp is not checked. Without `ahead` any time "
            "is accepted.",
        ),
    ] = None


# -- ambiguous values, and unknown fields ------------------------------------------------------------------------------

_UNITS: Final = ("ms", "us", "ns")
_UNITS_REMEDY: Final = "write ms, us, ns or {column: unit, ...}"


class TimestampUnits(msgspec.Struct, frozen=True):
    """The unit of all timestamp columns, or the units of some."""

    unit: str = ""  # ms | us | ns
    by_column: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.unit or f"{{{', '.join(f'{column}: {unit}' for column, unit in self.by_column)}}}"


def _timestamp_units(value: object) -> TimestampUnits:
    if not isinstance(value, Mapping):
        return TimestampUnits(_unit(value))
    if not value:
        raise refusal("the mapping is empty", _UNITS_REMEDY)
    return TimestampUnits(
        by_column=tuple((check_column(name), check_below(name, _unit, unit)) for name, unit in value.items())
    )


def _unit(value: object) -> str:
    text = require_text(value, f"one of {', '.join(_UNITS)}", _UNITS_REMEDY)
    if text not in _UNITS:
        raise refusal(
            f"`{text[:60]}` is not one of the choices", derive_suggestion(text, _UNITS, otherwise=_UNITS_REMEDY)
        )
    return text


class WrittenAsSettings(Settings):
    """How ambiguous values in JSON were written. What is not specified is refused, never guessed."""

    TITLE: ClassVar[str] = "Written values"
    timestamps: Annotated[
        TimestampUnits | None,
        ValueCheck(
            _timestamp_units,
            {
                "anyOf": [
                    {"type": "string", "enum": list(_UNITS)},
                    {"type": "object", "additionalProperties": {"type": "string", "enum": list(_UNITS)}},
                ]
            },
        ),
        Field(
            description="The unit of integers in columns of timestamps, since 1970: `ms` (Debezium with "
            "`time.precision.mode=connect`), `us` (`microseconds`) or `ns`. Debezium's default, `adaptive`, "
            "writes columns with at most three digits of a second in `ms` and others in `us`, so a table may "
            "need both: `{created: ms, changed: us}`. Without it such a number makes the record bad; a wrong "
            "unit is not noticed. Records that include their schema (`schemas.enable`, Avro) need no unit."
        ),
    ] = None
    decimals: Annotated[
        str | None,
        choice("text", "base64", "schema"),
        Field(
            description="What texts in columns of decimals are: `text`, a number "
            "(`decimal.handling.mode=string`), `base64`, the bytes of the unscaled number (`precise`), or "
            "`schema`: records include their schema (`schemas.enable`), and a text in a record without one is "
            "bad. A `debezium` source with a decimal column, or decimals within one, needs it. If decimals are "
            "numbers (`double`, `decimal.format=NUMERIC`), write `text`. A schema in a record takes precedence."
        ),
    ] = None


class Unknown(msgspec.Struct, frozen=True):
    """The treatment of unknown fields; `column` holds them if they are kept."""

    what: str = "skip"  # skip | fail | keep
    column: str = ""

    def __str__(self) -> str:
        return f"{{keep: {self.column}}}" if self.column else self.what


UnknownFieldsMode = Annotated[
    Unknown,
    choice_or(
        ("skip", "fail"),
        "keep",
        ValueCheck(check_column, {"type": "string"}),
        "column",
        lambda what, column: Unknown(what, column or ""),
    ),
]
