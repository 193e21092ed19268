"""The contract of an operator as a subtask keeps it: side outputs, inputs, time, answers from outside, short calls."""

from __future__ import annotations

from collections import deque

import polars as pl
import pytest

from tests.task.fakes import Row, frame_of
from tests.task.rig import Rig
from tests.task.small_rigs import batch
from tests.task.topologies import KEYED, edge, filter_node, plan_of, sink_node, source_node, vertex
from tidegate.datatypes import BOOLEAN
from tidegate.expressions.expression import Literal
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName, VertexId
from tidegate.operators.kinds.filter import FilterOperator
from tidegate.operators.runtime import ROWS_MAX, OperatorRuntime, Out
from tidegate.plan.graph import Edge, Node, OutputPath
from tidegate.plan.growth import BatchLimits
from tidegate.plan.logical import Input, LogicalGraph, LogicalNode, derive_vertices
from tidegate.task.elements import BYTES_MAX, Batch
from tidegate.task.operator_chain import CALL_MS, TRIAL, BatchPacer


class Splitter(OperatorRuntime):
    """Even numbers go on, odd ones to `odd`, and those from 100 on to an output that nobody reads."""

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        small = batch.filter(pl.col("n") < 100)
        out.side("odd", small.filter(pl.col("n") % 2 == 1))
        out.side("large", batch.filter(pl.col("n") >= 100))
        out.emit(small.filter(pl.col("n") % 2 == 0))


def test_rows_of_a_side_output_go_where_it_leads() -> None:
    split = Node(filter_node("split").operator, children=(2,), sides={"odd": OutputPath(children=(3,))})
    nodes = (source_node("read", children=(1,)), split, sink_node("even"), sink_node("odd"))
    rows: list[Row] = [(1, 1), (1, 2), (1, 100), (1, 3), (1, 4)]
    rig = Rig(plan_of(1, [vertex(*nodes)]), batches=lambda name, slot: [rows], operators={"split": Splitter})
    rig.settle()
    assert rig.slots[0].sinks["even"].open == [(1, 2), (1, 4)]
    assert rig.slots[0].sinks["odd"].open == [(1, 1), (1, 3)]


def test_side_outputs_are_cut_into_vertices_like_main_ones() -> None:
    class Sided(FilterOperator, frozen=True, tag="sided"):
        def side_outputs(self) -> tuple[str, ...]:
            return ("late", "dead")

    def name(text: str) -> OperatorName:
        return OperatorName(text)

    read, plain = source_node("read").operator, filter_node("plain").operator
    sided = Sided(name("sided"), Literal(True, BOOLEAN), KEYED, BadRecordPolicy.FAIL)
    graph: LogicalGraph = {
        name("read"): LogicalNode(read),
        name("sided"): LogicalNode(sided, (Input(name("read")),)),
        name("keyed"): LogicalNode(plain, (Input(name("sided"), "late", keys=("k",)),)),
        name("out"): LogicalNode(sink_node("out").operator, (Input(name("sided")),)),
        name("again"): LogicalNode(sink_node("again").operator, (Input(name("sided"), "late"),)),
    }
    vertices, edges = derive_vertices(graph)
    head = vertices[0]
    assert [node.operator.name for node in head.nodes] == ["read", "sided", "out", "again"]
    assert head.nodes[1].children == (2,)
    assert head.nodes[1].edges == ()
    assert head.nodes[1].sides == {"late": OutputPath(children=(3,), edges=(0,))}
    assert (edges[0].upstream, edges[0].downstream, edges[0].keys) == (VertexId("read"), VertexId("keyed"), ("k",))


class Joined(OperatorRuntime):
    """Notes on which input each row arrived."""

    def __init__(self) -> None:
        self.arrived: list[tuple[int, list[Row]]] = []

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        self.arrived.append((port, batch.select("k", "n").rows()))


