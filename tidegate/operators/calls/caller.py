"""Runs calls on an asyncio loop on its own thread. The slot loop submits them and collects the finished ones.

A call has a timeout for each attempt, pauses that double, and a budget for all attempts together.

There is one thread per subtask. It never blocks the slot loop: calls go in by `submit` and come back by `take` after a
`wake`. A call that never ends keeps its place until its timeout. Calls that still hang when the step is closed are left
to a daemon thread.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import sys
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import CodeType
from typing import Any, Final, Protocol

import msgspec
from typing_extensions import override

from tidegate.config.fields.units import render_duration
from tidegate.errors import AttemptFailed
from tidegate.formats.failures import FailureKind
from tidegate.operators.async_queue import CallFailure, PendingCall
from tidegate.user_code.failure import choose_place, describe_failure, find_stack_place, text_of

PAUSE_MAX_MS: Final = 30_000
"""The maximum length of a pause."""


class CallPolicy(msgspec.Struct, frozen=True):
    """How long and how often a call is attempted."""

    timeout_ms: int
    retries: int
    backoff_ms: int
    budget_ms: int


class Refused(Exception):
    """A failure that another attempt would only repeat."""

    def __init__(self, message: str, kind: FailureKind = FailureKind.CALL_FAILED) -> None:
        super().__init__(message)
        self.kind = kind


class Unavailable(Exception):
    """A failure after which another attempt may succeed, but not before `retry_after_s`."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


def derive_pause_ms(policy: CallPolicy, attempt: int, share: float) -> float:
    """Returns the pause after attempt number `attempt` (from 1). `share`, 0 to 1, spreads it over its upper half."""
    doubled = min(float(PAUSE_MAX_MS), policy.backoff_ms * 2.0 ** min(attempt - 1, 32))
    return doubled * (0.5 + share / 2)


