"""What joins cost: an interval join, and a lookup of a loaded table beside running totals of the same orders.

    python bench/joins.py [--records 1000000] [--repeat 3] [--kinds interval,lookup,aggregate] [--limit 1.3]

A real broker of its own, `tidegate run` on local[2], checkpoints every second. The kinds take turns. In each run a
daemon first works off a warm-up block and idles; then records of one open transaction become visible at once. Counted
are records of all inputs, until the last output is committed. CPU is that of the daemon's whole process tree. Every
output is compared with what it must be. Prints each run and the medians; a first run, which warms the broker, is not
counted. Exit code 1 when the lookup's median of CPU is above `--limit` times that of the running totals.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from tests.support import clients
from tests.support.campaign import Record, deliver, produce, read_rows
from tests.support.daemon_process import DaemonProcess
from tidegate.dev.broker import DevelopmentBroker
from tidegate.dev.broker.server import create_topics
from tidegate.spark.processes import find_descendants

HERE: Final = Path(__file__).resolve().parent
KINDS: Final = ("interval", "lookup", "aggregate")
TOPICS: Final = ("orders", "payments", "customers", "result")
PARTITIONS: Final = 4
CUSTOMERS: Final = 10_000
WARM: Final = 50_000
PER_S: Final = 10_000
"""Orders in a second of event time."""
BASE_MS: Final = 1_767_225_600_000
APART_MS: Final = 3_600_000
"""Event time from the warm-up block to the main block: an idle pipeline has the highest event time that it has read."""
TIMEOUT_S: Final = 600.0
POLL_S: Final = 0.03
CALM_S: Final = 3.0
"""No more output for so long: the run is over."""
TICK: Final = os.sysconf("SC_CLK_TCK")


class Block(NamedTuple):
    """Records of the inputs, and the rows that they must give, by kind."""

    orders: list[Record]
    payments: list[Record]
    expected: dict[str, Counter[tuple[Any, ...]]]


class Outcome(NamedTuple):
    """One run."""

    cpu_s: float
    """Per million records."""
    rate: float
    """Records a second."""
    others: float
    """Cores that were used by something else meanwhile, the broker among it."""


def main() -> int:
    """See the module."""
    options = _parse()
    kinds = options.kinds.split(",")
    blocks = [_make_block(0, WARM), _make_block(WARM, options.records)]
    outcomes: dict[str, list[Outcome]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="tidegate-joins-") as name:
        broker = DevelopmentBroker(Path(name) / "broker", heap_mib=1024).start()
        try:
            _run(broker.bootstrap, Path(name), kinds[0], -1, blocks)
            for turn in range(options.repeat):
                for kind in kinds if turn % 2 == 0 else reversed(kinds):
                    outcomes[kind].append(_run(broker.bootstrap, Path(name), kind, turn, blocks))
        finally:
            broker.kill()
    return _report(outcomes, options.limit)


def _run(bootstrap: str, directory: Path, kind: str, turn: int, blocks: Sequence[Block]) -> Outcome:
    name = f"{kind}-{turn}"
    create_topics(bootstrap, {f"{name}-{topic}": PARTITIONS for topic in TOPICS})
    warm, main_block = (_inputs(name, kind, block) for block in blocks)
    deliver(bootstrap, [*_customers(name), *warm])
    environ = {"KAFKA_BOOTSTRAP": bootstrap, "BENCH_NAME": name, "BENCH_STATE": str(directory / name)}
    daemon = DaemonProcess(HERE / f"joins_{kind}.yaml", directory / f"{name}.log", environ)
    try:
        daemon.start().wait_running()
        ends = _Ends(bootstrap, f"{name}-result")
        ends.wait(blocks[0].expected[kind].total())
        producer = clients.producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 20})
        producer.init_transactions(60)
        producer.begin_transaction()
        produce(producer, main_block)
        assert producer.flush(300) == 0, "the input was not delivered"
        outcome = _measure(daemon, ends, producer, len(main_block), blocks[1].expected[kind].total())
        if daemon.terminate() != 0:
            raise SystemExit(f"{name} did not end cleanly:\n{daemon.text()[-3000:]}")
    finally:
        daemon.destroy()
    _check(bootstrap, name, kind, blocks)
    clients.delete_topics(bootstrap, [f"{name}-{topic}" for topic in TOPICS])
    print(f"{name:>12}: {outcome.cpu_s:.2f} CPU s per million, {outcome.rate:,.0f} records/s, "
          f"other cores {outcome.others:.2f}", flush=True)  # fmt: skip
    return outcome


def _measure(daemon: DaemonProcess, ends: _Ends, producer: Any, records: int, outputs: int) -> Outcome:
    """Makes the main block visible and waits for its output."""
    process = daemon.pid
    cpu, busy, began = _cpu_s(process), _busy_s(), time.monotonic()
    base = ends.last
    producer.commit_transaction(60)
    samples: list[tuple[float, float, float]] = []
    ends.wait(base + outputs, lambda: samples.append((time.monotonic(), _cpu_s(process), _busy_s())))
    ended, used, machine = next((one for one in samples if one[0] >= ends.changed_at), samples[-1])
    elapsed = ended - began
    return Outcome(
        (used - cpu) / records * 1e6, records / (ends.changed_at - began), (machine - busy - used + cpu) / elapsed
    )


class _Ends:
    """The visible end of a topic, summed over its partitions; it counts transaction markers as well."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # not in their __all__

        self._admin = clients.admin({"bootstrap.servers": bootstrap})
        self._wanted = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
        self._level = IsolationLevel.READ_COMMITTED
        self.last = 0
        self.changed_at = time.monotonic()

    def wait(self, least: int, each: Any = lambda: None) -> None:
        """Waits until the end is at least here and does not move any more."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.last < least or time.monotonic() - self.changed_at < CALM_S:
            if time.monotonic() > deadline:
                raise SystemExit(f"only {self.last} of {least} records are visible")
            futures = self._admin.list_offsets(self._wanted, isolation_level=self._level, request_timeout=30)
            found = sum(future.result(30).offset for future in futures.values())
            each()
            if found != self.last:
                self.last, self.changed_at = found, time.monotonic()
            time.sleep(POLL_S)


def _cpu_s(root: int) -> float:
    """User and system time of a process tree."""
    total = 0
    for pid in (root, *(process.pid for process in find_descendants(root))):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / TICK


def _busy_s() -> float:
    """CPU time of the whole machine that was not idle."""
    with Path("/proc/stat").open(encoding="ascii") as lines:
        fields = [int(field) for field in lines.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICK


def _make_block(first: int, count: int) -> Block:
    """Orders from this id on and their payments. Nine of ten orders have one, some of them outside the interval."""
    dice = random.Random(first)
    orders: list[Record] = []
    paid: list[tuple[int, int, Record]] = []
    expected: dict[str, Counter[tuple[Any, ...]]] = {kind: Counter() for kind in KINDS}
    begins_ms = BASE_MS + (APART_MS if first else 0)
    for id_ in range(first, first + count):
        customer = dice.randrange(100 if dice.random() < 0.1 else CUSTOMERS)
        at, price = begins_ms + (id_ - first) * 1000 // PER_S - dice.randrange(200), dice.randrange(100, 20_000)
        value = (
            b'{"id":%d,"at":%d,"customer":"c%07d","sku":"p%05d","quantity":%d,"price":%d,"note":"%s"}'
            % (id_, at, customer, dice.randrange(1000), dice.randrange(1, 10), price, b"n" * 64)
        )  # fmt: skip
        orders.append(Record("orders", customer % PARTITIONS, b"c%07d" % customer, value))
        expected["lookup"][id_, _segment(customer)] += 1
        expected["aggregate"][id_,] += 1
        if dice.random() < 0.9:
            after, amount = dice.randrange(-1_500, 12_001), dice.randrange(100, 20_000)
            value = b'{"id":%d,"at":%d,"order_id":%d,"amount":%d,"method":"card","note":"%s"}' % (
                id_, at + after, id_, amount, b"n" * 64,
            )  # fmt: skip
            paid.append(
                (at + after + dice.randrange(200), id_, Record("payments", id_ % PARTITIONS, b"%d" % id_, value))
            )
            if -1_000 <= after <= 10_000:
                expected["interval"][id_, id_, price, amount] += 1
    return Block(orders, [record for _, _, record in sorted(paid)], expected)


def _segment(customer: int) -> str:
    return f"s{customer % 13}"


def _customers(name: str) -> Iterator[Record]:
    for number in range(CUSTOMERS):
        value = msgspec.json.encode({"segment": _segment(number), "country": ("DE", "FR", "PL")[number % 3]})
        yield Record(f"{name}-customers", number % PARTITIONS, b"c%07d" % number, value)


def _inputs(name: str, kind: str, block: Block) -> list[Record]:
    """The records of a block for this pipeline's topics."""
    records = block.orders + (block.payments if kind == "interval" else [])
    return [record._replace(topic=f"{name}-{record.topic}") for record in records]