def test_a_batch_of_the_same_vertex_is_processed_with_the_first_input() -> None:
    joined = Joined()
    one = vertex(source_node("read", children=(1,)), filter_node("join"))
    rig = Rig(plan_of(1, [one]), batches=lambda name, slot: [[(7, 1)]], operators={"join": lambda: joined})
    rig.settle()
    assert joined.arrived == [(0, [(7, 1)])]


def test_a_batch_is_processed_with_the_input_that_its_edge_feeds() -> None:
    joined = Joined()
    left, right = vertex(source_node("left", edges=(0,))), vertex(source_node("right", edges=(1,)))
    into = edge(1, "right", "join", "k")
    edges = [edge(0, "left", "join", "k"), Edge(1, into.upstream, into.downstream, into.keys, into.columns, port=1)]
    plan = plan_of(1, [left, right, vertex(filter_node("join"))], edges)
    numbers = {"left": 1, "right": 2}
    rig = Rig(plan, batches=lambda name, slot: [[(7, numbers[name])]], operators={"join": lambda: joined})
    rig.settle()
    assert sorted(joined.arrived) == [(0, [(7, 1)]), (1, [(7, 2)])]


class Alarm(OperatorRuntime):
    """Emits what it kept when its time has come, one row a call."""

    def __init__(self, due_ms: int = 1_000_500) -> None:
        self.kept: deque[Row] = deque()
        self.calls: list[int] = []
        self._due_ms = due_ms

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        self.kept += batch.select("k", "n").rows()

    @property
    def next_deadline_ms(self) -> int | None:
        return self._due_ms if self.kept else None

    def on_time(self, now_ms: int, out: Out) -> bool:
        self.calls.append(now_ms)
        out.emit(frame_of([self.kept.popleft()]))
        return bool(self.kept)


def test_an_operator_is_called_when_its_time_has_come_and_again_while_more_is_due() -> None:
    alarm = Alarm()
    nodes = (source_node("read", children=(1,)), filter_node("wait", children=(2,)), sink_node("write"))
    rows: list[Row] = [(1, 1), (1, 2), (1, 3)]
    rig = Rig(plan_of(1, [vertex(*nodes)]), batches=lambda name, slot: [rows], operators={"wait": lambda: alarm})
    rig.settle()
    slot = rig.slots[0]
    assert (slot.sinks["write"].open, slot.loop.next_deadline_ms) == ([], 1_000_500)
    rig.clock.ms = 1_000_499
    rig.settle()
    assert alarm.calls == []
    rig.clock.ms = 1_000_500
    rig.settle()
    assert slot.sinks["write"].open == rows
    assert alarm.calls == [1_000_500] * 3
    assert slot.loop.next_deadline_ms is None


def two_alarms(first: Alarm, second: Alarm) -> Rig:
    """Side by side in one vertex, each with a sink after it."""
    one = vertex(
        source_node("read", children=(1, 2)),
        filter_node("first", children=(3,)),
        filter_node("second", children=(4,)),
        sink_node("out"),
        sink_node("copy"),
    )
    return Rig(plan_of(1, [one]), operators={"first": lambda: first, "second": lambda: second})


def test_an_operator_that_has_more_to_do_is_called_again_whatever_the_others_have() -> None:
    first, second = Alarm(), Alarm()
    rig = two_alarms(first, second)
    first.kept += [(1, 1), (1, 2)]
    second.kept.append((1, 3))
    rig.clock.ms = 1_000_500
    rig.settle()
    assert rig.slots[0].sinks["out"].open == [(1, 1), (1, 2)]


def test_only_the_operator_whose_time_has_come_is_called() -> None:
    first, second = Alarm(), Alarm(1_000_900)
    rig = two_alarms(first, second)
    for alarm in (first, second):
        alarm.kept.append((1, 1))
    rig.clock.ms = 1_000_500
    rig.settle()
    assert (first.calls, second.calls) == ([1_000_500], [])


