"""A running pipeline under seeded kills, and the check that nothing was lost, doubled or put out of order.

A scenario: a broker of its own, topics, a writer thread that produces orders at a steady rate, a daemon on
`local-cluster`. The monkey draws what to kill and how long to wait from the printed seed; a kill is counted where it
happened. Afterwards the daemon is asked to end (exit 0), a bounded run works off the rest, and an independent reader
compares both outputs with its own computation.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from tests.support.daemon_process import DaemonProcess
from tests.support.processes import is_alive, kill
from tests.waiting import wait_until
from tidegate.daemon.broker import DevelopmentBroker
from tidegate.daemon.demo.orders import Order, make_orders, write_orders
from tidegate.daemon.demo.verify import Verdict, read_topic, verify_paid, verify_totals

KINDS = ("worker", "executor", "daemon", "broker")

PIPELINE = """version: 1
name: {name}
kafka: {{bootstrap.servers: "{bootstrap}"}}
spark: {{master: "{master}"}}
parallelism: {parallelism}
checkpoints: {{directory: "file://{directory}", interval: {interval}, timeout: 30s, mode: {mode}}}
restart: {{initial: 100ms, max: 2s, give_up_after: 1000 in 10m}}
http: {{port: 0}}
sources:
  orders:
    topic: orders
    format: json
    schema: {{id: bigint, customer: string, sku: string, quantity: int, price_cents: bigint, status: string}}
    start: earliest
    until: {until}
steps:
  - {{name: paid, from: orders, where: status = 'paid'}}
  - name: priced
    from: paid
    select: {{id: id, customer: customer, total_cents: quantity * price_cents}}
  - name: totals
    from: orders
    key: sku
    aggregate: {{orders: count(*), revenue_cents: sum(quantity * price_cents), last_id: last(id)}}
sinks:
  paid_orders: {{from: priced, topic: paid, format: json, key: customer}}
  sku_totals: {{from: totals, topic: totals, format: json, key: sku}}
"""


class Outcome(msgspec.Struct):
    """What a scenario did and found."""

    seed: int
    orders: int
    kills: dict[str, int]
    recovery_s: list[float]
    paid: Verdict
    totals: Verdict

    @property
    def exact(self) -> bool:
        """Both outputs are what they must be."""
        return self.paid.exact and self.totals.exact

    def line(self) -> str:
        """One line for people."""
        lost, doubled = self.paid.lost + self.totals.lost, self.paid.doubled + self.totals.doubled
        disorder, wrong = self.paid.out_of_order + self.totals.out_of_order, self.paid.wrong + self.totals.wrong
        slowest = max(self.recovery_s, default=0.0)
        return (
            f"seed {self.seed}: {self.orders} orders, kills {self.kills}, lost {lost}, doubled {doubled}, "
            f"out of order {disorder}, wrong {wrong}, slowest recovery {slowest:.1f} s"
        )


class Scenario:
    """See the module. Everything lives in `directory`."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        master: str = "local-cluster[2,1,512]",
        parallelism: int = 2,
        interval: str = "500ms",
        rate: float = 4000.0,
        transaction_version: int = 2,
    ) -> None:
        self.directory = directory
        self.seed = seed
        self.rate = rate
        self.broker = DevelopmentBroker(directory / "broker", transaction_version=transaction_version)
        self.orders: list[Order] = []
        self.kills: Counter[str] = Counter()
        self.recovery_s: list[float] = []
        self._master = master
        self._parallelism = parallelism
        self._interval = interval
        self._dice = random.Random(seed)
        self._stop_writing = threading.Event()
        self._writer_error: list[BaseException] = []
        self.daemon = DaemonProcess(self._write_pipeline("never"), directory / "daemon.log")

    def start(self) -> None:
        """Broker, topics, daemon, writer."""
        self.broker.start()
        self.broker.create_topics({"orders": 4, "paid": 4, "totals": 4})
        self._write_pipeline("never")
        self._writer = threading.Thread(target=self._write, name="orders", daemon=True)
        self._writer.start()
        self.daemon.start().wait_running()
        self.daemon.wait_checkpoints(1)

    def kill_one(self, kind: str) -> None:
        """Kill something of this kind at a seeded moment and wait until checkpoints complete again."""
        pause = self._dice.uniform(0.05, 1.5)
        threading.Event().wait(pause)
        started = time.monotonic()
        print(f"  kill {kind} after {pause:.2f} s", flush=True)
        match kind:
            case "worker":
                self._kill_running(self.daemon.slots)
            case "executor":
                self._kill_running(self.daemon.executors)
            case "daemon":
                below = self.daemon.kill()
                wait_until(lambda: not any(is_alive(pid) for pid in below), "the daemon's processes are gone", 30)
                self.daemon.start().wait_running()
            case "broker":
                self.broker.kill()
                self.broker.start()
            case _:
                raise ValueError(kind)
        self.kills[kind] += 1
        self.daemon.wait_checkpoints(2, 120)
        self.recovery_s.append(time.monotonic() - started)

    def run_kills(self, count: int, kinds: tuple[str, ...] = KINDS) -> None:
        """Kill `count` times; every kind comes up once in a shuffled round before any comes up again."""
        plan: list[str] = []
        while len(plan) < count:
            plan += self._dice.sample(kinds, len(kinds))
        for kind in plan[:count]:
            self.kill_one(kind)
        assert sum(self.kills.values()) == count, "a planned kill did not happen"

    def finish(self) -> Outcome:
        """Stop writing, end the daemon, work off the rest, compare."""
        self._stop_writing.set()
        self._writer.join(120)
        assert not self._writer.is_alive(), "the writer hangs"
        if self._writer_error:
            raise self._writer_error[0]
        code = self.daemon.terminate()
        assert code == 0, f"SIGTERM: exit code {code}\n{self.daemon.text()[-3000:]}"
        drain = DaemonProcess(self._write_pipeline("latest"), self.directory / "drain.log").start()
        code = drain.wait(180)
        assert code == 0, f"bounded run: exit code {code}\n{drain.text()[-3000:]}"
        return Outcome(
            seed=self.seed,
            orders=len(self.orders),
            kills=dict(self.kills),
            recovery_s=self.recovery_s,
            paid=verify_paid(self.orders, read_topic(self.broker.bootstrap, "paid")),
            totals=verify_totals(self.orders, read_topic(self.broker.bootstrap, "totals")),
        )

    def close(self) -> None:
        """Leave nothing behind."""
        self._stop_writing.set()
        self.daemon.destroy()
        self.broker.kill()

    def __enter__(self) -> Scenario:
        self.start()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.close()

    def _kill_running(self, find: Any) -> None:
        wait_until(lambda: bool(find()), "there is a process to kill", 60)
        assert kill(self._dice.choice(sorted(find()))), "the process was gone before the kill"

    def _write(self) -> None:
        """Chunks of a steady rate; delivery is idempotent and outlives broker restarts."""
        try:
            while not self._stop_writing.is_set():
                chunk = list(make_orders(int(self.rate / 2), self.seed, first=len(self.orders)))
                write_orders(self.broker.bootstrap, "orders", iter(chunk), self.rate)
                self.orders += chunk
        except BaseException as error:  # reported by finish()
            self._writer_error.append(error)

    def _write_pipeline(self, until: str) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f"pipeline-{until}.yaml"
        path.write_text(
            PIPELINE.format(
                name="chaos",
                bootstrap=self.broker.bootstrap,
                master=self._master,
                parallelism=self._parallelism,
                directory=self.directory / "checkpoints",
                interval=self._interval,
                mode="exactly-once",
                until=until,
            )
        )
        return path
