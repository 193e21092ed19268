"""Runs a pipeline over the lines of a file, and yields what each sink would write or what comes out of a step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, BinaryIO, Final

import msgspec
from pydantic import ValidationError

from tidegate.config.cases import NOW, GivenSettings, moment_ms
from tidegate.config.errors import join_remedy
from tidegate.config.load import LoadedPipeline
from tidegate.config.models import SinkSettings, SourceSettings
from tidegate.config.translate import derive_problem
from tidegate.errors import TidegateError
from tidegate.formats.contract import FormatRefusal
from tidegate.formats.plain import parse_json, render_json
from tidegate.formats.registry import DEFAULT, FORMATS
from tidegate.formats.schema_ids import prefix_of
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, SchemaKind
from tidegate.ids import OperatorName, TopicPartition
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.registry import choose_step_kind
from tidegate.plan.build import build_plan
from tidegate.plan.graph import Plan
from tidegate.testing.compare import JsonText, Record, derive_written, render_moment
from tidegate.testing.feed import (
    Copies,
    FeedEvent,
    ProducedRecord,
    ValueRefused,
    derive_ends,
    make_record,
    plain_key_options,
    plain_options,
)
from tidegate.testing.playing import PlayedInput, Run, open_code

CHUNK: Final = 1000
"""Number of records that arrive before the pipeline runs."""
LINE_BYTES_MAX: Final = 64 << 20
"""Prevents input without line ends, such as a device or a binary file, from being read into memory completely."""
_FIELDS: Final = ("key", "key_base64", "value", "value_base64", "timestamp", "partition", "topic", "headers")
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
            except (ValueError, TypeError, RecursionError, FormatRefusal, ValueRefused) as error:
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
        return make_record(self._element(entry), self._settings, self._options, self._key_options)

    def _element(self, entry: Mapping[str, Any]) -> GivenSettings:
        """Returns a record as a case has it. A value that is text is the encoded record itself."""
        fields = {name: entry[name] for name in _FIELDS if name in entry}
        if not fields.keys() & {"value", "value_base64"}:
            raise ValueError("it has no `value`; without --records, each line is a value")
        value, topic = fields.get("value"), fields.get("topic")
        if isinstance(value, str):
            fields["text"] = fields.pop("value")
        elif value is not None and self._format.schema_kind is None and self._format.is_text:
            fields["text"] = render_json(fields.pop("value"))
        if not isinstance(topic, str) or not self._settings.reads(topic):
            fields.pop("topic", None)
        try:
            return GivenSettings.model_validate(fields)
        except ValidationError as error:
            problem = derive_problem(error.errors()[0])
            text = join_remedy(problem.message, problem.remedy)
            raise ValueError(f"`{'.'.join(map(str, problem.path))}`: {text}") from error

    def _record(self, value: bytes) -> ProducedRecord:
        part = TopicPartition(self._settings.example_topic, 0)
        return ProducedRecord(part, None, value, cluster=self._settings.cluster)


def read_file(
    loaded: LoadedPipeline, plan: Plan, source: str, stream: BinaryIO, *, whole: bool
) -> Iterator[ProducedRecord]:
    """Returns the records of a file for a source. The iterator raises RecordRefused."""
    options, keys = plain_options(plan).get(source, NO_OPTIONS), plain_key_options(plan).get(source)
    parser = LineParser(loaded.settings.sources[source], options, keys, whole=whole, file=stream.name)
    return parser.read(stream)
