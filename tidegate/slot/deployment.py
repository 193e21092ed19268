"""Turns a Deploy message into running subtasks, reports about their work, and ends them.

Imported only in slots and where they are forked from, since it imports Polars and the Kafka client.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Final

import msgspec
from typing_extensions import override

from tidegate.coordinator.types import SourcePositions
from tidegate.expressions.secrets import reveal_secrets
from tidegate.formats.failures import FailureKind
from tidegate.formats.schemas import Schemas, SchemaText, UnknownSchema
from tidegate.ids import OperatorName, VertexId
from tidegate.operators.builtin.dead_letters import DeadLetterOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.clusters import derive_origins
from tidegate.plan.graph import Plan
from tidegate.slot.copies import RestoredFiles
from tidegate.slot.parts import SlotParts
from tidegate.slot.subtasks import Subtasks, Wiring
from tidegate.storage.shared import Proof
from tidegate.task.bad_records import DeadLetterCount
from tidegate.task.inflight import derive_shapes
from tidegate.task.loop import LoopClock, SlotLoop
from tidegate.task.messages import (
    Acknowledged,
    Completed,
    Deploy,
    SchemaAnswer,
    SchemasWanted,
    SchemaUnfit,
    SlotMessage,
)
from tidegate.task.report import PARTITIONS_MAX, OperatorCounts, SlotReport
from tidegate.user_code.files import install_wheels
from tidegate.user_code.modules import install_modules

logger = logging.getLogger(__name__)


class SlotReporter:
    """The reporter of one slot's counts. The control thread calls it, so it only reads."""

    def __init__(self, loop: SlotLoop, subtasks: Subtasks, wiring: Wiring) -> None:
        self._loop = loop
        self._subtasks = subtasks
        self._wiring = wiring

    def report(self) -> SlotReport:
        """Returns the cumulative counts of this attempt.

        Works while subtasks are being built: `list` copies a growing collection in one step.
        """
        counters = self._loop.counters
        bad = _by_operator(counters.bad_records)
        timed = {
            source.operator.name: source.watermarks
            for source in self._subtasks.sources
            if source.watermarks is not None and len(source.watermarks.marks) <= PARTITIONS_MAX
        }
        return SlotReport(
            records_in={source.operator.name: source.records for source in self._subtasks.sources},
            bytes_in={source.operator.name: source.bytes for source in self._subtasks.sources},
            records_out={sink.operator.name: sink.records for sink in self._subtasks.sinks},
            bytes_out={sink.operator.name: sink.bytes for sink in self._subtasks.sinks},
            bad_records=bad,
            dead_letters=_by_operator(counters.dead_letters),
            operators=self._count_operators(bad),
            busy_seconds=counters.busy_ms / 1000,
            backpressured_seconds=counters.backpressured_ms / 1000,
            idle_seconds=counters.idle_ms / 1000,
            queued_batches=self._wiring.queued + sum(task.replaying for task in self._loop.tasks),
            state_keys=self._count_keys(),
            newest=tuple(
                (source.operator.name, part, *found)
                for source in self._subtasks.sources
                for part, found in dict(source.newest.found).items()
            ),
            positions=tuple(
                SourcePositions(
                    source.operator.name,
                    tuple(source.reached.items()),
                    watermarks=tuple(timed[source.operator.name].known()) if source.operator.name in timed else (),
                )
                for source in self._subtasks.sources
            ),
            idle={name: watermarks.idle_partitions for name, watermarks in timed.items()},
        )

    def _count_keys(self) -> dict[OperatorName, int]:
        counts: dict[OperatorName, int] = {}
        for one, state in list(self._subtasks.states.items()):
            counts[one.operator] = counts.get(one.operator, 0) + len(state)
        return counts

    def _count_operators(
        self, bad: Mapping[OperatorName, Mapping[FailureKind, int]]
    ) -> dict[OperatorName, OperatorCounts]:
        """Returns the counts of every operator. Only a source itself counts unreadable records, since the loop never
        sees them.

        While subtasks are being built, some have no task yet and nothing to report.
        """
        found: dict[OperatorName, OperatorCounts] = {}
        for task in self._loop.tasks:
            for index, (node, counts) in enumerate(zip(task.vertex.nodes, task.chain.meter.counts, strict=True)):
                one = found[node.operator.name] = msgspec.structs.replace(counts)
                if index in task.chain.operators:
                    operator = task.chain.operators[index]
                    one.late, one.gauges = operator.late_rows, dict(operator.gauges)
        for source in self._subtasks.sources:
            own = found.get(source.operator.name)
            if own is not None:
                own.rows_in, own.filtered = source.records, source.left_out
                own.before_1971 = source.before_1971
                own.failed = sum(bad.get(source.operator.name, {}).values())
                held_by = source.held_back_by
                own.held_back_by = str(held_by) if held_by is not None else ""
        return found

    def open_transactions(self) -> dict[VertexId, int | None]:
        """Returns the age of each vertex's oldest open transaction; see Heartbeat."""
        found: dict[VertexId, int | None] = {}
        for task in self._loop.tasks:
            ages = [sink.oldest_age_ms for sink in task.chain.sinks.values()]
            if ages:
                found[task.vertex.id] = max((age for age in ages if age is not None), default=None)
        return found


