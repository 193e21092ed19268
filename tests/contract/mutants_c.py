"""The coordinator, C01-C41: at least one mutant per line, at its place in production code."""

from __future__ import annotations

from typing import Final

from tests.contract.planting import Mutant

COORDINATOR: Final = "coordinator.coordinator:Coordinator"
PENDING: Final = "coordinator.pending:PendingCheckpoint"
REFUSAL: Final = "coordinator.triggers:decide_refusal"
JOURNAL: Final = "journal.journal:Journal"
DECISIONS: Final = "daemon.instructions:InstructionExecutor"
LOOP: Final = "task.loop:SlotLoop"
VERTEX: Final = "task.vertex:VertexTask"

BARRIER_FIRST: Final = """\
    self.chain.broadcast(barrier)
"""
CAPTURE: Final = """\
    captures = self.chain.capture(checkpoint, full=barrier.savepoint)
"""

LIFE: Final = (
    Mutant(
        "C01",
        f"{DECISIONS}._completed",
        "self._send_all(Completed(notice.attempt, checkpoint.id, notice.released))",
        "pass",
    ),
    Mutant(
        "C02",
        f"{COORDINATOR}._trigger",
        "self._pending[checkpoint] = PendingCheckpoint(",
        "self._pending.clear()\n    self._pending[checkpoint] = PendingCheckpoint(",
    ),
    Mutant("C03", f"{PENDING}.complete", "states=self.handles", "states=()"),
)

TRIGGERS: Final = (
    Mutant(
        "C04", REFUSAL, "(facts.phase not in ACTIVE, TriggerRefusal.SHUT_DOWN)", "(False, TriggerRefusal.SHUT_DOWN)"
    ),
    Mutant(
        "C05",
        REFUSAL,
        "(facts.phase is AttemptPhase.FINISHING, TriggerRefusal.PERIODIC_OFF)",
        "(False, TriggerRefusal.PERIODIC_OFF)",
    ),
    Mutant("C06", REFUSAL, "(not properties.forced and is_crowded(", "(False and is_crowded("),
    Mutant("C07", REFUSAL, "(properties.periodic and now_ms < earliest_ms,", "(False,"),
    Mutant("C08", REFUSAL, "(not facts.sources_running,", "(False,"),
    Mutant("C09", REFUSAL, "(not facts.all_running,", "(False,"),
    Mutant("C10", REFUSAL, "(facts.next_id + kept_back > facts.reserved_to,", "(False,"),
    Mutant(
        "C10", f"{JOURNAL}.take_over", "CheckpointId(max(state.reserved_to, above.checkpoint) + 1)", "CheckpointId(1)"
    ),
    Mutant("C11", f"{COORDINATOR}._trigger", "self._pending[checkpoint] = PendingCheckpoint(", "PendingCheckpoint("),
    Mutant("C12", f"{LOOP}.on_trigger", "if task.chain.source is not None:", "if True:"),
    Mutant("C12", f"{LOOP}.on_completed", "for task in self.tasks:", "for task in self.tasks[:1]:"),
    Mutant("C13", f"{COORDINATOR}._expire", "if now_ms >= self._timeouts.expiry_ms(p)", "if False"),
    Mutant("C14", f"{COORDINATOR}._give_up", "del self._pending[pending.id]", "pass"),
    Mutant("C15", "coordinator.events:TriggerRequested.properties", "return SAVEPOINT", "return ORDERED"),
    Mutant("C15", "coordinator.events:CheckpointProperties.periodic", "not (self.forced or self.ordered)", "True"),
    Mutant("C16", "coordinator.events:CheckpointProperties.aligned", "self.savepoint or self.final", "self.final"),
    Mutant("C38", REFUSAL, "properties.periodic and now_ms < earliest_ms", "now_ms < earliest_ms"),
    Mutant("C38", REFUSAL, "(not properties.forced and is_crowded(", "(properties.periodic and is_crowded("),
    Mutant("C40", f"{LOOP}._find_refusal", "if trigger.pipeline != self._pipeline:", "if False:"),
    Mutant("C40", f"{LOOP}._find_refusal", "if trigger.barrier.checkpoint <= self._triggered:", "if False:"),
    Mutant("C40", f"{DECISIONS}._trigger", "Trigger(self._pipeline,", 'Trigger("",'),
    Mutant("C41", f"{DECISIONS}._trigger", "if unreached:", "if False:"),
)

