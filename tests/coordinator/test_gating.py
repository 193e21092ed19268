"""Which source subtasks are on hold: gates until an input has caught up, and leads of event time."""

from __future__ import annotations

from tests.task.topologies import edge as edge_of
from tests.task.topologies import filter_node, plan_of, source_node, totals_node, vertex
from tidegate.coordinator.gating import GateHold, Gating, LeadHold, SourceProgress
from tidegate.ids import OperatorName, SlotIndex, VertexId
from tidegate.operators.runtime import END_OF_TIME
from tidegate.operators.spec import InputOrder
from tidegate.plan.gates import derive_gates, derive_turns, find_deadlock
from tidegate.plan.graph import Edge, Plan

ORDERS, CUSTOMERS, REGIONS = OperatorName("orders"), OperatorName("customers"), OperatorName("regions")
JOIN = VertexId("join")


def edge(
    index: int, upstream: str, downstream: str, port: int, *, gates: bool = False, ahead_ms: int | None = None
) -> Edge:
    one = edge_of(index, upstream, downstream, "k")
    return Edge(index, one.upstream, one.downstream, one.keys, one.columns, port, order=InputOrder(gates, ahead_ms))


def join_of(*, gates: bool = False, ahead_ms: int | None = None, parallelism: int = 2) -> Plan:
    """orders -> join <- latest <- customers: the gate is at the second port, the lead on both."""
    return plan_of(
        parallelism,
        [
            vertex(source_node("orders", edges=(0,))),
            vertex(source_node("customers", edges=(1,))),
            vertex(totals_node("latest", edges=(2,))),
            vertex(totals_node("join")),
        ],
        [
            edge(0, "orders", "join", 0, ahead_ms=ahead_ms),
            edge_of(1, "customers", "latest", "k"),
            edge(2, "latest", "join", 1, gates=gates, ahead_ms=ahead_ms),
        ],
    )


def slots(gating: Gating, parallelism: int = 2) -> list[set[OperatorName]]:
    return [set(gating.holds(SlotIndex(slot))) for slot in range(parallelism)]


def at(watermark_ms: int | None, *, idle: bool = False) -> SourceProgress:
    return SourceProgress(watermark_ms, idle)


# -- gates -------------------------------------------------------------------------------------------------------------


def test_the_tables_of_joins_in_a_row_are_read_at_once() -> None:
    """orders -> join <- customers, join -> second <- regions: only the orders wait, for both tables."""
    plan = plan_of(
        1,
        [
            vertex(source_node("orders", edges=(0,))),
            vertex(source_node("customers", edges=(1,))),
            vertex(source_node("regions", edges=(3,))),
            vertex(totals_node("join", edges=(2,))),
            vertex(totals_node("second")),
        ],
        [
            edge(0, "orders", "join", 0),
            edge(1, "customers", "join", 1, gates=True),
            edge(2, "join", "second", 0),
            edge(3, "regions", "second", 1, gates=True),
        ],
    )
    assert [(str(gate.vertex), set(gate.awaited), set(gate.held)) for gate in derive_gates(plan)] == [
        ("join", {CUSTOMERS}, {ORDERS}),
        ("second", {REGIONS}, {ORDERS}),
    ]


def test_the_sources_of_the_other_inputs_are_on_hold_until_every_subtask_has_reported() -> None:
    gating = Gating(join_of(gates=True))
    assert slots(gating) == [{ORDERS}, {ORDERS}]
    assert gating.on_caught_up(JOIN, 1, SlotIndex(1)) == ()
    assert gating.on_caught_up(JOIN, 1, SlotIndex(1)) == (), "a repetition counts once"
    assert gating.holds(SlotIndex(0)) == {ORDERS: GateHold(JOIN, "latest", caught_up=1, subtasks=2)}
    assert slots(gating) == [{ORDERS}, {ORDERS}]
    (gate,) = gating.on_caught_up(JOIN, 1, SlotIndex(0))
    assert (gate.alias, set(gate.held)) == ("latest", {ORDERS})
    assert slots(gating) == [set(), set()]
    assert not gating, "nothing is left to decide"


def test_a_report_of_another_input_or_vertex_opens_nothing() -> None:
    gating = Gating(join_of(gates=True, parallelism=1))
    gating.on_caught_up(JOIN, 0, SlotIndex(0))
    gating.on_caught_up(VertexId("latest"), 1, SlotIndex(0))
    assert set(gating.holds(SlotIndex(0))) == {ORDERS}


def test_an_open_gate_stays_open_whatever_comes_later() -> None:
    gating = Gating(join_of(gates=True, parallelism=1))
    gating.on_caught_up(JOIN, 1, SlotIndex(0))
    gating.on_progress(SlotIndex(0), {CUSTOMERS: at(5), ORDERS: at(5_000)})
    assert set(gating.holds(SlotIndex(0))) == set()


