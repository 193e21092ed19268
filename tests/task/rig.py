"""Slots in one process: real loops, subtasks, channels and frames around fake sources, operators and sinks.

The fakes keep the promises of tidegate.task.ports. Remote channels are joined by a pump that moves encoded frames;
uploads and the coordinator's part are done by the test. Time stands still unless a test moves it.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import polars as pl

from tidegate.coordinator.types import Ack, Committable, Decline, SourcePositions, StateHandle
from tidegate.datatypes import BIGINT, BOOLEAN
from tidegate.ids import (
    Attempt,
    CheckpointId,
    OperatorName,
    SlotIndex,
    SubtaskId,
    TopicPartition,
    TransactionalId,
    VertexId,
)
from tidegate.plan.expression import Literal
from tidegate.plan.graph import (
    AggregateOperator,
    Columns,
    Edge,
    FilterOperator,
    Node,
    Plan,
    SinkOperator,
    SourceOperator,
    Vertex,
)
from tidegate.task.barriers.handler import BarrierHandler, choose_handler
from tidegate.task.channels import InputChannel, LocalOutput, OutputChannel, RemoteOutput
from tidegate.task.elements import Barrier
from tidegate.task.loop import SlotLoop, Uploaded, UploadJob
from tidegate.task.messages import Abandoned, Acknowledged, Completed, Declined, SlotMessage, SourceFinished, Trigger
from tidegate.task.outputs import EdgeOutput
from tidegate.task.ports import Capture, Failure, Operator, Prepared, Sink
from tidegate.task.vertex import VertexTask
from tidegate.task.wire import FrameReader, SequenceCheck, decode_element, write_frame

ATTEMPT = Attempt(5)
KEYED: Columns = (("k", BIGINT), ("n", BIGINT))
MAX_PARALLELISM = 128

Row = tuple[int, int]
"""Key and number; every number occurs once in a test."""


def frame_of(rows: Iterable[Row]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema={"k": pl.Int64, "n": pl.Int64}, orient="row")


class VirtualClock:
    """Moves only when told."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def elapsed_ms(self) -> float:
        return float(self.ms)


