"""Existing savepoints: finding them in a directory, verifying every byte, removing them.

Only the storage is needed: no daemon, no Kafka, no Spark. The layout of a savepoint is defined in `savepoint.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from tidegate.config.fields.counts import render_count
from tidegate.coordinator.entries import Savepoint
from tidegate.coordinator.types import StateHandle, StateKind
from tidegate.errors import PipelineStopped
from tidegate.journal.savepoint import METADATA, SavepointRefused, mark_of, read_savepoint
from tidegate.journal.state_files import refuse_broken_chains
from tidegate.state.errors import StateUnreadable
from tidegate.state.parts import PartDamaged, cut_part
from tidegate.state.snapshot import read_header
from tidegate.storage.base import ObjectCorrupt, ObjectMissing, Storage, StorageError
from tidegate.storage.checksum import unseal
from tidegate.storage.names import STATE_PREFIX
from tidegate.storage.open import StorageOpener

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
