"""Which step's code the loop of this slot runs now: for what it prints, and to name what blocks or ends the slot.

User code runs on the loop's thread, so nothing can interrupt it. The control thread, which continues meanwhile, asks
where it is.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidegate.user_code.failure import find_stack_place

logger = logging.getLogger(__name__)

BLOCKED_S: Final = 10.0
"""After this many seconds in user code without a turn of the loop, the place is logged, and again each time the number
has doubled.
"""

FORKED_EXIT_CODE: Final = 70


class RunningCode:
    """The user code of one process."""

    def __init__(self) -> None:
        self._steps: list[str] = []
        """The steps whose code runs; within that of one, rows that it emits may be processed by the code of another."""
        self._thread = 0
        self._process = 0

    def enter(self, step: str) -> None:
        """Marks code of this step as running, on this thread."""
        self._thread, self._process = threading.get_ident(), os.getpid()
        self._steps.append(step)

    def leave(self) -> None:
        """Ends what the last `enter` began. In a process that the code has forked, and that returns from it, ends that
        process: a second one must not go on with the slot's work.
        """
        if os.getpid() != self._process:
            print(f"step {self._step}: a process that its code has forked ends here", file=sys.__stderr__, flush=True)
            os._exit(FORKED_EXIT_CODE)
        self._steps.pop()

    @contextmanager
    def of(self, step: str) -> Iterator[None]:
        """Marks code of this step as running within the block."""
        self.enter(step)
        try:
            yield
        finally:
            self.leave()

    @property
    def step_here(self) -> str:
        """The step whose code runs on the thread that asks; empty on any other thread."""
        return self._step if self._thread == threading.get_ident() else ""

    @property
    def _step(self) -> str:
        return "".join(self._steps[-1:])  # another thread may end it at any moment

    def describe(self) -> str:
        """Returns step and place, `visits (visits.py:14 in process)`, as seen from any thread; empty if none runs."""
        step, frame = self._step, sys._current_frames().get(self._thread)  # noqa: SLF001  # another thread's stack
        place = find_stack_place(frame)
        return f"{step} ({place})" if step and place else step


RUNNING: Final = RunningCode()
"""That of this process."""


class BlockingWatch:
    """Logs where user code is that keeps the loop from turning. `look` is called at regular intervals.

    It counts its looks, not seconds, because a process that was stopped and resumed has not been blocked.
    """

    def __init__(self, interval_s: float, running: RunningCode = RUNNING) -> None:
        self._interval_s = interval_s
        self._running = running
        self._turn: float | None = None
        self._checks = 0
        self._report_at_s = BLOCKED_S

    def look(self, turned_at: float | None) -> str:
        """Returns the user code that runs, as `describe` does. `turned_at`: when the loop completed its last turn."""
        where = self._running.describe()
        if turned_at != self._turn or not where:
            self._turn, self._checks, self._report_at_s = turned_at, 0, BLOCKED_S
            return where
        self._checks += 1
        seconds = self._checks * self._interval_s
        if seconds >= self._report_at_s:
            self._report_at_s *= 2
            logger.warning(
                "the code of %s has blocked its slot for %.0f s: other steps, barriers and checkpoints wait until "
                "it returns. Move calls that wait into an `async` step",
                where,
                seconds,
            )
        return where
