"""The parts of one subtask's answer to one barrier, gathered until the ack may leave (F24, C36). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.committable import Committable
from tidegate.coordinator.types import Ack, SourcePositions, StateHandle, StateKind
from tidegate.ids import Attempt, OperatorName, ProducerId, StateId, StateName, SubtaskId
from tidegate.task.barriers.handler import Notify
from tidegate.task.ports import StateCapture


def kind_of(capture: StateCapture) -> StateKind:
    """What the files of an operator's state are."""
    return StateKind.OPERATOR if capture.keyed else StateKind.LIST


class PendingSnapshot:
    """Waits for the uploads and the sinks of one subtask; `ack` is possible when nothing is missing.

    With `inflight` it also waits until it learns what was in flight.
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
        self._committables: dict[ProducerId, Committable] = {}
        self._snapshot_ms = snapshot_ms
        self._upload_ms = 0.0
        self._prepare_ms = 0.0

    @property
    def done(self) -> bool:
        """Nothing is missing, and nothing has failed."""
        return not (self._uploads or self._sinks or self._inflight or self.given_up)

    def give_up(self) -> None:
        """It was declined: no ack will leave, whatever still comes."""
        self.given_up = True

    @property
    def states(self) -> tuple[StateHandle, ...]:
        """What is durable so far, of its own: what it builds on belongs to others."""
        return tuple(self._states)

    def waits_for(self, sink: OperatorName) -> bool:
        """Whether this sink has not answered yet."""
        return sink in self._sinks

    def inflight_known(self, operator: OperatorName, rows: Mapping[StateKind, int], alignment_ms: int) -> None:
        """The barriers have their places; the rows in flight are uploaded as state of `operator`, one file per kind."""
        self._inflight = False
        self._inflight_rows = sum(rows.values())
        self._alignment_ms = alignment_ms
        self._uploads.update((StateId(operator, StateName("")), kind) for kind in rows)

    def uploaded(self, handles: tuple[StateHandle, ...], upload_ms: float) -> None:
        """A piece of state is durable, in one file or several."""
        first = handles[0]
        self._uploads.remove((StateId(first.operator, first.state), first.kind))
        self._states += handles
        self._upload_ms = max(self._upload_ms, upload_ms)

    def prepared(self, sink: OperatorName, committables: tuple[Committable, ...], prepare_ms: float) -> None:
        """A sink is flushed and counted; `committables` repeats the unconfirmed ones of earlier checkpoints."""
        self._sinks.remove(sink)
        for committable in committables:
            self._committables[committable.producer] = committable
        self._prepare_ms = max(self._prepare_ms, prepare_ms)

    def ack(self) -> Ack:
        """The ack of all chained operators (C28)."""
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
