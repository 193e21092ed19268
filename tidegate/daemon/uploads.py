"""The asynchronous part of snapshots: one thread per slot that serialises state and makes it durable (F24, F25)."""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
import time
from collections.abc import Callable

from tidegate.coordinator.types import StateHandle
from tidegate.errors import TidegateError
from tidegate.storage.base import Storage
from tidegate.storage.checksum import seal
from tidegate.storage.names import state_name
from tidegate.task.loop import Uploaded, UploadJob

logger = logging.getLogger(__name__)


class Uploads:
    """Jobs in, results out; `wake` is called for every result."""

    def __init__(self, storage: Storage, wake: Callable[[], None]) -> None:
        self.results: queue.SimpleQueue[Uploaded] = queue.SimpleQueue()
        self._storage = storage
        self._wake = wake
        self._jobs: queue.SimpleQueue[UploadJob | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="uploads", daemon=True)
        self._thread.start()

    def submit(self, job: UploadJob) -> None:
        """Queue a job; bounded by the checkpoints in flight."""
        self._jobs.put(job)

    def close(self, timeout_s: float) -> None:
        """Let the running job end."""
        self._jobs.put(None)
        self._thread.join(timeout_s)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            started = time.perf_counter()
            handle, error = None, ""
            try:
                handle = self._write(job)
            except TidegateError as failure:
                error = failure.message
            except Exception as failure:  # a failed snapshot declines its checkpoint, it must not end the thread
                logger.exception("snapshot of %s for checkpoint %s failed", job.operator, job.checkpoint)
                error = f"{type(failure).__name__}: {failure}"
            elapsed_ms = (time.perf_counter() - started) * 1000
            self.results.put(Uploaded(job.subtask, job.checkpoint, handle, error, elapsed_ms))
            self._wake()

    def _write(self, job: UploadJob) -> StateHandle:
        data = seal(job.capture())
        path = state_name(job.checkpoint, job.operator, job.subtask.index)
        self._storage.put(path, data)
        return StateHandle(job.operator, job.subtask.index, path, len(data), hashlib.sha256(data).hexdigest())
