"""Reads state objects in storage and verifies them against the handles in a checkpoint.

Whatever is read is verified: a whole object, its head, or some key groups. The handle has the checksum of the head,
which contains those of the key groups. The upgrade decision is made from the headers alone (`read_stored`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from tidegate.coordinator.types import StateHandle, StateKind
from tidegate.coordinator.upgrade import StoredStates, WrittenState
from tidegate.errors import BEGIN_ANEW
from tidegate.ids import OperatorName, SlotIndex, StateName
from tidegate.state.declaration import StateForm
from tidegate.state.parts import PART_BYTES, PartDamaged, cut_part, derive_runs, measure_head
from tidegate.state.snapshot import read_header
from tidegate.storage.base import ObjectCorrupt, ObjectMissing, Storage, StorageReader
from tidegate.storage.checksum import unseal


def read_state(storage: StorageReader, handle: StateHandle) -> bytes:
    """Reads the object as stored, sealed. Raises ObjectMissing, ObjectCorrupt if the content differs, StorageError."""
    data = storage.get(handle.path)
    _refuse_other(storage, handle, len(data), hashlib.sha256(data).hexdigest())
    return data


def read_head(storage: StorageReader, handle: StateHandle) -> bytes:
    """Reads the head of a file, unsealed, at least up to its entries, for `read_header`.

    Raises ObjectMissing, ObjectCorrupt, StorageError.
    """
    data = storage.get_range(handle.path, 0, handle.head_bytes)
    digest = hashlib.sha256(data).hexdigest()
    if digest != handle.head_sha256:
        found = f"its first {len(data)} bytes have sha256 {digest[:12]}"
        raise _corrupt(storage, handle, f"{found}, expected {handle.head_bytes} bytes with {handle.head_sha256[:12]}")
    return data[data.index(b"\n") + 1 :]


def read_parts(storage: StorageReader, handle: StateHandle, key_groups: range) -> Iterator[bytes]:
    """Yields a file's entries of these key groups, unsealed, as one or more files; all of a list or of rows in flight.

    At most `PART_BYTES` plus one key group are in memory at a time. A file with none of these key groups yields one
    without entries, so that its shape can be compared. Raises what `read_head` raises, and StateUnreadable.
    """
    if handle.kind is not StateKind.OPERATOR:
        yield unseal(handle.path, read_state(storage, handle))
        return
    header, _ = read_header(read_head(storage, handle))
    if all(one.group in key_groups for one in header.groups):
        yield unseal(handle.path, read_state(storage, handle))
        return
    some = False
    for run in derive_runs(header, key_groups):
        some = True
        size = run[-1].offset + run[-1].size_bytes - run[0].offset
        data = storage.get_range(handle.path, handle.head_bytes + run[0].offset, size)
        try:
            yield cut_part(header, run, data)
        except PartDamaged as damage:
            raise _corrupt(storage, handle, str(damage)) from damage
    if not some:
        yield cut_part(header, (), b"")


def derive_head(data: bytes) -> tuple[int, str]:
    """Returns length and SHA-256 of the head of a sealed file, as in StateHandle."""
    sealed = data.index(b"\n") + 1
    head = measure_head(memoryview(data)[sealed:])
    return (sealed + head, hashlib.sha256(data[: sealed + head]).hexdigest()) if head else (0, "")


def _digest(storage: StorageReader, handle: StateHandle) -> tuple[int, str]:
    """Returns size and SHA-256 of an object, reading at most one byte more than the handle's size."""
    digest, size = hashlib.sha256(), 0
    while True:
        wanted = min(PART_BYTES, handle.size_bytes + 1 - size)
        data = storage.get_range(handle.path, size, wanted)
        digest.update(data)
        size += len(data)
        if len(data) < wanted or size > handle.size_bytes:
            return size, digest.hexdigest()


