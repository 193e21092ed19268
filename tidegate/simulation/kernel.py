"""The virtual time, its events, and the processes that they belong to.

One heap of events in the order of their moments; equal moments in the order in which they were planned. Nothing else
moves the time. A process that is killed never sees another event, one that is frozen sees them late. Blocking code
runs on virtual threads (`baton.py`) and blocks by waiting for an event.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

from tidegate.simulation.baton import Worker, Workers
from tidegate.simulation.chance import generator
from tidegate.simulation.trace import Trace

START_S: Final = 1000.0
EPOCH_MS: Final = 1_750_000_000_000
"""Wall clock at virtual second 0."""


class SimKilled(BaseException):
    """The process of this virtual thread has been killed: unwind without any effect."""


class Event:
    """Something planned. `cancel` makes it nothing."""

    __slots__ = ("action", "process")

    def __init__(self, action: Callable[[], None] | None, process: Process | None) -> None:
        self.action = action
        self.process = process

    def cancel(self) -> None:
        """It will not happen."""
        self.action = None


class SimClock:
    """The kernel's time, as the product asks for it."""

    def __init__(self, kernel: Kernel, skew_ms: int = 0) -> None:
        self._kernel = kernel
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        """Wall clock, ms since 1970."""
        return EPOCH_MS + self._skew_ms + int(self._kernel.now * 1000)

    def monotonic(self) -> float:
        """Virtual seconds."""
        return self._kernel.now

    def elapsed_ms(self) -> float:
        """Virtual milliseconds."""
        return self._kernel.now * 1000

    def sleep(self, seconds: float) -> None:
        """Block the virtual thread."""
        self._kernel.block(seconds)


class VirtualThread:
    """Blocking work of one process."""

    __slots__ = ("ended", "joiners", "killed", "name", "process", "waiting", "worker")

    def __init__(self, name: str, process: Process) -> None:
        self.name = name
        self.process = process
        self.worker: Worker | None = None
        self.waiting: Event | None = None
        self.killed = False
        self.ended = False
        self.joiners: list[VirtualThread] = []


class Process:
    """Something that can be killed, frozen, and cut off. `kind` is "daemon" or "slot"."""

    def __init__(self, kernel: Kernel, kind: str, name: str) -> None:
        self.kernel = kernel
        self.kind = kind
        self.name = name
        self.alias = name
        """Its part, which another process may have had before: `daemon`, `slot 0`."""
        self.alive = True
        self.frozen_until = 0.0
        self.threads: dict[VirtualThread, None] = {}
        self.at_death: list[Callable[[], None]] = []
        self.random = generator(kernel.seed, f"process/{name}")

    def __repr__(self) -> str:
        return self.name

    def kill(self, why: str) -> None:
        """From now on nothing of it happens any more."""
        if not self.alive:
            return
        self.alive = False
        self.kernel.trace.tell(f"{self.name} is killed: {why}")
        for action in self.at_death:
            action()
        self.at_death.clear()
        self.kernel.at(0.0, lambda: self.kernel.reap(self))

    def exit(self) -> None:
        """It ends by itself."""
        self.kill("it ends")

    def freeze(self, seconds: float) -> None:
        """It stands still, as after SIGSTOP."""
        if self.alive:
            self.frozen_until = max(self.frozen_until, self.kernel.now + seconds)
            self.kernel.trace.tell(f"{self.name} is frozen for {seconds:.3f} s")


