"""What running totals cost: CPU time per row of an `aggregate` step, by aggregate.

    python bench/running_totals.py [ROWS] [KEYS] [BACKEND]

Batches of ROWS rows (4,000 by default) have keys that are drawn from KEYS strings (10,000). BACKEND is memory (default)
or rocksdb. Printed for each mix of aggregates: nanoseconds of CPU time per row, the lowest of several rounds, of the
whole step: with a result per row, with one per key, and with a ttl. With TIDEGATE_NATIVE=0 everything is computed in
Python.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import Final

import polars as pl

from tidegate.config.fields.steps import Ttl
from tidegate.datatypes import BIGINT, BOOLEAN, DOUBLE, STRING, DataType
from tidegate.expressions.expression import AggregateCall, ColumnReference
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.kinds.aggregate import AggregateOperator
from tidegate.operators.spec import Slot
from tidegate.state.backends import choose_backend

BATCHES: Final = 20
ROUNDS: Final = 5
COLUMNS: Final = {"d": DOUBLE, "n": BIGINT, "s": STRING}


def call(function: str, column: str = "", condition: str = "") -> AggregateCall:
    """Returns a call over plain columns."""
    argument = ColumnReference(column, COLUMNS[column]) if column else None
    own: dict[str, DataType] = {"count": BIGINT, "avg": DOUBLE}
    counted = ColumnReference(condition, BOOLEAN) if condition else None
    return AggregateCall(function, argument, own.get(function, COLUMNS.get(column, BIGINT)), condition=counted)


MIXES: Final[dict[str, list[AggregateCall]]] = {
    "count(*)": [call("count")],
    "count(s)": [call("count", "s")],
    "sum(n)": [call("sum", "n")],
    "sum(d)": [call("sum", "d")],
    "avg(d)": [call("avg", "d")],
    "min(n)": [call("min", "n")],
    "max(d)": [call("max", "d")],
    "first(n)": [call("first", "n")],
    "last(n)": [call("last", "n")],
    "min(s)": [call("min", "s")],
    "sum(d) filter": [call("sum", "d", "c")],
    "count(*), sum(d)": [call("count"), call("sum", "d")],
    "count(*), sum(n), last(n)": [call("count"), call("sum", "n"), call("last", "n")],
    "count(*), sum(d), last(s)": [call("count"), call("sum", "d"), call("last", "s")],
}


class Nothing:
    """An output that drops everything."""

    def emit(self, batch: pl.DataFrame) -> None:
        """Drops rows."""

    def fail(self, *failed: object) -> None:
        """Raises: there are no bad records."""
        raise AssertionError(failed)


def make_batches(rows: int, keys: int) -> list[pl.DataFrame]:
    """Returns batches of prices."""
    chance = random.Random(1)
    return [
        pl.DataFrame(
            {
                "k": [f"customer-{chance.randrange(keys):06}" for _ in range(rows)],
                "d": [chance.randrange(100_000) / 100 for _ in range(rows)],
                "n": [chance.randrange(100_000) for _ in range(rows)],
                "s": [f"text {chance.randrange(1000)}" for _ in range(rows)],
                "c": [chance.random() < 0.5 for _ in range(rows)],
            }
        )
        for _ in range(BATCHES)
    ]


def measure(process: Callable[[pl.DataFrame], object], batches: list[pl.DataFrame]) -> float:
    """Returns the nanoseconds per row of the fastest round."""
    rows = sum(batch.height for batch in batches)
    rounds = []
    for _ in range(ROUNDS):
        start = time.process_time_ns()
        for batch in batches:
            process(batch)
        rounds.append((time.process_time_ns() - start) / rows)
    return min(rounds)


def open_step(
    calls: list[AggregateCall], emit: str, backend: str, ttl: Ttl | None = None
) -> Callable[[pl.DataFrame], object]:
    """Returns what processes a batch."""
    aggregates = tuple((f"a{place}", one) for place, one in enumerate(calls))
    output = (("k", STRING), *((name, one.type) for name, one in aggregates))
    operator = AggregateOperator(OperatorName("totals"), ("k",), aggregates, emit, output, BadRecordPolicy.FAIL, ttl)
    runtime = operator.open(Slot(128, choose_backend(backend, retained=1), now_ms=lambda: 0))
    out = Nothing()
    return lambda batch: runtime.process(0, batch, out)  # type: ignore[arg-type]  # as much of Out as it needs


def main() -> None:
    """See the module."""
    rows, keys, backend = [*sys.argv[1:], *("4000", "10000", "memory")[len(sys.argv) - 1 :]]
    batches = make_batches(int(rows), int(keys))
    print(f"{rows} rows a batch, {keys} keys, {backend}; ns of CPU time per row")
    for name, calls in MIXES.items():
        each, latest = (measure(open_step(calls, emit, backend), batches) for emit in ("each", "latest"))
        expiring = measure(open_step(calls, "each", backend, Ttl(86_400_000, processing=True)), batches)
        print(f"{name:30} each {each:6.0f}   latest {latest:6.0f}   with a ttl {expiring:6.0f}", flush=True)


if __name__ == "__main__":
    main()
