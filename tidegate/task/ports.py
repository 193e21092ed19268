"""What the slot loop needs from the things it drives. Operators, sources and sinks implement these protocols.

All calls come from the loop's one thread and return at once; blocking work happens on the implementer's own helper
threads, which post results to a bounded queue and call the `wake` they were given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from tidegate.coordinator.types import Committable, SourcePositions, StateHandle
from tidegate.errors import AttemptFailed
from tidegate.formats.failures import RecordFailure
from tidegate.ids import CheckpointId, TopicPartition, TransactionalId
from tidegate.state.base import KeyedState
from tidegate.state.increments import Capture

if TYPE_CHECKING:
    import polars as pl

Encode = Callable[[], Iterable[bytes]]
"""The asynchronous part of a snapshot, file by file: on a helper thread, the state as it was at the barrier (F23)."""

StateCapture = Capture[StateHandle]
OperatorState = KeyedState[StateHandle]


class BatchTooLarge(AttemptFailed):
    """What an operator would make of several rows has no room; nothing has happened: they are processed in parts."""

    code = "batch-too-large"


class Operator(Protocol):
    """Filter, select, aggregate, union."""

    def process(self, frame: pl.DataFrame) -> pl.DataFrame | None:
        """Rows in, rows out; None when nothing is left.

        Raises BatchTooLarge: only the head of a vertex, and never for one row.
        """

    def take_failures(self) -> Sequence[RecordFailure]:
        """Rows of the last frame that failed; empty almost always."""

    @property
    def state(self) -> OperatorState | None:
        """What is in its snapshots; None for an operator without state (F25, F26)."""


class Source(Protocol):
    """A rewindable source (F04)."""

    def poll(self, rows_max: int) -> pl.DataFrame | None:
        """The next decoded batch of at most so many records, None when nothing is waiting."""

    def positions(self) -> SourcePositions:
        """Where to continue behind everything that `poll` has returned (F08)."""

    def add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these, too, from their first offset; from now on `positions` has them. Never on a bounded read."""

    @property
    def finished(self) -> bool:
        """A bounded read has returned everything."""

    def close(self) -> None:
        """Join the helper threads within a bounded time."""


class Prepared(msgspec.Struct, frozen=True):
    """A sink subtask has everything before the barrier of `checkpoint` in a flushed, counted transaction."""

    checkpoint: CheckpointId
    committables: tuple[Committable, ...]
    prepare_ms: float


class Sink(Protocol):
    """A transactional (or at-least-once) sink."""

    @property
    def room(self) -> int:
        """Rows that it takes without having to keep them waiting itself; 0 while it is full."""

    def write(self, frame: pl.DataFrame) -> Sequence[RecordFailure]:
        """Encode and queue rows; those that Kafka cannot store are left out and returned. Never blocks."""

    def turn(self) -> bool:
        """Hand queued rows to the client and look for delivery errors; True when something moved."""

    def prepare(self, checkpoint: CheckpointId) -> None:
        """The barrier: what was written so far belongs to `checkpoint`; flush and count it in the background."""

    def poll_prepared(self) -> Sequence[Prepared]:
        """Finished prepares. Raises AttemptFailed when one failed."""

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

    def close(self) -> None:
        """Join the helper threads; a prepared transaction stays prepared."""
