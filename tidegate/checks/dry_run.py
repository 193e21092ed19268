"""Restores state as a slot does, one state at a time into a scratch directory, and then deletes it.

The backend is the one of the file, so its own time is in the figures. Nothing is written where the checkpoint is. What
is left by a process that was killed is removed by the next one (`state/local_directory.py`).
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from tidegate.coordinator.types import StateHandle
from tidegate.errors import PipelineStopped
from tidegate.ids import OperatorName, StateName
from tidegate.journal.state_files import read_parts
from tidegate.state.backends import choose_backend
from tidegate.state.base import Share
from tidegate.state.declaration import StateDeclaration
from tidegate.state.errors import StateUnreadable
from tidegate.state.keygroups import key_groups_of_keys
from tidegate.state.local_directory import LocalDirectory
from tidegate.state.operator_list import OperatorList
from tidegate.state.order import Row
from tidegate.storage.base import ObjectCorrupt, ObjectMissing, Storage
from tidegate.task.ports import OperatorState
from tidegate.task.restore import restore_states, unknown_state

FREE_TIMES: Final = 2
"""So many times the size of a state's files have to be free: a store rewrites what it holds while it is filled."""

Owner = tuple[OperatorName, StateName]
Declared = Mapping[Owner, StateDeclaration]
"""With what the file says about older entries, by the names of now."""


class ScratchTooSmall(PipelineStopped):
    """The disk of the scratch directory has no room for a dry run, which says nothing about the upgrade."""

    code = "scratch-too-small"
    exit_code = 1


class Migrated(msgspec.Struct, frozen=True):
    """One state that was restored."""

    step: OperatorName
    state: StateName
    backend: str
    """What it was restored into; lists are always in memory."""
    entries: int
    """Of the restored state: increments of a key are counted once."""
    read_bytes: int
    """Of its files."""
    seconds: float
    """Reading and filling, by one reader, key group after key group."""
    failure: str = ""
    """Why it cannot be restored, without a remedy for damage: it depends on where the files are."""
    damaged: bool = False
    """Its files are not what was written, or missing."""


def measure_free(place: Path) -> int:
    """Measure the free bytes on the disk of a directory. Raises OSError."""
    return shutil.disk_usage(place).free


def restore_into_scratch(
    storage: Storage,
    handles: Sequence[StateHandle],
    declared: Declared,
    backend: str,
    *,
    parent: Path | None = None,
    free: Callable[[Path], int] = measure_free,
) -> Iterator[Migrated]:
    """Restore the states of these handles, which have their present names, one after the other.

    `parent` is where the scratch directory is made, by default the system's temporary directory.

    Raises ScratchTooSmall before anything is restored, LocalStateFailed, StorageError that is no damage.
    """
    states: dict[Owner, list[StateHandle]] = {}
    for handle in handles:
        if not handle.in_flight:
            states.setdefault((handle.operator, handle.state), []).append(handle)
    base = Path(tempfile.gettempdir()) if parent is None else parent
    if backend != "memory":
        _refuse_small(base, states, free(base))
    with closing(LocalDirectory(base)) as scratch:
        for owner, own in states.items():
            yield _restore(storage, owner, own, declared, _Opener(backend, scratch.path))


def _refuse_small(base: Path, states: Mapping[Owner, Sequence[StateHandle]], free_bytes: int) -> None:
    """One state is there at a time."""
    for (step, state), own in states.items():
        size = sum(one.size_bytes for one in own)
        if free_bytes < FREE_TIMES * size:
            raise ScratchTooSmall(
                f"a dry run of state {state} of {step}, {size:,} bytes, needs {FREE_TIMES * size:,} bytes on the disk "
                f"of {base}, which has {free_bytes:,}: make room, or set TMPDIR to a directory on another disk; "
                "without --migrate-dry-run nothing is written",
                directory=str(base),
            )


class _Opener:
    def __init__(self, backend: str, scratch: Path) -> None:
        self._backend = backend
        self._open = choose_backend(backend, 1, scratch)

    def name(self, declaration: StateDeclaration) -> str:
        return self._backend if declaration.keyed else "memory"

    def open(self, step: OperatorName, declaration: StateDeclaration) -> OperatorState:
        if not declaration.keyed:
            return OperatorList(step, declaration)
        shape = declaration.shape
        counting = slice(shape.prefix, len(shape.keys) - shape.suffix)
        kinds = [field.type for field in shape.keys[counting]]

        def groups_of(keys: list[Row]) -> Sequence[int]:
            return key_groups_of_keys(keys, kinds, shape.max_parallelism)

        found: Any = self._open(step, declaration, groups_of)
        return found  # type: ignore[no-any-return]  # of files of any kind


def _restore(
    storage: Storage, owner: Owner, handles: Sequence[StateHandle], declared: Declared, opener: _Opener
) -> Migrated:
    step, name = owner
    size = sum(one.size_bytes for one in handles)
    begun = time.perf_counter()
    declaration = declared.get(owner)
    if declaration is None:
        known = [state for operator, state in declared if operator == step]
        return Migrated(step, name, "", 0, size, 0.0, unknown_state(step, name, known).message)
    # As a slot: the groups of this pipeline, whatever those of a file are.
    share = Share(range(declaration.shape.max_parallelism if declaration.keyed else 1))
    read = partial(read_parts, storage, key_groups=share.key_groups)
    backend = opener.name(declaration)
    with closing(opener.open(step, declaration)) as state:
        try:
            restore_states(step, {name: state}, handles, read, share)
        except (ObjectCorrupt, ObjectMissing) as error:
            problem = str(error.fields.get("problem", error.message))
            return Migrated(step, name, backend, 0, size, time.perf_counter() - begun, problem, damaged=True)
        except StateUnreadable as error:
            return Migrated(step, name, backend, 0, size, time.perf_counter() - begun, error.message)
        return Migrated(step, name, backend, len(state), size, time.perf_counter() - begun)
