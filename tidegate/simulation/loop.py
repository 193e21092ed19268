"""An asyncio event loop on the kernel's time, one per process. Real coroutines run on it unchanged."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Final, TypeVar

from tidegate.simulation.kernel import Kernel, SimKilled, VirtualProcess

T = TypeVar("T")

CLOSE_TRIES: Final = 50


class VirtualLoop(asyncio.AbstractEventLoop):
    """The event loop of one process.

    Callbacks of a dead process never run. An executor is one virtual thread that runs its calls in order.
    """

    def __init__(self, process: VirtualProcess, on_error: Callable[[BaseException, str], None]) -> None:
        self._kernel: Kernel = process.kernel
        self._process = process
        self.random = process.random
        """Random numbers for code that runs on the loop."""
        self._on_error = on_error
        self._tasks: list[asyncio.Task[Any]] = []
        self._waiting: dict[int, deque[Callable[[], None]]] = {}
        """Executor -> its running call, followed by those that wait."""

    # -- time and callbacks -------------------------------------------------------------------------------------------

    def time(self) -> float:
        """Returns the monotonic clock of the process, as every loop does."""
        return self._process.clock.monotonic()

    def call_soon(  # type: ignore[override]  # the base class leaves it untyped
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Plans a callback for the current moment, as asyncio does."""
        handle = asyncio.Handle(callback, args, self, context)
        self._kernel.at(0.0, lambda: self._run(handle), self._process)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]  # the base class leaves it untyped
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Plans a callback for the current moment; there is only one real thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]  # the base class leaves it untyped
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Plans a callback after a delay in seconds, as asyncio does."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # the base class leaves it untyped
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Plans a callback for a time of this loop, as asyncio does."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._kernel.at(max(0.0, when - self.time()), lambda: self._run(handle), self._process)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """Creates a future on this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Creates a task on this loop."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    def run_in_executor(  # type: ignore[override]  # the base class leaves it untyped
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Runs a function on a virtual thread.

        Calls to one executor run in order, because all executors here have one thread.
        """
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return  # as in a pool: cancelled work that has not begun is not done
            try:
                result = func(*args)
            except SimKilled:
                raise
            except BaseException as error:  # noqa: BLE001 - the future carries it
                self.call_soon(_answer, future, None, error)
            else:
                self.call_soon(_answer, future, result, None)

        if executor is None:
            self._kernel.spawn(self._process, "to_thread", work)
        else:
            self._serve(id(executor), work)
        return future

    # -- what asyncio asks of a loop ----------------------------------------------------------------------------------

    def get_debug(self) -> bool:
        """Returns False."""
        return False

    def is_running(self) -> bool:
        """Returns True: it is only called while the loop runs."""
        return True

    def is_closed(self) -> bool:
        """Returns False."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ends the simulation with an uncaught error, which is a bug, unless the process is dead."""
        error = context.get("exception")
        if self._process.alive and isinstance(error, BaseException):
            self._on_error(error, str(context.get("message")))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Does nothing: the event finds that its handle is cancelled."""

    def dispose(self) -> None:
        """Closes every remaining coroutine. What they do while unwinding no longer has any effect.

        The loop counts as running meanwhile. A coroutine may create tasks while it unwinds, which are closed after it.
        """
        events._set_running_loop(self)  # noqa: SLF001 - as every loop does
        try:
            for task in self._tasks:  # the list grows
                _close(task)
        finally:
            events._set_running_loop(None)  # noqa: SLF001 - see above
        self._tasks.clear()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _run(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        events._set_running_loop(self)  # noqa: SLF001 - as every loop does
        try:
            handle._run()  # noqa: SLF001 - see above
        finally:
            events._set_running_loop(None)  # noqa: SLF001 - see above

    def _serve(self, executor: int, work: Callable[[], None]) -> None:
        queue = self._waiting.get(executor)
        if queue is not None:
            queue.append(work)
            return
        self._waiting[executor] = deque([work])

        def serve() -> None:
            queue = self._waiting[executor]
            while queue:
                queue[0]()
                queue.popleft()
            del self._waiting[executor]

        self._kernel.spawn(self._process, "executor", serve)


def _close(task: asyncio.Task[Any]) -> None:
    coroutine: Any = task.get_coro()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - the pending task is destroyed on purpose
    for _ in range(CLOSE_TRIES):
        try:
            coroutine.close()
            return
        except (RuntimeError, SimKilled):
            continue  # it awaited something while it was closed


def _answer(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
