"""Copies of state files on the machine of the slot that uploaded them, so that a restart need not fetch them (ADR 61).

    TMPDIR/tidegate-copies-<user id>/<of one pipeline>/<checkpoint>-<digest of the object's name>

Nothing depends on them: every reader compares a copy with the checksums of the checkpoint (`RestoredFiles`), so it
may be missing, damaged or half written. All slots of a pipeline on one machine share a folder.

The copies that the newest completed checkpoint lists are kept. A slot removes the copies it has written or restored
itself that this checkpoint does not list. Once the first checkpoint of its attempt has completed, it also removes
everything of earlier attempts, except files of the checkpoints that the restored one builds on: these may be the base
of another slot (ADR 16). A folder that no slot uses and that was not written to for a day is removed by the next slot
that starts.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from typing_extensions import override

from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.coordinator.types import StateHandle
from tidegate.ids import CheckpointId
from tidegate.journal.state_files import read_parts, read_state
from tidegate.storage.base import StorageError, StorageReader, describe_failure
from tidegate.storage.checksum import unseal
from tidegate.storage.files import own_root, read_all, read_range, sweep_folders, take_folder, write_all
from tidegate.storage.names import checkpoint_of_state

logger = logging.getLogger(__name__)

PREFIX: Final = "tidegate-copies-"
FREE_SHARE: Final = 0.1
"""Free share of the file system, where RocksDB and Spark also write."""
ACKED_MAX: Final = 50
"""Checkpoints that were acknowledged and not completed; more cannot be in flight."""
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Copies:
    """A slot's interface to its copies; this class keeps none.

    The loop's thread calls `acknowledged` and `completed`, which access no files; everything else blocks.
    """

    location = "nowhere"

    def has(self, name: str) -> bool:  # noqa: ARG002 - as all below: there are none
        """Returns whether there is a copy of the object with that name, whatever its content."""
        return False

    def get(self, name: str) -> bytes:
        """Returns the copy. Raises ObjectMissing, StorageError."""
        raise StorageError(f"no copies are kept, so there is none of {name}")

    def get_range(self, name: str, start: int, length: int) -> bytes:  # noqa: ARG002 - see above
        """Returns up to `length` bytes of the copy from `start` on. Raises as `get`."""
        return self.get(name)

    def keep(self, name: str, data: bytes) -> None:
        """Keeps a copy of an object that was written. Never raises."""

    def drop(self, name: str) -> None:
        """Removes a copy whose object was deleted or which is damaged. Never raises."""

    def restored(self, names: Iterable[str]) -> None:
        """Records the files that this slot has restored and that its next snapshots may build on."""

    def acknowledged(self, checkpoint: CheckpointId, names: Iterable[str]) -> None:
        """Records the files that a subtask of this slot has reported for the checkpoint."""

    def completed(self, checkpoint: CheckpointId) -> None:
        """Handles a checkpoint that is in the journal: copies listed only by older ones are no longer needed."""

    def close(self) -> None:
        """Stops keeping copies; existing ones stay for the next attempt."""


class LocalCopies(Copies):
    """Copies in a folder. `owner` is the same for all slots of a pipeline, and different for any other.

    Keeps at most `bytes_max` in total and leaves a tenth of the file system free; further copies are not kept. `base`:
    checkpoints of earlier attempts whose files other slots may build on. Raises StorageError if the folder cannot be
    created.
    """

    def __init__(
        self,
        parent: Path,
        owner: str,
        bytes_max: int,
        base: frozenset[CheckpointId] = frozenset(),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.location: str = str(parent)
        self._base = base
        self._bytes_max = bytes_max
        self._acked: dict[CheckpointId, set[str]] = {}
        self._first: CheckpointId | None = None
        self._due: tuple[CheckpointId, CheckpointId, frozenset[str]] | None = None
        """First and newest completed checkpoint of this attempt, and this slot's copies that the newest one needs."""
        self._own: set[str] = set()
        self._reported: set[str] = set()
        try:
            root = own_root(parent, PREFIX)
            sweep_copies(parent, clock)
            self._folder = root / hashlib.sha256(owner.encode()).hexdigest()[:32]
            self._release = weakref.finalize(self, os.close, take_folder(self._folder))
        except OSError as failure:
            raise describe_failure(self.location, "make", "a folder for copies of state", failure) from failure

    @override
    def has(self, name: str) -> bool:
        return self._path(name).is_file()

    @override
    def get(self, name: str) -> bytes:
        try:
            return read_all(os, self._path(name))
        except OSError as failure:
            raise describe_failure(self.location, "read", name, failure) from failure

    @override
    def get_range(self, name: str, start: int, length: int) -> bytes:
        try:
            return read_range(os, self._path(name), start, length)
        except OSError as failure:
            raise describe_failure(self.location, "read", name, failure) from failure

    @override
    def keep(self, name: str, data: bytes) -> None:
        """Writes without sync: after a power failure, a damaged copy does not match its checksum."""
        path = self._path(name)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            self._clean()
            if self._has_room(len(data)):
                self._write(unfinished, data)
                unfinished.replace(path)
                self._own.add(path.name)
        except OSError as failure:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            self._report(f"a copy of state could not be kept in {self.location}: {failure.strerror or failure}")

    @override
    def drop(self, name: str) -> None:
        self._remove(self._path(name))

    @override
    def restored(self, names: Iterable[str]) -> None:
        self._own.update(self._path(name).name for name in names)

    @override
    def acknowledged(self, checkpoint: CheckpointId, names: Iterable[str]) -> None:
        self._acked.setdefault(checkpoint, set()).update(names)
        if len(self._acked) > ACKED_MAX:
            del self._acked[min(self._acked)]

    @override
    def completed(self, checkpoint: CheckpointId) -> None:
        """Marks copies that are no longer needed. The thread that writes the next copy removes them."""
        names = self._acked.pop(checkpoint, set())
        self._acked = {other: files for other, files in self._acked.items() if other > checkpoint}
        self._first = self._first or checkpoint
        self._due = (self._first, checkpoint, frozenset(self._path(name).name for name in names))

    @override
    def close(self) -> None:
        with suppress(OSError):
            os.utime(self._folder)
        self._release()

    def _path(self, name: str) -> Path:
        """Returns the path of a copy; names sort by checkpoint."""
        checkpoint = checkpoint_of_state(name) or CheckpointId(0)
        return self._folder / f"{checkpoint:012d}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"

    def _clean(self) -> None:
        if self._due is None:
            return
        (first, newest, used), self._due = self._due, None
        for entry in self._walk():
            written = _checkpoint_of(entry.name)
            own = entry.name in self._own and written <= newest and entry.name not in used
            if own or (written < first and written not in self._base):
                self._remove(Path(entry.path))

    def _has_room(self, size: int) -> bool:
        held = sum(map(_size_of, self._walk()))
        if held + size > self._bytes_max:
            self._report(
                f"copies of state use {self._bytes_max:,} bytes on this machine, the limit: further files are not "
                f"kept, and a restart fetches them; raise `state.local_copies_max` if there is room"
            )
            return False
        disk = shutil.disk_usage(self._folder)
        if disk.free - size < disk.total * FREE_SHARE:
            self._report(f"copies of state are no longer kept: {self.location} is nearly full")
            return False
        return True

    def _walk(self) -> Iterator[os.DirEntry[str]]:
        with os.scandir(self._folder) as entries:
            yield from entries

    def _write(self, path: Path, data: bytes) -> None:
        path.unlink(missing_ok=True)
        descriptor = os.open(path, _NEW_FILE, 0o600)
        try:
            write_all(os, descriptor, data)
        finally:
            os.close(descriptor)

    def _remove(self, path: Path) -> None:
        self._own.discard(path.name)
        try:
            path.unlink(missing_ok=True)
        except OSError as failure:
            self._report(f"a copy of state could not be removed from {self.location}: {failure.strerror or failure}")

    def _report(self, problem: str) -> None:
        """Logs each problem once: the pipeline does not need copies."""
        if problem not in self._reported:
            self._reported.add(problem)
            logger.warning("%s", problem)


