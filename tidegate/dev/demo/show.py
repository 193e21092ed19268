"""The demo itself: broker, topics, orders, daemon, a kill, a stop, a bounded run for the rest, and verification."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import msgspec
from rich.console import Console
from rich.live import Live

from tidegate.cli.progress import render_status
from tidegate.config.fields.counts import render_count
from tidegate.daemon.status import PipelineState, Status
from tidegate.dev.broker import DevelopmentBroker
from tidegate.dev.broker.server import create_topics
from tidegate.dev.demo.daemon import DemoDaemon, DemoFailed
from tidegate.dev.demo.verify import (
    DemoVerdict,
    Order,
    make_orders,
    read_topic,
    verify_paid,
    verify_totals,
    write_orders,
)
from tidegate.dev.topics.client import read_topics

PLAIN_LINE_EVERY_S: Final = 2.0
REDRAW_EVERY_S: Final = 0.25


class DemoDisplay:
    """Prints the demo's progress: `step` prints a line, and `show` receives every status.

    A context manager, because it may control the cursor.
    """

    def __init__(self, console: Console) -> None:
        self.peak_per_second = 0.0
        """The highest input rate so far."""
        self._console = console
        self._started = time.monotonic()
        self._shown = 0.0
        self._said = ""
        moving = console.is_terminal and not console.is_dumb_terminal
        self._live = Live(console=console, auto_refresh=False, transient=True) if moving else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._live is not None:
            self._live.stop()

    def step(self, text: str, style: str = "") -> None:
        """Prints a line that stays."""
        elapsed = time.monotonic() - self._started
        self._console.print(f"{elapsed:6.1f} s  {text}", style=style, markup=False, highlight=False, soft_wrap=True)

    def show(self, status: Status) -> None:
        """Shows the newest status, at a readable rate."""
        self.peak_per_second = max(self.peak_per_second, status.records_in_per_second)
        now = time.monotonic()
        if now - self._shown < (PLAIN_LINE_EVERY_S if self._live is None else REDRAW_EVERY_S):
            return
        self._shown = now
        if self._live is not None:
            self._live.update(render_status(status), refresh=True)
        elif (line := _line(status)) != self._said:
            self._said = line
            self.step(line)


def _line(status: Status) -> str:
    lag = "unknown" if status.lag_records is None else f"{status.lag_records:,}"
    checkpoint = "none yet" if status.last_checkpoint is None else str(status.last_checkpoint.id)
    return (
        f"  {status.state.value}, attempt {status.attempt}, {render_count(status.restarts, 'restart')}: "
        f"in {status.records_in_per_second:,.0f}/s, committed {status.records_committed:,}, lag {lag}, "
        f"checkpoint {checkpoint}"
    )


PIPELINE_FILE: Final = Path(__file__).parent / "orders.yaml"
PARTITIONS: Final = 4
START_TIMEOUT_S: Final = 120.0
RECOVERY_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 60.0
DRAIN_TIMEOUT_S: Final = 300.0
DELETE_TIMEOUT_S: Final = 15.0


class DemoSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The choices for a run of the demo."""

    orders: int = 300_000
    before: int = 100_000
    """Orders that are in the topic before the daemon starts."""
    per_second: float = 20_000.0
    """Rate of the remaining orders."""
    seed: int = 1
    master: str = "local-cluster[2,1,512]"


class DemoReport(msgspec.Struct, frozen=True):
    """The results of the demo."""

    orders: int
    paid: DemoVerdict
    totals: DemoVerdict
    recovery_s: float
    processing_s: float
    """Time from when slots run and records can be processed to the last commit, including kill and restart."""
    peak_per_second: float

    @property
    def exact(self) -> bool:
        """True if both outputs are exactly as required."""
        return self.paid.exact and self.totals.exact


class _Writer(threading.Thread):
    """Writes orders at a steady rate while the daemon runs."""

    def __init__(self, bootstrap: str, topic: str, orders: Sequence[Order], per_second: float) -> None:
        super().__init__(name="orders", daemon=True)
        self._arguments = bootstrap, topic, iter(orders), per_second
        self._error: Exception | None = None

    def run(self) -> None:
        """Writes all orders."""
        try:
            write_orders(*self._arguments)
        except Exception as error:  # noqa: BLE001 - kept for finish(), which the main thread calls
            self._error = error

    def finish(self, timeout_s: float) -> None:
        """Waits until all orders are delivered. Raises DemoFailed."""
        self.join(timeout_s)
        if self._error is not None or self.is_alive():
            raise DemoFailed(f"the orders could not be written: {self._error or 'not finished in time'}")


