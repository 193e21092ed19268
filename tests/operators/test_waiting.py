"""The text about rows that wait for another input."""

from __future__ import annotations

from tidegate.operators.waiting import Waiting

LOOKUP = Waiting(("orders",), ("customer",), by_clock=True)
FULL = Waiting(("order", "payment"), ("order", "payment"))


def test_rows_wait_for_an_input_until_a_time() -> None:
    gauges = {"waiting_rows": 1, "waiting_until_ms": 5}
    assert LOOKUP.describe(gauges, str) == "1 row of `orders` waits for `customer` until 5"
    assert FULL.describe(gauges, str) == "1 row of `order` and `payment` waits for the other input until event time 5"


def test_without_waiting_rows_there_is_no_text() -> None:
    assert LOOKUP.describe({}, str) == LOOKUP.describe({"waiting_rows": 0, "waiting_until_ms": 5}, str) == ""


def test_a_time_that_is_not_known_is_left_out() -> None:
    assert FULL.describe({"waiting_rows": 1200}, str) == "1,200 rows of `order` and `payment` wait for the other input"
