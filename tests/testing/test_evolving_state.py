"""A pipeline continues from a checkpoint with another definition: aggregates and columns are added, renamed, given up.

Whatever both definitions have is what the old one would have given; what is new counts from the change on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.testing.pipelines import HEAD, load
from tidegate.ids import OperatorName, TopicPartition
from tidegate.state.errors import StateUnreadable
from tidegate.testing.feed import Log
from tidegate.testing.harness import Harness, HarnessSnapshot
from tidegate.testing.parts import VirtualClock

BEGINS_MS = 1_767_225_600_000
PART = TopicPartition("orders", 0)
SOURCE = """\
parallelism: 2
sources:
  orders:
    topic: orders
    schema: {id: bigint, customer: string, amount: double, price: "decimal(10,2)", kind: int, at: timestamp}
    event_time: at
    watermark: {delay: 10m}
"""
MANY = (
    "count(*)", "sum(amount)", "sum(price)", "sum(kind)", "avg(price)", "avg(kind)", "min(amount)", "max(price)",
    "first(id)", "last(id)", "min_by(id, amount)", "max_by(id, price)", "stddev_samp(amount)", "var_pop(kind)",
    "count(distinct kind)", "collect_set(kind)", "collect_list(id)", "approx_count_distinct(id)",
    "percentile_approx(amount, 0.5)", "bool_and(amount > 50)", "bool_or(amount > 50)",
    "count(*) filter (where kind > 1)", "last(amount, true)", "sum(price) filter (where kind = 2)",
    "collect_list(id) filter (where kind = 3)",
)  # fmt: skip
NEW = ", ".join(f'x{index}: "{text}"' for index, text in enumerate(MANY))
RUNNING = ", ".join(f'x{index}: "{text}"' for index, text in enumerate(MANY) if text.split("(")[0] in {"count", "sum",
    "avg", "min", "max", "last", "bool_and", "bool_or"} and "distinct" not in text)  # fmt: skip


def record(number: int) -> bytes:
    minute, second = divmod(7 * number % 240, 60)
    value = {
        "id": number,
        "customer": "abc"[number % 3],
        "amount": None if number % 5 == 4 else number * 1.1,
        "price": f"{number}.25",
        "kind": number % 4,
        "at": f"2026-01-01T00:{minute:02}:{second:02}Z",
    }
    return json.dumps(value).encode()


def play(step: str, numbers: Sequence[int], before: HarnessSnapshot | None = None, log: Log | None = None) -> Any:
    """What comes out of the step, and a checkpoint before event time moves on."""
    _, plan = load("", HEAD + SOURCE + f"steps:\n  - {step}\nsinks:\n  out: {{from: it, topic: out, key: customer}}\n")
    own = log or Log({PART: 1000})
    harness = Harness(plan, own, VirtualClock(BEGINS_MS), _fail, before)
    try:
        for number in numbers:
            own.append(PART, None, record(number), BEGINS_MS)
        harness.settle()
        rows = [json.loads(one.value or b"null") for one in harness.written().get(OperatorName("out"), [])]
        snapshot = harness.snapshot()
        harness.watermark(OperatorName("orders"), BEGINS_MS + 7_200_000)
        harness.settle()
        closed = [json.loads(one.value or b"null") for one in harness.written()[OperatorName("out")]]
        return rows, snapshot, closed, own
    finally:
        harness.close()


def _fail(line: str) -> None:
    raise AssertionError(line)


def by_key(rows: Sequence[dict[str, Any]], *extra: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The last row of each key."""
    keys = ("customer", "window_start", *extra)
    return {tuple(row.get(key) for key in keys): row for row in rows}


def without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


WINDOWS = ("window: {tumbling: 1m}", "window: {sliding: 2m, every: 1m}", "window: {session: 20s}")
FIRST, SECOND = range(40), range(40, 80)


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS)
def test_totals_of_windows_are_added_renamed_and_given_up(window: str) -> None:
    head = f"name: it, from: orders, key: customer, {window}"
    old = f"{{{head}, aggregate: {{net: sum(amount), n: count(*), gone: max(id)}}}}"
    words = "was: {columns: {total: net}}, state: {keep: two more, drop: [gone]}"
    new = f"{{{head}, {words}, aggregate: {{{NEW}, n: count(*), total: sum(amount)}}}}"
    _, snapshot, _, log = play(old, FIRST)
    _, _, evolved, _ = play(new, SECOND, snapshot, log)
    whole = by_key(play(new, [*FIRST, *SECOND])[2])
    if "session" not in window:
        begun = by_key(play(new, SECOND)[2])
    else:
        begun = {}
    found = by_key(evolved)
    assert found.keys() == whole.keys()
    names = [f"x{index}" for index in range(len(MANY))]
    for key, row in found.items():
        assert without(row, *names) == without(whole[key], *names)
        if key in begun:
            assert {name: row[name] for name in names} == {name: begun[key][name] for name in names}


