"""Frames of user code as columns: converted where nothing is lost, refused with a remedy, or unfit row by row."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from tidegate.config.fields.columns import derive_type
from tidegate.formats.columns import polars_type
from tidegate.operators.kinds.python.running.frames import FrameConverter

LOCAL = dt.datetime(2024, 1, 1)  # noqa: DTZ001  # without zone on purpose


def _convert(kind: str, column: pl.Series) -> tuple[pl.Series, dict[int, str]]:
    converted, unfit = FrameConverter((("x", derive_type(kind)),)).convert(pl.DataFrame({"x": column}))
    assert converted.schema == {"x": polars_type(derive_type(kind))}
    return converted["x"], dict(unfit)


@pytest.mark.parametrize(
    ("kind", "values", "dtype"),
    [
        ("bigint", [1, None], pl.Int64),
        ("bigint", [1, None], pl.Int32),
        ("bigint", [1, None], pl.UInt32),
        ("smallint", [255], pl.UInt8),
        ("double", [1.5, None], pl.Float32),
        ("double", [1, None], pl.Int32),
        ("bigint", [None, None], pl.Null),
        ("string", ["a", None], pl.Categorical),
        ("string", ["a", None], pl.Enum(["a"])),
        ("decimal(10,2)", [Decimal("1.5"), None], pl.Decimal(38, 1)),
        ("timestamp_ntz", [LOCAL, None], pl.Datetime("ms")),
        ("timestamp_ntz", [LOCAL, None], pl.Datetime("ns")),
        ("timestamp", [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None], pl.Datetime("ms", "UTC")),
        ("array<bigint>", [[1, None], [], None], pl.List(pl.Int32)),
        ("array<bigint>", [[], None], pl.List(pl.Null)),
        ("array<bigint>", [[1, 2]], pl.Array(pl.Int16, 2)),
        ("struct<a: bigint, b: string>", [{"a": 1, "b": "x"}, None], pl.Struct({"a": pl.Int8, "b": pl.String})),
        ("map<string, bigint>", [[{"key": "k", "value": 1}]], pl.List(pl.Struct({"key": pl.String, "value": pl.Int8}))),
    ],
)
def test_a_type_whose_values_the_declared_one_has_is_converted(kind: str, values: list[Any], dtype: Any) -> None:
    converted, unfit = _convert(kind, pl.Series("x", values, dtype=dtype))
    assert converted.to_list() == values
    assert not unfit


def test_an_instant_of_any_zone_is_a_timestamp() -> None:
    berlin = pl.Series("x", [LOCAL]).dt.replace_time_zone("Europe/Berlin")
    converted, _ = _convert("timestamp", berlin)
    assert converted.to_list() == [dt.datetime(2023, 12, 31, 23, tzinfo=dt.UTC)]


@pytest.mark.parametrize(
    ("kind", "dtype", "message"),
    [
        ("int", pl.Int64, "`x` is pl.Int64, and int is declared: add `.cast(pl.Int32)`, or change `output`"),
        ("bigint", pl.Float64, "`x` is pl.Float64, and bigint is declared: add `.cast(pl.Int64)`, or change `output`"),
        ("float", pl.Float64, "add `.cast(pl.Float32)`"),
        ("double", pl.Int64, "add `.cast(pl.Float64)`"),
        ("bigint", pl.UInt64, "add `.cast(pl.Int64)`"),
        ("string", pl.Int64, "add `.cast(pl.String)`"),
        ("date", pl.Datetime("us"), "add `.cast(pl.Date)`"),
        ("timestamp", pl.Datetime("us"), '`.dt.replace_time_zone("UTC")`'),
        ("timestamp_ntz", pl.Datetime("us", "UTC"), "`.dt.replace_time_zone(None)`"),
        (
            "decimal(10,2)",
            pl.Decimal(38, 4),
            "and decimal(10,2) is declared: `.round(2).cast(pl.Decimal(precision=10, scale=2))` rounds it",
        ),
        ("array<int>", pl.List(pl.Int64), "is pl.List(Int64), and array<int> is declared"),
        ("struct<a: int>", pl.Struct({"b": pl.Int32}), "and struct<a: int> is declared"),
        ("bigint", pl.Object, "`x` is pl.Object"),
    ],
)
def test_any_other_type_is_refused_with_both_types_and_a_remedy(kind: str, dtype: Any, message: str) -> None:
    with pytest.raises(TypeError) as refused:
        _convert(kind, pl.Series("x", [], dtype=dtype))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "column", "message"),
    [
        (
            "decimal(5,2)",
            pl.Series("x", [Decimal("1.50"), Decimal("1234.5"), None], dtype=pl.Decimal(38, 2)),
            "`x` is 1234.50, which does not fit decimal(5,2)",
        ),
        (
            "timestamp",
            pl.Series("x", [0, 1, None]).cast(pl.Datetime("ns", "UTC")),
            "`x` is 1970-01-01 00:00:00.000000001+00:00, which does not fit timestamp",
        ),
        ("date", pl.Series("x", [0, 2_932_897, None]).cast(pl.Date), "`x` is +10000-01-01, which does not fit date"),
        ("timestamp", pl.Series("x", [0, 1 << 62, None]).cast(pl.Datetime("us", "UTC")), "does not fit timestamp"),
        (
            "array<date>",
            pl.Series("x", [[0], [0, None, 2_932_897], None], dtype=pl.List(pl.Int32)).cast(pl.List(pl.Date)),
            "does not fit array<date>",
        ),
        (
            "map<string, bigint>",
            pl.Series("x", [[{"key": "k", "value": 1}], [{"key": "k", "value": 1}, {"key": "k", "value": 2}], None]),
            "does not fit map<string, bigint>",
        ),
        (
            "map<string, bigint>",
            pl.Series("x", [[{"key": "k", "value": 1}], [{"key": None, "value": 1}], None]),
            "does not fit map<string, bigint>",
        ),
        (
            "struct<at: date>",
            pl.Series("x", [{"at": 0}, {"at": 2_932_897}, None], dtype=pl.Struct({"at": pl.Int32})).cast(
                pl.Struct({"at": pl.Date})
            ),
            "does not fit struct<at: date>",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_found_by_row(kind: str, column: pl.Series, message: str) -> None:
    _, unfit = _convert(kind, column)
    assert unfit.keys() == {1}
    assert message in unfit[1]


def test_other_columns_are_left_out_and_the_order_is_the_declared_one() -> None:
    converter = FrameConverter((("a", derive_type("bigint")), ("b", derive_type("string"))))
    frame, _ = converter.convert(pl.DataFrame({"c": [1], "b": ["x"], "a": [1]}))
    assert frame.columns == ["a", "b"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pl.DataFrame({"b": [1]}), "the frame has no `a`, only `b`: add it, or change `output`"),
        (pl.DataFrame(), "the frame has no `a`, only no column"),
        (pl.DataFrame({"a": [1]}).lazy(), "got a LazyFrame: return `frame.collect()`"),
        ([1, 2], "got [1, 2] of type list: return a polars.DataFrame"),
    ],
)
def test_what_is_no_frame_with_the_columns_is_refused(given: object, message: str) -> None:
    with pytest.raises(TypeError) as refused:
        FrameConverter((("a", derive_type("bigint")),)).convert(given)
    assert message in str(refused.value)