NO_COPIES: Final = Copies()


def open_copies(owner: str, bytes_max: int, base: frozenset[CheckpointId] = frozenset()) -> Copies:
    """Opens copies in the process's temporary directory; returns NO_COPIES if it cannot be written to."""
    try:
        return LocalCopies(Path(tempfile.gettempdir()), owner, bytes_max, base)
    except (StorageError, FileNotFoundError) as failure:  # also if there is no temporary directory at all
        logger.warning("no copies of state are kept on this machine: %s", failure)
        return NO_COPIES


def sweep_copies(base: Path, clock: Clock = SYSTEM_CLOCK) -> list[Path]:
    """Removes this user's unused folders below `base`; returns those removed."""
    return sweep_folders(base, PREFIX, clock)


def _size_of(entry: os.DirEntry[str]) -> int:
    """Returns the size of a copy; 0 if another slot has removed it meanwhile."""
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


def _checkpoint_of(name: str) -> CheckpointId:
    """Returns the checkpoint that a copy was written for; 0, which is never used, for any other file."""
    digits = name.partition("-")[0]
    return CheckpointId(int(digits) if digits.isdecimal() else 0)


class RestoredFiles:
    """A reader of state files that verifies them against their handles. Reads and raises as
    `journal/state_files.py`.
    """

    def __init__(self, storage: StorageReader, copies: Copies) -> None:
        self._storage = storage
        self._copies = copies
        self.copied_bytes = 0
        """Bytes read from copies."""
        self.fetched_bytes = 0
        """Bytes read from the storage."""

    def read_state(self, handle: StateHandle) -> bytes:
        """Returns the whole file, unsealed."""
        (body,) = self._read(handle, lambda place: [unseal(handle.path, read_state(place, handle))])
        return body

    def read_parts(self, handle: StateHandle, key_groups: range) -> Iterator[bytes]:
        """Yields the parts of the file within these key groups, as one or more files."""
        return self._read(handle, lambda place: read_parts(place, handle, key_groups))

    def _read(self, handle: StateHandle, read: Callable[[StorageReader], Iterable[bytes]]) -> Iterator[bytes]:
        """Falls back to the storage if a copy is damaged. Both have the same parts, so none is yielded twice."""
        given = 0
        if self._copies.has(handle.path):
            try:
                for part in read(self._copies):
                    given += 1
                    self.copied_bytes += len(part)
                    yield part
            except StorageError as damage:
                problem = damage.fields.get("problem", damage.message)
                logger.warning(
                    "a copy of state is removed, and %s is read instead: %s", self._storage.location, problem
                )
                self._copies.drop(handle.path)
            else:
                return
        for part in islice(read(self._storage), given, None):
            self.fetched_bytes += len(part)
            yield part
