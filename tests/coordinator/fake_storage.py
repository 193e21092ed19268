"""A storage in memory that several journals share, with faults written into it by the test.

Checked against LocalStorage by the same scenarios in test_fake_storage.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto

from tidegate.storage.base import ObjectMissing, StorageError


class Fault(Enum):
    """What becomes of one creating call, or of the listing that follows it."""

    NONE = auto()
    REFUSED = auto()
    """An error, and nothing was created."""
    UNKNOWN = auto()
    """An error, although the object was created."""
    LATE = auto()
    """An error, and the object appears later, when `land` is called."""
    BLIND = auto()
    """Created, but the next listing fails. A name that is taken is answered as without a fault."""


class SharedObjects:
    """What is durable, seen by everybody."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.late: list[tuple[str, bytes]] = []

    def land(self) -> None:
        """Requests that were under way arrive: each creates its object unless the name is taken."""
        for name, data in self.late:
            self.objects.setdefault(name, data)
        self.late.clear()


class FakeStorage:
    """One client of the shared objects; `faults` are used up by its put_if_absent calls, one each."""

    def __init__(self, shared: SharedObjects | None = None) -> None:
        self.location = "memory"
        self.shared = shared or SharedObjects()
        self.faults: list[Fault] = []
        self.happened: list[Fault] = []
        self.read: list[str] = []
        self.before_put: Callable[[str], None] = lambda name: None
        self._list_fails = 0

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self.before_put(name)
        fault = self.faults.pop(0) if self.faults else Fault.NONE
        if fault is not Fault.NONE:
            self.happened.append(fault)
        if fault is Fault.REFUSED:
            raise StorageError(f"memory: refused {name}")
        if fault is Fault.LATE:
            self.shared.late.append((name, data))
            raise StorageError(f"memory: no answer for {name}")
        created = name not in self.shared.objects
        self.shared.objects.setdefault(name, data)
        if fault is Fault.UNKNOWN:
            raise StorageError(f"memory: connection lost while writing {name}")
        if fault is Fault.BLIND and created:
            self._list_fails += 1
        return created

    def put(self, name: str, data: bytes) -> None:
        self.shared.objects[name] = data

    def get(self, name: str) -> bytes:
        self.read.append(name)
        if name not in self.shared.objects:
            raise ObjectMissing(f"memory: there is no {name}")
        return self.shared.objects[name]

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.get(name)[start : start + length]

    def exists(self, name: str) -> bool:
        return name in self.shared.objects

    def list(self, prefix: str) -> list[str]:
        if self._list_fails:
            self._list_fails -= 1
            raise StorageError("memory: cannot list")
        return sorted(name for name in self.shared.objects if name.startswith(prefix))

    def delete(self, name: str) -> None:
        self.shared.objects.pop(name, None)

    def delete_all(self, names: Sequence[str]) -> None:
        for name in names:
            self.delete(name)

    def probe(self) -> None:
        pass
