"""Which topics a source reads: by name, or by a pattern for their names."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import Field

from tidegate.settings.base import Settings
from tidegate.settings.fields import Topic, TopicPattern, Topics

INTERNAL_PREFIX: Final = "__"
"""Of topics that are Kafka's own, which no pattern matches."""


def matches_pattern(pattern: str | None, topic: str) -> bool:
    """Whether a topic is one of those that a pattern is for; none is without one."""
    return bool(pattern and not topic.startswith(INTERNAL_PREFIX) and re.fullmatch(pattern, topic))


class TopicsSettings(Settings):
    """One of `topic`, `topics` and `pattern`."""

    topic: Annotated[Topic | None, Field(description="The topic to read; or `topics`, or `pattern`.")] = None
    topics: Annotated[Topics | None, Field(description="Several topics whose records have the same schema.")] = None
    pattern: Annotated[
        TopicPattern | None,
        Field(
            description="A regular expression (Python's): all topics whose whole names match, but those that begin "
            "with `__`. New ones are looked for about once a minute; when there is one, the attempt ends, and the next "
            "one reads it from its first record, whatever `start` says. A topic that is gone stops the pipeline."
        ),
    ] = None

    def reads(self, topic: str) -> bool:
        """Whether it is given by name, or its name matches the pattern."""
        return topic in self.all_topics or matches_pattern(self.pattern, topic)

    @property
    def example_topic(self) -> str:
        """Where the records of tests come from that name no topic; a pattern stands for itself."""
        return self.all_topics[0] if self.all_topics else self.pattern or ""

    @property
    def all_topics(self) -> tuple[str, ...]:
        """The topics that are given by name."""
        return self.topics if self.topics is not None else (self.topic,) if self.topic is not None else ()
