"""Virtual time, its events, and the processes that they belong to.

One heap holds the events in the order of their times; equal times keep the order in which they were planned. Only
events advance the time. A process that is killed receives no further event, and a frozen one receives them late.

Blocking code runs on virtual threads and blocks by waiting for an event. A virtual thread is a greenlet, which can be
left anywhere, even with frames of compiled code on its stack. A switch costs a tenth of a switch between two real
threads.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Final, Self

from greenlet import greenlet

START_S: Final = 1000.0
EPOCH_MS: Final = 1_750_000_000_000
"""Wall clock at virtual second 0, in ms since 1970."""
AT_ONCE_MAX: Final = 50_000
"""A program that plans more events for the same moment is in an endless loop."""
LINES_MAX: Final = 20_000
ANSWER_MAX: Final = 160


def generator(seed: object, concern: str) -> random.Random:
    """Returns a generator with the same numbers for the same arguments in every process.

    Each concern has a generator of its own, so that what one concern draws does not affect the others.
    """
    return random.Random(f"{seed}/{concern}")  # noqa: S311 - it must be repeatable, not secret


class Trace:
    """The events of a run: lines with their virtual times. Two runs of the same schedule have the same digest.

    Text is formatted only on request, because most traces are never printed.
    """

    def __init__(self, keep: int = LINES_MAX) -> None:
        self.clock: Callable[[], float] = float
        self._told = 0
        self._kept: deque[tuple[float, str, tuple[object, ...]]] = deque(maxlen=keep)

    def tell(self, text: str, *answer: object) -> None:
        """Adds a line, optionally with an answer, which is formatted only when the line is requested."""
        self._told += 1
        self._kept.append((self.clock(), text, answer))

    @property
    def lines(self) -> list[str]:
        """The last lines."""
        return [
            f"{at_s:11.6f} {text}" + "".join(f" -> {str(value)[:ANSWER_MAX]}" for value in answer)
            for at_s, text, answer in self._kept
        ]

    @property
    def digest(self) -> str:
        """A digest of the last lines and of the total number of lines."""
        return hashlib.sha256("\n".join([str(self._told), *self.lines]).encode()).hexdigest()


class SimKilled(BaseException):
    """The process of this virtual thread has been killed. Unwind without any effect."""


class VirtualEvent:
    """A planned action. `cancel` prevents it."""

    __slots__ = ("action", "process")

    def __init__(self, action: Callable[[], None] | None, process: VirtualProcess | None) -> None:
        self.action = action
        self.process = process

    def cancel(self) -> None:
        """Prevents the action."""
        self.action = None


class SimClock:
    """The kernel's time, as the product reads it on one machine.

    The wall clock is wrong by `skew_ms` and drifts by the fraction `drift` of the virtual time. The machine has run for
    `booted_s` at virtual second 0.
    """

    def __init__(self, kernel: Kernel, skew_ms: int = 0, drift: float = 0.0, booted_s: float = 0.0) -> None:
        self._kernel = kernel
        self._skew_ms = skew_ms
        self._drift = drift
        self._booted_s = booted_s

    def step(self, ahead_ms: int) -> None:
        """Sets the wall clock ahead, or back if negative."""
        self._skew_ms += ahead_ms

    def now_ms(self) -> int:
        """Returns the wall clock in ms since 1970."""
        return EPOCH_MS + self._skew_ms + int(self._kernel.now * (1 + self._drift) * 1000)

    def monotonic(self) -> float:
        """Returns the virtual seconds since the machine was started."""
        return self._kernel.now + self._booted_s

    def sleep(self, seconds: float) -> None:
        """Blocks the virtual thread."""
        self._kernel.block(seconds)


class VirtualThread:
    """Blocking work of one process."""

    __slots__ = ("ended", "frames", "joiners", "killed", "name", "process", "resume", "waiting", "work")

    def __init__(self, name: str, process: VirtualProcess, work: Callable[[], None]) -> None:
        self.name = name
        self.process = process
        self.work = work
        self.resume: Callable[[], None] = partial(process.kernel.choose, self)
        """The action of the events that it waits for."""
        self.frames: greenlet | None = None
        """None until the thread has started."""
        self.waiting: VirtualEvent | None = None
        self.killed = False
        self.ended = False
        self.joiners: list[VirtualThread] = []


class VirtualProcess:
    """A process that can be killed, frozen and cut off. `kind` is "daemon" or "slot"."""

    def __init__(self, kernel: Kernel, kind: str, name: str) -> None:
        self.kernel = kernel
        self.kind = kind
        self.name = name
        self.alias = name
        """Its role, which another process may have had before: `daemon`, `slot 0`."""
        self.alive = True
        self.frozen_until = 0.0
        self.threads: dict[VirtualThread, None] = {}
        self.at_death: list[Callable[[], None]] = []
        self.random = generator(kernel.seed, f"process/{name}")
        self.clock = kernel.clock
        """The clock of its machine. The kernel's own clock is that of the brokers and the file system."""

    def __repr__(self) -> str:
        return self.name

    def kill(self, why: str) -> None:
        """Kills the process; nothing else of it happens."""
        if not self.alive:
            return
        self.alive = False
        self.kernel.trace.tell(f"{self.name} is killed: {why}")
        for action in self.at_death:
            action()
        self.at_death.clear()
        self.kernel.at(0.0, lambda: self.kernel.reap(self))

    def exit(self) -> None:
        """Ends the process from within."""
        self.kill("it ends")

    def freeze(self, seconds: float) -> None:
        """Stops the process for a while, as SIGSTOP does."""
        if self.alive:
            self.frozen_until = max(self.frozen_until, self.kernel.now + seconds)
            self.kernel.trace.tell(f"{self.name} is frozen for {seconds:.3f} s")


