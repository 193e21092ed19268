"""The files of a savepoint: a self-contained folder that can be moved, copied and archived.

    <directory>/savepoint-<pipeline>-<checkpoint>-<token>/state/00000-<operator>-<subtask>.state ...
    <directory>/savepoint-<pipeline>-<checkpoint>-<token>/metadata.json

Paths in the metadata are relative to the folder. The metadata is written last: without it there is no savepoint (C29).
All output of the records before the savepoint is committed (ADR 11), so it lists no transactions. Only its owner
deletes it (`savepoint_maintenance.py`).
"""

from __future__ import annotations

import hashlib
import logging
from typing import Final

import msgspec

from tidegate.coordinator.entries import Identity, Savepoint
from tidegate.coordinator.types import CompletedCheckpoint, StateHandle, StateKind
from tidegate.errors import PipelineStopped
from tidegate.ids import CheckpointId
from tidegate.journal.state_files import find_damage, read_state
from tidegate.state.errors import StateUnreadable
from tidegate.state.snapshot import read_header
from tidegate.storage.base import ObjectCorrupt, ObjectMissing, Storage, StorageError
from tidegate.storage.checksum import seal, unseal
from tidegate.storage.names import JOURNAL_PREFIX, RESTORING_PREFIX, STATE_PREFIX, copied_state_name, is_state_name

logger = logging.getLogger(__name__)

FORMAT_VERSION: Final = 1
METADATA: Final = "metadata.json"
COPY_AGAIN: Final = "copy the whole folder again from where it was taken, or restore another savepoint"
"""The remedy for a damaged savepoint."""
_GIVE_FOLDER: Final = "give the folder that `tidegate savepoint` has printed (its name begins with `savepoint-`)"


class SavepointRefused(PipelineStopped):
    """The path is not a savepoint, or not one that this release can read."""

    code = "savepoint-refused"
    exit_code = 2


class _Version(msgspec.Struct):
    format_version: int


def savepoint_folder(pipeline: str, checkpoint: CheckpointId, token: str) -> str:
    """Returns the name of the folder within the directory that the user specified."""
    return f"savepoint-{pipeline}-{checkpoint}-{token[:8]}"


def write_savepoint(
    origin: Storage, target: Storage, folder: str, checkpoint: CompletedCheckpoint, identity: Identity, token: str
) -> Savepoint:
    """Copies the states of `checkpoint` from `origin` into a new folder of `target`, then writes the metadata.

    Raises StorageError (ObjectCorrupt if a state object is not what was written). On an error, written objects are
    removed as far as the storage allows.
    """
    moved = tuple(
        msgspec.structs.replace(handle, path=f"{STATE_PREFIX}{number:05d}-{handle.operator}-{handle.subtask}.state")
        for number, handle in enumerate(checkpoint.states)
    )
    savepoint = Savepoint(
        format_version=FORMAT_VERSION,
        token=token,
        written_at_ms=checkpoint.completed_at_ms,
        identity=identity,
        checkpoint=msgspec.structs.replace(checkpoint, states=moved, committables=()),
    )
    written: list[str] = []
    keys: int | None = 0
    try:
        for old, new in zip(checkpoint.states, moved, strict=True):
            data = read_state(origin, old)
            written.append(f"{folder}/{new.path}")
            target.put(written[-1], data)
            if old.kind is StateKind.OPERATOR and keys is not None:
                keys = _add_keys(keys, old, data)
        savepoint = msgspec.structs.replace(savepoint, keys=keys)
        written.append(f"{folder}/{METADATA}")
        target.put(written[-1], encode_metadata(savepoint))
    except StorageError:
        remove_written(target, written)
        raise
    return savepoint


def encode_metadata(savepoint: Savepoint) -> bytes:
    """Encodes the content of `METADATA`: sealed JSON, readable with any pager."""
    return seal(msgspec.json.format(msgspec.json.encode(savepoint), indent=1) + b"\n")


