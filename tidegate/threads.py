"""Threads for what blocks, and what they wait with. The simulation hands in virtual ones."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol

JOBS_MAX: Final = 64


class HelperThread:
    """Runs jobs one after the other. A job that raises ends with `on_error`, and the thread goes on."""

    def __init__(self, name: str, on_error: Callable[[BaseException], None]) -> None:
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(JOBS_MAX)
        self._on_error = on_error
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._started = False

    def submit(self, job: Callable[[], None]) -> None:
        """Queue a job; never blocks. Raises queue.Full when the bound is broken, which is a bug."""
        if not self._started:
            self._started = True
            self._thread.start()
        self._jobs.put_nowait(job)

    def stop(self) -> None:
        """Let the thread end after the jobs that are queued."""
        if self._started:
            self._jobs.put_nowait(None)

    def join(self, timeout_s: float) -> bool:
        """Whether the thread has ended within the time."""
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
    """What is used of threading.Condition."""

    def __enter__(self) -> object:
        """Take the lock."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Give it back."""

    def wait_for(self, predicate: Callable[[], object], timeout: float | None = None) -> object:
        """Until the predicate holds, or the time is over; what it says last."""

    def notify_all(self) -> None:
        """Let everybody who waits look again."""


class Threads:
    """The real ones."""

    def helper(self, name: str, on_error: Callable[[BaseException], None]) -> HelperThread:
        """A thread for what blocks."""
        return HelperThread(name, on_error)

    def condition(self) -> Condition:
        """For threads that wait for each other."""
        return threading.Condition()
