"""A savepoint created from rows: state for a pipeline to begin with, derived from historical data.

    states = check_rows(plan, [StepRows("totals", frame)])
    write_rows_savepoint(plan, states, positions, folder, identity=..., token=..., now_ms=...)

A step can be written if its only state is keyed: running totals, `keep: last`, `keep` with a ranking per record. Steps
that keep several related states (windows, `dedup`, calls in flight, extremes of changes) are refused by name. Sources
without positions begin according to `start` in the pipeline file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import polars as pl

from tidegate.coordinator.entries import Identity, Savepoint
from tidegate.coordinator.types import CompletedCheckpoint, SourcePositions, StateHandle
from tidegate.coordinator.upgrade import Definition, derive_applied
from tidegate.ids import Attempt, CheckpointId, OperatorName, SlotIndex, StateName
from tidegate.journal.savepoint import FORMAT_VERSION, METADATA, encode_metadata, remove_written
from tidegate.journal.state_files import derive_head
from tidegate.plan.assignment import key_group_range
from tidegate.plan.clusters import derive_sink_clusters, derive_source_clusters
from tidegate.plan.graph import Plan
from tidegate.plan.state_fingerprints import derive_fingerprints
from tidegate.state.declaration import StateDeclaration
from tidegate.state.snapshot import Entry, encode_snapshot
from tidegate.storage.base import Storage, StorageError
from tidegate.storage.checksum import seal
from tidegate.storage.names import STATE_PREFIX
from tidegate.tables.rows import RowsRefused, StateRows

FILE_ENTRIES: Final = 200_000
"""A file ends after the key group with which it reaches this number of entries."""
FIRST_CHECKPOINT: Final = CheckpointId(1)
FIRST_ATTEMPT: Final = Attempt(1)


class StepRows(msgspec.Struct, frozen=True):
    """The rows of one step: a frame with the columns that `StateRows` accepts."""

    step: str
    frame: pl.DataFrame


class CheckedRows(msgspec.Struct, frozen=True):
    """The checked rows of one step; created only by `check_rows`."""

    step: OperatorName
    declaration: StateDeclaration
    frame: pl.DataFrame
    """The result of StateRows.read."""


def check_rows(plan: Plan, parts: Sequence[StepRows]) -> list[CheckedRows]:
    """Checks all rows before anything is written. Raises RowsRefused."""
    steps = [part.step for part in parts]
    for step in steps:
        if steps.count(step) > 1:
            raise RowsRefused(f"step {step!r} is given twice: put its rows into one input")
    found = []
    for part in parts:
        declaration = choose_declaration(plan, part.step)
        rows = StateRows(declaration, f"step {part.step!r}").read(part.frame)
        found.append(CheckedRows(OperatorName(part.step), declaration, rows))
    return found


def choose_declaration(plan: Plan, step: str) -> StateDeclaration:
    """Returns the declaration of a step's only writable state. Raises RowsRefused with the reason if there is none."""
    found = {
        node.operator.name: states for node in plan.nodes if (states := node.operator.states(plan.max_parallelism))
    }
    if step not in found:
        known = ", ".join(sorted(found)) or "none"
        raise RowsRefused(f"{plan.pipeline} has no step {step!r} with state; it has: {known}")
    states = found[OperatorName(step)]
    names = ", ".join(one.name for one in states)
    if len(states) > 1:
        raise RowsRefused(
            f"step {step!r} keeps several states that belong together ({names}): writing them is not supported yet; "
            "only steps with one state by key are: running totals, `keep: last`, `keep` with `emit: each`"
        )
    if not states[0].keyed:
        raise RowsRefused(
            f"step {step!r} keeps a list ({names}), which belongs to a running pipeline: leave out the step"
        )
    return states[0]


def derive_identity(plan: Plan) -> Identity:
    """Derives the identity of the savepoint, which names no cluster: a source can continue on any.

    Upgrade directives in the file count as applied, because they concern state older than these rows.
    """
    fingerprints = derive_fingerprints(plan)
    definition = Definition(fingerprints, {}, dict.fromkeys(fingerprints, ()), frozenset(), directives=plan.directives)
    return Identity(
        pipeline=plan.pipeline,
        clusters={},
        sources=derive_source_clusters(plan),
        sinks=derive_sink_clusters(plan),
        parallelism=plan.parallelism,
        max_parallelism=plan.max_parallelism,
        fingerprints=fingerprints,
        code=plan.code,
        files=plan.digests,
        applied_directives=derive_applied({}, definition, {}),
    )


def write_rows_savepoint(
    plan: Plan,
    states: Sequence[CheckedRows],
    positions: Sequence[SourcePositions],
    target: Storage,
    *,
    identity: Identity,
    token: str,
    now_ms: int,
) -> Savepoint:
    """Writes the files, then the metadata, into an empty folder.

    Raises RowsRefused if the folder is not empty. On StorageError, written objects are removed as far as the storage
    allows.
    """
    if target.list(""):
        raise RowsRefused(f"{target.location} is not empty: name a new folder")
    written: list[str] = []
    handles: list[StateHandle] = []
    try:
        for state in states:
            for handle, data in _encode(plan, state, len(handles)):
                written.append(handle.path)
                target.put(handle.path, data)
                handles.append(handle)
        checkpoint = CompletedCheckpoint(
            id=FIRST_CHECKPOINT,
            attempt=FIRST_ATTEMPT,
            triggered_at_ms=now_ms,
            completed_at_ms=now_ms,
            positions=tuple(positions),
            states=tuple(handles),
            committables=(),
        )
        keys = sum(state.frame.height for state in states)
        savepoint = Savepoint(FORMAT_VERSION, token, now_ms, identity, checkpoint, from_rows=True, keys=keys)
        written.append(METADATA)
        target.put(METADATA, encode_metadata(savepoint))
    except StorageError:
        remove_written(target, written)
        raise
    return savepoint


def _encode(
    plan: Plan,
    state: CheckedRows,
    number: int,
) -> Iterator[tuple[StateHandle, bytes]]:
    """Yields files of one subtask each, as if the plan's parallelism had written them."""
    step, declaration = state.step, state.declaration
    held: dict[int, list[Entry]] = {}
    slot = SlotIndex(0)

    def file() -> tuple[StateHandle, bytes]:
        nonlocal number
        data = seal(encode_snapshot(step, declaration, held))
        path = f"{STATE_PREFIX}{number:05d}-{step}-{slot}.state"
        number += 1
        head_bytes, head_sha256 = derive_head(data)
        handle = StateHandle(
            operator=step,
            subtask=slot,
            path=path,
            size_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            state=StateName(declaration.name),
            head_bytes=head_bytes,
            head_sha256=head_sha256,
        )
        return handle, data

    for group, entries in StateRows(declaration, step).entries(state.frame):
        while group not in key_group_range(slot, plan.parallelism, plan.max_parallelism):
            if held:
                yield file()
                held = {}
            slot = SlotIndex(slot + 1)
        held[group] = entries
        if sum(map(len, held.values())) >= FILE_ENTRIES:
            yield file()
            held = {}
    if held:
        yield file()
