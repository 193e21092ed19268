"""A slot process: what Spark's barrier task runs on an executor.

Connects to the daemon, receives the deployment, builds the subtasks (`deployment.py`), and turns the loop until asked
to stop. This is the edge around `tidegate.task.loop`: it has the sockets, the wake-up pipe, the upload thread and the
clock, but makes no decisions.
"""

from __future__ import annotations

import gc
import os
import platform
import queue
import selectors
import signal
import sys
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate import __version__
from tidegate.clock import SYSTEM_CLOCK, SteadyClock
from tidegate.errors import AttemptFailed
from tidegate.parent import die_with_parent
from tidegate.process.limits import collect_rarely, raise_descriptor_limit
from tidegate.slot import POLARS_THREADS
from tidegate.slot.channel_sockets import EncryptedSockets, dialling_context
from tidegate.slot.control_link import ControlLink, WakePipe
from tidegate.slot.faults import ForkServerFrozen, derive_failure, is_of_the_work
from tidegate.slot.fork_guard import FROZEN, read_state
from tidegate.slot.logs import SlotLogHandler, log_printed_lines
from tidegate.slot.transport import SOCKETS, DataTransport
from tidegate.state.local_directory import sweep
from tidegate.task.messages import (
    Abandoned,
    AddPartitions,
    Begin,
    Completed,
    Deploy,
    EndTap,
    Heartbeat,
    Hello,
    HoldSources,
    Running,
    SchemaAnswer,
    Stop,
    Stopped,
    TapRows,
    Trigger,
)
from tidegate.user_code.running import BlockingWatch

if TYPE_CHECKING:
    from tidegate.slot.control_link import SlotBootstrap
    from tidegate.slot.deployment import Deployment

IDLE_WAIT_S: Final = 0.25
"""Longest wait of the loop. Whatever has work for it wakes it, or has a deadline."""
STOP_TIMEOUT_S: Final = 5.0
SWITCH_INTERVAL_S: Final = 0.001
"""How long the loop keeps the interpreter while a helper thread waits for it.

A checkpoint takes about ten turns of such threads: the order, the flush, requests and answers, the upload, the
acknowledgement.
"""


