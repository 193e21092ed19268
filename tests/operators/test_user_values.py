"""What a user's value may be, and how a message names the column, the value and the reason."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tidegate.config.fields.columns import derive_type
from tidegate.operators.user_values import RecordConverter, WrongValue

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def convert(kind: str, value: Any) -> Any:
    converter = RecordConverter((("x", derive_type(kind)),), "the output", "emit a value of that type")
    return converter.convert({"x": value}).f0


def test_an_instant_may_have_any_offset_but_not_none() -> None:
    east = dt.timezone(dt.timedelta(hours=2))
    assert convert("timestamp", NOON) == convert("timestamp", NOON.astimezone(east))
    for naive in (NOON.replace(tzinfo=None), "2026-01-01T12:00:00"):
        with pytest.raises(WrongValue, match="is not \\(it has no offset: give a datetime in UTC"):
            convert("timestamp", naive)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("date", NOON, "`x` of the output is date, and datetime.datetime("),
        ("float", "a", "`x` of the output is float, and 'a' is not (Expected `number`, got `string`): emit a"),
        (
            "array<date>",
            [5],
            "`x` of the output is array<date>, and [5] is not (Expected `date`, got `integer` - at `$.x[",
        ),
        ("struct<a date>", {"a": 5}, "{'a': 5} is not (Expected `date`, got `integer` - at `$.x.a`): emit"),
    ],
)
def test_a_wrong_value_is_named_with_its_column(kind: str, value: Any, message: str) -> None:
    with pytest.raises(WrongValue) as caught:
        convert(kind, value)
    assert message in str(caught.value)
