"""What every operator of a subtask does is counted: rows by real operators, time by whose it is."""

from __future__ import annotations

import pytest

from tests.support.clocks import HandClock
from tests.task.fakes import FakeSource
from tests.task.rig import Rig, RigSlot
from tests.task.topologies import KEYED, edge, plan_of, sink_node, source_node, vertex
from tidegate.datatypes import BIGINT
from tidegate.expressions.expression import AggregateCall, ColumnReference
from tidegate.expressions.parse import parse_expression
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.kinds.aggregate import AggregateOperator
from tidegate.operators.kinds.filter import FilterOperator
from tidegate.operators.spec import Rest, Slot
from tidegate.plan.graph import Node
from tidegate.state.backends import choose_backend
from tidegate.task.meter import OperatorMeter
from tidegate.task.report import OperatorCounts

KEEP = FilterOperator(OperatorName("keep"), parse_expression("10 / n > 2", dict(KEYED)), KEYED, BadRecordPolicy.SKIP)
SUM = AggregateCall("sum", ColumnReference("n", BIGINT), BIGINT)
TOTAL = AggregateOperator(OperatorName("total"), ("k",), (("n", SUM),), "latest", KEYED, BadRecordPolicy.FAIL)
SLOT = Slot(128, choose_backend("memory", retained=1))


@pytest.fixture
def rig() -> Rig:
    """read -> keep -> (by key) -> total -> write, in one slot."""
    plan = plan_of(
        1,
        [
            vertex(source_node("read", children=(1,)), Node(KEEP, edges=(0,))),
            vertex(Node(TOTAL, children=(1,)), sink_node("write")),
        ],
        [edge(0, "read", "total", "k")],
    )
    return Rig(
        plan,
        batches=lambda name, slot: [[(1, 1), (1, 9), (2, 0), (2, 2)], [(1, 3), (1, 8)], [(3, 7)]],
        operators={
            "keep": lambda: KEEP.open(SLOT),
            "total": lambda: TOTAL.open(SLOT),
        },
    )


def counts(slot: RigSlot) -> dict[str, OperatorCounts]:
    return {
        node.operator.name: one
        for task in slot.loop.tasks
        for node, one in zip(task.vertex.nodes, task.chain.meter.counts, strict=True)
    }


def test_rows_in_out_filtered_and_failed_of_every_operator(rig: Rig) -> None:
    """9, 8 and 7 are filtered, 10 / 0 fails."""
    rig.settle()
    found = {name: (one.rows_in, one.rows_out, one.filtered, one.failed) for name, one in counts(rig.slots[0]).items()}
    assert found == {"read": (0, 7, 0, 0), "keep": (7, 3, 3, 1), "total": (3, 3, 0, 0), "write": (3, 3, 0, 0)}
    assert [count for _, count in rig.slots[0].bad] == [1]
    assert rig.slots[0].sinks["write"].open == [(1, 1), (2, 2), (1, 4)]


def test_rows_that_a_sink_refuses_have_failed_and_do_not_leave() -> None:
    meter = OperatorMeter([Rest.WRITTEN], HandClock())
    meter.failed(0, 2)
    meter.took(0, 5)
    meter.failed(0, 1)
    meter.took(0, 1)
    assert meter.counts == [OperatorCounts(rows_in=6, rows_out=3, failed=3)]


def test_rows_of_another_input_are_not_filtered() -> None:
    """They change what is made of those of the first one, as the rows of a table do."""
    meter = OperatorMeter([Rest.FILTERED], lambda: 0.0)
    meter.failed(0, 1, port=1)
    meter.took(0, 10, port=1)
    meter.gave(0, 3)
    meter.took(0, 5)
    (found,) = meter.counts
    assert (found.rows_in, found.rows_out, found.filtered, found.failed) == (15, 3, 2, 1)


def test_rows_that_an_aggregate_folds_are_not_filtered(rig: Rig) -> None:
    source = rig.slots[0].sources["read"]
    source.batches.clear()
    source.batches.append([(1, 1), (1, 1), (1, 1)])
    rig.settle()
    found = counts(rig.slots[0])["total"]
    assert (found.rows_in, found.rows_out, found.filtered) == (3, 1, 0)


def test_time_belongs_to_the_operator_that_takes_it_and_to_no_other(rig: Rig) -> None:
    slot = rig.slots[0]
    spent = {"read": 2, "keep": 30, "total": 500, "write": 7000}
    source, sink = slot.sources["read"], slot.sinks["write"]
    for owner, method, name in (
        (source, "poll", "read"),
        (slot.operators["keep"], "process", "keep"),
        (slot.operators["total"], "process", "total"),
        (sink, "process", "write"),
    ):
        slow(rig, owner, method, spent[name])
    source.batches.clear()
    source.batches.append([(1, 1)])
    rig.settle()
    assert {name: one.busy_ms for name, one in counts(slot).items()} == spent


def test_a_sink_that_moves_rows_to_its_client_is_busy_and_one_that_waits_is_not(rig: Rig) -> None:
    sink = rig.slots[0].sinks["write"]
    moved = [True, False]
    slow(rig, sink, "turn", 5, answers=moved)
    rig.slots[0].loop.turn()
    rig.slots[0].loop.turn()
    assert moved == []
    assert counts(rig.slots[0])["write"].busy_ms == 5


def slow(rig: Rig, owner: object, method: str, ms: int, answers: list[bool] | None = None) -> None:
    """Each call of the method takes so long before it does anything; a source's only where it has something."""
    call = getattr(owner, method)

    def slowly(*arguments: object) -> object:
        rig.clock.ms += 0 if isinstance(owner, FakeSource) and not owner.batches else ms
        return call(*arguments) if answers is None else answers.pop(0)

    setattr(owner, method, slowly)


def test_a_piece_of_time_belongs_to_whose_work_ends_it_and_the_time_between_two_calls_to_nobody() -> None:
    clock = HandClock()
    meter = OperatorMeter([Rest.FOLDED, Rest.FOLDED], clock)
    for _ in range(2):
        clock.now += 1000
        meter.begin()
        clock.now += 10
        meter.gave(0, 4)
        clock.now += 200
        meter.took(1, 4)
        clock.now += 1
        meter.took(0, 5)
    assert meter.counts == [OperatorCounts(rows_in=10, rows_out=8, busy_ms=22), OperatorCounts(rows_in=8, busy_ms=400)]
