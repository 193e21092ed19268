"""What the slot loop needs from sources and sinks beyond the contract of every operator (`operators/runtime.py`).

For whoever writes another one, too (docs/extending.md); Kafka's are the ones there are. All calls come from the loop's
one thread and return at once; blocking work happens on the implementer's own helper threads, which post results to a
bounded queue and call the `wake` they were given. A process may die between any two calls, so whatever counts is in
what a checkpoint is given.
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
"""The asynchronous part of a snapshot, file by file: on a helper thread, the state as it was at the barrier (F23)."""

StateCapture = Capture[StateHandle]
OperatorState = StoredState[StateHandle]


class Source(OperatorRuntime, Protocol):
    """A rewindable source (F04): an operator that polls, and knows where it has come to.

    While the subtask is on hold `poll` gets no rows (`rows_max` 0): it takes no record, and sends event time only.
    The same positions give the same rows, in the same order within a partition. Rows carry `__tidegate_partition` and
    `__tidegate_offset`, by which they are reported when they fail later; what cannot be decoded it reports itself.
    """

    def positions(self) -> SourcePositions:
        """Where to continue after everything that `poll` has emitted, and nothing more (F08).

        Asked at every barrier, from the first one on: they are known before the subtask runs.
        """

    def add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these, too, from their first offset; from now on `positions` has them. Never on a bounded read."""

    @property
    def rows_taken(self) -> int:
        """The `rows_max` that the records of the last `poll` fill, whatever has become of them; 0 of none."""

    @property
    def finished(self) -> bool:
        """A bounded read has emitted everything, the end of event time included."""

    def ask_still_idle(self) -> None:
        """Find out whether all partitions are still idle; nothing is found out while one is not."""

    def take_still_idle(self) -> bool:
        """Whether they are, asked after the last `ask_still_idle`; said once."""

    @property
    def held_back_by(self) -> TopicPartition | None:
        """The partition whose watermark the others wait for; None without event time, and while all are idle."""


class Prepared(msgspec.Struct, frozen=True):
    """A sink subtask has everything before the barrier of `checkpoint` in a flushed, counted transaction."""

    checkpoint: CheckpointId
    committables: tuple[Committable, ...]
    prepare_ms: float


class Sink(OperatorRuntime, Protocol):
    """A transactional (or at-least-once) sink: an operator that encodes and queues rows, and takes part in commits.

    Rows belong to the transaction of the next barrier. Once that one is prepared, whoever has its committable can
    commit or abort it, also when this process has died; the daemon commits after the checkpoint is in the journal.
    Rows after the barrier go into another transaction, those of one key in order. Closing it leaves prepared
    transactions prepared.
    """

    def turn(self) -> bool:
        """Hand queued rows to the client and look for delivery errors; True when something moved."""

    def prepare(self, checkpoint: CheckpointId, *, final: bool = False) -> None:
        """The barrier: what was written so far belongs to `checkpoint`; flush and count it in the background. No rows
        follow a final one.
        """

    def poll_prepared(self) -> Sequence[Prepared]:
        """Finished prepares, in the order of their barriers. Raises AttemptFailed when one failed."""

    def unconfirmed(self) -> Sequence[Committable]:
        """Committables of earlier checkpoints that no `completed` has confirmed; every ack repeats them."""

    def completed(self, checkpoint: CheckpointId, released: frozenset[TransactionalId]) -> None:
        """The checkpoint is in the journal; `released` ids may be used again."""

    def aborted(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was given up; its committables wait for the next one."""

    @property
    def oldest_age_ms(self) -> int | None:
        """Since the oldest transaction that is not ended took its first record, by this machine's monotonic clock; None
        without one.
        """
