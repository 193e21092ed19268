"""Taps: rows of an output are copied up to the limits, and nothing about the rows themselves changes."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tests.task.fakes import Row, frame_of
from tests.task.rig import Rig
from tests.task.topologies import parallel_plan, shuffle_plan
from tidegate.datatypes import BIGINT
from tidegate.plan.graph import Plan
from tidegate.plan.taps import find_tap_points
from tidegate.task.messages import EndTap, RowsTapped, TapRows
from tidegate.task.tap import RowTap

ROWS: list[list[Row]] = [[(1, 1), (2, 2), (3, 3)], [(1, 4)], [(2, 5), (3, 6)]]


def tapped(rig: Rig, tap: int = 1) -> list[list[dict[str, Any]]]:
    """The rows of a tap by slot."""
    return [
        [json.loads(row) for one in slot.sent if isinstance(one, RowsTapped) and one.tap == tap for row in one.rows]
        for slot in rig.slots
    ]


def begin(rig: Rig, plan: Plan, step: str, tap: int = 1, rows_max: int = 100, bytes_max: int = 100_000) -> None:
    order = TapRows(tap, find_tap_points(plan)[step], rows_max, bytes_max)
    for slot in rig.slots:
        slot.loop.on_tap(order)


def rows_of(*rows: Row) -> list[dict[str, int]]:
    return [{"k": key, "n": number} for key, number in rows]


@pytest.mark.parametrize("step", ["read", "pass", "total", "write"])
def test_sources_chained_steps_and_sinks_can_be_tapped(step: str) -> None:
    plan = parallel_plan(2)
    rig = Rig(plan, batches=lambda _, slot: ROWS if slot else [])
    begin(rig, plan, step)
    rig.settle()
    assert tapped(rig) == [[], rows_of(*(row for batch in ROWS for row in batch))]


def test_rows_are_copied_where_they_leave_behind_an_exchange() -> None:
    plan = shuffle_plan(2)
    rig = Rig(plan, batches=lambda _, slot: [] if slot else [[(key, key) for key in range(20)]])
    begin(rig, plan, "total")
    begin(rig, plan, "read", tap=2)
    rig.settle()
    assert tapped(rig, 2) == [rows_of(*((key, key) for key in range(20))), []]
    found = tapped(rig)
    assert all(found)
    assert sorted(row["k"] for rows in found for row in rows) == [*range(20)]


def test_a_slot_copies_as_many_rows_as_it_was_asked_for() -> None:
    plan = parallel_plan(1)
    rig = Rig(plan, batches=lambda _, __: ROWS)
    begin(rig, plan, "pass", rows_max=4)
    rig.settle()
    assert tapped(rig) == [rows_of((1, 1), (2, 2), (3, 3), (1, 4))]
    assert not any(one.full for one in rig.slots[0].sent if isinstance(one, RowsTapped))


def test_a_slot_copies_no_row_beyond_the_limit_of_bytes_and_says_so() -> None:
    plan = parallel_plan(1)
    rig = Rig(plan, batches=lambda _, __: ROWS)
    size = len(b'{"k":1,"n":1}')
    begin(rig, plan, "pass", bytes_max=4 * size + 5)
    rig.settle()
    assert tapped(rig) == [rows_of((1, 1), (2, 2), (3, 3), (1, 4))]
    assert [one.full for one in rig.slots[0].sent if isinstance(one, RowsTapped)][-1]


def test_a_tap_that_was_ended_copies_nothing_more_and_another_one_goes_on() -> None:
    plan = parallel_plan(1)
    rig = Rig(plan, batches=lambda _, __: ROWS)
    begin(rig, plan, "read")
    begin(rig, plan, "read", tap=2)
    rig.slots[0].loop.turn()
    rig.slots[0].loop.on_tap_end(EndTap(1))
    rig.settle()
    assert tapped(rig, 1) == [rows_of(*ROWS[0])]
    assert tapped(rig, 2) == [rows_of(*(row for batch in ROWS for row in batch))]
    rig.slots[0].loop.on_tap_end(EndTap(2))
    assert all(out._taps is None for task in rig.slots[0].loop.tasks for out in task.chain._tree.outs)


def test_what_reaches_a_checkpoint_is_the_same_with_a_tap() -> None:
    found = []
    for steps in ([], ["read", "pass", "total", "write"]):
        plan = parallel_plan(2)
        rig = Rig(plan, batches=lambda _, slot: [[(key + slot, key) for key in range(5)]])
        for number, step in enumerate(steps):
            begin(rig, plan, step, tap=number, rows_max=3)
        rig.settle()
        rig.trigger(1)
        rig.settle()
        assert rig.is_complete(1)
        found.append((rig.rows_before(1), rig.rows_in_state(1), rig.rows_in_transactions(1)))
    assert found[0] == found[1]


def test_an_error_of_a_tap_ends_the_tap_only(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[RowsTapped] = []
    tap = RowTap(TapRows(7, (), 10, 1000), sent.append)
    with caplog.at_level(logging.ERROR):
        tap.take((("gone", BIGINT),), frame_of([(1, 1)]))
        tap.take((("k", BIGINT),), frame_of([(1, 1)]))
    assert sent == [RowsTapped(7, (), full=True)]
    assert "the pipeline is not affected" in caplog.text
