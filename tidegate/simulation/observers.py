"""Parts of the product that report what they do.

They change nothing: they count, and they report what must never happen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from tidegate.coordinator.coordinator import Coordinator
from tidegate.coordinator.events import (
    AckRefused,
    AttemptEnded,
    CheckpointFailure,
    DeclineReceived,
    Event,
    Instruction,
    NotifyAborted,
    NotifyCompleted,
)
from tidegate.coordinator.history import CheckpointHistory
from tidegate.coordinator.recovery import Chosen, Offsets, RestorePlan
from tidegate.coordinator.triggers import CheckpointPolicy
from tidegate.coordinator.types import Job
from tidegate.daemon.metrics import TransactionResult
from tidegate.daemon.status import PipelineState
from tidegate.ids import Attempt, CheckpointId, ClusterName, SubtaskId
from tidegate.journal.journal import Appended, Journal
from tidegate.simulation.given_up import GivenUp
from tidegate.simulation.reach import ReachTable
from tidegate.task.barriers.aligner import Aligner
from tidegate.task.barriers.alternating import Alternating
from tidegate.task.barriers.handler import AbortReason, Action, BarrierHandler
from tidegate.task.barriers.tracker import Tracker
from tidegate.task.channels import QUEUE_BYTES_MAX, InputChannel, RemoteOutput
from tidegate.task.elements import CancelMarker, CheckpointControl, Control, Element
from tidegate.task.loop import SlotLoop, Uploaded

if TYPE_CHECKING:
    from tidegate.simulation.world import World
    from tidegate.task.outputs import EdgeOutput

RECENT_MAX: Final = 3
"""Decided checkpoints that a coordinator remembers; few, so that acknowledgements can arrive too late."""


class WatchedCoordinator(Coordinator):
    """A coordinator that counts declines and refused acknowledgements, and reports cancellations that went missing."""

    def __init__(self, settings: CheckpointPolicy, job: Job, world: World) -> None:
        super().__init__(settings, job, RECENT_MAX)
        self._world = world

    @override
    def handle(self, event: Event, wall_offset_ms: int = 0) -> tuple[Instruction, ...]:
        if isinstance(event, DeclineReceived):
            self._world.reach.note(f"declines: {AbortReason(event.decline.reason).name.lower()}")
        instructions = super().handle(event, wall_offset_ms)
        for instruction in instructions:
            self._look_at(instruction)
        return instructions

    def _look_at(self, instruction: Instruction) -> None:
        world = self._world
        match instruction:
            case AckRefused():
                world.reach.note(f"acks: {instruction.outcome.name.lower()}")
            case NotifyAborted(attempt=attempt, checkpoint=checkpoint, reason=CheckpointFailure.EXPIRED):
                world.problems += world.given_up.check_expired(
                    attempt, checkpoint, world.kernel.now, world.faults.fired
                )
            case NotifyCompleted(attempt=attempt, checkpoint=completed):
                world.problems += world.given_up.check_completed(attempt, completed.id)


class WatchedJournal(Journal):
    """A journal that notes lost input.

    Input skipped between two attempts is noted even if no attempt ever begins with that entry.
    """

    def __init__(self, world: World, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._world = world

    @override
    def append_restored(self, plan: RestorePlan, chosen: Chosen, at_ms: int) -> Appended:
        if plan.checkpoint is not None:
            self._world.account.note_lost(plan.checkpoint)
        appended = super().append_restored(plan, chosen, at_ms)
        self._world.account.note_lost(chosen.checkpoint)
        return appended


class WatchedMetrics:
    """Metrics that accept every value, count rare events, and keep the pipeline state."""

    def __init__(self, world: World) -> None:
        self.current_state = (PipelineState.STARTING, "")
        self._world = world
        self._history = CheckpointHistory()

    def coordinator_answered(self, event: Event, instructions: Sequence[Instruction]) -> None:
        """Observes the history, which must be consistent after every event."""
        self._history.observe(event, instructions)
        if isinstance(event, AttemptEnded) and self._history.summarise(()).under_way:
            self._world.problems.append("the history has checkpoints under way although their attempt has ended")

    def state(self, state: PipelineState, reason: str = "") -> None:
        """Keeps the pipeline state."""
        self.current_state = (state, reason)

    def checkpoint_failed(self, reason: str) -> None:
        """Counts a failed checkpoint.

        A correct slot never builds on state that has been removed; the coordinator would only detect another part's
        mistake.
        """
        failure = CheckpointFailure(reason)
        self._world.reach.note(f"checkpoints given up: {failure.name.lower()}")
        if failure is CheckpointFailure.STATE_GONE:
            self._world.problems.append("a checkpoint builds on state files that no retained checkpoint lists")

    def transactions_ended(self, result: TransactionResult, count: int) -> None:
        """Counts ended transactions, except aborted ones: every end of an attempt aborts some."""
        if result is not TransactionResult.ABORTED:
            self._world.reach.note(f"transactions: {result.value}", max(1, count))

    def reached(self, _cluster: ClusterName) -> Offsets:
        """Returns nothing. The offsets are only metrics, and the positions of checkpoints serve as well."""
        return {}

    def marker_written(self, _cluster: ClusterName, end: str) -> None:
        """Counts a missing marker that was written."""
        self._world.reach.note(f"missing markers written: {end}")

    def __getattr__(self, _name: str) -> Any:
        return _ignore


def _ignore(*_values: object, **_named: object) -> None:
    return


class WatchedOutput(RemoteOutput):
    """An output that counts credits."""

    def __init__(self, reach: ReachTable, edge: int, credit_bytes: int) -> None:
        super().__init__(edge, credit_bytes, min(credit_bytes, QUEUE_BYTES_MAX))
        self._reach = reach

    @override
    def grant(self, credit: int) -> None:
        self._reach.note("credits granted")
        if self._credit <= 0 < len(self._queue):
            self._reach.note("credits granted to a sender that waits")
        super().grant(credit)


class WatchedInput(InputChannel):
    """An input that notes cancellation markers."""

    def __init__(self, given_up: GivenUp, attempt: Attempt, edge: int, credit_bytes: int) -> None:
        super().__init__(edge, credit_bytes)
        self._given_up = given_up
        self._attempt = attempt

    @override
    def push(self, element: Element) -> None:
        if isinstance(element, CancelMarker):
            self._given_up.marker_arrived(self._attempt, element.checkpoint, self.edge)
        super().push(element)


def watch_loop(world: World, attempt: Attempt, loop: SlotLoop) -> None:
    """Watches a slot's loop: notes checkpoints that subtasks give up, and counts what barrier handlers receive."""
    decline, take_upload = loop.decline, loop.on_uploaded
    edges = {task.subtask: tuple(task.chain.outputs) for task in loop.tasks}

    def on_decline(subtask: SubtaskId, checkpoint: CheckpointId, reason: AbortReason) -> None:
        world.given_up.declined(attempt, subtask, checkpoint, world.kernel.now, edges[subtask])
        decline(subtask, checkpoint, reason)

    def on_uploaded(uploaded: Uploaded) -> None:
        if not uploaded.handles:
            world.given_up.given_up(attempt, uploaded.checkpoint, world.kernel.now)
        take_upload(uploaded)

    loop.decline = on_decline  # type: ignore[method-assign]  # only for this loop
    loop.on_uploaded = on_uploaded  # type: ignore[method-assign]  # only for this loop
    for task in loop.tasks:
        for edge, output in task.chain.outputs.items():
            watch_output(world, attempt, task.subtask, edge, output)
        if task.inputs is not None:
            watch_handler(world.reach, task.inputs.handler)


