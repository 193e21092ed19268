"""Opens the schema registry of a pipeline file, reads the schemas that the file names, checks those of sinks before a
start, and registers them.

`validate --connect` reports what `run` is refused for: both call `check_registrations`, which changes nothing. One case
cannot be checked in advance: a second new schema for a subject before the first is registered. It is a warning.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path as FilePath
from typing import Final, NamedTuple, TypeVar

from tidegate.checks.findings import Finding, prevent_start, warn_of_start
from tidegate.config.fields.base import Path
from tidegate.config.fields.schemas import RegistrySettings
from tidegate.config.load import LoadedPipeline
from tidegate.config.schemas import SchemaReference, derive_references
from tidegate.formats import keys
from tidegate.formats.contract import FormatRefusal
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import IdPlace, Registration, SchemaText
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.registry.client import SCHEMA_BYTES_MAX, SchemaCopies, SchemaRegistry
from tidegate.registry.transport import RegistryRefused, RegistryUnavailable, SchemaMissing
from tidegate.spark.work_directory import cache_directory

logger = logging.getLogger(__name__)

PATIENCE_S: Final = 30.0
"""The default, unless the command line sets it."""
AGAIN_S: Final = 1.0

T = TypeVar("T")


def copies_of(settings: RegistrySettings) -> SchemaCopies:
    """Open the copies of schemas on this machine."""
    return SchemaCopies(cache_directory() / "schemas", settings.url[0])


def open_registry(settings: RegistrySettings) -> SchemaRegistry:
    """Create a client, to be entered in the event loop that uses it.

    Raises RegistryRefused for unusable certificates.
    """
    from tidegate.registry.transport import Transport  # loads aiohttp, which most commands do without

    return SchemaRegistry(Transport(settings), copies_of(settings))


async def patiently(ask: Callable[[], Awaitable[T]], patience_s: float) -> T:
    """Ask until there is an answer, with one warning in the log. Raises RegistryUnavailable when the time is over."""
    deadline, told = time.monotonic() + patience_s, False
    while True:
        try:
            return await ask()
        except RegistryUnavailable as unavailable:
            if time.monotonic() >= deadline:
                raise
            if not told:
                logger.warning("waiting up to %g s for the registry: %s", patience_s, unavailable.message)
            told = True
            await asyncio.sleep(AGAIN_S)


VALUE: Final = "schema"
KEY: Final = "key_schema"
WrittenSchemas = Mapping[tuple[OperatorName, str], SchemaText]
"""The schemas that sinks write with, for their values (`VALUE`) and keys (`KEY`)."""


class Registering(NamedTuple):
    """A schema that needs an id."""

    sink: OperatorName
    option: str
    """`schema` or `key_schema`: the option below the sink in the file."""
    schema: SchemaText
    how: Registration


def registering(plan: Plan) -> Iterator[Registering]:
    """List the schemas of all sinks, for their values and their keys."""
    for sink in plan.operators(SinkOperator):
        for option, schemas, how in (
            (VALUE, sink.options, sink.register),
            (KEY, sink.key_options, sink.key_register),
        ):
            if how is not None and schemas.schema is not None:
                yield Registering(sink.name, option, schemas.schema, how)


async def check_registrations(loaded: LoadedPipeline, plan: Plan, patience_s: float) -> list[Finding]:
    """Check whether the registry responds and accepts the schemas.

    A registry that does not respond is a warning if there are copies of all schemas that a start needs. If not, the
    check waits for it for up to `patience_s`.
    """
    if loaded.settings.registry is None or not _names_schemas(plan):
        return []
    findings: list[Finding] = []
    try:
        async with open_registry(loaded.settings.registry) as registry:
            copies = [registry.copy_of_text(one.schema.subject, one.schema) for one in registering(plan)]
            unavailable = await _wait(registry, patience_s if None in copies else 0.0)
            new: dict[str, Registering] = {}
            for one in registering(plan):
                if unavailable is not None and registry.copy_of_text(one.schema.subject, one.schema) is None:
                    raise unavailable
                try:
                    if unavailable is None and await _check(registry, one):
                        first = new.setdefault(one.schema.subject, one)
                        findings += _unknown(one, first)
                except RegistryRefused as error:
                    findings.append(_refused(one, error))
            if unavailable is not None:
                findings.append(_warn_of_outage(unavailable))
    except (RegistryUnavailable, RegistryRefused) as error:
        path: Path = ("registry", str(error.fields.get("setting", "")) or "url")
        remedy = error.remedy if isinstance(error, RegistryRefused) else "start the registry, or correct its address"
        findings.append(prevent_start(path, error.message, remedy, error.exit_code, error))
    return findings


def _names_schemas(plan: Plan) -> bool:
    """Return whether any records carry ids of schemas."""
    ends: list[SourceOperator | SinkOperator] = [*plan.operators(SourceOperator), *plan.operators(SinkOperator)]
    return any(
        (FORMATS[one.format].schema_kind is not None and one.options.ids is not IdPlace.NONE)
        or (one.key_format == keys.AVRO and one.key_options.ids is not IdPlace.NONE)
        for one in ends
    )


async def _wait(registry: SchemaRegistry, patience_s: float) -> RegistryUnavailable | None:
    """Wait until the registry responds; return the error if it does not. Raises RegistryRefused."""
    try:
        await patiently(registry.ping, patience_s)
    except RegistryUnavailable as unavailable:
        return unavailable
    return None


def _warn_of_outage(unavailable: RegistryUnavailable) -> Finding:
    return warn_of_start(
        ("registry", "url"), unavailable.message, "records wait if this machine has no copy of their schema"
    )


async def register_schemas(registry: SchemaRegistry, plan: Plan) -> WrittenSchemas:
    """Register the schemas of all sinks. Raises RegistryUnavailable, RegistryRefused."""
    found = {}
    for one in registering(plan):
        schema = found[one.sink, one.option] = await _register(registry, one)
        what = "keys" if one.option == KEY else "values"
        logger.info("sink %s writes %s with schema %d of %s", one.sink, what, schema.id, one.schema.subject)
    return found


async def _check(registry: SchemaRegistry, one: Registering) -> bool:
    """Check that the subject has or accepts a schema; return whether it is new.

    Raises RegistryUnavailable, RegistryRefused.
    """
    try:
        await registry.look_up(one.schema.subject, one.schema)
    except SchemaMissing:
        if one.how is Registration.EXISTING:
            raise
        await registry.check(one.schema.subject, one.schema)
        return True
    return False


async def _register(registry: SchemaRegistry, one: Registering) -> SchemaText:
    schema = one.schema
    try:
        found = await registry.look_up(schema.subject, schema)
    except SchemaMissing:
        if one.how is Registration.EXISTING:
            raise
        found = await registry.register(schema.subject, schema)
    except RegistryUnavailable as unavailable:
        copy = registry.copy_of_text(schema.subject, schema)
        if copy is None:
            raise
        logger.warning("sink %s writes with schema %d of its last start: %s", one.sink, copy.id, unavailable.message)
        return copy
    registry.keep_text(schema.subject, schema, found)
    return found


def _unknown(one: Registering, first: Registering) -> list[Finding]:
    """Warn about a second new schema for a subject: `first` is registered before it."""
    if (one.schema.text, one.schema.references) == (first.schema.text, first.schema.references):
        return []
    message = (
        f"sink `{first.sink}` registers another schema under the subject `{one.schema.subject}`, so the registry "
        "cannot check this one before the start"
    )
    remedy = "if the start is refused: write the same columns, or name another subject with `registry`"
    return [warn_of_start(("sinks", one.sink, one.option), message, remedy)]


def _refused(one: Registering, error: RegistryRefused) -> Finding:
    path: Path = ("sinks", one.sink, one.option)
    if isinstance(error, SchemaMissing):
        message = f"the subject `{one.schema.subject}` does not have the schema of this sink: {error.message}"
        remedy = "register it there, or write `register: auto`"
    else:
        message, remedy = error.message, error.remedy or "change the columns, or write another subject"
    return prevent_start(path, message, remedy, error.exit_code, error)


# -- the schemas that a file names, read before there is a plan --------------------------------------------------------


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
    directory, registry = FilePath(loaded.file).parent, loaded.settings.registry
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


def _read_file(directory: FilePath, one: SchemaReference) -> Found:
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


def _import_directories(path: FilePath, directory: FilePath) -> tuple[FilePath, ...]:
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
