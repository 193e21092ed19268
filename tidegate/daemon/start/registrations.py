"""The schemas of sinks and the registry: whether it takes them, found out before a start, and done at it.

What `validate --connect` reports is what `run` is refused for: both ask `check_registrations`, which changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator

import msgspec

from tidegate.config.load import LoadedPipeline
from tidegate.daemon.start.registry_access import open_registry
from tidegate.daemon.start.schemas import AGAIN_S
from tidegate.daemon.start.start_problems import StartProblem
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import IdPlace, Registration, SchemaText
from tidegate.ids import OperatorName
from tidegate.operators.kinds.kafka_sink import SinkOperator
from tidegate.operators.kinds.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.registry.client import Registry
from tidegate.registry.errors import RegistryAway, RegistryRefused, SchemaMissing
from tidegate.settings.base import Path

logger = logging.getLogger(__name__)


def registering(plan: Plan) -> Iterator[tuple[SinkOperator, SchemaText]]:
    """Sinks whose schema has to have an id, and does not have one yet."""
    for sink in plan.operators(SinkOperator):
        if sink.register is not None and sink.options.schema is not None:
            yield sink, sink.options.schema


async def check_registrations(loaded: LoadedPipeline, plan: Plan, patience_s: float) -> list[StartProblem]:
    """What the registry refuses, and that it does not answer; that is only a warning where there are copies of all that
    a start needs. A registry that does not answer is waited for so long.
    """
    if loaded.settings.registry is None or not _names_schemas(plan):
        return []
    problems: list[StartProblem] = []
    try:
        async with open_registry(loaded.settings.registry) as registry:
            away = await _wait(registry, patience_s)
            for sink, schema in registering(plan):
                if away is not None and registry.copy_of_text(schema.subject, schema) is None:
                    raise away
                try:
                    if away is None:
                        await _check(registry, sink, schema)
                except RegistryRefused as error:
                    problems.append(_refused(loaded, sink, error))
            if away is not None:
                problems.append(_away(loaded, away))
    except (RegistryAway, RegistryRefused) as error:
        path: Path = ("registry", str(error.fields.get("setting", "")) or "url")
        remedy = error.remedy if isinstance(error, RegistryRefused) else "is it running, and is this its address?"
        problems.append(StartProblem(loaded.problem(path, error.message, remedy), error.exit_code, error))
    return problems


def _names_schemas(plan: Plan) -> bool:
    """Whether records have ids of schemas."""
    ends: list[SourceOperator | SinkOperator] = [*plan.operators(SourceOperator), *plan.operators(SinkOperator)]
    return any(FORMATS[one.format].schema_kind is not None and one.options.ids is not IdPlace.NONE for one in ends)


async def _wait(registry: Registry, patience_s: float) -> RegistryAway | None:
    """Until it answers. Raises RegistryRefused."""
    deadline, told = time.monotonic() + patience_s, False
    while True:
        try:
            await registry.ping()
        except RegistryAway as away:
            if time.monotonic() > deadline:
                return away
            if not told:
                logger.warning("waiting for the registry, %g s at most: %s", patience_s, away.message)
            told = True
            await asyncio.sleep(AGAIN_S)
        else:
            return None


def _away(loaded: LoadedPipeline, away: RegistryAway) -> StartProblem:
    remedy = "records whose schema has no copy here wait for it"
    problem = loaded.problem(("registry", "url"), away.message, remedy)
    return StartProblem(msgspec.structs.replace(problem, severity="warning"))


async def register_schemas(registry: Registry, plan: Plan) -> dict[OperatorName, SchemaText]:
    """Does what the check has found to be possible. Raises RegistryAway, RegistryRefused."""
    found = {}
    for sink, schema in registering(plan):
        found[sink.name] = await _register(registry, sink, schema)
        logger.info("sink %s writes with schema %d of %s", sink.name, found[sink.name].id, schema.subject)
    return found


async def _check(registry: Registry, sink: SinkOperator, schema: SchemaText) -> None:
    try:
        await registry.look_up(schema.subject, schema)
    except SchemaMissing:
        if sink.register is Registration.EXISTING:
            raise
        await registry.check(schema.subject, schema)


async def _register(registry: Registry, sink: SinkOperator, schema: SchemaText) -> SchemaText:
    try:
        found = await registry.look_up(schema.subject, schema)
    except SchemaMissing:
        if sink.register is Registration.EXISTING:
            raise
        found = await registry.register(schema.subject, schema)
    except RegistryAway as away:
        copy = registry.copy_of_text(schema.subject, schema)
        if copy is None:
            raise
        logger.warning("sink %s writes with schema %d, as at its last start: %s", sink.name, copy.id, away.message)
        return copy
    registry.keep_text(schema.subject, schema, found)
    return found


def _refused(loaded: LoadedPipeline, sink: SinkOperator, error: RegistryRefused) -> StartProblem:
    subject = "" if sink.options.schema is None else sink.options.schema.subject
    path: Path = ("sinks", sink.name, "schema")
    if isinstance(error, SchemaMissing):
        message = f"the subject `{subject}` does not have the schema of this sink: {error.message}"
        problem = loaded.problem(path, message, "register it there, or write `register: auto`")
    else:
        problem = loaded.problem(path, error.message, error.remedy or "change the columns, or write another subject")
    return StartProblem(problem, error.exit_code, error)
