"""The topics of sources, sinks and dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from pydantic import Discriminator, Field, Tag

from tidegate.config.fields.base import Settings
from tidegate.config.fields.types import (
    Cluster,
    ExpressionText,
    Topic,
    TopicPattern,
    Topics,
    ValueCheck,
    check_topics,
    compile_pattern,
    integer,
    refusal,
)
from tidegate.ids import MAIN_CLUSTER

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


def _form_of(value: object) -> str:
    return TOPIC_CHOICE if isinstance(value, Mapping | TopicChoiceSettings) else TOPIC_NAME


SinkTopic = Annotated[
    Annotated[Topic, Tag(TOPIC_NAME)] | Annotated[TopicChoiceSettings, Tag(TOPIC_CHOICE)], Discriminator(_form_of)
]


UNLIMITED: Final = "unlimited"
_COUNT: Final = integer(1, 1_000_000_000)


def _per_minute(value: object) -> int | None:
    return None if value == UNLIMITED else _COUNT.check(value)


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
    cluster: Annotated[Cluster, Field(description="The cluster of the topic: `kafka`, or a name under `clusters`.")] = (
        MAIN_CLUSTER
    )
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
        ValueCheck(_per_minute, {"anyOf": [dict(_COUNT.schema), {"const": UNLIMITED}]}),
        Field(
            alias="max_per_minute",
            description="More dead letters in a minute stop the pipeline with the reason and exit code 4; `unlimited` "
            "for no limit.",
        ),
    ] = 1000
