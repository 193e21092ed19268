"""What a pipeline costs at low rates and idle: cores of its process tree by kind of process, and latency.

    python bench/low_rates.py [--workloads W1,W2] [--rates 0,200,2000,10000] [--seconds 30] [--interval 1s]
                              [--master 'local[2]'] [--threads 12]

A real broker of its own. For each workload and rate a producer writes records of 190 bytes with the wall clock in them
to four partitions, and a read-committed consumer notes how old the results are. Rate 0 is an idle pipeline. W1 filters
and selects; W2 keeps a running count and sum for each of 10,000 customers, and emits each update. With `--threads`
the busiest threads are listed with their wake-ups per second.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tests.support import clients
from tests.support.daemon_process import DaemonProcess
from tidegate.dev.broker import DevelopmentBroker
from tidegate.dev.broker.server import create_topics
from tidegate.spark.work_directory import choose_slots, find_descendants

HERE: Final = Path(__file__).resolve().parent
PARTITIONS: Final = 4
CUSTOMERS: Final = 10_000
SETTLE_S: Final = 5.0
"""Seconds under load before the measurement begins."""
TICK: Final = os.sysconf("SC_CLK_TCK")
STEPS: Final[Mapping[str, str]] = {
    "W1": """  - {name: paid, from: orders, where: "status = 'paid'"}
  - {name: out, from: paid, select: {id: id, ts: ts, customer: customer, sku: sku, total: qty * price}}
""",
    "W2": """  - name: out
    from: orders
    key: customer
    aggregate: {count: count(*), sum: sum(price), ts: last(ts)}
""",
}
SINK: Final = 'sinks:\n  result: {from: out, topic: "${BENCH_NAME}-result", format: json, key: customer}\n'


VALUE: Final = (
    b'{"id":%d,"ts":%d,"customer":"%s","sku":"p%05d","qty":%d,"price":%d,"country":"DE","status":"%s","note":"%s"}'
)
NOTE: Final = b"abcdefgh " * 7


class Thread(NamedTuple):
    """CPU ticks and wake-ups of a thread so far."""

    ticks: int
    wakes: int


class Sample(NamedTuple):
    """All threads of a process tree at a time, by kind of process, process, thread and name."""

    at: float
    threads: dict[tuple[str, int, int, str], Thread]
    ended: dict[str, int]
    """CPU ticks of children that have ended, by kind of their parent."""


class Measured(NamedTuple):
    """One run."""

    cores: dict[str, float]
    """By kind of process."""
    busiest: list[tuple[str, str, float, float]]
    """Kind of process, name of the thread, cores, wake-ups per second; threads of one name together."""
    broker: float
    """Cores of the broker."""
    ages_ms: list[float]


def main() -> int:
    """See the module."""
    options = _parse()
    with tempfile.TemporaryDirectory(prefix="tidegate-low-rates-") as name:
        broker = DevelopmentBroker(Path(name) / "broker", heap_mib=1024).start()
        try:
            for workload in options.workloads.split(","):
                for rate in map(int, options.rates.split(",")):
                    _print(workload, rate, _run(broker, Path(name), workload, rate, options))
        finally:
            broker.kill()
    return 0


def _run(broker: DevelopmentBroker, directory: Path, workload: str, rate: int, options: argparse.Namespace) -> Measured:
    name, bootstrap = f"{workload}-{rate}", broker.bootstrap
    create_topics(bootstrap, {f"{name}-orders": PARTITIONS, f"{name}-result": PARTITIONS})
    process = _start_daemon(bootstrap, directory, name, workload, options)
    ages = Ages(bootstrap, f"{name}-result")
    load = Load(bootstrap, f"{name}-orders", rate)
    try:
        ages.forget(SETTLE_S)
        before, broker_before = _sample(process.pid), _sample(broker.pid or 0)
        time.sleep(options.seconds)
        after, broker_after = _sample(process.pid), _sample(broker.pid or 0)
        cores, busiest = _subtract(before, after)
        return Measured(
            cores, busiest[: options.threads], sum(_subtract(broker_before, broker_after)[0].values()), ages.end()
        )
    finally:
        load.end()
        ages.end()
        process.destroy()


def _print(workload: str, rate: int, found: Measured) -> None:
    kinds = ", ".join(f"{kind} {cores:.3f}" for kind, cores in sorted(found.cores.items(), key=lambda one: -one[1]))
    ages = sorted(found.ages_ms)
    latency = f"p50 {ages[len(ages) // 2]:.0f} ms, p99 {ages[len(ages) * 99 // 100]:.0f} ms" if ages else "no output"
    print(f"{workload} {rate:>6}/s: {sum(found.cores.values()):.3f} cores ({kinds}), broker {found.broker:.3f}, "
          f"{latency}, {len(ages)} results", flush=True)  # fmt: skip
    for kind, name, cores, wakes in found.busiest:
        print(f"{'':>12}{cores:.4f} cores, {wakes:7.1f} wake-ups/s: {kind}, {name}", flush=True)


def _start_daemon(
    bootstrap: str, directory: Path, name: str, workload: str, options: argparse.Namespace
) -> DaemonProcess:
    pipeline = directory / f"{name}.yaml"
    pipeline.write_text((HERE / "low_rates.yaml").read_text() + STEPS[workload] + SINK)
    environ = {
        "KAFKA_BOOTSTRAP": bootstrap,
        "BENCH_NAME": name,
        "BENCH_STATE": str(directory / name),
        "BENCH_MASTER": options.master,
        "BENCH_INTERVAL": options.interval,
    }
    return DaemonProcess(pipeline, directory / f"{name}.log", environ).start().wait_running()


# -- load and latency --------------------------------------------------------------------------------------------------


class Load:
    """A thread that writes orders at a rate, until `end`."""

    def __init__(self, bootstrap: str, topic: str, rate: int) -> None:
        self._producer = clients.producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 1, "partitioner": "murmur2_random"}
        )
        self._topic, self._rate = topic, rate
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        dice, began, written = random.Random(1), time.monotonic(), 0
        while self._rate and not self._ending.wait(0.005):
            now_ms = int(time.time() * 1000)
            while written < (time.monotonic() - began) * self._rate:
                key = b"c%07d" % dice.randrange(CUSTOMERS)
                status = b"paid" if dice.random() < 0.5 else b"open"
                value = VALUE % (written, now_ms, key, written % 1000, written % 9, written % 19_999, status, NOTE)
                self._producer.produce(self._topic, value, key)
                written += 1
            self._producer.poll(0)

    def end(self) -> None:
        """Ends the thread."""
        self._ending.set()
        self._thread.join()
        self._producer.flush(10)


class _Aged(msgspec.Struct):
    ts: int


class Ages:
    """A thread that reads committed results and notes how old they are."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import TopicPartition

        settings = {"bootstrap.servers": bootstrap, "group.id": "ages", "enable.auto.commit": False,
                    "isolation.level": "read_committed", "fetch.wait.max.ms": 20}  # fmt: skip
        self._consumer = clients.consumer(settings)
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self._found: list[float] = []
        self._ending = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def forget(self, seconds: float) -> None:
        """Waits, and forgets what was read meanwhile."""
        time.sleep(seconds)
        self._found = []

    def end(self) -> list[float]:
        """Ends the thread and returns the ages, in ms."""
        self._ending = True
        self._thread.join()
        return self._found

    def _run(self) -> None:
        decode = msgspec.json.Decoder(_Aged).decode
        while not self._ending:
            messages = self._consumer.consume(1000, 0.02)
            now_ms = time.time() * 1000
            self._found += [now_ms - decode(one.value() or b"").ts for one in messages if one.error() is None]
        self._consumer.close()


