"""Slots ask for schemas that records name; the daemon asks the registry, and answers every slot that has asked.

Nothing here blocks the loop, and an attempt does not end while the registry is away: its sources wait, and are
answered once it is back, or from the copies on disk. Only the registry's own word that it has no such id makes records
bad; whatever else goes wrong is waited out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from tidegate.checks.registrations import KEY, VALUE, WrittenSchemas
from tidegate.errors import TidegateError
from tidegate.formats.schemas import FormatOptions, SchemaText
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.plan.graph import Plan
from tidegate.process.repeated_messages import Complaints
from tidegate.registry.client import SchemaRegistry
from tidegate.registry.errors import SchemaMissing
from tidegate.task.messages import SchemaAnswer

logger = logging.getLogger(__name__)

AT_ONCE: Final = 4
FIRST_PAUSE_S: Final = 0.5
PAUSE_S_MAX: Final = 10.0
SECOND_LOOK_S: Final = 1.0
"""Registries are replicated, and a producer may be faster: an id that is missing is asked for once more."""

Answer = Callable[[SchemaAnswer], object]
TellRegistry = Callable[[str, int], None]
"""(why it does not answer, or nothing; how many ids are waited for)."""
UNFIT_MAX: Final = 10_000


class SchemaService:
    """See the module. All calls on the daemon's event loop. Without a registry nobody asks."""

    def __init__(
        self,
        registry: SchemaRegistry | None = None,
        tell: TellRegistry = lambda _why, _count: None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        count_unfit: Callable[[int], None] = lambda _count: None,
    ) -> None:
        self._registry = registry
        self._tell = tell
        self._pause = pause
        self._waiting: dict[int | str, list[Answer]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(AT_ONCE)
        self._complaints = Complaints(logger)
        self._why = ""
        self._unfit: set[int | str] = set()
        self._count_unfit = count_unfit
        count_unfit(0)
        self._written: WrittenSchemas = {}

    def ask(self, ids: Iterable[int | str], answer: Answer) -> None:
        """A slot asks for these; `answer` is called once for each."""
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
        """A slot cannot read the records of a schema: the log says so once, however many slots there are."""
        if schema_id not in self._unfit and len(self._unfit) < UNFIT_MAX:
            self._unfit.add(schema_id)
            logger.warning("%s; every record that was written with it is bad", why)
            self._count_unfit(len(self._unfit))

    def write_with(self, schemas: WrittenSchemas) -> None:
        """What sinks write with, now that the registry has given ids."""
        self._written = schemas

    def complete(self, plan: Plan) -> Plan:
        """The plan with the ids of what sinks write with."""
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
        """Nobody waits any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _fetch(self, schema_id: int | str) -> None:
        schema = await self._find(schema_id)
        for answer in self._waiting.pop(schema_id):
            answer(SchemaAnswer(schema_id, schema))
        self._tell(self._why, len(self._waiting))

    async def _find(self, schema_id: int | str) -> SchemaText | None:
        """As long as it takes. None: the registry says that it has none."""
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
            except Exception as error:  # noqa: BLE001 - whatever it is: slots must not wait for what has ended in silence
                self._silent(f"{error}" if isinstance(error, TidegateError) else repr(error), schema_id)
                copy = self._registry.copy(schema_id)
                if copy is not None:
                    logger.warning("schema %s is taken from its copy on disk", schema_id)
                    return copy
                await self._pause(pause_s)
                pause_s = min(PAUSE_S_MAX, pause_s * 2)
            else:
                self._answers()
                return schema

    def _silent(self, why: str, schema_id: int | str) -> None:
        self._complaints.report("records wait for a schema of the registry", f"id {schema_id}: {why}")
        self._why = why
        self._tell(self._why, len(self._waiting))

    def _answers(self) -> None:
        if self._why:
            logger.warning("the registry answers again")
        self._why = ""
