"""The oracle sees every kind of wrong output."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import pytest

from tidegate.simulation.oracle import check_output, count_missing
from tidegate.simulation.workload import InputRecord, Workload, draw_records, draw_workload

WORKLOAD = msgspec.structs.replace(
    draw_workload(1), topology="both", records=40, customers=3, skus=2, partitions=1, exactly_once=True
)
RECORDS = draw_records(1, WORKLOAD)

Values = dict[str, list[list[bytes]]]


def right_output(records: list[InputRecord]) -> Values:
    """As a correct pipeline writes it, in one partition."""
    totals: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    paid, sums = [], []
    for record in records:
        cents = record.quantity * record.price_cents
        if record.status == "paid":
            paid.append(msgspec.json.encode({"id": record.id, "customer": record.customer, "total_cents": cents}))
        orders, revenue_cents = totals[record.sku]
        totals[record.sku] = orders + 1, revenue_cents + cents
        row = {"sku": record.sku, "orders": orders + 1, "revenue_cents": revenue_cents + cents, "last_id": record.id}
        sums.append(msgspec.json.encode(row))
    return {"paid": [paid], "sums": [sums]}


def problems_of(output: Values, workload: Workload = WORKLOAD) -> str:
    return "; ".join(check_output(workload, RECORDS, output))


def test_right_output_is_right() -> None:
    assert problems_of(right_output(RECORDS)) == ""
    assert count_missing(WORKLOAD, RECORDS, right_output(RECORDS)) == 0


@pytest.mark.parametrize("topic", ["paid", "sums"])
def test_a_lost_record_is_seen(topic: str) -> None:
    output = right_output(RECORDS)
    del output[topic][0][5]
    assert f"{topic}: 1 records are lost" in problems_of(output)
    assert count_missing(WORKLOAD, RECORDS, output) == 1


@pytest.mark.parametrize("topic", ["paid", "sums"])
def test_a_doubled_record_is_seen_but_allowed_in_at_least_once(topic: str) -> None:
    output = right_output(RECORDS)
    output[topic][0].append(output[topic][0][-1])
    assert f"{topic}: 1 records are there more than once" in problems_of(output)
    assert problems_of(output, msgspec.structs.replace(WORKLOAD, exactly_once=False)) == ""


@pytest.mark.parametrize("topic", ["paid", "sums"])
def test_records_of_one_key_out_of_order_are_seen(topic: str) -> None:
    output = right_output(RECORDS)
    output[topic][0].reverse()
    assert "comes behind" in problems_of(output)


def test_a_wrong_total_is_seen() -> None:
    output = right_output(RECORDS)
    row = msgspec.json.decode(output["sums"][0][9])
    output["sums"][0][9] = msgspec.json.encode({**row, "revenue_cents": row["revenue_cents"] + 1})
    assert "revenue" in problems_of(output)


def test_a_key_in_two_partitions_is_seen() -> None:
    output = right_output(RECORDS)
    output["paid"].append([output["paid"][0].pop()])
    assert "is in partitions" in problems_of(output)