# -- the process tree --------------------------------------------------------------------------------------------------


def _sample(root: int) -> Sample:
    threads: dict[tuple[str, int, int, str], Thread] = {}
    ended: Counter[str] = Counter()
    for pid, kind in _kinds(root).items():
        for task in Path(f"/proc/{pid}/task").glob("*"):
            try:
                name, fields = _fields(task / "stat")
                status = (task / "status").read_text(encoding="ascii", errors="replace")
            except OSError:
                continue
            wakes = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("voluntary_ctxt"))
            threads[kind, pid, int(task.name), name] = Thread(int(fields[11]) + int(fields[12]), wakes)
        total = [int(field) for field in _fields(Path(f"/proc/{pid}/stat"))[1][11:15]]
        live = sum(one.ticks for (_, owner, *_), one in threads.items() if owner == pid)
        ended[kind] += total[2] + total[3] + total[0] + total[1] - live
    return Sample(time.monotonic(), threads, dict(ended))


def _fields(stat: Path) -> tuple[str, list[str]]:
    head, _, rest = stat.read_text(encoding="ascii", errors="replace").rpartition(")")
    return head.partition("(")[2], rest.split()


def _kinds(root: int) -> dict[int, str]:
    """The processes of a tree, and what each is."""
    below = find_descendants(root)
    slots, kinds = set(choose_slots(below)), {root: "main process"}
    for one in below:
        if one.pid in slots:
            kinds[one.pid] = "slots"
        elif "org.apache.spark" in one.command:
            kinds[one.pid] = "driver JVM" if one.parent == root else "executor JVMs"
        else:
            kinds[one.pid] = "fork servers" if "slot.fork_" in one.command else "others"
    return kinds


def _subtract(before: Sample, after: Sample) -> tuple[dict[str, float], list[tuple[str, str, float, float]]]:
    """Cores by kind of process, and the threads, busiest first."""
    elapsed_s = after.at - before.at
    cores: dict[str, float] = defaultdict(float)
    by_name: dict[tuple[str, str], list[float]] = {}
    for place, one in after.threads.items():
        earlier = before.threads.get(place, Thread(0, 0))
        used = (one.ticks - earlier.ticks) / TICK / elapsed_s
        cores[place[0]] += used
        sums = by_name.setdefault((place[0], place[3]), [0.0, 0.0])
        sums[0] += used
        sums[1] += (one.wakes - earlier.wakes) / elapsed_s
    for kind, ticks in after.ended.items():
        cores[kind] += (ticks - before.ended.get(kind, 0)) / TICK / elapsed_s
    busiest = sorted(
        ((kind, name, used, wakes) for (kind, name), (used, wakes) in by_name.items()), key=lambda one: -one[2]
    )
    return cores, busiest


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default="W1,W2")
    parser.add_argument("--rates", default="0,200,2000,10000")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--interval", default="1s")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--threads", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.pop("KAFKA_BOOTSTRAP", None)
    sys.exit(main())
