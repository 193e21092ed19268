"""State that the pipeline, as it is now, could not read: seen from the headers of a few files, before anything runs.

The slots compare every file that they restore. Here one of each state is enough, the smallest: all have the shape of
the definition that wrote them. Damage is passed over: the recovery looks for it, and for a way around it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.coordinator.types import CompletedCheckpoint, StateHandle
from tidegate.plan.graph import Plan
from tidegate.state.snapshot import read_header, refuse_other_state
from tidegate.storage.base import ObjectCorrupt, ObjectMissing, Storage
from tidegate.storage.checksum import unseal
from tidegate.task.inflight import derive_shapes, refuse_other_edges
from tidegate.task.restore import unknown_state


def refuse_unfit_state(storage: Storage, plan: Plan, checkpoint: CompletedCheckpoint) -> None:
    """Raises StateUnreadable, InflightUnreadable; StorageError when the storage fails."""
    edges = derive_shapes(plan)
    for handle in _samples(checkpoint.states):
        try:
            data = unseal(handle.path, storage.get(handle.path))
        except (ObjectCorrupt, ObjectMissing):
            continue
        if handle.in_flight:
            refuse_other_edges(handle.path, data, edges)
        else:
            _refuse_other_state(handle, data, plan)


def _refuse_other_state(handle: StateHandle, data: bytes, plan: Plan) -> None:
    """State of an operator that the plan does not have is the recovery's business."""
    header, _ = read_header(data)
    for node in plan.nodes:
        if node.operator.name == handle.operator:
            declared = {one.name: one for one in node.operator.states(plan.max_parallelism)}
            if header.state not in declared:
                raise unknown_state(handle.operator, header.state, declared)
            refuse_other_state(header, handle.operator, declared[header.state])


def _samples(handles: Iterable[StateHandle]) -> list[StateHandle]:
    """The smallest file of each state, and of each set of edges."""
    smallest: dict[tuple[object, ...], StateHandle] = {}
    for handle in handles:
        owner = (handle.kind, handle.operator, handle.state, handle.edges)
        if owner not in smallest or handle.size_bytes < smallest[owner].size_bytes:
            smallest[owner] = handle
    return list(smallest.values())
