"""The check of the benchmarks finds each kind of wrong result, and accepts exact ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from bench.orders import WORKLOADS, Orders, Output, check

ORDERS = Orders(100, 400, customers=50)
Row = dict[str, Any]


def write(workload: str, rows: list[Row]) -> Output:
    """Returns an output topic that has these results, in two partitions by key."""
    keys = [str(row[WORKLOADS[workload].key]) for row in rows]
    return Output(
        [sum(key.encode()) % 2 for key in keys],
        [key.encode() for key in keys],
        [json.dumps(row).encode() for row in rows],
    )


def rows_of(workload: str) -> list[Row]:
    """Returns the exact results."""
    return ORDERS.expected(workload, ORDERS.total).to_dicts()


def judge(workload: str, output: Output) -> Mapping[str, int]:
    """Returns what the check says, without the number of results."""
    said = check(workload, ORDERS.expected(workload, ORDERS.total), output.frame(workload))
    assert said.pop("results") == output.frame(workload).height
    return said


@pytest.mark.parametrize("workload", WORKLOADS)
def test_exact_results_are_accepted(workload: str) -> None:
    assert judge(workload, write(workload, rows_of(workload))) == {}


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda rows: rows.pop(7), {"lost": 1}),
        (lambda rows: rows.append(rows[-1]), {"duplicated": 1}),
        (lambda rows: rows[7].update(sum=1, total=1), {"wrong": 1}),
    ],
)
def test_a_result_that_is_lost_or_duplicated_or_wrong_is_found(
    workload: str, damage: Callable[[list[Row]], object], found: Mapping[str, int]
) -> None:
    rows = rows_of(workload)
    damage(rows)
    assert judge(workload, write(workload, rows)) == found


def test_a_result_that_no_order_gives_is_found() -> None:
    rows = rows_of("W1")
    rows.append({**rows[-1], "id": ORDERS.total + 1})
    assert judge("W1", write("W1", rows)) == {"unexpected": 1}


def test_results_of_a_customer_in_another_order_are_found() -> None:
    rows = rows_of("W2")
    customer = rows[-1]["customer"]
    first, second = [number for number, row in enumerate(rows) if row["customer"] == customer][:2]
    rows[first], rows[second] = rows[second], rows[first]
    assert judge("W2", write("W2", rows)) == {"out_of_order": 1}


def test_a_key_that_is_not_the_customer_and_a_customer_in_two_partitions_are_found() -> None:
    output = write("W2", rows_of("W2"))
    output.keys[-1] = b"other"
    output.partitions[-1] = 5
    assert judge("W2", output) == {"other_key": 1, "key_in_partitions": 1}


def test_results_of_closing_orders_are_ignored() -> None:
    rows = [*rows_of("W3"), {"sku": "~1", "window_start": 0, "count": 1, "sum": 1}]
    assert judge("W3", write("W3", rows)) == {}


def test_messages_are_the_orders() -> None:
    messages = [message for batch in ORDERS.messages(90, 110) for message in batch]
    frame = ORDERS.frame(90, 110)
    read = [json.loads(message["value"]) for message in messages]
    assert [{name: row[name] for name in frame.columns} for row in read] == frame.to_dicts()
    assert [message["key"].decode() for message in messages] == frame["customer"].to_list()
    assert frame["ts"][9] < frame["ts"][10] - 80_000_000  # the main block is a day later
