"""The files of a snapshot by step and state, and the entries in them, merged by key group.

An increment has what changed since the files before it, so the last file that has a key determines its value, and a
tombstone removes the key (`state/snapshot.py`). Files hold their key groups in ascending order, so they are merged side
by side: only one key group and the files that have it are in memory, never a whole state. All bytes are verified
against the handles of the checkpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import msgspec

from tidegate.coordinator.types import StateHandle, StateKind
from tidegate.errors import PipelineStopped
from tidegate.ids import CheckpointId, OperatorName, StateName
from tidegate.journal.savepoint import COPY_AGAIN
from tidegate.journal.state_files import read_head, read_parts, refuse_broken_chains
from tidegate.plan.assignment import key_group_range, overlap
from tidegate.state.declaration import StateDeclaration, StateForm, StateShape
from tidegate.state.snapshot import Entry, SnapshotHeader, read_entries, read_header
from tidegate.storage.base import ObjectCorrupt, ObjectMissing
from tidegate.tables.source import StateSnapshot, read_journal
from tidegate.task.restore import group_by_state


class SnapshotGone(PipelineStopped):
    """The pipeline removed the checkpoint while it was being read."""

    code = "state-snapshot-gone"
    exit_code = 1


class StateUnknown(PipelineStopped):
    """The snapshot has no such step or state."""

    code = "state-unknown"
    exit_code = 2


class StateFile(msgspec.Struct, frozen=True):
    """A file and its header, which lists its key groups."""

    handle: StateHandle
    header: SnapshotHeader

    @property
    def entries(self) -> int:
        """Number of entries in the file, including tombstones."""
        return sum(part.entries for part in self.header.groups)


class StateFiles(msgspec.Struct, frozen=True):
    """The files of one state of one step, of all subtasks, in the order of the checkpoint."""

    operator: OperatorName
    state: StateName
    files: tuple[StateFile, ...]

    @property
    def shape(self) -> StateShape:
        """The shape in the newest file."""
        return self.files[-1].header.shape

    @property
    def declaration(self) -> StateDeclaration:
        """A declaration that can read every file of the state."""
        return StateDeclaration(self.state, self.shape)

    @property
    def keyed(self) -> bool:
        """True if the state is keyed rather than a list."""
        return self.shape.form is StateForm.KEYED

    @property
    def key_groups(self) -> tuple[int, ...]:
        """The key groups that have entries, ascending."""
        return tuple(sorted({part.group for file in self.files for part in file.header.groups}))

    def within(self, key_groups: range) -> StateFiles:
        """Returns the state without files that have none of these key groups."""
        kept = tuple(file for file in self.files if any(part.group in key_groups for part in file.header.groups))
        return msgspec.structs.replace(self, files=kept)


@contextmanager
def _watched(snapshot: StateSnapshot, handle: StateHandle) -> Iterator[None]:
    """Converts errors about missing and damaged files.

    Raises SnapshotGone for a file that is missing because its checkpoint was removed, and ObjectCorrupt for a damaged
    savepoint, whose remedy differs from that of a checkpoint.
    """
    try:
        yield
    except (ObjectCorrupt, ObjectMissing) as damage:
        if not snapshot.retained:
            problem = f"{snapshot.title} is damaged: {damage.fields.get('problem', damage.message)}"
            raise ObjectCorrupt(f"{problem}; {COPY_AGAIN}", name=handle.path, problem=problem) from damage
        if isinstance(damage, ObjectCorrupt):
            raise
        if _is_retained(snapshot, snapshot.checkpoint.id):
            raise
        raise SnapshotGone(
            f"{snapshot.title} was removed while it was read: the pipeline keeps its newest ones only. Read `newest`, "
            "take a savepoint and read that, or raise `checkpoints.retained`",
            name=handle.path,
        ) from damage


def _read_head(snapshot: StateSnapshot, handle: StateHandle) -> bytes:
    with _watched(snapshot, handle):
        return read_head(snapshot.storage, handle)


def _read_parts(snapshot: StateSnapshot, handle: StateHandle, key_groups: range) -> Iterator[bytes]:
    with _watched(snapshot, handle):
        yield from read_parts(snapshot.storage, handle, key_groups)


def _is_retained(snapshot: StateSnapshot, wanted: CheckpointId) -> bool:
    return any(entry.checkpoint.id == wanted for entry in read_journal(snapshot.storage).retained)


class StateHandles(msgspec.Struct, frozen=True):
    """One state of one step, before any of its files is read."""

    operator: OperatorName
    state: StateName
    handles: tuple[StateHandle, ...]


def list_states(snapshot: StateSnapshot, step: str | None = None) -> list[StateHandles]:
    """Lists the states of a snapshot, or those of a step, without rows in flight.

    Raises ObjectCorrupt, StorageError, and SnapshotGone if the checkpoint no longer exists.
    """
    handles = [one for one in snapshot.checkpoint.states if not one.in_flight and step in (None, one.operator)]
    refuse_broken_chains(handles)
    return [
        StateHandles(operator, state, tuple(own))
        for operator in dict.fromkeys(handle.operator for handle in handles)
        for state, own in group_by_state([handle for handle in handles if handle.operator == operator]).items()
    ]


def read_shape(snapshot: StateSnapshot, state: StateHandles) -> StateShape:
    """Reads the shape from the head of one file. Raises what `list_states` raises, and StateUnreadable."""
    return read_header(_read_head(snapshot, state.handles[-1]))[0].shape


def read_files(snapshot: StateSnapshot, state: StateHandles, key_groups: range | None = None) -> StateFiles:
    """Reads the headers of a state's files, restricted to subtasks that own some of `key_groups`, if given.

    Raises what `list_states` raises, and StateUnreadable for a file that is not a state file.
    """
    handles = state.handles
    if key_groups is not None:
        handles = tuple(handle for handle in handles if overlap(_groups_of(snapshot, handle), key_groups))
    files = (StateFile(handle, read_header(_read_head(snapshot, handle))[0]) for handle in handles)
    return StateFiles(state.operator, state.state, tuple(files))


def _groups_of(snapshot: StateSnapshot, handle: StateHandle) -> range:
    return key_group_range(handle.subtask, snapshot.identity.parallelism, snapshot.identity.max_parallelism)


def choose_state(snapshot: StateSnapshot, step: str, state: str | None) -> StateHandles:
    """Chooses a state of a step; `state` may be omitted if the step has only one, or one besides lists.

    Raises StateUnknown, which lists the existing ones, and what `list_states` raises.
    """
    steps = sorted({handle.operator for handle in snapshot.checkpoint.states if not handle.in_flight})
    if step not in steps:
        raise StateUnknown(
            f"{snapshot.title} has no state of a step {step!r}; it has: {', '.join(steps) or 'no state'}"
        )
    found = list_states(snapshot, step)
    names = ", ".join(one.state for one in found)
    if state is None:
        keyed = [one for one in found if one.handles[0].kind is StateKind.OPERATOR] or found
        if len(keyed) == 1:
            return keyed[0]
        raise StateUnknown(f"step {step!r} has several states: name one of {names} with --state")
    for one in found:
        if one.state == state:
            return one
    raise StateUnknown(f"step {step!r} has no state {state!r} in {snapshot.title}; it has: {names}")


class GroupEntries(msgspec.Struct, frozen=True):
    """All entries of a key group, or of a subtask's list, without tombstones."""

    group: int
    entries: Sequence[Entry]


