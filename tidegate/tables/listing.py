"""The contents of a checkpoint or savepoint without its entries: steps, states, keys, bytes, files."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidegate.coordinator.types import StateHandle
from tidegate.ids import OperatorName, StateName
from tidegate.state.declaration import Serializer
from tidegate.tables.files import StateFiles, list_states, read_files
from tidegate.tables.source import StateSnapshot
from tidegate.tables.table import Role, StateTable


class ColumnInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of a state's table."""

    name: str
    type: str
    role: Role
    function: str = ""
    """The aggregate function of a result, as far as the accumulator reveals it."""


class StateInfo(msgspec.Struct, frozen=True):
    """One state of one step."""

    step: OperatorName
    state: StateName
    form: str
    keys: int | None
    """Number of keys; None if increments may have changed it.

    `entries` counts those of full files, `changes` those of later increments.
    """
    entries: int
    changes: int
    bytes: int
    files: int
    increments: int
    serializer: str
    columns: tuple[ColumnInfo, ...]


class InflightInfo(msgspec.Struct, frozen=True):
    """Rows that were in flight between subtasks at an unaligned barrier."""

    edges: tuple[str, ...]
    bytes: int
    files: int


class PositionInfo(msgspec.Struct, frozen=True):
    """The position of a source in a partition."""

    source: OperatorName
    partition: str
    offset: int


class StateListing(msgspec.Struct, frozen=True):
    """The contents of a checkpoint or savepoint."""

    source: str
    pipeline: str
    checkpoint: int
    completed_at_ms: int
    parallelism: int
    max_parallelism: int
    states: tuple[StateInfo, ...]
    in_flight: tuple[InflightInfo, ...]
    positions: tuple[PositionInfo, ...]


def read_listing(snapshot: StateSnapshot) -> StateListing:
    """Reads the contents. Raises what `read_files` raises."""
    checkpoint, identity = snapshot.checkpoint, snapshot.identity
    positions = {
        (part.source, str(partition)): offset
        for part in checkpoint.positions
        for partition, offset in part.next_offsets
    }
    return StateListing(
        source=snapshot.title,
        pipeline=identity.pipeline,
        checkpoint=checkpoint.id,
        completed_at_ms=checkpoint.completed_at_ms,
        parallelism=identity.parallelism,
        max_parallelism=identity.max_parallelism,
        states=tuple(_describe(read_files(snapshot, state)) for state in list_states(snapshot)),
        in_flight=_in_flight([handle for handle in checkpoint.states if handle.in_flight]),
        positions=tuple(PositionInfo(*place, offset) for place, offset in sorted(positions.items())),
    )


def _describe(state: StateFiles) -> StateInfo:
    full = sum(file.entries for file in state.files if not file.handle.increment)
    changes = sum(file.entries for file in state.files if file.handle.increment)
    columns = StateTable(state.shape).columns
    return StateInfo(
        step=state.operator,
        state=state.state,
        form=state.shape.form.value,
        keys=None if changes else full,
        entries=full,
        changes=changes,
        bytes=sum(file.handle.size_bytes for file in state.files),
        files=len(state.files),
        increments=sum(file.handle.increment for file in state.files),
        serializer=_render_serializer(state.shape.serializer),
        columns=tuple(ColumnInfo(one.name, str(one.type), one.role, one.function) for one in columns),
    )


def _render_serializer(serializer: Serializer) -> str:
    parameters = ", ".join(f"{name}={value}" for name, value in sorted(serializer.parameters.items()))
    return f"{serializer.name} {serializer.version}" + (f" ({parameters})" if parameters else "")


def _in_flight(handles: Sequence[StateHandle]) -> tuple[InflightInfo, ...]:
    """Groups rows in flight by the edges that they were on; a file may have several."""
    found: dict[tuple[str, ...], list[StateHandle]] = {}
    for handle in handles:
        found.setdefault(handle.edges, []).append(handle)
    return tuple(
        InflightInfo(edges, sum(one.size_bytes for one in own), len(own)) for edges, own in sorted(found.items())
    )