ACKS: Final = (
    Mutant("C17", f"{COORDINATOR}._on_journaled", "CheckpointFailure.SUBSUMED", "CheckpointFailure.EXPIRED"),
    Mutant("C18", f"{PENDING}.acknowledge", "if not self.waiting:", "if False:"),
    Mutant("C19", f"{PENDING}.acknowledge", "if ack.subtask in self.acks:", "if False:"),
    Mutant(
        "C20",
        f"{COORDINATOR}._on_ack",
        "outcome is not AckOutcome.DUPLICATE",
        "outcome not in {AckOutcome.DUPLICATE, AckOutcome.UNKNOWN}",
    ),
    Mutant(
        "C21",
        f"{COORDINATOR}._on_ack",
        "outcome is not AckOutcome.DUPLICATE",
        "outcome not in {AckOutcome.DUPLICATE, AckOutcome.DISCARDED}",
    ),
    Mutant("C22", f"{COORDINATOR}._acknowledge", "if pending.phase is PendingPhase.DISCARDED:", "if False:"),
    Mutant(
        "C23",
        f"{COORDINATOR}._on_ack",
        "outcome is not AckOutcome.DUPLICATE",
        "outcome not in {AckOutcome.DUPLICATE, AckOutcome.LATE}",
    ),
    Mutant(
        "C27",
        f"{PENDING}.acknowledge",
        "per_subtask[ack.subtask] = (*per_subtask.get(ack.subtask, ()), handle)",
        "pass",
    ),
    Mutant("C28", f"{PENDING}.acknowledge", "for handle in ack.states:", "for handle in ack.states[:1]:"),
    Mutant("C36", "task.snapshot:PendingSnapshot.ack", "states=(*self._builds_on, *self._states)", "states=()"),
    Mutant("C37", f"{LOOP}._find_refusal", "if trigger.attempt != self._attempt:", "if False:"),
    Mutant("C37", f"{COORDINATOR}._acknowledge", "if ack.attempt != self._job.attempt:", "if False:"),
)

COMPLETION: Final = (
    Mutant("C24", f"{COORDINATOR}._on_journaled", "if p.id < pending.id and", "if False and"),
    Mutant(
        "C25",
        f"{COORDINATOR}.handle",
        "self._run_timer(event.now_ms)",
        "isinstance(event, Tick) and self._run_timer(event.now_ms)",
    ),
    Mutant("C26", f"{COORDINATOR}._start_append", "if pending.properties.savepoint:", "if False:"),
    Mutant("C26", "coordinator.events:CheckpointProperties.subsumed", "not self.savepoint", "True"),
    Mutant(
        "C29",
        "journal.savepoint:write_savepoint",
        "try:\n        for old, new",
        'try:\n        target.put(f"{folder}/{METADATA}", b"")\n        for old, new',
    ),
    Mutant("C29", f"{COORDINATOR}._write_savepoints", "pending.id < self._newest_ended", "True"),
    Mutant("C30", "task.snapshot:PendingSnapshot.done", "self._uploads or ", ""),
    Mutant("C30", f"{JOURNAL}.sweep_orphans", "self._storage.delete_all(orphans)", "pass"),
    Mutant("C31", f"{JOURNAL}.clean_up", "self._referenced() | needed", "needed"),
    Mutant("C31", f"{JOURNAL}.clean_up", "if s < newest.floor", "if False"),
    Mutant("C31", "coordinator.journal_state:JournalState.floor_with", "- retained) :]", "- retained - 1) :]"),
    Mutant("C32", "coordinator.recovery:_states_of", "if handle.subtask in sharing or", "if handle.subtask == slot or"),
    Mutant("C39", f"{VERTEX}.abandon", "self._carry_out(self.inputs.handler.on_abandoned(checkpoint))", "pass"),
)

TASK: Final = (
    Mutant("C33", f"{VERTEX}._checkpoint", BARRIER_FIRST + CAPTURE, CAPTURE + BARRIER_FIRST),
    Mutant(
        "C34",
        f"{DECISIONS}._barrier",
        "Barrier(trigger.checkpoint, trigger.timestamp_ms,",
        "Barrier(trigger.checkpoint, 0,",
    ),
    Mutant(
        "C35",
        "task.channels:InputChannel.push",
        "self._elements.append(element)",
        "len(self._elements) or self._elements.append(element)",
    ),
)

MUTANTS: Final = (*LIFE, *TRIGGERS, *ACKS, *COMPLETION, *TASK)
