"""The oracle sees every kind of wrong output."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import pytest

from tidegate.simulation.oracle import History, check_output, count_missing
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


def later_output(number: int) -> Values:
    """What comes out when somebody went back to where the first so many records had been processed."""
    output = right_output(RECORDS)
    return {
        "paid": [[value for value in output["paid"][0] if msgspec.json.decode(value)["id"] >= number]],
        "sums": [[value for value in output["sums"][0] if msgspec.json.decode(value)["last_id"] >= number]],
    }


def problems_of(output: Values, workload: Workload = WORKLOAD) -> str:
    return "; ".join(check_output(workload, RECORDS, History(frozenset(), output)))


def test_right_output_is_right() -> None:
    assert problems_of(right_output(RECORDS)) == ""
    assert count_missing(WORKLOAD, RECORDS, History(frozenset(), right_output(RECORDS))) == 0


@pytest.mark.parametrize("topic", ["paid", "sums"])
def test_a_lost_record_is_seen(topic: str) -> None:
    output = right_output(RECORDS)
    del output[topic][0][5]
    assert f"{topic}: 1 records are lost" in problems_of(output)
    assert count_missing(WORKLOAD, RECORDS, History(frozenset(), output)) == 1


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


def test_behind_going_back_records_come_again_from_there_with_the_totals_of_then() -> None:
    history = History(frozenset(range(25)), later_output(25))
    assert check_output(WORKLOAD, RECORDS, history) == []
    assert count_missing(WORKLOAD, RECORDS, history) == 0


def test_going_back_to_another_place_than_was_asked_for_is_seen() -> None:
    assert check_output(WORKLOAD, RECORDS, History(frozenset(range(25)), later_output(20)))
    assert check_output(WORKLOAD, RECORDS, History(frozenset(range(20)), later_output(25)))


def test_what_was_committed_before_going_back_has_no_gap() -> None:
    output = right_output(RECORDS[:30])
    assert check_output(WORKLOAD, RECORDS, History(frozenset(), output), complete=False) == []
    del output["sums"][0][10]
    problems = check_output(WORKLOAD, RECORDS, History(frozenset(), output), complete=False)
    assert any("left out" in problem for problem in problems)
