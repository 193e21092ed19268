"""NULL for any argument of any function is what it is in Spark: as a literal, as a cast of one, and in some rows.

The calls are those of the tables of edge cases. What Tidegate refuses at validation is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.expressions.compiled.like_spark import Case, differences, spark_type
from tests.expressions.compiled.test_like_spark import EACH
from tidegate.expressions.errors import ExpressionError, ExpressionRefusal
from tidegate.expressions.parse import parse_expression
from tidegate.expressions.tokens import derive_tokens

ROWS_MAX = 4
WAYS = ("NULL", "cast(NULL as {type})", "if(some, {argument}, NULL)")
"""`some` is a column that is false in every second row."""


def arguments_of(text: str) -> list[tuple[int, int]]:
    """Where the arguments begin and end, when the text is one call of a function."""
    *tokens, _ = derive_tokens(text)
    if len(tokens) < 4 or tokens[0].kind != "name" or tokens[1].text != "(" or tokens[0].text in ("cast", "try_cast"):
        return []
    found, start, depth = [], tokens[1].end, 0
    for place, token in enumerate(tokens[1:], 1):
        if token.kind != "operator":
            continue
        depth += (token.text in "([") - (token.text in ")]")
        if depth == 0 and place < len(tokens) - 1:
            return []
        if depth == 0 or (depth == 1 and token.text == ","):
            found.append((start, token.start))
            start = token.end
    return found


def calls_with_null(case: Case, seen: set[tuple[str, int, int, str]]) -> Iterator[str]:
    """The calls of a case with NULL for an argument, each argument of each function once in each way."""
    schema = Case((), f"{case.columns}, some boolean", ()).schema
    for text in case.expressions:
        places = arguments_of(text)
        for index, (start, end) in enumerate(places):
            argument = text[start:end].strip()
            for way in WAYS:
                try:
                    kind = parse_expression(argument, schema).type
                    call = f"{text[:start]} {way.format(type=spark_type(kind), argument=argument)}{text[end:]}"
                    parse_expression(call, schema)
                except (ExpressionError, ExpressionRefusal):
                    continue
                one = (text.partition("(")[0], len(places), index, way)
                if one not in seen:
                    seen.add(one)
                    yield call


def make_cases() -> Iterator[Case]:
    """With all that can be asked of the rows of one table."""
    seen: set[tuple[str, int, int, str]] = set()
    for case in (parameters.values[0] for parameters in EACH):
        assert isinstance(case, Case)
        rows = tuple((*row, index % 2 == 0) for index, row in enumerate(case.rows[:ROWS_MAX]))
        calls = tuple(calls_with_null(case, seen))
        if calls:
            yield Case(calls, f"{case.columns}, some boolean", rows, case.ulps)


@pytest.mark.slow
def test_null_for_an_argument_is_what_it_is_in_spark(spark: SparkSession) -> None:
    cases = list(make_cases())
    assert sum(len(case.expressions) for case in cases) > 500
    found = [line for case in cases for line in differences(spark, case)]
    assert not found, "\n" + "\n".join(found)
