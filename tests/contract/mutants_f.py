"""The fault tolerance model, F01-F29: at least one mutant per line, at its place in production code."""

from __future__ import annotations

from typing import Final

from tests.contract.planting import Mutant

ALIGNER: Final = "task.barriers.aligner:Aligner"
PENDING: Final = "coordinator.pending:PendingCheckpoint"
RECOVERY: Final = "coordinator.recovery"
SNAPSHOT: Final = "task.snapshot:PendingSnapshot"
LOOP: Final = "task.loop:SlotLoop"
INCREMENTS: Final = "state.increments"

RECOVERING: Final = (
    Mutant("F01", f"{RECOVERY}:_states_of", "for handle in checkpoint.states", "for handle in checkpoint.states[:1]"),
    Mutant("F02", f"{RECOVERY}:_positions_of", "next_offsets.get(p, 0)", "0"),
    Mutant("F03", "daemon.attempt:AttemptRunner.fail", "self._loop.call_later(grace_s, self._conclude)", "pass"),
    Mutant("F04", "sources.positions:derive_restored", "part: known[part]", "part: 0"),
    Mutant("F12", "coordinator.journal_state:JournalState.newest_checkpoint", "self.retained[-1]", "self.retained[0]"),
)

BARRIERS: Final = (
    Mutant(
        "F05",
        "task.channels:RemoteOutput.emit",
        "self._queue.append(waiting)",
        "(self._queue.append if waiting.barrier is None else self._queue.appendleft)(waiting)",
    ),
    Mutant(
        "F06",
        "task.operator_chain:OperatorChain.prepare",
        "sink.prepare(checkpoint, final=final)",
        "sink.prepare(CheckpointId(checkpoint + 1), final=final)",
    ),
    Mutant(
        "F07",
        f"{LOOP}.begin_snapshot",
        "self._pending[task.subtask, checkpoint] = pending",
        "self._pending = {(task.subtask, checkpoint): pending}",
    ),
    Mutant("F08", f"{LOOP}.begin_snapshot", "(task.chain.source.positions(),)", "()"),
    Mutant("F09", f"{ALIGNER}._complete", "len(self._received) < self.channels", "not self._received"),
    Mutant("F10", f"{ALIGNER}._complete", "len(self._received) < self.channels", "not self._received"),
    Mutant("F11", f"{PENDING}.acknowledge", "if not self.waiting:", "if len(self.waiting) == 1:"),
    Mutant("F13", f"{ALIGNER}.is_blocked", "return channel in self._received", "return False"),
    Mutant("F14", "task.channels:InputChannel.pop", "self._elements.popleft()", "self._elements.pop()"),
    Mutant("F19", "task.barriers.choice:choose_handler", "if exactly_once else Tracker(channels)", ""),
    Mutant(
        "F20", "task.barriers.tracker:Tracker._complete", "len(entry.channels) < self.channels", "not entry.channels"
    ),
    Mutant("F21", f"{ALIGNER}._complete", "< self.channels", "< max(2, self.channels)"),
    Mutant(
        "F22",
        "task.channels:InputChannel.push",
        "self._elements.append(element)",
        "self._elements.append(element) if isinstance(element, Batch) else self._elements.appendleft(element)",
    ),
)

SNAPSHOTS: Final = (
    Mutant(
        "F15",
        "operators.kinds.aggregate.runtime:AggregateRuntime._run",
        "self._totals.put_columns(keys, columns)",
        "pass",
    ),
    Mutant("F16", f"{LOOP}.turn", "if c.checkpoint <= prepared.checkpoint", ""),
    Mutant("F17", "slot.subtasks:Subtasks.__init__", "settings.state_backend", '"memory"'),
    Mutant("F18", f"{PENDING}.complete", "for part in ack.positions", "for part in ack.positions[:0]"),
    Mutant(
        "F23", "state.memory:MemoryState._freeze_all", "self._entries.freeze()", "Moment(tuple(self._entries._layers))"
    ),
    Mutant("F24", f"{SNAPSHOT}.done", "self._uploads or ", ""),
    Mutant("F25", "slot.uploads:Uploads._put", "self._jobs.put(job)", "self._do(job)"),
    Mutant("F26", f"{LOOP}.begin_snapshot", "self._acknowledge(task.subtask, pending)", "pass"),
    Mutant("F27", "coordinator.coordinator:Coordinator._give_up", "self._discard(pending.handles)", "pass"),
    Mutant("F27", f"{LOOP}.on_abandoned", "pending.states if pending is not None else ()", "()"),
    Mutant("F28", f"{INCREMENTS}:Increments.begin", "for layer in below", "for layer in reversed(below)"),
    Mutant("F29", f"{INCREMENTS}:_decide_layers", "if any(len(part) >= max(1, held) for part in changed):", "if True:"),
)

MUTANTS: Final = (*RECOVERING, *BARRIERS, *SNAPSHOTS)
