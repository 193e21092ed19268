"""Threads for blocking work, and conditions to wait on. The simulation passes in virtual ones."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol

JOBS_MAX: Final = 64


class HelperThread:
    """Runs jobs one after another. If a job raises, `on_error` is called and the thread continues."""

    def __init__(self, name: str, on_error: Callable[[BaseException], None]) -> None:
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(JOBS_MAX)
        self._on_error = on_error
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._started = False

    def submit(self, job: Callable[[], None]) -> None:
        """Queues a job; never blocks. Raises queue.Full if the limit is exceeded, which is a bug."""
        if not self._started:
            self._started = True
            self._thread.start()
        self._jobs.put_nowait(job)

    def stop(self) -> None:
        """Lets the thread end after the queued jobs."""
        if self._started:
            self._jobs.put_nowait(None)

    def join(self, timeout_s: float) -> bool:
        """Waits for the thread. Returns whether it ended in time."""
        if self._started:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            try:
                job()
            except BaseException as error:  # noqa: BLE001 - reported to the loop, which fails the attempt with it
                self._on_error(error)
            del job  # a job holds a producer; dropping the last reference here keeps that work off the loop


class Condition(Protocol):
    """The part of threading.Condition used here."""

    def __enter__(self) -> object:
        """Takes the lock."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Releases the lock."""

    def wait_for(self, predicate: Callable[[], object], timeout: float | None = None) -> object:
        """Waits until the predicate holds or the timeout expires. Returns the predicate's last value."""

    def notify_all(self) -> None:
        """Wakes every waiting thread."""


class Threads:
    """The real threads and conditions."""

    def helper(self, name: str, on_error: Callable[[BaseException], None]) -> HelperThread:
        """Returns a thread for blocking work."""
        return HelperThread(name, on_error)

    def condition(self) -> Condition:
        """Returns a condition for threads that wait for each other."""
        return threading.Condition()