class Waker:
    """A means to end the selector's wait from any thread."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._pipe = WakePipe()
        selector.register(self._pipe, selectors.EVENT_READ, self._on_readable)

    def wake(self) -> None:
        """Makes the selector return."""
        self._pipe.wake()

    def _on_readable(self, _mask: int) -> None:
        self._pipe.drain()


def run_slot(bootstrap: SlotBootstrap, partition: int) -> int:
    """Runs a barrier task; returns its partition after the daemon's Stop.

    Dies with its parent, Spark's fork daemon, which Spark kills with the executor (measured: otherwise the workers of a
    killed fork daemon live on). Ctrl-C is for the daemon to handle, not the slots.
    """
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["POLARS_MAX_THREADS"] = POLARS_THREADS  # in case another module forks slots
    os.environ["RUST_BACKTRACE"] = "0"  # Polars panics on some damaged Avro, which is caught: one line is enough
    raise_descriptor_limit()
    collect_rarely()  # a restore creates millions of tuples
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    selector = selectors.DefaultSelector()
    waker = Waker(selector)
    tls, sockets = (
        (dialling_context(bootstrap.key), EncryptedSockets(bootstrap.key)) if bootstrap.key else (None, SOCKETS)
    )
    link = ControlLink(bootstrap.host, bootstrap.port, waker.wake, bootstrap.connect_timeout_s, tls)
    transport = DataTransport(selector, link.local_host, bootstrap.attempt, bootstrap.token, sockets)
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
        sweep(Path(tempfile.gettempdir()))  # a killed slot may have lived longer than our start took
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
        self._clock = SteadyClock(SYSTEM_CLOCK)
        self._turned_at: float | None = None
        """None while subtasks are built and state is restored, for which the daemon has a separate time limit."""
        self._deployment: Deployment | None = None
        self._stopping = False
        self._frozen_checks = 0
        self._blocking = BlockingWatch(deploy.settings.heartbeat_interval_ms / 1000)

    def serve(self) -> None:
        """Runs until Stop. Any error is reported to the daemon, which ends the attempt."""
        settings = self._deploy.settings
        self._forward_logs(settings.pipeline_log_level)
        self._link.start(self._heartbeat, settings.heartbeat_interval_ms / 1000, settings.lease_ms / 1000)
        with self._log_printed_lines():
            try:
                self._build()
                self._run()
            except BaseException as error:
                if not is_of_the_work(error):
                    raise
                self._report(error)
            finally:
                self._close()

    @staticmethod
    def _log_printed_lines() -> AbstractContextManager[None]:
        return log_printed_lines()

    def _forward_logs(self, level: int) -> None:
        SlotLogHandler(self._link.send, self._link.waiting).install(level)

    def _build(self) -> None:
        self._deployment = self._make_deployment()
        self._deployment.open()
        wiring = self._deployment.wiring
        self._transport.open(self._deploy.slot, self._deploy.peers, wiring.remote_inputs, wiring.remote_outputs)
        self._settle_memory()
        self._deployment.loop.begun = False
        self._link.send(Running())

    @staticmethod
    def _settle_memory() -> None:
        """Excludes long-lived objects from garbage collection."""
        gc.collect()
        gc.freeze()

    def _make_deployment(self) -> Deployment:
        from tidegate.slot.deployment import Deployment

        return Deployment(self._deploy, self._clock, self._link.send, self._waker.wake, host=self._link.local_host)

    def _run(self) -> None:
        while not self._stopping:
            progressed = self._turn()
            self._wait(0.0 if progressed else self._idle_s())
            self._take_results_and_orders()

    def _idle_s(self) -> float:
        """Returns how long to wait for events before the next turn."""
        assert self._deployment is not None
        deadline_ms = self._deployment.loop.next_deadline_ms
        if deadline_ms is None or not self._deployment.loop.begun:
            return IDLE_WAIT_S
        return min(IDLE_WAIT_S, max(0.001, (deadline_ms - self._clock.now_ms()) / 1000))

    def _turn(self) -> bool:
        """Runs one step of everything; returns whether anything moved."""
        assert self._deployment is not None
        progressed = self._deployment.loop.turn()
        progressed |= self._transport.pump()
        self._turned_at = self._clock.monotonic()
        return progressed

    def _wait(self, seconds: float) -> None:
        """Waits until a socket or a helper thread has an event, or the time is over."""
        assert self._deployment is not None
        loop = self._deployment.loop
        started = self._clock.elapsed_ms()
        for key, mask in self._selector.select(seconds):
            key.data(mask)
        if seconds:
            loop.waited(self._clock.elapsed_ms() - started)

    def _take_results_and_orders(self) -> None:
        """Takes finished uploads and the daemon's orders."""
        assert self._deployment is not None
        for uploaded in self._deployment.uploads.take_results():
            self._deployment.loop.on_uploaded(uploaded)
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
                case Begin():
                    loop.begun = True
                case Trigger():
                    loop.on_trigger(order)
                case Completed():
                    self._deployment.on_completed(order)
                case Abandoned():
                    self._deployment.uploads.discard(loop.on_abandoned(order))
                    self._deployment.uploads.abandon(order.checkpoint)
                case AddPartitions():
                    loop.on_partitions(order)
                case HoldSources():
                    loop.on_hold(order)
                case SchemaAnswer():
                    self._deployment.schemas.on_answer(order)
                case TapRows():
                    loop.on_tap(order)
                case EndTap():
                    loop.on_tap_end(order)
                case Stop():
                    self._stopping = True
                case _:
                    raise AttemptFailed(f"the daemon sent {type(order).__name__} to a running slot")

    def _heartbeat(self) -> Heartbeat:
        from tidegate.task.report import SlotReport

        self._check_parent()
        age_ms = 0 if self._turned_at is None else int((self._clock.monotonic() - self._turned_at) * 1000)
        user_code = self._blocking.look(self._turned_at)
        if self._deployment is None:
            return Heartbeat(age_ms, SlotReport(), {}, user_code)
        reporter = self._deployment.reporter
        return Heartbeat(age_ms, reporter.report(), reporter.open_transactions(), user_code)

    def _check_parent(self) -> None:
        """Reports a frozen fork server to the daemon, since the next attempt could not start from it.

        The process that slots are forked from is idle while they run. If frozen, it will be killed (`fork_guard.py`),
        and this process with it, so the daemon must learn the reason first.
        """
        parent, settings = os.getppid(), self._deploy.settings
        self._frozen_checks = self._frozen_checks + 1 if read_state(parent) == FROZEN else 0
        if self._frozen_checks * settings.heartbeat_interval_ms >= settings.lease_ms:
            self._frozen_checks = 0
            self._report(
                ForkServerFrozen(
                    f"process {parent}, from which slots are forked, has been frozen (SIGSTOP) for "
                    f"{settings.lease_ms / 1000:g} s (runtime.heartbeat_timeout); it is replaced"
                )
            )

    def _report(self, error: BaseException) -> None:
        self._link.send(derive_failure(error))

    def _close(self) -> None:
        if self._deployment is not None:
            self._deployment.close()
        self._transport.close()
        self._link.send(Stopped())
        self._link.close(STOP_TIMEOUT_S)
