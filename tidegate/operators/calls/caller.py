"""Calls run on an asyncio loop of their own thread; the slot loop hands them over and fetches what is done.

One thread per subtask. Nothing of it blocks the slot loop: calls go in by `submit`, and come back by `take` after a
`wake`. A call that never ends keeps its place until its timeout; whatever still hangs when the step is closed is left
to a daemon thread.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

from typing_extensions import override

from tidegate.errors import AttemptFailed
from tidegate.formats.failures import FailureKind
from tidegate.operators.async_queue import CallFailure, PendingCall
from tidegate.operators.calls.attempts import CallPolicy, attempt_call, name_error
from tidegate.operators.calls.watch import LOOK_S, CallWatch

logger = logging.getLogger(__name__)

OPEN_TIMEOUT_S: Final = 60.0
CANCEL_TIMEOUT_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 1.0
THREADS_MAX: Final = 512
"""For `asyncio.to_thread`, made when they are needed. With fewer than calls are under way these would queue while their
time limits run, and Python's own number, the processors and four, is gone after as many calls that hang."""
JOIN_TIMEOUT_S: Final = CANCEL_TIMEOUT_S + CLOSE_TIMEOUT_S + 0.5

Asked = Sequence[tuple[PendingCall, object]]
"""Calls with what is asked: a row, a URL."""


class CallsFailed(AttemptFailed):
    """What answers cannot be opened, or its thread has ended: no record's fault."""

    code = "calls-failed"


class CallTarget(Protocol):
    """What is called. All of it runs on the asyncio loop."""

    async def open(self) -> None:
        """Once, before the first call."""

    def ask(self, request: object) -> Awaitable[object]:
        """The answer. Raises Refused, Unavailable, or whatever else, which is tried again."""

    async def close(self) -> None:
        """Once, after the last call, also when `open` has raised."""


class Caller(Protocol):
    """Makes calls outside the slot loop. All methods are called from the slot loop and return at once."""

    def submit(self, asked: Asked) -> None:
        """Begin these calls, in their order."""

    def take(self) -> list[PendingCall]:
        """Those with an answer or a failure since the last time, in the order of their ends. Raises CallsFailed."""

    def close(self) -> None:
        """Within a bounded time, whatever hangs."""


OpenCaller = Callable[[str, CallTarget, CallPolicy, Callable[[], None]], Caller]
"""Name, target, policy, and what wakes the slot loop."""

OpenReader = Callable[[Any, str, Callable[[], None]], Caller]
"""Of single records: where they are read (`builtin/dead_letters.Origin`), name, and what wakes the slot loop."""


async def open_target(target: CallTarget, *stopping: asyncio.Task[bool]) -> bool:
    """Whether it is open; False when one of `stopping` is done before. Raises CallsFailed."""
    opening = asyncio.create_task(target.open())
    await asyncio.wait({opening, *stopping}, timeout=OPEN_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
    if opening.done():
        error = _error_of(opening)
        if error is not None:
            raise CallsFailed(f"`open` failed: {name_error(error)}") from error
        return True
    opening.cancel()
    if any(one.done() for one in stopping):
        return False
    raise CallsFailed(f"`open` has not ended within {OPEN_TIMEOUT_S:g} s")


async def close_target(target: CallTarget, name: str) -> None:
    """Within a bounded time; what goes wrong is a warning."""
    closing = asyncio.create_task(target.close())
    await asyncio.wait({closing}, timeout=CLOSE_TIMEOUT_S)
    if not closing.done():
        logger.warning("`close` of %s has not ended within %g s", name, CLOSE_TIMEOUT_S)
    elif (error := _error_of(closing)) is not None:
        logger.warning("`close` of %s failed: %s", name, name_error(error))


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    """Of a task that is done. It may have cancelled itself, as old helpers for time limits do."""
    return asyncio.CancelledError("cancelled from within") if task.cancelled() else task.exception()


class ThreadCaller(Caller):
    """See Caller. The thread begins with the first call."""

    def __init__(
        self, name: str, target: CallTarget, policy: CallPolicy, wake: Callable[[], None], look_s: float = LOOK_S
    ) -> None:
        """`name` seeds the pauses between attempts: two subtasks do not pause for the same time."""
        self._name = name
        self._target = target
        self._policy = policy
        self._wake = wake
        self._draw = random.Random(name).random  # noqa: S311  # no secret
        self._done: deque[PendingCall] = deque()
        self._woken = False
        self._broken: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=f"calls of {name}", daemon=True)
        self._tasks: dict[asyncio.Task[None], float] = {}
        """Of the thread only, like all that follows: with the time of the loop when they began."""
        self._watch = CallWatch(name, policy, self._thread, look_s, self._tasks)
        self._opened = self._closing = False
        self._early: list[tuple[PendingCall, object]] = []
        self._stop: asyncio.Event | None = None

    @override
    def submit(self, asked: Asked) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread.start()
            self._watch.start(self._loop)
        if self._broken is None:
            self._loop.call_soon_threadsafe(self._begin, asked)

    @override
    def take(self) -> list[PendingCall]:
        if self._broken is not None:
            raise CallsFailed(f"the calls of {self._name} have ended: {self._broken}") from self._broken
        self._woken = False  # first: what is done from here on wakes again
        taken: list[PendingCall] = []
        done = self._done
        while done:
            taken.append(done.popleft())
        return taken

    @override
    def close(self) -> None:
        if self._loop is None:
            return
        self._watch.stop()
        if self._thread.is_alive():
            try:
                self._loop.call_soon_threadsafe(self._request_stop)
            except RuntimeError:  # it has just ended by itself
                logger.debug("the calls of %s had ended before they were closed", self._name)
            self._thread.join(JOIN_TIMEOUT_S)
        if self._thread.is_alive():
            logger.warning("calls of %s do not end when they are cancelled: they are left alone", self._name)

    # -- on the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        loop = self._loop
        assert loop is not None
        asyncio.set_event_loop(loop)
        loop.set_default_executor(ThreadPoolExecutor(THREADS_MAX, thread_name_prefix=f"a call of {self._name}"))
        try:
            loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - reported to the slot loop, which ends the attempt with it
            self._broken = error
            self._wake()
        finally:
            loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        stopping = asyncio.create_task(self._stop.wait())
        try:
            if await open_target(self._target, stopping):
                self._opened = True
                self._begin(self._early)
                await stopping
        finally:
            stopping.cancel()
            await self._end()

    def _request_stop(self) -> None:
        if self._stop is not None:
            self._stop.set()

    async def _end(self) -> None:
        self._closing = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_TIMEOUT_S)
        await close_target(self._target, self._name)

    def _begin(self, asked: Asked) -> None:
        if not self._opened:
            self._early += asked
            return
        loop, tasks = asyncio.get_running_loop(), self._tasks
        now = loop.time()
        for call, request in asked:
            task = loop.create_task(self._call(call, request))
            tasks[task] = now
            task.add_done_callback(tasks.pop)

    async def _call(self, call: PendingCall, request: object) -> None:
        try:
            answer = await attempt_call(lambda: self._target.ask(request), self._policy, self._draw)
        except asyncio.CancelledError as error:
            if self._closing:
                raise
            answer = CallFailure(FailureKind.CALL_FAILED, f"the call was cancelled from within: {name_error(error)}")
        if isinstance(answer, CallFailure):
            call.failure = answer
        else:
            call.answer = answer
        self._done.append(call)
        if not self._woken:
            self._woken = True
            self._wake()
