"""One subtask of one vertex: input channels, barrier handler, a tree of operators, outputs.

Rows in flight of the restored checkpoint are processed before anything comes out of a channel (B50). A batch enters at
the head and goes through the tree by direct calls. A barrier does three things in one step that no record can
enter (C33): barrier to all outputs, synchronous snapshot of every operator, `prepare` of every sink. Whoever drives the
subtask supplies the time and carries the messages (see loop.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from tidegate.formats.failures import RecordFailure
from tidegate.ids import CheckpointId, StateId, SubtaskId, TransactionalId
from tidegate.operators.runtime import ROWS_MAX, BatchTooLarge, OperatorRuntime
from tidegate.operators.spec import Operator as PlanOperator
from tidegate.plan.graph import Node, Vertex, Way
from tidegate.plan.growth import BatchLimits
from tidegate.task.barriers.handler import (
    Abort,
    AbortReason,
    Action,
    BarrierHandler,
    BarriersReceived,
    Notify,
    start_delay_ms,
)
from tidegate.task.channels import InputChannel
from tidegate.task.elements import BYTES_MAX, Barrier, Batch, CancelMarker, Control, Element
from tidegate.task.inflight import Recording
from tidegate.task.meter import Meter
from tidegate.task.outputs import EdgeOutput
from tidegate.task.pace import Pace
from tidegate.task.ports import OperatorState, Sink, Source, StateCapture

if TYPE_CHECKING:
    import polars as pl

    from tidegate.coordinator.types import StateHandle


NO_LIMITS = BatchLimits(ROWS_MAX, BYTES_MAX)


class Host(Protocol):
    """What a subtask asks of the loop."""

    def now_ms(self) -> int:
        """Wall clock, ms since 1970."""

    def elapsed_ms(self) -> float:
        """A clock that never goes back, for durations."""

    def begin_snapshot(
        self,
        task: VertexTask,
        notify: Notify,
        captures: Mapping[StateId, StateCapture],
        snapshot_ms: float,
        *,
        inflight: bool,
    ) -> None:
        """The synchronous part is done: upload, wait for the sinks, acknowledge.

        With `inflight`, `end_recording` follows, and the ack waits for it.
        """

    def end_recording(self, task: VertexTask, checkpoint: CheckpointId, recording: Recording) -> None:
        """What was in flight is known: upload it."""

    def decline(self, subtask: SubtaskId, checkpoint: CheckpointId, reason: AbortReason) -> None:
        """Report to the coordinator that this subtask gives the checkpoint up (B09)."""

    def failed_records(self, operator: PlanOperator, frame: pl.DataFrame, failures: Sequence[RecordFailure]) -> None:
        """Count them, or stop the pipeline, as the operator's policy says."""


