"""Schemas that a pipeline file names: consistency of the settings, and references to look up. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator

import msgspec

from tidegate.config.errors import PathProblem
from tidegate.config.fields.base import Path
from tidegate.config.fields.schemas import LATEST, NamedSchema, RegistrySettings, WrittenSchema
from tidegate.config.models import PipelineSettings
from tidegate.formats import keys
from tidegate.formats.registry import FORMATS


class SchemaReference(msgspec.Struct, frozen=True):
    """A schema in a file or the registry: `file`, or `subject` and `version`."""

    path: Path
    """The path of the `schema` that names it."""
    format: str
    file: str = ""
    subject: str = ""
    version: str | int = LATEST
    message: str = ""


class _End(msgspec.Struct, frozen=True):
    """A place where records have a schema: the value or key of a source or sink."""

    path: Path
    """The path of its `schema`, or `key_schema`."""
    format: str
    schema: NamedSchema | WrittenSchema | None
    """None if the file names none."""
    ids: str
    ids_written: bool
    """True if the file has `schema_id`."""
    is_source: bool

    @property
    def format_path(self) -> Path:
        """The path of its `format`, or `key_format`."""
        return (*self.path[:-1], "key_format" if self.path[-1] == "key_schema" else "format")


def derive_references(settings: PipelineSettings) -> list[SchemaReference]:
    """Returns all schemas needed before a plan can be built, in the order of the file."""
    found = []
    for one in _ends(settings):
        schema = one.schema
        if FORMATS[one.format].schema_kind is None or schema is None:
            continue
        message = schema.message or ""
        if schema.file is not None:
            found.append(SchemaReference(one.path, one.format, file=schema.file, message=message))
        elif schema.registry is not None and (isinstance(schema, NamedSchema) or schema.register_ == "existing"):
            found.append(SchemaReference(one.path, one.format, "", schema.registry, schema.version, message))
    return found


def _ends(settings: PipelineSettings) -> Iterator[_End]:
    for name, source in settings.sources.items():
        read = source.schema_ if isinstance(source.schema_, NamedSchema) else None
        written = "schema_id" in source.model_fields_set
        yield _End(("sources", name, "schema"), source.format, read, source.schema_id, written, is_source=True)
        if source.key_format == keys.AVRO:
            read = source.key_schema if isinstance(source.key_schema, NamedSchema) else None
            yield _End(("sources", name, "key_schema"), keys.AVRO, read, source.schema_id, written, is_source=True)
    for name, sink in settings.sinks.items():
        written = "schema_id" in sink.model_fields_set
        yield _End(("sinks", name, "schema"), sink.format, sink.schema_, sink.schema_id, written, is_source=False)
        if sink.key_format == keys.AVRO:
            yield _End(
                ("sinks", name, "key_schema"), keys.AVRO, sink.key_schema, sink.schema_id, written, is_source=False
            )


def decide_schema_problems(settings: PipelineSettings, *, registry: bool) -> Iterator[PathProblem]:
    """Checks sources, sinks and the registry; `registry`: the file has that section, even if broken."""
    if settings.registry is not None:
        yield from _registry(settings.registry)
    ends = list(_ends(settings))
    with_ids = {one.path[:2] for one in ends if FORMATS[one.format].schema_kind is not None}
    for one in ends:
        if FORMATS[one.format].schema_kind is None:
            yield from _without_schemas(one, with_ids)
            continue
        if not registry and _asks(one):
            message = f"{one.format} needs the schema registry"
            remedy = "add `registry: {url: ...}` to the file, or `schema_id: none` where records have no id"
            yield PathProblem(one.format_path, message, remedy)
        if one.ids == "none" and one.schema is None and one.is_source:
            message = "records have no schema id, and no schema is named"
            remedy = f"add `{one.path[-1]}: {{file: ...}}` or `{{registry: ...}}`"
            yield PathProblem((*one.path[:-1], "schema_id"), message, remedy)
        if isinstance(one.schema, WrittenSchema):
            yield from _written(one, one.schema)
    for name, sink in settings.sinks.items():
        if sink.key_schema is not None and sink.key_format != keys.AVRO:
            message = f"a {sink.key_format or keys.TEXT} key has no schema"
            yield PathProblem(
                ("sinks", name, "key_schema"), message, "remove it, or write `key_format: avro`", at_key=True
            )


def _without_schemas(one: _End, with_ids: Container[Path]) -> Iterator[PathProblem]:
    """Checks a format without schemas; `with_ids` are the sources and sinks with a schema for value or key."""
    message = f"{one.format} has no schemas"
    if one.schema is not None:
        remedy = "list the columns: `schema: {id: bigint}`" if one.is_source else "remove it"
        yield PathProblem(one.path, message, remedy, at_key=True)
    if one.ids_written and one.path[:2] not in with_ids:
        yield PathProblem((*one.path[:-1], "schema_id"), message, "remove it", at_key=True)


def _asks(one: _End) -> bool:
    """Tells whether it needs the registry."""
    return one.ids != "none" or (one.schema is not None and one.schema.registry is not None)


def _written(one: _End, schema: WrittenSchema) -> Iterator[PathProblem]:
    path = one.path
    if one.ids == "none" and schema.register_ == "auto" and schema.registry is not None:
        message = "records have no schema id, so no schema is registered"
        yield PathProblem((*path, "registry"), message, "remove it, or write `register: existing`", at_key=True)
    if schema.registry is not None and schema.subject != "topic":
        message = "`registry` names the subject already"
        yield PathProblem((*path, "subject"), message, "keep one of them", at_key=True)
    if schema.message is not None and schema.file is None and schema.register_ != "existing":
        remedy = "remove it, or name the schema: `file`, or `register: existing`"
        yield PathProblem((*path, "message"), "`message` selects from an existing schema", remedy, at_key=True)
    if schema.version != LATEST and (schema.file is not None or schema.register_ != "existing"):
        remedy = "remove it, or write `register: existing`, and no `file`"
        yield PathProblem((*path, "version"), "`version` needs a schema that is in the registry", remedy, at_key=True)


def _registry(registry: RegistrySettings) -> Iterator[PathProblem]:
    for one, other in (
        ("username", "password"),
        ("password", "username"),
        ("certificate", "key"),
        ("key", "certificate"),
    ):
        if getattr(registry, one) is not None and getattr(registry, other) is None:
            yield PathProblem(("registry", one), f"`{one}` without `{other}`", f"add `{other}`", at_key=True)
    if registry.token is not None and registry.username is not None:
        yield PathProblem(("registry", "token"), "both a token and a user are given", "keep one of them", at_key=True)
    plain = [url for url in registry.url if not url.startswith("https:")]
    if plain and (registry.ca is not None or registry.certificate is not None):
        yield PathProblem(
            ("registry", "url"), f"`{plain[0]}` is not encrypted", "write https://, or remove `ca` and `certificate`"
        )
