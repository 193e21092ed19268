"""The restore plan of a new attempt: the newest checkpoint, distributed to the current subtasks. Pure.

Decided before the takeover, to refuse a wrong start without disturbing a running daemon, and again after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tidegate.committable import Committable
from tidegate.coordinator.clusters import ClusterProblem, find_moved, find_recreated, find_replaced, find_unreachable
from tidegate.coordinator.entries import Identity
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.types import CompletedCheckpoint, SourcePositions, StateHandle, StateKind
from tidegate.coordinator.upgrade import (
    UNCHANGED,
    CommandLineDirectives,
    Definition,
    StoredStates,
    Upgrade,
    UpgradeRefusal,
)
from tidegate.coordinator.upgrade_decision import decide_upgrade
from tidegate.errors import BEGIN_ANEW, PipelineStopped
from tidegate.ids import Attempt, CheckpointId, ClusterName, OperatorName, SlotIndex, TopicPartition
from tidegate.plan.assignment import assign_partitions, key_group_range, overlap
from tidegate.plan.evolving import declare_states
from tidegate.plan.graph import Plan, UpgradeDirective
from tidegate.state.declaration import StateDeclaration
from tidegate.storage.names import checkpoint_of_state

FOR_ALL: Final = (StateKind.OUTPUT, StateKind.LIST)
"""Kinds of state that every subtask reads, whatever its key groups are."""


class RestoreRefused(PipelineStopped):
    """The checkpoint does not fit the pipeline that is being started; continuing would lose or duplicate records."""

    code = "restore-refused"
    refusals: tuple[UpgradeRefusal, ...] = ()
    """Each reason with its choices, if the error is about changed steps or sources."""


class RestoreFacts(msgspec.Struct, frozen=True):
    """The pipeline and the cluster as they are now."""

    identity: Identity
    sources: Mapping[OperatorName, Mapping[str, int]]
    """Source -> topic -> number of partitions."""
    stateful: frozenset[OperatorName]
    """Operators with state."""
    edges: frozenset[str] = frozenset()
    """Names of the edges with keys, on which rows in flight can be replayed."""
    plan: Plan | None = None
    """The plan that these facts describe; needed where states are compared or something was renamed."""
    command_line: CommandLineDirectives = CommandLineDirectives()
    """Upgrade directives on the command line."""
    unbounded: frozenset[OperatorName] = frozenset()
    """Sources that are read without an end, even if they had one before."""

    @property
    def definition(self) -> Definition:
        """The definition that `decide_upgrade` compares a checkpoint with."""
        states: dict[OperatorName, tuple[StateDeclaration, ...]] = dict.fromkeys(self.stateful, ())
        directives: Mapping[OperatorName, UpgradeDirective] = {}
        if self.plan is not None:
            directives = self.plan.directives
            for node in self.plan.nodes:
                if node.operator.name in states:
                    states[node.operator.name] = declare_states(node.operator, self.plan.max_parallelism, directives)
        one = self.identity
        return Definition(
            one.fingerprints,
            self.sources,
            states,
            self.edges,
            directives,
            self.command_line,
            self.plan,
            one.code,
            one.files,
        )


class Chosen(msgspec.Struct, frozen=True):
    """A checkpoint to continue from instead of the newest: chosen by a user, or the newest that is undamaged."""

    checkpoint: CompletedCheckpoint
    """Its states are in the pipeline's storage; its committables are those that must still be committed."""
    identity: Identity
    """The current identity, except for the parallelism, which is that of the states."""
    origin: str = ""
    """The origin, as in JournalEntry; empty unless a user chose the checkpoint."""


class SlotRestore(msgspec.Struct, frozen=True):
    """The partitions, positions and states that slot `slot` starts with."""

    slot: SlotIndex
    key_groups: range
    partitions: dict[OperatorName, tuple[TopicPartition, ...]]
    """All partitions to read, per source."""
    positions: tuple[SourcePositions, ...]
    """Positions of sources of the checkpoint, for the partitions above whose topics it knows (C32).

    A partition without a position begins according to `start`.
    """
    states: tuple[StateHandle, ...]
    """State files to scan, including rows in flight; only entries whose key group is in `key_groups` are used."""


