"""Input that retention removed before it was read: which offsets are lost, and a checkpoint that continues after them.

Pure. Applies only to sources with `on_lost_input: continue`. The daemon decides once, between two attempts, what is
skipped, and journals it before anything after it is read (ADR 46), so every restart skips the same offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from tidegate.coordinator.clusters import derive_identity
from tidegate.coordinator.entries import Identity
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.recovery import Chosen, RestorePlan, merge_positions
from tidegate.coordinator.types import LostRange, SourcePositions
from tidegate.coordinator.upgrade import UNCHANGED, Upgrade
from tidegate.ids import OperatorName, TopicPartition


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
