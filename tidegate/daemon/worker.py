"""A slot process: what Spark's barrier task runs on an executor.

Dial the daemon, receive the deployment, build the subtasks (deployment.py), turn the loop until told to stop. The
edge around tidegate.task.loop: sockets, the wake-up pipe, the upload thread and the clock are here; decisions are not.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import queue
import selectors
import signal
import time
import traceback
from typing import TYPE_CHECKING, Final

from tidegate import __version__
from tidegate.daemon.control_link import ControlLink
from tidegate.daemon.transport import DataTransport
from tidegate.daemon.worker_logs import SlotLogHandler
from tidegate.errors import AttemptFailed, TidegateError
from tidegate.task.messages import (
    Abandoned,
    Completed,
    Deploy,
    Heartbeat,
    Hello,
    Running,
    SlotFailed,
    Stop,
    Stopped,
    Trigger,
)

if TYPE_CHECKING:
    from tidegate.daemon.deployment import Deployment
    from tidegate.daemon.spark import SlotBootstrap

PR_SET_PDEATHSIG: Final = 1
IDLE_WAIT_S: Final = 0.1
STOP_TIMEOUT_S: Final = 5.0
POLARS_THREADS: Final = "1"
"""One Polars thread per slot: Spark's model is a process per core."""


class SystemClock:
    """The time of this machine."""

    def now_ms(self) -> int:
        """Wall clock, ms since 1970."""
        return time.time_ns() // 1_000_000

    def elapsed_ms(self) -> float:
        """Monotonic, ms."""
        return time.perf_counter() * 1000


class Waker:
    """Ends the selector's wait from any thread."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        selector.register(self._read, selectors.EVENT_READ, self._on_readable)

    def wake(self) -> None:
        """Make the pipe readable; a full pipe is readable already."""
        try:
            os.write(self._write, b"!")
        except BlockingIOError:
            return

    def _on_readable(self, _mask: int) -> None:
        os.read(self._read, 65536)


def run_slot(bootstrap: SlotBootstrap, partition: int) -> int:
    """Entry of a barrier task; returns its partition when the daemon has said stop.

    Dies with its parent, Spark's fork daemon, which Spark kills with the executor (measured: closes the hole of a
    killed fork daemon, whose workers otherwise live on). Ctrl-C is the daemon's to handle, not the slots'.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["POLARS_MAX_THREADS"] = POLARS_THREADS
    selector = selectors.DefaultSelector()
    waker = Waker(selector)
    link = ControlLink(bootstrap.host, bootstrap.port, waker.wake, bootstrap.connect_timeout_s)
    transport = DataTransport(selector, link.local_host, bootstrap.attempt, bootstrap.token)
    hello = Hello(
        attempt=bootstrap.attempt,
        token=bootstrap.token,
        partition=partition,
        process=os.getpid(),
        host=link.local_host,
        data_port=transport.port,
        version=__version__,
        python=platform.python_version(),
    )
    order = link.exchange(hello, timeout_s=bootstrap.connect_timeout_s * 4)
    if isinstance(order, Deploy):
        SlotProcess(order, link, transport, selector, waker).serve()
    return partition


class SlotProcess:
    """One deployment in this process, from Deploy to Stop."""

    def __init__(
        self,
        deploy: Deploy,
        link: ControlLink,
        transport: DataTransport,
        selector: selectors.BaseSelector,
        waker: Waker,
    ) -> None:
        self._deploy = deploy
        self._link = link
        self._transport = transport
        self._selector = selector
        self._waker = waker
        self._clock = SystemClock()
        self._turned_at = time.monotonic()
        self._deployment: Deployment | None = None
        self._stopping = False

    def serve(self) -> None:
        """Run until Stop. Whatever goes wrong is told to the daemon, which ends the attempt."""
        settings = self._deploy.settings
        SlotLogHandler(self._link.send, self._link.waiting).install(settings.pipeline_log_level)
        self._link.start(self._heartbeat, settings.heartbeat_interval_ms / 1000, settings.lease_ms / 1000)
        try:
            self._build()
            self._run()
        except TidegateError as error:
            self._fail(error.code, error.message, retriable=error.retriable, exit_code=error.exit_code)
        except Exception as error:  # noqa: BLE001 - a bug or an unforeseen library error: tell it whole, let the daemon decide
            text = f"{type(error).__name__}: {error}"
            self._fail("internal", text, retriable=True, exit_code=1, trace=traceback.format_exc())
        finally:
            if self._deployment is not None:
                self._deployment.close()
            self._transport.close()
            self._link.send(Stopped())
            self._link.close(STOP_TIMEOUT_S)

    def _build(self) -> None:
        from tidegate.daemon.deployment import Deployment

        self._deployment = Deployment(self._deploy, self._clock, self._link.send, self._waker.wake)
        self._deployment.open()
        self._transport.open(
            self._deploy.slot, self._deploy.peers, self._deployment.remote_inputs, self._deployment.remote_outputs
        )
        # Long-lived objects leave the collector's sight; young garbage of the hot path is collected rarely.
        gc.collect()
        gc.freeze()
        gc.set_threshold(100_000, 50, 100)
        self._link.send(Running())

    def _run(self) -> None:
        assert self._deployment is not None
        loop, uploads = self._deployment.loop, self._deployment.uploads
        while not self._stopping:
            progressed = loop.turn()
            progressed |= self._transport.pump()
            self._turned_at = time.monotonic()
            timeout = 0.0 if progressed else IDLE_WAIT_S
            started = time.perf_counter()
            for key, mask in self._selector.select(timeout):
                key.data(mask)
            if not progressed:
                waited = (time.perf_counter() - started) * 1000
                if loop.backpressured:
                    loop.counters.backpressured_ms += waited
                else:
                    loop.counters.idle_ms += waited
            for uploaded in uploads.take_results():
                loop.on_uploaded(uploaded)
            self._take_orders()

    def _take_orders(self) -> None:
        assert self._deployment is not None
        loop = self._deployment.loop
        while not self._stopping:
            try:
                order = self._link.orders.get_nowait()
            except queue.Empty:
                return
            match order:
                case Trigger():
                    loop.on_trigger(order)
                case Completed():
                    loop.on_completed(order)
                case Abandoned():
                    loop.on_abandoned(order)
                    self._deployment.uploads.abandon(order.checkpoint)
                case Stop():
                    self._stopping = True
                case _:
                    raise AttemptFailed(f"the daemon sent {type(order).__name__} to a running slot")

    def _heartbeat(self) -> Heartbeat:
        from tidegate.task.report import SlotReport

        age_ms = int((time.monotonic() - self._turned_at) * 1000)
        if self._deployment is None:
            return Heartbeat(age_ms, SlotReport(), {})
        return Heartbeat(age_ms, self._deployment.report(), self._deployment.open_transactions())

    def _fail(self, code: str, message: str, *, retriable: bool, exit_code: int, trace: str = "") -> None:
        self._link.send(SlotFailed(code, message, retriable, exit_code, trace))