def test_an_operator_whose_time_has_come_waits_for_room_and_nothing_turns_meanwhile() -> None:
    """Else the loop would take all of a processor for nothing."""
    first, second = Alarm(), Alarm()
    rig = two_alarms(first, second)
    first.kept.append((1, 1))
    rig.slots[0].sinks["out"].free = 0
    rig.clock.ms = 1_000_500
    assert not rig.slots[0].loop.turn()
    assert first.calls == []


class Answers(OperatorRuntime):
    """Something outside answers."""

    def __init__(self) -> None:
        self.ready: deque[Row] = deque()
        self.allowed: list[int] = []
        """Rows that it might emit, call by call."""

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        self.ready += batch.select("k", "n").rows()

    def poll(self, rows_max: int, out: Out) -> bool:
        self.allowed.append(rows_max)
        if not self.ready:
            return False
        out.emit(frame_of([self.ready.popleft()]))
        return True


def test_what_comes_to_an_operator_from_outside_is_polled_while_there_is_room() -> None:
    answers = Answers()
    head = vertex(source_node("read", edges=(0,)))
    below = vertex(filter_node("ask", children=(1,)), sink_node("write"))
    rows: list[Row] = [(1, 1), (1, 2)]
    rig = Rig(
        plan_of(1, [head, below], [edge(0, "read", "ask", "k")]),
        batches=lambda name, slot: [rows],
        operators={"ask": lambda: answers},
    )
    sink = rig.slots[0].sinks["write"]
    rig.settle()
    assert sink.open == rows
    answers.ready.append((2, 9))
    sink.free = 0
    rig.settle()
    assert sink.open == rows
    sink.free = ROWS_MAX
    rig.settle()
    assert sink.open == [*rows, (2, 9)]


def test_what_an_operator_emits_by_itself_waits_for_room_in_every_way_out() -> None:
    answers = Answers()
    head = vertex(source_node("read", children=(1,)), filter_node("ask", edges=(0,)))
    rig = Rig(
        plan_of(1, [head, vertex(sink_node("write"))], [edge(0, "read", "write")]),
        operators={"ask": lambda: answers},
        credit_bytes=1,
    )
    rig.slots[0].sinks["write"].free = 0
    answers.ready += [(1, 1), (1, 2), (1, 3)]
    rig.settle()
    assert list(answers.ready) == [(1, 2), (1, 3)], "the channel is full"


def test_what_an_operator_emits_by_itself_is_bounded_by_rows_and_by_what_calls_take() -> None:
    answers = Answers()
    head = vertex(source_node("read", children=(1,)), filter_node("ask", children=(2,)), sink_node("write"))
    rig = Rig(plan_of(1, [head]), operators={"ask": lambda: answers})
    task = rig.slots[0].loop.tasks[0]
    for rows, paced in ((20, 30), (40, 30)):
        task.chain.limits = BatchLimits(rows, BYTES_MAX)
        task.chain.pace.rows = paced
        task.turn()
    assert answers.allowed == [20, 30]


def test_an_operator_that_never_emits_by_itself_is_not_asked_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def poll(*_: object) -> bool:
        raise AssertionError("asked")

    monkeypatch.setattr(OperatorRuntime, "poll", poll)
    one = vertex(source_node("read", children=(1,)), filter_node("pass", children=(2,)), sink_node("write"))
    rig = Rig(plan_of(1, [one]), batches=lambda name, slot: [[(1, 1)]])
    rig.settle()
    assert rig.slots[0].sinks["write"].open == [(1, 1)]


def test_calls_that_last_too_long_get_fewer_rows_and_short_ones_more_again() -> None:
    pace = BatchPacer()
    pace.observe(4000, 4 * CALL_MS)
    assert pace.rows == ROWS_MAX, "once may be chance"
    pace.observe(4000, 4 * CALL_MS)
    assert pace.rows == 1000
    pace.observe(1000, 0.9 * CALL_MS)
    assert pace.rows == 1000
    pace.observe(10, 1.0)
    assert pace.rows == 1000, "a small batch says nothing about large ones"
    pace.observe(1000, 0.2 * CALL_MS)
    assert pace.rows == 2000
    for _ in range(40):
        pace.observe(pace.rows, 0.1)
    assert pace.rows == ROWS_MAX
    for _ in range(2):
        pace.observe(1, 10 * CALL_MS)
    assert pace.rows == 1