class RestorePlan(msgspec.Struct, frozen=True):
    """The parts of a checkpoint that each slot of an attempt restores.

    Created by `decide_restore`; by `decide_replaced`, until a chosen checkpoint replaces the newest; and by
    `decide_chosen`, to examine that choice.
    """

    attempt: Attempt
    checkpoint: CompletedCheckpoint | None
    slots: tuple[SlotRestore, ...]
    first_checkpoint: CheckpointId
    """First id that this attempt may use, once the takeover is appended (C10) and after the restored checkpoint."""
    journal: str = ""
    """Token of the journal, for transactional ids; known once the takeover is appended."""
    upgrade: Upgrade = UNCHANGED
    """Mapping from steps of the checkpoint to the current ones; slots receive everything under current names."""
    base: frozenset[CheckpointId] = frozenset()
    """Checkpoints that wrote the keyed state, if the next snapshots may build on it: every slot restores the files of
    one subtask, which had the same key groups. Otherwise empty.
    """

    @property
    def positions(self) -> tuple[SourcePositions, ...]:
        """Positions of the checkpoint under the current names."""
        return () if self.checkpoint is None else self.upgrade.map_positions(self.checkpoint.positions)

    @property
    def committables(self) -> tuple[Committable, ...]:
        """Transactions that must be ended before anything else is done."""
        return () if self.checkpoint is None else self.checkpoint.committables


def decide_restore(state: JournalState, facts: RestoreFacts) -> RestorePlan:
    """Decides what to restore, before or after the takeover.

    Raises RestoreRefused with the old value, the new value and a remedy.
    """
    restore = _deal_out(state, state.newest_checkpoint, state.identity, facts)
    refuse_unreachable(state, facts.identity)
    return restore


def decide_chosen(state: JournalState, chosen: Chosen, facts: RestoreFacts) -> RestorePlan:
    """Predicts what `decide_restore` will return once `chosen` is appended. Raises RestoreRefused."""
    return _deal_out(state, chosen.checkpoint, chosen.identity, facts)


def _deal_out(
    state: JournalState, checkpoint: CompletedCheckpoint | None, identity: Identity | None, facts: RestoreFacts
) -> RestorePlan:
    restored = checkpoint
    if identity is None or checkpoint is None:
        upgrade = decide_upgrade(None, None, facts.definition)
        if upgrade.refusals:
            raise refuse_upgrade(upgrade)
    else:
        upgrade = refuse_unfit(checkpoint, identity, facts)
        restored = msgspec.structs.replace(
            checkpoint,
            positions=upgrade.map_positions(checkpoint.positions),
            states=upgrade.map_states(checkpoint.states),
        )
    now = facts.identity
    sources = {source: _assign(topics, now.parallelism) for source, topics in facts.sources.items()}
    before = identity.parallelism if identity is not None else now.parallelism
    slots = []
    for slot in map(SlotIndex, range(now.parallelism)):
        key_groups = key_group_range(slot, now.parallelism, now.max_parallelism)
        partitions = {source: assigned[slot] for source, assigned in sources.items()}
        positions, states = (
            _positions_of(restored, partitions, facts.unbounded),
            _states_of(restored, slot, before, now),
        )
        slots.append(SlotRestore(slot, key_groups, partitions, positions, states))
    return RestorePlan(
        attempt=state.attempt,
        journal=state.journal,
        checkpoint=checkpoint,
        slots=tuple(slots),
        first_checkpoint=_first_of(state),
        upgrade=upgrade,
        base=_base_of(restored) if before == now.parallelism else frozenset(),
    )


def decide_replaced(state: JournalState, facts: RestoreFacts) -> RestorePlan:
    """Plans the end of the newest checkpoint's transactions, before another checkpoint replaces it.

    Nothing of it is restored, so it need not fit the current pipeline. Raises RestoreRefused if it belongs to another
    pipeline or cluster.
    """
    if state.identity is not None:
        refuse_other_identity(state.identity, facts.identity)
    refuse_unreachable(state, facts.identity)
    return RestorePlan(
        attempt=state.attempt,
        journal=state.journal,
        checkpoint=state.newest_checkpoint,
        slots=(),
        first_checkpoint=_first_of(state),
    )


def refuse_unfit(
    checkpoint: CompletedCheckpoint, identity: Identity, facts: RestoreFacts, stored: StoredStates | None = None
) -> Upgrade:
    """Decides how a checkpoint of this identity maps to the current pipeline; `stored` is as in `decide_upgrade`.

    Raises RestoreRefused, with all reasons, if it does not fit.
    """
    refuse_other_identity(identity, facts.identity)
    upgrade = decide_upgrade(checkpoint, identity, facts.definition, stored)
    if upgrade.refusals:
        raise refuse_upgrade(upgrade)
    positions = upgrade.map_positions(checkpoint.positions)
    _refuse(find_moved(positions, identity, facts.identity, upgrade))
    _refuse_shrunk(positions, facts)
    return upgrade


