"""The row of a letter: the same row can be made of its JSON, whatever its types are."""

from __future__ import annotations

import json
import math
import random
import struct
from base64 import b64decode
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tidegate.formats.columns import type_instance
from tidegate.formats.dead_letters import ROW_BYTES_MAX
from tidegate.formats.dead_letters.frames import render_rows, render_types

LARGEST = struct.unpack("f", b"\xff\xff\x7f\x7f")[0]
ROW: dict[str, tuple[pl.DataType, list[Any]]] = {
    "yes": (pl.Boolean(), [True, False]),
    "tiny": (pl.Int8(), [-128, 127]),
    "big": (pl.Int64(), [-(2**63), 2**63 - 1]),
    "single": (pl.Float32(), [0.1, LARGEST, 1e-45, -0.0, math.inf, -math.inf, math.nan]),
    "double": (pl.Float64(), [0.1, 1.7976931348623157e308, 5e-324, -0.0, math.inf, -math.inf, math.nan]),
    "price": (pl.Decimal(38, 18), [Decimal("12.500000000000000000"), Decimal("-0.000000000000000001")]),
    "whole": (pl.Decimal(38, 0), [Decimal(10**38 - 1)]),
    "text": (pl.String(), ["", 'a"\\\n\0\u2028', "\U0001f600"]),
    "data": (pl.Binary(), [b"", b"\x00\xff"]),
    "day": (pl.Date(), [date(1, 1, 1), date(9999, 12, 31)]),
    "at": (pl.Datetime("us", "UTC"), [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)]),
    "local": (pl.Datetime("us"), [datetime(1969, 12, 31, 23, 59, 59, 1)]),  # noqa: DTZ001  # it has no zone
}


def rebuilt(value: Any, kind: pl.DataType) -> Any:
    if value is None:
        return None
    match kind:
        case pl.List():
            return [rebuilt(item, type_instance(kind.inner)) for item in value]
        case pl.Struct():
            return {part.name: rebuilt(value[part.name], type_instance(part.dtype)) for part in kind.fields}
        case pl.Float32() | pl.Float64():
            return float(value)
        case pl.Decimal():
            return Decimal(value)
        case pl.Binary():
            return b64decode(value)
        case pl.Date():
            return date.fromisoformat(value)
        case pl.Datetime():
            return datetime.fromisoformat(value)
    return value


def check(frame: pl.DataFrame) -> None:
    found = render_rows(frame)
    assert [size for _, size in found] == [None] * frame.height
    plain = [json.loads(text or "", parse_constant=pytest.fail) for text, _ in found]
    rows = [{name: rebuilt(row[name], type_instance(kind)) for name, kind in frame.schema.items()} for row in plain]
    assert_frame_equal(pl.DataFrame(rows, schema=frame.schema), frame, check_exact=True)


@pytest.mark.parametrize("name", ROW)
def test_values_of_every_type_come_back(name: str) -> None:
    kind, values = ROW[name]
    values = [*values, None]
    check(pl.DataFrame({"v": values}, schema={"v": kind}))
    check(pl.DataFrame({"v": [values, [], None]}, schema={"v": pl.List(kind)}))
    entries = pl.List(pl.Struct({"key": pl.String(), "value": kind}))
    check(pl.DataFrame({"v": [[{"key": "k", "value": value}] for value in values]}, schema={"v": entries}))


def test_random_floats_come_back_and_have_few_digits() -> None:
    chance = random.Random(1)
    values = [struct.unpack("f", chance.randbytes(4))[0] for _ in range(2000)]
    check(pl.DataFrame({"v": values}, schema={"v": pl.Float32()}))
    (text, _), *_ = render_rows(pl.DataFrame({"v": [0.1]}, schema={"v": pl.Float32()}))
    assert text == '{"v":0.1}'


def test_types_are_named_and_columns_of_the_engine_are_left_out_but_for_what_steps_use() -> None:
    frame = pl.DataFrame(
        {
            "id": [1],
            "price": [Decimal("1.50")],
            "tags": [["a"]],
            "__tidegate_partition": [0],
            "__tidegate_offset": [7],
            "__tidegate_time": [5],
        },
        schema_overrides={"price": pl.Decimal(10, 2)},
    )
    assert render_rows(frame) == [('{"id":1,"price":"1.50","tags":["a"],"__tidegate_time":5}', None)]
    assert json.loads(render_types(frame)) == {
        "id": "bigint",
        "price": "decimal(10,2)",
        "tags": "array<string>",
        "__tidegate_time": "bigint",
    }


def test_a_row_that_is_too_large_is_left_out_and_the_others_are_not() -> None:
    empty = len('{"v":""}')
    texts = ["x" * (ROW_BYTES_MAX - empty), "x" * (ROW_BYTES_MAX - empty + 1), "y"]
    found = render_rows(pl.DataFrame({"v": texts}))
    assert [size for _, size in found] == [None, ROW_BYTES_MAX + 1, None]
    assert [text is None for text, _ in found] == [False, True, False]


def test_a_row_without_columns_is_none() -> None:
    assert render_rows(pl.DataFrame(height=2)) == [(None, None)] * 2
