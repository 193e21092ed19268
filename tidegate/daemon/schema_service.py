"""Answers the slots' questions about schemas that records name, by asking the schema registry.

Nothing here blocks the loop. An attempt does not end while the registry is unavailable: its sources wait until it
responds, or use the copies on disk. Records become bad only if the registry itself reports that it has no such id; all
other failures are retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from tidegate.checks.registry import KEY, VALUE, WrittenSchemas
from tidegate.errors import TidegateError
from tidegate.formats.schemas import FormatOptions, SchemaText
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.plan.graph import Plan
from tidegate.process.repeated_messages import Complaints
from tidegate.registry.client import SchemaRegistry
from tidegate.registry.transport import SchemaMissing
from tidegate.task.messages import SchemaAnswer

logger = logging.getLogger(__name__)

AT_ONCE: Final = 4
FIRST_PAUSE_S: Final = 0.5
PAUSE_S_MAX: Final = 10.0
SECOND_LOOK_S: Final = 1.0
"""Pause before a missing id is requested once more: registries are replicated, and a producer may be faster."""

Answer = Callable[[SchemaAnswer], object]
TellRegistry = Callable[[str, int], None]
"""Takes the reason why the registry does not respond (empty if it does) and the number of ids that are waited for."""
INCOMPATIBLE_MAX: Final = 10_000


class SchemaService:
    """Fetches schemas for the slots. All methods are called on the daemon's event loop."""

    def __init__(
        self,
        registry: SchemaRegistry | None = None,
        tell: TellRegistry = lambda _why, _count: None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        count_incompatible: Callable[[int], None] = lambda _count: None,
    ) -> None:
        self._registry = registry
        self._tell = tell
        self._pause = pause
        self._waiting: dict[int | str, list[Answer]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(AT_ONCE)
        self._complaints = Complaints(logger)
        self._why = ""
        self._incompatible: set[int | str] = set()
        self._count_incompatible = count_incompatible
        count_incompatible(0)
        self._written: WrittenSchemas = {}

    def ask(self, ids: Iterable[int | str], answer: Answer) -> None:
        """Requests schemas for a slot; `answer` is called once for each."""
        for schema_id in ids:
            if schema_id in self._waiting:
                self._waiting[schema_id].append(answer)
                continue
            self._waiting[schema_id] = [answer]
            task = asyncio.get_running_loop().create_task(self._fetch(schema_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._tell(self._why, len(self._waiting))

    def refuse(self, schema_id: int | str, why: str) -> None:
        """Logs once, for all slots, that the records of a schema cannot be read."""
        if schema_id not in self._incompatible and len(self._incompatible) < INCOMPATIBLE_MAX:
            self._incompatible.add(schema_id)
            logger.warning("%s; every record written with it is bad", why)
            self._count_incompatible(len(self._incompatible))

    def write_with(self, schemas: WrittenSchemas) -> None:
        """Sets the schemas that sinks write with, now that the registry has assigned ids."""
        self._written = schemas

    def complete(self, plan: Plan) -> Plan:
        """Returns the plan with the ids of the schemas that sinks write with."""
        if not self._written:
            return plan
        return msgspec.structs.replace(
            plan,
            vertices=tuple(
                msgspec.structs.replace(
                    vertex,
                    nodes=tuple(
                        msgspec.structs.replace(node, operator=self._complete(node.operator))
                        if isinstance(node.operator, SinkOperator)
                        else node
                        for node in vertex.nodes
                    ),
                )
                for vertex in plan.vertices
            ),
        )

    def _complete(self, sink: SinkOperator) -> SinkOperator:
        return msgspec.structs.replace(
            sink,
            options=self._with_id(sink.options, (sink.name, VALUE)),
            key_options=self._with_id(sink.key_options, (sink.name, KEY)),
        )

    def _with_id(self, options: FormatOptions, place: tuple[OperatorName, str]) -> FormatOptions:
        schema = self._written.get(place)
        return options if schema is None else msgspec.structs.replace(options, schema=schema)

    async def close(self) -> None:
        """Cancels all requests."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _fetch(self, schema_id: int | str) -> None:
        schema = await self._find(schema_id)
        for answer in self._waiting.pop(schema_id):
            answer(SchemaAnswer(schema_id, schema))
        self._tell(self._why, len(self._waiting))

    async def _find(self, schema_id: int | str) -> SchemaText | None:
        """Fetches a schema, retrying without a limit. None if the registry reports that it has no such id."""
        if self._registry is None:
            self._complaints.report("records name schemas, but the pipeline file has no `registry`", f"id {schema_id}")
            return None
        pause_s, looked = FIRST_PAUSE_S, False
        while True:
            try:
                async with self._places:
                    schema = await self._registry.read(schema_id)
            except SchemaMissing:
                self._answers()
                if looked:
                    return None
                looked = True
                await self._pause(SECOND_LOOK_S)
            except Exception as error:  # noqa: BLE001 - any error is retried: no slot may wait for a dead task
                self._silent(f"{error}" if isinstance(error, TidegateError) else repr(error), schema_id)
                copy = self._registry.copy(schema_id)
                if copy is not None:
                    logger.warning("using the copy of schema %s on disk", schema_id)
                    return copy
                await self._pause(pause_s)
                pause_s = min(PAUSE_S_MAX, pause_s * 2)
            else:
                self._answers()
                return schema

    def _silent(self, why: str, schema_id: int | str) -> None:
        self._complaints.report("records wait for a schema from the registry", f"id {schema_id}: {why}")
        self._why = why
        self._tell(self._why, len(self._waiting))

    def _answers(self) -> None:
        if self._why:
            logger.warning("the registry answers again")
        self._why = ""