@pytest.mark.parametrize("waiting", [(3000,), (300,), (10, 3000, 50)])
def test_what_a_call_takes_without_its_rows_is_no_reason_for_fewer_rows(waiting: tuple[int, ...]) -> None:
    """A machine with too little CPU: each call lasts longer than it may, whatever its rows are."""
    pace, taken, whole = BatchPacer(), 0, 0
    for call in range(600):
        rows = min(pace.rows, waiting[call % len(waiting)])
        pace.observe(rows, 1.2 * CALL_MS + 0.01 * rows)
        taken, whole = taken + rows, whole + waiting[call % len(waiting)]
    assert taken > whole / 4


@pytest.mark.parametrize("fixed_ms", [0.6 * CALL_MS, 1.2 * CALL_MS])
def test_after_a_stall_a_limit_of_one_row_does_not_stay(fixed_ms: float) -> None:
    """Calls of one row alone say nothing about what one more row takes."""
    pace = BatchPacer()
    for _ in range(10):
        pace.observe(min(pace.rows, 3000), 14 * CALL_MS)
    assert pace.rows <= 2
    taken = 0
    for _ in range(200):
        rows = min(pace.rows, 3000)
        pace.observe(rows, fixed_ms + 0.02 * rows)
        taken += rows
    assert taken > 200 * 200


def test_a_limit_of_one_row_is_tried_again_with_two_now_and_then() -> None:
    pace, limits = BatchPacer(), []
    for _ in range(2):
        pace.observe(1, 10 * CALL_MS)
    for _ in range(3 * (TRIAL + 1)):
        limits.append(pace.rows)
        pace.observe(pace.rows, 10 * CALL_MS * pace.rows)
    assert limits == [*[1] * TRIAL, 2] * 3


def test_what_rows_take_is_told_from_what_a_call_takes_without_them() -> None:
    """Batches differ by a sixth only: 60 ms for 1000 rows, and 40 ms for each call."""
    pace = BatchPacer()
    for rows in (850, 1150) * 5:
        pace.observe(rows, 40 + 0.06 * rows)
    assert 500 < pace.rows < 833


class Slow(OperatorRuntime):
    """Needs a millisecond a row, or more."""

    def __init__(self, row_ms: int = 1) -> None:
        self.rig: Rig | None = None
        self.heights: list[int] = []
        self._row_ms = row_ms

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        self.heights.append(batch.height)
        if self.rig is not None:
            self.rig.clock.ms += batch.height * self._row_ms


def test_a_slow_operator_gets_so_little_at_a_time_that_a_barrier_waits_50_ms() -> None:
    slow = Slow()
    head = vertex(source_node("read", edges=(0,)))
    rig = Rig(
        plan_of(1, [head, vertex(filter_node("slow"))], [edge(0, "read", "slow", "k")]),
        batches=lambda name, slot: [],
        operators={"slow": lambda: slow},
    )
    slow.rig = rig
    channel = rig.slots[0].inputs[0, 0]
    for start in range(0, 1200, 200):
        one: Batch = batch(*((1, number) for number in range(start, start + 200)))
        channel.push(one)
    rig.settle()
    assert sum(slow.heights) == 1200
    assert slow.heights[:3] == [200, 200, CALL_MS]
    assert max(slow.heights[2:]) <= CALL_MS


def test_a_source_reads_single_records_where_each_takes_longer_than_a_barrier_may_wait() -> None:
    slow = Slow(60)
    nodes = (source_node("read", children=(1,)), filter_node("slow"))
    rows: list[list[Row]] = [[(1, number) for number in range(size)] for size in (3, 3, 14)]
    rig = Rig(plan_of(1, [vertex(*nodes)]), batches=lambda name, slot: rows, operators={"slow": lambda: slow})
    slow.rig = rig
    rig.settle()
    assert slow.heights == [3, 3, *[1] * 14]


