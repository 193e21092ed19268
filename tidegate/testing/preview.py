"""Runs a pipeline over the lines of a file, and yields what each sink would write or what comes out of a step."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, BinaryIO, Final

import msgspec

from tidegate.config.cases import NOW, moment_ms
from tidegate.config.fields.types import derive_timestamp
from tidegate.config.load import LoadedPipeline
from tidegate.config.models import SinkSettings, SourceSettings
from tidegate.errors import TidegateError
from tidegate.formats.contract import FormatRefusal
from tidegate.formats.plain import parse_json, render_json
from tidegate.formats.registry import DEFAULT, FORMATS
from tidegate.formats.schema_ids import prefix_of
from tidegate.formats.schema_keys import key_from_plain
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, SchemaKind
from tidegate.ids import OperatorName, TopicPartition
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.registry import choose_step_kind
from tidegate.plan.build import build_plan
from tidegate.plan.graph import Plan
from tidegate.testing.compare import JsonText, Record, derive_written
from tidegate.testing.feed import NO_TIMESTAMP, Copies, FeedEvent, ProducedRecord, derive_ends
from tidegate.testing.flow_text import render_moment
from tidegate.testing.playing import PlayedInput, Run, open_code

CHUNK: Final = 1000
"""Number of records that arrive before the pipeline runs."""
LINE_BYTES_MAX: Final = 64 << 20
"""Prevents input without line ends, such as a device or a binary file, from being read into memory completely."""
_PAIR: Final = 2
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_STEP_SINK: Final = "preview-of-"


class RecordRefused(TidegateError):
    """A line is not a record."""

    code = "record-refused"
    exit_code = 2
    retriable = False


class StepUnknown(TidegateError):
    """The file does not contain a name."""

    code = "unknown-step"
    exit_code = 2
    retriable = False


class Previewed(msgspec.Struct, frozen=True):
    """A record that came out of the sink, step or source `place`. Its value is JsonText or None."""

    place: str
    record: Record


def tap_steps(loaded: LoadedPipeline, names: Sequence[str]) -> tuple[LoadedPipeline, Plan]:
    """Returns the pipeline with one more sink after each of these sources and steps."""
    taps: dict[str, SinkSettings] = {
        tapping_sink(number): SinkSettings.model_validate({"from": name, "topic": "preview", "format": DEFAULT})
        for number, name in enumerate(names)
    }
    sinks = {**loaded.settings.sinks, **taps}
    tapped = replace(loaded, settings=loaded.settings.model_copy(update={"sinks": sinks, "tests": []}))
    return tapped, build_plan(tapped)


def tapping_sink(number: int) -> OperatorName:
    """Returns the sink that `tap_steps` adds for the name of this number."""
    return OperatorName(f"{_STEP_SINK}{number}")


def tappable(loaded: LoadedPipeline) -> list[str]:
    """Returns the names of sources, steps and their outputs, in file order."""
    named = [choose_step_kind(step).readable(step) for step in loaded.settings.steps]
    return [*loaded.settings.sources, *chain.from_iterable(named)]


def choose_source(loaded: LoadedPipeline, text: str) -> tuple[str, str]:
    """Splits `source=file` into both. The source may be left out if there is only one. Raises StepUnknown."""
    sources = list(loaded.settings.sources)
    name, _, path = text.partition("=")
    if name in sources and path:
        return name, path
    if len(sources) == 1:
        return sources[0], text
    known = ", ".join(sources)
    raise StepUnknown(f"{loaded.file} has several sources; write --input {sources[0]}={text} for one of {known}")


class Preview:
    """One run over a file. Partitions are those in the lines, or 0. The input ends with the file, so windows close."""

    def __init__(
        self,
        loaded: LoadedPipeline,
        plan: Plan,
        on_skipped: Callable[[str], None],
        copies: Copies | None = None,
    ) -> None:
        self._loaded = loaded
        self._copies = copies
        self._plan = msgspec.structs.replace(bound_sources(plan), parallelism=1)
        self._on_skipped = on_skipped
        self.late: dict[str, int] = {}
        """Step -> number of late records, after the run."""
        self.notes: list[str] = []
        """Notes that may explain missing records, after the run."""

    def run(self, records: Iterable[ProducedRecord], tapped: Sequence[str] = ()) -> Iterator[Previewed]:
        """Yields the output, by sink in file order."""
        produced = list(records)
        events = [FeedEvent(0, one) for one in produced]
        ends = derive_ends(produced, self._loaded.settings.sources.values())
        given = PlayedInput(events, ends, moment_ms(NOW), CHUNK, self._copies)
        played = Run(self._plan, given, self._on_skipped, open_code(self._loaded)).play()
        self.late, self.notes = played.late, played.notes
        sinks = {sink.name: sink for sink in self._plan.operators(SinkOperator)}
        for name in map(OperatorName, self._loaded.settings.sinks):
            if tapped and not name.startswith(_STEP_SINK):
                continue
            place = tapped[int(name.removeprefix(_STEP_SINK))] if tapped else name
            for record in derive_written(played.written.get(name, ()), sinks[name]):
                yield Previewed(place, record)


def render_fields(fields: Record) -> str:
    """Renders a record's fields, or additional ones, as single-line JSON."""
    moment = {"timestamp": render_moment(fields["timestamp"])} if "timestamp" in fields else {}
    texts = (f"{render_json(name)}: {render_field(value)}" for name, value in {**fields, **moment}.items())
    return f"{{{', '.join(texts)}}}"


