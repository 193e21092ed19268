"""The schema that a sink's records are written with: its text, its subject, and how a start registers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from tidegate.config.fields.base import Path
from tidegate.config.fields.schemas import WrittenSchema
from tidegate.config.load import LoadedPipeline
from tidegate.config.models import SinkSettings
from tidegate.datatypes import DataType, Schema
from tidegate.formats import keys
from tidegate.formats.contract import FormatRefusal
from tidegate.formats.registry import FORMATS
from tidegate.formats.schema_keys import check_key_schema, derive_key_schema
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, IdPlace, Registration, SchemaText
from tidegate.plan.scope import Declared


class ReportProblem(Protocol):
    """A callable that reports problems, such as Builder.problem."""

    def __call__(self, path: Path, message: str, remedy: str = "", *, at_key: bool = False) -> None:
        """Reports a problem at a path."""


class WrittenWith(msgspec.Struct, frozen=True):
    """The options and registration of a schema, for SinkOperator."""

    options: FormatOptions = NO_OPTIONS
    register: Registration | None = None


def derive_written_schema(
    loaded: LoadedPipeline, one: Declared, sink: SinkSettings, columns: Schema, problem: ReportProblem
) -> WrittenWith | None:
    """Derives the schema of a sink's values; `columns` are those written.

    None if there is none; that is reported here, or was when the schema was looked up.
    """
    record_format = FORMATS[sink.format]
    if record_format.schema_kind is None:
        return WrittenWith()
    name = sink.topic if isinstance(sink.topic, str) else one.name
    return _written_with(
        _Part((*one.path, "schema"), (*one.path, "format"), "value", sink.schema_ or WrittenSchema(), sink),
        loaded.schemas.get((*one.path, "schema")),
        lambda: record_format.derive_schema(columns, name),
        lambda text: record_format.check_schema(text, columns),
        record_format.schema_name,
        problem,
    )


def derive_written_key(
    loaded: LoadedPipeline, one: Declared, sink: SinkSettings, kind: DataType | None, problem: ReportProblem
) -> WrittenWith | None:
    """Derives the schema of a sink's keys, whose column has the type `kind`, like derive_written_schema."""
    if sink.key_format != keys.AVRO or kind is None:
        return WrittenWith()
    name = sink.topic if isinstance(sink.topic, str) else one.name
    return _written_with(
        _Part((*one.path, "key_schema"), (*one.path, "key_format"), "key", sink.key_schema or WrittenSchema(), sink),
        loaded.schemas.get((*one.path, "key_schema")),
        lambda: derive_key_schema(kind, name),
        lambda text: check_key_schema(text, kind),
        FORMATS[keys.AVRO].schema_name,
        problem,
    )


class _Part(NamedTuple):
    """The schema settings for a sink's values, or keys."""

    path: Path
    format_path: Path
    name: str
    """The suffix in names of subjects."""
    settings: WrittenSchema
    sink: SinkSettings


def _written_with(
    part: _Part,
    text: SchemaText | None,
    derive: Callable[[], SchemaText],
    check: Callable[[SchemaText], None],
    name_of: Callable[[SchemaText], str],
    problem: ReportProblem,
) -> WrittenWith | None:
    """Derives or checks the schema. `text` is the schema that the file names, if it was found.

    `derive`, `check` and `name_of` raise FormatRefusal.
    """
    settings = part.settings
    named = settings.file is not None or (settings.registry is not None and settings.register_ == "existing")
    if named and text is None:
        return None
    try:
        if text is None:
            text = derive()
        else:
            check(text)
        ids, registered = IdPlace(part.sink.schema_id), settings.file is None and text.id != 0
        if ids is not IdPlace.NONE and not registered:
            text = msgspec.structs.replace(text, subject=_subject(part, text, name_of))
    except FormatRefusal as refusal:
        problem(part.path if named else part.format_path, refusal.message, refusal.remedy)
        return None
    register = None if ids is IdPlace.NONE or registered else Registration(settings.register_)
    return WrittenWith(FormatOptions(text, ids), register)


def _subject(part: _Part, text: SchemaText, name_of: Callable[[SchemaText], str]) -> str:
    """Returns the subject under which the schema is registered. Raises FormatRefusal."""
    settings, topic = part.settings, part.sink.topic
    if settings.registry is not None:
        return settings.registry
    if settings.subject != "record" and not isinstance(topic, str):
        raise FormatRefusal(
            "the one schema of all records is not registered for each of several topics",
            f"name its subject: `{part.path[-1]}: {{registry: NAME}}`"
            + (", or write `schema: {subject: record}`" if part.name == "value" else ""),
        )
    if settings.subject == "topic":
        return f"{topic}-{part.name}"
    try:
        name = name_of(text)
    except FormatRefusal as refusal:  # a key, which may have any type; a value's schema was checked before
        message = f"the subject is named after the record, but the {part.name} is not a record"
        raise FormatRefusal(message, f"name it: `{part.path[-1]}: {{registry: NAME}}`") from refusal
    return name if settings.subject == "record" else f"{topic}-{name}"
