"""Turns a Deploy message into running subtasks: channels, handlers, operators, sources, sinks, restored state.

Imported only in slots and where they are forked from: it pulls in Polars and the Kafka client.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.coordinator.types import SourcePositions, StateHandle
from tidegate.expressions.secrets import reveal_secrets
from tidegate.formats.failures import BadRecordPolicy, FailureKind
from tidegate.formats.schemas import Schemas
from tidegate.ids import OperatorName, StateId, SubtaskId, TopicPartition, VertexId
from tidegate.kafka.tools import KAFKA_TOOLS, KafkaTools
from tidegate.operators.builtin.dead_letters import DeadLetterOperator, Origin
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.calls.caller import Caller, OpenCaller, ThreadCaller
from tidegate.operators.calls.user_code import install_modules
from tidegate.operators.runtime import OperatorRuntime
from tidegate.operators.spec import Slot, StepOperator
from tidegate.plan.assignment import key_group_range
from tidegate.plan.evolving import evolve
from tidegate.plan.graph import Edge, Node, Plan, Vertex
from tidegate.plan.growth import BatchLimits, derive_batch_limits
from tidegate.plan.origins import derive_origins
from tidegate.settings.counts import render_count
from tidegate.sinks.kafka import SinkPlacement
from tidegate.sinks.runtime import SinkRuntime
from tidegate.slot.copies import NO_COPIES, Copies, open_copies
from tidegate.slot.restored_files import RestoredFiles
from tidegate.slot.schemas import SlotSchemas
from tidegate.slot.uploads import Uploads
from tidegate.sources.read_back import RecordReader
from tidegate.sources.runtime import BadRecord, SourceRuntime
from tidegate.state.backends import OpenState, choose_backend
from tidegate.state.base import Share
from tidegate.state.local_directory import sweep
from tidegate.storage.open import open_storage
from tidegate.storage.shared import Proof
from tidegate.task.barriers.choice import choose_handler, may_overtake
from tidegate.task.channels import InputChannel, LocalOutput, OutputChannel, RemoteOutput
from tidegate.task.elements import Batch
from tidegate.task.inflight import derive_shapes, read_replay
from tidegate.task.letters import LetterCount
from tidegate.task.loop import Clock, SlotLoop
from tidegate.task.messages import Acknowledged, Completed, Deploy, SlotMessage, SlotSettings
from tidegate.task.outputs import EdgeOutput
from tidegate.task.ports import OperatorState, Sink
from tidegate.task.report import OperatorCounts, SlotReport
from tidegate.task.restore import as_declared, restore_states
from tidegate.task.vertex import VertexTask

if TYPE_CHECKING:
    from tidegate.storage.base import Storage

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S: Final = 5.0
SOURCE_TIMEOUT_S: Final = 60.0
BAD_RECORDS_LOGGED: Final = 10
"""Bad records are logged with their place this often per reason, then at powers of ten."""


class SlotParts:
    """What a slot gets from outside. The simulation hands in others."""

    tools: KafkaTools = KAFKA_TOOLS
    open_caller: OpenCaller = ThreadCaller
    """How operators call what is outside."""

    def input_channel(self, edge: int) -> InputChannel:
        """The receiving end of a channel."""
        return InputChannel(edge)

    def remote_output(self, edge: int) -> RemoteOutput:
        """The sending end of a channel to another slot."""
        return RemoteOutput(edge)

    def open_storage(self, settings: SlotSettings) -> Storage:
        """The checkpoint storage."""
        return open_storage(settings.storage_url, stays=True, options=settings.storage)

    def open_copies(self, settings: SlotSettings, journal: str) -> Copies:
        """Copies of state files on this machine."""
        if not settings.local_copies_max_bytes:
            return NO_COPIES
        return open_copies(f"{settings.storage_url}\n{journal}", settings.local_copies_max_bytes)

    def make_uploads(self, storage: Storage, wake: Callable[[], None]) -> Uploads:
        """The thread that makes state durable."""
        return Uploads(storage, wake)

    def choose_backend(self, name: str, retained: int) -> OpenState:
        """How states are opened. First goes what a killed slot has left here, of whatever backend."""
        sweep(Path(tempfile.gettempdir()))
        return choose_backend(name, retained)

    def make_source(
        self, spec: SourceOperator, deploy: Deploy, wake: Callable[[], None], bad_record: BadRecord, schemas: Schemas
    ) -> SourceRuntime:
        """A source subtask that reads on its own thread."""
        return SourceRuntime(spec, *reading_of(deploy, spec.name), wake, bad_record, schemas=schemas)

    def make_sink(self, spec: SinkOperator, deploy: Deploy, wake: Callable[[], None]) -> SinkRuntime:
        """A sink subtask that writes to Kafka."""
        placement = SinkPlacement(
            pipeline=deploy.plan.pipeline,
            subtask=deploy.slot,
            attempt=deploy.attempt,
            transaction_timeout_ms=deploy.settings.transaction_timeout_ms,
            journal=deploy.journal,
            exactly_once=deploy.plan.exactly_once,
            interval_ms=deploy.settings.checkpoint_interval_ms,
            max_concurrent=deploy.settings.max_concurrent,
        )
        return SinkRuntime(spec, placement, wake, tools=self.tools, masked=deploy.plan.masked)

    def open_reader(self, origins: Sequence[Origin], name: str, wake: Callable[[], None]) -> Caller:
        """What reads single records back."""
        return RecordReader(origins, name, wake)

    def log_bad_record(self, policy: BadRecordPolicy, where: str, count: int) -> None:
        """A record was left out, with its place and the reason; `count` of them so far for this reason."""
        if count <= BAD_RECORDS_LOGGED or str(count).rstrip("0") == "1":
            done = "dead letter" if policy is BadRecordPolicy.DEAD_LETTER else "skipped"
            logger.warning("%s: %s (%d so far for this reason)", done, where, count)


def _with_keys(plan: Plan) -> Plan:
    """The plan with the keys in its expressions: what is shown or written of it is made by the daemon."""
    if not plan.secrets:
        return plan
    return msgspec.structs.replace(plan, vertices=reveal_secrets(plan.vertices, plan.secrets))


class Deployment:
    """The work of one slot. `open` builds and starts everything; `close` ends it."""

    def __init__(
        self,
        deploy: Deploy,
        clock: Clock,
        send: Callable[[SlotMessage], None],
        wake: Callable[[], None],
        parts: SlotParts | None = None,
        host: str = "",
    ) -> None:
        """`host` is what this slot's machine is called, for messages."""
        self._host = host
        deploy = msgspec.structs.replace(deploy, plan=_with_keys(deploy.plan))
        self._deploy = deploy
        self._clock = clock
        self._send = send
        self._wake = wake
        self._parts = SlotParts() if parts is None else parts
        self._storage = self._parts.open_storage(deploy.settings)
        self._copies = self._parts.open_copies(deploy.settings, deploy.journal)
        self._files = RestoredFiles(self._storage, self._copies)
        self.uploads = self._parts.make_uploads(self._storage, wake)
        self.uploads.copies = self._copies
        self.loop = SlotLoop(
            deploy.plan.pipeline, deploy.attempt, clock, self._answer, self.uploads.submit, self._parts.log_bad_record
        )
        self.loop.origins = derive_origins(deploy.plan)
        self.loop.shapes = derive_shapes(deploy.plan)
        for letters in deploy.plan.operators(DeadLetterOperator):
            self.loop.letters = LetterCount(letters.per_minute_max)
        sources = deploy.plan.operators(SourceOperator)
        named = [one.schema for source in sources for one in (source.options, source.key_options)]
        self.schemas = SlotSchemas([one for one in named if one is not None], send)
        self.remote_inputs: dict[tuple[int, int], InputChannel] = {}
        self.remote_outputs: dict[int, dict[int, RemoteOutput]] = {}
        self._local_inputs: dict[tuple[int, int], InputChannel] = {}
        self._inputs: dict[VertexId, list[InputChannel]] = {}
        self._sources: list[SourceRuntime] = []
        self._sinks: list[SinkRuntime] = []
        self._operators: list[OperatorRuntime] = []
        settings = deploy.settings
        self._open_state = self._parts.choose_backend(settings.state_backend, settings.checkpoints_retained)
        self._states: dict[StateId, OperatorState] = {}

    def open(self) -> None:
        """Build all subtasks of this slot, upstream channels first, and restore their state."""
        plan = self._deploy.plan
        install_modules(plan.modules)
        proof = Proof(self._storage, self._deploy.attempt, self._deploy.proof, self._parts.tools.clock)
        proof.answer(self._deploy.slot, self._host)
        for vertex in plan.vertices:
            self._inputs[vertex.id] = [
                self._input_channel(edge, sender)
                for edge in plan.inputs_of(vertex.id)
                for sender in self._senders(edge)
            ]
        for vertex in plan.vertices:
            self.loop.tasks.append(self._build_task(vertex))
        for source in self._sources:
            source.wait_ready(SOURCE_TIMEOUT_S)
        if self._files.copied_bytes:
            logger.info(
                "state restored: %d bytes from copies on this machine, %d from %s",
                self._files.copied_bytes,
                self._files.fetched_bytes,
                self._storage.location,
            )

    def on_completed(self, completed: Completed) -> None:
        """See the loop's."""
        self.loop.on_completed(completed)
        if completed.attempt == self._deploy.attempt:
            self._copies.completed(completed.checkpoint)

    def report(self) -> SlotReport:
        """Cumulative counts of this attempt; called from the control thread, reads only.

        Also while subtasks are being built: `list` copies in one step what is being added to.
        """
        counters = self.loop.counters
        bad = _by_operator(counters.bad_records)
        return SlotReport(
            records_in={source.operator.name: source.records for source in self._sources},
            bytes_in={source.operator.name: source.bytes for source in self._sources},
            header_names_cut={source.operator.name: source.header_names_cut for source in self._sources},
            records_out={sink.operator.name: sink.records for sink in self._sinks},
            bytes_out={sink.operator.name: sink.bytes for sink in self._sinks},
            bad_records=bad,
            dead_letters=_by_operator(counters.dead_letters),
            operators=self._count_operators(bad),
            busy_seconds=counters.busy_ms / 1000,
            backpressured_seconds=counters.backpressured_ms / 1000,
            idle_seconds=counters.idle_ms / 1000,
            queued_batches=sum(len(channel) for channels in list(self._inputs.values()) for channel in channels)
            + sum(task.replaying for task in self.loop.tasks),
            state_keys=self._count_keys(),
            newest=tuple(
                (part, *found) for source in self._sources for part, found in dict(source.newest.found).items()
            ),
            positions=tuple(
                SourcePositions(source.operator.name, tuple(source.reached.items())) for source in self._sources
            ),
        )

    def _count_keys(self) -> dict[OperatorName, int]:
        counts: dict[OperatorName, int] = {}
        for one, state in list(self._states.items()):
            counts[one.operator] = counts.get(one.operator, 0) + len(state)
        return counts

    def _count_operators(
        self, bad: Mapping[OperatorName, Mapping[FailureKind, int]]
    ) -> dict[OperatorName, OperatorCounts]:
        """A source alone sees more than the loop: records that cannot be read.

        While subtasks are being built some have no task yet: they have nothing to report.
        """
        found: dict[OperatorName, OperatorCounts] = {}
        for task in self.loop.tasks:
            for index, (node, counts) in enumerate(zip(task.vertex.nodes, task.meter.counts, strict=True)):
                one = found[node.operator.name] = msgspec.structs.replace(counts)
                if index in task.operators:
                    operator = task.operators[index]
                    one.late, one.gauges = operator.late_rows, dict(operator.gauges)
        for source in self._sources:
            own = found.get(source.operator.name)
            if own is not None:
                own.rows_in, own.filtered = source.records, source.left_out
                own.before_1971 = source.before_1971
                own.failed = sum(bad.get(source.operator.name, {}).values())
                held_by = source.held_back_by
                own.held_back_by = str(held_by) if held_by is not None else ""
        return found

    def open_transactions(self) -> dict[VertexId, int | None]:
        """See Heartbeat; called from the control thread, reads only."""
        found: dict[VertexId, int | None] = {}
        for task in self.loop.tasks:
            ages = [sink.oldest_age_ms for sink in task.sinks.values()]
            if ages:
                found[task.vertex.id] = max((age for age in ages if age is not None), default=None)
        return found

    def close(self) -> None:
        """Close sources first, so that nothing new comes in; prepared transactions stay prepared."""
        with ExitStack() as closing:  # in reverse: what fails to close leaves nothing else open
            for state in self._states.values():
                closing.callback(state.close)
            closing.callback(self._copies.close)
            closing.callback(self.uploads.close, CLOSE_TIMEOUT_S)
            for sink in self._sinks:
                closing.callback(sink.close)
            for sink in self._sinks:
                closing.callback(sink.begin_close)
            for one in (*self._operators, *self._sources):
                closing.callback(one.close)

    def _answer(self, message: SlotMessage) -> None:
        if isinstance(message, Acknowledged):
            self._copies.acknowledged(message.ack.checkpoint, [state.path for state in message.ack.states])
        self._send(message)

    # -- channels --------------------------------------------------------------------------------------------------

    def _senders(self, edge: Edge) -> list[int]:
        own = int(self._deploy.slot)
        return list(range(self._deploy.plan.parallelism)) if edge.keys else [own]

    def _input_channel(self, edge: Edge, sender: int) -> InputChannel:
        channel = self._parts.input_channel(edge.index)
        where = self._local_inputs if sender == self._deploy.slot else self.remote_inputs
        where[sender, edge.index] = channel
        return channel

    def _output(self, edge: Edge) -> EdgeOutput:
        plan, own = self._deploy.plan, int(self._deploy.slot)
        receivers = range(plan.parallelism) if edge.keys else [own]
        channels: list[OutputChannel] = []
        for receiver in receivers:
            if receiver == own:
                channels.append(LocalOutput(self._local_inputs[own, edge.index]))
            else:
                output = self._parts.remote_output(edge.index)
                self.remote_outputs.setdefault(receiver, {})[edge.index] = output
                channels.append(output)
        return EdgeOutput(edge, channels, plan.max_parallelism)

    # -- subtasks --------------------------------------------------------------------------------------------------

    def _build_task(self, vertex: Vertex) -> VertexTask:
        plan = self._deploy.plan
        operators: dict[int, OperatorRuntime] = {}
        sinks: dict[int, Sink] = {}
        source: SourceRuntime | None = None
        limits = derive_batch_limits(plan, vertex)
        for index, node in enumerate(vertex.nodes):
            match node.operator:
                case SourceOperator() as spec:
                    source = self._build_source(spec, limits)
                case SinkOperator() as spec:
                    sinks[index] = self._build_sink(spec)
                case _:
                    operators[index] = self._build_operator(node, limits)
        inputs = self._inputs[vertex.id]
        handler = None
        if source is None:
            allowed = self._deploy.settings.unaligned_after_ms is not None
            unaligned = allowed and may_overtake(plan.inputs_of(vertex.id))
            handler = choose_handler(exactly_once=plan.exactly_once, unaligned=unaligned, channels=len(inputs))
        return VertexTask(
            vertex,
            SubtaskId(vertex.id, self._deploy.slot),
            self.loop,
            inputs=inputs,
            handler=handler,
            source=source,
            operators=operators,
            sinks=sinks,
            outputs={edge: self._output(plan.edges[edge]) for node in vertex.nodes for edge in node.all_edges},
            replay=self._replay(vertex),
            limits=limits,
            ports={edge.index: edge.port for edge in plan.inputs_of(vertex.id)},
        )

    def _build_source(self, spec: SourceOperator, limits: BatchLimits) -> SourceRuntime:
        source = self._parts.make_source(spec, self._deploy, self._wake, self.loop.bad_record, self.schemas)
        source.batch_bytes_max = limits.size_bytes
        self._sources.append(source)
        return source

    def _build_sink(self, spec: SinkOperator) -> SinkRuntime:
        sink = self._parts.make_sink(spec, self._deploy, self._wake)
        sink.open()
        self._sinks.append(sink)
        return sink

    def _build_operator(self, node: Node, limits: BatchLimits) -> OperatorRuntime:
        """The operator with its part of the restored state: the key groups of this subtask, and its share of lists."""
        deploy = self._deploy
        if not isinstance(node.operator, StepOperator):
            raise TypeError(f"{node.operator.kind} {node.operator.name} is not an operator of a slot's chain")
        plan, name = deploy.plan, node.operator.name
        operator = node.operator.open(
            Slot(
                plan.max_parallelism,
                self._open_state,
                self._key_groups,
                subtask=int(deploy.slot),
                parallelism=plan.parallelism,
                now_ms=self.loop.now_ms,
                wake=self._wake,
                open_caller=self._parts.open_caller,
                open_reader=self._parts.open_reader,
                rows_max=limits.rows,
                bytes_max=limits.size_bytes,
            )
        )
        self._operators.append(operator)
        for state, held in operator.states.items():
            self._states[StateId(name, state)] = held
        share = Share(self._key_groups, deploy.slot, plan.parallelism)
        words, renamed = plan.words.get(name), name in deploy.renamed
        said = partial(evolve, words=words, renamed=renamed) if words is not None else as_declared
        files = restore_states(name, operator.states, deploy.states, self._read_parts, share, said)
        if files:
            count = ", ".join(f"{len(state)} in {one}" for one, state in operator.states.items())
            logger.info("state of %s restored from %s: %s", name, render_count(files, "file"), count)
        return operator

    @property
    def _key_groups(self) -> range:
        return key_group_range(self._deploy.slot, self._deploy.plan.parallelism, self._deploy.plan.max_parallelism)

    def _replay(self, vertex: Vertex) -> list[tuple[int, Batch]]:
        """Rows in flight towards this subtask: what had been received, then what had not left its senders (B50)."""
        inputs = {edge.index for edge in self._deploy.plan.inputs_of(vertex.id)}
        former = self._deploy.former_edges
        shapes = {
            index: msgspec.structs.replace(shape, name=former.get(shape.name, shape.name))
            for index, shape in self.loop.shapes.items()
            if index in inputs
        }
        pieces = read_replay(self._deploy.states, self._files.read_state, shapes, self._key_groups)
        if pieces:
            rows = sum(batch.frame.height for _, batch in pieces)
            logger.info("%s in flight towards %s restored", render_count(rows, "row"), vertex.id)
        return pieces

    def _read_parts(self, handle: StateHandle) -> Iterator[bytes]:
        return self._files.read_parts(handle, self._key_groups)


def _by_operator(
    counts: Mapping[tuple[OperatorName, FailureKind], int],
) -> dict[OperatorName, dict[FailureKind, int]]:
    """Called from the control thread: `list` copies the items in one step."""
    found: dict[OperatorName, dict[FailureKind, int]] = {}
    for (operator, kind), count in list(counts.items()):
        found.setdefault(operator, {})[kind] = count
    return found


def reading_of(deploy: Deploy, source: OperatorName) -> tuple[Sequence[TopicPartition], SourcePositions, str]:
    """What one source reads here, where it continues, and its consumer group."""
    return deploy.partitions.get(source, ()), positions_of(deploy, source), deploy.settings.group_id


def positions_of(deploy: Deploy, source: OperatorName) -> SourcePositions:
    """The restored positions of one source; none where it has only partitions here that no checkpoint knows."""
    for positions in deploy.positions:
        if positions.source == source:
            return positions
    return SourcePositions(source, ())
