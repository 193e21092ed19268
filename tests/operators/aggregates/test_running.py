"""Running totals in C and in Python are identical to the last bit, in results, failures and state."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from tests.depth import DEPTH
from tests.operators.driven import Driven, drive
from tests.operators.rows import make_frame
from tests.operators.ways import WAYS, choose_way
from tidegate.config.fields.steps import Ttl
from tidegate.datatypes import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, STRING, TIMESTAMP, DataType, decimal_of
from tidegate.expressions.expression import AggregateCall, ColumnReference
from tidegate.formats.failures import BadRecordPolicy, RecordFailure
from tidegate.ids import CheckpointId, OperatorName
from tidegate.operators.kinds.aggregate import AggregateOperator
from tidegate.state.base import Share

LONG = 2**63 - 1
FLOAT, TINY, LIST = DataType("float"), DataType("tinyint"), DataType("array", element=STRING)
STRUCT = DataType("struct", fields=(("a", BIGINT), ("b", STRING)))
Draw = Callable[[random.Random], Any]


def any_double(chance: random.Random) -> float:
    """Prices most of the time; with others, sums lose bits, leave the range or have a rest."""
    wide = [1e300, -1e300, 1.7e308, -1.7e308, 5e-324, 2.0**62, 2.0**-44, -0.0, 0.0, 1e16, math.nan, math.inf, -math.inf]
    if chance.random() < 0.02:
        return chance.choice(wide)
    return chance.randrange(-100_000, 100_000) / 100 if chance.random() < 0.9 else chance.uniform(-1, 1)


def any_long(chance: random.Random) -> int:
    """Small numbers most of the time; sums of the others may leave the range."""
    return chance.choice([LONG, -LONG - 1, LONG // 2]) if chance.random() < 0.05 else chance.randrange(-1000, 1000)


VALUES: dict[str, tuple[DataType, Draw]] = {
    "double": (DOUBLE, any_double),
    "float": (FLOAT, lambda chance: chance.choice([0.1, -0.0, 3.5, math.nan, math.inf, chance.uniform(-9, 9)])),
    "long": (BIGINT, any_long),
    "tiny": (TINY, lambda chance: chance.randrange(-128, 128)),
    "boolean": (BOOLEAN, lambda chance: chance.random() < 0.5),
    "date": (DATE, lambda chance: dt.date(1970, 1, 1) + dt.timedelta(chance.randrange(-9999, 9999))),
    "time": (TIMESTAMP, lambda chance: dt.datetime.fromtimestamp(chance.randrange(10**9), dt.UTC)),
    "string": (STRING, lambda chance: chance.choice(["", "short", "longer than twelve bytes", f"{chance.random()}"])),
    "binary": (BINARY, lambda chance: chance.randbytes(chance.randrange(20))),
    "decimal": (decimal_of(10, 2), lambda chance: Decimal(chance.randrange(-(10**10) + 1, 10**10)) / 100),
    "struct": (STRUCT, lambda chance: chance.choice([{"a": 1, "b": None}, {"a": None, "b": "x" * 13}])),
    "list": (LIST, lambda chance: [str(chance.random())] * chance.randrange(3)),
}
NUMBERS = ("double", "double", "float", "long", "long", "tiny", "decimal")
FUNCTIONS = ("count(*)", "count", "sum", "sum", "avg", "min", "max", "first", "last", "bool_or", "var_pop")
ORDERED = tuple(name for name in VALUES if name not in ("struct", "list"))


def any_call(chance: random.Random) -> AggregateCall:
    """An aggregate over one of the columns."""
    function = chance.choice(FUNCTIONS)
    columns = {"sum": NUMBERS, "avg": ("double", "decimal"), "bool_or": ("boolean",), "var_pop": ("double",)}
    columns |= {"min": ORDERED, "max": ORDERED}
    column = chance.choice(columns.get(function, tuple(VALUES)))
    kind = VALUES[column][0]
    results = {"count(*)": BIGINT, "count": BIGINT, "var_pop": DOUBLE, "avg": DOUBLE}
    result = results.get(function, kind)
    if function == "sum":
        result = decimal_of(20, 2) if column == "decimal" else BIGINT if column in ("long", "tiny") else DOUBLE
    if function == "avg" and column == "decimal":
        result = decimal_of(14, 6)
    return AggregateCall(
        function.removesuffix("(*)"),
        None if function == "count(*)" else ColumnReference(column, kind),
        result,
        condition=ColumnReference("boolean", BOOLEAN) if chance.random() < 0.3 else None,
        ignore_nulls=function in ("first", "last") and chance.random() < 0.3,
    )


def any_operator(chance: random.Random) -> AggregateOperator:
    """A step with a few aggregates."""
    calls = tuple((f"a{place}", any_call(chance)) for place in range(chance.randrange(1, 6)))
    output = (("k", STRING), *((name, call.type) for name, call in calls))
    ttl = chance.choice([None, None, Ttl(50)])
    emit = chance.choice(["each", "latest"])
    return AggregateOperator(OperatorName("t"), ("k",), calls, emit, output, BadRecordPolicy.SKIP, ttl)


def any_batch(chance: random.Random, start: int) -> pl.DataFrame:
    """Rows of few keys, in a few parts and with NULLs."""
    count, keys, known = chance.randrange(80), chance.choice([1, 3, 50]), chance.choice([1.0, 0.8, 0.0])
    rows = [
        (
            chance.choice([None, f"key-{chance.randrange(keys)}"]),
            *(draw(chance) if chance.random() < known else None for _, draw in VALUES.values()),
        )
        for _ in range(count)
    ]
    kinds = {name: kind for name, (kind, _) in VALUES.items()}
    frame = make_frame({"k": STRING, **kinds}, rows)
    times = [start + chance.randrange(-20, 20) for _ in rows]
    return frame.with_columns(
        pl.Series("__tidegate_time", times, dtype=pl.Int64), pl.Series("__tidegate_behind", [0] * count, dtype=pl.Int64)
    )


def play(
    operator: AggregateOperator, batches: list[pl.DataFrame]
) -> tuple[list[str], list[RecordFailure], list[bytes]]:
    """What comes out, which rows fail, and the state; with a restart in the middle."""
    found: list[str] = []
    failures: list[RecordFailure] = []
    driven = drive(operator)
    for place, batch in enumerate(batches):
        if place == len(batches) // 2:
            again = drive(operator)
            again.state.restore(snapshot(driven), Share(range(128)))
            driven = again
        result = driven.process(batch)
        found.append("" if result is None else f"{result.schema} {result.rows()!r}")
        failures += driven.take_failures()
    return found, failures, snapshot(driven)


def snapshot(driven: Driven) -> list[bytes]:
    """The files of the state."""
    capture = driven.state.capture(CheckpointId(1), full=True)
    assert capture.encode is not None
    return list(capture.encode())


@pytest.mark.parametrize("seed", range(1, 1 + 15 * DEPTH))
def test_C_and_Python_agree_to_the_last_bit(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    operator = any_operator(chance)
    batches = [any_batch(chance, 20 * place) for place in range(chance.randrange(2, 8))]
    played = []
    for way in reversed(WAYS):
        with monkeypatch.context() as patched:
            choose_way(way, patched)
            played.append(play(operator, batches))
    in_python, in_c = played
    assert in_c[0] == in_python[0]
    assert in_c[1] == in_python[1]
    assert in_c[2] == in_python[2]
