"""The oracle sees every kind of wrong output."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import msgspec
import pytest

from tidegate.ids import TopicPartition
from tidegate.simulation.oracle import check_committed, check_output, count_releases, has_come_out
from tidegate.simulation.releases import CHANGES
from tidegate.simulation.shapes.oracle import OracleHistory
from tidegate.simulation.shapes.running import Letters
from tidegate.simulation.workload import InputRecord, Workload, draw_workload

WORKLOAD = msgspec.structs.replace(draw_workload(1), topology="both", exactly_once=True, changed="")
CHAIN = msgspec.structs.replace(WORKLOAD, topology="chain")
AT_LEAST_ONCE = msgspec.structs.replace(WORKLOAD, exactly_once=False)

Rows = dict[str, list[list[dict[str, Any]]]]


def records_of(count: int) -> list[InputRecord]:
    draw = random.Random(1)
    return [
        InputRecord(
            place=TopicPartition("orders", draw.randrange(2)),
            id=number,
            customer=f"c{draw.randrange(3)}",
            sku=f"s{draw.randrange(2)}",
            quantity=draw.randint(1, 5),
            price_cents=draw.randint(1, 999),
            status=draw.choice(("paid", "open")),
        )
        for number in range(count)
    ]


RECORDS = records_of(40)


def right_output(records: list[InputRecord]) -> Rows:
    """As a correct pipeline writes it, in one partition."""
    totals: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    visits: dict[str, int] = defaultdict(int)
    paid: list[dict[str, Any]] = []
    sums: list[dict[str, Any]] = []
    customers: list[dict[str, Any]] = []
    for record in records:
        cents = record.quantity * record.price_cents
        if record.status == "paid":
            paid.append({"id": record.id, "customer": record.customer, "total_cents": cents})
        orders, revenue_cents = totals[record.sku]
        totals[record.sku] = orders + 1, revenue_cents + cents
        sums.append(
            {"sku": record.sku, "orders": orders + 1, "revenue_cents": revenue_cents + cents, "last_id": record.id}
        )
        visits[record.customer] += 1
        customers.append({"customer": record.customer, "orders": visits[record.customer], "last_id": record.id})
    return {"paid": [paid], "sums": [sums], "customers": [customers]}


def later_output(number: int) -> Rows:
    """What comes out when somebody went back to where the first so many records had been processed."""
    output = right_output(RECORDS)
    return {
        "paid": [[row for row in output["paid"][0] if row["id"] >= number]],
        "sums": [[row for row in output["sums"][0] if row["last_id"] >= number]],
    }


def problems_of(output: Rows, workload: Workload = WORKLOAD) -> str:
    return "; ".join(check_output(workload, RECORDS, OracleHistory(frozenset(), output)))


@pytest.mark.parametrize("workload", [WORKLOAD, CHAIN, AT_LEAST_ONCE])
def test_right_output_is_right(workload: Workload) -> None:
    assert problems_of(right_output(RECORDS), workload) == ""


@pytest.mark.parametrize(("topic", "workload"), [("paid", WORKLOAD), ("sums", WORKLOAD), ("customers", CHAIN)])
def test_a_lost_record_is_seen(topic: str, workload: Workload) -> None:
    output = right_output(RECORDS)
    del output[topic][0][5]
    assert f"{topic}: 1 records are lost" in problems_of(output, workload)


@pytest.mark.parametrize("topic", ["paid", "sums"])
def test_a_doubled_record_is_seen_but_allowed_in_at_least_once(topic: str) -> None:
    output = right_output(RECORDS)
    output[topic][0].append(output[topic][0][-1])
    assert f"{topic}: 1 records are duplicated" in problems_of(output)
    assert problems_of(output, AT_LEAST_ONCE) == ""


@pytest.mark.parametrize(("topic", "workload"), [("paid", WORKLOAD), ("sums", WORKLOAD), ("customers", CHAIN)])
def test_records_of_one_key_out_of_order_are_seen(topic: str, workload: Workload) -> None:
    output = right_output(RECORDS)
    output[topic][0].reverse()
    assert "comes after" in problems_of(output, workload)


def test_a_wrong_total_is_seen() -> None:
    output = right_output(RECORDS)
    output["sums"][0][9]["revenue_cents"] += 1
    assert "was expected" in problems_of(output)


def test_a_key_in_two_partitions_is_seen() -> None:
    output = right_output(RECORDS)
    output["paid"].append([output["paid"][0].pop()])
    assert "is in partitions" in problems_of(output)


def test_behind_going_back_records_come_again_from_there_with_the_totals_of_then() -> None:
    history = OracleHistory(frozenset(range(25)), later_output(25))
    assert check_output(WORKLOAD, RECORDS, history) == []


def test_going_back_to_another_place_than_was_asked_for_is_seen() -> None:
    assert check_output(WORKLOAD, RECORDS, OracleHistory(frozenset(range(25)), later_output(20)))
    assert check_output(WORKLOAD, RECORDS, OracleHistory(frozenset(range(20)), later_output(25)))


def test_what_was_committed_before_going_back_has_no_gap() -> None:
    output = right_output(RECORDS[:30])
    assert check_output(WORKLOAD, RECORDS, OracleHistory(frozenset(), output), complete=False) == []
    del output["sums"][0][10]
    problems = check_output(WORKLOAD, RECORDS, OracleHistory(frozenset(), output), complete=False)
    assert any("left out" in problem for problem in problems)


# -- totals at least once ----------------------------------------------------------------------------------------------


def counted_again(output: Rows, row: int) -> None:
    """From this row of the sums on its record is in the totals a second time, and its row comes again."""
    again = dict(output["sums"][0][row])
    cents = RECORDS[again["last_id"]].quantity * RECORDS[again["last_id"]].price_cents
    later = [one for one in output["sums"][0][row + 1 :] if one["sku"] == again["sku"]]
    for one in later:
        one["orders"] += 1
        one["revenue_cents"] += cents
    again["orders"] += 1
    again["revenue_cents"] += cents
    output["sums"][0].insert(row + 1, again)


def test_at_least_once_may_count_a_record_again_that_comes_again() -> None:
    output = right_output(RECORDS)
    counted_again(output, 7)
    assert problems_of(output, AT_LEAST_ONCE) == ""


def test_at_least_once_a_total_without_one_of_its_records_is_seen() -> None:
    output = right_output(RECORDS)
    output["sums"][0][0]["orders"] -= 1
    assert "at least" in problems_of(output, AT_LEAST_ONCE)


def test_at_least_once_a_total_above_all_that_has_come_out_is_seen() -> None:
    output = right_output(RECORDS)
    output["sums"][0][12]["revenue_cents"] += 1
    assert "at most" in problems_of(output, AT_LEAST_ONCE)


def test_at_least_once_the_whole_total_comes_out_in_the_end() -> None:
    """Lanes of different partitions say nothing about each other, until all is processed."""
    output = right_output(RECORDS)
    key = output["sums"][0][-1]["sku"]
    place = RECORDS[output["sums"][0][-1]["last_id"]].place
    last_other = max(record.id for record in RECORDS if record.sku == key and record.place != place)
    cents = RECORDS[last_other].quantity * RECORDS[last_other].price_cents
    for row in output["sums"][0]:
        if row["sku"] == key and row["last_id"] > last_other:
            row["orders"] -= 1
            row["revenue_cents"] -= cents
    assert "comes to" in problems_of(output, AT_LEAST_ONCE)


def test_what_somebody_goes_back_behind_must_have_come_out_before() -> None:
    done = frozenset(record.id for record in RECORDS[:20])
    before, after = OracleHistory(frozenset(), right_output(RECORDS[:20])), OracleHistory(done, {})
    assert check_committed(WORKLOAD, RECORDS, [before, after]) == []
    less = right_output(RECORDS[:20])
    lost = less["sums"][0].pop()["last_id"]
    (problem,) = check_committed(WORKLOAD, RECORDS, [OracleHistory(frozenset(), less), after])
    assert problem == f"sums: continued after records that have never come out: [{lost}]"


def released(changed: str, number: int = 20) -> Rows:
    """Rows of release 0, and from that record on of release 1."""
    rows = []
    counts: dict[tuple[int, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row, record in zip(right_output(RECORDS)["sums"][0], RECORDS, strict=True):
        release = int(record.id >= number)
        orders, cents = counts[release, record.sku]
        orders, cents = counts[release, record.sku] = orders + 1, cents + record.quantity * record.price_cents
        own = {"orders": orders, "revenue_cents": cents} if changed == "reset" else {"since": orders}
        rows.append({**row, "release": release, **own})
    return {**right_output(RECORDS), "sums": [rows]}


def check_released(changed: str, output: Rows) -> str:
    return problems_of(output, msgspec.structs.replace(WORKLOAD, changed=changed))


@pytest.mark.parametrize("changed", CHANGES)
def test_what_a_release_resets_or_adds_counts_from_its_first_row_on(changed: str) -> None:
    output = released(changed)
    assert check_released(changed, output) == ""
    assert count_releases([OracleHistory(frozenset(), output)]) == 2
    for row in output["sums"][0]:
        row["release"] = 1
    assert check_released(changed, output), "it has begun again although there was no other release"


@pytest.mark.parametrize("changed", CHANGES)
def test_what_goes_on_although_a_release_resets_or_adds_it_is_seen(changed: str) -> None:
    output = released(changed, 0)
    for number, row in enumerate(output["sums"][0]):
        row["release"] = int(number >= 20)
    assert check_released(changed, output)


def test_other_totals_go_on_when_one_is_added() -> None:
    output = released("reset")
    for row in output["sums"][0]:
        row["since"] = row["orders"]
    assert "where a total of" in check_released("added", output)


# -- dead letters ------------------------------------------------------------------------------------------------------


LETTERED = msgspec.structs.replace(WORKLOAD, topology="letters")
FAILING = [
    InputRecord(TopicPartition("orders", 0), number, "c0", "s0", 1, 100, "paid", bad=Letters.bad.get(number % 7, ""))
    for number in range(20)
]
"""3, 10 and 17 fail in the source, 5, 12 and 19 in a step."""
DONE = frozenset(range(13))


def letters_of(records: list[InputRecord], letters: list[int]) -> Rows:
    """The output of these records, with these letters."""
    return {
        "paid": [[{"id": one.id, "customer": "c0", "total_cents": 100} for one in records if not one.bad]],
        "dead": [
            [
                {"id": number, "place": "orders[0]", "bytes": "original", "key": b"c0", "value": FAILING[number].value}
                for number in letters
            ]
        ],
    }


def check_gone_back(before: list[int], after: list[int]) -> list[str]:
    """Back to DONE, with these letters before and after it."""
    histories = [
        OracleHistory(frozenset(), letters_of(FAILING[:13], before)),
        OracleHistory(DONE, letters_of(FAILING[13:], after)),
    ]
    found = check_committed(LETTERED, FAILING, histories) + check_output(LETTERED, FAILING, histories[1])
    return found + check_output(LETTERED, FAILING, histories[0], complete=False)


def test_letters_that_waited_in_a_checkpoint_come_out_after_going_back_to_it() -> None:
    """That of a source waits, too: for an earlier one of a step, whose bytes are read back."""
    assert check_gone_back([3, 5, 10, 12], [17, 19]) == []
    assert check_gone_back([3], [5, 10, 12, 17, 19]) == []


@pytest.mark.parametrize("lost", [10, 12])
def test_a_letter_that_waited_in_a_checkpoint_and_never_comes_out_is_seen(lost: int) -> None:
    after = [number for number in (10, 12, 17, 19) if number != lost]
    assert check_gone_back([3, 5], after) == [f"dead: continued after records that have never come out: [{lost}]"]


def test_the_end_waits_for_letters_that_waited_in_a_checkpoint() -> None:
    """Whatever came out since, or ever."""
    assert not has_come_out("dead", FAILING, DONE, {17, 19}, {3, 5, 10, 17, 19})
    assert has_come_out("dead", FAILING, DONE, {12, 17, 19}, {3, 5, 10, 12, 17, 19})
    assert not has_come_out("dead", FAILING, DONE, {12, 17}, {3, 5, 10, 12, 17, 19})
    assert has_come_out("paid", FAILING, DONE, {13, 14, 15, 16, 18}, {13, 14, 15, 16, 18})


@pytest.mark.parametrize("late", [3, 5])
def test_letters_that_waited_in_another_slot_than_their_partition_come_when_they_can(late: int) -> None:
    """Those of a source and of a step; what does not come until somebody goes back comes after it."""
    letters = [number for number in (3, 5, 10, 12, 17, 19) if number != late]
    whole = OracleHistory(frozenset(), letters_of(FAILING, [*letters, late]))
    assert check_output(LETTERED, FAILING, whole, moved=True) == []
    (problem,) = check_output(LETTERED, FAILING, whole)
    assert "comes after" in problem
    part = OracleHistory(frozenset(), letters_of(FAILING, letters))
    assert check_output(LETTERED, FAILING, part, complete=False, moved=True) == []
    (problem,) = check_output(LETTERED, FAILING, part, complete=False)
    assert "left out" in problem
