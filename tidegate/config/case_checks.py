"""Consistency checks of the cases in `tests:`, with one another and with the pipeline.

Return problems, raise nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tidegate.config.cases import CaseSettings, ExpectedSet, ExpectedSettings, GivenSettings, RecordSettings
from tidegate.config.errors import PathProblem
from tidegate.config.fields.base import Path
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.models import PipelineSettings, SinkSettings, SourceSettings, read_section
from tidegate.config.values import Value
from tidegate.formats.contract import FormatRefusal
from tidegate.formats.failures import FailureKind
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import FormatOptions

_VALUES: Final = ("value", "text", "value_base64")
_LETTERS: Final = "dead letters are counted, not compared: `bad_records: {WRONG_TYPE: 1}`"
_KEYS: Final = ("key", "key_base64")


def decide_case_problems(
    settings: PipelineSettings, indices: Sequence[int], values: Mapping[str, Value]
) -> Iterator[PathProblem]:
    """Yields every problem of the cases.

    `values` has what the file contains, because sources and sinks may be broken in `settings`. `indices` are the
    positions of the cases in the file.
    """
    sources, sinks = (_names(values, section) for section in ("sources", "sinks"))
    lines: dict[str, int] = {}
    for index, case in zip(indices, settings.tests, strict=True):
        path: Path = ("tests", index)
        if case.name in lines:
            message = f"the name `{case.name[:60]}` is given twice, first to case {lines[case.name] + 1} of the file"
            yield PathProblem((*path, "name"), message, "rename one of them")
        lines.setdefault(case.name, index)
        yield from _unknown((*path, "given"), case.given, sources, "source")
        yield from _unknown((*path, "expect"), case.expect, sinks, "sink")
        yield from _end(path, case)
        if isinstance(case.late, dict):
            yield from _unknown((*path, "late"), case.late, _steps(values), "step")
        for name, elements in case.given.items():
            source = settings.sources.get(name)
            for place, element in enumerate(elements):
                yield from derive_given_problems((*path, "given", name, place), element, source)
        for name, expected in case.expect.items():
            yield from _expected((*path, "expect", name), expected, settings.sinks.get(name))


def _names(values: Mapping[str, Value], section: str) -> Sequence[str]:
    found = values.get(section)
    return list(found) if isinstance(found, dict) else []


def _steps(values: Mapping[str, Value]) -> Sequence[str]:
    found = values.get("steps")
    items = found if isinstance(found, list) else []
    return [str(item["name"]) for item in items if isinstance(item, dict) and "name" in item]


def _unknown(path: Path, named: Mapping[str, object], known: Sequence[str], what: str) -> Iterator[PathProblem]:
    for name in named:
        if name not in known:
            letters = what == "sink" and name == "dead_letters"
            remedy = _LETTERS if letters else derive_suggestion(name, known)
            yield PathProblem((*path, name), f"there is no {what} `{name}`", remedy or f"name a {what}", at_key=True)


def _end(path: Path, case: CaseSettings) -> Iterator[PathProblem]:
    if case.fails is not None and (case.expect or case.bad_records or case.late):
        message = "a case with `fails` expects nothing else"
        yield PathProblem((*path, "fails"), message, "remove `fails`, or the other expectations", at_key=True)
    if isinstance(case.bad_records, dict):
        for kind in case.bad_records:
            if kind not in FailureKind.__members__:
                remedy = derive_suggestion(
                    kind, FailureKind.__members__, otherwise="`tidegate docs operations/bad-records` lists them"
                )
                message = f"`{kind[:60]}` is not a kind of bad record"
                yield PathProblem((*path, "bad_records", kind), message, remedy, at_key=True)


def derive_given_problems(path: Path, element: GivenSettings, source: SourceSettings | None) -> Iterator[PathProblem]:
    """Yields what is wrong with an element of a case's input. `source` is None if the file has none of its name."""
    if not element.is_record:
        time = "watermark" if "watermark" in element.written else "advance"
        for field in sorted(element.written - {time, "advance_ms" if time == "advance" else time}):
            word = "advance" if field == "advance_ms" else field
            message = f"`{word}` next to `{time}` in one element"
            yield PathProblem((*path, word), message, "write two elements", at_key=True)
        return
    yield from _alternatives(path, element)
    if not element.written.intersection(_VALUES):
        message = "`value` is missing"
        yield PathProblem(path, message, "add it; `value: null` is a tombstone")
    if source is None:
        return
    if element.topic is not None and not source.reads(element.topic):
        remedy = derive_suggestion(element.topic, source.all_topics)
        yield PathProblem((*path, "topic"), f"the source does not read `{element.topic}`", remedy)
    if element.value is not None and FORMATS[source.format].schema_kind is None:  # else the schema decides
        try:
            declared = tuple(source.schema_) if isinstance(source.schema_, dict) else ()
            options = FormatOptions(settings=read_section(source), columns=declared)
            FORMATS[source.format].from_plain(element.value, options)
        except FormatRefusal as refused:
            yield PathProblem((*path, "value"), refused.message, refused.remedy)


def _expected(
    path: Path, expected: list[ExpectedSettings] | ExpectedSet, sink: SinkSettings | None
) -> Iterator[PathProblem]:
    below: Path = (*path, "set") if isinstance(expected, ExpectedSet) else path
    for place, record in enumerate(expected.set_ if isinstance(expected, ExpectedSet) else expected):
        yield from _alternatives((*below, place), record)
        if sink is not None and record.topic is not None:
            yield from _written_topic((*below, place, "topic"), record.topic, sink)


def _written_topic(path: Path, topic: str, sink: SinkSettings) -> Iterator[PathProblem]:
    if isinstance(sink.topic, str):
        yield PathProblem(path, f"the sink writes only to `{sink.topic}`", "remove it", at_key=True)
    elif topic not in sink.all_topics:
        remedy = derive_suggestion(topic, sink.all_topics)
        yield PathProblem(path, f"the sink does not write `{topic}`", remedy)


def _alternatives(path: Path, record: RecordSettings) -> Iterator[PathProblem]:
    for choices in (_VALUES, _KEYS):
        given = [field for field in choices if field in record.written]
        if len(given) > 1:
            message = f"both `{given[0]}` and `{given[1]}` are given"
            yield PathProblem((*path, given[1]), message, "keep one of them", at_key=True)
