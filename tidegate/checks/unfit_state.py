"""Finds state that the current pipeline could not read, from the headers of a few files, before anything runs.

For pending asynchronous calls the rows themselves are read: they contain their columns, and are few. The slots compare
every file that they restore. Damage is ignored here, because the recovery detects it and finds a fallback.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tidegate.coordinator.entries import Identity
from tidegate.coordinator.recovery import RestoreFacts, refuse_unfit
from tidegate.coordinator.types import CompletedCheckpoint, StateHandle
from tidegate.coordinator.upgrade import Upgrade
from tidegate.journal.state_files import read_head, read_state, read_stored
from tidegate.plan.graph import Plan
from tidegate.state.snapshot import read_entries, read_header
from tidegate.storage.base import ObjectCorrupt, ObjectMissing, Storage
from tidegate.storage.checksum import unseal
from tidegate.task.inflight import derive_shapes, refuse_other_edges


def refuse_unfit_state(
    storage: Storage, checkpoint: CompletedCheckpoint, identity: Identity, facts: RestoreFacts
) -> Upgrade:
    """Decide what happens to the states. Keys of states that are dropped are counted.

    Raises RestoreRefused, StateUnreadable, InflightUnreadable; StorageError if the storage fails.
    """
    upgrade = refuse_unfit(checkpoint, identity, facts, read_stored(storage, checkpoint.states))
    if facts.plan is not None:
        refuse_unfit_rows(storage, facts.plan, checkpoint.states, upgrade)
    if not upgrade.emptied:
        return upgrade
    gone = [one for one in checkpoint.states if one.operator in upgrade.emptied]
    return refuse_unfit(checkpoint, identity, facts, read_stored(storage, gone, every=True))


def refuse_unfit_rows(storage: Storage, plan: Plan, handles: Sequence[StateHandle], upgrade: Upgrade) -> None:
    """Refuse rows in flight that could not be replayed, and asynchronous calls that could not be repeated.

    `handles` have the names of the checkpoint, and fit otherwise. Raises InflightUnreadable, StateUnreadable,
    StorageError.
    """
    _refuse_unfit_edges(storage, plan, handles, upgrade)
    _refuse_unfit_values(storage, plan, upgrade.map_states(tuple(handles)))


def _refuse_unfit_edges(storage: Storage, plan: Plan, handles: Iterable[StateHandle], upgrade: Upgrade) -> None:
    edges = {
        index: msgspec.structs.replace(shape, name=upgrade.edges.get(shape.name, shape.name))
        for index, shape in derive_shapes(plan).items()
    }
    smallest: dict[tuple[str, ...], StateHandle] = {}
    for handle in handles:
        if handle.in_flight and (handle.edges not in smallest or handle.size_bytes < smallest[handle.edges].size_bytes):
            smallest[handle.edges] = handle
    for handle in smallest.values():
        try:
            data = read_head(storage, handle)
        except (ObjectCorrupt, ObjectMissing):
            continue
        refuse_other_edges(handle.path, data, edges)


def _refuse_unfit_values(storage: Storage, plan: Plan, handles: Iterable[StateHandle]) -> None:
    """Read all files of lists whose declarations verify their values."""
    declared = {
        (node.operator.name, one.name): one
        for node in plan.nodes
        for one in node.operator.states(plan.max_parallelism)
        if one.verify is not None
    }
    for handle in handles:
        declaration = None if handle.in_flight else declared.get((handle.operator, handle.state))
        if declaration is None or declaration.verify is None:
            continue
        try:
            data = unseal(handle.path, read_state(storage, handle))
        except (ObjectCorrupt, ObjectMissing):
            continue
        header, _ = read_header(data)  # it has the step's former name
        for part in read_entries(data, range(1), header.operator, declaration):
            for _, value in part:
                if value is not None:
                    declaration.verify(value)
