"""What Python steps cost beside the built-in steps that do the same.

    python bench/python.py [--records 500000] [--repeat 3] [--kinds select,...] [--drains | --operators]

Drains: a real broker of its own, `tidegate run` on local[2], checkpoints every second; see drain.py. `select` is beside
a function of rows and one of batches; `aggregate` beside classes with state, by row (two values, or one struct) and by
batch. The kinds take turns; every output is compared with what it must be. Prints each run, the medians of CPU, and
their ratios to the built-in step.

Operators: microseconds of CPU of a row in the operator alone, for batches of 4,096 rows, beside the built-in operator
and beside a plain loop that calls the same code on ready rows, with a dict for its state. What remains is the cost of
the machinery. Exit code 1 if a batch takes more than 1.2 times the built-in step, or a row more than 4 us beyond the
user's code.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from bench.drain import OUTPUT, PARTITIONS, Drain, Outcome, Part
from tests.support.campaign import Record, read_rows
from tidegate.dev.broker import DevelopmentBroker

HERE: Final = Path(__file__).resolve().parent
CUSTOMERS: Final = 10_000
WARM: Final = 50_000
BATCH_LIMIT: Final = 1.2
"""CPU of a batch beside the built-in step."""
SCHEMA: Final = {
    "id": "bigint",
    "customer": "string",
    "sku": "string",
    "quantity": "bigint",
    "price": "bigint",
    "status": "string",
    "note": "string",
}
PAID: Final = {"id": "bigint", "customer": "string", "sku": "string", "total": "bigint"}
TOTALS: Final = {"customer": "string", "orders": "bigint", "revenue": "bigint", "last_id": "bigint"}
SLIM: Final = {"name": "slim", "from": "orders", "select": {"id": "id", "customer": "customer", "price": "price"}}
"""The columns that totals need: `aggregate` reads no others, and a Python step gets all that arrive."""
STEPS: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = {
    "select": (
        {"name": "paid", "from": "orders", "where": "status = 'paid'"},
        {"from": "paid", "select": {"id": "id", "customer": "customer", "sku": "sku", "total": "quantity * price"}},
    ),
    "function-rows": ({"from": "orders", "python": "python_steps:paid_row", "output": PAID},),
    "function-batch": ({"from": "orders", "python": "python_steps:paid_batch", "per": "batch", "output": PAID},),
    "aggregate": (
        {
            "from": "orders",
            "key": "customer",
            "aggregate": {"orders": "count(*)", "revenue": "sum(price)", "last_id": "last(id)"},
        },
    ),
    "totals-rows": (SLIM, {"from": "slim", "key": "customer", "python": "python_steps:TotalsByRow", "output": TOTALS}),
    "totals-struct": (
        SLIM,
        {"from": "slim", "key": "customer", "python": "python_steps:TotalsByStruct", "output": TOTALS},
    ),
    "totals-batch": (
        SLIM,
        {
            "from": "slim",
            "key": "customer",
            "python": "python_steps:TotalsByBatch",
            "per": "batch",
            "output": TOTALS,
        },
    ),
}
"""The steps of each kind; the last one is called `out`."""


class Block(NamedTuple):
    """Orders, and the rows that they must give, by family of kinds."""

    orders: list[Record]
    expected: dict[str, Counter[tuple[Any, ...]]]


def main() -> int:
    """See the module."""
    options = _parse()
    kinds = options.kinds.split(",")
    found = 0
    if not options.drains:
        from bench.python_operators import compare_operators

        found |= compare_operators(kinds)
    if not options.operators:
        found |= _drain_all(kinds, options.records, options.repeat)
    return found


def write_pipeline(directory: Path, kind: str) -> Path:
    """Writes the pipeline file of a kind, and its code beside it. JSON is YAML."""
    shutil.copy(HERE / "python_steps.py", directory)
    *first, last = STEPS[kind]
    document = {
        "version": 1,
        "name": "${BENCH_NAME}",
        "kafka": {"bootstrap.servers": "${KAFKA_BOOTSTRAP}"},
        "spark": {"master": "local[2]"},
        "parallelism": 2,
        "checkpoints": {"directory": "file://${BENCH_STATE}", "interval": "1s", "timeout": "120s"},
        "http": {"port": 0},
        "sources": {
            "orders": {"topic": "${BENCH_NAME}-orders", "format": "json", "schema": SCHEMA, "start": "earliest"}
        },
        "steps": [*first, {"name": "out", **last}],
        "sinks": {"result": {"from": "out", "topic": "${BENCH_NAME}-" + OUTPUT, "format": "json", "key": "customer"}},
    }
    path = directory / f"{kind}.yaml"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2))
    return path


def is_stateful(kind: str) -> bool:
    """Returns whether a kind keeps running totals."""
    return kind == "aggregate" or kind.startswith("totals")


def _drain_all(kinds: Sequence[str], records: int, repeat: int) -> int:
    totals: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    blocks = [_make_block(0, WARM, totals), _make_block(WARM, records, totals)]
    outcomes: dict[str, list[Outcome]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="tidegate-python-") as name:
        broker = DevelopmentBroker(Path(name) / "broker", heap_mib=1024).start()
        try:
            _run(broker.bootstrap, Path(name), kinds[0], -1, blocks)
            for turn in range(repeat):
                for kind in kinds if turn % 2 == 0 else reversed(kinds):
                    outcomes[kind].append(_run(broker.bootstrap, Path(name), kind, turn, blocks))
        finally:
            broker.kill()
    return _report(outcomes)


def _run(bootstrap: str, directory: Path, kind: str, turn: int, blocks: Sequence[Block]) -> Outcome:
    drain = Drain(bootstrap, directory, f"{kind}-{turn}", write_pipeline(directory, kind), ("orders", OUTPUT))
    family = "aggregate" if is_stateful(kind) else "select"
    parts = [Part(block.orders, block.expected[family].total()) for block in blocks]
    expected = sum((block.expected[family] for block in blocks), Counter[tuple[Any, ...]]())
    columns = tuple(TOTALS if is_stateful(kind) else PAID)
    return drain.run((), *parts, lambda topic: _check(bootstrap, topic, columns, expected))


def _make_block(first: int, count: int, totals: dict[int, tuple[int, int]]) -> Block:
    """Orders from this id on. `totals`: those of each customer so far, which the function updates."""
    dice = random.Random(first)
    orders: list[Record] = []
    expected: dict[str, Counter[tuple[Any, ...]]] = {"select": Counter(), "aggregate": Counter()}
    for id_ in range(first, first + count):
        number = dice.randrange(100 if dice.random() < 0.1 else CUSTOMERS)
        quantity, price, sku = dice.randrange(1, 10), dice.randrange(100, 20_000), f"p{dice.randrange(1000):05d}"
        status, customer = dice.choice(("paid", "open")), f"c{number:07d}"
        value = (
            b'{"id":%d,"customer":"%s","sku":"%s","quantity":%d,"price":%d,"status":"%s","note":"%s"}'
            % (id_, customer.encode(), sku.encode(), quantity, price, status.encode(), b"n" * 64)
        )  # fmt: skip
        orders.append(Record("orders", number % PARTITIONS, customer.encode(), value))
        before = totals[number]
        totals[number] = before[0] + 1, before[1] + price
        expected["aggregate"][customer, *totals[number], id_] += 1
        if status == "paid":
            expected["select"][id_, customer, sku, quantity * price] += 1
    return Block(orders, expected)


def _check(bootstrap: str, topic: str, columns: Sequence[str], expected: Counter[tuple[Any, ...]]) -> None:
    """Every output row is there once, with the right values."""
    rows = (row for part in read_rows(bootstrap, topic) for row in part)
    found = Counter(tuple(row[column] for column in columns) for row in rows)
    if found != expected:
        lost, more = expected - found, found - expected
        raise SystemExit(
            f"{topic}: {lost.total()} rows are lost, {more.total()} are too many: {list(lost)[:3]}, {list(more)[:3]}"
        )


def _report(outcomes: Mapping[str, Sequence[Outcome]]) -> int:
    medians = {kind: statistics.median(one.cpu_s for one in found) for kind, found in outcomes.items()}
    failed = False
    for kind, found in outcomes.items():
        rate, others = (statistics.median(one[place] for one in found) for place in (1, 2))
        built_in = medians.get("aggregate" if is_stateful(kind) else "select")
        ratio = medians[kind] / built_in if built_in else 0.0
        failed |= kind.endswith("-batch") and ratio > BATCH_LIMIT
        print(f"median of {kind:>14}: {medians[kind]:.2f} CPU s per million records"
              f"{f', {ratio:.2f} times the built-in step' if built_in else ''}; {rate:,.0f} records/s, "
              f"other cores {others:.2f}")  # fmt: skip
    return 1 if failed else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(STEPS))
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--drains", action="store_true", help="no operators")
    only.add_argument("--operators", action="store_true", help="no broker and no daemon")
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.pop("KAFKA_BOOTSTRAP", None)
    sys.exit(main())