class Kernel:
    """The scheduler of virtual time: it runs events, processes and virtual threads."""

    def __init__(self, seed: str, trace: Trace) -> None:
        self.seed = seed
        self.now = START_S
        self.clock = SimClock(self)
        self.trace = trace
        self.events = 0
        self.stopped = False
        self.failure: BaseException | None = None
        """An error that could not be raised where it was found. The run ends with it."""
        self.processes: list[VirtualProcess] = []
        self._heap: list[tuple[float, int, VirtualEvent]] = []
        self._planned = 0
        self._end = START_S
        self._running: VirtualThread | None = None
        self._chosen: VirtualThread | None = None
        """The thread that runs after the current event."""
        self._dying: list[VirtualProcess] = []
        self._at_once = 0
        """Number of events at the current moment."""
        trace.clock = lambda: self.now

    def process(self, kind: str, name: str) -> VirtualProcess:
        """Creates a process."""
        process = VirtualProcess(self, kind, name)
        self.processes.append(process)
        return process

    # -- events -------------------------------------------------------------------------------------------------------

    def at(self, delay_s: float, action: Callable[[], None], process: VirtualProcess | None = None) -> VirtualEvent:
        """Plans an action. If it belongs to a process, it only happens while that process is alive."""
        event = VirtualEvent(action, process)
        self._planned += 1
        heappush(self._heap, (self.now + delay_s, self._planned, event))
        return event

    def run(self, limit_s: float) -> None:
        """Runs until `stop` or until the time is over. Raises what an event or a virtual thread raised."""
        self._end = self.now + limit_s
        self._switch()
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        """Ends `run` after the current event."""
        self.stopped = True

    def close(self) -> None:
        """Kills all processes and unwinds every virtual thread. Errors raised while unwinding are only traced."""
        self.stopped = True
        for process in self.processes:
            process.alive = False
            process.at_death.clear()
            self.reap(process)
            while self._dying:
                try:
                    self._switch()
                except Exception as error:  # noqa: BLE001 - the run is over
                    self.trace.tell(f"{process.name} on its way out: {error!r}")
        self._heap.clear()

    def _switch(self) -> None:
        """Switches to each virtual thread in its turn, and back when it waits or has ended."""
        while (thread := self._next_dying() or self._play()) is not None:
            if thread.frames is None:
                thread.frames = greenlet(partial(self._work, thread))  # when it ends or raises, this greenlet continues
            self._running = thread
            try:
                thread.frames.switch()
            finally:
                self._running = None

    # -- virtual threads ----------------------------------------------------------------------------------------------

    def spawn(self, process: VirtualProcess, name: str, work: Callable[[], None]) -> VirtualThread:
        """Creates a virtual thread, which starts as an event of its own."""
        thread = VirtualThread(name, process, work)
        process.threads[thread] = None
        self._plan_resume(thread, 0.0)
        return thread

    def block(self, seconds: float) -> None:
        """Lets time pass for the running virtual thread. Raises SimKilled."""
        if not self.advance(seconds):
            assert self._running is not None
            self._plan_resume(self._running, seconds)
            self._pause(self._running)

    def advance(self, seconds: float) -> bool:
        """Lets time pass without a switch if nothing else happens before. Returns whether it did."""
        thread = self._require_thread()
        until = self.now + seconds if seconds > 0.0 else self.now
        heap = self._heap
        while heap and heap[0][2].action is None:
            heappop(heap)
        if (heap and heap[0][0] <= until) or thread.process.frozen_until > until:
            return False
        self.now = until
        return True

    def wait(self, signal: Signal, timeout_s: float | None) -> bool:
        """Blocks until the signal is set. Returns False if the timeout is over first."""
        thread = self._require_thread()
        if signal.is_set:
            return True
        signal.waiters.append(thread)
        if timeout_s is not None:
            self._plan_resume(thread, timeout_s)
        self._pause(thread)
        if thread in signal.waiters:
            signal.waiters.remove(thread)
        return signal.is_set

    def join(self, thread: VirtualThread, timeout_s: float) -> bool:
        """Waits for another virtual thread to end. Returns whether it has ended."""
        waiter = self._require_thread()
        if not thread.ended:
            thread.joiners.append(waiter)
            self._plan_resume(waiter, timeout_s)
            self._pause(waiter)
            if waiter in thread.joiners:
                thread.joiners.remove(waiter)
        return thread.ended

    def wake(self, thread: VirtualThread, delay_s: float = 0.0) -> None:
        """Resumes a waiting virtual thread."""
        self._plan_resume(thread, delay_s)

    def reap(self, process: VirtualProcess) -> None:
        """Unwinds the virtual threads of a dead process before anything else happens."""
        self._dying.append(process)

    def choose(self, thread: VirtualThread) -> None:
        """Lets a virtual thread run after the current event."""
        thread.waiting = None
        self._chosen = thread

    def check_alive(self) -> None:
        """Raises SimKilled in a virtual thread whose process is dead."""
        thread = self._running
        if thread is not None and (thread.killed or not thread.process.alive):
            thread.killed = True
            raise SimKilled

    def _require_thread(self) -> VirtualThread:
        thread = self._running
        if thread is None:
            raise RuntimeError("a call blocks outside of a virtual thread")
        if thread.killed or not thread.process.alive:
            thread.killed = True
            raise SimKilled
        return thread

    def _plan_resume(self, thread: VirtualThread, delay_s: float) -> None:
        if thread.waiting is not None:
            thread.waiting.cancel()
        thread.waiting = self.at(delay_s, thread.resume, thread.process)

    def _pause(self, thread: VirtualThread) -> None:
        """Switches away until it is this thread's turn again."""
        assert thread.frames is not None
        assert thread.frames.parent is not None
        thread.frames.parent.switch()
        if thread.killed or not thread.process.alive:
            thread.killed = True
            raise SimKilled

    def _work(self, thread: VirtualThread) -> None:
        try:
            thread.work()
        except SimKilled:
            pass
        finally:
            thread.ended = True
            thread.process.threads.pop(thread, None)
            for joiner in thread.joiners:
                self._plan_resume(joiner, 0.0)

    def _next_dying(self) -> VirtualThread | None:
        """Returns a virtual thread of a dead process that must be unwound, if any."""
        while self._dying:
            threads = self._dying[-1].threads
            while threads:
                thread = next(iter(threads))
                threads.pop(thread)
                thread.killed = True
                if thread.waiting is not None:
                    thread.waiting.cancel()
                    thread.waiting = None
                if thread.frames is not None:
                    return thread
            self._dying.pop()
        return None

    def _play(self) -> VirtualThread | None:
        heap, end = self._heap, self._end
        while heap and not self.stopped and self.failure is None:
            when, number, event = heappop(heap)
            action, process = event.action, event.process
            if action is None:
                continue
            if when > end:
                heappush(heap, (when, number, event))
                self.now = max(self.now, end)
                return None
            if process is not None:
                if not process.alive:
                    continue
                if process.frozen_until > when:
                    heappush(heap, (process.frozen_until, number, event))
                    continue
            if when > self.now:
                self.now, self._at_once = when, 0
            else:
                self._at_once += 1
                if self._at_once > AT_ONCE_MAX:
                    raise RuntimeError(f"{AT_ONCE_MAX} events at one moment: an endless loop plans each event for now")
            self.events += 1
            event.action = None
            action()
            if self._dying:
                dying = self._next_dying()
                if dying is not None:
                    return dying
            elif self._chosen is not None:
                chosen, self._chosen = self._chosen, None
                return chosen
        return None


class Signal:
    """A flag that virtual threads wait for."""

    def __init__(self, kernel: Kernel) -> None:
        self.is_set = False
        self.waiters: list[VirtualThread] = []
        self._kernel = kernel

    def set(self, delay_s: float = 0.0) -> None:
        """Sets the flag and wakes all waiting threads after a delay."""
        self.is_set = True
        waiters, self.waiters = self.waiters, []
        for thread in waiters:
            self._kernel.wake(thread, delay_s)


class SimCondition:
    """The part of `threading.Condition` that is used. Only one virtual thread runs at a time, so it needs no lock."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._news = Signal(kernel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def wait_for(self, predicate: Callable[[], object], timeout: float | None = None) -> bool:
        """Blocks until the predicate holds; it is evaluated after every notification.

        Returns False if the timeout is over first.
        """
        until = None if timeout is None else self._kernel.now + timeout
        while not predicate():
            left = None if until is None else until - self._kernel.now
            if left is not None and left <= 0:
                return False
            self._kernel.wait(self._news, left)
        return True

    def notify_all(self) -> None:
        """Makes all waiting threads evaluate their predicates again."""
        if self._news.waiters:
            news, self._news = self._news, Signal(self._kernel)
            news.set()