def test_a_new_attempt_has_gates_of_its_own_that_open_again() -> None:
    """A gate that is lost at a failover, or waits for a report from before it, blocks for ever (amoro#304)."""
    plan = join_of(gates=True, parallelism=1)
    first = Gating(plan)
    first.on_caught_up(JOIN, 1, SlotIndex(0))
    second = Gating(plan)
    assert set(second.holds(SlotIndex(0))) == {ORDERS}
    second.on_caught_up(JOIN, 1, SlotIndex(0))
    assert set(second.holds(SlotIndex(0))) == set()


def test_a_plan_without_gates_and_leads_decides_nothing() -> None:
    gating = Gating(join_of())
    assert not gating
    assert slots(gating) == [set(), set()]


def test_a_source_on_both_sides_is_not_held_since_it_would_wait_for_itself() -> None:
    plan = plan_of(
        1,
        [vertex(source_node("orders", edges=(0, 1))), vertex(totals_node("join"))],
        [edge(0, "orders", "join", 0), edge(1, "orders", "join", 1, gates=True)],
    )
    assert set(Gating(plan).holds(SlotIndex(0))) == set()


def two_joins(*, crossed: bool) -> Plan:
    """customers first for `one`; for `two` orders first, or regions."""
    last = "orders" if crossed else "regions"
    sources = {"orders": (0, 3) if crossed else (0,), "customers": (1, 2), "regions": () if crossed else (3,)}
    return plan_of(
        1,
        [
            *(vertex(source_node(name, edges=edges)) for name, edges in sources.items()),
            vertex(totals_node("one")),
            vertex(totals_node("two")),
        ],
        [
            edge(0, "orders", "one", 0),
            edge(1, "customers", "one", 1, gates=True),
            edge(2, "customers", "two", 0),
            edge(3, last, "two", 1, gates=True),
        ],
    )


def test_gates_open_one_after_the_other() -> None:
    gating = Gating(two_joins(crossed=False))
    assert set(gating.holds(SlotIndex(0))) == {ORDERS, CUSTOMERS}
    gating.on_caught_up(VertexId("two"), 1, SlotIndex(0))
    assert set(gating.holds(SlotIndex(0))) == {ORDERS}
    gating.on_caught_up(VertexId("one"), 1, SlotIndex(0))
    assert set(gating.holds(SlotIndex(0))) == set()


def test_a_gate_also_waits_for_sources_that_feed_both_sides() -> None:
    """`one` waits for regions, which feed its other input as well, and which `two` holds until orders are there."""
    plan = plan_of(
        1,
        [
            vertex(source_node("orders", edges=(0, 4))),
            vertex(source_node("customers", edges=(1,))),
            vertex(source_node("regions", edges=(2, 3, 5))),
            vertex(totals_node("one")),
            vertex(totals_node("two")),
        ],
        [
            edge(0, "orders", "one", 0),
            edge(1, "customers", "one", 1, gates=True),
            edge(2, "regions", "one", 0),
            edge(3, "regions", "one", 1, gates=True),
            edge(4, "orders", "two", 1, gates=True),
            edge(5, "regions", "two", 0),
        ],
    )
    assert [gate.vertex for gate in find_deadlock(derive_gates(plan))] == ["one", "two"]


def test_sources_behind_gates_begin_in_turns() -> None:
    assert derive_turns(two_joins(crossed=False)) == {CUSTOMERS: 1, ORDERS: 2}
    assert derive_turns(join_of()) == {}


def test_gates_that_wait_for_each_other_are_found() -> None:
    assert [gate.vertex for gate in find_deadlock(derive_gates(two_joins(crossed=True)))] == ["one", "two"]
    assert find_deadlock(derive_gates(two_joins(crossed=False))) == ()


# -- leads -------------------------------------------------------------------------------------------------------------


def leading(first: SourceProgress, second: SourceProgress, **customers: SourceProgress) -> list[set[OperatorName]]:
    """Two slots with a subtask of orders each; of customers one in slot 0 and maybe another one in slot 1."""
    gating = Gating(join_of(ahead_ms=100))
    gating.on_progress(SlotIndex(0), {ORDERS: first, **({CUSTOMERS: customers["a"]} if "a" in customers else {})})
    gating.on_progress(SlotIndex(1), {ORDERS: second, **({CUSTOMERS: customers["b"]} if "b" in customers else {})})
    return slots(gating)


def test_a_subtask_that_is_further_ahead_than_allowed_is_on_hold_and_another_one_of_its_source_is_not() -> None:
    assert leading(at(150), at(151), a=at(50), b=at(90)) == [set(), {ORDERS}]


def test_each_side_is_compared_with_the_other_and_the_last_one_is_never_on_hold() -> None:
    assert leading(at(0), at(500), a=at(500), b=at(30)) == [{CUSTOMERS}, {ORDERS}]


