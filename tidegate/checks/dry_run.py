"""Restores state like a slot does, one state at a time into a scratch directory, which is then deleted.

It uses the backend of the pipeline file, so the measured time includes the backend. Nothing is written to the
checkpoint's storage. What a killed process has left behind is removed by the next one (`state/local_directory.py`).
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
"""How many times the size of a state's files must be free: a store rewrites its content while it is filled."""

Owner = tuple[OperatorName, StateName]
Declared = Mapping[Owner, StateDeclaration]
"""The declarations by present names, with the file's directives about older entries."""


class ScratchTooSmall(PipelineStopped):
    """The disk of the scratch directory has no room for a dry run; the upgrade itself may still be possible."""

    code = "scratch-too-small"
    exit_code = 1


class Migrated(msgspec.Struct, frozen=True):
    """The result for one state that was restored."""

    step: OperatorName
    state: StateName
    backend: str
    """The backend it was restored into; lists are always in memory."""
    entries: int
    """Entries of the restored state; several increments of a key count once."""
    read_bytes: int
    """Size of its files."""
    seconds: float
    """Time to read and fill, with one reader, one key group after another."""
    failure: str = ""
    """Why it cannot be restored. The remedy for damage is left out, because it depends on where the files are."""
    damaged: bool = False
    """True if its files are missing or not as written."""


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
    """Restore the states of these handles, which have their present names, one after another.

    `parent` is where the scratch directory is created, by default the system's temporary directory.

    Raises ScratchTooSmall before anything is restored, LocalStateFailed, and StorageError unless it is damage.
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
    """Refuse a disk without room for the largest state: only one is restored at a time."""
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
        return found  # type: ignore[no-any-return]  # files may be of any kind


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
    # Like a slot: the key groups of this pipeline, whichever groups a file holds.
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
