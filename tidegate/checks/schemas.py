"""Reads the schemas that a pipeline file names, before there is a plan: from files, the registry, or its local copy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path

from tidegate.checks.registry import PATIENCE_S, copies_of, open_registry, patiently
from tidegate.config.fields.schemas import RegistrySettings
from tidegate.config.load import LoadedPipeline
from tidegate.config.schemas import SchemaReference, derive_references
from tidegate.formats.contract import FormatRefusal
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import SchemaText
from tidegate.registry.client import SCHEMA_BYTES_MAX, SchemaRegistry
from tidegate.registry.transport import RegistryRefused, RegistryUnavailable

logger = logging.getLogger(__name__)


class Ask(Enum):
    """Where schemas of the registry are taken from."""

    COPY = "the copy on this machine"
    REGISTRY = "the registry, and nothing else"
    EITHER = "the registry, or the copy if the registry is unavailable"


class SchemaUnavailable(Exception):
    """A schema that the file names is unavailable."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message, self.remedy = message, remedy


Found = SchemaText | SchemaUnavailable


def resolve_schemas(loaded: LoadedPipeline, ask: Ask) -> LoadedPipeline:
    """Add `schemas` to a pipeline file; those that are unavailable are among its `problems`.

    Raises RegistryUnavailable if the registry is asked, does not respond, and no copy may be used.
    """
    references = derive_references(loaded.settings)
    directory, registry = Path(loaded.file).parent, loaded.settings.registry
    found: dict[SchemaReference, Found] = {one: _read_file(directory, one) for one in references if one.file}
    named = [one for one in references if not one.file]
    if registry is not None and named:
        if ask is Ask.COPY:
            found |= {one: _read_copy(registry, one) for one in named}
        else:
            found |= asyncio.run(_read_all(registry, named, may_copy=ask is Ask.EITHER))
    if not found:
        return loaded
    problems = [
        loaded.problem((*one.path, "file" if one.file else "registry"), schema.message, schema.remedy)
        for one, schema in found.items()
        if isinstance(schema, SchemaUnavailable)
    ]
    schemas = {one.path: schema for one, schema in found.items() if isinstance(schema, SchemaText)}
    return replace(loaded, schemas=schemas, problems=tuple(sorted({*loaded.problems, *problems})))


def _read_file(directory: Path, one: SchemaReference) -> Found:
    path = directory / one.file
    try:
        with path.open("rb") as stream:
            data = stream.read(SCHEMA_BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        remedy = "a path is relative to the directory of the pipeline file"
        return SchemaUnavailable(f"{path} cannot be read: {reason}", remedy)
    if len(data) > SCHEMA_BYTES_MAX:
        return SchemaUnavailable(f"{path} is larger than {SCHEMA_BYTES_MAX >> 10} KiB", "name a file with a schema")
    try:
        schema = FORMATS[one.format].read_schema(data, _import_directories(path, directory))
        return FORMATS[one.format].select_message(schema, one.message)
    except FormatRefusal as refusal:
        return SchemaUnavailable(f"{path} cannot be used: {refusal.message}", refusal.remedy)


def _import_directories(path: Path, directory: Path) -> tuple[Path, ...]:
    """Returns where a schema's imports are looked for: its directory, and those above it up to the pipeline file's."""
    above = [one for one in path.resolve().parents if one.is_relative_to(directory.resolve())]
    return tuple(above) or (path.resolve().parent,)


def _read_copy(registry: RegistrySettings, one: SchemaReference) -> Found:
    copy = copies_of(registry).of_version(one.subject, one.version)
    if copy is None:
        remedy = "run `tidegate validate --connect FILE` once where the registry can be reached to store a copy"
        return SchemaUnavailable(f"this machine has no copy of `{one.subject}` from the registry", remedy)
    return _checked(one, copy)


async def _read_all(
    settings: RegistrySettings, references: Sequence[SchemaReference], *, may_copy: bool
) -> Mapping[SchemaReference, Found]:
    try:
        async with open_registry(settings) as registry:
            return {one: await _read_one(registry, one, may_copy=may_copy) for one in references}
    except RegistryRefused as error:  # certificates
        return {one: SchemaUnavailable(error.message, error.remedy) for one in references}


async def _read_one(registry: SchemaRegistry, one: SchemaReference, *, may_copy: bool) -> Found:
    """Read a schema, or its copy while the registry is unavailable. Without a copy, wait for the registry."""

    async def ask() -> SchemaText:
        try:
            return await registry.read_version(one.subject, one.version)
        except RegistryUnavailable as unavailable:
            copy = registry.copy_of_version(one.subject, one.version) if may_copy else None
            if copy is None:
                raise
            logger.warning("%s: using the copy of `%s` on this machine", unavailable.message, one.subject)
            return copy

    try:
        return _checked(one, await patiently(ask, PATIENCE_S if may_copy else 0.0))
    except RegistryRefused as error:
        return SchemaUnavailable(error.message, error.remedy or "check the subject and the version")


def _checked(one: SchemaReference, schema: SchemaText) -> Found:
    wanted = FORMATS[one.format].schema_kind
    if schema.kind is not wanted:
        message = f"`{one.subject}` is a schema of type {schema.kind}, but the format needs {wanted}"
        return SchemaUnavailable(message, "name another subject, or change `format`")
    try:
        return FORMATS[one.format].select_message(schema, one.message)
    except FormatRefusal as refusal:
        return SchemaUnavailable(f"`{one.subject}` cannot be used: {refusal.message}", refusal.remedy)