def _check(bootstrap: str, name: str, kind: str, blocks: Sequence[Block]) -> None:
    """Every output row is there once, with the right values."""
    fields = {
        "interval": ("id", "payment", "price", "paid"),
        "lookup": ("id", "segment"),
        "aggregate": ("last_id",),
    }[kind]
    rows = (row for part in read_rows(bootstrap, f"{name}-result") for row in part)
    found = Counter(tuple(row[field] for field in fields) for row in rows)
    expected = blocks[0].expected[kind] + blocks[1].expected[kind]
    if found != expected:
        lost, more = expected - found, found - expected
        raise SystemExit(
            f"{name}: {lost.total()} rows are lost, {more.total()} are too many: {list(lost)[:3]}, {list(more)[:3]}"
        )


def _report(outcomes: dict[str, list[Outcome]], limit: float) -> int:
    medians = {kind: statistics.median(one.cpu_s for one in found) for kind, found in outcomes.items()}
    for kind, found in outcomes.items():
        rates = statistics.median(one.rate for one in found)
        print(f"median of {kind}: {medians[kind]:.2f} CPU s per million records, {rates:,.0f} records/s")
    if not {"lookup", "aggregate"} <= medians.keys():
        return 0
    ratio = medians["lookup"] / medians["aggregate"]
    print(f"a lookup takes {ratio:.2f} times the CPU of running totals (limit {limit:g})")
    return 1 if ratio > limit else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000, help="orders; the interval join has payments on top")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--limit", type=float, default=1.3)
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.pop("KAFKA_BOOTSTRAP", None)
    sys.exit(main())