def refuse_upgrade(upgrade: Upgrade) -> RestoreRefused:
    """Returns the error for an upgrade with refusals."""
    first = upgrade.refusals[0]
    first_text, *more = map(str, upgrade.refusals)
    text = ". ".join([first_text, *(one[0].upper() + one[1:] for one in more)])
    refused = RestoreRefused(text, operator=first.name, changes=list(first.changes))
    refused.refusals = upgrade.refusals
    return refused


def _first_of(state: JournalState) -> CheckpointId:
    """Returns the takeover's first id, or a higher one if a checkpoint was appended again to be restored."""
    if state.takeover is None:
        return CheckpointId(state.reserved_to + 1)
    newest = state.newest_checkpoint
    return max(state.takeover.first_checkpoint, CheckpointId(0 if newest is None else newest.id + 1))


def decide_repeated(plan: RestorePlan, state: JournalState) -> RestorePlan:
    """Returns the plan for a newest checkpoint that repeats the restored one with salvaged transactions, or none.

    Raises ValueError if it is a different checkpoint.
    """
    old, again = plan.checkpoint, state.newest_checkpoint
    if old is None or again is None:
        raise ValueError("nothing is restored that could be repeated")
    if (old.positions, old.states, old.final) != (again.positions, again.states, again.final):
        raise ValueError(f"checkpoint {again.id} does not repeat the restored one")
    return msgspec.structs.replace(plan, checkpoint=again, first_checkpoint=_first_of(state))


def _assign(topics: Mapping[str, int], parallelism: int) -> tuple[tuple[TopicPartition, ...], ...]:
    every = (TopicPartition(topic, number) for topic, count in topics.items() for number in range(count))
    return assign_partitions(every, parallelism)


def _positions_of(
    checkpoint: CompletedCheckpoint | None,
    assigned: Mapping[OperatorName, tuple[TopicPartition, ...]],
    unbounded: frozenset[OperatorName],
) -> tuple[SourcePositions, ...]:
    """Returns where the assigned partitions continue.

    Partitions added to a topic after the checkpoint are read from their beginning, because none of their records was
    read. In a bounded read they are past the end, which was fixed when the read began. A bounded read that has ended
    starts again with new ends. A source of `unbounded` is read beyond its former ends. Topics that the checkpoint does
    not know have no positions.
    """
    if checkpoint is None:
        return ()
    found = []
    known, watermarks = merge_positions(checkpoint.positions), merge_watermarks(checkpoint.positions)
    event_times = {part.source: part.event_time for part in checkpoint.positions if part.watermarks}
    ended = checkpoint.final and _reaches_ends([known[source] for source in known.keys() - unbounded])
    for source, partitions in sorted(assigned.items()):
        next_offsets, end_offsets = known.get(source, ({}, {}))
        topics = {partition.topic for partition in next_offsets}
        placed = [partition for partition in partitions if partition.topic in topics]
        ends = {} if ended or source in unbounded else end_offsets
        if source in known:
            found.append(
                SourcePositions(
                    source=source,
                    next_offsets=tuple((p, next_offsets.get(p, 0)) for p in placed),
                    end_offsets=tuple((p, ends.get(p, 0)) for p in placed) if ends else (),
                    watermarks=tuple((p, watermarks[source, p]) for p in placed if (source, p) in watermarks),
                    event_time=event_times.get(source, ""),
                )
            )
    return tuple(found)


Offsets = dict[TopicPartition, int]


def _reaches_ends(bounded: Iterable[tuple[Offsets, Offsets]]) -> bool:
    """Tells whether all bounded reads have ended.

    A stop earlier than that also takes a final checkpoint, but keeps the ends.
    """
    return all(nexts.get(part, 0) >= end for nexts, ends in bounded for part, end in ends.items())


def merge_positions(positions: tuple[SourcePositions, ...]) -> dict[OperatorName, tuple[Offsets, Offsets]]:
    """Returns next offsets and end offsets per source, merged over all subtasks."""
    merged: dict[OperatorName, tuple[Offsets, Offsets]] = {}
    for part in positions:
        next_offsets, end_offsets = merged.setdefault(part.source, ({}, {}))
        next_offsets.update(part.next_offsets)
        end_offsets.update(part.end_offsets)
    return merged


