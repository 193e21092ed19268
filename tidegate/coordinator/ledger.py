"""The prepared transactions of an attempt, from their first ack until they have ended and their ids can be reused, and
the state objects that are still needed. Pure.

Prepared transactions of a checkpoint that was given up hold records that no source will send again in this attempt, so
the next completed checkpoint must list them. Those of a decided checkpoint stay listed until they are known to have
ended ("carried").
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidegate.committable import Committable
from tidegate.coordinator.story import Story
from tidegate.coordinator.types import Ack, CompletedCheckpoint, StateHandle
from tidegate.ids import CheckpointId, ProducerId, TransactionalId
from tidegate.storage.names import checkpoint_of_state

Key = tuple[TransactionalId, ProducerId]

DOUBTFUL_MAX: Final = 10_000
"""State objects of failed appends that are kept at most."""


def key_of(committable: Committable) -> Key:
    """Returns the key of a transaction: a producer never has more than one."""
    return committable.transactional_id, committable.producer


class TransactionLedger:
    """Tracks prepared transactions. Begins with those that the restored checkpoint lists and recovery has not ended."""

    def __init__(self, carried: Iterable[Committable], story: Story) -> None:
        self._open: dict[Key, Committable] = {key_of(committable): committable for committable in carried}
        self._listed: frozenset[Key] = frozenset(self._open)
        self._ended: set[Key] = set()
        self._unreleased: dict[Key, CheckpointId] = {}
        self._story = story

    def prepared(self, ack: Ack) -> None:
        """Records the transactions that an ack lists; repetitions change nothing.

        Raises ProtocolBroken for contradictions.
        """
        for committable in ack.committables:
            key = key_of(committable)
            if committable.checkpoint > ack.checkpoint:
                raise self._story.broken(
                    f"the ack of {ack.subtask} for checkpoint {ack.checkpoint} lists {key} of the later checkpoint "
                    f"{committable.checkpoint}"
                )
            if key in self._ended:
                continue
            if self._open.setdefault(key, committable) != committable:
                raise self._story.broken(f"{ack.subtask} describes transaction {key} in two different ways")

    def due(self, checkpoint: CheckpointId) -> tuple[Committable, ...]:
        """Returns the transactions that the entry of this checkpoint must list, each once, oldest checkpoint first."""
        due = (committable for committable in self._open.values() if committable.checkpoint <= checkpoint)
        return tuple(sorted(due, key=lambda c: (c.checkpoint, c.transactional_id, c.producer)))

    def decided(self, listed: Iterable[Committable], acks: Iterable[Ack]) -> None:
        """Records what the newest journal entry lists; `acks` are those of its checkpoint.

        A subtask that no longer repeats an ended transaction has learned of its end and will never repeat it.
        """
        self._listed = frozenset(map(key_of, listed))
        repeated = {key_of(committable) for ack in acks for committable in ack.committables}
        self._ended &= repeated

    def ended(self, committables: Iterable[Committable]) -> None:
        """Records transactions for which the broker gave a definite answer. Repetitions change nothing."""
        for key in map(key_of, committables):
            found = self._open.pop(key, None)
            if found is not None:
                self._ended.add(key)
                self._unreleased[key] = found.checkpoint

    def all_ended(self, committables: Iterable[Committable]) -> bool:
        """Tells whether all of these transactions have ended."""
        return not any(key_of(committable) in self._open for committable in committables)

    def take_released(self, completed: CheckpointId) -> frozenset[TransactionalId]:
        """Returns the ids of ended transactions that the newest entry does not list, each once.

        Each is reported with the notice of a checkpoint later than its own, because a sink accepts no other as a
        release (`sinks/pool.py`).
        """
        still_listed = {key[0] for key in self._listed}
        free = [key for key, own in self._unreleased.items() if key[0] not in still_listed and own < completed]
        for key in free:
            del self._unreleased[key]
        return frozenset(key[0] for key in free)


# -- state objects -----------------------------------------------------------------------------------------------------
# Several checkpoints may list one object (a base that increments build on, a restored checkpoint). An object is deleted
# only when no retained and no pending checkpoint lists it: that is derived from what they list, without a reference
# counter. A checkpoint may complete only if every object that it lists is its own or listed by a retained checkpoint;
# any other object may be deleted at any time.


class StateLedger:
    """The state objects that the newest completed checkpoints list, and those of entries that may be in the journal."""

    def __init__(self, retained: tuple[CompletedCheckpoint, ...], retained_max: int) -> None:
        self._retained = retained
        self._retained_max = retained_max
        self._doubtful: tuple[StateHandle, ...] = ()

    def completed(self, checkpoint: CompletedCheckpoint) -> None:
        """Records a completed checkpoint."""
        self._retained = (*self._retained, checkpoint)[-self._retained_max :]

    def take_doubtful(self) -> tuple[StateHandle, ...]:
        """Returns the objects in doubt, which are no longer kept: a later entry is durable."""
        doubtful, self._doubtful = self._doubtful, ()
        return doubtful

    def doubt(self, handles: tuple[StateHandle, ...]) -> None:
        """Keeps the objects of an entry that may exist although its append has failed, until a later one is durable."""
        self._doubtful = (*self._doubtful, *handles)[-DOUBTFUL_MAX:]

    def gone(self, checkpoint: CheckpointId, handles: Iterable[StateHandle]) -> tuple[str, ...]:
        """Returns objects that a checkpoint lists although they may have been deleted."""
        return decide_gone(checkpoint, handles, self._retained)

    def garbage(self, handles: Iterable[StateHandle], pending: Iterable[StateHandle]) -> tuple[StateHandle, ...]:
        """Returns those that no completed, pending or doubtful checkpoint needs (F27)."""
        needed = {*listed_paths(self._retained), *(handle.path for handle in (*pending, *self._doubtful))}
        return decide_garbage(handles, frozenset(needed))


def listed_paths(checkpoints: Iterable[CompletedCheckpoint]) -> frozenset[str]:
    """Returns every object that these checkpoints list."""
    return frozenset(handle.path for checkpoint in checkpoints for handle in checkpoint.states)


def decide_garbage(handles: Iterable[StateHandle], needed: frozenset[str]) -> tuple[StateHandle, ...]:
    """Returns the objects that may be deleted, each once."""
    return tuple({handle.path: handle for handle in handles if handle.path not in needed}.values())


def decide_gone(
    checkpoint: CheckpointId, handles: Iterable[StateHandle], retained: Iterable[CompletedCheckpoint]
) -> tuple[str, ...]:
    """Returns objects that a checkpoint lists although they are neither its own nor listed by a retained one."""
    kept = listed_paths(retained)
    return tuple(h.path for h in handles if checkpoint_of_state(h.path) != checkpoint and h.path not in kept)
