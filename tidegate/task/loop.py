"""The slot loop: one thread, one loop, no locks. The whole data path of a slot can be read here.

A turn gives every subtask one step, downstream first, so that room is made before new rows arrive. Then the sinks pass
rows to their clients, and finished snapshots are acknowledged. Nothing in a turn blocks or sleeps. When `turn` returns
False, the caller waits for an event (a control message, a frame, a record, a finished upload) and calls again. The
caller owns sockets, threads and the clock (`tidegate.slot.worker`); the loop owns all state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from tidegate.clock import describe_stamp
from tidegate.coordinator.types import Decline, StateHandle, StateKind
from tidegate.errors import AttemptFailed
from tidegate.formats.failures import BadRecordPolicy, FailureKind, RecordFailure, RecordPlace
from tidegate.ids import Attempt, CheckpointId, OperatorName, SourceTopic, StateId, StateName, SubtaskId
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.event_time import TIMER
from tidegate.operators.spec import Operator as PlanOperator
from tidegate.task.bad_records import DeadLetterCount, FatalRecords
from tidegate.task.barriers.handler import AbortReason, Notify
from tidegate.task.inflight import EdgeShape, Recording
from tidegate.task.messages import (
    Abandoned,
    Acknowledged,
    AddPartitions,
    Completed,
    Declined,
    EndTap,
    HoldSources,
    InputCaughtUp,
    SlotMessage,
    SourceFinished,
    TapRows,
    Trigger,
)
from tidegate.task.ports import Encode, Sink, StateCapture
from tidegate.task.snapshot import PendingSnapshot, kind_of
from tidegate.task.tap import RowTap
from tidegate.task.vertex import VertexTask

if TYPE_CHECKING:
    import polars as pl

logger = logging.getLogger(__name__)


class LoopClock(Protocol):
    """The clock, injected."""

    def now_ms(self) -> int:
        """Returns ms since 1970: the wall clock at the start of the slot, advanced monotonically."""

    def elapsed_ms(self) -> float:
        """Returns a time that never goes back, for durations."""


class UploadJob(msgspec.Struct, frozen=True):
    """The asynchronous part of a snapshot: runs `encode`, makes the files durable, and is answered with an Uploaded."""

    subtask: SubtaskId
    checkpoint: CheckpointId
    operator: OperatorName
    encode: Encode
    kind: StateKind = StateKind.OPERATOR
    edges: tuple[str, ...] = ()
    """As in StateHandle."""
    increment: bool = False
    state: StateName = StateName("")
    """As in StateHandle."""


class Uploaded(msgspec.Struct, frozen=True):
    """Result of an UploadJob: at least one file, or an error text."""

    subtask: SubtaskId
    checkpoint: CheckpointId
    handles: tuple[StateHandle, ...]
    error: str
    upload_ms: float


class Counters:
    """Cumulative counts of this attempt; the control thread reads them for reports."""

    def __init__(self) -> None:
        self.bad_records: dict[tuple[OperatorName, FailureKind], int] = {}
        self.dead_letters: dict[tuple[OperatorName, FailureKind], int] = {}
        """The bad records for which dead letters are written."""
        self.busy_ms = 0.0
        self.backpressured_ms = 0.0
        self.idle_ms = 0.0


class SlotLoop:
    """The loop over all subtasks of a slot. `tasks` are in topological order; `send` and `submit` must not block."""

    def __init__(
        self,
        pipeline: str,
        attempt: Attempt,
        clock: LoopClock,
        send: Callable[[SlotMessage], None],
        submit: Callable[[UploadJob], None],
        on_bad_records: Callable[[BadRecordPolicy, str, int], None],
    ) -> None:
        self.tasks: list[VertexTask] = []
        self.begun = True
        """False while other slots are still being deployed: no data moves."""
        self.counters = Counters()
        self.origins: Mapping[OperatorName, Sequence[SourceTopic]] = {}
        """Topics upstream of each operator, for messages about a record."""
        self.shapes: Mapping[int, EdgeShape] = {}
        """Keyed edges by index: those that may have rows in flight at a checkpoint."""
        self.letters = DeadLetterCount(None)
        """Dead letters of the last minute."""
        self._pipeline = pipeline
        self._attempt = attempt
        self._triggered = CheckpointId(0)
        self._clock = clock
        self._send = send
        self._submit = submit
        self._on_bad_records = on_bad_records
        self.elapsed_ms = clock.elapsed_ms
        """The clock's function itself, not a method around it: it is called several times a batch."""
        self._pending: dict[tuple[SubtaskId, CheckpointId], PendingSnapshot] = {}
        self._finished: set[OperatorName] = set()
        self._fatal = FatalRecords()

    # -- what the loop is asked from outside ---------------------------------------------------------------------

    def on_trigger(self, trigger: Trigger) -> None:
        """Injects the barrier at every source of this slot; ignores a trigger that is not the next one (C37, C40)."""
        checkpoint, refusal = trigger.barrier.checkpoint, self._find_refusal(trigger)
        if refusal:
            logger.warning("trigger of checkpoint %d is ignored: %s", checkpoint, refusal)
            return
        self._triggered = checkpoint
        for task in self.tasks:
            if task.chain.source is not None:
                task.trigger(trigger.barrier)

    def on_completed(self, completed: Completed) -> None:
        """Handles the coordinator's notice of phase four (C01): sinks may forget confirmed transactions."""
        if completed.attempt != self._attempt:
            return
        for task in self.tasks:
            task.complete(completed.checkpoint, completed.released)

    def on_abandoned(self, abandoned: Abandoned) -> tuple[StateHandle, ...]:
        """Stops waiting for an aborted checkpoint. Returns the state made durable for it that no ack has reported
        (F27).
        """
        if abandoned.attempt != self._attempt:
            return ()
        gathered: list[StateHandle] = []
        for task in self.tasks:
            task.abandon(abandoned.checkpoint)
            pending = self._pending.pop((task.subtask, abandoned.checkpoint), None)
            gathered += pending.states if pending is not None else ()
        return tuple(gathered)

    def on_partitions(self, order: AddPartitions) -> None:
        """Adds new partitions to a source; the next barrier's positions include them."""
        if order.attempt != self._attempt:
            return
        for task in self.tasks:
            source = task.chain.source
            if source is not None and task.vertex.nodes[0].operator.name == order.source:
                source.add_partitions(order.partitions)

    def on_hold(self, order: HoldSources) -> None:
        """Applies the coordinator's decision about which sources read (`coordinator/gating.py`)."""
        if order.attempt != self._attempt:
            return
        for task in self.tasks:
            task.on_hold = task.vertex.nodes[0].operator.name in order.sources

    def on_tap(self, order: TapRows) -> None:
        """Begins to copy rows of the outputs in question."""
        tap, tasks = RowTap(order, self._send), {task.vertex.id: task for task in self.tasks}
        for point in order.points:
            tasks[point.vertex].chain.tap(order.tap, point, tap.take)

    def on_tap_end(self, order: EndTap) -> None:
        """Ends a tap."""
        for task in self.tasks:
            task.chain.end_tap(order.tap)

    def on_uploaded(self, uploaded: Uploaded) -> None:
        """Handles the end of a background upload; a failed one declines its checkpoint."""
        pending = self._pending.get((uploaded.subtask, uploaded.checkpoint))
        if pending is None:
            return
        if not uploaded.handles:
            if pending.given_up:
                return
            pending.give_up()
            self._decline(uploaded.subtask, uploaded.checkpoint, AbortReason.SNAPSHOT_FAILED, uploaded.error)
            return
        pending.uploaded(uploaded.handles, uploaded.upload_ms)
        first = uploaded.handles[0]
        if not first.in_flight:
            task = next(task for task in self.tasks if task.subtask == uploaded.subtask)
            task.stored(StateId(first.operator, first.state), uploaded.checkpoint, uploaded.handles)
        self._acknowledge(uploaded.subtask, pending)

    def _find_refusal(self, trigger: Trigger) -> str:
        """Returns why this slot must ignore a trigger; empty if it must not."""
        if trigger.pipeline != self._pipeline:
            return f"it is of pipeline {trigger.pipeline}, and this slot works for {self._pipeline}"
        if trigger.attempt != self._attempt:
            return f"it is of attempt {trigger.attempt}, and this is attempt {self._attempt}"
        if trigger.barrier.checkpoint <= self._triggered:
            return f"checkpoint {self._triggered} was triggered before it, and ids only grow"
        return ""

    # -- the turn --------------------------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Gives every subtask one step; returns True if anything moved."""
        if not self.begun:
            return False
        started = self._clock.elapsed_ms()
        progressed = False
        for task in reversed(self.tasks):
            progressed |= task.turn()
            self._fatal.raise_first()  # before a sink passes on what came after the record
        for task in self.tasks:
            for index, sink in task.chain.sinks.items():
                progressed |= self._turn_sink(task, index, sink)
                for prepared in sink.poll_prepared():
                    pending = self._pending.get((task.subtask, prepared.checkpoint))
                    if pending is None:
                        continue
                    name = task.vertex.nodes[index].operator.name
                    self._check_order(task.subtask, name, prepared.checkpoint)
                    # A later interval may already be prepared; its rows come after this barrier and are excluded.
                    earlier = [c for c in sink.unconfirmed() if c.checkpoint <= prepared.checkpoint]
                    committables = (*earlier, *prepared.committables)
                    pending.prepared(name, committables, prepared.prepare_ms)
                    self._acknowledge(task.subtask, pending)
        self._report_finished()
        if progressed:
            self.counters.busy_ms += self._clock.elapsed_ms() - started
        return progressed

    def _turn_sink(self, task: VertexTask, node: int, sink: Sink) -> bool:
        meter = task.chain.meter
        meter.begin()
        moved = sink.turn()
        if moved:
            meter.spent(node)
        return moved

    def _check_order(self, subtask: SubtaskId, sink: OperatorName, checkpoint: CheckpointId) -> None:
        """Raises AttemptFailed if an older prepare is outstanding: the older checkpoint would lack its transaction."""
        for (other, older), pending in self._pending.items():
            if other == subtask and older < checkpoint and pending.waits_for(sink):
                raise AttemptFailed(f"sink {sink} answered checkpoint {checkpoint} before checkpoint {older}")

    def waited(self, waited_ms: float) -> None:
        """Accounts for a wait after a turn that moved nothing: as backpressure if a subtask has no room, otherwise as
        idle.
        """
        blocked = [task for task in self.tasks if not task.chain.room]
        for task in blocked:
            task.chain.meter.blocked(waited_ms)
        if blocked:
            self.counters.backpressured_ms += waited_ms
        else:
            self.counters.idle_ms += waited_ms

    def _report_finished(self) -> None:
        for task in self.tasks:
            name = task.vertex.nodes[0].operator.name
            if name not in self._finished and task.finished:
                self._finished.add(name)
                self._send(SourceFinished(name))

    @property
    def next_deadline_ms(self) -> int | None:
        """When `turn` next has work even if no event occurs, ms since 1970; None while nothing is scheduled."""
        deadlines = [task.next_deadline_ms for task in self.tasks]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    # -- Host of the subtasks --------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Returns the time in ms since 1970."""
        return self._clock.now_ms()

    def begin_snapshot(
        self,
        task: VertexTask,
        notify: Notify,
        captures: Mapping[StateId, StateCapture],
        snapshot_ms: float,
        *,
        inflight: bool,
    ) -> None:
        """Starts waiting for the asynchronous parts of a snapshot. Raises BadRecord first: no checkpoint may contain
        one that stops the pipeline.
        """
        self._fatal.raise_first()
        checkpoint = notify.barrier.checkpoint
        sinks = frozenset(task.vertex.nodes[index].operator.name for index in task.chain.sinks)
        positions = () if task.chain.source is None else (task.chain.source.positions(),)
        pending = PendingSnapshot(
            self._attempt, task.subtask, notify, positions, captures, sinks, snapshot_ms, inflight=inflight
        )
        self._pending[task.subtask, checkpoint] = pending
        for one, capture in captures.items():
            if capture.encode is not None:
                self._submit(
                    UploadJob(
                        subtask=task.subtask,
                        checkpoint=checkpoint,
                        operator=one.operator,
                        encode=capture.encode,
                        kind=kind_of(capture),
                        increment=capture.increment and capture.keyed,
                        state=one.name,
                    )
                )
        self._acknowledge(task.subtask, pending)

    def end_recording(self, task: VertexTask, checkpoint: CheckpointId, recording: Recording) -> None:
        """Uploads the rows in flight."""
        pending = self._pending.get((task.subtask, checkpoint))
        if pending is None:
            return  # another part of the snapshot has failed meanwhile
        name = task.vertex.nodes[0].operator.name
        captures = recording.captures(self.shapes)
        rows = {capture.kind: capture.rows for capture in captures}
        pending.inflight_known(name, rows, recording.alignment_ms or 0)
        for capture in captures:
            self._submit(UploadJob(task.subtask, checkpoint, name, capture.files, capture.kind, capture.edges))
        self._acknowledge(task.subtask, pending)

    def caught_up(self, task: VertexTask, port: int) -> None:
        """Reports to the coordinator that an input that opens a gate has caught up."""
        self._send(InputCaughtUp(task.vertex.id, port))

    def decline(self, subtask: SubtaskId, checkpoint: CheckpointId, reason: AbortReason) -> None:
        """Declines a checkpoint. Files already uploaded for it are kept until the coordinator answers by
        aborting it.
        """
        pending = self._pending.get((subtask, checkpoint))
        if pending is not None:
            pending.give_up()
        self._decline(subtask, checkpoint, reason, "")

    def failed_records(
        self, operator: PlanOperator, frame: pl.DataFrame, failures: Sequence[RecordFailure], port: int | None = 0
    ) -> pl.DataFrame | None:
        """Counts failed rows or stops the pipeline, and returns the dead letters to write.

        Rows carry their source partition and offset wherever an operator can fail (plan.build). The exceptions are
        results, and rows in flight from a checkpoint of an older definition in which no later step could fail.
        """
        place = f"{'sink' if isinstance(operator, SinkOperator) else 'step'} {operator.name}"
        origins, policy = self.origins.get(operator.name, ()), operator.bad_records_of(port or 0)
        for failure in failures:
            topic = _topic_of(frame, failure.row) or " or ".join(map(str, origins)) or "its source"
            found = _place_of(frame, failure.row, topic)
            told = _describe_result(frame, failure.row) if found is None else _describe_place(found)
            where = f"{place}: record of {topic}, {told}"
            self.bad_record(operator.name, policy, found, where, failure)
        if policy is not BadRecordPolicy.DEAD_LETTER:
            return None
        from tidegate.formats.dead_letters.frames import dead_letters_of_rows

        return dead_letters_of_rows(operator.name, origins, frame, failures, port)

    def bad_record(
        self,
        operator: OperatorName,
        policy: BadRecordPolicy,
        place: RecordPlace | None,
        where: str,
        failure: RecordFailure,
    ) -> None:
        """Counts a bad record by kind, or stops the pipeline once its batch has passed through the vertex."""
        if policy is BadRecordPolicy.FAIL:
            self._fatal.add(place, where, failure)
            return
        key = (operator, failure.kind)
        count = self.counters.bad_records[key] = self.counters.bad_records.get(key, 0) + 1
        if policy is BadRecordPolicy.DEAD_LETTER:
            self.counters.dead_letters[key] = self.counters.dead_letters.get(key, 0) + 1
            self.letters.add(operator, failure.kind, self.elapsed_ms())
        self._on_bad_records(policy, f"{where}: {failure}", count)

    def _decline(self, subtask: SubtaskId, checkpoint: CheckpointId, reason: AbortReason, detail: str) -> None:
        self._send(Declined(Decline(self._attempt, checkpoint, subtask, reason, detail)))

    def _acknowledge(self, subtask: SubtaskId, pending: PendingSnapshot) -> None:
        if pending.done:
            self._pending.pop((subtask, pending.barrier.checkpoint), None)
            self._send(Acknowledged(pending.ack()))