def _refuse_other(storage: StorageReader, handle: StateHandle, size_bytes: int, sha256: str) -> None:
    if sha256 != handle.sha256:
        found = f"{size_bytes} bytes with sha256 {sha256[:12]}"
        raise _corrupt(storage, handle, f"{found}, expected {handle.size_bytes} bytes with {handle.sha256[:12]}")


def _corrupt(storage: StorageReader, handle: StateHandle, problem: str) -> ObjectCorrupt:
    found = f"{storage.location}/{handle.path} is not the file that the checkpoint wrote: {problem}"
    return ObjectCorrupt(
        f"{found}; restore it from a backup, or start with {BEGIN_ANEW}", name=handle.path, problem=found
    )


def refuse_broken_chains(handles: Iterable[StateHandle]) -> None:
    """Checks that increments follow a full snapshot of the same state and subtask. Raises ObjectCorrupt if not."""
    begun: set[tuple[OperatorName, StateName, SlotIndex]] = set()
    for handle in handles:
        owner = (handle.operator, handle.state, handle.subtask)
        if handle.increment and owner not in begun:
            raise ObjectCorrupt(
                f"{handle.path} contains changes of {_describe(handle)} since an older snapshot, which the "
                "checkpoint does not list; keep the directory unchanged and report this",
                name=handle.path,
            )
        begun.add(owner)


def _describe(handle: StateHandle) -> str:
    return f"state {handle.state} of {handle.operator}"


def find_damage(storage: StorageReader, states: Iterable[StateHandle]) -> str:
    """Finds the first object that is missing or altered; empty if all are intact. Raises StorageError.

    At most `PART_BYTES` are in memory at a time. The text has no remedy, because that differs between checkpoints and
    savepoints.
    """
    for handle in states:
        try:
            _refuse_other(storage, handle, *_digest(storage, handle))
        except (ObjectCorrupt, ObjectMissing) as error:
            return str(error.fields.get("problem", error.message))
    return ""


def find_cut(storage: StorageReader, states: Iterable[StateHandle]) -> str:
    """Finds damage by the lengths of the objects alone, which reads almost nothing."""
    for handle in states:
        try:
            tail = storage.get_range(handle.path, handle.size_bytes - 1, 2)
        except ObjectMissing as error:
            return error.message
        if len(tail) != 1:
            has = "more" if tail else "less"
            return f"{storage.location}/{handle.path} has {has} than the {handle.size_bytes:,} bytes that were written"
    return ""


def read_stored(storage: Storage, handles: Iterable[StateHandle], *, every: bool = False) -> StoredStates:
    """Reads the headers of state files, by operator and state.

    With `every` all files are read and keys are counted. Otherwise the smallest file of each state suffices, because
    all have the shape of the definition that wrote them. Damaged files are skipped: the recovery looks for damage, and
    for a way around it. Raises StateUnreadable, StorageError.
    """
    own = [handle for handle in handles if not handle.in_flight]
    sizes: dict[tuple[OperatorName, StateName], int] = {}
    found: dict[tuple[OperatorName, StateName], WrittenState] = {}
    for handle in own if every else _smallest(own):
        try:
            header, _ = read_header(read_head(storage, handle))
        except (ObjectCorrupt, ObjectMissing):
            continue
        owner = (handle.operator, header.state)
        sizes[owner] = sizes.get(owner, 0) + handle.size_bytes
        keys = sum(group.entries for group in header.groups)
        before = found[owner].keys or 0 if owner in found else 0
        counted = every and header.shape.form is StateForm.KEYED
        found[owner] = WrittenState(header.shape, before + keys if counted else None, sizes[owner])
    return found


def _smallest(handles: Iterable[StateHandle]) -> list[StateHandle]:
    """Returns the smallest file of each state."""
    smallest: dict[tuple[OperatorName, StateName], StateHandle] = {}
    for handle in handles:
        owner = (handle.operator, handle.state)
        if owner not in smallest or handle.size_bytes < smallest[owner].size_bytes:
            smallest[owner] = handle
    return list(smallest.values())
