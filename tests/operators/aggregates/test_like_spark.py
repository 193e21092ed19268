"""Aggregates over whole groups against real Spark SQL in ANSI mode."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest

from tests.operators.aggregates.reducing import reduce_text
from tests.operators.rows import make_frame
from tests.operators.window.feeding import Record, Step, Subtasks, make_window
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
from tidegate.operators.kinds.window.settings import Windowing
from tidegate.operators.runtime import END_OF_TIME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

PRICE, WIDE = decimal_of(8, 3), decimal_of(38, 4)
MOMENTS = (dt.datetime(1960, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, 0, 0, 0, 7, dt.UTC))
VALUES: dict[DataType, list[Any]] = {
    TINYINT: [None, -128, 127, 0],
    INT: [None, 2**31 - 1, -(2**31), 0],
    BIGINT: [None, 2**53 + 1, -(2**53) - 1, 3],
    FLOAT: [None, 0.10000000149011612, math.nan, math.inf, -math.inf, -0.0, 0.0],
    DOUBLE: [None, 0.1, 0.2, math.nan, -math.inf, math.inf, 0.0, -0.0, 1e300, 5e-324],
    STRING: [None, "", "a", "Z", "ä", "😀", "\uffff"],
    BOOLEAN: [None, True, False],
    DATE: [None, dt.date(1960, 1, 1), dt.date(2026, 2, 3)],
    TIMESTAMP: [None, *MOMENTS],
    TIMESTAMP_NTZ: [None, *(moment.replace(tzinfo=None) for moment in MOMENTS)],
    PRICE: [None, *map(Decimal, ("-99999.999", "0.000", "0.001", "7.777"))],
    WIDE: [None, *map(Decimal, ("-12345678901234567890123456.7890", "0.0001", "99999999999999999999999999999.9999"))],
}
NUMBERS = ("tinyint", "int", "bigint", "float", "double")
LISTED = "collect_list(if(x is null, null, struct(at, x)))"
CALLS = {"collect_list(x)": LISTED, "collect_set(x)": "collect_set(x)"}
"""The aggregate itself where Spark's text has more."""
SAME = {
    "first(x)": "min_by(x, at)",  # Spark's own goes by the order in which rows come
    "last(x)": "max_by(x, at)",
    "collect_list(x)": f"transform(array_sort({LISTED}), s -> s.x)",
    "collect_set(x)": "array_sort(collect_set(x))",
    **{
        text: text
        for text in (
            *("count(*)", "count(x)", "min(x)", "max(x)", "min_by(x, at)", "max_by(x, at)", "min_by(at, y)"),
            *("max_by(x, y)", "count(distinct x)", "approx_count_distinct(x)"),
        )
    },
}
OF_NUMBERS = ("sum(x)", "avg(x)", "stddev(x)", "stddev_pop(x)", "variance(x)", "var_pop(x)")
SHARES = (0.0, 0.3, 0.5, 0.95, 1.0)
OF_BOOLEANS = ("bool_and(x)", "every(x)", "some(x)")


FILTERS = ("y is not null", "at % 3 > 0 and x is not null", "at > 5000", "k % 2 = 0", "if(at % 2 = 0, at > 100, null)")
"""One is true for no row, one for all rows of a group or none, and one NULL for some."""
IGNORING = {
    "first(x, true)": "min_by(x, at) filter (where x is not null)",
    "any_value(x) ignore nulls": "min_by(x, at) filter (where x is not null)",
    "last(x ignore nulls)": "max_by(x, at) filter (where x is not null)",
    "last(x) filter (where y is not null) ignore nulls": "max_by(x, at) filter (where x is not null and y is not null)",
}


