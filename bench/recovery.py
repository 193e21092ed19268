"""How long readers wait: from a start, a killed slot or a killed daemon to the next committed record.

    python bench/recovery.py [--what start,slot,daemon] [--times 20] [--interval 1s] [--seed 1] [--load-max 0.2]

A real broker of its own, `tidegate run` on local[2], 500 orders a second, and a read-committed reader of the output. A
start is that of a new pipeline. A kill is SIGKILL at a random moment; it is over with the first record that is read
after all slots of the next attempt run, so records that the recovery itself commits do not count. Prints the median,
the largest value, and the medians of the phases, in seconds since the start or the kill. Nothing is measured while
other programs use more than `--load-max` cores. Run `tidegate prepare` first: starts are slower without class archives.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import msgspec

from bench.support import open_broker, wait_quiet
from tidegate.dev.broker.server import create_topics
from tidegate.dev.demo.verify import make_orders
from tidegate.spark.work_directory import find_slots, is_alive

PARTITIONS = 4
RATE = 500
TIMEOUT_S = 120.0
PHASES = {
    "log": r"metrics and probes on",
    "spark": r"^Spark .* offers",
    "noticed": r"attempt failed after",
    "restored": r"attempt \d+ (restores|starts)",
    "deployed": r"slot \d+ .* is deployed",
    "running": r"attempt \d+ is running",
    "checkpoint": r"checkpoint \d+ completed .* commits (?!0 )",
}
PIPELINE = """version: 1
name: {name}
kafka: {{bootstrap.servers: "{bootstrap}"}}
spark: {{master: "local[2]"}}
parallelism: 2
checkpoints: {{directory: "file://{state}", interval: {interval}}}
restart: {{initial: 1ms, max: 1ms, give_up_after: 1000 in 1h}}  # each kill counts as the first failure
logging: {{format: json}}
http: {{port: 0}}
sources:
  orders:
    topic: orders
    format: json
    schema: {{sku: string, quantity: int, price_cents: bigint}}
    start: earliest
steps:
  - {{name: sums, from: orders, key: sku, aggregate: {{orders: count(*), revenue: sum(quantity * price_cents)}}}}
sinks:
  totals: {{from: sums, topic: totals, format: json, key: sku}}
"""


class Reader:
    """Notes when committed records arrive."""

    def __init__(self, bootstrap: str) -> None:
        self.last_at = 0.0
        """By time.time()."""
        self._heard = threading.Condition()
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
        }
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait_after(self, moment: float) -> float:
        """Returns when the first record after `moment` was read."""
        with self._heard:
            if not self._heard.wait_for(lambda: self.last_at > moment, TIMEOUT_S):
                raise SystemExit("no committed record")
            return self.last_at

    def close(self) -> None:
        """Ends the thread."""
        self._ending.set()
        self._thread.join()

    def _read(self) -> None:
        consumer = ck.Consumer(self._settings)
        consumer.assign([ck.TopicPartition("totals", number, 0) for number in range(PARTITIONS)])
        while not self._ending.is_set():
            if consumer.consume(1000, 0.01):
                with self._heard:
                    self.last_at = time.time()
                    self._heard.notify_all()
        consumer.close()


class Feeder:
    """Writes orders at a steady rate."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 2})
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and delivers what is queued."""
        self._ending.set()
        self._thread.join()
        self._producer.flush(10)

    def _write(self) -> None:
        orders = [msgspec.json.encode(order) for order in make_orders(10_000, seed=1)]
        written, began = 0, time.monotonic()
        while not self._ending.wait(0.01):
            while written < (time.monotonic() - began) * RATE:
                self._producer.produce("orders", orders[written % len(orders)])
                written += 1
            self._producer.poll(0)


class Daemon:
    """`tidegate run` of a pipeline with a name of its own."""

    def __init__(self, bootstrap: str, directory: Path, name: str, interval: str) -> None:
        self._file, self._log = directory / f"{name}.yaml", directory / f"{name}.log"
        text = PIPELINE.format(name=name, bootstrap=bootstrap, state=directory / name, interval=interval)
        self._file.write_text(text, encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Spawns the process and returns at once."""
        command = [sys.executable, "-m", "tidegate", "run", str(self._file)]
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """The pid of the process."""
        assert self._process is not None
        return self._process.pid

    @property
    def size(self) -> int:
        """The size of the log in bytes."""
        return self._log.stat().st_size if self._log.exists() else 0

    def wait_running(self, mark: int) -> float:
        """Returns when all slots of an attempt ran, by the log after `mark`."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
            phases = self.phases(mark, 0.0)
            if "running" in phases:
                return phases["running"]
            time.sleep(0.02)
        raise SystemExit(f"no attempt runs:\n{self._log.read_text(encoding='utf-8')[-3000:]}")

    def phases(self, mark: int, since: float) -> dict[str, float]:
        """Returns the seconds from `since` to each phase, from the log after `mark`."""
        found: dict[str, float] = {}
        with self._log.open("rb") as file:
            file.seek(mark)
            lines = file.read().decode().splitlines(keepends=True)
        for line in lines:
            if not line.startswith("{") or not line.endswith("\n"):
                continue
            entry = json.loads(line)
            for phase, pattern in PHASES.items():
                if re.search(pattern, entry["message"]):
                    found.setdefault(phase, datetime.fromisoformat(entry["time"]).timestamp() - since)
        return found

    def kill_slot(self, dice: random.Random) -> float:
        """Kills a slot and returns when."""
        victim, now = dice.choice(find_slots(self.pid)), time.time()
        os.kill(victim, signal.SIGKILL)
        return now

    def kill(self) -> float:
        """Kills the daemon and returns when."""
        assert self._process is not None
        slots, now = find_slots(self.pid), time.time()
        self._process.kill()
        self._process.wait()
        while any(map(is_alive, slots)):
            time.sleep(0.005)
        return now

    def stop(self) -> None:
        """Sends SIGTERM and waits for the end."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(TIMEOUT_S)


