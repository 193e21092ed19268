"""The product's helper threads as virtual threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from typing_extensions import override

from tidegate.simulation.kernel import SimKilled, VirtualProcess, VirtualThread
from tidegate.slot.uploads import Uploads
from tidegate.task.loop import UploadJob
from tidegate.threads import HelperThread

if TYPE_CHECKING:
    from tidegate.coordinator.types import StateHandle
    from tidegate.storage.base import Storage


class JobQueue:
    """Jobs of one process, run in order. A virtual thread exists only while there are any."""

    def __init__(self, process: VirtualProcess, name: str, on_error: Callable[[BaseException], None]) -> None:
        self._process = process
        self._name = name
        self._on_error = on_error
        self._jobs: deque[Callable[[], None]] = deque()
        self.thread: VirtualThread | None = None

    def add(self, job: Callable[[], None]) -> None:
        """Adds a job behind those that are waiting."""
        self._jobs.append(job)
        if self.thread is None and self._process.alive:
            self.thread = self._process.kernel.spawn(self._process, self._name, self._serve)

    def join(self, timeout_s: float) -> bool:
        """Waits until no job is left. Returns whether that is so."""
        return self.thread is None or self._process.kernel.join(self.thread, timeout_s)

    def _serve(self) -> None:
        while self._jobs:
            job = self._jobs.popleft()
            try:
                job()
            except SimKilled:
                raise
            except BaseException as error:  # noqa: BLE001 - reported, as HelperThread does
                self._on_error(error)
        self.thread = None


class SimHelper(HelperThread):
    """A helper thread with a job queue."""

    def __init__(self, process: VirtualProcess, name: str, on_error: Callable[[BaseException], None]) -> None:
        self._queue = JobQueue(process, name, on_error)

    @override
    def submit(self, job: Callable[[], None]) -> None:
        self._queue.add(job)

    def stop(self) -> None:
        """Does nothing: the thread ends by itself when no job is left."""

    @override
    def join(self, timeout_s: float) -> bool:
        return self._queue.join(timeout_s)


class SimUploads(Uploads):
    """Uploads on a virtual thread."""

    def __init__(self, process: VirtualProcess, storage: Storage, wake: Callable[[], None]) -> None:
        self._queue = JobQueue(process, "uploads", _raise)
        super().__init__(storage, wake, process.clock)

    @override
    def close(self, timeout_s: float) -> None:
        self._queue.join(timeout_s)

    def _start(self) -> None:
        """Does nothing: the thread starts with the first job."""

    def _put(self, job: UploadJob | StateHandle) -> None:
        self._queue.add(lambda: self._do(job))


def _raise(error: BaseException) -> None:
    raise error