class Kernel:
    """See the module."""

    def __init__(self, seed: str, workers: Workers, trace: Trace) -> None:
        self.seed = seed
        self.now = START_S
        self.clock = SimClock(self)
        self.trace = trace
        self.events = 0
        self.switches = 0
        self.stopped = False
        self.failure: BaseException | None = None
        self.processes: list[Process] = []
        self._workers = workers
        self._heap: list[tuple[float, int, Event]] = []
        self._planned = 0
        self._running: VirtualThread | None = None
        trace.clock = lambda: self.now

    def process(self, kind: str, name: str) -> Process:
        """A new process."""
        process = Process(self, kind, name)
        self.processes.append(process)
        return process

    # -- events -------------------------------------------------------------------------------------------------------

    def at(self, delay_s: float, action: Callable[[], None], process: Process | None = None) -> Event:
        """Plan an action; of a process only while it lives."""
        event = Event(action, process)
        self._planned += 1
        heapq.heappush(self._heap, (self.now + delay_s, self._planned, event))
        return event

    def run(self, limit_s: float) -> None:
        """Until `stop` or until the time is over. Raises what an event raised."""
        end = self.now + limit_s
        heap = self._heap
        while heap and not self.stopped:
            when, number, event = heapq.heappop(heap)
            action, process = event.action, event.process
            if action is None:
                continue
            if when > end:
                heapq.heappush(heap, (when, number, event))
                self.now = max(self.now, end)
                return
            if process is not None:
                if not process.alive:
                    continue
                if process.frozen_until > when:
                    heapq.heappush(heap, (process.frozen_until, number, event))
                    continue
            self.now = max(self.now, when)
            self.events += 1
            event.action = None
            action()
            if self.failure is not None:
                raise self.failure

    def stop(self) -> None:
        """End `run` behind the current event."""
        self.stopped = True

    def close(self) -> None:
        """Kill everything and unwind every virtual thread."""
        for process in self.processes:
            process.alive = False
            process.at_death.clear()
            self.reap(process)
        self._heap.clear()

    # -- virtual threads ----------------------------------------------------------------------------------------------

    def spawn(self, process: Process, name: str, work: Callable[[], None]) -> VirtualThread:
        """A new virtual thread; it begins as an event of its own."""
        thread = VirtualThread(name, process)
        process.threads[thread] = None

        def body() -> None:
            try:
                work()
            except SimKilled:
                pass
            except BaseException as error:  # noqa: BLE001 - carried to the scheduler's thread
                self.failure = self.failure or error
            thread.ended = True
            process.threads.pop(thread, None)
            for joiner in thread.joiners:
                self._plan_resume(joiner, 0.0)

        def begin() -> None:
            thread.waiting = None
            worker = thread.worker = self._workers.take()
            self._switch(thread, lambda: worker.run(body))

        thread.waiting = self.at(0.0, begin, process)
        return thread

    def block(self, seconds: float) -> None:
        """Let the time pass for the running virtual thread. Raises SimKilled."""
        if not self.advance(seconds):
            thread = self._require_thread()
            self._plan_resume(thread, seconds)
            self._pause(thread)

    def advance(self, seconds: float) -> bool:
        """As `block`, when nothing else happens before: then there is no need to give the baton away."""
        thread = self._require_thread()
        until = self.now + max(0.0, seconds)
        if not self._is_next(until) or thread.process.frozen_until > until:
            return False
        self.now = until
        return True

    def wait(self, signal: Signal, timeout_s: float | None) -> bool:
        """Block until the signal is set; False when the time is over first."""
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
        """Wait for the end of another virtual thread."""
        waiter = self._require_thread()
        if not thread.ended:
            thread.joiners.append(waiter)
            self._plan_resume(waiter, timeout_s)
            self._pause(waiter)
            if waiter in thread.joiners:
                thread.joiners.remove(waiter)
        return thread.ended

    def wake(self, thread: VirtualThread) -> None:
        """Resume a waiting virtual thread now."""
        self._plan_resume(thread, 0.0)

    def reap(self, process: Process) -> None:
        """Unwind the virtual threads of a dead process."""
        while process.threads:
            thread = next(iter(process.threads))
            thread.killed = True
            if thread.waiting is not None:
                thread.waiting.cancel()
                thread.waiting = None
            process.threads.pop(thread)
            if thread.worker is None:
                continue
            self._switch(thread, thread.worker.resume)
            if not thread.ended:
                raise RuntimeError(f"{process.name}/{thread.name} blocks although it is killed")

    def check_alive(self) -> None:
        """Raises SimKilled in a virtual thread whose process is dead."""
        thread = self._running
        if thread is not None and (thread.killed or not thread.process.alive):
            thread.killed = True
            raise SimKilled

    def _require_thread(self) -> VirtualThread:
        thread = self._running
        if thread is None:
            raise RuntimeError("something blocks outside of a virtual thread")
        self.check_alive()
        return thread

    def _is_next(self, moment: float) -> bool:
        heap = self._heap
        while heap and heap[0][2].action is None:
            heapq.heappop(heap)
        return not heap or heap[0][0] > moment

    def _plan_resume(self, thread: VirtualThread, delay_s: float) -> None:
        if thread.waiting is not None:
            thread.waiting.cancel()

        def resume() -> None:
            thread.waiting = None
            assert thread.worker is not None
            self._switch(thread, thread.worker.resume)

        thread.waiting = self.at(delay_s, resume, thread.process)

    def _pause(self, thread: VirtualThread) -> None:
        assert thread.worker is not None
        thread.worker.pause()
        self.check_alive()

    def _switch(self, thread: VirtualThread, go: Callable[[], None]) -> None:
        before, self._running = self._running, thread
        self.switches += 1
        go()
        self._running = before


class Signal:
    """A flag that virtual threads wait for."""

    def __init__(self, kernel: Kernel) -> None:
        self.is_set = False
        self.waiters: list[VirtualThread] = []
        self._kernel = kernel

    def set(self) -> None:
        """Wake everybody who waits."""
        self.is_set = True
        waiters, self.waiters = self.waiters, []
        for thread in waiters:
            self._kernel.wake(thread)
