"""What a case gives, as events in the order of their time, and the log that they need. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tidegate.config.cases import GivenSettings
from tidegate.config.models import SourceSettings
from tidegate.errors import TidegateError
from tidegate.formats.contract import FormatRefusal
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, Schemas, known_schemas
from tidegate.ids import TopicPartition
from tidegate.operators.kinds.kafka_source import SourceOperator
from tidegate.plan.graph import Plan


class Produced(msgspec.Struct, frozen=True):
    """A record of a topic; `timestamp_ms` None is what the clock shows."""

    partition: TopicPartition
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class ValueRefused(TidegateError):
    """A value of a case that the format of its source has no bytes for."""

    code = "value-refused"
    exit_code = 2
    retriable = False


class Event(msgspec.Struct, frozen=True):
    """`after_ms`: since the beginning of the case. Nothing may happen but that time has passed."""

    after_ms: int
    record: Produced | None = None
    source: str = ""
    watermark_ms: int | None = None
    """The watermark of `source` comes to it."""


def plain_options(plan: Plan) -> dict[str, FormatOptions]:
    """With what schema the values of each source are written; one of its columns where the file names none."""
    return {str(one.name): _plain_options(one) for one in plan.operators(SourceOperator)}


def plain_schemas(source: SourceOperator) -> Schemas:
    """The one that values are written with: there is no registry."""
    return known_schemas(_plain_options(source))


def _plain_options(source: SourceOperator) -> FormatOptions:
    options, record_format = source.options, FORMATS[source.format]
    if record_format.schema_kind is None or options.schema is not None:
        return options
    schema = record_format.derive_schema(dict(source.schema), source.name)
    return msgspec.structs.replace(options, schema=schema)


def derive_events(
    given: Mapping[str, Sequence[GivenSettings]],
    sources: Mapping[str, SourceSettings],
    options: Mapping[str, FormatOptions],
) -> list[Event]:
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
                events.append(Event(after_ms, _record(element, sources[name], options.get(name, NO_OPTIONS))))
    return sorted(events, key=lambda event: event.after_ms)


def _record(element: GivenSettings, source: SourceSettings, options: FormatOptions) -> Produced:
    part = TopicPartition(element.topic or source.example_topic, element.partition)
    key = element.key_base64 if element.key is None else element.key.encode()
    return Produced(part, key, _value(element, source.format, options), element.timestamp, element.headers or ())


def _value(element: GivenSettings, format_name: str, options: FormatOptions) -> bytes | None:
    if element.text is not None:
        return element.text.encode()
    if element.value_base64 is not None:
        return element.value_base64
    if element.value is None:
        return None
    try:
        return FORMATS[format_name].from_plain(element.value, options)
    except FormatRefusal as refused:
        raise ValueRefused(f"{refused.message}: {str(element.value)[:100]}; {refused.remedy}") from refused


def derive_ends(records: Iterable[Produced], sources: Iterable[SourceSettings]) -> dict[TopicPartition, int]:
    """How many records each partition has at the end. A topic without records has one partition."""
    ends: dict[TopicPartition, int] = Counter(one.partition for one in records)
    named = {part.topic for part in ends}
    for source in sources:
        ends |= {
            TopicPartition(topic, 0): 0
            for topic in (source.all_topics or (source.example_topic,))
            if topic not in named
        }
    return ends
