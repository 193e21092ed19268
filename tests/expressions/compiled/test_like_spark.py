"""Every function and operator gives Spark SQL's value, or fails for the same rows, over tables of edge cases."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.depth import DEPTH
from tests.expressions.compiled import (
    cases_arrays,
    cases_codecs,
    cases_decimals,
    cases_encryption,
    cases_formats,
    cases_intervals,
    cases_json,
    cases_maps,
    cases_numbers,
    cases_operators,
    cases_text,
    cases_time,
)
from tests.expressions.compiled.like_spark import Case, differences, frame_of, functions_in
from tidegate.expressions.compiled import compile_projection
from tidegate.expressions.functions import REGISTRY
from tidegate.expressions.parse import parse_expression

TABLES = {
    "operators": cases_operators.CASES,
    "text": cases_text.CASES,
    "numbers": cases_numbers.CASES,
    "time": cases_time.CASES,
    "arrays": cases_arrays.CASES,
    "codecs": cases_codecs.CASES,
    "decimals": cases_decimals.CASES,
    "encryption": cases_encryption.CASES,
    "formats": cases_formats.CASES,
    "intervals": cases_intervals.CASES,
    "json": cases_json.CASES,
    "maps": cases_maps.CASES,
}
OWN = {"uuid5", "secret"}
"""What Spark does not have; `test_own_functions.py` looks at it."""
ALONE = 2
"""About so many rows of each table are also evaluated alone, spread over the table."""
EACH = [
    pytest.param(case, id=f"{table}-{index}") for table, cases in TABLES.items() for index, case in enumerate(cases)
]


@pytest.mark.slow
@pytest.mark.parametrize("case", EACH)
def test_values_and_failures_are_sparks(spark: SparkSession, case: Case) -> None:
    """Type, values and failing rows of every expression of a table."""
    found = differences(spark, case)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("case", EACH)
def test_values_do_not_depend_on_the_rows_next_to(case: Case) -> None:
    """Rows alone: how records come in batches is chance, and a change has to take back what was added."""
    frame = frame_of(case)
    looked_at = range(0, frame.height, max(1, frame.height // (ALONE * DEPTH)))
    for text in case.expressions:
        projection = compile_projection([("r", parse_expression(text, case.schema))])
        found, failures = projection.apply(frame)
        failed = {one.row: (one.kind, one.message) for one in failures}
        good = (row for row in range(frame.height) if row not in failed)
        values = dict(zip(good, map(repr, found["r"].to_list()), strict=True))
        for row in looked_at:
            alone, refused = projection.apply(frame[row : row + 1])
            assert [(one.kind, one.message) for one in refused] == ([failed[row]] if row in failed else []), (text, row)
            if row not in failed:
                assert [repr(value) for value in alone["r"].to_list()] == [values[row]], (text, row)


def test_every_function_has_a_conformance_row() -> None:
    """A function that is registered but never compared with Spark fails here."""
    compared = {
        name for cases in TABLES.values() for case in cases for text in case.expressions for name in functions_in(text)
    }
    assert not sorted(set(REGISTRY) - compared - OWN)
