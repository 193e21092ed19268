"""Virtual threads: real threads of which exactly one runs at a time, so that blocking code can be paused anywhere.

Whoever holds the baton runs; everybody else sleeps. Whoever has nothing to do any more looks itself who goes on
(`kernel.py`) and gives the baton straight to it: mostly it is itself, and then no real thread changes at all. Workers
are kept for the next work: starting a thread costs more than a whole simulated checkpoint.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Carrier:
    """A real thread that can hold the baton. Only `wake` is for other threads."""

    def __init__(self) -> None:
        self._awake = threading.Lock()
        self._awake.acquire()

    def wake(self) -> None:
        """Give it the baton; then the caller must touch nothing, and sleep."""
        self._awake.release()

    def sleep(self, timeout_s: float = -1) -> None:
        """Until somebody gives the baton."""
        self._awake.acquire(timeout=timeout_s)


class Worker(Carrier):
    """A real thread for virtual ones, one after the other. `work` is set before it is woken."""

    def __init__(self) -> None:
        super().__init__()
        self.work: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._serve, name="virtual", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the thread; it must be idle."""
        self.work = None
        self.wake()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            self.sleep()
            if self.work is None:
                return
            self.work()


class Workers:
    """A pool of them; it grows as needed."""

    def __init__(self) -> None:
        self._idle: list[Worker] = []

    def take(self) -> Worker:
        """One that is idle."""
        return self._idle.pop() if self._idle else Worker()

    def give(self, worker: Worker) -> None:
        """It has nothing to do any more, and sleeps as soon as it has given the baton away."""
        self._idle.append(worker)

    def close(self) -> None:
        """End all idle threads."""
        while self._idle:
            self._idle.pop().end()
