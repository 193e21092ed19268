"""The schema that a sink's records are written with: its text, its subject, and what a start does about it."""

from __future__ import annotations

from typing import Protocol

import msgspec

from tidegate.config.load import LoadedPipeline
from tidegate.config.models import SinkSettings
from tidegate.datatypes import Schema
from tidegate.formats.contract import Format, FormatRefusal
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, IdPlace, Registration, SchemaText
from tidegate.plan.scope import Declared
from tidegate.settings.base import Path
from tidegate.settings.schemas import WrittenSchema


class ReportProblem(Protocol):
    """See Builder.problem."""

    def __call__(self, path: Path, message: str, remedy: str = "", *, at_key: bool = False) -> None:
        """Something is wrong at a path."""


class WrittenWith(msgspec.Struct, frozen=True):
    """What a SinkOperator has of it."""

    options: FormatOptions = NO_OPTIONS
    register: Registration | None = None


def derive_written_schema(
    loaded: LoadedPipeline, one: Declared, sink: SinkSettings, columns: Schema, problem: ReportProblem
) -> WrittenWith | None:
    """None where there is none, which is reported: here, or where it was looked for. `columns` are those written."""
    record_format = FORMATS[sink.format]
    if record_format.schema_kind is None:
        return WrittenWith()
    settings = sink.schema_ or WrittenSchema()
    path: Path = (*one.path, "schema")
    named = settings.file is not None or (settings.registry is not None and settings.register_ == "existing")
    text = loaded.schemas.get(path)
    if named and text is None:
        return None
    try:
        if text is None:
            text = record_format.derive_schema(columns, sink.topic)
        else:
            record_format.check_schema(text, columns)
        ids, registered = IdPlace(sink.schema_id), settings.file is None and text.id != 0
        if ids is not IdPlace.NONE and not registered:
            text = msgspec.structs.replace(text, subject=_subject(record_format, settings, sink.topic, text))
    except FormatRefusal as refusal:
        problem(path if named else (*one.path, "format"), refusal.message, refusal.remedy)
        return None
    register = None if ids is IdPlace.NONE or registered else Registration(settings.register_)
    return WrittenWith(FormatOptions(text, ids), register)


def _subject(record_format: Format, settings: WrittenSchema, topic: str, text: SchemaText) -> str:
    """Raises FormatRefusal."""
    if settings.registry is not None:
        return settings.registry
    if settings.subject == "topic":
        return f"{topic}-value"
    name = record_format.schema_name(text)
    return name if settings.subject == "record" else f"{topic}-{name}"
