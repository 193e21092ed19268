"""Sources on hold, and inputs that report that they have caught up, through slot loops (coordinator/gating.py)."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest

from tests.task.fakes import FakeSource, Row, Trace
from tests.task.fakes import FakeTotals as Totals
from tests.task.rig import Rig
from tests.task.small_rigs import STALE, batch
from tests.task.test_event_time import IDLE, Timed, push
from tests.task.topologies import edge, plan_of, sink_node, source_node, totals_node, vertex
from tidegate.coordinator.gating import Gating
from tidegate.ids import OperatorName, SlotIndex, TopicPartition, VertexId
from tidegate.operators.runtime import Out
from tidegate.operators.spec import InputOrder
from tidegate.plan.graph import Edge, Plan
from tidegate.task.elements import Batch, CatchUpMarker, StillIdle, TimeControl, Watermark

CAUGHT_UP = CatchUpMarker()
ORDERS, CUSTOMERS = OperatorName("orders"), OperatorName("customers")


Script = Row | TimeControl | CatchUpMarker


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

    def __init__(self, orders: Sequence[Script], customers: Sequence[Sequence[Script]]) -> None:
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


def test_an_input_reports_when_all_its_channels_have_caught_up() -> None:
    rig, join = pushed(2)
    slot = rig.slots[0]
    push(slot, 0, batch((1, 1)), CAUGHT_UP, batch((2, 2)), to=1)
    push(slot, 1, batch((3, 3)), IDLE, StillIdle(1), to=1)
    rig.settle()
    assert rig.caught_up() == [], "an idle channel may have more"
    push(slot, 1, CAUGHT_UP, to=1)
    rig.settle()
    assert (rig.caught_up(), join.ports) == ([(0, "join", 1)], [1, 1, 1])


def test_an_input_that_opens_no_gate_reports_nothing() -> None:
    rig, _ = pushed()
    push(rig.slots[0], 0, CAUGHT_UP, to=0)
    rig.settle()
    assert rig.caught_up() == []


def test_a_step_has_caught_up_when_all_its_inputs_have() -> None:
    plan = plan_of(
        1,
        [
            vertex(source_node("orders", edges=(0,))),
            vertex(source_node("customers", edges=(1,))),
            vertex(totals_node("join", edges=(2,))),
            vertex(totals_node("last")),
        ],
        [ported(0, "orders", 0), ported(1, "customers", 1, gates=True), edge(2, "join", "last", "k")],
    )
    rig = Rig(plan, operators={name: lambda: Totals(Trace()) for name in ("join", "last")}, restored=Scripted([], [[]]))
    trace = rig.slots[0].trace
    push(rig.slots[0], 0, CAUGHT_UP, to=1)
    rig.settle()
    assert ("CatchUpMarker", None) not in trace.events
    push(rig.slots[0], 0, batch((1, 1)), CAUGHT_UP, to=0)
    rig.settle()
    assert trace.events.count(("CatchUpMarker", None)) == 1


def test_rows_in_flight_of_the_checkpoint_come_before_it() -> None:
    class Restored(Scripted):
        def replay(self, task: VertexId, slot: int) -> list[tuple[int, Batch]]:
            return [(1, batch((n, n))) for n in range(3)] if task == "join" else []

    joins: list[Join] = []
    rig = Rig(join_plan(1), operators={"join": lambda: Join(joins)}, restored=Restored([], [[CAUGHT_UP]]))
    while not rig.caught_up():
        assert rig.slots[0].loop.turn()
    assert joins[0].ports == [1, 1, 1]


class Slow(Totals):
    """Emits its rows one by one when it is polled."""

    def __init__(self) -> None:
        super().__init__(Trace())
        self.left: list[pl.DataFrame] = []

    @property
    def settled(self) -> bool:
        return not self.left

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        self.left += batch.iter_slices(1)

    def poll(self, rows_max: int, out: Out) -> bool:
        if self.left:
            out.emit(self.left.pop(0))
        return not self.settled


def test_an_operator_that_has_more_to_emit_passes_it_on_behind_that() -> None:
    plan = plan_of(
        1,
        [
            vertex(source_node("orders", edges=(0,))),
            vertex(totals_node("slow", edges=(1,))),
            vertex(totals_node("join")),
        ],
        [edge(0, "orders", "slow", "k"), ported(1, "slow", 0, gates=True)],
    )
    joins: list[Join] = []
    operators = {"slow": Slow, "join": lambda: Join(joins)}
    rig = Rig(plan, operators=operators, restored=Scripted([], [[]]))
    push(rig.slots[0], 0, batch(*((1, n) for n in range(9))), CAUGHT_UP)
    while not rig.caught_up():
        assert rig.slots[0].loop.turn()
    assert len(joins[0].ports) == 9


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
        self.rig.hold(*self.gating.holds(SlotIndex(0)))

    def tell(self) -> bool:
        """Passes on what is new to the decision."""
        reports = self.rig.caught_up()[self._seen :]
        self._seen += len(reports)
        for slot, name, port in reports:
            self.gating.on_caught_up(VertexId(name), port, SlotIndex(slot))
        self.order()
        return bool(reports)

    def settle(self) -> None:
        self.rig.settle()
        while self.tell():
            self.rig.settle()


def test_no_row_of_the_stream_is_read_before_every_subtask_has_the_whole_table() -> None:
    table: list[list[Script]] = [[(key, key) for key in range(6)], [(key, key) for key in range(6, 9)]]
    sources = Scripted([(1, 100), (8, 101)], [[*rows, CAUGHT_UP] for rows in table])
    rig, joins = scripted(sources, 2)
    gated = Gated(rig)
    gated.settle()
    assert sorted(n for one in joins for _, n in one.seen) == [*range(9), 100, 100, 101, 101]
    for one in joins:
        assert one.ports == sorted(one.ports, reverse=True), "the table first"


def test_a_table_that_is_written_all_the_time_opens_its_gate() -> None:
    """Its source is never idle, and so never at rest: what it held at the start is what counts."""
    endless: list[Script] = [(1, 1), (2, 2), CAUGHT_UP, *((key, key) for key in range(3, 90))]
    sources = Scripted([(1, 100)], [endless])
    rig, joins = scripted(sources)
    gated = Gated(rig)
    while 100 not in [n for _, n in joins[0].seen]:
        assert rig.slots[0].loop.turn()
        gated.tell()
    assert sources.sources["customers", 0].script, "rows of the table are still coming"


def test_a_table_whose_slot_is_slow_keeps_the_gate_closed_everywhere() -> None:
    sources = Scripted([(1, 100)], [[(1, 1), CAUGHT_UP], [(2, 2), IDLE]])
    rig, _ = scripted(sources, 2)
    gated = Gated(rig)
    gated.settle()
    assert [list(sources.sources["orders", slot].script) for slot in range(2)] == [[(1, 100)], [(1, 100)]]
    sources.sources["customers", 1].script += [CAUGHT_UP]
    gated.settle()
    assert [list(sources.sources["orders", slot].script) for slot in range(2)] == [[], []]
