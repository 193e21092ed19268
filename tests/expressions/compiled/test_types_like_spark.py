"""For every pair of types, an operator has Spark's result type or is refused; it is never accepted with another."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.expressions.compiled.like_spark import spark_type
from tidegate.datatypes import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    DataType,
    decimal_of,
    map_of,
)
from tidegate.expressions.parse import ExpressionError, parse_expression

COLUMNS = {
    "c_boolean": BOOLEAN, "c_tinyint": TINYINT, "c_smallint": SMALLINT, "c_int": INT, "c_bigint": BIGINT,
    "c_float": FLOAT, "c_double": DOUBLE, "c_string": STRING, "c_binary": BINARY, "c_date": DATE,
    "c_timestamp": TIMESTAMP, "c_array": DataType("array", element=INT), "c_timestamp_ntz": TIMESTAMP_NTZ,
    "c_decimal": decimal_of(10, 2), "c_wide": decimal_of(38, 18), "c_fraction": decimal_of(5, 5),
    "c_map": map_of(STRING, INT),
}  # fmt: skip
_INFIX = ("+", "-", "*", "/", "%", "div", "&", "=", "<", "||")
OPERATORS = (
    *(f"{{}} {sign} {{}}" for sign in _INFIX),
    "pmod({}, {})",
    "coalesce({}, {})",
    "{} in ({})",
    "greatest({}, {})",
)


@pytest.fixture(scope="module")
def empty(spark: SparkSession) -> DataFrame:
    """One row of NULLs of every type."""
    return spark.sql(
        "select " + ", ".join(f"cast(null as {spark_type(kind)}) as {name}" for name, kind in COLUMNS.items())
    )


def type_here(text: str) -> str:
    try:
        return spark_type(parse_expression(text, COLUMNS).type)
    except ExpressionError as error:
        return f"refused: {error}"


def type_in_spark(empty: DataFrame, text: str) -> str:
    try:
        return empty.selectExpr(f"{text} as r").schema[0].dataType.simpleString()
    except PySparkException:
        return "refused"


@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS)
def test_accepted_pairs_of_types_have_sparks_result(empty: DataFrame, operator: str) -> None:
    accepted = {
        operator.format(left, right): type_here(operator.format(left, right)) for left in COLUMNS for right in COLUMNS
    }
    accepted = {text: kind for text, kind in accepted.items() if not kind.startswith("refused")}
    assert accepted
    both = empty.selectExpr(*(f"{text} as r{index}" for index, text in enumerate(accepted)))
    theirs = [field.dataType.simpleString() for field in both.schema]
    assert dict(zip(accepted, theirs, strict=True)) == accepted


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["{} + {}", "{} / {}"])
def test_pairs_of_numbers_and_texts_that_spark_accepts_are_accepted(empty: DataFrame, operator: str) -> None:
    assert refused_here_alone(empty, operator) == []


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["{} = {}", "coalesce({}, {})"])
def test_X14_only_text_columns_next_to_other_types_are_refused_where_spark_casts_them(
    empty: DataFrame, operator: str
) -> None:
    others = [name for name in NUMBERS_AND_TEXTS if name != "c_string"]
    pairs = [pair for other in others for pair in ((other, "c_string"), ("c_string", other))]
    assert sorted(refused_here_alone(empty, operator)) == sorted(operator.format(*pair) for pair in pairs)


NUMBERS_AND_TEXTS = [
    *("c_boolean", "c_tinyint", "c_int", "c_bigint", "c_float", "c_double", "c_string", "c_decimal", "c_wide"),
]


def refused_here_alone(empty: DataFrame, operator: str) -> list[str]:
    every = [operator.format(left, right) for left in NUMBERS_AND_TEXTS for right in NUMBERS_AND_TEXTS]
    refused = [text for text in every if type_here(text).startswith("refused")]
    return [text for text in refused if type_in_spark(empty, text) != "refused"]
