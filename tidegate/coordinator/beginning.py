"""Where sources begin: fixed in the journal before their first record is read (ADR 17). Pure.

`start: latest` means something else a minute later, and `earliest` does once retention has gone on. So what was looked
up once is a checkpoint, of positions only, before anybody reads: an attempt restores it like any other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from tidegate.coordinator.entries import Identity
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.recovery import Chosen, RestorePlan, merge_positions
from tidegate.coordinator.types import CompletedCheckpoint, SourcePositions
from tidegate.ids import OperatorName, TopicPartition


class Unplaced(msgspec.Struct, frozen=True):
    """A source that no checkpoint says everything about."""

    source: OperatorName
    partitions: tuple[TopicPartition, ...]
    """All of them, of all subtasks."""
    next_offsets: tuple[tuple[TopicPartition, int], ...] | None = None
    """Where it goes on, and only the ends of a bounded read are wanted; None: it begins as its `start` says."""


def derive_unplaced(restore: RestorePlan, bounded: Collection[OperatorName]) -> tuple[Unplaced, ...]:
    """Sources without positions, and `bounded` ones without ends, by name.

    All of them at a first start; later those that were added to the pipeline, and bounded ones that begin anew.
    """
    known = merge_positions(tuple(part for slot in restore.slots for part in slot.positions))
    found = []
    for source in sorted({source for slot in restore.slots for source in slot.partitions}):
        partitions = tuple(sorted(part for slot in restore.slots for part in slot.partitions[source]))
        if source not in known:
            found.append(Unplaced(source, partitions))
            continue
        next_offsets, end_offsets = known[source]
        if source in bounded and partitions and not end_offsets:
            found.append(Unplaced(source, partitions, tuple(sorted(next_offsets.items()))))
    return tuple(found)


def derive_begun(
    state: JournalState, now: Identity, placed: Sequence[SourcePositions], starts: Mapping[OperatorName, str]
) -> Chosen:
    """What is appended: the newest checkpoint with `placed` in it, once all that it lists is committed.

    `starts` says how the `start` of those that begin read.
    """
    newest, identity = state.newest_checkpoint, state.identity
    fixed = tuple(sorted(starts.items()))
    if newest is None or identity is None:
        begun = CompletedCheckpoint(
            id=state.reserved_to,  # id, attempt and times are the journal's to fill in
            attempt=state.attempt,
            triggered_at_ms=0,
            completed_at_ms=0,
            positions=tuple(placed),
            states=(),
            committables=(),
            starts=fixed,
        )
        return Chosen(begun, now)
    anew = {positions.source for positions in placed}
    kept = tuple(positions for positions in newest.positions if positions.source not in anew)
    begun = msgspec.structs.replace(
        newest, positions=(*kept, *placed), committables=(), final=False, starts=(*newest.starts, *fixed)
    )
    return Chosen(begun, msgspec.structs.replace(now, parallelism=identity.parallelism))


def derive_moved_starts(
    checkpoint: CompletedCheckpoint, starts: Mapping[OperatorName, str]
) -> tuple[tuple[OperatorName, str, str], ...]:
    """Sources whose `start` was changed since their positions were fixed: name, what it was, what it is."""
    return tuple(
        (source, fixed, starts[source])
        for source, fixed in checkpoint.starts
        if source in starts and starts[source] != fixed
    )