class VertexTask:
    """See the module."""

    def __init__(
        self,
        vertex: Vertex,
        subtask: SubtaskId,
        host: Host,
        *,
        inputs: Sequence[InputChannel],
        handler: BarrierHandler | None,
        source: Source | None,
        operators: Mapping[int, OperatorRuntime],
        sinks: Mapping[int, Sink],
        outputs: Mapping[int, EdgeOutput],
        replay: Iterable[tuple[int, Batch]] = (),
        limits: BatchLimits = NO_LIMITS,
        ports: Mapping[int, int] | None = None,
    ) -> None:
        """`replay`: rows in flight of the restored checkpoint with the edges they were on, oldest first.

        `operators` and `sinks` by the index of their node. `limits`: what is processed at a time; a source keeps to the
        bytes by itself. `ports`: which input of the head each edge feeds, where it is not the only one.
        """
        self.vertex = vertex
        self.subtask = subtask
        self.inputs = inputs
        self.source = source
        self.sinks = sinks
        self.operators = operators
        self.outputs = outputs
        self.states: Mapping[StateId, OperatorState] = {
            StateId(vertex.nodes[index].operator.name, name): state
            for index, operator in operators.items()
            for name, state in operator.states.items()
        }
        self.source_stopped = False
        self._host = host
        self.meter = Meter([node.operator.REST for node in vertex.nodes], host.elapsed_ms)
        self.handler = handler
        self._turn_of = 0
        self._replay = deque(replay)
        self._limits = limits
        self._pace = Pace()
        self._ports = {} if ports is None else ports
        heads = {} if source is None else {0: source}
        self._runtimes: Mapping[int, OperatorRuntime] = {**heads, **operators, **sinks}
        self._outs = [_NodeOut(self, host, index, node) for index, node in enumerate(vertex.nodes)]
        self._recordings: dict[CheckpointId, Recording] = {}
        if handler is not None and handler.watches_arrivals:
            for index, channel in enumerate(inputs):
                channel.watch(partial(self._on_arrival, index))

    @property
    def room(self) -> int:
        """Rows that may be processed next, so few that no barrier waits long for them; 0 while a way out is full.

        Towards a sink that is nearly full a batch is taken in parts: what waits in a channel a barrier can overtake,
        what a sink was given it has to send first.
        """
        if not all(output.writable for output in self.outputs.values()):
            return 0
        return min(self._limits.rows, self._pace.rows, *(runtime.room for runtime in self._runtimes.values()))

    @property
    def next_deadline_ms(self) -> int | None:
        """When `turn` has something to do although nothing moves, ms since 1970; None while nothing waits.

        A barrier that may still overtake on its way out has a recording that waits for it.
        """
        deadlines = [runtime.next_deadline_ms for runtime in self._runtimes.values()]
        if self._recordings:
            deadlines += [output.next_deadline_ms for output in self.outputs.values()]
        if self.handler is not None:
            deadlines.append(self.handler.next_deadline_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    @property
    def replaying(self) -> int:
        """Batches of the restored checkpoint that are still to be processed."""
        return len(self._replay)

    def turn(self) -> bool:
        """Process one batch or one control element; False when there is nothing to do or no room for it."""
        moved = self._look_at_time()
        self._settle()
        if self.source is not None:
            return self._poll_source(self.source) or moved
        moved |= self._poll_operators()
        if self._replay:
            return self._replay_next() or moved
        assert self.handler is not None
        count = len(self.inputs)
        for step in range(count):
            index = (self._turn_of + step) % count
            channel = self.inputs[index]
            if not len(channel) or self.handler.is_blocked(index):
                continue
            rows = self.room if channel.next_is_batch else ROWS_MAX
            if not rows:
                continue
            self._turn_of = (index + 1) % count
            element = channel.pop(rows, self._limits.size_bytes)
            if isinstance(element, Batch):
                self._process(channel.edge, element)
            else:
                self._on_control(index, element)
            return True
        return moved

    def trigger(self, barrier: Barrier) -> None:
        """Inject a barrier at a source (F05); after a final one no rows follow, but a repeated final one may."""
        self.source_stopped = self.source_stopped or barrier.final
        self._checkpoint(Notify(barrier, 0, start_delay_ms(barrier, self._host.now_ms())))

    def stored(self, state: StateId, checkpoint: CheckpointId, files: Sequence[StateHandle]) -> None:
        """One of its states is durable."""
        self.states[state].stored(checkpoint, files)

    def complete(self, checkpoint: CheckpointId, released: frozenset[TransactionalId]) -> None:
        """The coordinator's notice; `released` as in Completed."""
        for state in self.states.values():
            state.completed(checkpoint)
        for sink in self.sinks.values():
            sink.completed(checkpoint, released)

    def abandon(self, checkpoint: CheckpointId) -> None:
        """The coordinator gave the checkpoint up."""
        self._forget(checkpoint)
        for state in self.states.values():
            state.abandoned(checkpoint)
        if self.handler is not None:
            self._carry_out(self.handler.on_abandoned(checkpoint))
        for sink in self.sinks.values():
            sink.aborted(checkpoint)

    def _poll_source(self, source: Source) -> bool:
        rows = 0 if self.source_stopped else self.room
        if not rows:
            return False
        started, before = self.meter.begin(), self.meter.counts[0].rows_out
        moved = source.poll(rows, self._outs[0])
        if moved:
            emitted = self.meter.counts[0].rows_out - before
            self._pace.observe(max(1, emitted), self.meter.spent(0) - started)
        return moved

    def _poll_operators(self) -> bool:
        """What has come to operators from outside, and what they have still to do."""
        moved, rows = False, self.room
        self.meter.begin()
        for index, runtime in self.operators.items():
            if rows and runtime.poll(rows, self._outs[index]):
                self.meter.spent(index)
                moved, rows = True, self.room
        return moved

    def _replay_next(self) -> bool:
        """Nothing else is consumed meanwhile: whatever is in the channels is newer."""
        rows = self.room
        if not rows:
            return False
        edge, batch = self._replay.popleft()
        rows = batch.rows_within(rows, self._limits.size_bytes)
        if rows < batch.frame.height:
            batch, rest = batch.split(rows)
            self._replay.appendleft((edge, rest))
        self._process(edge, batch)
        return True

    def _process(self, edge: int, batch: Batch) -> None:
        """A batch that came over an edge; when what is made of it has no room, half of it, and the rest next time."""
        started, port = self.meter.begin(), self._ports.get(edge, 0)
        while True:
            try:
                self._runtimes[0].process(port, batch.frame, self._outs[0])
            except BatchTooLarge:
                batch, rest = batch.split(batch.frame.height // 2)
                self._replay.appendleft((edge, rest))
            else:
                self._pace.observe(batch.frame.height, self.meter.took(0, batch.frame.height) - started)
                return

    def deliver(self, node: int, way: Way, batch: pl.DataFrame) -> None:
        """Depth first through the tree: the order of rows is the order of arrival on every way out."""
        self.meter.gave(node, batch.height)
        for child in way.children:
            self._runtimes[child].process(0, batch, self._outs[child])
            self.meter.took(child, batch.height)
        for edge in way.edges:
            self.outputs[edge].emit(batch)

    def _on_control(self, channel: int, control: Control) -> None:
        """B02: barriers are passed on with their snapshot, cancellations sent again."""
        assert self.handler is not None
        now_ms = self._host.now_ms()
        if isinstance(control, Barrier):
            actions = self.handler.on_barrier(channel, control, now_ms)
        else:
            actions = self.handler.on_cancel(channel, control.checkpoint)
        self._carry_out(actions)

    def _on_arrival(self, channel: int, element: Element) -> None:
        """A channel has received something; an unaligned barrier acts before its turn comes (B43, B47)."""
        assert self.handler is not None
        if isinstance(element, Batch):
            for checkpoint in self.handler.recording(channel):
                self._recordings[checkpoint].arrived(channel, element)
        else:
            self._carry_out(self.handler.on_arrival(channel, element, self._host.now_ms()))

    def _look_at_time(self) -> bool:
        """Whatever is due; True when an operator has more to do at once."""
        deadline_ms = self.next_deadline_ms
        if deadline_ms is None:
            return False
        now_ms = self._host.now_ms()
        if now_ms < deadline_ms:
            return False
        if self.handler is not None:
            self._carry_out(self.handler.on_time(now_ms))
        for output in self.outputs.values():
            output.on_time(now_ms)
        more = False
        for index, runtime in self._runtimes.items():
            due_ms = runtime.next_deadline_ms
            if due_ms is not None and due_ms <= now_ms and self.room:
                self.meter.begin()
                more |= runtime.on_time(now_ms, self._outs[index])
                self.meter.spent(index)
        return more

    def _carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Notify):
                self._checkpoint(action)
            elif isinstance(action, Abort):
                self._give_up(action)
            elif isinstance(action, BarriersReceived):
                recording = self._recordings.get(action.checkpoint)
                if recording is not None:  # else nothing was in flight, and it has ended with the snapshot
                    recording.alignment_ms = action.alignment_ms
                    self._settle()

    def _give_up(self, abort: Abort) -> None:
        self._forget(abort.checkpoint)
        self._host.decline(self.subtask, abort.checkpoint, abort.reason)
        for output in self.outputs.values():
            output.broadcast(CancelMarker(abort.checkpoint))

    def _forget(self, checkpoint: CheckpointId) -> None:
        """Nothing remains of a checkpoint that was given up."""
        self._recordings.pop(checkpoint, None)
        for output in self.outputs.values():
            output.forget(checkpoint)

    def _checkpoint(self, notify: Notify) -> None:
        """The one step of C33."""
        started = self._host.elapsed_ms()
        checkpoint = notify.barrier.checkpoint
        for output in self.outputs.values():
            output.broadcast(notify.barrier)
        full = notify.barrier.savepoint
        captures = {one: state.capture(checkpoint, full=full) for one, state in self.states.items()}
        for sink in self.sinks.values():
            sink.prepare(checkpoint)
        recording = self._record(notify)
        if recording is not None:
            self._recordings[checkpoint] = recording
        snapshot_ms = self._host.elapsed_ms() - started
        self._host.begin_snapshot(self, notify, captures, snapshot_ms, inflight=recording is not None)
        self._settle()

    def _record(self, notify: Notify) -> Recording | None:
        """What is in flight now and what still may be; None for a barrier that never overtakes.

        The barrier of an alignment that ended in time overtakes nothing here, but may do so on its way out.
        """
        barrier, handler = notify.barrier, self.handler
        if barrier.unaligned_after_ms is None:
            return None
        queued = {
            index: (channel.edge, channel.batches_ahead_of(barrier.checkpoint))
            for index, channel in enumerate(self.inputs)
            if handler is not None and handler.has_inflight(index, barrier.checkpoint)
        }
        recording = Recording(self._replay, queued)
        for edge, output in self.outputs.items():
            for position in range(len(output.channels)):
                recording.expect((edge, position))
        if not queued:
            recording.alignment_ms = notify.alignment_ms
        return recording

    def _settle(self) -> None:
        """Hand over the recordings to which nothing can be added any more."""
        for checkpoint, recording in list(self._recordings.items()):
            for edge, position in recording.unsettled:
                batches = self.outputs[edge].channels[position].take_overtaken(checkpoint)
                if batches is not None:
                    recording.overtaken((edge, position), batches)
            if recording.complete:
                del self._recordings[checkpoint]
                self._host.end_recording(self, checkpoint, recording)


class _NodeOut:
    """See Out. Where the results of one node go."""

    def __init__(self, task: VertexTask, host: Host, index: int, node: Node) -> None:
        self._task = task
        self._host = host
        self._index = index
        self._operator = node.operator
        self._main = Way(node.children, node.edges)
        self._sides = node.sides

    def emit(self, batch: pl.DataFrame) -> None:
        if batch.height:
            self._task.deliver(self._index, self._main, batch)

    def side(self, name: str, batch: pl.DataFrame) -> None:
        way = self._sides.get(name)
        if way is not None and batch.height:
            self._task.deliver(self._index, way, batch)

    def fail(self, batch: pl.DataFrame, failures: Sequence[RecordFailure]) -> None:
        self._task.meter.failed(self._index, len(failures))
        self._host.failed_records(self._operator, batch, failures)