def read_groups(snapshot: StateSnapshot, state: StateFiles, key_groups: range | None = None) -> Iterator[GroupEntries]:
    """Yields the entries of a state by key group, in ascending order, restricted to `key_groups`, if given.

    Raises what `read_files` raises.
    """
    if not state.files:  # no subtask that could own these key groups has written a file
        return
    if not state.keyed:
        for file in sorted(state.files, key=lambda one: one.handle.subtask):
            yield GroupEntries(file.handle.subtask, _Stream(snapshot, state, file, range(1)).take(0))
        return
    wanted = range(state.shape.max_parallelism) if key_groups is None else key_groups
    streams = [_Stream(snapshot, state, file, wanted) for file in state.within(wanted).files]
    for group in state.key_groups:
        if group in wanted:
            parts = [(stream.full, stream.take(group)) for stream in streams if stream.has(group)]
            yield GroupEntries(group, _merge(parts))


def _merge(parts: Sequence[tuple[bool, list[Entry]]]) -> Sequence[Entry]:
    """Merges the entries of a key group from all files that have it, in order."""
    if all(full for full, _ in parts):  # a full snapshot has each key once and no tombstones
        return parts[0][1] if len(parts) == 1 else [entry for _, entries in parts for entry in entries]
    merged: dict[tuple[object, ...], Entry] = {}
    for _, entries in parts:
        for entry in entries:
            if entry[1] is None:
                merged.pop(entry[0], None)
            else:
                merged[entry[0]] = entry
    return list(merged.values())


class _Stream:
    """A file that is read when its first key group is taken, and released with its last."""

    def __init__(self, snapshot: StateSnapshot, state: StateFiles, file: StateFile, wanted: range) -> None:
        self.full = not file.handle.increment
        self._place = snapshot, state, file.handle, wanted
        self._parts = Counter(part.group for part in file.header.groups if part.group in wanted)
        self._entries: Iterator[list[Entry]] | None = None

    def has(self, group: int) -> bool:
        return group in self._parts

    def take(self, group: int) -> list[Entry]:
        """Returns the entries of this key group, which must be the next one in the file."""
        if self._entries is None:
            snapshot, state, handle, wanted = self._place
            files = _read_parts(snapshot, handle, wanted)
            self._entries = chain.from_iterable(
                read_entries(data, wanted, state.operator, state.declaration) for data in files
            )
        parts = [next(self._entries) for _ in range(self._parts.pop(group, 0))]
        if not self._parts:
            self._entries = None
        return parts[0] if len(parts) == 1 else [entry for part in parts for entry in part]
