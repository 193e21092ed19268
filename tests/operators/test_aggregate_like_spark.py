"""Running totals against real Spark SQL in ANSI mode: the same functions over a growing window."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from tests.operators.driven import drive
from tests.operators.rows import FUNCTIONS, make_aggregate, make_frame
from tidegate.datatypes import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    DataType,
    decimal_of,
)
from tidegate.expressions.compiled import compile_projection
from tidegate.expressions.parse import parse_aggregate
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.kinds.aggregate import AggregateOperator, derive_inputs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

PRICE, WIDE = decimal_of(8, 3), decimal_of(38, 4)
MOMENTS = (dt.datetime(1960, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, 0, 0, 0, 7, dt.UTC))
VALUES: dict[DataType, list[Any]] = {
    TINYINT: [None, -128, 127, 0],
    INT: [None, 2**31 - 1, -(2**31), 0],
    BIGINT: [None, 2**53 + 1, -(2**53) - 1, 3],
    FLOAT: [None, 0.10000000149011612, math.nan, math.inf, -0.0, 0.0],
    DOUBLE: [None, 0.1, 0.2, math.nan, -math.inf, 0.0, -0.0, 1e308],
    STRING: [None, "", "a", "Z", "ä", "😀", "\uffff"],
    BOOLEAN: [None, True, False],
    DATE: [None, dt.date(1960, 1, 1), dt.date(2026, 2, 3)],
    TIMESTAMP: [None, *MOMENTS],
    TIMESTAMP_NTZ: [None, *(moment.replace(tzinfo=None) for moment in MOMENTS)],
    PRICE: [None, *map(Decimal, ("-99999.999", "0.000", "0.001", "7.777"))],
    WIDE: [None, *map(Decimal, ("-12345678901234567890123456.7890", "0.0001", "99999999999999999999999999999.9999"))],
}
NUMBERS = ("tinyint", "int", "bigint", "float", "double")


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_running_results_are_those_of_spark(spark: SparkSession, kind: DataType) -> None:
    choice = random.Random(20_260_101)
    pairs = [(key, value) for key, pair in enumerate(product(VALUES[kind], repeat=2)) for value in pair]
    rows = pairs + [(choice.randrange(-5, 0), choice.choice(VALUES[kind])) for _ in range(100)]
    functions = [f for f in FUNCTIONS if f not in ("sum", "avg") or kind.kind in (*NUMBERS, "decimal")]
    functions += ["bool_and", "bool_or"] if kind == BOOLEAN else []
    mine = make_aggregate(functions, kind).process(make_frame({"k": BIGINT, "x": kind}, rows))
    assert mine is not None

    window = "over (partition by k order by i rows between unbounded preceding and current row)"
    columns = ", ".join(f"{f if f == 'count(*)' else f'{f}(x)'} {window} as `{f}`" for f in functions)
    numbered = [(i, key, _for_spark(value)) for i, (key, value) in enumerate(rows)]
    spark.createDataFrame(numbered, f"i int, k bigint, x {kind}").createOrReplaceTempView("rows")
    theirs = [tuple(row) for row in spark.sql(f"select k, {columns} from rows order by i").collect()]
    found = [tuple(map(_for_spark, row)) for row in mine.rows()]
    for row, (ours, spark_row) in enumerate(zip(found, theirs, strict=True)):
        seen = [value for key, value in rows[: row + 1] if key == rows[row][0] and value is not None]
        for function, one, other in zip(("key", *functions), ours, spark_row, strict=True):
            assert repr(one) == repr(other) or is_exact(function, one, other, seen), f"row {row}: {rows[: row + 1]}"


def is_exact(function: str, ours: object, theirs: object, values: list[Any]) -> bool:
    """Whether a double is the exact sum or average, rounded once.

    Spark rounds each addition, so that it may overflow, or lose all digits where large values cancel.
    """
    if function not in ("sum", "avg") or not isinstance(ours, float) or not isinstance(theirs, float):
        return False
    total = sum(Fraction(float(value)) for value in values)
    return ours == float(total if function == "sum" else total / len(values))


FILTERED = {
    "count(*) filter (where c)": "count(*) filter (where c)",
    **{f"{f}(x) filter (where c)": f"{f}(x) filter (where c)" for f in ("count", "sum", "avg", "min", "max")},
    "first(x) filter (where c)": "min_by(x, i) filter (where c)",  # Spark's own goes by the order of a join
    "last(x) filter (where c)": "max_by(x, i) filter (where c)",
    "any_value(x) ignore nulls": "min_by(x, i) filter (where x is not null)",
    "last(x, true)": "max_by(x, i) filter (where x is not null)",
    "last(x) filter (where c) ignore nulls": "max_by(x, i) filter (where c and x is not null)",
}


@pytest.mark.parametrize("kind", [INT, PRICE], ids=str)
def test_filtered_totals_are_those_of_spark(spark: SparkSession, kind: DataType) -> None:
    """Each is Spark's aggregate of the rows so far: FILTER has no window there."""
    choice = random.Random(20_261_129)
    conditions = [True, False, None]
    rows = [(choice.randrange(9), choice.choice(VALUES[kind]), choice.choice(conditions)) for _ in range(120)]
    schema = {"k": BIGINT, "x": kind, "c": BOOLEAN}
    calls = {text: parse_aggregate(text, schema) for text in FILTERED}
    inputs, plain = derive_inputs(("k",), calls, schema)
    output = (("k", BIGINT), *((text, call.type) for text, call in calls.items()))
    operator = AggregateOperator(OperatorName("t"), ("k",), tuple(plain.items()), "each", output, BadRecordPolicy.SKIP)
    frame, failures = compile_projection(list(inputs.items())).apply(make_frame(schema, rows))
    assert not failures
    mine = drive(operator).process(frame)
    assert mine is not None

    numbered = [(i, *row) for i, row in enumerate(rows)]
    spark.createDataFrame(numbered, f"i int, k bigint, x {kind}, c boolean").createOrReplaceTempView("rows")
    columns = ", ".join(f"{theirs} as `{ours}`" for ours, theirs in FILTERED.items())
    joined = "select at.i as at, rows.* from rows join rows at on rows.k = at.k and rows.i <= at.i"
    query = f"select max(k), {columns} from ({joined}) group by at order by at"
    for row, (ours, theirs) in enumerate(zip(mine.rows(), spark.sql(query).collect(), strict=True)):
        assert repr(ours) == repr(tuple(theirs)), f"row {row}: {rows[: row + 1]}"


def _for_spark(value: Any) -> Any:
    """Spark hands out naive local timestamps."""
    return value.astimezone().replace(tzinfo=None) if isinstance(value, dt.datetime) and value.tzinfo else value
