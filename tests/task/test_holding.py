"""Sources on hold, and inputs that report that they have caught up, through slot loops (coordinator/gating.py)."""

from __future__ import annotations

import polars as pl
import pytest

from tests.task.fakes import FakeSource, Row, Trace
from tests.task.fakes import FakeTotals as Totals
from tests.task.rig import Rig
from tests.task.small_rigs import STALE, batch
from tests.task.test_event_time import ACTIVE, IDLE, Timed, push
from tests.task.topologies import edge, plan_of, sink_node, source_node, totals_node, vertex
from tidegate.coordinator.gating import Gating
from tidegate.ids import OperatorName, SlotIndex, TopicPartition, VertexId
from tidegate.operators.runtime import END_OF_TIME, Out
from tidegate.operators.spec import InputOrder
from tidegate.plan.graph import Edge, Plan
from tidegate.task.elements import Batch, StillIdle, TimeControl, Watermark

ORDERS, CUSTOMERS = OperatorName("orders"), OperatorName("customers")


def ported(index: int, upstream: str, port: int, *, gates: bool = False) -> Edge:
    one = edge(index, upstream, "join", "k")
    return Edge(index, one.upstream, one.downstream, one.keys, one.columns, port, order=InputOrder(comes_first=gates))


def join_plan(parallelism: int, *, gates: bool = True) -> Plan:
    """orders on port 0, customers on port 1 first."""
    return plan_of(
        parallelism,
        [
            vertex(source_node("orders", edges=(0,))),
            vertex(source_node("customers", edges=(1,))),
            vertex(totals_node("join", children=(1,)), sink_node("write")),
        ],
        [ported(0, "orders", 0), ported(1, "customers", 1, gates=gates)],
    )


class Join(Totals):
    """Notes the port of every row, and passes rows on; `made` are those of all slots."""

    def __init__(self, made: list[Join]) -> None:
        super().__init__(Trace())
        self.ports: list[int] = []
        made.append(self)

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        self.ports += [port] * batch.height
        super().process(port, batch, out)


class Scripted:
    """A rig with scripted sources: what `customers` does, by slot."""

    def __init__(self, orders: list[Row | TimeControl], customers: list[list[Row | TimeControl]]) -> None:
        self.sources: dict[tuple[str, int], Timed] = {}
        self._scripts = {"orders": [orders] * len(customers), "customers": customers}

    def source(self, name: str, slot: int) -> FakeSource:
        found = self.sources[name, slot] = Timed(self._scripts[name][slot], bounded=False)
        found.name, found.slot = name, slot
        return found

    def rows(self, operator: str, slot: int) -> list[Row]:
        return []

    def replay(self, task: VertexId, slot: int) -> list[tuple[int, Batch]]:
        return []


def scripted(sources: Scripted, parallelism: int = 1) -> tuple[Rig, list[Join]]:
    joins: list[Join] = []
    return Rig(join_plan(parallelism), operators={"join": lambda: Join(joins)}, restored=sources), joins


def pushed(parallelism: int = 1) -> tuple[Rig, Join]:
    """A rig whose channels the test fills by itself."""
    rig, joins = scripted(Scripted([], [[]] * parallelism), parallelism)
    return rig, joins[0]


# -- an input that has caught up ---------------------------------------------------------------------------------------


def test_an_input_reports_once_when_it_is_idle_and_has_answered_after_its_rows() -> None:
    rig, join = pushed()
    slot = rig.slots[0]
    push(slot, 0, batch((1, 1), (2, 2)), IDLE, to=1)
    rig.settle()
    assert rig.caught_up() == [], "more may be on its way: it is asked first"
    push(slot, 0, batch((3, 3)), StillIdle(1), to=1)
    rig.settle()
    assert (rig.caught_up(), join.ports) == ([(0, "join", 1)], [1, 1, 1])
    push(slot, 0, ACTIVE, IDLE, StillIdle(2), to=1)
    rig.settle()
    assert len(rig.caught_up()) == 1


def test_an_input_that_was_active_before_it_has_answered_is_asked_again() -> None:
    rig, _ = pushed()
    slot = rig.slots[0]
    push(slot, 0, IDLE, to=1)
    rig.settle()
    push(slot, 0, ACTIVE, batch((1, 1)), StillIdle(1), to=1)
    rig.settle()
    assert rig.caught_up() == []
    push(slot, 0, IDLE, to=1)
    rig.settle()
    push(slot, 0, StillIdle(2), to=1)
    rig.settle()
    assert rig.caught_up() == [(0, "join", 1)]


def test_an_input_has_caught_up_when_all_its_channels_have() -> None:
    rig, _ = pushed(2)
    push(rig.slots[0], 0, IDLE, StillIdle(1), to=1)
    push(rig.slots[0], 1, batch((1, 1)), to=1)
    rig.settle()
    assert rig.caught_up() == []
    push(rig.slots[0], 1, IDLE, to=1)
    rig.settle()
    push(rig.slots[0], 1, StillIdle(1), to=1)
    push(rig.slots[0], 0, StillIdle(1), to=1)
    rig.settle()
    assert rig.caught_up() == [(0, "join", 1)]