def read_savepoint(folder: Storage) -> Savepoint:
    """Reads the metadata of the savepoint in `folder`. Raises SavepointRefused, ObjectCorrupt, StorageError."""
    try:
        body = _unseal_metadata(folder)
    except ObjectMissing as missing:
        text = f"{folder.location} is not a savepoint: {_what_it_is(folder)}"
        raise SavepointRefused(text, location=folder.location) from missing
    except StorageError as failure:
        if failure.fields.get("errno") != "ENOTDIR":
            raise
        text = f"{folder.location} is not a savepoint: it is a file, or below one; {_GIVE_FOLDER}"
        raise SavepointRefused(text, location=folder.location) from failure
    try:
        version = msgspec.json.decode(body, type=_Version).format_version
        if version != FORMAT_VERSION:
            raise SavepointRefused(
                f"{folder.location} has format version {version}, this release reads version {FORMAT_VERSION}; use the "
                "release that wrote it",
                location=folder.location,
            )
        savepoint = msgspec.json.decode(body, type=Savepoint)
    except msgspec.DecodeError as failure:
        raise ObjectCorrupt(
            f"{folder.location}/{METADATA} is intact but not a savepoint: {failure}; {COPY_AGAIN}",
            location=folder.location,
        ) from failure
    for handle in savepoint.checkpoint.states:
        if not is_state_name(handle.path):
            raise ObjectCorrupt(
                f"{folder.location}/{METADATA} lists {handle.path[:100]!r}, which is not a state file; {COPY_AGAIN}",
                location=folder.location,
            )
    return savepoint


def _unseal_metadata(folder: Storage) -> bytes:
    try:
        return unseal(METADATA, folder.get(METADATA))
    except ObjectCorrupt as damage:
        problem = f"{folder.location}/{METADATA} is corrupt: {damage.fields.get('problem', damage.message)}"
        raise ObjectCorrupt(f"{problem}; {COPY_AGAIN}", name=METADATA, problem=problem) from damage


def _what_it_is(folder: Storage) -> str:
    """Describes a folder without metadata, for an error message."""
    if folder.list(JOURNAL_PREFIX):
        return (
            "it is a checkpoint directory; name it as `checkpoints.directory`, and restore one of its checkpoints by "
            "number or one of its savepoints by path (`tidegate checkpoints FILE` lists both)"
        )
    pieces = len(folder.list(STATE_PREFIX))
    if pieces:
        return (
            f"it is incomplete (it has {pieces} files of state and no {METADATA}, which is written last): it is "
            "being written now, or writing or deleting it was interrupted. Restore another one; this one can be "
            "deleted (`tidegate savepoint delete --unfinished`)"
        )
    return f"there is no such folder, or no {METADATA} in it; {_GIVE_FOLDER}"


def check_whole(savepoint: Savepoint, folder: Storage) -> None:
    """Reads all of its state, before anything is restored. Raises ObjectCorrupt, StorageError."""
    damage = find_damage(folder, savepoint.checkpoint.states)
    if damage:
        raise ObjectCorrupt(
            f"savepoint {folder.location} is damaged: {damage}. {COPY_AGAIN[0].upper()}{COPY_AGAIN[1:]}",
            location=folder.location,
        )


def import_states(
    savepoint: Savepoint, folder: Storage, target: Storage, checkpoint: CheckpointId
) -> tuple[StateHandle, ...]:
    """Copies the states into a pipeline's storage, as those of `checkpoint`; the savepoint is not needed afterwards.

    Raises StorageError, ObjectCorrupt. On an error, copied objects are removed as far as the storage allows.
    """
    moved: list[StateHandle] = []
    try:
        for handle in savepoint.checkpoint.states:
            name = handle.path.removeprefix(STATE_PREFIX)
            moved.append(msgspec.structs.replace(handle, path=copied_state_name(checkpoint, name)))
            target.put(moved[-1].path, read_state(folder, handle))
    except StorageError:
        remove_written(target, [handle.path for handle in moved])
        raise
    return tuple(moved)


def mark_of(savepoint: Savepoint) -> str:
    """Returns the name of the object that exists in a checkpoint directory while a savepoint is copied into it.

    A restore whose savepoint is deleted meanwhile changes nothing; the mark only warns users against deleting it.
    """
    return RESTORING_PREFIX + hashlib.sha256(savepoint.token.encode()).hexdigest()[:16]


def _add_keys(keys: int, handle: StateHandle, data: bytes) -> int | None:
    """Adds the keys of a file to the count.

    The count is informative: None if they cannot be counted (increments, damage).
    """
    if handle.increment:
        return None
    try:
        header, _ = read_header(unseal(handle.path, data))
    except (ObjectCorrupt, StateUnreadable):
        return None
    return keys + sum(part.entries for part in header.groups)


def remove_written(target: Storage, names: list[str]) -> None:
    """Removes the objects of a failed savepoint, as far as the storage allows.

    The last object is removed first: if it is the metadata, the rest must not look like a savepoint.
    """
    try:
        for name in names[-1:]:
            target.delete(name)
        target.delete_all(names[:-1])
    except StorageError as failure:
        logger.warning("parts of a failed savepoint were not removed: %s", failure.message)
