"""Steps in Python as operators alone: microseconds of CPU of a row, compared with the built-in operators.

    python bench/python.py [KIND ...]

A batch has 4,096 rows. Steps that get one row at a time are also compared with a loop that calls the same code by hand
on ready rows, with a dict for its state: what remains is the cost of the machinery. Exit code 1 if a row takes more
than 4 us beyond the user's code. `compare.py --engines tidegate,python-rows,python-batch` measures whole pipelines.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl

from tests.operators.driven import Collected
from tidegate.datatypes import BIGINT, STRING, DataType
from tidegate.expressions.expression import AggregateCall, ColumnReference
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.kinds.aggregate import AggregateOperator
from tidegate.operators.kinds.python import PythonOperator
from tidegate.operators.spec import Columns, Slot, StepOperator
from tidegate.process.limits import collect_rarely
from tidegate.python import Row, Value
from tidegate.state.backends import choose_backend
from tidegate.user_code.describe import CodeDescription, describe

ROWS: Final = 4096
BATCHES: Final = 50
KEYS: Final = 1000
ROUNDS: Final = 5
ROW_LIMIT_US: Final = 4.0
"""CPU of a row beyond the user's code."""
TOTALS: Final[Columns] = (("customer", STRING), ("count", BIGINT), ("sum", BIGINT), ("ts", BIGINT))
PAID: Final[Columns] = (
    ("id", BIGINT),
    ("ts", BIGINT),
    ("customer", STRING),
    ("sku", STRING),
    ("total", BIGINT),
)
KINDS: Final[Mapping[str, tuple[str, Columns]]] = {
    "function-rows": ("paid_row", PAID),
    "function-batch": ("paid_batch", PAID),
    "totals-rows": ("TotalsByRow", TOTALS),
    "totals-struct": ("TotalsByStruct", TOTALS),
    "totals-batch": ("TotalsByBatch", TOTALS),
}
COLUMNS: Final[Mapping[str, DataType]] = {
    "id": BIGINT,
    "ts": BIGINT,
    "customer": STRING,
    "sku": STRING,
    "qty": BIGINT,
    "price": BIGINT,
    "status": STRING,
}


class Timing(NamedTuple):
    """Microseconds of CPU of a row."""

    operator: float
    by_hand: float | None
    """The user's code alone; None for batches, where it is nearly everything."""


def compare_operators(kinds: Sequence[str]) -> int:
    """Prints a line for each kind. Returns 1 if a row takes too long."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    collect_rarely()  # as in a slot
    batches = [_make_batch(number) for number in range(BATCHES)]
    timings: dict[str, list[Timing]] = {kind: [] for kind in (*KINDS, "aggregate") if kind in kinds or not kinds}
    for _ in range(ROUNDS):
        for kind, found in timings.items():
            found.append(_time(kind, batches))
    failed = False
    print(f"us of CPU a row, in batches of {ROWS} rows (median of {ROUNDS})")
    for kind, found in timings.items():
        operator = statistics.median(one.operator for one in found)
        by_hand = [one.by_hand for one in found if one.by_hand is not None]
        beyond = ""
        if by_hand:
            over = operator - statistics.median(by_hand)
            failed |= over > ROW_LIMIT_US
            beyond = f", {over:.2f} beyond the user's code by hand ({statistics.median(by_hand):.2f})"
        print(f"{kind:>14}: {operator:.2f}{beyond}")
    return 1 if failed else 0


def _time(kind: str, batches: Sequence[pl.DataFrame]) -> Timing:
    operator, by_hand = _time_operator(_make_operator(kind), batches), None
    if kind == "function-rows":
        by_hand = _time_function(batches)
    elif kind.startswith("totals") and not kind.endswith("batch"):
        by_hand = _time_step(KINDS[kind][0], batches)
    return Timing(operator, by_hand)


def _time_operator(operator: StepOperator, batches: Sequence[pl.DataFrame]) -> float:
    runtime, out = operator.open(Slot(128, choose_backend("memory", 1))), Collected()
    runtime.process(0, batches[0], out)

    def run() -> None:
        for batch in batches:
            runtime.process(0, batch, out)
            out.batches.clear()
            out.order.clear()

    spent = _cpu(run)
    for state in runtime.states.values():
        state.close()
    runtime.close()
    assert not out.failures, out.failures[:1]
    return spent / (len(batches) * ROWS) * 1e6


def _time_function(batches: Sequence[pl.DataFrame]) -> float:
    from python_steps import paid_row  # type: ignore[import-not-found]  # next to the program

    rows = [Row(row) for batch in batches for row in batch.select(*COLUMNS).to_dicts()]
    emitted: list[Any] = []

    def run() -> None:
        for row in rows:
            found = paid_row(row)
            if found is not None:
                emitted.append(found)
        emitted.clear()

    return _cpu(run) / len(rows) * 1e6


class _Cell(Value[Any]):
    """A value of the current key in a dict: the least that the user's code can do."""

    current = ""

    def __init__(self, default: Any) -> None:
        self.default = default
        self.values: dict[str, Any] = {}

    def get(self) -> Any:
        return self.values.get(_Cell.current, self.default)

    def set(self, value: Any) -> None:
        self.values[_Cell.current] = value


