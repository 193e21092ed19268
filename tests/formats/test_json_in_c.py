"""JSON that C writes: byte for byte what the expression writes, and left to it where that is not certain."""

from __future__ import annotations

import random
from unittest import SkipTest

import polars as pl
import pytest

from tests.depth import DEPTH
from tests.formats.any_rows import COLUMNS, draw_column, draw_double
from tidegate.datatypes import BIGINT, DATE, DOUBLE, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType
from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Columns
from tidegate.formats.kinds.json.writer import ROWS_MIN, JsonEncoder
from tidegate.native.library import loaded

DOUBLES = 4_000 * DEPTH


@pytest.fixture(autouse=True)
def compiled() -> None:
    if loaded() is None:
        raise SkipTest("JSON is not written in C here")


def same(columns: Columns, frame: pl.DataFrame) -> bool:
    """Whether C writes the frame, as the expression does."""
    encoder = JsonEncoder(columns)
    written, expected = encoder.write(frame), frame.select(encoder.value).to_series()
    if written is None:
        return False
    assert written.name == "value"
    different = (written != expected).arg_true().to_list()
    assert [(written[row], expected[row]) for row in different] == []
    return True


@pytest.mark.parametrize("seed", range(4 * DEPTH))
def test_the_bytes_are_those_of_the_expression(seed: int) -> None:
    print(f"seed {seed}")
    rnd = random.Random(seed)
    columns = rnd.sample(COLUMNS, rnd.choice((1, 2, 5, len(COLUMNS))))
    frame = pl.DataFrame([draw_column(rnd, name, kind, ROWS_MIN) for name, kind in columns])
    assert same(columns, frame.with_columns(other=pl.lit("x")))


def test_doubles_are_the_shortest_decimals() -> None:
    rnd = random.Random(7)
    frame = pl.DataFrame({"d": [draw_double(rnd) for _ in range(DOUBLES)]})
    assert same([("d", DOUBLE)], frame)
    edges = [sign * 10.0**power * more for sign in (1, -1) for power in range(-323, 308) for more in (1, 1.5, 9.999)]
    assert same([("d", DOUBLE)], pl.DataFrame({"d": edges}))


def test_text_that_is_longer_than_the_first_block() -> None:
    frame = pl.DataFrame({"s": ["x" * 100_000, '"' * 100_000] * 10 + [""] * ROWS_MIN})
    assert same([("s", STRING)], frame)


@pytest.mark.parametrize(
    ("kind", "value"), [(DATE, 10**7), (DATE, -(10**6)), (TIMESTAMP, 2**62), (TIMESTAMP_NTZ, -(2**62))]
)
def test_years_of_other_than_four_digits_are_left_over(kind: DataType, value: int) -> None:
    dtype = pl.Int32 if kind is DATE else pl.Int64
    column = pl.Series("v", [0] * ROWS_MIN + [value], dtype=dtype).cast(polars_type(kind))
    assert not same([("v", kind)], column.to_frame())
    assert same([("v", kind)], column[:-1].to_frame())


def test_what_c_does_not_write_is_left_over() -> None:
    whole = pl.DataFrame({"v": range(ROWS_MIN)})
    assert same([("v", BIGINT)], whole)
    assert not same([("v", BIGINT)], whole[1:]), "few rows"
    assert not same([("v", BIGINT)], whole.cast(pl.Int32)), "another type"
    assert not same([], whole)
    lists = DataType("array", element=BIGINT)
    assert not same([("v", lists)], whole.select(pl.concat_list("v")))
    assert same([("v", BIGINT)], pl.DataFrame({"v": [None] * ROWS_MIN}, schema={"v": pl.Int64}))