def test_an_input_that_has_ended_has_caught_up() -> None:
    rig, _ = pushed()
    push(rig.slots[0], 0, batch((1, 1)), Watermark(END_OF_TIME), to=1)
    rig.settle()
    assert rig.caught_up() == [(0, "join", 1)]


def test_an_input_that_opens_no_gate_reports_nothing() -> None:
    rig, _ = pushed()
    push(rig.slots[0], 0, IDLE, StillIdle(1), to=0)
    rig.settle()
    assert rig.caught_up() == []


# -- a source on hold --------------------------------------------------------------------------------------------------


def held_rig() -> Rig:
    rig = Rig(join_plan(1), batches=lambda name, slot: [[(1, 1)], [(2, 2)]] if name == "orders" else [[(3, 3)]])
    rig.hold("orders")
    rig.settle()
    return rig


def test_a_source_on_hold_reads_nothing_while_others_do_and_reads_on_afterwards() -> None:
    rig = held_rig()
    sources = rig.slots[0].sources
    assert (sources["orders"].returned, sources["customers"].returned) == ([], [(3, 3)])
    rig.hold()
    rig.settle()
    assert sources["orders"].returned == [(1, 1), (2, 2)]


def test_an_order_of_another_attempt_holds_nothing() -> None:
    rig = Rig(join_plan(1), batches=lambda name, slot: [[(1, 1)]])
    rig.hold("orders", attempt=STALE)
    rig.settle()
    assert rig.slots[0].sources["orders"].returned == [(1, 1)]


@pytest.mark.parametrize("after_ms", [None, 0])
def test_a_checkpoint_completes_while_a_source_is_on_hold_with_its_position(after_ms: int | None) -> None:
    """A channel that is not read would keep the barriers of an aligned one until it times out."""
    rig = held_rig()
    for checkpoint in (1, 2):
        rig.trigger(checkpoint, after_ms=after_ms)
        rig.settle()
        assert rig.is_complete(checkpoint)
    positions = {one.source: dict(one.next_offsets) for ack in rig.acks(2) for one in ack.positions}
    assert positions == {ORDERS: {TopicPartition("orders", 0): 0}, CUSTOMERS: {TopicPartition("customers", 0): 1}}


def test_a_final_checkpoint_completes_while_a_source_is_on_hold() -> None:
    rig = held_rig()
    rig.trigger(1, final=True)
    rig.settle()
    assert rig.is_complete(1)
    assert rig.slots[0].sources["orders"].returned == []


def test_a_source_on_hold_says_that_it_is_idle_and_that_it_still_is() -> None:
    """Else the other input would wait with its watermarks for one that waits for it."""
    sources = Scripted([IDLE, (1, 7)], [[(3, 3), Watermark(5)]])
    rig, _ = scripted(sources)
    rig.hold("orders")
    rig.settle()
    assert rig.slots[0].loop.tasks[2].chain.meter.counts[0].watermark_ms == 5
    assert list(sources.sources["orders", 0].script) == [(1, 7)]


def test_a_source_on_hold_takes_new_partitions() -> None:
    rig = held_rig()
    part = TopicPartition("orders", 4)
    rig.slots[0].sources["orders"].add_partitions([part])
    rig.settle()
    assert rig.slots[0].sources["orders"].added == [part]


# -- both ends together ------------------------------------------------------------------------------------------------


class Gated:
    """A rig, and the decision whose orders it gets."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.gating = Gating(rig.plan)
        self._seen = 0
        self.order()

    def order(self) -> None:
        self.rig.hold(*self.gating.held(SlotIndex(0)))

    def settle(self) -> None:
        while True:
            self.rig.settle()
            reports = self.rig.caught_up()[self._seen :]
            if not reports:
                return
            self._seen += len(reports)
            for slot, name, port in reports:
                self.gating.on_caught_up(VertexId(name), port, SlotIndex(slot))
            self.order()


def test_no_row_of_the_stream_is_read_before_every_subtask_has_the_whole_table() -> None:
    table: list[list[Row | TimeControl]] = [[(key, key) for key in range(6)], [(key, key) for key in range(6, 9)]]
    sources = Scripted([(1, 100), (8, 101)], [[*rows, IDLE] for rows in table])
    rig, joins = scripted(sources, 2)
    gated = Gated(rig)
    gated.settle()
    assert sorted(n for one in joins for _, n in one.seen) == [*range(9), 100, 100, 101, 101]
    for one in joins:
        assert one.ports == sorted(one.ports, reverse=True), "the table first"


def test_a_table_whose_slot_is_slow_keeps_the_gate_closed_everywhere() -> None:
    sources = Scripted([(1, 100)], [[(1, 1), IDLE], [(2, 2)]])
    rig, _ = scripted(sources, 2)
    gated = Gated(rig)
    gated.settle()
    assert [list(sources.sources["orders", slot].script) for slot in range(2)] == [[(1, 100)], [(1, 100)]]
    sources.sources["customers", 1].script += [IDLE]
    gated.settle()
    assert [list(sources.sources["orders", slot].script) for slot in range(2)] == [[], []]
