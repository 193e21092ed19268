"""Schemas that a pipeline file names: what the settings must agree on, and which ones there are to be had. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tidegate.config.errors import PathProblem
from tidegate.config.models import PipelineSettings, SinkSettings, SourceSettings
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import SchemaKind
from tidegate.settings.base import Path
from tidegate.settings.schemas import LATEST, NamedSchema, RegistrySettings


class SchemaReference(msgspec.Struct, frozen=True):
    """A schema that a file or the registry has: `file`, or `subject` and `version`."""

    path: Path
    """Of the `schema` that names it."""
    kind: SchemaKind
    file: str = ""
    subject: str = ""
    version: str | int = LATEST


def derive_references(settings: PipelineSettings) -> list[SchemaReference]:
    """Everything that has to be there before there can be a plan, in the order of the file."""
    found = []
    for path, one in _ends(settings):
        kind, schema = FORMATS[one.format].schema_kind, one.schema_
        if kind is None or schema is None or isinstance(schema, dict):
            continue
        if schema.file is not None:
            found.append(SchemaReference(path, kind, file=schema.file))
        elif schema.registry is not None and (isinstance(schema, NamedSchema) or schema.register_ == "existing"):
            found.append(SchemaReference(path, kind, subject=schema.registry, version=schema.version))
    return found


def _ends(settings: PipelineSettings) -> Iterator[tuple[Path, SourceSettings | SinkSettings]]:
    for name, source in settings.sources.items():
        yield ("sources", name, "schema"), source
    for name, sink in settings.sinks.items():
        yield ("sinks", name, "schema"), sink


def decide_schema_problems(settings: PipelineSettings) -> Iterator[PathProblem]:
    """What sources, sinks and the registry must agree on."""
    if settings.registry is not None:
        yield from _registry(settings.registry)
    for path, one in _ends(settings):
        named = one.schema_ is not None and not isinstance(one.schema_, dict)
        if FORMATS[one.format].schema_kind is None:
            remedy = "list the columns: `schema: {id: bigint}`" if path[0] == "sources" else "remove it"
            if named:
                yield PathProblem(path, f"{one.format} has no schemas", remedy, at_key=True)
            if one.schema_id != "prefix":
                place = (*path[:-1], "schema_id")
                yield PathProblem(place, f"{one.format} has no schemas", "remove it", at_key=True)
            continue
        if settings.registry is None and _asks(one):
            message = f"{one.format} needs the schema registry"
            remedy = "add `registry: {url: ...}` to the file, or `schema_id: none` where records have no id"
            yield PathProblem((*path[:-1], "format"), message, remedy)
        if one.schema_id == "none" and not named and isinstance(one, SourceSettings):
            message = "records without an id, and nothing that says how they were written"
            yield PathProblem((*path[:-1], "schema_id"), message, "add `schema: {file: ...}` or `{registry: ...}`")
        if isinstance(one, SinkSettings) and one.schema_ is not None:
            yield from _written(path, one)


def _asks(one: SourceSettings | SinkSettings) -> bool:
    """Whether the registry is needed for it."""
    named = None if isinstance(one.schema_, dict) else one.schema_
    return one.schema_id != "none" or (named is not None and named.registry is not None)


def _written(path: Path, sink: SinkSettings) -> Iterator[PathProblem]:
    schema = sink.schema_
    if schema is None:
        return
    if sink.schema_id == "none" and schema.register_ == "auto" and schema.registry is not None:
        message = "records without an id, so nothing is registered"
        yield PathProblem((*path, "registry"), message, "remove it, or write `register: existing`", at_key=True)
    if schema.registry is not None and schema.subject != "topic":
        message = "`registry` names the subject already"
        yield PathProblem((*path, "subject"), message, "keep one of them", at_key=True)
    if schema.version != LATEST and (schema.file is not None or schema.register_ != "existing"):
        remedy = "remove it, or write `register: existing`, and no `file`"
        yield PathProblem((*path, "version"), "a version is of a schema that the registry has", remedy, at_key=True)


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
