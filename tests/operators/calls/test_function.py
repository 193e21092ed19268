"""What the user's code gets of rows, and what becomes of its answers."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable
from copy import deepcopy
from decimal import Decimal
from typing import Any, cast

import polars as pl

from tidegate.config.fields.columns import derive_type
from tidegate.formats.columns import make_column, plain_values
from tidegate.operators.calls.caller import CallPolicy, attempt_call
from tidegate.operators.calls.function import DictDecoder, FunctionTarget, rows_of

COLUMNS = [
    ("price", derive_type("decimal(5,2)")),
    ("at", derive_type("timestamp_ntz")),
    ("tags", derive_type("map<boolean, array<map<string, int>>>")),
    ("nested", derive_type("struct<m: map<decimal(3,1), string>, n: int>")),
]
PLAIN = (Decimal("1.50"), 0, ((True, ((("a", 1),), None)),), (((Decimal("2.5"), "x"),), 7))
ROW = {
    "price": Decimal("1.50"),
    "at": dt.datetime.fromtimestamp(0, dt.UTC).replace(tzinfo=None),
    "tags": {True: [{"a": 1}, None]},
    "nested": {"m": {Decimal("2.5"): "x"}, "n": 7},
}


def test_maps_are_dicts_for_the_users_code_and_come_back_as_they_were() -> None:
    both = zip(COLUMNS, PLAIN, strict=True)
    frame = pl.DataFrame([make_column(name, kind, [one, None]) for (name, kind), one in both])
    rows = rows_of(COLUMNS)(frame)
    assert rows == [ROW, dict.fromkeys(ROW)]
    decoded = DictDecoder(COLUMNS, COLUMNS, "f").decode(rows)
    assert not decoded.failures
    assert [plain_values(column) for column in decoded.frame] == [plain_values(column) for column in frame]


def test_a_function_that_changes_its_row_gets_it_whole_when_it_is_tried_again() -> None:
    seen: list[dict[str, Any]] = []

    async def look_up(row: dict[str, Any]) -> dict[str, Any]:
        seen.append(deepcopy(row))
        row.pop("k")
        row["items"][0].clear()
        row["items"].pop()
        raise ConnectionError("try again")

    target = FunctionTarget.__new__(FunctionTarget)
    target._ask = cast("Callable[[object], Awaitable[object]]", look_up)
    policy = CallPolicy(timeout_ms=60_000, retries=1, backoff_ms=1, budget_ms=60_000)
    request = {"k": 1, "items": [{"a": 1}, None]}
    asyncio.run(attempt_call(lambda: target.ask(request), policy, lambda: 0.0))
    assert seen == [{"k": 1, "items": [{"a": 1}, None]}] * 2


def test_decimals_of_the_users_code_are_what_python_shows_or_a_bad_record() -> None:
    kind = [COLUMNS[0]]
    answers = [{"price": value} for value in (1.1, 1, "1.10", 1.005, float("nan"), True, Decimal("NaN"))]
    decoded = DictDecoder(kind, kind, "f").decode(answers)
    assert decoded.frame["price"].to_list() == [Decimal("1.10"), Decimal("1.00"), Decimal("1.10")]
    assert [one.row for one in decoded.failures] == [3, 4, 5, 6]
