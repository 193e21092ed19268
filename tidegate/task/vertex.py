"""One subtask of one vertex: its inputs (`input_gate.py`), its operators (`operator_chain.py`), its checkpoints.

A batch enters at the head and passes through the operators by direct calls; so does event time that the valves of the
inputs output. A barrier does three things in one step that no record can interrupt (C33): barrier to all outputs,
synchronous snapshot of every operator, `prepare` of every sink. The driver of the subtask supplies the time and carries
the messages (`loop.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from tidegate.formats.failures import RecordFailure
from tidegate.ids import CheckpointId, StateId, SubtaskId, TransactionalId
from tidegate.operators.runtime import END_OF_TIME, ROWS_MAX
from tidegate.operators.spec import Operator as PlanOperator
from tidegate.plan.graph import Vertex
from tidegate.plan.growth import BatchLimits
from tidegate.task.barriers.handler import (
    Abort,
    AbortReason,
    Action,
    BarriersReceived,
    Notify,
    start_delay_ms,
)
from tidegate.task.elements import (
    BYTES_MAX,
    Barrier,
    Batch,
    CancelMarker,
    CatchUpMarker,
    CheckpointControl,
    Element,
    StillIdle,
    StreamStatus,
    TimeElement,
    Watermark,
)
from tidegate.task.inflight import Recording, Recordings
from tidegate.task.input_gate import InputGate
from tidegate.task.operator_chain import OperatorChain, Runtimes
from tidegate.task.outputs import EdgeOutput
from tidegate.task.ports import StateCapture

if TYPE_CHECKING:
    import polars as pl

    from tidegate.coordinator.types import StateHandle


NO_LIMITS = BatchLimits(ROWS_MAX, BYTES_MAX)
ChannelPlace = tuple[int, int]
"""An edge, and the position of a channel in it."""


class Host(Protocol):
    """What a subtask needs from the loop."""

    def now_ms(self) -> int:
        """Returns the wall clock, ms since 1970."""

    def elapsed_ms(self) -> float:
        """Returns a clock that never goes back, for durations."""

    def begin_snapshot(
        self,
        task: VertexTask,
        notify: Notify,
        captures: Mapping[StateId, StateCapture],
        snapshot_ms: float,
        *,
        inflight: bool,
    ) -> None:
        """Takes over after the synchronous part: upload, wait for the sinks, acknowledge.

        With `inflight`, `end_recording` follows, and the ack waits for it.
        """

    def end_recording(self, task: VertexTask, checkpoint: CheckpointId, recording: Recording) -> None:
        """Uploads the rows in flight, which are now known."""

    def caught_up(self, task: VertexTask, port: int) -> None:
        """Reports to the coordinator that an input that opens a gate has caught up."""

    def decline(self, subtask: SubtaskId, checkpoint: CheckpointId, reason: AbortReason) -> None:
        """Reports to the coordinator that this subtask aborts the checkpoint (B09)."""

    def failed_records(
        self, operator: PlanOperator, frame: pl.DataFrame, failures: Sequence[RecordFailure], port: int | None = 0
    ) -> pl.DataFrame | None:
        """Counts failed rows or stops the pipeline, by the operator's policy. Returns the dead letters to write, if
        any.
        """


class Questions:
    """Questions from downstream about whether the subtask is still idle, from arrival to answer (ADR 52)."""

    def __init__(self, outputs: Mapping[int, EdgeOutput]) -> None:
        self._outputs = outputs
        self._open: dict[ChannelPlace, int] = {}
        self._confirmed: dict[ChannelPlace, int] = {}
        self._new = False
        for edge, output in outputs.items():
            for position, channel in enumerate(output.channels):
                channel.listen(partial(self._on_question, (edge, position)))

    def __bool__(self) -> bool:
        return bool(self._open or self._confirmed)

    def take_new(self) -> bool:
        """Returns whether a question has arrived since the last call. If so, the inputs of the subtask must be asked
        (again).
        """
        new, self._new = self._new, False
        return new

    def confirm(self) -> None:
        """Records that nothing has arrived at the subtask since the last question."""
        self._confirmed.update(self._open)
        self._open.clear()

    def answer(self, is_idle: Callable[[int], bool]) -> bool:
        """Answers on the edges that are idle; on any other, rows are still leaving the subtask."""
        ready = [place for place in self._confirmed if is_idle(place[0])]
        for edge, position in ready:
            self._outputs[edge].channels[position].emit(StillIdle(self._confirmed.pop((edge, position))))
        return bool(ready)

    def _on_question(self, place: ChannelPlace, question: int) -> None:
        self._open[place] = question
        self._new = True


class VertexTask:
    """A subtask: a chain of operators with its inputs, outputs and checkpoints."""

    def __init__(
        self,
        vertex: Vertex,
        subtask: SubtaskId,
        host: Host,
        runtimes: Runtimes,
        outputs: Mapping[int, EdgeOutput],
        inputs: InputGate | None = None,
        limits: BatchLimits = NO_LIMITS,
    ) -> None:
        """`outputs` by the index of their edge. A subtask without `inputs` has a source; one with a source has only
        inputs for replayed dead letters.
        """
        self.vertex = vertex
        self.subtask = subtask
        self.chain = OperatorChain(vertex, runtimes, outputs, limits, host.elapsed_ms, host.failed_records)
        self.inputs = inputs
        self.on_hold = False
        """For a source: it takes no record, and still answers barriers and questions (`coordinator/gating.py`)."""
        self.source_stopped = False
        self._final: Barrier | None = None
        """A final barrier that waits at a source until everything read has left the operators after it."""
        self._host = host
        self._questions = Questions(outputs)
        self._recordings = Recordings(outputs, partial(host.end_recording, self))
        if inputs is not None and inputs.handler.watches_arrivals:
            for index, channel in enumerate(inputs.channels):
                channel.watch(partial(self._on_arrival, inputs, index))

    @property
    def next_deadline_ms(self) -> int | None:
        """When `turn` next has work even if nothing moves, ms since 1970; None while nothing is scheduled.

        A barrier that may still overtake in an output has a recording that waits for it.
        """
        deadlines = self.chain.deadlines_ms
        if self._recordings:
            deadlines += [output.next_deadline_ms for output in self.chain.outputs.values()]
        if self.inputs is not None:
            deadlines.append(self.inputs.handler.next_deadline_ms)
        return min([deadline for deadline in deadlines if deadline is not None], default=None)

    @property
    def replaying(self) -> int:
        """Batches of the restored checkpoint that are still to be processed."""
        return 0 if self.inputs is None else len(self.inputs.replay)

    @property
    def finished(self) -> bool:
        """Whether a bounded source has emitted everything, and so have the operators chained to it.

        The end of event time has been sent (W02), whether or not rows have event time: what it makes due is waited for.
        """
        chain = self.chain
        return chain.source is not None and chain.source.finished and chain.has_ended and chain.settled

    # -- a turn --------------------------------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Processes one batch or one control element. Returns False if there is nothing to do or no room for it."""
        moved = self._run_due()
        self._recordings.settle()
        moved |= self.chain.poll_operators()
        if self._questions:
            moved |= self._answer_questions()
        if self._final is not None and self.chain.settled:
            self._inject(self._final)
        moved |= self._poll_source()
        if self.inputs is None:
            return moved
        if self.inputs.replay:
            return self._replay_next(self.inputs) or moved
        taken = self.inputs.take(self._room_for, self.chain.limits.size_bytes)
        if taken is None:
            return moved
        index, element = taken
        if isinstance(element, Batch):
            self._process(self.inputs, self.inputs.channels[index].edge, element)
        elif isinstance(element, Watermark | StreamStatus | StillIdle):
            self._on_event_time(self.inputs, index, element)
        elif isinstance(element, CatchUpMarker):
            self._on_caught_up(self.inputs, index)
        else:
            self._carry_out(self.inputs.on_control(index, element, self._host.now_ms()))
        return True

    def _run_due(self) -> bool:
        """Runs what is due by `next_deadline_ms`. Returns True if an operator has more to do at once."""
        deadline_ms = self.next_deadline_ms
        if deadline_ms is None:
            return False
        now_ms = self._host.now_ms()
        if now_ms < deadline_ms:
            return False
        if self.inputs is not None:
            self._carry_out(self.inputs.handler.on_time(now_ms))
        for output in self.chain.outputs.values():
            output.on_time(now_ms)
        return self.chain.on_time(now_ms)

    def _answer_questions(self) -> bool:
        """Answers a downstream question whether this subtask is still idle, after asking its own inputs the same."""
        if self._questions.take_new():
            if self.chain.source is not None:
                self.chain.source.ask_still_idle()
            if self.inputs is not None:
                self.inputs.ask(all_idle=True)
        return self._questions.answer(self.chain.is_idle)

    def _poll_source(self) -> bool:
        source, chain = self.chain.source, self.chain
        if source is None or self.source_stopped or not (room := chain.room):
            return False
        started = chain.meter.begin()
        moved = source.poll(0 if self.on_hold else room, chain.head_out)
        if self._questions and source.take_still_idle():
            self._questions.confirm()
            return True
        if moved:
            chain.pace.observe(max(1, source.rows_taken), chain.meter.spent(0) - started)
        elif source.finished and not chain.has_ended:
            chain.head_out.watermark(END_OF_TIME)
            return True
        return moved

    def _replay_next(self, inputs: InputGate) -> bool:
        """Processes the next rows in flight. Nothing else is consumed meanwhile: everything in the channels
        is newer.
        """
        rows = self.chain.room
        if not rows:
            return False
        self._process(inputs, *inputs.take_replayed(rows, self.chain.limits.size_bytes))
        return True

    def _room_for(self, element: Element) -> int:
        """Returns how much of the next element may be taken. A watermark needs room like rows, since it makes operators
        emit.

        Barriers and cancellations need no room, but a final barrier waits for what is already due: a pipeline that is
        started again, perhaps with another definition, should process new rows, not leftovers of the old ones.
        """
        if isinstance(element, Barrier | CancelMarker):
            final = isinstance(element, Barrier) and element.final
            return 0 if final and not self.chain.settled else ROWS_MAX
        return self.chain.room

    def _process(self, inputs: InputGate, edge: int, batch: Batch) -> None:
        """Processes a batch from an edge; parts without room are processed next."""
        left = self.chain.process(inputs.ports[edge], batch, inputs.nodes[edge])
        if left:
            inputs.put_back(edge, left)

    def _on_event_time(self, inputs: InputGate, channel: int, control: TimeElement) -> None:
        """Passes event time to the head when the inputs together have advanced or become idle (W19)."""
        for each in inputs.on_event_time(channel, control):
            if isinstance(each, StillIdle):
                self._questions.confirm()
            else:
                self.chain.pass_to_head(each)
        inputs.ask()

    def _on_caught_up(self, inputs: InputGate, channel: int) -> None:
        """Reports an input that opens a gate, and passes the marker to the head once all inputs have caught up."""
        port = inputs.on_caught_up(channel)
        if port is not None:
            self._host.caught_up(self, port)
        if inputs.caught_up:
            self.chain.pass_to_head(CatchUpMarker())

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def trigger(self, barrier: Barrier) -> None:
        """Injects a barrier at a source (F05). No rows follow a final one, but another final one may.

        A source whose vertex also takes replayed dead letters gets the barrier behind their rows, from the source of
        these rows in the same slot, which is triggered in the same call.
        """
        source = self.chain.source
        if source is not None and not barrier.final and source.release():
            self._poll_source()  # one batch at a low rate: its results are not visible before the next checkpoint
        self.source_stopped = self.source_stopped or barrier.final
        if self.source_stopped:
            self.chain.stop_source()
        if self.inputs is not None and self.chain.source is not None:
            return
        if barrier.final and not self.chain.settled:
            self._final = barrier
            return
        self._inject(barrier)

    def _inject(self, barrier: Barrier) -> None:
        self._final = None
        self._checkpoint(Notify(barrier, 0, start_delay_ms(barrier, self._host.now_ms())))

    def stored(self, state: StateId, checkpoint: CheckpointId, files: Sequence[StateHandle]) -> None:
        """Handles a state of this subtask that has become durable."""
        self.chain.states[state].stored(checkpoint, files)

    def complete(self, checkpoint: CheckpointId, released: frozenset[TransactionalId]) -> None:
        """Handles the coordinator's notice of completion; `released` as in Completed."""
        self.chain.complete(checkpoint, released)

    def abandon(self, checkpoint: CheckpointId) -> None:
        """Discards a checkpoint that the coordinator has aborted."""
        if self._final is not None and self._final.checkpoint == checkpoint:
            self._final = None
        self._recordings.forget(checkpoint)
        for state in self.chain.states.values():
            state.abandoned(checkpoint)
        if self.inputs is not None:
            self._carry_out(self.inputs.handler.on_abandoned(checkpoint))
        for sink in self.chain.sinks.values():
            sink.aborted(checkpoint)

    def _on_arrival(self, inputs: InputGate, channel: int, element: Batch | CheckpointControl) -> None:
        """Handles an arrival in a channel; an unaligned barrier acts before it is consumed (B43, B47)."""
        if isinstance(element, Batch):
            for checkpoint in inputs.handler.recording(channel):
                self._recordings.arrived(checkpoint, channel, element)
        else:
            self._carry_out(inputs.handler.on_arrival(channel, element, self._host.now_ms()))

    def _carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Notify):
                self._checkpoint(action)
            elif isinstance(action, Abort):
                self._give_up(action)
            elif isinstance(action, BarriersReceived):
                self._recordings.aligned(action.checkpoint, action.alignment_ms)

    def _give_up(self, abort: Abort) -> None:
        self._recordings.forget(abort.checkpoint)
        self._host.decline(self.subtask, abort.checkpoint, abort.reason)
        self.chain.broadcast(CancelMarker(abort.checkpoint))

    def _checkpoint(self, notify: Notify) -> None:
        """Takes the checkpoint: the single step of C33."""
        started = self._host.elapsed_ms()
        barrier, checkpoint = notify.barrier, notify.barrier.checkpoint
        self.chain.broadcast(barrier)
        captures = self.chain.capture(checkpoint, full=barrier.savepoint)
        self.chain.prepare(checkpoint, final=barrier.final)
        inflight = barrier.unaligned_after_ms is not None
        if inflight:
            self._record(notify)
        snapshot_ms = self._host.elapsed_ms() - started
        self._host.begin_snapshot(self, notify, captures, snapshot_ms, inflight=inflight)
        self._recordings.settle()

    def _record(self, notify: Notify) -> None:
        """Records what is in flight now and what may still be overtaken.

        The barrier of an alignment that ended in time overtakes nothing here, but may do so in an output.
        """
        if self.inputs is None:
            recording = Recording((), {})
        else:
            recording = Recording(self.inputs.replay, self.inputs.inflight(notify.barrier))
        self._recordings.begin(notify.barrier.checkpoint, recording, notify.alignment_ms)