class Trace:
    """What the fakes and the outputs of one slot did, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []
        self._producers = itertools.count()

    def next_producer(self) -> int:
        """Producer ids are unique in the cluster."""
        return next(self._producers)

    def add(self, *event: object) -> None:
        self.events.append(event)


class FakeSource:
    """Returns the given batches; its position is the number of rows returned."""

    def __init__(self, name: str, slot: int, batches: Iterable[Sequence[Row]] = (), *, bounded: bool = False) -> None:
        self.name = name
        self.slot = slot
        self.batches = deque(batches)
        self.returned: list[Row] = []
        self.polls = 0
        self.bounded = bounded

    def poll(self) -> pl.DataFrame | None:
        self.polls += 1
        if not self.batches:
            return None
        rows = self.batches.popleft()
        self.returned += rows
        return frame_of(rows).with_columns(
            pl.lit(self.slot).alias("__partition"),
            pl.int_range(len(self.returned) - len(rows), len(self.returned)).alias("__offset"),
        )

    def positions(self) -> SourcePositions:
        partition = TopicPartition(self.name, self.slot)
        return SourcePositions(OperatorName(self.name), ((partition, len(self.returned)),))

    @property
    def finished(self) -> bool:
        return self.bounded and not self.batches

    def close(self) -> None:
        return


class RowFailure(msgspec.Struct):
    """A record that failed."""

    row: int
    reason: str


class FakeFilter:
    """Passes everything on except numbers that are told to be bad or unwanted."""

    def __init__(self, bad: Iterable[int] = (), unwanted: Iterable[int] = ()) -> None:
        self.bad = set(bad)
        self.unwanted = set(unwanted)
        self._failures: list[Failure] = []

    def process(self, frame: pl.DataFrame) -> pl.DataFrame | None:
        numbers = frame["n"].to_list()
        self._failures = [RowFailure(row, f"overflow of {n}") for row, n in enumerate(numbers) if n in self.bad]
        return frame.filter(~pl.col("n").is_in(list(self.bad | self.unwanted)))

    def take_failures(self) -> Sequence[Failure]:
        failures, self._failures = self._failures, []
        return failures

    def capture(self) -> Capture | None:
        return None

    @property
    def state_keys(self) -> int:
        return 0


class FakeTotals:
    """Keyed state: the numbers seen, per key. The capture sees the state as it was at the barrier (F23)."""

    def __init__(self, trace: Trace) -> None:
        self.seen: list[Row] = []
        self._trace = trace

    def process(self, frame: pl.DataFrame) -> pl.DataFrame | None:
        self.seen += frame.select("k", "n").rows()
        return frame

    def take_failures(self) -> Sequence[Failure]:
        return ()

    def capture(self) -> Capture | None:
        self._trace.add("capture")
        held = list(self.seen)
        return lambda: msgspec.json.encode(held)

    @property
    def state_keys(self) -> int:
        return len({key for key, _ in self.seen})


class FakeSink:
    """Keeps the promises of a transactional sink: one transaction per interval, repeated until confirmed."""

    def __init__(self, name: str, slot: int, trace: Trace) -> None:
        self.name = name
        self.slot = slot
        self.open: list[Row] = []
        self.transactions: dict[int, list[Row]] = {}
        """Rows by producer id, for every transaction ever prepared."""
        self.is_ready = True
        self.holds_prepares = False
        self.completed_with: list[tuple[int, frozenset[TransactionalId]]] = []
        self.aborted_with: list[int] = []
        self._unconfirmed: dict[int, list[Committable]] = {}
        self._finished: list[Prepared] = []
        self._trace = trace

    def ready(self) -> bool:
        return self.is_ready

    def write(self, frame: pl.DataFrame) -> None:
        self.open += frame.select("k", "n").rows()

    def turn(self) -> bool:
        return False

    def prepare(self, checkpoint: CheckpointId) -> None:
        self._trace.add("prepare", checkpoint)
        producer = 1000 * self.slot + self._trace.next_producer()
        self.transactions[producer], self.open = self.open, []
        committable = Committable(
            sink=OperatorName(self.name),
            subtask=SlotIndex(self.slot),
            attempt=ATTEMPT,
            checkpoint=checkpoint,
            transactional_id=TransactionalId(f"p.{self.name}.{self.slot}.{producer}"),
            producer_id=producer,
            producer_epoch=0,
            written=(),
            opened_at_ms=0,
            timeout_ms=60_000,
        )
        self._finished.append(Prepared(checkpoint, (committable,), 2.5))
        self._unconfirmed.setdefault(checkpoint, []).append(committable)

    def poll_prepared(self) -> Sequence[Prepared]:
        if self.holds_prepares:
            return ()
        finished, self._finished = self._finished, []
        return finished

    def unconfirmed(self) -> Sequence[Committable]:
        return [committable for part in self._unconfirmed.values() for committable in part]

    def completed(self, checkpoint: CheckpointId, released: frozenset[TransactionalId]) -> None:
        self.completed_with.append((checkpoint, released))
        self._unconfirmed = {k: part for k, part in self._unconfirmed.items() if k > checkpoint}

    def aborted(self, checkpoint: CheckpointId) -> None:
        self.aborted_with.append(checkpoint)

    def close(self) -> None:
        return


# -- plans -------------------------------------------------------------------------------------------------------------


def source_node(name: str, **ways: tuple[int, ...]) -> Node:
    spec = SourceOperator(
        name=OperatorName(name),
        topics=(name,),
        format="json",
        schema=KEYED,
        output=KEYED,
        start="earliest",
        until="never",
        bad_records="fail",
        kafka={},
    )
    return Node(spec, **ways)


def filter_node(name: str, bad_records: str = "fail", **ways: tuple[int, ...]) -> Node:
    return Node(FilterOperator(OperatorName(name), Literal(True, BOOLEAN), KEYED, bad_records), **ways)


def totals_node(name: str, **ways: tuple[int, ...]) -> Node:
    return Node(AggregateOperator(OperatorName(name), ("k",), (), "each", KEYED, "fail"), **ways)


def sink_node(name: str) -> Node:
    return Node(SinkOperator(OperatorName(name), name, "json", KEYED, None, None, {}))


def vertex(*nodes: Node) -> Vertex:
    return Vertex(VertexId(nodes[0].operator.name), nodes)


def edge(index: int, upstream: str, downstream: str, *keys: str) -> Edge:
    return Edge(index, VertexId(upstream), VertexId(downstream), keys, KEYED)


def plan_of(
    parallelism: int, vertices: Sequence[Vertex], edges: Sequence[Edge] = (), *, exactly_once: bool = True
) -> Plan:
    return Plan("p", parallelism, MAX_PARALLELISM, exactly_once, tuple(vertices), tuple(edges))


def shuffle_plan(parallelism: int, *, exactly_once: bool = True) -> Plan:
    """read -> (hash by k) -> total -> write: the exchange aligns."""
    return plan_of(
        parallelism,
        [vertex(source_node("read", edges=(0,))), vertex(totals_node("total", children=(1,)), sink_node("write"))],
        [edge(0, "read", "total", "k")],
        exactly_once=exactly_once,
    )


def parallel_plan(parallelism: int, *, exactly_once: bool = True) -> Plan:
    """read -> pass -> (forward) -> total -> write: every subtask has one input channel."""
    return plan_of(
        parallelism,
        [
            vertex(source_node("read", children=(1,)), filter_node("pass", edges=(0,))),
            vertex(totals_node("total", children=(1,)), sink_node("write")),
        ],
        [edge(0, "read", "total")],
        exactly_once=exactly_once,
    )


# -- slots -------------------------------------------------------------------------------------------------------------


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


@dataclass
class RigSlot:
    """One slot and everything a test may look at or turn."""

    index: int
    loop: SlotLoop
    trace: Trace
    sent: list[SlotMessage] = field(default_factory=list)
    jobs: list[UploadJob] = field(default_factory=list)
    bad: list[tuple[str, str, int]] = field(default_factory=list)
    sources: dict[str, FakeSource] = field(default_factory=dict)
    operators: dict[str, Operator] = field(default_factory=dict)
    sinks: dict[str, FakeSink] = field(default_factory=dict)
    inputs: dict[tuple[int, int], InputChannel] = field(default_factory=dict)
    """By sender and edge."""
    remote: dict[tuple[int, int], RemoteOutput] = field(default_factory=dict)
    """By receiver and edge."""


class Connection:
    """From one slot to another, for one edge: encoded frames one way, credits the other."""

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
        return bool(data)


class Rig:
    """All slots of a plan."""

    def __init__(
        self,
        plan: Plan,
        *,
        batches: Callable[[str, int], Sequence[Sequence[Row]]] = lambda name, slot: (),
        operators: Mapping[str, Callable[[], Operator]] | None = None,
        bounded: bool = False,
    ) -> None:
        self.plan = plan
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
        bad: list[tuple[str, str, int]] = []
        loop = SlotLoop(ATTEMPT, self.clock, sent.append, jobs.append, lambda *event: bad.append(event))
        return RigSlot(index, loop, Trace(), sent, jobs, bad)

    def _build(self, slot: RigSlot) -> None:
        for each in self.plan.edges:
            for sender in self._ends(each, slot.index):
                slot.inputs[sender, each.index] = InputChannel()
        for each_vertex in self.plan.vertices:
            slot.loop.tasks.append(self._task(slot, each_vertex))

    def _ends(self, edge: Edge, own: int) -> list[int]:
        return list(range(self.plan.parallelism)) if edge.keys else [own]

    def _task(self, slot: RigSlot, vertex: Vertex) -> VertexTask:
        source: FakeSource | None = None
        operators: dict[int, Operator] = {}
        sinks: dict[int, Sink] = {}
        for index, node in enumerate(vertex.nodes):
            name = node.operator.name
            match node.operator:
                case SourceOperator():
                    batches = self._batches(name, slot.index)
                    source = slot.sources[name] = FakeSource(name, slot.index, batches, bounded=self._bounded)
                case SinkOperator():
                    sinks[index] = slot.sinks[name] = FakeSink(name, slot.index, slot.trace)
                case _:
                    operators[index] = slot.operators[name] = self._operator(slot, node)
        inputs = [
            slot.inputs[sender, each.index]
            for each in self.plan.inputs_of(vertex.id)
            for sender in self._ends(each, slot.index)
        ]
        handler: BarrierHandler | None = None
        if source is None:
            handler = choose_handler(exactly_once=self.plan.exactly_once, unaligned=False, channels=len(inputs))
        return VertexTask(
            vertex,
            SubtaskId(vertex.id, SlotIndex(slot.index)),
            slot.loop,
            inputs=inputs,
            handler=handler,
            source=source,
            operators=operators,
            sinks=sinks,
            outputs={edge: self._output(slot, self.plan.edges[edge]) for node in vertex.nodes for edge in node.edges},
        )

    def _operator(self, slot: RigSlot, node: Node) -> Operator:
        if node.operator.name in self._operators:
            return self._operators[node.operator.name]()
        return FakeTotals(slot.trace) if isinstance(node.operator, AggregateOperator) else FakeFilter()

    def _output(self, slot: RigSlot, edge: Edge) -> EdgeOutput:
        channels: list[OutputChannel] = []
        for receiver in self._ends(edge, slot.index):
            inner: OutputChannel
            if receiver == slot.index:
                inner = LocalOutput(slot.inputs[slot.index, edge.index])
            else:
                inner = slot.remote[receiver, edge.index] = RemoteOutput(edge.index)
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
        handle = None
        if not error:
            data = job.capture()
            handle = StateHandle(job.operator, job.subtask.index, data.decode(), len(data), "")
        slot.loop.on_uploaded(Uploaded(job.subtask, job.checkpoint, handle, error, 7.0))
        return True

    def trigger(self, checkpoint: int, *, final: bool = False, attempt: Attempt = ATTEMPT) -> None:
        barrier = Barrier(CheckpointId(checkpoint), self.clock.ms, final)
        for slot in self.slots:
            slot.loop.on_trigger(Trigger(attempt, barrier))

    def complete(self, checkpoint: int, *released: str, attempt: Attempt = ATTEMPT) -> None:
        message = Completed(attempt, CheckpointId(checkpoint), frozenset(map(TransactionalId, released)))
        for slot in self.slots:
            slot.loop.on_completed(message)

    def abandon(self, checkpoint: int, attempt: Attempt = ATTEMPT) -> None:
        for slot in self.slots:
            self.abandon_at(slot, checkpoint, attempt)

    def abandon_at(self, slot: RigSlot, checkpoint: int, attempt: Attempt = ATTEMPT) -> None:
        slot.loop.on_abandoned(Abandoned(attempt, CheckpointId(checkpoint), "by the test"))

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