def test_it_reads_on_when_the_other_side_has_come_after_it() -> None:
    gating = Gating(join_of(ahead_ms=100, parallelism=1))
    held = []
    for watermark_ms in (0, 399, 400):
        gating.on_progress(SlotIndex(0), {ORDERS: at(500), CUSTOMERS: at(watermark_ms)})
        held.append(set(gating.holds(SlotIndex(0))))
    assert held == [{ORDERS}, {ORDERS}, set()]


def test_nobody_waits_for_a_side_that_is_idle() -> None:
    """flink#18753."""
    assert leading(at(500), at(500), a=at(0, idle=True), b=at(0, idle=True)) == [set(), set()]
    assert leading(at(500), at(500), a=at(0, idle=True), b=at(10)) == [{ORDERS}, {ORDERS}]


def test_nobody_waits_for_a_subtask_without_partitions_which_is_idle() -> None:
    """flink#22847: its lowest watermark held everything back for ever."""
    assert leading(at(500), at(500), a=at(None, idle=True), b=at(None, idle=True)) == [set(), set()]
    assert leading(at(500), at(None, idle=True), a=at(None, idle=True), b=at(30)) == [{ORDERS}, set()]


def test_a_subtask_without_a_watermark_is_waited_for_and_is_never_on_hold() -> None:
    """Its topic may not be readable yet, and the other one would run away."""
    assert leading(at(500), at(None), a=at(None), b=at(490)) == [{ORDERS}, {CUSTOMERS}]
    assert leading(at(None), at(None), a=at(None), b=at(None)) == [set(), set()]


def test_nobody_waits_for_a_subtask_that_has_read_everything_and_it_does_not_keep_others_from_going_on() -> None:
    """flink#26453: a source without more to read was not considered any more, nor those that waited for it."""
    assert leading(at(500), at(90), a=at(END_OF_TIME), b=at(END_OF_TIME)) == [set(), set()]
    assert leading(at(500), at(90), a=at(END_OF_TIME), b=at(0)) == [{ORDERS}, set()]


def test_nobody_waits_for_a_subtask_behind_a_gate() -> None:
    """Else the input that has to catch up would wait for the one that waits for it."""
    gating = Gating(join_of(gates=True, ahead_ms=100, parallelism=1))
    gating.on_progress(SlotIndex(0), {ORDERS: at(0), CUSTOMERS: at(5_000)})
    assert set(gating.holds(SlotIndex(0))) == {ORDERS}
    gating.on_caught_up(JOIN, 1, SlotIndex(0))
    assert set(gating.holds(SlotIndex(0))) == {CUSTOMERS}


def test_a_lead_looks_through_the_steps_between() -> None:
    plan = plan_of(
        1,
        [
            vertex(source_node("orders", children=(1,)), filter_node("paid", edges=(0,))),
            vertex(source_node("customers", edges=(1,))),
            vertex(source_node("regions", edges=(2,))),
            vertex(totals_node("both", edges=(3,))),
            vertex(totals_node("join")),
        ],
        [
            edge(0, "orders", "both", 0),
            edge(1, "customers", "both", 0),
            edge(2, "regions", "join", 0, ahead_ms=100),
            edge(3, "both", "join", 1, ahead_ms=100),
        ],
    )
    gating = Gating(plan)
    gating.on_progress(SlotIndex(0), {ORDERS: at(0), CUSTOMERS: at(50), REGIONS: at(200)})
    assert set(gating.holds(SlotIndex(0))) == {REGIONS}
    gating.on_progress(SlotIndex(0), {ORDERS: at(100), CUSTOMERS: at(400), REGIONS: at(200)})
    assert set(gating.holds(SlotIndex(0))) == {CUSTOMERS}


def test_why_a_subtask_is_on_hold_has_how_far_it_is_ahead_and_of_whom() -> None:
    gating = Gating(join_of(ahead_ms=100))
    gating.on_progress(SlotIndex(0), {ORDERS: at(500), CUSTOMERS: at(90)})
    gating.on_progress(SlotIndex(1), {ORDERS: at(450), CUSTOMERS: at(410)})
    assert gating.holds(SlotIndex(0)) == {ORDERS: LeadHold(JOIN, (CUSTOMERS,), ahead_ms=410, limit_ms=100)}
    assert gating.holds(SlotIndex(1)) == {ORDERS: LeadHold(JOIN, (CUSTOMERS,), ahead_ms=360, limit_ms=100)}
    gating.on_progress(SlotIndex(1), {CUSTOMERS: at(None)})
    assert gating.holds(SlotIndex(0)) == {ORDERS: LeadHold(JOIN, (CUSTOMERS,), ahead_ms=None, limit_ms=100)}