def render_field(value: Any) -> str:
    """Renders a value so that it cannot move a terminal's cursor: unprintable characters become JSON escapes."""
    text = value if isinstance(value, JsonText) else render_json(value, spaced=True)
    return text if text.isprintable() else "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def bound_sources(plan: Plan) -> Plan:
    """Returns the plan with bounded sources."""
    vertices = tuple(
        msgspec.structs.replace(
            vertex,
            nodes=tuple(
                msgspec.structs.replace(node, operator=msgspec.structs.replace(node.operator, until="latest"))
                if isinstance(node.operator, SourceOperator)
                else node
                for node in vertex.nodes
            ),
        )
        for vertex in plan.vertices
    )
    return msgspec.structs.replace(plan, vertices=vertices)


class LineParser:
    """Parses lines into records of a source.

    `whole`: a line is an object with `value` and, as `topic read --format json` prints them, `key`, `timestamp`,
    `partition`, `headers`. Otherwise the line is the value.
    """

    def __init__(
        self,
        settings: SourceSettings,
        options: FormatOptions = NO_OPTIONS,
        key_options: FormatOptions | None = None,
        *,
        whole: bool,
        file: str = "",
    ) -> None:
        """`key_options`: options of keys in a format with schemas, which are written as JSON.

        `file`: name of the file for messages.
        """
        self._file = f"{file}: " if file else ""
        self._options = options
        self._key_options = key_options
        self._format = FORMATS[settings.format]
        self._settings = settings
        self._whole = whole

    def read(self, stream: BinaryIO) -> Iterator[ProducedRecord]:
        """Returns the records of the lines of a file. The iterator raises RecordRefused."""
        return self.parse(self._lines(stream))

    def _lines(self, stream: BinaryIO) -> Iterator[bytes]:
        try:
            yield from iter(lambda: stream.readline(LINE_BYTES_MAX + 1), b"")
        except OSError as error:
            raise RecordRefused(f"{self._file}the file cannot be read: {error.strerror or error}") from error

    def parse(self, lines: Iterable[bytes]) -> Iterator[ProducedRecord]:
        """Yields a record for each line that is not blank. Raises RecordRefused."""
        for number, line in enumerate(lines, 1):
            if len(line) > LINE_BYTES_MAX:
                what = f"line {number} is not a record: it has more than {LINE_BYTES_MAX >> 20} MiB"
                raise RecordRefused(f"{self._file}{what}", line=number)
            text = (line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line).rstrip(b"\r\n")
            if not text.strip(b" "):  # a line of tabs may be a row of NULLs
                continue
            try:
                yield self._parse(text)
            except (ValueError, TypeError, RecursionError, FormatRefusal) as error:
                raise RecordRefused(f"{self._file}line {number} is not a record: {error}", line=number) from error

    def _parse(self, line: bytes) -> ProducedRecord:
        if not self._whole:  # unchanged if possible: the pipeline itself must detect what is wrong with it
            if self._format.schema_kind is SchemaKind.JSON:
                line = prefix_of(self._options) + line
            elif not self._format.is_text:
                line = self._format.from_plain(parse_json(line), self._options)
            return self._record(line)
        entry = parse_json(line)
        if not isinstance(entry, dict):
            raise TypeError("it is not an object with `value`; without --records, each line is a value")
        topic = entry.get("topic")
        if not isinstance(topic, str) or not self._settings.reads(topic):
            topic = self._settings.example_topic
        return ProducedRecord(
            TopicPartition(topic, _partition(entry.get("partition"))),
            self._key(entry),
            self._value(entry),
            _timestamp(entry["timestamp"]) if "timestamp" in entry else None,
            _headers(entry.get("headers")),
            self._settings.cluster,
        )

    def _record(self, value: bytes) -> ProducedRecord:
        part = TopicPartition(self._settings.example_topic, 0)
        return ProducedRecord(part, None, value, cluster=self._settings.cluster)

    def _key(self, entry: Mapping[str, Any]) -> bytes | None:
        text = entry.get("key")
        if self._key_options is None or not isinstance(text, str) or text.startswith("\0"):  # with its schema's id
            return _bytes_of(entry, "key")
        return key_from_plain(text, self._key_options)

    def _value(self, entry: Mapping[str, Any]) -> bytes | None:
        if "value" not in entry and "value_base64" not in entry:
            raise ValueError("it has no `value`; without --records, each line is a value")
        value = entry.get("value")
        is_plain = self._format.schema_kind is None and self._format.is_text
        if isinstance(value, str | None) or "value_base64" in entry or is_plain:
            return _bytes_of(entry, "value")  # text is the encoded record itself; a readable value is an object
        return self._format.from_plain(value, self._options)


