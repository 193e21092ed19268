"""The local disks of slots: real RocksDB in a temporary directory, in memory if possible."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegate.state.rocks import RocksLimits, RocksState

if TYPE_CHECKING:
    from tidegate.simulation.kernel import VirtualProcess
    from tidegate.state.base import GroupsOf
    from tidegate.state.declaration import StateDeclaration

IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a directory of our own is created there
LIMITS: Final = RocksLimits(cache_bytes=1 << 20, write_buffer_bytes=1 << 20)


class LocalDisks:
    """The local disks of one world. Their contents are removed with their process or with the world."""

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._opened: list[_State] = []

    def open(
        self, process: VirtualProcess, operator: str, declaration: StateDeclaration, groups_of: GroupsOf, retained: int
    ) -> RocksState[Any]:
        """Opens a new state for a process."""
        if self._directory is None:
            base = IN_MEMORY if IN_MEMORY.is_dir() else None
            self._directory = Path(tempfile.mkdtemp(prefix="tidegate-simulated-", dir=base))
        state = _State(operator, declaration, groups_of, retained, parent=self._directory, limits=LIMITS)
        self._opened.append(state)
        process.at_death.append(state.close)
        return state

    def close(self) -> None:
        """Removes everything."""
        for state in self._opened:
            state.close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


class _State(RocksState[Any]):
    """A state that is closed once, by its process or after its death."""

    _closed = False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            super().close()
