"""Reads the limits, disks and memory of this machine, and tests the checkpoint directory."""

from __future__ import annotations

import os
import re
import resource
from contextlib import suppress
from pathlib import Path as FilePath
from typing import Final

from tidegate.checks.facts import MachineFacts, Room
from tidegate.config.fields.base import Path
from tidegate.spark.work_directory import temporary_directory
from tidegate.storage.base import StorageError
from tidegate.storage.local import directory_of
from tidegate.storage.open import StorageOpener, scheme_of

_MEMORY_LIMIT: Final = FilePath("/sys/fs/cgroup/memory.max")
_MEMORY_USED: Final = FilePath("/sys/fs/cgroup/memory.current")
_MEMORY_DETAILS: Final = FilePath("/sys/fs/cgroup/memory.stat")
_CPU_LIMIT: Final = FilePath("/sys/fs/cgroup/cpu.max")
_MEMORY: Final = FilePath("/proc/meminfo")
_MOUNTS: Final = FilePath("/proc/self/mounts")
_ESCAPED: Final = re.compile(rb"\\([0-3][0-7]{2})")
"""Escaped blanks and backslashes in mount points."""
FILES_COUNTED_MAX: Final = 100_000


def read_machine(checkpoints: str, open_storage: StorageOpener, known: StorageError | None = None) -> MachineFacts:
    """Read the facts, and test the checkpoint directory unless the error of a test is already `known`. Blocking."""
    trouble = known or _try_storage(checkpoints, open_storage)
    rooms = [_room(temporary_directory(), (), count=False)]
    if scheme_of(checkpoints) == "file" and not trouble:
        rooms.insert(0, _room(directory_of(checkpoints), ("checkpoints", "directory"), count=True))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MachineFacts(
        rooms=tuple(rooms),
        storage_trouble=trouble,
        open_files=None if hard == resource.RLIM_INFINITY else hard,
        memory_bytes=_memory_left(),
        cpus=_cpus(),
    )


def _try_storage(address: str, open_storage: StorageOpener) -> StorageError | None:
    try:
        open_storage(address).probe()
    except StorageError as error:
        return error
    return None


def _room(directory: FilePath, path: Path, *, count: bool) -> Room:
    system = os.statvfs(directory)
    return Room(
        str(directory),
        path,
        _kind(directory.resolve()),
        system.f_bavail * system.f_frsize,
        system.f_favail if system.f_files else None,
        _size(directory) if count else 0,
    )


def _kind(directory: FilePath) -> str:
    """Find the type of the file system, which is that of the longest mount point above the directory."""
    best, kind = "", ""
    with suppress(OSError):
        for line in _MOUNTS.read_bytes().rstrip(b"\n").split(b"\n"):
            _, mounted, system, *_ = line.split(b" ")
            point = os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), mounted))
            if directory.is_relative_to(point) and len(point) >= len(best):
                best, kind = point, os.fsdecode(system)
    return kind


def _size(directory: FilePath) -> int:
    total = 0
    for number, (folder, _, files) in enumerate(os.walk(directory)):
        if number >= FILES_COUNTED_MAX:
            break
        for name in files:
            with suppress(OSError):  # removed meanwhile
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118  faster
    return total


def _memory_left() -> int | None:
    """Measure the available memory of the machine, or of this container if that is less."""
    left: list[int] = []
    with suppress(OSError, ValueError):
        lines = dict(line.split(":", 1) for line in _MEMORY.read_text("ascii").splitlines())
        left.append(int(lines["MemAvailable"].split()[0]) * 1024)
    with suppress(OSError, ValueError, KeyError):
        details = dict(line.split() for line in _MEMORY_DETAILS.read_text("ascii").splitlines())
        # Page cache that the kernel can reclaim.
        used = int(_MEMORY_USED.read_text("ascii")) - int(details["inactive_file"])
        left.append(int(_MEMORY_LIMIT.read_text("ascii")) - used)
    return min(left, default=None)


def _cpus() -> int:
    """Count the processors that this process may use."""
    count = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):
        quota, period = map(int, _CPU_LIMIT.read_text("ascii").split())
        count = min(count, max(1, quota // period))
    return count