def _bytes_of(entry: Mapping[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in entry:
        return _base64(entry[f"{name}_base64"])
    text = entry.get(name)
    return None if text is None else text.encode() if isinstance(text, str) else render_json(text).encode()


def _header_value(value: object) -> bytes | None:
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return _base64(value["base64"])
    return None if value is None else str(value).encode()


def _base64(text: object) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except binascii.Error as error:
        raise ValueError(f"{str(text)[:40]!r} is not base64") from error


def _timestamp(value: object) -> int:
    """Parses a timestamp. `tidegate topic read` prints a missing one as `null`."""
    if value is None:
        return NO_TIMESTAMP
    if type(value) is int and abs(value) < 1 << 63:
        return value
    try:
        return moment_ms(derive_timestamp(value if isinstance(value, str) else ""))
    except ValueError as error:
        remedy = "use a time such as 2026-11-01T00:00:00Z, or the milliseconds since 1970"
        raise ValueError(f"`timestamp` is {str(value)[:40]}; {remedy}") from error


def _partition(value: object) -> int:
    if value is None:
        return 0
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise ValueError(f"`partition` is {str(value)[:40]}; use a whole number from 0 on")
    return value


def _headers(value: object) -> tuple[tuple[str, bytes | None], ...]:
    pairs = [] if value is None else value
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == _PAIR for pair in pairs):
        raise ValueError('`headers` must be a list of pairs: [["source", "web"], ["trace", null]]')
    return tuple((str(name), _header_value(each)) for name, each in pairs)
