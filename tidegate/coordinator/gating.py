"""Decides which source subtasks are on hold, so that the inputs of a step arrive in a useful order. Pure.

A subtask on hold reads nothing, but keeps answering barriers with its positions and reporting whether it is idle. Rows
are never held back in a channel: an input that is not read would block the barriers of aligned checkpoints until they
time out.

- A *gate* (`InputOrder.comes_first`) holds the sources of the other inputs of a vertex until all subtasks of the vertex
  have reported that the input has caught up with what its topics held when the attempt started. It never closes again
  within an attempt. Checkpoints complete meanwhile, so the next attempt continues where this one was, behind a gate of
  its own.
- A *lead* (`InputOrder.ahead_ms`) holds a source subtask whose watermark is too far ahead of those of the other inputs.
  A subtask does not count if it is idle (without partitions it is), has ended, or waits behind a gate. One without a
  watermark is behind all others, and is never on hold itself. So the last subtask is never on hold.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidegate.ids import OperatorName, SlotIndex, VertexId
from tidegate.operators.runtime import END_OF_TIME, LOWEST
from tidegate.plan.gates import Gate, Lead, derive_gates, derive_leads
from tidegate.plan.graph import Plan


class SourceProgress(msgspec.Struct, frozen=True):
    """Event-time progress of a source subtask; `watermark_ms` is None before its first watermark."""

    watermark_ms: int | None
    idle: bool = False


class GateHold(msgspec.Struct, frozen=True):
    """A source subtask waits until an input of a step has caught up."""

    step: VertexId
    alias: str
    """The input as the step names it."""
    caught_up: int
    """How many of the step's subtasks have reported that the input has caught up."""
    subtasks: int


class LeadHold(msgspec.Struct, frozen=True):
    """A source subtask is too far ahead of sources of the other inputs of a step."""

    step: VertexId
    sources: tuple[OperatorName, ...]
    """Those that are behind, in order."""
    ahead_ms: int | None
    """How far it is ahead of the last of them, in event time; None if one of them has no watermark yet."""
    limit_ms: int


Hold = GateHold | LeadHold


class Gating:
    """The gates and leads of one attempt. Every gate is closed at first."""

    def __init__(self, plan: Plan) -> None:
        self._leads = derive_leads(plan)
        self._parallelism = plan.parallelism
        slots = [SlotIndex(slot) for slot in range(plan.parallelism)]
        self._closed = {gate: set(slots) for gate in derive_gates(plan)}
        """For every closed gate, the slots whose subtasks have not reported yet."""
        self._progress: dict[tuple[OperatorName, SlotIndex], SourceProgress] = {}

    def __bool__(self) -> bool:
        """True if any source may be on hold now or later."""
        return bool(self._closed or self._leads)

    def on_caught_up(self, vertex: VertexId, port: int, slot: SlotIndex) -> tuple[Gate, ...]:
        """Records that an input of a subtask has caught up. Returns the gates that this opens."""
        opened = []
        for gate, waiting in list(self._closed.items()):
            if (gate.vertex, gate.port) == (vertex, port):
                waiting.discard(slot)
                if not waiting:
                    del self._closed[gate]
                    opened.append(gate)
        return tuple(opened)

    def on_progress(self, slot: SlotIndex, progress: Mapping[OperatorName, SourceProgress]) -> None:
        """Records the progress of the source subtasks of a slot."""
        self._progress.update({(source, slot): one for source, one in progress.items()})

    def holds(self, slot: SlotIndex) -> Mapping[OperatorName, Hold]:
        """Returns the sources whose subtask in this slot is on hold, and why; a closed gate comes before a lead."""
        found: dict[OperatorName, Hold] = {}
        for gate, waiting in self._closed.items():
            hold = GateHold(gate.vertex, gate.alias, self._parallelism - len(waiting), self._parallelism)
            found = {**dict.fromkeys(sorted(gate.held), hold), **found}
        gated = frozenset(found)
        for lead in self._leads:
            for source in sorted(lead.sources - gated):
                ahead = self._derive_ahead(self._progress.get((source, slot)), lead, gated)
                if ahead is not None:
                    found.setdefault(source, ahead)
        return found

    def _derive_ahead(self, own: SourceProgress | None, lead: Lead, gated: frozenset[OperatorName]) -> LeadHold | None:
        if own is None or own.watermark_ms is None or own.watermark_ms == END_OF_TIME:
            return None
        limit_ms = own.watermark_ms - lead.ahead_ms
        awaited = [
            (LOWEST if one.watermark_ms is None else one.watermark_ms, source)
            for (source, _), one in self._progress.items()
            if source in lead.others - gated and not one.idle
        ]
        behind = [(at_ms, source) for at_ms, source in awaited if at_ms < limit_ms]
        if not behind:
            return None
        sources, last_ms = tuple(sorted({source for _, source in behind})), min(behind)[0]
        ahead_ms = None if last_ms == LOWEST else own.watermark_ms - last_ms
        return LeadHold(lead.vertex, sources, ahead_ms, lead.ahead_ms)