def note_waiting(reach: ReachTable, loop: SlotLoop, when: str) -> None:
    """Counts slots in which a join or lookup holds rows, by the gauges of the runtimes."""
    gauges = Counter[str]()
    for task in loop.tasks:
        for operator in task.chain.operators.values():
            gauges.update(operator.gauges)
    reach.note(f"slots {when} with rows of joins", int(bool(gauges["left_rows"] or gauges["right_rows"])))
    reach.note(f"slots {when} with rows that wait", int(bool(gauges["waiting_rows"])))
    reach.note(f"slots {when} with timers of keys", int(bool(gauges["timers"])))
    reach.note(f"slots {when} with rows of tables", int(bool(gauges["table_rows"])))
    reach.note(f"slots {when} with sources on hold", int(any(task.on_hold for task in loop.tasks)))


def watch_output(world: World, attempt: Attempt, subtask: SubtaskId, edge: int, output: EdgeOutput) -> None:
    """Notes the cancellations that an output sends. A subtask must send them before anything else."""
    broadcast = output.broadcast

    def on_broadcast(control: Control) -> None:
        if isinstance(control, CancelMarker):
            world.given_up.marker_sent(attempt, subtask, control.checkpoint, edge)
        else:
            world.problems += world.given_up.check_sent(attempt, subtask)
        broadcast(control)

    output.broadcast = on_broadcast  # type: ignore[method-assign]  # only for this output


def watch_handler(reach: ReachTable, handler: BarrierHandler) -> None:
    """Counts the cancellations that a barrier handler receives, by its state."""
    if handler.watches_arrivals:
        arrival = handler.on_arrival

        def on_arrival(channel: int, control: CheckpointControl, now_ms: int) -> list[Action]:
            if isinstance(control, CancelMarker):
                reach.note(f"cancellations: {_derive_state(handler, control.checkpoint)}")
            return arrival(channel, control, now_ms)

        handler.on_arrival = on_arrival  # type: ignore[method-assign]  # only for this handler
    else:
        cancel = handler.on_cancel

        def on_cancel(channel: int, checkpoint: CheckpointId) -> list[Action]:
            reach.note(f"cancellations: {_derive_state(handler, checkpoint)}")
            return cancel(channel, checkpoint)

        handler.on_cancel = on_cancel  # type: ignore[method-assign]  # only for this handler


def _derive_state(handler: BarrierHandler, checkpoint: CheckpointId) -> str:
    match handler:
        case Aligner():
            if checkpoint > handler.current:
                return "an aligner that aligns an older checkpoint" if handler.aligning else "an aligner at rest"
            return "an aligner that aligns it" if handler.aligning else "an aligner that has done with it"
        case Tracker():
            if checkpoint > handler.latest:
                return "a tracker that has seen nothing of it"
            return "a tracker that counts it" if checkpoint in handler._pending else "a tracker that has done with it"  # noqa: SLF001 - only observed
        case Alternating():
            if checkpoint > handler.newest:
                return "an alternating handler that has seen nothing of it"
            if checkpoint in handler._waiting:  # noqa: SLF001 - only observed
                return "an alternating handler where it waits"
            tracked = checkpoint in handler._unaligner  # noqa: SLF001 - only observed
            return f"an alternating handler that {'has it overtaking' if tracked else 'has done with it'}"
    raise TypeError(f"{type(handler).__name__} is not watched")
