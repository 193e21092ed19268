"""The asynchronous part of snapshots: one thread per slot that serialises state and makes it durable (F24, F25)."""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.coordinator.types import StateHandle, StateKind
from tidegate.errors import TidegateError
from tidegate.ids import CheckpointId
from tidegate.journal.state_files import derive_head
from tidegate.slot.copies import NO_COPIES, Copies
from tidegate.slot.faults import is_of_the_work
from tidegate.storage.base import Storage, StorageError
from tidegate.storage.checksum import seal
from tidegate.storage.names import state_name
from tidegate.task.loop import Uploaded, UploadJob

logger = logging.getLogger(__name__)

SUFFIXES: Final = {
    StateKind.OPERATOR: "state",
    StateKind.LIST: "state",
    StateKind.INPUT: "input",
    StateKind.OUTPUT: "output",
}
ABANDONED_MAX: Final = 50
"""Aborted checkpoints that are remembered; more cannot be in flight."""


class Uploads:
    """A thread that runs upload jobs; `wake` is called for every result."""

    def __init__(self, storage: Storage, wake: Callable[[], None], clock: Clock = SYSTEM_CLOCK) -> None:
        self.copies: Copies = NO_COPIES
        """Copies of the files written; set before the first job."""
        self._results: queue.SimpleQueue[Uploaded] = queue.SimpleQueue()
        self._abandoned: deque[CheckpointId] = deque(maxlen=ABANDONED_MAX)
        self._storage = storage
        self._wake = wake
        self._clock = clock
        self._jobs: queue.SimpleQueue[UploadJob | StateHandle | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="uploads", daemon=True)
        self._start()

    def submit(self, job: UploadJob) -> None:
        """Queues a job; the checkpoints in flight bound their number."""
        self._put(job)

    def take_results(self) -> list[Uploaded]:
        """Returns the results since the last call; deletes state of aborted checkpoints instead (F27)."""
        taken: list[Uploaded] = []
        while not self._results.empty():
            result = self._results.get()
            if result.checkpoint not in self._abandoned:
                taken.append(result)
            else:
                self.discard(result.handles)
        return taken

    def abandon(self, checkpoint: CheckpointId) -> None:
        """Cancels queued jobs of a checkpoint and deletes state written for it and not taken yet (F27)."""
        self._abandoned.append(checkpoint)

    def discard(self, handles: Iterable[StateHandle]) -> None:
        """Deletes state that was taken and is no longer needed."""
        for handle in handles:
            self._put(handle)

    def close(self, timeout_s: float) -> None:
        """Waits for the running job and ends the thread."""
        self._jobs.put(None)
        self._thread.join(timeout_s)

    def _start(self) -> None:
        self._thread.start()

    def _put(self, job: UploadJob | StateHandle) -> None:
        self._jobs.put(job)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._do(job)
            del job  # otherwise its encoded state would be held until the next job

    def _do(self, job: UploadJob | StateHandle) -> None:
        """Writes the state of a job, or deletes state that is no longer needed."""
        if isinstance(job, StateHandle):
            self._delete(job)
            return
        if job.checkpoint in self._abandoned:
            return
        started = self._clock.monotonic()
        handles: list[StateHandle] = []
        error = ""
        try:
            for number, data in enumerate(job.encode()):
                handles.append(self._write(job, number, data))
        except TidegateError as failure:
            error = failure.message
        except BaseException as failure:  # a failed snapshot declines its checkpoint; it must not end the thread
            if not is_of_the_work(failure):
                raise
            logger.exception("snapshot of %s for checkpoint %s failed", job.operator, job.checkpoint)
            error = f"{type(failure).__name__}: {failure}"
        if error:
            for handle in handles:
                self._delete(handle)
            handles.clear()
        elapsed_ms = (self._clock.monotonic() - started) * 1000
        self._results.put(Uploaded(job.subtask, job.checkpoint, tuple(handles), error, elapsed_ms))
        self._wake()

    def _delete(self, handle: StateHandle) -> None:
        self.copies.drop(handle.path)
        try:
            self._storage.delete(handle.path)
        except StorageError as failure:  # the sweep at the next recovery finds it
            logger.warning("state of an abandoned checkpoint was not deleted: %s", failure.message)

    def _write(self, job: UploadJob, number: int, body: bytes) -> StateHandle:
        data = seal(body)
        handle = derive_handle(job, number, data)
        self._storage.put(handle.path, data)
        self.copies.keep(handle.path, data)
        return handle


def derive_handle(job: UploadJob, number: int, data: bytes) -> StateHandle:
    """Returns the handle of file `number` of a job; `data` as stored."""
    head_bytes, head_sha256 = derive_head(data)
    suffix = ".".join(filter(None, (job.state, str(number or ""), SUFFIXES[job.kind])))
    return StateHandle(
        operator=job.operator,
        subtask=job.subtask.index,
        path=state_name(job.checkpoint, job.operator, job.subtask.index, suffix),
        size_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        kind=job.kind,
        edges=job.edges,
        increment=job.increment,
        state=job.state,
        head_bytes=head_bytes,
        head_sha256=head_sha256,
    )
