"""What a start says when the file of a table and its lookup has changed, and what comes out after it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.testing.changed_pipeline import Life
from tidegate.coordinator.recovery import RestoreRefused

FILE = """
sources:
  orders: {topic: orders, schema: {id: bigint, k: string, other: string}}
  rows: {topic: rows, schema: {k: string, v: bigint, w: string}}
steps:
  - {name: tab, from: rows, table: {key: k}}
  - {name: found, from: orders, lookup: tab, on: {k: k}, missing: MISSING, add: {v: tab.v}}
sinks:
  out: {from: found, topic: out}
  all: {from: tab, topic: all, key: k, on_null: {column: _deleted}}
"""
PLAIN = FILE.replace("MISSING", '"null"')
WAITING = FILE.replace("MISSING", "wait 1h")
ORDER = {"id": 1, "k": "a", "other": "o"}
OUT = {**ORDER, "v": 1}


@cache
def begun(file: str) -> Life:
    life = Life(file)
    life.produce("rows", {"k": "a", "v": 1, "w": "x"})
    if file == WAITING:
        life.produce("orders", {"id": 0, "k": "b", "other": "o"})
    return life.checkpoint()


def outputs(file: str, old: str, new: str) -> tuple[list[Any], list[Any]]:
    assert old in file
    life = Life(file.replace(old, new), begun(file))
    life.produce("rows", {"k": "b", "v": 2, "w": "y"})
    life.produce("orders", ORDER)
    life.checkpoint()
    return life.output("out"), life.output("all")


@pytest.mark.parametrize(
    ("old", "new", "out"),
    [
        ("from: orders, lookup", "from: few, lookup", OUT),
        ("tab.v}", "tab.v + 1}", {**ORDER, "v": 2}),
        ('"null"', "drop", OUT),
        ("on: {k: k}", "on: {other: k}", {**ORDER, "v": None}),
        ("tab.v}", "tab.v, w: tab.w}", {**OUT, "w": None}),
        ("tab.v}", "tab.v, w: tab.w}, state: {defaults: {w: none}}", {**OUT, "w": "none"}),
        ("tab.v}", "tab.w}, state: {drop: [v]}", {**ORDER, "v": None}),
        ("v: bigint", "v: decimal(20,0)", OUT),
        ("tab.v}", "tab.v}, begin: immediately", OUT),
        ("{key: k}}", "{key: k, ttl: 1h}}", OUT),
    ],
)
def test_state_of_a_lookup_goes_on(old: str, new: str, out: dict[str, Any]) -> None:
    file = PLAIN.replace("steps:\n", "steps:\n  - {name: few, from: orders, where: id > 0}\n")
    assert outputs(file, old, new.replace("decimal(20,0)", '"decimal(20,0)"'))[0] == [out]


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        (PLAIN, "tab.v}", "tab.w}", "step 'found' no longer has `v`, which its state contains"),
        (PLAIN, "from: rows, table", "from: some, table", "what is kept of rows, `v` of rows"),
        (PLAIN, "key: k}}", "key: w}}", "its key: it was k and is w"),
        (PLAIN, ", w: string}", "}", "step 'tab' no longer has `w`, which its state contains"),
        (WAITING, "wait 1h", "drop", "state waiting: the step has no such state now"),
        (WAITING, "on: {k: k}", "on: {other: k}", "what waits of orders"),
    ],
)
def test_a_change_that_state_does_not_fit_is_refused(file: str, old: str, new: str, told: str) -> None:
    changed = file.replace("steps:\n", "steps:\n  - {name: some, from: rows, where: v > 0}\n").replace(old, new)
    changed = changed.replace("on: {k: k}", "on: {k: w}") if "key: w" in new else changed
    with pytest.raises(RestoreRefused) as refused:
        Life(changed, begun(file))
    assert told in str(refused.value)


def test_waiting_rows_go_on_with_another_time_and_with_more_columns() -> None:
    more = WAITING.replace("other: string", "other: string, more: int").replace("wait 1h", "wait 1m")
    life = Life(more, begun(WAITING))
    life.produce("rows", {"k": "b", "v": 2, "w": "y"})
    life.checkpoint()
    assert life.output("out") == [{"id": 0, "k": "b", "other": "o", "more": None, "v": 2}]
    assert life.output("all") == [{"k": "b", "v": 2, "w": "y"}]


def test_a_ttl_may_be_removed_again() -> None:
    with_ttl = Life(PLAIN.replace("{key: k}}", "{key: k, ttl: 1h}}"))
    with_ttl.produce("rows", {"k": "a", "v": 1, "w": "x"})
    life = Life(PLAIN, with_ttl.checkpoint())
    life.produce("orders", ORDER)
    assert life.checkpoint().output("out") == [OUT]


def test_a_new_column_of_a_table_is_null_until_its_row_is_written_again() -> None:
    life = Life(PLAIN.replace("w: string}", "w: string, z: int}"), begun(PLAIN))
    life.produce("rows", {"k": "a", "v": 1, "w": "x"}, {"k": "a", "v": 1, "w": "x", "z": 5})
    life.checkpoint()
    assert life.output("all") == [{"k": "a", "v": 1, "w": "x", "z": 5}]


def test_a_table_by_another_name_is_no_change_for_the_state_behind_its_lookup() -> None:
    totals = """\
  - {name: totals, from: found, key: k, aggregate: {n: count(*), s: sum(v)}}
sinks:
  sums: {from: totals, topic: sums}
"""
    file = PLAIN.replace("sinks:\n", totals)
    life = Life(file)
    life.produce("rows", {"k": "a", "v": 1, "w": "x"})
    life.produce("orders", ORDER)
    renamed = (
        file.replace(": tab", ": rates").replace("tab.v", "rates.v").replace("rates, from", "rates, was: tab, from")
    )
    life = Life(renamed, life.checkpoint())
    life.produce("orders", ORDER)
    assert life.checkpoint().output("sums") == [{"k": "a", "n": 2, "s": 2}]