def test_a_source_reads_less_at_a_time_when_what_follows_it_is_slow() -> None:
    slow = Slow()
    nodes = (source_node("read", children=(1,)), filter_node("slow"))
    rows: list[list[Row]] = [[(1, number) for number in range(start, start + 200)] for start in range(0, 1200, 200)]
    rig = Rig(plan_of(1, [vertex(*nodes)]), batches=lambda name, slot: rows, operators={"slow": lambda: slow})
    slow.rig = rig
    rig.settle()
    assert sum(slow.heights) == 1200
    assert slow.heights[:2] == [200, 200]
    assert max(slow.heights[2:]) <= CALL_MS


def test_a_source_whose_records_make_fewer_rows_reads_more_again_when_what_follows_it_is_quick() -> None:
    slow = Slow()
    nodes = (source_node("read", children=(1,)), filter_node("slow"))
    rows: list[list[Row]] = [[(1, number) for number in range(200)] for _ in range(20)]
    rig = Rig(plan_of(1, [vertex(*nodes)]), batches=lambda name, slot: rows, operators={"slow": lambda: slow})
    rig.slots[0].sources["read"].left_out = 1
    slow.rig = rig
    for _ in range(4):
        rig.slots[0].loop.turn()
    assert slow.heights[-1] < CALL_MS
    slow.rig = None
    rig.settle()
    assert slow.heights[-1] == 199


class Full(Answers):
    """Has no room while it holds anything, as an asynchronous step that is full."""

    @property
    def room(self) -> int:
        return 0 if self.ready else ROWS_MAX

    @property
    def settled(self) -> bool:
        return not self.ready


def test_an_operator_that_is_full_itself_is_polled_all_the_same() -> None:
    nodes = (source_node("read", children=(1,)), filter_node("ask", children=(2,)), sink_node("write"))
    batches: list[list[Row]] = [[(1, 1), (1, 2), (1, 3)], [(1, 4)]]
    rig = Rig(plan_of(1, [vertex(*nodes)]), batches=lambda name, slot: batches, operators={"ask": Full})
    rig.settle()
    assert rig.slots[0].sinks["write"].open == [(1, 1), (1, 2), (1, 3), (1, 4)]


def test_a_final_barrier_waits_at_a_source_until_what_was_read_has_left() -> None:
    nodes = (source_node("read", children=(1,)), filter_node("ask", children=(2,)), sink_node("write"))
    rows: list[Row] = [(1, 1), (1, 2), (1, 3)]
    rig = Rig(plan_of(1, [vertex(*nodes)]), batches=lambda name, slot: [rows, [(1, 4)]], operators={"ask": Full})
    slot = rig.slots[0]
    slot.loop.turn()
    rig.trigger(1, final=True)
    assert slot.jobs == []
    rig.settle()
    assert rig.rows_in_transactions(1) == dict.fromkeys(rows, 1), "and nothing that was not read before it"
    assert rig.is_complete(1)


def test_a_barrier_that_is_not_final_does_not_wait_for_what_was_read() -> None:
    nodes = (source_node("read", children=(1,)), filter_node("ask", children=(2,)), sink_node("write"))
    rig = Rig(plan_of(1, [vertex(*nodes)]), batches=lambda name, slot: [[(1, 1), (1, 2)]], operators={"ask": Full})
    rig.slots[0].loop.turn()
    rig.trigger(1)
    assert rig.slots[0].trace.events == [("prepare", 1)]


def test_a_final_barrier_that_is_given_up_while_it_waits_is_forgotten() -> None:
    nodes = (source_node("read", children=(1,)), filter_node("ask", children=(2,)), sink_node("write"))
    rig = Rig(plan_of(1, [vertex(*nodes)]), batches=lambda name, slot: [[(1, 1)]], operators={"ask": Full})
    rig.slots[0].loop.turn()
    rig.trigger(1, final=True)
    rig.abandon(1)
    rig.settle()
    assert rig.acks(1) == []
