"""Virtual threads: real threads of which exactly one runs at a time, so that blocking code can be paused anywhere.

Whoever holds the baton runs; everybody else waits for a lock. A worker gives the baton back when its work blocks or
ends. Workers are kept for the next work: starting a thread costs more than a whole simulated checkpoint.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Worker:
    """One real thread. `run` and `resume` are for the scheduler, `pause` for the work."""

    def __init__(self, idle: list[Worker]) -> None:
        self._idle = idle
        self._go = threading.Lock()
        self._back = threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._work: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._serve, name="virtual", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], None]) -> None:
        """Begin; returns when the work pauses or has ended."""
        self._work = work
        self.resume()

    def resume(self) -> None:
        """Go on; returns when the work pauses or has ended."""
        self._go.release()
        self._back.acquire()

    def pause(self) -> None:
        """Give the baton back until the next `resume`; only from within the work."""
        self._back.release()
        self._go.acquire()

    def end(self) -> None:
        """End the thread; it must be idle."""
        self._work = None
        self._go.release()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            self._go.acquire()
            work = self._work
            if work is None:
                return
            work()
            self._work = None
            self._idle.append(self)
            self._back.release()


class Workers:
    """A pool of them; it grows as needed."""

    def __init__(self) -> None:
        self._idle: list[Worker] = []

    def take(self) -> Worker:
        """One that is idle."""
        return self._idle.pop() if self._idle else Worker(self._idle)

    def close(self) -> None:
        """End all idle threads."""
        while self._idle:
            self._idle.pop().end()
