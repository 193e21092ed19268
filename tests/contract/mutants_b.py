"""Barrier handling, B01-B50: one mutant per line, at its place in production code."""

from __future__ import annotations

from typing import Final

from tests.contract.planting import Mutant

HANDLER: Final = "task.barriers.handler"
ALIGNER: Final = "task.barriers.aligner:Aligner"
TRACKER: Final = "task.barriers.tracker:Tracker"
UNALIGNER: Final = "task.barriers.unaligner:Unaligner"
ALTERNATING: Final = "task.barriers.alternating:Alternating"
VERTEX: Final = "task.vertex:VertexTask"
INPUTS: Final = "task.input_gate:InputGate"

GATE: Final = (
    Mutant("B01", f"{INPUTS}.take", "if not len(channel) or self.handler.is_blocked(index):", "if not len(channel):"),
    Mutant("B02", f"{INPUTS}.on_control", "self.handler.on_cancel(channel, control.checkpoint)", "[]"),
    Mutant("B02", f"{INPUTS}.on_control", "self.handler.on_barrier(channel, control, now_ms)", "[]"),
    Mutant(
        "B03",
        f"{INPUTS}.take",
        "if not len(channel) or self.handler.is_blocked(index):",
        "if self.handler.is_blocked(index):",
    ),
    Mutant("B04", "task.barriers.choice:choose_handler", "if exactly_once else Tracker(channels)", ""),
    Mutant("B05", "config.checks:_times", 'if checkpoints.mode != "exactly-once" and', "if False and"),
    Mutant("B06", "slot.subtasks:Subtasks._build_inputs", "channels=len(channels)", "channels=1"),
    Mutant(
        "B07", "task.snapshot:PendingSnapshot.ack", "start_delay_ms=self._notify.start_delay_ms", "start_delay_ms=0"
    ),
    Mutant(
        "B08", f"{HANDLER}:start_delay_ms", "max(0, now_ms - barrier.timestamp_ms)", "now_ms - barrier.timestamp_ms"
    ),
    Mutant("B09", f"{VERTEX}._give_up", "self.chain.broadcast(CancelMarker(abort.checkpoint))", "pass"),
    Mutant("B10", f"{ALIGNER}.on_barrier", "AbortReason.SUBSUMED", "AbortReason.CANCELLED_UPSTREAM"),
    Mutant(
        "B11",
        f"{ALTERNATING}._on_barrier_arrived",
        "waiting.receive(channel, barrier)\n    return actions + self.on_time(now_ms)",
        "waiting.receive(channel, barrier)\n    return self.on_time(now_ms) + actions",
    ),
    Mutant(
        "B12",
        f"{ALIGNER}.is_blocked",
        "return channel in self._received",
        "return not self._received or channel in self._received",
    ),
    Mutant("B13", f"{ALIGNER}._is_old", "checkpoint < self.current or ", ""),
)

AT_LEAST_ONCE: Final = (
    Mutant(
        "B14",
        f"{TRACKER}.is_blocked",
        "return False",
        "return any(channel in entry.channels for entry in self._pending.values())",
    ),
    Mutant("B15", f"{TRACKER}._complete", "< self.channels", "< max(2, self.channels)"),
    Mutant(
        "B16",
        f"{TRACKER}._append",
        "self._pending[checkpoint] = entry",
        "self._pending = OrderedDict({checkpoint: entry})",
    ),
    Mutant(
        "B17",
        f"{TRACKER}._complete",
        "while self._pending and next(iter(self._pending)) <= checkpoint:\n        self._pending.popitem(last=False)",
        "del self._pending[checkpoint]",
    ),
    Mutant("B18", f"{TRACKER}.on_barrier", "start_delay_ms(barrier, now_ms)", "0"),
    Mutant("B19", f"{TRACKER}.on_barrier", "if checkpoint <= self.latest:", "if False:"),
    Mutant("B20", f"{TRACKER}._append", "if len(self._pending) > CHECKPOINTS_TRACKED_MAX:", "if False:"),
    Mutant("B21", f"{TRACKER}.on_barrier", "elif channel in entry.channels:", "elif False:"),
    Mutant("B22", f"{TRACKER}.on_cancel", "if not entry.aborted:", "if self.channels > 1 and not entry.aborted:"),
    Mutant("B23", f"{TRACKER}.on_cancel", "self._abort_older(checkpoint)", "[]"),
    Mutant("B24", f"{TRACKER}.on_cancel", "if not entry.aborted:", "if True:"),
    Mutant("B25", f"{TRACKER}.on_cancel", "if checkpoint <= self.latest:", "if True:"),
    Mutant("B26", f"{TRACKER}.on_cancel", "if checkpoint <= self.latest:", "if False:"),
)

