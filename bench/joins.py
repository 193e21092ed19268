"""What joins cost: an interval join, and a lookup of a loaded table next to a plain client loop that does the same.

    python bench/joins.py [--records 1000000] [--repeat 3] [--kinds interval,lookup,raw,aggregate] [--limit 1.3]

`tidegate run` on local[2], checkpoints every second; `raw` is the loop of `peers/raw.py`, and `aggregate` keeps running
totals of the same orders. The kinds take turns, and each run is a drain (`support.py`) after a warm-up block. Records
of all inputs are counted. Every output is compared with what it must be. Prints each run and the medians; a first run,
which warms the broker, is not counted. Exit code 1 if the lookup's median of CPU is above `--limit` times that of the
loop.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from bench.support import Ends, Meter, Outcome, Program, drain, hold, open_broker, order_of, summarise
from tests.support import clients
from tests.support.campaign import Record, deliver, produce, read_rows
from tidegate.dev.broker.server import create_topics

HERE: Final = Path(__file__).resolve().parent
KINDS: Final = ("interval", "lookup", "raw", "aggregate")
OUTPUT: Final = "result"
TOPICS: Final = ("orders", "payments", "customers", OUTPUT)
PARTITIONS: Final = 4
CUSTOMERS: Final = 10_000
WARM: Final = 50_000
PER_S: Final = 10_000
"""Orders in a second of event time."""
BASE_MS: Final = 1_767_225_600_000
APART_MS: Final = 3_600_000
"""Event time from the warm-up block to the main block: an idle pipeline has the highest event time that it has read."""


class Block(NamedTuple):
    """Records of the inputs, and the rows that they must give, by kind."""

    orders: list[Record]
    payments: list[Record]
    expected: dict[str, Counter[tuple[Any, ...]]]


def main() -> int:
    """See the module."""
    options = _parse()
    kinds = options.kinds.split(",")
    blocks = [_make_block(0, WARM), _make_block(WARM, options.records)]
    outcomes: dict[str, list[Outcome]] = {kind: [] for kind in kinds}
    with open_broker() as (broker, directory):
        assert broker.pid is not None
        run = Run(broker.bootstrap, broker.pid, directory, blocks)
        run.measure(kinds[0], -1)
        for turn in range(options.repeat):
            for kind in order_of(kinds, turn):
                outcomes[kind].append(run.measure(kind, turn))
    return _report(outcomes, options.limit)


class Run(NamedTuple):
    """What all runs share."""

    bootstrap: str
    broker: int
    directory: Path
    blocks: Sequence[Block]

    def measure(self, kind: str, turn: int) -> Outcome:
        """Measures the main block of one kind."""
        name = f"{kind}-{turn}"
        topics = {topic: f"{name}-{topic}" for topic in TOPICS}
        create_topics(self.bootstrap, dict.fromkeys(topics.values(), PARTITIONS))
        environ = {
            "KAFKA_BOOTSTRAP": self.bootstrap,
            "BENCH_NAME": name,
            "BENCH_STATE": str(self.directory / name),
        }
        command = [sys.executable, "-m", "tidegate", "run", str(HERE / f"joins_{kind}.yaml")]
        if kind == "raw":
            command = [sys.executable, str(HERE / "peers" / "raw.py"), str(self._write_settings(name, topics))]
        warm, main = (_inputs(kind, block) for block in self.blocks)
        deliver(self.bootstrap, _rename([*_customers(), *warm], topics))
        with Program(command, self.directory / f"{name}.log", environ) as program:
            ends = Ends(self.bootstrap, topics[OUTPUT], PARTITIONS)
            ends.wait(self.blocks[0].expected[kind].total(), program.check)
            producer = hold(self.bootstrap, name, lambda producer: produce(producer, _rename(main, topics)))
            results = self.blocks[1].expected[kind].total()
            outcome = drain(Meter(program.pid, self.broker), ends, producer, len(main), results, program.check)
        _check(self.bootstrap, topics[OUTPUT], kind, self.blocks)
        clients.delete_topics(self.bootstrap, list(topics.values()))
        print(summarise(name, [outcome]), flush=True)
        return outcome

    def _write_settings(self, name: str, topics: Mapping[str, str]) -> Path:
        settings = {
            "bootstrap": self.bootstrap,
            "workload": "lookup",
            "input": topics["orders"],
            "table": topics["customers"],
            "output": topics[OUTPUT],
            "id": f"{name}-loop",
            "interval.ms": 1_000,
        }
        path = self.directory / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path


def _rename(records: Iterable[Record], topics: Mapping[str, str]) -> Iterator[Record]:
    return (record._replace(topic=topics[record.topic]) for record in records)


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
        for kind in ("lookup", "raw"):
            expected[kind][id_, _segment(customer)] += 1
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


def _customers() -> Iterator[Record]:
    for number in range(CUSTOMERS):
        value = msgspec.json.encode({"segment": _segment(number), "country": ("DE", "FR", "PL")[number % 3]})
        yield Record("customers", number % PARTITIONS, b"c%07d" % number, value)


def _inputs(kind: str, block: Block) -> list[Record]:
    """The records of a block that this pipeline reads."""
    return block.orders + (block.payments if kind == "interval" else [])


def _check(bootstrap: str, topic: str, kind: str, blocks: Sequence[Block]) -> None:
    """Every output row is there once, with the right values."""
    fields = {
        "interval": ("id", "payment", "price", "paid"),
        "lookup": ("id", "segment"),
        "raw": ("id", "segment"),
        "aggregate": ("last_id",),
    }[kind]
    rows = (row for part in read_rows(bootstrap, topic) for row in part)
    found = Counter(tuple(row[field] for field in fields) for row in rows)
    expected = blocks[0].expected[kind] + blocks[1].expected[kind]
    if found != expected:
        lost, more = expected - found, found - expected
        raise SystemExit(
            f"{topic}: {lost.total()} rows are lost, {more.total()} are too many: {list(lost)[:3]}, {list(more)[:3]}"
        )


def _report(outcomes: dict[str, list[Outcome]], limit: float) -> int:
    medians = {kind: statistics.median(one.cpu_s for one in found) for kind, found in outcomes.items()}
    for kind, found in outcomes.items():
        print(f"median of {summarise(kind, found)}")
    if not {"lookup", "raw"} <= medians.keys():
        return 0
    ratio = medians["lookup"] / medians["raw"]
    print(f"a lookup takes {ratio:.2f} times the CPU of the plain client loop (limit {limit:g})")
    return 1 if ratio > limit else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000, help="orders; the interval join has payments on top")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--limit", type=float, default=1.3)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