@pytest.mark.parametrize("name", ["start", "count", "rows"])
def test_totals_may_be_called_as_what_sessions_are_kept_with(name: str) -> None:
    head = "name: it, from: orders, key: customer, window: {session: 20s}"
    words = f"was: {{columns: {{first: {name}}}}}, state: {{keep: end, drop: [time]}}"
    old = f"{{{head}, aggregate: {{{name}: min(id), time: max(id)}}}}"
    new = f"{{{head}, {words}, aggregate: {{first: min(id), end: count(*)}}}}"
    _, snapshot, _, log = play(old, FIRST)
    found, whole = by_key(play(new, SECOND, snapshot, log)[2]), by_key(play(new, [*FIRST, *SECOND])[2])
    assert {key: row["first"] for key, row in found.items()} == {key: row["first"] for key, row in whole.items()}


@pytest.mark.slow
def test_running_totals_are_added_renamed_and_given_up() -> None:
    head = "name: it, from: orders, key: customer"
    old = f"{{{head}, aggregate: {{net: sum(amount), n: count(*), gone: max(id)}}}}"
    words = "was: {columns: {total: net}}, state: {keep: two more, drop: [gone]}"
    new = (
        f"{{name: it, from: orders, key: customer, {words}, aggregate: {{{RUNNING}, n: count(*), total: sum(amount)}}}}"
    )
    _, snapshot, _, log = play(old, FIRST)
    evolved = by_key(play(new, SECOND, snapshot, log)[2])
    whole, begun = by_key(play(new, [*FIRST, *SECOND])[2]), by_key(play(new, SECOND)[2])
    names = [name for name in next(iter(begun.values())) if name.startswith("x")]
    assert evolved.keys() == whole.keys()
    for key, row in evolved.items():
        assert without(row, *names) == without(whole[key], *names)
        assert {name: row[name] for name in names} == {name: begun[key][name] for name in names}


@pytest.mark.slow
def test_rows_that_are_kept_get_columns_lose_others_and_stay_in_their_order() -> None:
    head = "{name: it, from: narrow, key: customer, keep: {by: amount, n: 3}"
    narrow = "{name: narrow, from: orders, select: {COLUMNS, customer: customer, amount: amount}}"
    old = narrow.replace("COLUMNS", "id: id, kind: kind") + f"\n  - {head}}}"
    words = 'was: {columns: {number: id}}, state: {keep: prices, drop: [kind], defaults: {price: "0.00"}}'
    new = narrow.replace("COLUMNS", "price: price, number: id") + f"\n  - {head}, {words}}}"
    _, snapshot, _, log = play(old, FIRST)
    evolved = by_key(play(new, [2, 5], snapshot, log)[2], "rank")
    whole = by_key(play(new, [*FIRST, 2, 5])[2], "rank")
    assert {key: row["number"] for key, row in evolved.items()} == {
        key: row["number"] for key, row in whole.items() if key in evolved
    }


def test_a_first_value_cannot_begin_later() -> None:
    old = "{name: it, from: orders, key: customer, aggregate: {n: count(*)}}"
    new = "{name: it, from: orders, key: customer, state: {keep: x}, aggregate: {n: count(*), one: first(id)}}"
    _, snapshot, _, log = play(old, [1])
    with pytest.raises(StateUnreadable, match="one is new and cannot begin where there are entries already"):
        play(new, [2], snapshot, log)


def test_a_first_value_of_all_rows_does_not_become_that_of_some() -> None:
    old = "{name: it, from: orders, key: customer, aggregate: {one: first(amount)}}"
    new = "{name: it, from: orders, key: customer, state: {keep: x}, aggregate: {one: first(amount) ignore nulls}}"
    _, snapshot, _, log = play(old, [1])
    with pytest.raises(StateUnreadable, match=r"one\.seen"):
        play(new, [2], snapshot, log)


def test_a_sum_in_other_units_is_refused() -> None:
    calls = "aggregate: {net: 'sum(cast(price as decimal(12,SCALE)))'}"
    step = f"{{name: it, from: orders, key: customer, window: {{tumbling: 1m}}, {calls}}}"
    _, snapshot, _, log = play(step.replace("SCALE", "2"), [1])
    with pytest.raises(StateUnreadable, match="net was kept as units of scale 2 and is as units of scale 4"):
        play(step.replace("SCALE", "4"), [2], snapshot, log)
