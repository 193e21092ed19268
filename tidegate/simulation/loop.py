"""An asyncio event loop on the kernel's time, one for each process: real coroutines run on it unchanged."""

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
    """See the module. Callbacks of a dead process never run; an executor is one virtual thread that serves in turn."""

    def __init__(self, process: VirtualProcess, on_error: Callable[[BaseException, str], None]) -> None:
        self._kernel: Kernel = process.kernel
        self._process = process
        self.random = process.random
        """For what runs on it."""
        self._on_error = on_error
        self._tasks: list[asyncio.Task[Any]] = []
        self._waiting: dict[int, deque[Callable[[], None]]] = {}
        """Per executor: calls that wait for the one that runs."""

    # -- time and callbacks -------------------------------------------------------------------------------------------

    def time(self) -> float:
        """The monotonic clock of its process, as with every loop."""
        return self._process.clock.monotonic()

    def call_soon(  # type: ignore[override]  # the base class leaves it untyped
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See asyncio."""
        handle = asyncio.Handle(callback, args, self, context)
        self._kernel.at(0.0, lambda: self._run(handle), self._process)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]  # the base class leaves it untyped
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See asyncio."""
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]  # the base class leaves it untyped
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # the base class leaves it untyped
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._kernel.at(max(0.0, when - self.time()), lambda: self._run(handle), self._process)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """See asyncio."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """See asyncio."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    def run_in_executor(  # type: ignore[override]  # the base class leaves it untyped
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """On a virtual thread; calls to one executor are served one after the other (all of ours have one thread)."""
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return  # as in a pool: what has not begun by then is not done
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
        """Never."""
        return False

    def is_running(self) -> bool:
        """As long as anybody asks."""
        return True

    def is_closed(self) -> bool:
        """Never."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody caught is a bug: it ends the simulation, unless the process is dead."""
        error = context.get("exception")
        if self._process.alive and isinstance(error, BaseException):
            self._on_error(error, str(context.get("message")))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing to do: the event finds its handle cancelled."""

    def dispose(self) -> None:
        """Close every coroutine that was left over; what they do on the way out has no effect any more.

        The loop counts as running meanwhile: a coroutine may make tasks on its way out, which are closed after it.
        """
        events._set_running_loop(self)  # noqa: SLF001 - what every loop does
        try:
            for task in self._tasks:  # it grows
                _close(task)
        finally:
            events._set_running_loop(None)  # noqa: SLF001 - see above
        self._tasks.clear()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _run(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        events._set_running_loop(self)  # noqa: SLF001 - what every loop does
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
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - it is meant
    for _ in range(CLOSE_TRIES):
        try:
            coroutine.close()
            return
        except (RuntimeError, SimKilled):
            continue  # it awaited something on its way out


def _answer(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