class Bench:
    """The load on a broker, and the reader of the output."""

    def __init__(self, bootstrap: str, directory: Path, options: argparse.Namespace) -> None:
        self.bootstrap = bootstrap
        self._directory = directory
        self._options = options
        self._dice = random.Random(options.seed)
        create_topics(self.bootstrap, dict.fromkeys(("orders", "totals"), PARTITIONS))
        self._feeder = Feeder(self.bootstrap)
        self._reader = Reader(self.bootstrap)
        self._made = 0

    def close(self) -> None:
        """Ends everything."""
        self._feeder.close()
        self._reader.close()

    @contextlib.contextmanager
    def running(self) -> Iterator[Daemon]:
        """A new pipeline that has committed records."""
        self._made += 1
        daemon = Daemon(self.bootstrap, self._directory, f"bench-{self._made}", self._options.interval)
        try:
            yield daemon
        finally:
            daemon.stop()

    def start(self) -> Iterator[dict[str, float]]:
        """Yields the phases of each start."""
        for _ in range(self._options.times):
            wait_quiet(self._options.load_max)
            with self.running() as daemon:
                began = time.time()
                daemon.start()
                yield self._measure(daemon, 0, began)

    def slot(self) -> Iterator[dict[str, float]]:
        """Yields the phases after each kill of a slot."""
        yield from self._kill(lambda daemon: daemon.kill_slot(self._dice), restart=False)

    def daemon(self) -> Iterator[dict[str, float]]:
        """Yields the phases after each kill of the daemon, which is started again at once."""
        yield from self._kill(Daemon.kill, restart=True)

    def _kill(self, kill: Callable[[Daemon], float], *, restart: bool) -> Iterator[dict[str, float]]:
        with self.running() as daemon:
            daemon.start()
            self._reader.wait_after(daemon.wait_running(0))
            for _ in range(self._options.times):
                wait_quiet(self._options.load_max)
                time.sleep(self._dice.uniform(1.0, 3.0))
                mark = daemon.size
                killed_at = kill(daemon)
                if restart:
                    daemon.start()
                yield self._measure(daemon, mark, killed_at)

    def _measure(self, daemon: Daemon, mark: int, since: float) -> dict[str, float]:
        read_at = self._reader.wait_after(daemon.wait_running(mark))
        return {**daemon.phases(mark, since), "record": read_at - since}


def main() -> int:
    """See the module."""
    options = _parse()
    print(f"seed {options.seed}, interval {options.interval}", flush=True)
    with open_broker() as (broker, directory):
        bench = Bench(broker.bootstrap, directory, options)
        try:
            for what in options.what.split(","):
                _report(what, getattr(bench, what)())
        finally:
            bench.close()
    return 0


def _report(what: str, measured: Iterator[dict[str, float]]) -> None:
    phases: dict[str, list[float]] = defaultdict(list)
    for one in measured:
        print("  ", what, ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in one.items()), flush=True)
        for phase, seconds in one.items():
            phases[phase].append(seconds)
    records = phases["record"]
    way = ", ".join(f"{phase} {statistics.median(seconds):.2f}" for phase, seconds in phases.items())
    print(f"{what}: median {statistics.median(records):.2f} s, largest {max(records):.2f} s of {len(records)}; {way}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", default="start,slot,daemon")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--interval", default="1s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load-max", type=float, default=0.2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
