"""The files of a savepoint: a self-contained folder that can be moved, copied and archived.

    <directory>/savepoint-<pipeline>-<checkpoint>-<token>/state/00000-<operator>-<subtask>.state ...
    <directory>/savepoint-<pipeline>-<checkpoint>-<token>/metadata.json

Paths in the metadata are relative to the folder. The metadata is written last: without it there is no savepoint (C29).
All output of the records before the savepoint is committed (ADR 11), so it lists no transactions. Only its owner
deletes it. Finding, verifying and removing savepoints needs only the storage: no daemon, no Kafka, no Spark.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from typing import Final

import msgspec

from tidegate.config.fields.counts import render_count
from tidegate.coordinator.entries import Identity, Savepoint
from tidegate.coordinator.types import CompletedCheckpoint, StateHandle, StateKind
from tidegate.errors import PipelineStopped
from tidegate.ids import CheckpointId
from tidegate.journal.state_files import find_damage, read_state, refuse_broken_chains
from tidegate.state.errors import StateUnreadable
from tidegate.state.parts import PartDamaged, cut_part
from tidegate.state.snapshot import read_header
from tidegate.storage.base import ObjectCorrupt, ObjectMissing, Storage, StorageError
from tidegate.storage.checksum import seal, unseal
from tidegate.storage.names import JOURNAL_PREFIX, RESTORING_PREFIX, STATE_PREFIX, copied_state_name, is_state_name
from tidegate.storage.open import StorageOpener

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


FOLDER_PREFIX = "savepoint-"
"""Prefix of the names that savepoints are given; a user who moves one may rename it."""


class SavepointNeeded(PipelineStopped):
    """The savepoint is not removed because a pipeline still depends on it."""

    code = "savepoint-needed"


class FoundSavepoint(msgspec.Struct, frozen=True):
    """A folder that is a savepoint or an unfinished one."""

    path: str
    savepoint: Savepoint | None
    """None if the metadata is missing or unreadable."""
    problem: str
    """Problems visible from file names and metadata; empty if there are none."""
    unfinished: bool = False
    """True if the metadata is missing: the savepoint is being written, or writing it was given up."""


class Examination(msgspec.Struct, frozen=True):
    """The result of reading every byte of a savepoint."""

    savepoint: Savepoint
    keys: int
    problems: tuple[str, ...]
    """Empty if it is undamaged."""
    extra: tuple[str, ...]
    """Objects in the folder that do not belong to the savepoint; a restore ignores them."""


def find_savepoints(storage: Storage, open_storage: StorageOpener) -> tuple[list[FoundSavepoint], list[str]]:
    """Finds savepoints at any depth below a directory, including itself, by path; also returns unreadable folders.

    Only metadata and names are read. Raises StorageError if the directory cannot be listed.
    """
    folders: dict[str, list[str]] = {}
    root, unread = storage.location.rstrip("/"), []
    for name in storage.list(""):
        folder, _, file = name.rpartition("/")
        if not file:
            unread.append(f"{root}/{folder}")
            continue
        if file == METADATA:
            folders.setdefault(folder, []).append(METADATA)
            continue
        above, _, part = f"/{folder}".rpartition("/")
        if f"{part}/" == STATE_PREFIX:
            folders.setdefault(above.removeprefix("/"), []).append(f"{STATE_PREFIX}{file}")
    found = []
    for folder, files in sorted(folders.items()):
        if METADATA not in files and not folder.rpartition("/")[2].startswith(FOLDER_PREFIX):
            continue
        found.append(_look(f"{root}/{folder}".rstrip("/"), files, open_storage))
    return found, unread


def _look(path: str, files: list[str], open_storage: StorageOpener) -> FoundSavepoint:
    """Examines a folder by name and metadata. An unfinished savepoint and an abandoned one both lack metadata."""
    if METADATA not in files:
        told = f"unfinished: {render_count(len(files), 'file')} of state and no {METADATA}"
        return FoundSavepoint(path, None, told, unfinished=True)
    try:
        savepoint = read_savepoint(open_storage(path, create=False))
    except (StorageError, SavepointRefused) as error:
        return FoundSavepoint(path, None, error.message)
    missing = [handle.path for handle in savepoint.checkpoint.states if handle.path not in files]
    if missing:
        return FoundSavepoint(path, savepoint, f"{render_count(len(missing), 'file')} missing (first: {missing[0]})")
    return FoundSavepoint(path, savepoint, "")


def examine_savepoint(folder: Storage) -> Examination:
    """Reads the metadata and every state file, verifying checksums and headers.

    Raises SavepointRefused, ObjectCorrupt if the metadata cannot be read, StorageError.
    """
    savepoint = read_savepoint(folder)
    states = savepoint.checkpoint.states
    problems, keys = _problems_of_metadata(savepoint), 0
    for handle in states:
        try:
            entries = examine_state(folder, handle)
            keys += entries if handle.kind is StateKind.OPERATOR else 0
        except (ObjectCorrupt, ObjectMissing, StateUnreadable) as error:
            problems.append(f"{handle.path}: {error.message}")
    listed = {METADATA, *(handle.path for handle in states)}
    extra = tuple(name for name in folder.list("") if name not in listed)
    return Examination(savepoint, keys, tuple(problems), extra)


def _problems_of_metadata(savepoint: Savepoint) -> list[str]:
    """Checks what a restore requires in addition to the files."""
    problems = []
    identity, checkpoint = savepoint.identity, savepoint.checkpoint
    known = identity.clusters or savepoint.from_rows  # rows need not belong to any
    if not (identity.pipeline and known and savepoint.token):
        problems.append(f"{METADATA}: the pipeline, the clusters or the token are missing")
    if checkpoint.committables:
        problems.append(
            f"{METADATA}: it lists {render_count(len(checkpoint.committables), 'transaction')}, a savepoint has none"
        )
    if len({handle.path for handle in checkpoint.states}) != len(checkpoint.states):
        problems.append(f"{METADATA}: it lists a file twice")
    try:
        refuse_broken_chains(checkpoint.states)
    except ObjectCorrupt as error:
        problems.append(f"{METADATA}: {error.message}")
    return problems


def examine_state(folder: Storage, handle: StateHandle) -> int:
    """Verifies a state file; returns its number of entries.

    Raises ObjectCorrupt, ObjectMissing, StateUnreadable, StorageError.
    """
    data = folder.get(handle.path)
    digest = hashlib.sha256(data).hexdigest()
    if digest != handle.sha256:
        raise ObjectCorrupt(
            f"it has {len(data):,} bytes with sha256 {digest[:12]}, expected {handle.size_bytes:,} bytes with "
            f"{handle.sha256[:12]}"
        )
    if hashlib.sha256(data[: handle.head_bytes]).hexdigest() != handle.head_sha256:
        raise ObjectCorrupt(f"the checksum of its first {handle.head_bytes:,} bytes differs from the metadata")
    body = unseal(handle.path, data)
    if handle.in_flight:
        return 0
    header, start = read_header(body)
    if header.operator != handle.operator or header.state != handle.state:
        raise StateUnreadable(
            f"it belongs to {header.operator}.{header.state}, but is listed as {handle.operator}.{handle.state}"
        )
    end = max((part.offset + part.size_bytes for part in header.groups), default=0)
    if start + end != len(body):
        raise StateUnreadable(f"its header describes {end:,} bytes of entries, there are {len(body) - start:,}")
    try:
        cut_part(header, header.groups, body[start:])
    except PartDamaged as damage:
        raise StateUnreadable(str(damage)) from damage
    return sum(part.entries for part in header.groups)


def refuse_needed(savepoint: Savepoint, checkpoints: Storage, origin: str) -> None:
    """Raises SavepointNeeded if a pipeline is being restored from the savepoint, or was last restored from it.

    `checkpoints` is the pipeline's checkpoint directory, `origin` that of its journal. Raises StorageError.
    """
    if checkpoints.exists(mark_of(savepoint)):
        raise SavepointNeeded(
            f"a daemon is restoring it into {checkpoints.location}, or ended while it did so; wait until that "
            "pipeline runs, or delete it with --force: the restore then ends without any change"
        )
    if origin == f"savepoint {savepoint.token}":
        raise SavepointNeeded(
            f"the pipeline in {checkpoints.location} was restored from it, and a start with the same `--restore` reads "
            "it again; start without that option from now on, then delete it with --force"
        )


def remove_savepoint(folder: Storage, *, unfinished: bool = False) -> int:
    """Removes the savepoint's objects, metadata first, so that a crash never leaves an incomplete savepoint.

    `unfinished` allows removing a folder that has state but no metadata. Returns the number of objects removed.

    Raises SavepointRefused, having removed nothing, if it is not a savepoint; StorageError.
    """
    if not (unfinished and _is_unfinished(folder)):
        listed: Iterable[StateHandle] = read_savepoint(folder).checkpoint.states
        names = [handle.path for handle in listed]
        folder.delete(METADATA)
        folder.delete_all(names)
        return 1 + len(names)
    names = folder.list(STATE_PREFIX)
    folder.delete_all(names)
    return len(names)


def _is_unfinished(folder: Storage) -> bool:
    own = folder.location.rstrip("/").rpartition("/")[2].startswith(FOLDER_PREFIX)
    return own and not folder.exists(METADATA) and bool(folder.list(STATE_PREFIX))
