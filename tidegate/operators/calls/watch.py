"""Reports a call that blocks all others, and a call that has exceeded its budget. Neither ends by itself.

A call that blocks stops the loop that runs all calls of its slot, including their timeouts. A call that ignores its
cancellation keeps its place. Both are mistakes in a user's function that nothing else reports.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any, Final

from tidegate.config.fields.units import render_duration
from tidegate.operators.calls.attempts import CallPolicy
from tidegate.user_code.failure import choose_place, find_stack_place

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
BLOCKED_LOOKS: Final = 10
"""After this many unanswered checks in a row, the block is reported, and again each time the number has doubled."""
GRACE_S: Final = 10.0
"""How long after its budget a call is reported as not ended."""


class CallWatch:
    """Checks the loop of a ThreadCaller every `look_s` seconds, on a thread of its own.

    It counts checks, not seconds, because a process that was stopped and resumed has not been blocked.
    """

    def __init__(
        self,
        name: str,
        policy: CallPolicy,
        watched: threading.Thread,
        look_s: float,
        begun: Mapping[asyncio.Task[None], float],
    ) -> None:
        """`begun`: the running calls, with the loop's time when they began; read only on the loop."""
        self._name = name
        self._budget_s = policy.budget_ms / 1000
        self._watched = watched
        self._look_s = look_s
        self._over = threading.Event()
        self._answered = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        # Used only on the loop:
        self._begun = begun
        self._named: weakref.WeakSet[asyncio.Task[None]] = weakref.WeakSet()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts checking, until `stop` or the end of the loop."""
        self._loop = loop
        threading.Thread(target=self._run, name=f"watch of {self._watched.name}", daemon=True).start()

    def stop(self) -> None:
        """Stops checking; returns at once."""
        self._over.set()

    def _run(self) -> None:
        assert self._loop is not None
        self._answered.set()
        missed, tell_at = 0, BLOCKED_LOOKS
        while not self._over.wait(self._look_s):
            if self._answered.is_set():
                missed, tell_at = 0, BLOCKED_LOOKS
                self._answered.clear()
                try:
                    self._loop.call_soon_threadsafe(self._answer)
                except RuntimeError:  # it has ended
                    return
                continue
            missed += 1
            if missed == tell_at:
                tell_at *= 2
                self._tell_blocked(missed * self._look_s)

    def _tell_blocked(self, seconds: float) -> None:
        frame = sys._current_frames().get(self._watched.ident or 0)  # noqa: SLF001  # the only way to inspect another thread
        logger.warning(
            "a call of %s has blocked all calls of its slot for %g s%s: nothing is answered, and no limit of time "
            "counts, until it returns; await what takes long, or hand it to `asyncio.to_thread`",
            self._name,
            seconds,
            _at(find_stack_place(frame)),
        )

    def _answer(self) -> None:
        self._answered.set()
        assert self._loop is not None
        limit = self._loop.time() - self._budget_s - GRACE_S
        late = [task for task, begun in self._begun.items() if begun < limit and task not in self._named]
        if not late:
            return
        self._named.update(late)
        logger.warning(
            "%d of the calls of %s %s not ended %s after their budget of %s%s: what ignores its cancellation keeps its "
            "place until the attempt ends; let `CancelledError` pass",
            len(late),
            self._name,
            "has" if len(late) == 1 else "have",
            render_duration(int(GRACE_S * 1000)),
            render_duration(int(self._budget_s * 1000)),
            _at(choose_place(_suspended(late[0].get_coro()))),
        )


def _suspended(coroutine: Any) -> Iterator[tuple[CodeType, int | None]]:
    """Yields where a call waits, the outermost coroutine first."""
    while inspect.iscoroutine(coroutine):
        if coroutine.cr_frame is not None:
            yield coroutine.cr_frame.f_code, coroutine.cr_frame.f_lineno
        coroutine = coroutine.cr_await


def _at(place: str) -> str:
    return f", at {place}" if place else ""
