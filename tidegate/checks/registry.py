"""Opens the schema registry of a pipeline file, checks the schemas of sinks before a start, and registers them at it.

`validate --connect` reports what `run` is refused for: both call `check_registrations`, which changes nothing. One case
cannot be checked in advance: a second new schema for a subject before the first is registered. It is a warning.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

from tidegate.checks.findings import Finding, prevent_start, warn_of_start
from tidegate.config.fields.base import Path
from tidegate.config.fields.schemas import RegistrySettings
from tidegate.config.load import LoadedPipeline
from tidegate.formats import keys
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import IdPlace, Registration, SchemaText
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.registry.client import SchemaCopies, SchemaRegistry
from tidegate.registry.transport import RegistryRefused, RegistryUnavailable, SchemaMissing
from tidegate.spark.cache import cache_directory

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