def _by_operator(
    counts: Mapping[tuple[OperatorName, FailureKind], int],
) -> dict[OperatorName, dict[FailureKind, int]]:
    """Groups counts by operator. The control thread calls it: `list` copies the items in one step."""
    found: dict[OperatorName, dict[FailureKind, int]] = {}
    for (operator, kind), count in list(counts.items()):
        found.setdefault(operator, {})[kind] = count
    return found


WAITING_MAX: Final = 100
"""Ids requested at the same time; others follow once these are answered. Records may name any number."""
ID_MAX: Final = 2**31 - 1
"""No registry assigns higher ids; some answer such a request as if for an unknown path."""
UNKNOWN_MAX: Final = 10_000
UNKNOWN_S: Final = 60.0
"""Seconds for which an id counts as unknown to the registry, since its last use while other ids are pending.

A batch is decoded once all of its ids are known or unknown, and the first ones must not be requested again meanwhile.
"""


class SlotSchemas(Schemas):
    """The schemas of one slot, for the loop's thread; `send` returns at once."""

    def __init__(
        self,
        known: Iterable[SchemaText],
        send: Callable[[SlotMessage], None],
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """`known` are the schemas in the plan."""
        self._known: dict[int | str, SchemaText] = {one.id: one for one in known if one.id}
        self._send = send
        self._elapsed = elapsed
        self._waiting: set[int | str] = set()
        self._unknown: OrderedDict[int | str, float] = OrderedDict()
        self._unfit: set[int | str] = set()

    @override
    def get(self, schema_id: int | str, /) -> SchemaText | None:
        found = self._known.get(schema_id)
        if found is not None:
            return found
        if isinstance(schema_id, int) and not 0 < schema_id <= ID_MAX:
            raise UnknownSchema(schema_id)
        since = self._unknown.get(schema_id)
        if since is not None:
            now = self._elapsed()
            if now - since < UNKNOWN_S:
                if self._waiting:
                    self._unknown[schema_id] = now
                    self._unknown.move_to_end(schema_id)
                raise UnknownSchema(schema_id)
            del self._unknown[schema_id]
        if schema_id not in self._waiting and len(self._waiting) < WAITING_MAX:
            self._waiting.add(schema_id)
            self._send(SchemasWanted((schema_id,)))
        return None

    @override
    def refuse(self, schema_id: int | str, why: str, /) -> None:
        if schema_id not in self._unfit and len(self._unfit) < UNKNOWN_MAX:
            self._unfit.add(schema_id)
            self._send(SchemaUnfit(schema_id, why))

    def on_answer(self, answer: SchemaAnswer) -> None:
        """Handles the daemon's answer."""
        self._waiting.discard(answer.id)
        if answer.schema is not None:
            self._known[answer.id] = answer.schema
            return
        self._unknown[answer.id] = self._elapsed()
        while len(self._unknown) > UNKNOWN_MAX:
            self._unknown.popitem(last=False)


CLOSE_TIMEOUT_S: Final = 5.0


def _with_keys(plan: Plan) -> Plan:
    """Returns the plan with the keys in its expressions. The daemon produces anything shown or written of the plan."""
    if not plan.secrets:
        return plan
    return msgspec.structs.replace(plan, vertices=reveal_secrets(plan.vertices, plan.secrets))


class Deployment:
    """The work of one slot. `open` builds and starts everything; `close` ends it."""

    def __init__(
        self,
        deploy: Deploy,
        clock: LoopClock,
        send: Callable[[SlotMessage], None],
        wake: Callable[[], None],
        parts: SlotParts | None = None,
        host: str = "",
    ) -> None:
        """`host` is the name of this slot's machine, for messages."""
        self._host = host
        deploy = msgspec.structs.replace(deploy, plan=_with_keys(deploy.plan))
        plan = deploy.plan
        self._deploy = deploy
        self._send = send
        self._parts = SlotParts() if parts is None else parts
        self._storage = self._parts.open_storage(deploy.settings)
        self._copies = self._parts.open_copies(deploy)
        self._files = RestoredFiles(self._storage, self._copies)
        self.uploads = self._parts.make_uploads(self._storage, wake)
        self.uploads.copies = self._copies
        self.loop = SlotLoop(
            plan.pipeline, deploy.attempt, clock, self._answer, self.uploads.submit, self._parts.log_bad_record
        )
        self.loop.origins = derive_origins(plan)
        self.loop.shapes = derive_shapes(plan)
        for letters in plan.operators(DeadLetterOperator):
            self.loop.letters = DeadLetterCount(letters.per_minute_max)
        named = [
            one.schema for source in plan.operators(SourceOperator) for one in (source.options, source.key_options)
        ]
        self.schemas = SlotSchemas([one for one in named if one is not None], send)
        self.wiring = Wiring(plan, deploy.slot, self._parts.input_channel, self._parts.remote_output)
        self.subtasks = Subtasks(deploy, self._parts, self._files, self.wiring, self.loop, self.schemas, wake)
        self.reporter = SlotReporter(self.loop, self.subtasks, self.wiring)

    def open(self) -> None:
        """Builds all subtasks of this slot, upstream channels first, and restores their state."""
        plan = self._deploy.plan
        proof = Proof(self._storage, self._deploy.attempt, self._deploy.proof, self._parts.tools.clock)
        proof.answer(self._deploy.slot, self._host)
        self.subtasks.code = self._parts.open_code(self._storage, plan)
        install_wheels(self.subtasks.code.wheels)
        install_modules(plan.modules)
        for vertex in plan.vertices:
            self.loop.tasks.append(self.subtasks.build(vertex))
        self.subtasks.wait_ready()
        self._copies.restored([one.path for one in self._deploy.states])
        if self._files.copied_bytes:
            logger.info(
                "state restored: %d bytes from copies on this machine, %d from %s",
                self._files.copied_bytes,
                self._files.fetched_bytes,
                self._storage.location,
            )

    def on_completed(self, completed: Completed) -> None:
        """Notifies the loop and the copies of a completed checkpoint."""
        self.loop.on_completed(completed)
        if completed.attempt == self._deploy.attempt:
            self._copies.completed(completed.checkpoint)

    def close(self) -> None:
        """Closes sources first, so that no new records arrive; prepared transactions stay prepared."""
        with ExitStack() as closing:  # in reverse: a failure to close leaves nothing else open
            closing.callback(self.subtasks.code.close)
            closing.callback(self.subtasks.close_states)
            closing.callback(self._copies.close)
            closing.callback(self.uploads.close, CLOSE_TIMEOUT_S)
            closing.callback(self.subtasks.close)

    def _answer(self, message: SlotMessage) -> None:
        if isinstance(message, Acknowledged):
            self._copies.acknowledged(message.ack.checkpoint, [state.path for state in message.ack.states])
        self._send(message)