async def attempt_call(
    ask: Callable[[], Awaitable[object]], policy: CallPolicy, draw: Callable[[], float]
) -> object | CallFailure:
    """Returns the answer, or why there is none. `draw` returns a number from 0 to 1.

    No exception of `ask` is propagated, except a cancellation of the task that runs this function.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + policy.budget_ms / 1000
    attempt = 1
    while True:
        limit_s = min(policy.timeout_ms / 1000, deadline - clock())
        answer, retry_after_s = await _attempt_once(ask, limit_s)
        if not isinstance(answer, CallFailure) or retry_after_s is None:
            return answer
        pause_s = max(derive_pause_ms(policy, attempt, draw()) / 1000, retry_after_s)
        if attempt > policy.retries:
            return _after(answer, attempt, "")
        if clock() + pause_s >= deadline:
            return _after(answer, attempt, f", the budget of {render_duration(policy.budget_ms)} is used up")
        await asyncio.sleep(pause_s)
        attempt += 1


async def _attempt_once(ask: Callable[[], Awaitable[object]], limit_s: float) -> tuple[object, float | None]:
    """Returns the answer or a failure, and the time until another attempt is allowed; None for never."""
    scope = asyncio.timeout(limit_s)
    try:
        async with scope:
            return await ask(), None
    except Refused as error:
        return CallFailure(error.kind, text_of(error)), None
    except Unavailable as error:
        return CallFailure(FailureKind.CALL_FAILED, text_of(error)), error.retry_after_s
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise  # the step is being closed
        return CallFailure(
            FailureKind.CALL_FAILED, f"the call was cancelled from within: {describe_failure(error)}"
        ), 0.0
    except GeneratorExit:
        raise  # nothing waits for the answer any more
    except BaseException as error:  # noqa: BLE001  # whatever a user's function raises, even a panic of a compiled library
        if scope.expired() and isinstance(error, TimeoutError):
            limit = render_duration(max(1, round(limit_s * 1000)))
            return CallFailure(FailureKind.CALL_TIMED_OUT, f"no answer within {limit}"), 0.0
        return CallFailure(FailureKind.CALL_FAILED, describe_failure(error)), 0.0


def _after(failure: CallFailure, attempts: int, why: str) -> CallFailure:
    count = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    return CallFailure(failure.kind, f"{failure.message} ({count}{why})")


logger = logging.getLogger(__name__)

CHECK_S: Final = 1.0
BLOCKED_CHECKS: Final = 10
"""After this many unanswered checks in a row, the block is reported, and again each time the number has doubled."""
GRACE_S: Final = 10.0
"""How long after its budget a call is reported as not ended."""


class CallWatch:
    """Reports a call that blocks all others, and a call that has exceeded its budget. Neither ends by itself.

    It checks the loop of a ThreadCaller every `check_s` seconds, on a thread of its own. It counts checks, not seconds,
    because a process that was stopped and resumed has not been blocked.

    A call that blocks stops the loop that runs all calls of its slot, including their timeouts. A call that ignores its
    cancellation keeps its place. Both are mistakes in a user's function that nothing else reports.
    """

    def __init__(
        self,
        name: str,
        policy: CallPolicy,
        watched: threading.Thread,
        check_s: float,
        begun: Mapping[asyncio.Task[None], float],
    ) -> None:
        """`begun`: the running calls, with the loop's time when they began; read only on the loop."""
        self._name = name
        self._budget_s = policy.budget_ms / 1000
        self._watched = watched
        self._check_s = check_s
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
        missed, tell_at = 0, BLOCKED_CHECKS
        while not self._over.wait(self._check_s):
            if self._answered.is_set():
                missed, tell_at = 0, BLOCKED_CHECKS
                self._answered.clear()
                try:
                    self._loop.call_soon_threadsafe(self._answer)
                except RuntimeError:  # it has ended
                    return
                continue
            missed += 1
            if missed == tell_at:
                tell_at *= 2
                self._tell_blocked(missed * self._check_s)

    def _tell_blocked(self, seconds: float) -> None:
        frame = sys._current_frames().get(self._watched.ident or 0)  # noqa: SLF001  # the only way to inspect another thread
        logger.warning(
            "a call of %s has blocked all calls of its slot for %g s%s. No answer and no timeout is handled until "
            "it returns. Await long operations, or run them with `asyncio.to_thread`",
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
            "%d of the calls of %s %s not ended %s after their budget of %s%s. A call that ignores its "
            "cancellation keeps its place until the attempt ends. Let `CancelledError` pass",
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


OPEN_TIMEOUT_S: Final = 60.0
CANCEL_TIMEOUT_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 1.0
THREADS_MAX: Final = 512
"""The maximum number of threads for `asyncio.to_thread`, created on demand. With fewer threads than concurrent calls,
calls would queue while their timeouts run. Python's default, the number of processors plus four, is exhausted after
that many hanging calls.
"""
JOIN_TIMEOUT_S: Final = CANCEL_TIMEOUT_S + CLOSE_TIMEOUT_S + 0.5

Asked = Sequence[tuple[PendingCall, object]]
"""Calls with their requests: a row or a URL."""


class CallsFailed(AttemptFailed):
    """What answers calls cannot be opened, or its thread has ended. No record is at fault."""

    code = "calls-failed"


class CallTarget(Protocol):
    """What is called. All its methods run on the asyncio loop."""

    async def open(self) -> None:
        """Called once, before the first call."""

    def ask(self, request: object) -> Awaitable[object]:
        """Returns the answer. Raises Refused, Unavailable, or any other exception, which is retried."""

    async def close(self) -> None:
        """Called once, after the last call, even if `open` has raised."""


class Caller(Protocol):
    """Makes calls outside the slot loop. The slot loop calls all methods, and they return at once."""

    def submit(self, asked: Asked) -> None:
        """Starts these calls, in order."""

    def take(self) -> list[PendingCall]:
        """Returns the calls that have ended since the last time, in the order of their ends. Raises CallsFailed."""

    def close(self) -> None:
        """Closes within a bounded time, even if calls hang."""


OpenCaller = Callable[[str, CallTarget, CallPolicy, Callable[[], None]], Caller]
"""Opens a caller from a name, a target, a policy, and a function that wakes the slot loop."""

OpenReader = Callable[[Any, str, Callable[[], None]], Caller]
"""Opens a reader of single records from origins (`dead_letters.Origin`), a name, and what wakes the slot loop."""


async def open_target(target: CallTarget, *stopping: asyncio.Task[bool]) -> bool:
    """Opens a target. Returns False if one of `stopping` ends first. Raises CallsFailed."""
    opening = asyncio.create_task(target.open())
    await asyncio.wait({opening, *stopping}, timeout=OPEN_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
    if opening.done():
        error = _error_of(opening)
        if error is not None:
            raise CallsFailed(f"`open` failed: {describe_failure(error)}") from error
        return True
    opening.cancel()
    if any(one.done() for one in stopping):
        return False
    raise CallsFailed(f"`open` has not ended within {OPEN_TIMEOUT_S:g} s")


async def close_target(target: CallTarget, name: str) -> None:
    """Closes a target within a bounded time. A failure only logs a warning."""
    closing = asyncio.create_task(target.close())
    await asyncio.wait({closing}, timeout=CLOSE_TIMEOUT_S)
    if not closing.done():
        logger.warning("`close` of %s has not ended within %g s", name, CLOSE_TIMEOUT_S)
    elif (error := _error_of(closing)) is not None:
        logger.warning("`close` of %s failed: %s", name, describe_failure(error))


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    """Returns the error of a finished task. The task may have cancelled itself, as old timeout helpers do."""
    return asyncio.CancelledError("cancelled from within") if task.cancelled() else task.exception()


class ThreadCaller(Caller):
    """A caller with a thread of its own, which starts with the first call."""

    def __init__(
        self, name: str, target: CallTarget, policy: CallPolicy, wake: Callable[[], None], check_s: float = CHECK_S
    ) -> None:
        """`name` seeds the pauses between attempts, so that two subtasks do not pause for the same time."""
        self._name = name
        self._target = target
        self._policy = policy
        self._wake = wake
        self._draw = random.Random(name).random  # noqa: S311  # not for security
        self._done: deque[PendingCall] = deque()
        self._woken = False
        self._broken: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=f"calls of {name}", daemon=True)
        self._tasks: dict[asyncio.Task[None], float] = {}
        """Used only on the thread, like all that follow: the calls with the loop's time when they began."""
        self._watch = CallWatch(name, policy, self._thread, check_s, self._tasks)
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
        self._woken = False  # first: what ends from here on wakes again
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
            logger.warning("calls of %s did not end when they were cancelled, and are abandoned", self._name)

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
            answer = CallFailure(
                FailureKind.CALL_FAILED, f"the call was cancelled from within: {describe_failure(error)}"
            )
        if isinstance(answer, CallFailure):
            call.failure = answer
        else:
            call.answer = answer
        self._done.append(call)
        if not self._woken:
            self._woken = True
            self._wake()
