"""Slots in one process: real loops, subtasks, channels and frames around fake sources, operators and sinks.

The fakes keep the promises of tidegate.task.ports. Remote channels are joined by a pump that moves encoded frames;
uploads and the coordinator's part are done by the test. Time does not move unless a test moves it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from tests.task.fakes import ATTEMPT, FakeFilter, FakeSink, FakeSource, FakeTotals, Row, Trace, VirtualClock
from tidegate.coordinator.types import Ack, Decline, StateHandle, StateKind
from tidegate.ids import (
    Attempt,
    CheckpointId,
    OperatorName,
    SlotIndex,
    StateName,
    SubtaskId,
    TransactionalId,
    VertexId,
)
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.kinds.aggregate import AggregateOperator
from tidegate.operators.runtime import OperatorRuntime
from tidegate.plan.graph import Edge, Node, Plan, Vertex
from tidegate.task.barriers.choice import choose_handler, may_overtake
from tidegate.task.channels import CREDIT_BYTES, QUEUE_BYTES_MAX, InputChannel, LocalOutput, OutputChannel, RemoteOutput
from tidegate.task.elements import Barrier, Batch
from tidegate.task.inflight import derive_shapes
from tidegate.task.input_gate import InputGate
from tidegate.task.loop import SlotLoop, Uploaded, UploadJob
from tidegate.task.messages import (
    Abandoned,
    Acknowledged,
    Completed,
    Declined,
    HoldSources,
    InputCaughtUp,
    SlotMessage,
    SourceFinished,
    Trigger,
)
from tidegate.task.operator_chain import Runtimes
from tidegate.task.outputs import EdgeOutput
from tidegate.task.ports import Sink
from tidegate.task.vertex import VertexTask
from tidegate.task.wire import EncodedBatch, FrameReader, SequenceCheck, decode_element, write_frame

TOTALS = StateName("totals")
"""The state of FakeTotals, whose file is readable: it is the path of its handle. Of other states the path is the hex of
the file."""


class TracedOutput:
    """An output channel that notes the control elements that leave by it."""

    def __init__(self, inner: OutputChannel, trace: Trace) -> None:
        self._inner = inner
        self._trace = trace

    def emit(self, element: object) -> None:
        if isinstance(element, Barrier):
            self._trace.add("barrier", element.checkpoint)
        elif isinstance(element, msgspec.Struct):
            self._trace.add(type(element).__name__, getattr(element, "checkpoint", None))
        self._inner.emit(element)  # type: ignore[arg-type]  # the loop emits elements only

    @property
    def writable(self) -> bool:
        return self._inner.writable

    def take_overtaken(self, checkpoint: CheckpointId) -> Sequence[EncodedBatch] | None:
        return self._inner.take_overtaken(checkpoint)

    def on_time(self, now_ms: int) -> None:
        self._inner.on_time(now_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        return self._inner.next_deadline_ms

    def forget(self, checkpoint: CheckpointId) -> None:
        self._inner.forget(checkpoint)

    def listen(self, asked: Callable[[int], None]) -> None:
        self._inner.listen(asked)


@dataclass
class RigSlot:
    """One slot and everything a test may look at or turn."""

    index: int
    loop: SlotLoop
    trace: Trace
    sent: list[SlotMessage] = field(default_factory=list)
    jobs: list[UploadJob] = field(default_factory=list)
    bad: list[tuple[str, int]] = field(default_factory=list)
    sources: dict[str, FakeSource] = field(default_factory=dict)
    operators: dict[str, OperatorRuntime] = field(default_factory=dict)
    sinks: dict[str, FakeSink] = field(default_factory=dict)
    inputs: dict[tuple[int, int], InputChannel] = field(default_factory=dict)
    """By sender and edge."""
    remote: dict[tuple[int, int], RemoteOutput] = field(default_factory=dict)
    """By receiver and edge."""


class Connection:
    """From one slot to another, for one edge: encoded frames one way, credits and questions the other."""

    def __init__(self, output: RemoteOutput, channel: InputChannel) -> None:
        self._output = output
        self._channel = channel
        self._reader = FrameReader()
        self._sequence = SequenceCheck()
        self._wire = bytearray()

    def send(self) -> bool:
        taken = self._output.take()
        if taken is None:
            return False
        kind, sequence, body = taken
        for part in write_frame(kind, self._output.edge, sequence, body):
            self._wire += part
        return True

    def receive(self, size: int) -> bool:
        data = bytes(self._wire[:size])
        del self._wire[:size]
        for frame in self._reader.feed(data):
            self._sequence.check(frame)
            self._channel.push(decode_element(frame))
        credit = self._channel.take_credit()
        if credit:
            self._output.grant(credit)
        question = self._channel.take_question()
        if question:
            self._output.on_question(question)
        return bool(data or question)


class Restored(Protocol):
    """What a rig starts from."""

    def source(self, name: str, slot: int) -> FakeSource:
        """A source after its position."""

    def rows(self, operator: str, slot: int) -> list[Row]:
        """The state of an operator."""

    def replay(self, task: VertexId, slot: int) -> list[tuple[int, Batch]]:
        """Rows in flight towards a subtask."""


class Rig:
    """All slots of a plan."""

    def __init__(
        self,
        plan: Plan,
        *,
        batches: Callable[[str, int], Sequence[Sequence[Row]]] = lambda name, slot: (),
        operators: Mapping[str, Callable[[], OperatorRuntime]] | None = None,
        bounded: bool = False,
        unaligned: bool = False,
        restored: Restored | None = None,
        credit_bytes: int = CREDIT_BYTES,
    ) -> None:
        self.plan = plan
        self._credit_bytes = credit_bytes
        self._unaligned = unaligned
        self._restored = restored
        self.files: dict[str, bytes] = {}
        """Rows in flight that were uploaded, by path."""
        self.deleted: list[StateHandle] = []
        self.clock = VirtualClock()
        self._batches = batches
        self._operators = operators or {}
        self._bounded = bounded
        self.slots = [self._slot(index) for index in range(plan.parallelism)]
        for slot in self.slots:
            self._build(slot)
        self.connections = [
            Connection(output, self.slots[receiver].inputs[slot.index, edge_index])
            for slot in self.slots
            for (receiver, edge_index), output in slot.remote.items()
        ]

    # -- building ------------------------------------------------------------------------------------------------------

    def _slot(self, index: int) -> RigSlot:
        sent: list[SlotMessage] = []
        jobs: list[UploadJob] = []
        bad: list[tuple[str, int]] = []
        loop = SlotLoop(
            self.plan.pipeline, ATTEMPT, self.clock, sent.append, jobs.append, lambda _, *event: bad.append(event)
        )
        loop.shapes = derive_shapes(self.plan)
        return RigSlot(index, loop, Trace(), sent, jobs, bad)

    def _build(self, slot: RigSlot) -> None:
        for each in self.plan.edges:
            for sender in self._ends(each, slot.index):
                slot.inputs[sender, each.index] = InputChannel(each.index, self._credit_bytes)
        for each_vertex in self.plan.vertices:
            slot.loop.tasks.append(self._task(slot, each_vertex))

    def _ends(self, edge: Edge, own: int) -> list[int]:
        return list(range(self.plan.parallelism)) if edge.keys else [own]

    def _task(self, slot: RigSlot, vertex: Vertex) -> VertexTask:
        source: FakeSource | None = None
        operators: dict[int, OperatorRuntime] = {}
        sinks: dict[int, Sink] = {}
        for index, node in enumerate(vertex.nodes):
            name = node.operator.name
            match node.operator:
                case SourceOperator():
                    source = slot.sources[name] = self._source(name, slot.index)
                case SinkOperator():
                    sinks[index] = slot.sinks[name] = FakeSink(name, slot.index, slot.trace)
                case _:
                    operators[index] = slot.operators[name] = self._operator(slot, node)
        inputs = [
            slot.inputs[sender, each.index]
            for each in self.plan.inputs_of(vertex.id)
            for sender in self._ends(each, slot.index)
        ]
        gate = None
        if source is None:
            edges = self.plan.inputs_of(vertex.id)
            unaligned = self._unaligned and may_overtake(edges)
            handler = choose_handler(exactly_once=self.plan.exactly_once, unaligned=unaligned, channels=len(inputs))
            replay = self._restored.replay(vertex.id, slot.index) if self._restored is not None else ()
            gate = InputGate(inputs, edges, handler, replay)
        return VertexTask(
            vertex,
            SubtaskId(vertex.id, SlotIndex(slot.index)),
            slot.loop,
            Runtimes(source, operators, sinks),
            {edge: self._output(slot, self.plan.edges[edge]) for node in vertex.nodes for edge in node.all_edges},
            gate,
        )

    def _source(self, name: str, slot: int) -> FakeSource:
        if self._restored is not None:
            return self._restored.source(name, slot)
        return FakeSource(name, slot, self._batches(name, slot), bounded=self._bounded)

    def _operator(self, slot: RigSlot, node: Node) -> OperatorRuntime:
        if node.operator.name in self._operators:
            return self._operators[node.operator.name]()
        if not isinstance(node.operator, AggregateOperator):
            return FakeFilter()
        totals = FakeTotals(slot.trace)
        if self._restored is not None:
            totals.restore(self._restored.rows(node.operator.name, slot.index))
        return totals

    def _output(self, slot: RigSlot, edge: Edge) -> EdgeOutput:
        channels: list[OutputChannel] = []
        for receiver in self._ends(edge, slot.index):
            inner: OutputChannel
            if receiver == slot.index:
                inner = LocalOutput(slot.inputs[slot.index, edge.index])
            else:
                inner = RemoteOutput(edge.index, self._credit_bytes, min(self._credit_bytes, QUEUE_BYTES_MAX))
                slot.remote[receiver, edge.index] = inner
            channels.append(TracedOutput(inner, slot.trace))
        return EdgeOutput(edge, channels, self.plan.max_parallelism)

    # -- running -------------------------------------------------------------------------------------------------------

    def settle(self, *, uploads: bool = True) -> None:
        """Turn everything until nothing moves."""
        for _ in range(100_000):
            moved = [slot.loop.turn() for slot in self.slots]
            moved += [connection.send() for connection in self.connections]
            moved += [connection.receive(1 << 20) for connection in self.connections]
            if uploads:
                moved += [self.upload(slot) for slot in self.slots]
            if not any(moved):
                return
        raise AssertionError("never settles")

    def stir(self, randomness: random.Random) -> None:
        """One random small step: a slot's turn, a frame sent, some bytes received, an upload."""
        slot = randomness.choice(self.slots)
        actions: list[Callable[[], object]] = [slot.loop.turn, lambda: self.upload(slot)]
        if self.connections:
            connection = randomness.choice(self.connections)
            actions += [connection.send, lambda: connection.receive(randomness.randint(1, 400))]
        randomness.choice(actions)()

    def upload(self, slot: RigSlot, error: str = "") -> bool:
        """Do the oldest waiting upload of a slot; False when there is none."""
        if not slot.jobs:
            return False
        job = slot.jobs.pop(0)
        handles: tuple[StateHandle, ...] = ()
        if not error:
            (data,) = job.encode()
            if job.state == TOTALS:
                path = data.decode()
            elif job.kind in (StateKind.OPERATOR, StateKind.LIST):
                path = data.hex()
            else:
                path = f"{job.checkpoint}/{job.operator}-{job.subtask.index}.{job.kind}"
                self.files[path] = data
            where = (job.operator, job.subtask.index, path)
            handles = (StateHandle(*where, len(data), "", 0, "", job.kind, job.edges, state=job.state),)
        slot.loop.on_uploaded(Uploaded(job.subtask, job.checkpoint, handles, error, 7.0))
        return True

    def trigger(
        self, checkpoint: int, *, final: bool = False, attempt: Attempt = ATTEMPT, after_ms: int | None = None
    ) -> None:
        barrier = Barrier(CheckpointId(checkpoint), self.clock.ms, final, after_ms)
        for slot in self.slots:
            slot.loop.on_trigger(Trigger(self.plan.pipeline, attempt, barrier))

    def hold(self, *sources: str, attempt: Attempt = ATTEMPT) -> None:
        """Put the subtasks of these sources on hold, and let all others read."""
        for slot in self.slots:
            slot.loop.on_hold(HoldSources(attempt, frozenset(map(OperatorName, sources))))

    def caught_up(self) -> list[tuple[int, str, int]]:
        """What subtasks have reported of their inputs: slot, vertex and port."""
        return [
            (slot.index, message.vertex, message.port)
            for slot in self.slots
            for message in slot.sent
            if isinstance(message, InputCaughtUp)
        ]

    def complete(self, checkpoint: int, *released: str, attempt: Attempt = ATTEMPT) -> None:
        message = Completed(attempt, CheckpointId(checkpoint), frozenset(map(TransactionalId, released)))
        for slot in self.slots:
            slot.loop.on_completed(message)

    def abandon(self, checkpoint: int, attempt: Attempt = ATTEMPT) -> None:
        for slot in self.slots:
            self.abandon_at(slot, checkpoint, attempt)

    def abandon_at(self, slot: RigSlot, checkpoint: int, attempt: Attempt = ATTEMPT) -> None:
        self.deleted += slot.loop.on_abandoned(Abandoned(attempt, CheckpointId(checkpoint), "by the test"))

    # -- what came out -------------------------------------------------------------------------------------------------

    def acks(self, checkpoint: int) -> list[Ack]:
        messages = [message for slot in self.slots for message in slot.sent]
        acks = [message.ack for message in messages if isinstance(message, Acknowledged)]
        return [ack for ack in acks if ack.checkpoint == checkpoint]

    def declines(self) -> list[Decline]:
        return [message.decline for slot in self.slots for message in slot.sent if isinstance(message, Declined)]

    def finished_sources(self) -> list[str]:
        messages = [message for slot in self.slots for message in slot.sent]
        return [message.source for message in messages if isinstance(message, SourceFinished)]

    def is_complete(self, checkpoint: int) -> bool:
        """Every subtask has acknowledged (C12)."""
        subtasks = {task.subtask for slot in self.slots for task in slot.loop.tasks}
        acks = self.acks(checkpoint)
        assert len(acks) <= len(subtasks), "a subtask has acknowledged twice"
        return {ack.subtask for ack in acks} == subtasks

    def rows_before(self, checkpoint: int) -> Counter[Row]:
        """The rows that the sources had returned at their barriers, by the acknowledged positions."""
        rows: Counter[Row] = Counter()
        for ack in self.acks(checkpoint):
            for positions in ack.positions:
                source = self.slots[ack.subtask.index].sources[positions.source]
                ((_, position),) = positions.next_offsets
                rows.update(source.returned[:position])
        return rows

    def rows_in_state(self, checkpoint: int) -> Counter[Row]:
        """The rows that the uploaded states of the checkpoint hold (the path of a handle is its content here)."""
        rows: Counter[Row] = Counter()
        for ack in self.acks(checkpoint):
            for state in ack.states:
                if state.kind is not StateKind.OPERATOR:
                    continue
                rows.update(msgspec.json.decode(state.path, type=list[Row]))
        return rows

    def rows_in_transactions(self, checkpoint: int) -> Counter[Row]:
        """The rows of all transactions that a checkpoint and its acks' repetitions would commit."""
        producers = {c.producer_id for ack in self.acks(checkpoint) for c in ack.committables}
        rows: Counter[Row] = Counter()
        for slot in self.slots:
            for sink in slot.sinks.values():
                for producer, written in sink.transactions.items():
                    if producer in producers:
                        rows.update(written)
        return rows
