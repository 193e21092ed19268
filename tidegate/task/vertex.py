"""One subtask of one vertex: input channels, barrier handler, a tree of operators, outputs.

Rows in flight of the restored checkpoint are processed before anything comes out of a channel (B50). A batch enters at
the head and goes through the tree by direct calls; so does event time, when the valves of the inputs let it through. A
barrier does three things in one step that no record can enter (C33): barrier to all outputs, synchronous snapshot of
every operator, `prepare` of every sink. Whoever drives the subtask supplies the time and carries the messages (see
loop.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from tidegate.formats.failures import RecordFailure
from tidegate.ids import CheckpointId, StateId, SubtaskId, TransactionalId
from tidegate.operators.runtime import END_OF_TIME, ROWS_MAX, BatchTooLarge, OperatorRuntime, Runtime
from tidegate.operators.spec import Operator as PlanOperator
from tidegate.plan.graph import Vertex
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
from tidegate.task.elements import (
    BYTES_MAX,
    Barrier,
    Batch,
    CancelMarker,
    CheckpointControl,
    Element,
    StillIdle,
    StreamStatus,
    TimeElement,
    Watermark,
)
from tidegate.task.idleness import Questions
from tidegate.task.inflight import Recording
from tidegate.task.meter import Meter
from tidegate.task.outputs import EdgeOutput
from tidegate.task.pace import Pace
from tidegate.task.ports import OperatorState, Sink, Source, StateCapture
from tidegate.task.tree import Tree
from tidegate.task.valve import Inputs

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

    def failed_records(
        self, operator: PlanOperator, frame: pl.DataFrame, failures: Sequence[RecordFailure]
    ) -> pl.DataFrame | None:
        """Count them, or stop the pipeline, as the operator's policy says; the letters about them, if it says so."""


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
        bytes by itself. `ports`: which input of the head each edge feeds; None where none leads to it.
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
        self._final: Barrier | None = None
        """Waits, at a source, until what was read has left the operators after it."""
        self._host = host
        self.meter = Meter([node.operator.REST for node in vertex.nodes], host.elapsed_ms)
        self.handler = handler
        self._turn_of = 0
        self._replay = deque(replay)
        self._limits = limits
        self._pace = Pace()
        self._ports = {} if ports is None else ports
        self._event_time = Inputs([self._ports[channel.edge] for channel in inputs]) if inputs else None
        self._questions = Questions(outputs)
        heads = {} if source is None else {0: source}
        self._runtimes: Mapping[int, OperatorRuntime] = {**heads, **operators, **sinks}
        self._timed = self._runtimes
        self._tree = Tree(vertex, self._runtimes, outputs, self.meter, host.failed_records)
        self._polled = [(index, one) for index, one in operators.items() if _polls(one)]
        self._after = {index: self._downstream(index) for index in self._runtimes}
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
        deadlines = [runtime.next_deadline_ms for runtime in self._timed.values()]
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
        moved |= self._poll_operators()
        if self._questions:
            moved |= self._answer()
        if self._final is not None and self._settled:
            self._inject(self._final)
        if self.source is not None:
            return self._poll_source(self.source) or moved
        if self._replay:
            return self._replay_next() or moved
        assert self.handler is not None
        count = len(self.inputs)
        for step in range(count):
            index = (self._turn_of + step) % count
            channel = self.inputs[index]
            if not len(channel) or self.handler.is_blocked(index):
                continue
            rows = self._room_for(channel.head)
            if not rows:
                continue
            self._turn_of = (index + 1) % count
            element = channel.pop(rows, self._limits.size_bytes)
            if isinstance(element, Batch):
                self._process(channel.edge, element)
            elif isinstance(element, Watermark | StreamStatus | StillIdle):
                self._on_event_time(index, element)
            else:
                self._on_control(index, element)
            return True
        return moved

    @property
    def finished(self) -> bool:
        """A bounded source has emitted everything, and so has what is chained to it."""
        return self.source is not None and self.source.finished and self._source_ended and self._settled

    @property
    def _source_ended(self) -> bool:
        """The end of event time was sent (W02), by whose rows have one or not: what it makes due is waited for."""
        return self.meter.counts[0].watermark_ms == END_OF_TIME

    @property
    def _settled(self) -> bool:
        return all(runtime.settled for runtime in self._runtimes.values())

    def _room_for(self, element: Element) -> int:
        """How much of what is next may be taken: of a watermark as of rows, since it makes operators emit.

        Barriers and cancellations need no room, but a final barrier waits for what is due already: a pipeline that is
        started again, maybe with another definition, has new rows in mind, not the rest of the old ones.
        """
        if isinstance(element, Batch):
            return self.room
        if isinstance(element, Barrier | CancelMarker):
            final = isinstance(element, Barrier) and element.final
            return 0 if final and not self._settled else ROWS_MAX
        return self.room

    def trigger(self, barrier: Barrier) -> None:
        """Inject a barrier at a source (F05); after a final one no rows follow, but a repeated final one may."""
        self.source_stopped = self.source_stopped or barrier.final
        if self.source_stopped:  # it emits nothing more when its time comes, either
            self._timed = {**self.operators, **self.sinks}
        if barrier.final and not self._settled:
            self._final = barrier
            return
        self._inject(barrier)

    def _inject(self, barrier: Barrier) -> None:
        self._final = None
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
        if self._final is not None and self._final.checkpoint == checkpoint:
            self._final = None
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
        started = self.meter.begin()
        moved = source.poll(rows, self._tree.outs[0])
        if self._questions and source.take_still_idle():
            self._questions.confirm()
            return True
        if moved:
            self._pace.observe(max(1, source.rows_taken), self.meter.spent(0) - started)
        elif source.finished and not self._source_ended:
            self._tree.outs[0].watermark(END_OF_TIME)
            return True
        return moved

    def _poll_operators(self) -> bool:
        """What has come to operators from outside, and what they have still to do."""
        moved = False
        if self._polled:
            self.meter.begin()
        for index, runtime in self._polled:
            rows = self._room_after(index)
            if rows and runtime.poll(rows, self._tree.outs[index]):
                self.meter.spent(index)
                moved = True
        return moved

    def _downstream(self, index: int) -> Sequence[OperatorRuntime]:
        """Those of this vertex that get what a node emits."""
        children = self.vertex.nodes[index].all_children
        return [one for child in children for one in (self._runtimes[child], *self._downstream(child))]

    def _room_after(self, index: int) -> int:
        """How much an operator may emit by itself: one that is full itself has to, or it would be full for ever."""
        if not all(output.writable for output in self.outputs.values()):
            return 0
        return min(self._limits.rows, self._pace.rows, *(runtime.room for runtime in self._after[index]))

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
        started, port = self.meter.begin(), self._ports[edge]
        while True:
            try:
                self._runtimes[0].process(port, batch.frame, self._tree.outs[0])
            except BatchTooLarge:
                batch, rest = batch.split(batch.frame.height // 2)
                self._replay.appendleft((edge, rest))
            else:
                self._pace.observe(batch.frame.height, self.meter.took(0, batch.frame.height) - started)
                return

    def _on_control(self, channel: int, control: CheckpointControl) -> None:
        """B02: barriers are passed on with their snapshot, cancellations sent again."""
        assert self.handler is not None
        now_ms = self._host.now_ms()
        if isinstance(control, Barrier):
            actions = self.handler.on_barrier(channel, control, now_ms)
        else:
            actions = self.handler.on_cancel(channel, control.checkpoint)
        self._carry_out(actions)

    def _on_event_time(self, channel: int, control: TimeElement) -> None:
        """To the head, when the inputs have come further, or have fallen idle, all together (W19)."""
        assert self._event_time is not None
        for each in self._event_time.on_control(channel, control):
            if isinstance(each, StillIdle):
                self._questions.confirm()
            else:
                self.meter.begin()
                self._tree.hand(0, each)
        self._ask(self._event_time)

    def _ask(self, event_time: Inputs) -> None:
        """Inputs that are idle, whether they still are."""
        for index, question in event_time.take_questions():
            self.inputs[index].ask(question)

    def _answer(self) -> bool:
        """Somebody downstream asks whether this subtask is still idle: whatever it reads from is asked, too."""
        if self._questions.take_new():
            if self.source is not None:
                self.source.ask_still_idle()
            if self._event_time is not None:
                self._event_time.ask()
                self._ask(self._event_time)
        return self._questions.answer(self._tree.is_idle)

    def _on_arrival(self, channel: int, element: Batch | CheckpointControl) -> None:
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
        for index, runtime in self._timed.items():
            due_ms = runtime.next_deadline_ms
            if due_ms is not None and due_ms <= now_ms and self._room_after(index):
                self.meter.begin()
                more |= runtime.on_time(now_ms, self._tree.outs[index])
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
        for runtime in self.operators.values():
            runtime.before_snapshot()
        full = notify.barrier.savepoint
        captures = {one: state.capture(checkpoint, full=full) for one, state in self.states.items()}
        for sink in self.sinks.values():
            sink.prepare(checkpoint, final=notify.barrier.final)
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


def _polls(runtime: OperatorRuntime) -> bool:
    """Whether anything comes out of its `poll`, ever: the others are not asked each turn."""
    own: object = type(runtime).poll
    return own is not Runtime.poll
