"""Tells slots which of their sources are on hold, as `coordinator/gating.py` decides."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from tidegate.coordinator.gating import Gating, SourceProgress
from tidegate.ids import Attempt, OperatorName, SlotIndex
from tidegate.plan.graph import Plan
from tidegate.task.messages import HoldSources, InputCaughtUp
from tidegate.task.report import OperatorCounts

logger = logging.getLogger(__name__)


class SourceHolds:
    """The sources on hold in one attempt. `send` reaches one slot."""

    def __init__(self, plan: Plan, attempt: Attempt, send: Callable[[SlotIndex, HoldSources], None]) -> None:
        """Raises GatesDeadlocked."""
        self._gating = Gating(plan)
        self._attempt = attempt
        self._send = send
        self._sent: dict[SlotIndex, frozenset[OperatorName]] = {
            SlotIndex(slot): frozenset() for slot in range(plan.parallelism)
        }

    def begin(self) -> None:
        """Sends the initial holds: all slots run, and no source has read anything yet."""
        self._send_changes()
        waiting = sorted(set().union(*self._sent.values()))
        if waiting:
            logger.info("%s: on hold until the inputs that come first have caught up", ", ".join(waiting))

    def on_caught_up(self, slot: SlotIndex, message: InputCaughtUp) -> None:
        """Handles an input of a subtask that has caught up."""
        opened = self._gating.on_caught_up(message.vertex, message.port, slot)
        if opened:
            logger.info("step %s: an input has caught up: %s begin", message.vertex, ", ".join(sorted(opened)))
        self._send_changes()

    def on_report(self, slot: SlotIndex, operators: Mapping[OperatorName, OperatorCounts]) -> None:
        """Handles a slot's report about the event time of its operators."""
        if self._gating:
            progress = {name: SourceProgress(one.watermark_ms, one.idle) for name, one in operators.items()}
            self._gating.on_progress(slot, progress)
            self._send_changes()

    def _send_changes(self) -> None:
        for slot, sent in self._sent.items():
            held = self._gating.held(slot)
            if held != sent:
                self._sent[slot] = held
                self._send(slot, HoldSources(self._attempt, held))
