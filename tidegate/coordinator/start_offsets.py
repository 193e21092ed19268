"""Starting offsets of sources, fixed in the journal before their first record is read (ADR 17). Pure.

`start: latest` resolves to different offsets a minute later, and so does `earliest` once retention has removed records.
So the offsets are looked up once and recorded in a checkpoint of positions only. Every attempt restores it like any
other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from tidegate.coordinator.clusters import derive_identity
from tidegate.coordinator.entries import Identity
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.recovery import Chosen, RestorePlan, merge_positions
from tidegate.coordinator.types import CompletedCheckpoint, SourcePositions
from tidegate.coordinator.upgrade import UNCHANGED, Upgrade
from tidegate.ids import OperatorName, TopicPartition


class UnassignedSource(msgspec.Struct, frozen=True):
    """Partitions of a source that lack a position or an end in the checkpoint."""

    source: OperatorName
    partitions: tuple[TopicPartition, ...]
    """Partitions of all subtasks."""
    next_offsets: tuple[tuple[TopicPartition, int], ...] | None = None
    """Their positions, if only the ends of a bounded read are missing; None if they begin according to `start`."""
    known_topics: frozenset[str] = frozenset()
    """Topics of the source with positions of these or other partitions."""


def derive_unplaced(restore: RestorePlan, bounded: Collection[OperatorName]) -> tuple[UnassignedSource, ...]:
    """Returns partitions without positions, and those of `bounded` sources without ends, by source.

    On a first start these are all partitions; later those of added sources and topics, and of bounded sources that
    start again.
    """
    known = merge_positions(tuple(part for slot in restore.slots for part in slot.positions))
    found = []
    for source in sorted({source for slot in restore.slots for source in slot.partitions}):
        partitions = sorted(part for slot in restore.slots for part in slot.partitions[source])
        next_offsets, end_offsets = known.get(source, ({}, {}))
        topics = frozenset(part.topic for part in next_offsets)
        endless = tuple((part, next_offsets[part]) for part in partitions if part in next_offsets)
        if source in bounded and endless and not end_offsets:
            found.append(UnassignedSource(source, tuple(part for part, _ in endless), endless, topics))
        new = tuple(part for part in partitions if part not in next_offsets)
        if new or source not in known:
            found.append(UnassignedSource(source, new, known_topics=topics))
    return tuple(found)


def derive_begun(
    state: JournalState,
    now: Identity,
    placed: Sequence[SourcePositions],
    starts: Mapping[OperatorName, str],
    upgrade: Upgrade = UNCHANGED,
) -> Chosen:
    """Derives what to append: the newest checkpoint with `placed` added, once all its transactions are committed.

    `starts` has the text of `start` for sources that begin. Names remain those of the checkpoint: until an attempt has
    completed one of its own, changes of the pipeline file can be undone.
    """
    placed = [msgspec.structs.replace(one, source=upgrade.former(one.source)) for one in placed]
    starts = {upgrade.former(source): start for source, start in starts.items()}
    newest, identity = state.newest_checkpoint, state.identity
    before = () if newest is None else newest.starts
    fixed = tuple(one for one in sorted(starts.items()) if one[0] not in dict(before))
    if newest is None or identity is None:
        begun = CompletedCheckpoint(
            id=state.reserved_to,  # the journal replaces id, attempt and times
            attempt=state.attempt,
            triggered_at_ms=0,
            completed_at_ms=0,
            positions=tuple(placed),
            states=(),
            committables=(),
            starts=fixed,
        )
        return Chosen(begun, now)
    begun = msgspec.structs.replace(
        newest, positions=(*newest.positions, *placed), committables=(), final=False, starts=(*before, *fixed)
    )
    return Chosen(begun, derive_identity(identity, now))


def derive_moved_starts(
    checkpoint: CompletedCheckpoint, starts: Mapping[OperatorName, str]
) -> tuple[tuple[OperatorName, str, str], ...]:
    """Returns sources whose `start` changed after their positions were fixed: name, old and new `start`."""
    return tuple(
        (source, fixed, starts[source])
        for source, fixed in checkpoint.starts
        if source in starts and starts[source] != fixed
    )