EXACTLY_ONCE: Final = (
    Mutant("B27", f"{ALIGNER}._complete", "< self.channels", "< max(2, self.channels)"),
    Mutant("B28", f"{ALIGNER}.on_barrier", "self._received.add(channel)", "pass"),
    Mutant("B29", f"{ALIGNER}._check_released", "if channel in self._received:", "if False:"),
    Mutant("B30", f"{ALIGNER}.on_barrier", "if self._barrier is not None:", "if False:"),
    Mutant(
        "B31",
        f"{ALIGNER}._is_old",
        "checkpoint < self.current or ",
        "(checkpoint < self.current and self._barrier is None) or ",
    ),
    Mutant("B32", f"{ALIGNER}._is_old", "(checkpoint == self.current and self._barrier is None)", "False"),
    Mutant("B33", f"{ALIGNER}._start", "start_delay_ms(barrier, now_ms)", "0"),
    Mutant(
        "B34",
        f"{ALIGNER}._complete",
        "[*released, Notify(barrier, max(0, now_ms - self._started_ms), self._start_delay_ms)]",
        "[Notify(barrier, max(0, now_ms - self._started_ms), self._start_delay_ms), *released]",
    ),
    Mutant(
        "B35",
        f"{ALIGNER}._release",
        "held, self._received, self._barrier = self._received, set(), None",
        "held, self._received = self._received, set()",
    ),
    Mutant(
        "B36",
        f"{ALIGNER}.on_cancel",
        "if self._is_old(checkpoint):",
        "if self.channels == 1 or self._is_old(checkpoint):",
    ),
    Mutant("B37", f"{ALIGNER}.on_cancel", "released = self._release()", "released = []"),
    Mutant(
        "B38",
        f"{ALIGNER}.on_cancel",
        "released = self._release()",
        "released = self._release() if checkpoint == self.current else []",
    ),
    Mutant(
        "B39",
        f"{ALIGNER}.on_cancel",
        "if self._is_old(checkpoint):",
        "if self._barrier is None and self._is_old(checkpoint):",
    ),
    Mutant("B40", f"{ALIGNER}.on_cancel", "self._advance(checkpoint)", "pass"),
    Mutant(
        "B41",
        f"{ALIGNER}.on_cancel",
        "if self._is_old(checkpoint):",
        "if self._barrier is not None and self._is_old(checkpoint):",
    ),
)

UNALIGNED: Final = (
    Mutant("B43", f"{ALTERNATING}.on_time", "if waiting.due_ms <= now_ms:", "if waiting.due_ms < now_ms:"),
    Mutant("B44", f"{UNALIGNER}.on_barrier", "tracked.consumed.add(channel)", "pass"),
    Mutant("B45", f"{UNALIGNER}.has_inflight", "channel not in tracked.consumed", "True"),
    Mutant(
        "B46",
        f"{UNALIGNER}._complete_all",
        "done.append(BarriersReceived(checkpoint, max(0, now_ms - tracked.started_ms)))",
        "pass",
    ),
    Mutant("B47", f"{VERTEX}._on_arrival", "self._recordings.arrived(checkpoint, channel, element)", "pass"),
    Mutant(
        "B48",
        "daemon.instructions:InstructionExecutor._barrier",
        "None if trigger.properties.aligned else self._unaligned_after_ms",
        "self._unaligned_after_ms",
    ),
    Mutant(
        "B49",
        f"{ALTERNATING}._remove",
        "return self._aligner.on_abandoned(checkpoint) if checkpoint == self._aligner.current else []",
        "return []",
    ),
    Mutant(
        "B50",
        f"{VERTEX}.turn",
        "if self.inputs.replay:",
        "if self.inputs.replay and not any(map(len, self.inputs.channels)):",
    ),
)

ENDED: Final = (
    Mutant(
        "B42",
        "task.loop:SlotLoop.on_trigger",
        "if task.chain.source is not None:",
        "if task.chain.source is not None and not task.finished:",
    ),
)

MUTANTS: Final = (*GATE, *AT_LEAST_ONCE, *EXACTLY_ONCE, *UNALIGNED, *ENDED)