def functions_of(kind: DataType) -> tuple[dict[str, str], dict[str, str]]:
    """Ours and Spark's: of all rows of a group, and of some, which is the same for all types."""
    own: tuple[str, ...] = OF_NUMBERS if kind.kind in NUMBERS else OF_BOOLEANS if kind == BOOLEAN else ()
    own += OF_NUMBERS[:2] if kind.kind == "decimal" else ()
    if kind.kind in NUMBERS:  # where Spark puts NaN depends on the order of the rows
        number = "if(isnan(x), null, x)" if kind in (FLOAT, DOUBLE) else "x"
        own += tuple(f"percentile_approx({number}, {share})" for share in SHARES)
    whole = SAME | {text: text for text in own}
    if kind not in (BIGINT, STRING, BOOLEAN):
        return whole, {}
    filtered = {
        f"{ours} filter (where {condition})": theirs.replace(call, f"{call} filter (where {condition})")
        for (ours, theirs), condition in zip(whole.items(), cycle(FILTERS), strict=False)
        for call in (CALLS.get(ours, theirs),)
    }
    return whole, IGNORING | filtered


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_the_results_of_groups_are_those_of_spark(spark: SparkSession, kind: DataType) -> None:
    choice = random.Random(20_261_122)
    rows: list[tuple[int, int, Any, int | None]] = []
    for key in range(120):
        few = choice.sample(VALUES[kind], min(len(VALUES[kind]), choice.randrange(1, 5)))
        times = choice.sample(range(1_000), choice.randrange(1, 9))
        rows += [(key, at, choice.choice(few), choice.choice([None, at * 7 % 997])) for at in times]
    schema = {"k": BIGINT, "at": BIGINT, "x": kind, "y": BIGINT}
    frame = make_frame(schema, rows)
    spark_rows = [(key, at, _for_spark(value), y) for key, at, value, y in rows]
    spark.createDataFrame(spark_rows, f"k bigint, at bigint, x {kind}, y bigint").createOrReplaceTempView("rows")
    for functions in filter(None, functions_of(kind)):  # with both in one query Spark adds doubles in another order
        ours = {key: results for key, *results in reduce_text(frame, schema, list(functions))}
        columns = ", ".join(f"{theirs} as c{index}" for index, theirs in enumerate(functions.values()))
        for key, *theirs in (tuple(row) for row in spark.sql(f"select k, {columns} from rows group by k").collect()):
            for text, mine, other in zip(functions, ours[key], theirs, strict=True):
                values = [row for row in rows if row[0] == key]
                assert alike(text, _for_spark(mine), other), f"{text}: {mine!r}, Spark {other!r}, of {values}"


def test_sessions_are_those_of_spark_rows_that_are_as_far_apart_as_the_gap_are_in_one(spark: SparkSession) -> None:
    times = [0, 10_000, 19_999, 30_000, 40_001, 60_000]
    step = Subtasks(make_window(Windowing(10_000, 0)))
    step.feed(Step(tuple(Record("a", 1, at, -99) for at in times)))
    step.feed(Step(watermark=END_OF_TIME))
    ours = [(row[1], row[2], row[3]) for row in step.results]
    spark.createDataFrame([(at,) for at in times], "at bigint").createOrReplaceTempView("rows")
    window = "session_window(timestamp_millis(at), '10 seconds')"
    bounds = "unix_millis(session_window.start), unix_millis(session_window.end), n"
    theirs = spark.sql(f"select {bounds} from (select {window}, count(*) n from rows group by {window}) order by 1")
    assert ours == [tuple(row) for row in theirs.collect()]
    assert len(ours) == 4


def alike(text: str, mine: Any, other: Any) -> bool:
    """Sums of doubles are rounded at every step there, and may overflow on the way; of two zeros the first counts."""
    if mine == other == 0 and isinstance(mine, float):
        return True
    if text.startswith(OF_NUMBERS) and isinstance(mine, float) and isinstance(other, float) and math.isfinite(mine):
        return not math.isfinite(other) or math.isclose(mine, other, rel_tol=1e-12, abs_tol=1e-12)
    return repr(mine) == repr(other)


def _for_spark(value: Any) -> Any:
    """Spark hands out naive local timestamps."""
    if isinstance(value, list):
        return [_for_spark(one) for one in value]
    return value.astimezone().replace(tzinfo=None) if isinstance(value, dt.datetime) and value.tzinfo else value
