"""The parts of one subtask's answer to one barrier, collected until the ack can be sent (F24, C36). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.committable import Committable
from tidegate.coordinator.ledger import Key, key_of
from tidegate.coordinator.types import Ack, SourcePositions, StateHandle, StateKind
from tidegate.ids import Attempt, OperatorName, StateId, StateName, SubtaskId
from tidegate.task.barriers.handler import Notify
from tidegate.task.ports import StateCapture


def kind_of(capture: StateCapture) -> StateKind:
    """Returns the kind of the files of an operator's state."""
    return StateKind.OPERATOR if capture.keyed else StateKind.LIST


class PendingSnapshot:
    """The snapshot of one subtask, waiting for uploads and sinks; `ack` is possible when nothing is missing.

    With `inflight` it also waits until the rows in flight are known.
    """

    def __init__(
        self,
        attempt: Attempt,
        subtask: SubtaskId,
        notify: Notify,
        positions: tuple[SourcePositions, ...],
        captures: Mapping[StateId, StateCapture],
        sinks: frozenset[OperatorName],
        snapshot_ms: float,
        *,
        inflight: bool = False,
    ) -> None:
        self.barrier = notify.barrier
        self.given_up = False
        self._attempt = attempt
        self._subtask = subtask
        self._notify = notify
        self._positions = positions
        self._alignment_ms = notify.alignment_ms
        self._inflight = inflight
        self._inflight_rows = 0
        self._uploads = {(one, kind_of(capture)) for one, capture in captures.items() if capture.encode is not None}
        self._builds_on = tuple(file for capture in captures.values() for file in capture.builds_on)
        self._sinks = set(sinks)
        self._states: list[StateHandle] = []
        self._committables: dict[Key, Committable] = {}
        self._snapshot_ms = snapshot_ms
        self._upload_ms = 0.0
        self._prepare_ms = 0.0

    @property
    def done(self) -> bool:
        """Whether nothing is missing and nothing has failed."""
        return not (self._uploads or self._sinks or self._inflight or self.given_up)

    def give_up(self) -> None:
        """Marks the checkpoint as declined: no ack will be sent, whatever still arrives."""
        self.given_up = True

    @property
    def states(self) -> tuple[StateHandle, ...]:
        """The subtask's own state that is durable so far; the files it builds on belong to other checkpoints."""
        return tuple(self._states)

    def waits_for(self, sink: OperatorName) -> bool:
        """Returns whether this sink has not answered yet."""
        return sink in self._sinks

    def inflight_known(self, operator: OperatorName, rows: Mapping[StateKind, int], alignment_ms: int) -> None:
        """Records that all barriers are placed; the rows in flight are uploaded as state of `operator`, one file per
        kind.
        """
        self._inflight = False
        self._inflight_rows = sum(rows.values())
        self._alignment_ms = alignment_ms
        self._uploads.update((StateId(operator, StateName("")), kind) for kind in rows)

    def uploaded(self, handles: tuple[StateHandle, ...], upload_ms: float) -> None:
        """Records that a piece of state is durable, in one or more files."""
        first = handles[0]
        self._uploads.remove((StateId(first.operator, first.state), first.kind))
        self._states += handles
        self._upload_ms = max(self._upload_ms, upload_ms)

    def prepared(self, sink: OperatorName, committables: tuple[Committable, ...], prepare_ms: float) -> None:
        """Records that a sink is flushed and counted; `committables` repeats the unconfirmed ones of earlier
        checkpoints.
        """
        self._sinks.remove(sink)
        for committable in committables:
            self._committables[key_of(committable)] = committable
        self._prepare_ms = max(self._prepare_ms, prepare_ms)

    def ack(self) -> Ack:
        """Returns the ack of all chained operators (C28)."""
        if not self.done:
            raise ValueError(f"{self._subtask}: checkpoint {self.barrier.checkpoint} still waits for its parts")
        return Ack(
            attempt=self._attempt,
            checkpoint=self.barrier.checkpoint,
            subtask=self._subtask,
            positions=self._positions,
            states=(*self._builds_on, *self._states),
            committables=tuple(self._committables.values()),
            alignment_ms=self._alignment_ms,
            start_delay_ms=self._notify.start_delay_ms,
            snapshot_ms=self._snapshot_ms,
            upload_ms=self._upload_ms,
            prepare_ms=self._prepare_ms,
            written_bytes=sum(state.size_bytes for state in self._states),
            inflight_rows=self._inflight_rows,
        )