def merge_watermarks(positions: tuple[SourcePositions, ...]) -> dict[tuple[OperatorName, TopicPartition], int]:
    """Returns the watermarks of partitions that have one, merged over all subtasks; a rescale keeps them."""
    return {(part.source, at): watermark_ms for part in positions for at, watermark_ms in part.watermarks}


def merge_by_cluster(
    positions: tuple[SourcePositions, ...], clusters: Mapping[OperatorName, ClusterName]
) -> dict[ClusterName, Offsets]:
    """Returns next offsets for each of these clusters, of the sources in it; other sources are left out."""
    return {
        name: merge_offsets(tuple(one for one in positions if clusters.get(one.source) == name))
        for name in dict.fromkeys(clusters.values())
    }


def merge_offsets(positions: tuple[SourcePositions, ...]) -> Offsets:
    """Returns next offsets merged over sources of one cluster; the lowest where several sources read a partition."""
    merged: Offsets = {}
    for offsets, _ in merge_positions(positions).values():
        for part, offset in offsets.items():
            merged[part] = min(offset, merged.get(part, offset))
    return merged


def _states_of(
    checkpoint: CompletedCheckpoint | None, slot: SlotIndex, before: int, now: Identity
) -> tuple[StateHandle, ...]:
    """Returns the files of every old subtask whose key groups overlap with the new ones, in checkpoint order (F28).

    All subtasks get rows in flight that had not left their sender, which may belong to any of them, and lists, which
    their readers divide among themselves.
    """
    if checkpoint is None:
        return ()
    wanted = key_group_range(slot, now.parallelism, now.max_parallelism)
    sharing = {
        old for old in range(before) if overlap(key_group_range(SlotIndex(old), before, now.max_parallelism), wanted)
    }
    return tuple(handle for handle in checkpoint.states if handle.subtask in sharing or handle.kind in FOR_ALL)


def _base_of(checkpoint: CompletedCheckpoint | None) -> frozenset[CheckpointId]:
    states = () if checkpoint is None else checkpoint.states
    written = {checkpoint_of_state(handle.path) for handle in states if handle.kind is StateKind.OPERATOR}
    return frozenset(one for one in written if one is not None)


def _refuse(problem: ClusterProblem | None) -> None:
    if problem is not None:
        raise RestoreRefused(problem.message, **problem.fields)


def refuse_unreachable(state: JournalState, now: Identity) -> None:
    """Raises RestoreRefused if transactions that must still be committed are in a cluster that nothing uses now."""
    if state.identity is not None:
        _refuse(find_unreachable(state.committables, state.identity, now))


def refuse_other_identity(old: Identity, new: Identity) -> None:
    """Raises RestoreRefused if pipeline, a cluster, a topic id or `max_parallelism` differs."""
    if old.pipeline != new.pipeline:
        raise RestoreRefused(
            f"the checkpoint directory belongs to pipeline {old.pipeline!r}, this is {new.pipeline!r}; give every "
            "pipeline its own `checkpoints.directory`, or put the old name back",
            old=old.pipeline,
            new=new.pipeline,
        )
    _refuse(find_replaced(old, new) or find_recreated(old, new))
    if old.max_parallelism != new.max_parallelism:
        raise RestoreRefused(
            f"max_parallelism was {old.max_parallelism} and is now {new.max_parallelism}; it is fixed for the life of "
            f"the state: set it back to {old.max_parallelism}, or start with {BEGIN_ANEW}",
            old=old.max_parallelism,
            new=new.max_parallelism,
        )


def _refuse_shrunk(positions: tuple[SourcePositions, ...], facts: RestoreFacts) -> None:
    for source, (next_offsets, _) in sorted(merge_positions(positions).items()):
        for partition in sorted(next_offsets):
            count = facts.sources[source][partition.topic]
            if partition.partition >= count:
                raise RestoreRefused(
                    f"topic {partition.topic} has {count} partitions, the checkpoint holds a position of partition "
                    f"{partition.partition}; the topic is another one than before: correct `bootstrap.servers` or the "
                    f"topic, or start with {BEGIN_ANEW}",
                    source=source,
                    partition=str(partition),
                    partitions=count,
                )