def _topic_of(frame: pl.DataFrame, row: int) -> str | None:
    """Returns the row's topic if rows carry it, as those of a source with several topics do."""
    topic = frame["__tidegate_topic"][row] if "__tidegate_topic" in frame.columns else None
    cluster = frame["__tidegate_cluster"][row] if "__tidegate_cluster" in frame.columns else None
    return topic if topic is None or cluster is None else str(SourceTopic(cluster, topic))


def _place_of(frame: pl.DataFrame, row: int, topic: str) -> RecordPlace | None:
    if "__tidegate_partition" not in frame.columns or "__tidegate_offset" not in frame.columns:
        return None
    return RecordPlace(topic, frame["__tidegate_partition"][row], frame["__tidegate_offset"][row])


def _describe_place(place: RecordPlace) -> str:
    return f"partition {place.partition}, offset {place.offset}"


def _describe_result(frame: pl.DataFrame, row: int) -> str:
    if TIMER in frame.columns:
        return f"the timer `{frame[TIMER][row]}` of a key"
    if "window_end" in frame.columns:
        return f"a result of several records: the window that ends at {_moment_of(frame['window_end'], row)}"
    return (
        "partition and offset unknown (the row is a result of several records, or was in flight in a checkpoint of "
        "the pipeline's former definition)"
    )


def _moment_of(column: pl.Series, row: int) -> object:
    """Returns the timestamp even if Python has no such year, which may be the cause of the failure."""
    if column.dtype.is_temporal() and column[row : row + 1].null_count() == 0:
        return describe_stamp(column[row : row + 1].dt.epoch("ms").item())
    return column[row]