class Show:
    """One run of the demo in `directory`, which the caller removes. `run` may raise DemoFailed and BrokerFailed."""

    def __init__(self, settings: DemoSettings, directory: Path, display: DemoDisplay) -> None:
        self._settings = settings
        self._directory = directory
        self._display = display
        self._name = f"demo-{uuid.uuid4().hex[:8]}"
        self._topics = {each: f"{self._name}-{each}" for each in ("orders", "paid", "totals")}
        self._cleanup = ExitStack()

    def run(self) -> DemoReport:
        """Runs the demo. Everything that it started has ended afterwards."""
        settings, display = self._settings, self._display
        with self._cleanup:
            bootstrap = self._open_broker()
            display.step(f"making {settings.orders:,} orders (seed {settings.seed})")
            orders = list(make_orders(settings.orders, settings.seed))
            write_orders(bootstrap, self._topics["orders"], iter(orders[: settings.before]))
            display.step(f"{settings.before:,} orders are in topic {self._topics['orders']}")
            running_s, recovery_s = self._run_and_kill(bootstrap, orders[settings.before :])
            drain_s = self._drain(bootstrap)
            display.step(
                "reading both outputs as a read-committed consumer, comparing them with an independent computation"
            )
            return DemoReport(
                orders=len(orders),
                paid=verify_paid(orders, read_topic(bootstrap, self._topics["paid"])),
                totals=verify_totals(orders, read_topic(bootstrap, self._topics["totals"])),
                recovery_s=recovery_s,
                processing_s=running_s + drain_s,
                peak_per_second=display.peak_per_second,
            )

    def _open_broker(self) -> str:
        bootstrap = os.environ.get("KAFKA_BOOTSTRAP")
        if bootstrap:
            self._display.step(f"using the broker of KAFKA_BOOTSTRAP: {bootstrap}")
            read_topics({"bootstrap.servers": bootstrap})  # reports obstacles before anything waits for the broker
            self._cleanup.callback(_delete_topics, bootstrap, list(self._topics.values()))
        else:
            self._display.step("starting a real single-node Kafka (the first run downloads 45 MB)")
            broker = DevelopmentBroker(self._directory / "broker").start()
            self._cleanup.callback(broker.kill)
            bootstrap = broker.bootstrap
            self._display.step(f"the broker serves at {bootstrap}")
        create_topics(bootstrap, dict.fromkeys(self._topics.values(), PARTITIONS))
        return bootstrap

    def _run_and_kill(self, bootstrap: str, rest: Sequence[Order]) -> tuple[float, float]:
        """Returns the seconds that the pipeline ran, and those from the kill to the next completed checkpoint."""
        display = self._display
        display.step(f"tidegate run {PIPELINE_FILE.name}, the pipeline of examples/orders.yaml")
        display.step(f"  on Spark {self._settings.master}, until SIGTERM")
        daemon = self._start_daemon(bootstrap, "never")
        daemon.wait_for(_runs, "the pipeline runs", START_TIMEOUT_S)
        began = time.monotonic()
        display.step(f"running; writing {len(rest):,} more orders at {self._settings.per_second:,.0f}/s")
        writer = _Writer(bootstrap, self._topics["orders"], rest, self._settings.per_second)
        writer.start()
        pause_s = len(rest) / self._settings.per_second / 3
        killing_at = time.monotonic() + pause_s
        before = daemon.wait_for(
            lambda now: time.monotonic() >= killing_at and _has_committed(now),
            "a checkpoint with records is complete",
            START_TIMEOUT_S,
        )
        killed_at = time.time()
        victim = daemon.kill_slot()
        display.step(f"kill -9 {victim}: a slot process dies in the middle of a transaction", "yellow")
        recovery_s = daemon.recover(before, killed_at, RECOVERY_TIMEOUT_S)
        display.step(f"recovered: next checkpoint completed {recovery_s:.1f} s after the kill", "green")
        writer.finish(STOP_TIMEOUT_S + len(rest) / self._settings.per_second)
        display.step("all orders are written; SIGTERM: final checkpoint, commit, exit")
        code = daemon.terminate(STOP_TIMEOUT_S)
        if code != 0:
            raise DemoFailed(f"the daemon ended with exit code {code} after SIGTERM:\n{daemon.tail()}")
        return time.monotonic() - began, recovery_s

    def _drain(self, bootstrap: str) -> float:
        """Runs the bounded pipeline and returns the seconds from running to its end."""
        self._display.step("exit code 0; a second run with `until: latest` processes the rest")
        daemon = self._start_daemon(bootstrap, "latest")
        daemon.wait_for(_runs, "the pipeline runs", START_TIMEOUT_S)
        began = time.monotonic()
        code = daemon.wait(DRAIN_TIMEOUT_S)
        if code != 0:
            raise DemoFailed(f"the bounded run ended with exit code {code}:\n{daemon.tail()}")
        return time.monotonic() - began

    def _start_daemon(self, bootstrap: str, until: str) -> DemoDaemon:
        log = self._directory / f"daemon-until-{until}.log"
        daemon = DemoDaemon(PIPELINE_FILE, self._environ(bootstrap, until), log, self._display.show)
        self._cleanup.callback(daemon.close)
        daemon.start()
        return daemon

    def _environ(self, bootstrap: str, until: str) -> Mapping[str, str]:
        return {
            "KAFKA_BOOTSTRAP": bootstrap,
            "SPARK_MASTER": self._settings.master,
            "ORDERS_NAME": self._name,
            "ORDERS_STATE": str(self._directory / "checkpoints"),
            "ORDERS_HTTP_PORT": "0",
            "ORDERS_UNTIL": until,
            "ORDERS_TOPIC": self._topics["orders"],
            "ORDERS_PAID_TOPIC": self._topics["paid"],
            "ORDERS_TOTALS_TOPIC": self._topics["totals"],
        }


def _runs(status: Status) -> bool:
    return status.state in {PipelineState.RUNNING, PipelineState.STOPPING, PipelineState.FINISHED}


def _has_committed(status: Status) -> bool:
    return status.state is PipelineState.RUNNING and status.records_committed > 0


def _delete_topics(bootstrap: str, topics: list[str]) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.delete_topics(topics, operation_timeout=DELETE_TIMEOUT_S).values():
        future.exception(DELETE_TIMEOUT_S)  # at worst they are left over: their names are unique
