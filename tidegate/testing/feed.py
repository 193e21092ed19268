"""What a case gives, as events in the order of their time, and the log that they need. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tidegate.config.cases import GivenSettings
from tidegate.config.models import SourceSettings
from tidegate.formats.registry import FORMATS
from tidegate.ids import TopicPartition


class Produced(msgspec.Struct, frozen=True):
    """A record of a topic; `timestamp_ms` None is what the clock shows."""

    partition: TopicPartition
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Event(msgspec.Struct, frozen=True):
    """`after_ms`: since the beginning of the case. Nothing may happen but that time has passed."""

    after_ms: int
    record: Produced | None = None
    source: str = ""
    watermark_ms: int | None = None
    """The watermark of `source` comes to it."""


def derive_events(given: Mapping[str, Sequence[GivenSettings]], sources: Mapping[str, SourceSettings]) -> list[Event]:
    """Each source has a time of its own, which its `advance` moves; at the same time the sources' order counts."""
    events: list[Event] = []
    for name, elements in given.items():
        after_ms = 0
        for element in elements:
            if element.advance_ms is not None:
                after_ms += element.advance_ms
                events.append(Event(after_ms))
            elif element.watermark is not None:
                events.append(Event(after_ms, None, name, element.watermark))
            else:
                events.append(Event(after_ms, _record(element, sources[name])))
    return sorted(events, key=lambda event: event.after_ms)


def _record(element: GivenSettings, source: SourceSettings) -> Produced:
    part = TopicPartition(element.topic or source.all_topics[0], element.partition)
    key = element.key_base64 if element.key is None else element.key.encode()
    return Produced(part, key, _value(element, source.format), element.timestamp, element.headers or ())


def _value(element: GivenSettings, format_name: str) -> bytes | None:
    if element.text is not None:
        return element.text.encode()
    if element.value_base64 is not None:
        return element.value_base64
    return None if element.value is None else FORMATS[format_name].from_plain(element.value)


def derive_ends(records: Iterable[Produced], sources: Iterable[SourceSettings]) -> dict[TopicPartition, int]:
    """How many records each partition has at the end. A topic without records has one partition."""
    ends: dict[TopicPartition, int] = Counter(one.partition for one in records)
    named = {part.topic for part in ends}
    for source in sources:
        ends |= {TopicPartition(topic, 0): 0 for topic in source.all_topics if topic not in named}
    return ends
