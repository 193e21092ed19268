"""Positions that are recorded in the journal before anything is read from them: starting offsets of sources (ADR 17),
and offsets after input that retention has removed (ADR 46). Pure.

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
from tidegate.coordinator.types import CompletedCheckpoint, LostRange, SourcePositions
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


# -- lost input --------------------------------------------------------------------------------------------------------
# Applies only to sources with `on_lost_input: continue`. The daemon decides once, between two attempts, what is
# skipped, and journals it before anything after it is read, so every restart skips the same offsets.


def derive_positions(restore: RestorePlan, sources: Collection[OperatorName]) -> dict[OperatorName, SourcePositions]:
    """Returns where these sources continue, all subtasks together."""
    known = merge_positions(tuple(part for slot in restore.slots for part in slot.positions))
    return {
        source: SourcePositions(source, tuple(sorted(nexts.items())), tuple(sorted(ends.items())))
        for source, (nexts, ends) in sorted(known.items())
        if source in sources
    }


def derive_lost(
    positions: Mapping[OperatorName, SourcePositions], firsts: Mapping[OperatorName, Mapping[TopicPartition, int]]
) -> tuple[LostRange, ...]:
    """Returns the gaps between positions and first available offsets; a bounded read loses nothing after its end."""
    found = []
    for source, one in positions.items():
        ends, first = dict(one.end_offsets), firsts[source]
        for part, offset in one.next_offsets:
            low = min(first.get(part, offset), ends.get(part, first.get(part, offset)))
            if low > offset:
                found.append(LostRange(source, part, offset, low))
    return tuple(found)


def derive_skipped(
    state: JournalState,
    now: Identity,
    lost: Sequence[LostRange],
    upgrade: Upgrade = UNCHANGED,
) -> Chosen:
    """Derives the checkpoint to append: the newest, with positions after the lost ranges. Its transactions have ended.

    Source names are those of the checkpoint.
    """
    lost = [msgspec.structs.replace(one, source=upgrade.former(one.source)) for one in lost]
    newest, identity = state.newest_checkpoint, state.identity
    assert newest is not None, "sources have positions, so there is a checkpoint"
    assert identity is not None, "and an identity with it"
    moved = {(one.source, one.partition): one.to_offset for one in lost}
    positions = tuple(
        msgspec.structs.replace(
            each,
            next_offsets=tuple((part, moved.get((each.source, part), offset)) for part, offset in each.next_offsets),
        )
        for each in newest.positions
    )
    known = {(each.source, part) for each in newest.positions for part, _ in each.next_offsets}
    added = tuple(
        SourcePositions(one.source, ((one.partition, one.to_offset),))
        for one in lost
        if (one.source, one.partition) not in known  # a partition that was added to the topic since
    )
    skipped = msgspec.structs.replace(
        newest, positions=(*positions, *added), committables=(), final=False, lost=tuple(lost)
    )
    return Chosen(skipped, derive_identity(identity, now))