class _Emitted:
    def __init__(self) -> None:
        self.rows: list[Mapping[str, Any]] = []

    def emit(self, row: Any = None, /, **columns: Any) -> None:
        self.rows.append(columns if row is None else row)


def _time_step(name: str, batches: Sequence[pl.DataFrame]) -> float:
    import python_steps

    step: Any = getattr(python_steps, name)()
    for state in ("count", "sum", "totals"):
        if hasattr(step, state):
            vars(step)[state] = _Cell(getattr(step, state).default)
    rows = [Row(row) for batch in batches for row in batch.select(*COLUMNS).to_dicts()]
    out = _Emitted()

    def run() -> None:
        for row in rows:
            _Cell.current = row["customer"]
            step.process(row, out)
        out.rows.clear()

    return _cpu(run) / len(rows) * 1e6


def _make_operator(kind: str) -> StepOperator:
    columns, name, policy = tuple(COLUMNS.items()), OperatorName("out"), BadRecordPolicy.FAIL
    if kind == "aggregate":
        calls = (
            ("count", AggregateCall("count", None, BIGINT)),
            ("sum", AggregateCall("sum", ColumnReference("price", BIGINT), BIGINT)),
            ("ts", AggregateCall("last", ColumnReference("ts", BIGINT), BIGINT)),
        )
        return AggregateOperator(name, ("customer",), calls, "each", TOTALS, policy)
    reference, output = KINDS[kind]
    keys = ("customer",) if kind.startswith("totals") else ()
    description = describe(f"python_steps:{reference}", {})
    assert isinstance(description, CodeDescription), description
    return PythonOperator(
        name=name,
        keys=keys,
        columns=columns,
        bad_records=policy,
        description=description,
        settings={},
        main=output,
        others={},
        per_batch=kind.endswith("batch"),
    )


def _make_batch(number: int) -> pl.DataFrame:
    dice = random.Random(number)
    return pl.DataFrame(
        {
            "id": range(number * ROWS, (number + 1) * ROWS),
            "ts": range(number * ROWS, (number + 1) * ROWS),
            "customer": [f"c{dice.randrange(KEYS):07d}" for _ in range(ROWS)],
            "sku": [f"p{dice.randrange(1000):05d}" for _ in range(ROWS)],
            "qty": [dice.randrange(1, 10) for _ in range(ROWS)],
            "price": [dice.randrange(100, 20_000) for _ in range(ROWS)],
            "status": [dice.choice(("paid", "open")) for _ in range(ROWS)],
            "__tidegate_partition": [0] * ROWS,
            "__tidegate_offset": range(number * ROWS, (number + 1) * ROWS),
        }
    )


def _cpu(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


if __name__ == "__main__":
    sys.exit(compare_operators(sys.argv[1:]))
