"""The schemas that a pipeline file names, read before there is a plan: from files, from the registry or its copy."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Final

from tidegate.config.load import LoadedPipeline
from tidegate.config.schemas import SchemaReference, derive_references
from tidegate.daemon.start.registry_access import copies_of, open_registry
from tidegate.formats.schemas import SchemaText
from tidegate.registry.client import SCHEMA_BYTES_MAX, Registry
from tidegate.registry.errors import RegistryAway, RegistryRefused
from tidegate.settings.schemas import RegistrySettings

logger = logging.getLogger(__name__)

PATIENCE_S: Final = 30.0
"""For a registry of which there is no copy: it may be starting, too."""
AGAIN_S: Final = 1.0


class Ask(Enum):
    """Where schemas of the registry are taken from."""

    COPY = "the copy on this machine"
    REGISTRY = "the registry, and nothing else"
    EITHER = "the registry; the copy while it is away"


class SchemaUnavailable(Exception):
    """A schema that the file names cannot be had."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message, self.remedy = message, remedy


Found = SchemaText | SchemaUnavailable


def resolve_schemas(loaded: LoadedPipeline, ask: Ask) -> LoadedPipeline:
    """The same with its `schemas`; those that cannot be had are among its `problems`.

    Raises RegistryAway where the registry is asked, does not answer, and no copy may be taken.
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
        return SchemaText(one.kind, data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return SchemaUnavailable(f"{path} is not UTF-8 text", "save the file as UTF-8")


def _read_copy(registry: RegistrySettings, one: SchemaReference) -> Found:
    copy = copies_of(registry).of_version(one.subject, one.version)
    if copy is None:
        remedy = "run `tidegate validate --connect FILE` once where the registry can be reached: it keeps a copy"
        return SchemaUnavailable(f"there is no copy here of `{one.subject}` of the registry", remedy)
    return _checked(one, copy)


async def _read_all(
    settings: RegistrySettings, references: Sequence[SchemaReference], *, may_copy: bool
) -> Mapping[SchemaReference, Found]:
    try:
        async with open_registry(settings) as registry:
            return {one: await _read_one(registry, one, may_copy=may_copy) for one in references}
    except RegistryRefused as error:  # certificates
        return {one: SchemaUnavailable(error.message, error.remedy) for one in references}


async def _read_one(registry: Registry, one: SchemaReference, *, may_copy: bool) -> Found:
    started, told = time.monotonic(), False
    while True:
        try:
            return _checked(one, await registry.read_version(one.subject, one.version))
        except RegistryRefused as error:
            return SchemaUnavailable(error.message, error.remedy or "check the subject and the version")
        except RegistryAway as away:
            if not may_copy:
                raise
            copy = registry.copy_of_version(one.subject, one.version)
            if copy is not None:
                logger.warning("%s: `%s` is taken from its copy here", away.message, one.subject)
                return _checked(one, copy)
            if time.monotonic() - started > PATIENCE_S:
                raise
            if not told:
                logger.warning("waiting for the registry, %g s at most: %s", PATIENCE_S, away.message)
            told = True
            await asyncio.sleep(AGAIN_S)


def _checked(one: SchemaReference, schema: SchemaText) -> Found:
    if schema.kind is not one.kind:
        message = f"`{one.subject}` is a schema in {schema.kind}, and the format's are in {one.kind}"
        return SchemaUnavailable(message, "name another subject, or change `format`")
    return schema
