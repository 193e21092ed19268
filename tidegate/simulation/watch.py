"""Checks that are made while a schedule is played, and of what remains at its end."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.coordinator.entries import AnyEntry, CheckpointEntry, Savepoint, decode_entry
from tidegate.coordinator.journal_state import derive
from tidegate.coordinator.ledger import listed_paths
from tidegate.daemon.hanging_transactions import LOOK_S
from tidegate.daemon.housekeeping import JANITOR_S
from tidegate.errors import TidegateError
from tidegate.ids import CheckpointId, JournalSequence, TopicPartition
from tidegate.journal.savepoint import METADATA
from tidegate.kafka.facts import CoordinatorState
from tidegate.simulation.model_broker.codes import RequestRefused
from tidegate.simulation.workload import PIPELINE
from tidegate.sinks.naming import derive_name
from tidegate.storage.checksum import unseal
from tidegate.storage.names import STATE_PREFIX, journal_sequence

if TYPE_CHECKING:
    from tidegate.simulation.world import World

SHOWN: Final = 6
STANDING_S: Final = LOOK_S + JANITOR_S
"""Maximum time for which readers of a partition may be blocked while an attempt runs and brokers can be reached.

In this time a zombie's transaction is fenced and a lost marker is written. All other transactions end with their
checkpoint or before the attempt.
"""


class RuleWatch:
    """The watch over one world."""

    def __init__(self, world: World) -> None:
        self.longest_standing_s = 0.0
        """The longest time that readers of a partition were blocked although they should not have been."""
        self._world = world
        self._stands: dict[TopicPartition, tuple[int, float]] = {}
        """Partition -> where read-committed readers are blocked before further records, and for how long."""
        self._checked_at = world.kernel.now

    def look(self) -> None:
        """Checks the end of the committed part of every output."""
        world = self._world
        for broker in world.clusters.brokers:
            world.problems += broker.strays
            broker.strays.clear()
        now = world.kernel.now
        passed_s, self._checked_at = now - self._checked_at, now
        now_ms = world.kernel.clock.now_ms()
        counts = world.operations.is_running and world.clusters.are_reachable(now)
        for place in world.account.outputs.places:
            broker, there = world.clusters.at(place)
            try:
                offsets = broker.offsets(now_ms, there)
            except RequestRefused:
                continue
            stable, stood_s = self._stands.get(place, (-1, 0.0))
            if offsets.stable == offsets.end:
                self._stands.pop(place, None)
            elif offsets.stable != stable:
                self._stands[place] = (offsets.stable, 0.0)
            elif counts:
                self._stands[place] = (stable, stood_s + passed_s)
                self.longest_standing_s = max(self.longest_standing_s, stood_s + passed_s)
                if stood_s <= STANDING_S < stood_s + passed_s:
                    world.problems.append(f"{place}: readers have been blocked at {stable} for {STANDING_S:.0f} s")


def check_left(world: World) -> list[str]:
    """Returns everything that the last daemon, which was not disturbed, has left although it should not."""
    return [
        *_check_transactions(world),
        *_check_mirrored(world),
        *_check_objects(world),
        *_check_savepoints(world),
    ]


def _check_transactions(world: World) -> list[str]:
    now_ms = world.kernel.clock.now_ms()
    problems = []
    for place in world.account.outputs.places:
        broker, there = world.clusters.at(place)
        offsets = broker.offsets(now_ms, there)
        if offsets.stable != offsets.end:
            problems.append(f"{place}: an open transaction holds readers at {offsets.stable} of {offsets.end}")
    hanging = [
        one.transactional_id
        for broker in world.clusters.brokers
        for one in broker.list_transactions(now_ms)
        if one.state is not CoordinatorState.EMPTY
        and one.state not in (CoordinatorState.COMPLETE_COMMIT, CoordinatorState.COMPLETE_ABORT)
        and derive_name(one.transactional_id) is not None
    ]
    if hanging:
        problems.append(f"transactions are left open: {hanging[:SHOWN]}")
    return problems


def _check_mirrored(world: World) -> list[str]:
    """Checks that each cluster has exactly the positions of the sources that read there."""
    wanted: dict[str, dict[TopicPartition, int]] = {broker.cluster_id: {} for broker in world.clusters.brokers}
    for place, offset in world.account.positions.items():
        broker, there = world.clusters.at(place)
        wanted[broker.cluster_id][there] = offset
    problems = []
    for broker in world.clusters.brokers:
        mirrored = {place: offset for place, (offset, _) in broker.group_offsets(PIPELINE).items()}
        if mirrored != wanted[broker.cluster_id]:
            problems.append(f"mirrored to {broker.cluster_id}: {mirrored} instead of {wanted[broker.cluster_id]}")
    return problems


def read_journal(objects: Mapping[str, bytes]) -> dict[JournalSequence, AnyEntry]:
    """Reads the journal of a checkpoint directory from outside."""
    return {
        number: decode_entry(number, data)
        for name, data in objects.items()
        if (number := journal_sequence(name)) is not None
    }


def newest_checkpoint(objects: Mapping[str, bytes]) -> CheckpointId:
    """Returns the newest checkpoint of a journal; 0 without a journal or if an entry is damaged."""
    try:
        entries = read_journal(objects).values()
    except TidegateError:
        return CheckpointId(0)
    return max((one.checkpoint.id for one in entries if isinstance(one, CheckpointEntry)), default=CheckpointId(0))


def _check_objects(world: World) -> list[str]:
    """Checks that the checkpoint directory contains exactly the retained checkpoints' files and entries."""
    entries = read_journal(world.operations.objects)
    state = derive(list(entries.items()))
    assert state.newest is not None, "the last daemon has ended as it was asked to"
    floor = state.newest.floor
    wanted = listed_paths(entry.checkpoint for entry in state.retained)
    found = {name for name in world.operations.objects if name.startswith(STATE_PREFIX)}
    problems = []
    if found - wanted:
        problems.append(f"{len(found - wanted)} state files are left over: {sorted(found - wanted)[:SHOWN]}")
    if wanted - found:
        problems.append(f"{len(wanted - found)} state files are missing: {sorted(wanted - found)[:SHOWN]}")
    below = sorted(number for number in entries if number < floor)
    if below:
        problems.append(f"{len(below)} journal entries below {floor} are left over: {below[:SHOWN]}")
    return problems


def _check_savepoints(world: World) -> list[str]:
    """Checks that savepoints stay complete once they are reported as finished, because they belong to their owners."""
    problems = []
    for path in world.operations.savepoints:
        metadata = world.machines.files.get(f"{path}/{METADATA}")
        if metadata is None:
            problems.append(f"savepoint {path} has lost its metadata")
            continue
        savepoint = msgspec.json.decode(unseal(METADATA, metadata), type=Savepoint)
        for handle in savepoint.checkpoint.states:
            data = world.machines.files.get(f"{path}/{handle.path}", b"")
            if hashlib.sha256(data).hexdigest() != handle.sha256:
                problems.append(f"savepoint {path}: {handle.path} is gone or changed")
    return problems
