"""What the slot loop needs from sources and sinks beyond the contract of every operator (`operators/runtime.py`).

Kafka's are the only implementations so far; docs/extending.md explains how to write others. The loop makes all calls
from its single thread, and they return at once. Blocking work happens on the implementer's own helper threads, which
post results to a bounded queue and call the `wake` they were given. A process may die between any two calls, so
everything that matters must be part of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from tidegate.committable import Committable
from tidegate.coordinator.types import SourcePositions, StateHandle
from tidegate.ids import CheckpointId, TopicPartition, TransactionalId
from tidegate.operators.runtime import OperatorRuntime
from tidegate.state.base import StoredState
from tidegate.state.increments import Capture

Encode = Callable[[], Iterable[bytes]]
"""The asynchronous part of a snapshot, file by file: run on a helper thread, on the state at the barrier (F23)."""

StateCapture = Capture[StateHandle]
OperatorState = StoredState[StateHandle]


class Source(OperatorRuntime, Protocol):
    """A rewindable source (F04): an operator that polls and knows its positions.

    While the subtask is on hold, `poll` gets `rows_max` 0: it takes no record and sends only event time and, as at any
    time, that it has caught up. It declares this once, if its operator's `planned.catches_up` is set, when everything
    that its topics held at the start of the attempt has been emitted.

    The same positions yield the same rows, in the same order within a partition. Rows carry `__tidegate_partition` and
    `__tidegate_offset`, which identify them if they fail later; the source itself reports records that it cannot
    decode.
    """

    def positions(self) -> SourcePositions:
        """Returns where to continue after everything that `poll` has emitted, and nothing more (F08).

        Called at every barrier, including the first, so positions must be known before the subtask runs.
        """

    def add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """Also reads these partitions, from their first offset, and includes them in `positions`. Never called on a
        bounded read.
        """

    def release(self) -> bool:
        """Lets the next `poll` take rows that the source lets gather until a barrier. Returns whether there are any."""

    @property
    def rows_taken(self) -> int:
        """How much of `rows_max` the records of the last `poll` used, whether emitted or not; 0 if it took none."""

    @property
    def finished(self) -> bool:
        """Whether a bounded read has emitted everything, including the end of event time."""

    def ask_still_idle(self) -> None:
        """Begins to check whether all partitions are still idle; without effect while one is active."""

    def take_still_idle(self) -> bool:
        """Returns once whether all partitions were idle when checked after the last `ask_still_idle`."""

    @property
    def held_back_by(self) -> TopicPartition | None:
        """The partition whose watermark holds back the others; None without event time, and while all are idle."""


class Prepared(msgspec.Struct, frozen=True):
    """The result of a prepare: everything before the barrier of `checkpoint` is in a flushed, counted transaction."""

    checkpoint: CheckpointId
    committables: tuple[Committable, ...]
    prepare_ms: float


class Sink(OperatorRuntime, Protocol):
    """A transactional (or at-least-once) sink: an operator that encodes and queues rows, and takes part in commits.

    Rows belong to the transaction of the next barrier. Once it is prepared, any holder of its committable can commit or
    abort it, even after this process has died; the daemon commits after the checkpoint is in the journal. Rows after
    the barrier go into another transaction, in order per key. Closing the sink leaves prepared transactions prepared.
    """

    def turn(self) -> bool:
        """Passes queued rows to the client and checks for delivery errors. Returns True if anything moved."""

    def prepare(self, checkpoint: CheckpointId, *, final: bool = False) -> None:
        """Handles the barrier: assigns all rows so far to `checkpoint`, and flushes and counts them in the background.

        No rows follow a final barrier.
        """

    def poll_prepared(self) -> Sequence[Prepared]:
        """Returns finished prepares, in the order of their barriers. Raises AttemptFailed if one failed."""

    def unconfirmed(self) -> Sequence[Committable]:
        """Returns committables of earlier checkpoints that no `completed` has confirmed; every ack repeats them."""

    def completed(self, checkpoint: CheckpointId, released: frozenset[TransactionalId]) -> None:
        """Handles a checkpoint that is in the journal; `released` ids may be reused."""

    def aborted(self, checkpoint: CheckpointId) -> None:
        """Handles an aborted checkpoint; its committables wait for the next one."""

    @property
    def oldest_age_ms(self) -> int | None:
        """Time since the oldest unfinished transaction received its first record, by the monotonic clock of this
        machine.

        None without such a transaction.
        """
