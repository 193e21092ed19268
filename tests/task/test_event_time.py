"""Event time on its way: through channels, the valves of a vertex, its operators and its outputs (contract W01-W25)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.task.fakes import FakeSource, FakeTotals, Row, Trace, frame_of
from tests.task.rig import Rig, RigSlot
from tests.task.small_rigs import barrier, batch, turn
from tests.task.topologies import edge, filter_node, plan_of, shuffle_plan, sink_node, source_node, vertex
from tidegate.ids import CheckpointId, VertexId
from tidegate.operators.runtime import END_OF_TIME, LOWEST, OperatorRuntime, Out
from tidegate.plan.graph import Edge, Node, OutputPath
from tidegate.task.channels import InputChannel, RemoteOutput
from tidegate.task.elements import (
    Barrier,
    Batch,
    CatchUpMarker,
    Element,
    StillIdle,
    StreamStatus,
    TimeControl,
    Watermark,
)
from tidegate.task.valve import Valve
from tidegate.task.wire import Frame, decode_element, encode_element

ACTIVE = StreamStatus(idle=False)
IDLE = StreamStatus(idle=True)
UNALIGNED_MS = 0

Note = Row | Watermark | StreamStatus | str


class Noted(OperatorRuntime):
    """Passes everything on, and notes what it was given, in order."""

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self.free = 1 << 31

    @property
    def room(self) -> int:
        return self.free

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        self.notes += batch.select("k", "n").rows()
        out.emit(batch)

    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        self.notes.append(Watermark(watermark_ms))
        super().on_watermark(watermark_ms, out)

    def on_status(self, idle: bool, out: Out) -> None:
        self.notes.append(StreamStatus(idle))
        super().on_status(idle, out)

    def before_snapshot(self) -> None:
        self.notes.append("snapshot")


class Timed(FakeSource):
    """Emits what it is given: rows, watermarks, statuses."""

    def __init__(self, script: Sequence[Row | TimeControl | CatchUpMarker], *, bounded: bool) -> None:
        super().__init__("read", 0, bounded=bounded)
        self.script = deque(script)

    def poll(self, rows_max: int, out: Out) -> bool:
        if not self.script or (not rows_max and isinstance(self.script[0], tuple)):
            return False
        match self.script.popleft():
            case Watermark(time_ms):
                out.watermark(time_ms)
            case StreamStatus(idle):
                out.status(idle)
            case CatchUpMarker():
                out.caught_up()
            case row:
                out.emit(frame_of([row]))
        return True

    @property
    def finished(self) -> bool:
        return self.bounded and not self.script


class FromSource:
    """A rig with this source, and rows in flight towards `total`."""

    def __init__(
        self, *script: Row | TimeControl, replay: Sequence[tuple[int, Batch]] = (), bounded: bool = False
    ) -> None:
        self._script = script
        self._bounded = bounded
        self._replay = replay

    def source(self, name: str, slot: int) -> FakeSource:
        return Timed(self._script, bounded=self._bounded)

    def rows(self, operator: str, slot: int) -> list[Row]:
        return []

    def replay(self, task: VertexId, slot: int) -> list[tuple[int, Batch]]:
        return list(self._replay) if task == "total" else []


def chain(
    *script: Row | TimeControl, middle: OperatorRuntime | None = None, bounded: bool = False
) -> tuple[Rig, Noted]:
    """A source, an operator in between and one that notes, in one vertex."""
    noted = Noted()
    nodes = (source_node("read", children=(1,)), filter_node("pass", children=(2,)), filter_node("note"))
    operators: dict[str, Callable[[], OperatorRuntime]] = {"note": lambda: noted}
    if middle is not None:
        operators["pass"] = lambda: middle
    return Rig(plan_of(1, [vertex(*nodes)]), operators=operators, restored=FromSource(*script, bounded=bounded)), noted


def noting(parallelism: int = 2, *, unaligned: bool = False, restored: FromSource | None = None) -> tuple[Rig, Noted]:
    """The operator after an exchange notes; tests push into its channels."""
    kept: list[Noted] = []

    def make() -> Noted:
        kept.append(Noted())
        return kept[-1]

    rig = Rig(shuffle_plan(parallelism), operators={"total": make}, unaligned=unaligned, restored=restored)
    return rig, kept[0]


def push(slot: RigSlot, sender: int, *elements: Element, to: int = 0) -> None:
    for element in elements:
        slot.inputs[sender, to].push(element)


def overtaking(checkpoint: int) -> Barrier:
    return Barrier(CheckpointId(checkpoint), 1_000_000, unaligned_after_ms=UNALIGNED_MS)


# -- elements and channels ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("control", [Watermark(LOWEST), Watermark(-5), Watermark(END_OF_TIME), IDLE, ACTIVE])
def test_W01_event_time_travels_over_the_wire(control: TimeControl) -> None:
    kind, body = encode_element(control)
    assert decode_element(Frame(kind, 3, 0, body)) == control
    assert END_OF_TIME == 2**63 - 1


def test_watermarks_and_statuses_keep_their_place_between_batches_and_barriers() -> None:
    sent: list[Element] = [batch((1, 1)), Watermark(5), barrier(1), Watermark(6), batch((1, 2)), IDLE, ACTIVE, IDLE]
    channel = InputChannel()
    for element in sent:
        channel.push(element)
    assert [channel.pop() for _ in range(len(channel))] == sent[:6]


def test_a_watermark_that_waits_makes_room_for_the_next_one_but_never_for_a_lower_one() -> None:
    output = RemoteOutput(0)
    for time_ms in (5, 9, 7):
        output.emit(Watermark(time_ms))
    assert through(output) == [Watermark(9)]


def test_the_end_of_time_leaves_the_watermark_that_waits_before_it() -> None:
    output, channel = RemoteOutput(0), InputChannel()
    for time_ms in (5, 9, END_OF_TIME, END_OF_TIME):
        output.emit(Watermark(time_ms))
        channel.push(Watermark(time_ms))
    assert through(output) == [Watermark(9), Watermark(END_OF_TIME)]
    assert [channel.pop() for _ in range(len(channel))] == [Watermark(9), Watermark(END_OF_TIME)]


def test_a_status_that_waits_is_cancelled_by_its_opposite_and_a_repeated_one_is_left_out() -> None:
    output = RemoteOutput(0)
    for control in (ACTIVE, Watermark(5), IDLE, IDLE, ACTIVE, Watermark(6), IDLE):
        output.emit(control)
    assert through(output) == [Watermark(6), IDLE]
    output.emit(ACTIVE)
    assert through(output) == [ACTIVE]


def test_a_barrier_that_overtakes_leaves_watermarks_among_the_rows_that_it_overtakes() -> None:
    output = RemoteOutput(0)
    for element in (batch((1, 1)), Watermark(5), batch((1, 2)), IDLE, overtaking(1), ACTIVE):
        output.emit(element)
    overtaken = output.take_overtaken(CheckpointId(1))
    assert overtaken is not None
    assert [each.rows for each in overtaken] == [1, 1]
    assert [each for each in through(output) if not isinstance(each, Batch)] == [overtaking(1), Watermark(5)]


def through(output: RemoteOutput) -> list[Element]:
    """What leaves by it."""
    out: list[Element] = []
    while (taken := output.take()) is not None:
        kind, sequence, body = taken
        out.append(decode_element(Frame(kind, 0, sequence, body)))
    assert output.queued_bytes == 0
    return out


RUNS = st.lists(
    st.one_of(st.integers(0, 9).map(Watermark), st.booleans().map(StreamStatus), st.sampled_from(["batch", "take"])),
    max_size=40,
)


@given(RUNS)
def test_what_a_channel_leaves_out_is_bounded_and_changes_nothing_for_the_valve(run: list[TimeControl | str]) -> None:
    channel, output = InputChannel(), RemoteOutput(0)
    received: list[Element] = []
    for one in run:
        if isinstance(one, str):
            if one == "batch":
                channel.push(batch((1, 1)))
                output.emit(batch((1, 1)))
            elif len(channel):
                received.append(channel.pop())
        else:
            channel.push(one)
            output.emit(one)
        assert len(channel) <= 3 + 4 * run.count("batch")
    received += [channel.pop() for _ in range(len(channel))]
    given_to_valve = [[one for one in run if not isinstance(one, str)]]
    given_to_valve += [[one for one in came if isinstance(one, TimeControl)] for came in (received, through(output))]
    assert len({settled(controls) for controls in given_to_valve}) == 1


def settled(controls: Sequence[TimeControl]) -> tuple[int, bool]:
    """Where they take a valve."""
    valve = Valve(1)
    for one in controls:
        if isinstance(one, Watermark):
            valve.on_watermark(0, one.time_ms)
        else:
            valve.on_status(0, one.idle)
    return valve.watermark_ms, valve.idle


# -- what an operator emits --------------------------------------------------------------------------------------------


def test_W04_a_watermark_goes_to_every_channel_of_every_way_out() -> None:
    sides = {"odd": OutputPath(children=(3,), edges=(1,))}
    split = Node(filter_node("split").operator, children=(2,), edges=(0,), sides=sides)
    head = vertex(source_node("read", children=(1,)), split, sink_node("even"), filter_node("odd"))
    edges = [edge(0, "read", "left", "k"), edge(1, "read", "right", "k")]
    plan = plan_of(3, [head, vertex(filter_node("left")), vertex(filter_node("right"))], edges)
    noted: dict[str, list[Noted]] = {"odd": [], "left": [], "right": []}

    def make(name: str) -> Noted:
        noted[name].append(Noted())
        return noted[name][-1]

    operators = {name: partial(make, name) for name in noted}
    rig = Rig(plan, operators=operators, restored=FromSource(Watermark(7), IDLE))
    rig.settle()
    assert [each.notes for each in noted["odd"]] == [[Watermark(7), IDLE]] * 3
    assert [each.notes for each in noted["left"] + noted["right"]] == [[Watermark(7), IDLE]] * 6


def test_W03_a_watermark_of_an_idle_operator_is_noted_but_not_sent_on() -> None:
    rig, noted = chain(IDLE, Watermark(5), ACTIVE, Watermark(6))
    (source, *_) = rig.slots[0].loop.tasks[0].chain.meter.counts
    turn(rig, 2)
    assert (noted.notes, source.watermark_ms, source.idle) == ([IDLE], 5, True)
    rig.settle()
    assert noted.notes == [IDLE, ACTIVE, Watermark(6)]
    assert (source.watermark_ms, source.idle) == (6, False)


def test_W05_no_row_is_emitted_between_idle_and_active() -> None:
    rig, noted = chain((1, 1), IDLE, (1, 2), (1, 3), ACTIVE, (1, 4))
    rig.settle()
    assert noted.notes == [(1, 1), IDLE, ACTIVE, (1, 2), IDLE, ACTIVE, (1, 3), IDLE, ACTIVE, (1, 4)]


def test_W12_a_status_is_sent_on_when_it_changes() -> None:
    rig, noted = chain(ACTIVE, IDLE, IDLE, ACTIVE, ACTIVE)
    rig.settle()
    assert noted.notes == [IDLE, ACTIVE]


def test_W25_watermarks_are_counted_by_operator_and_the_last_one_is_a_gauge() -> None:
    rig, _ = chain((1, 1), Watermark(5), Watermark(9))
    counts = rig.slots[0].loop.tasks[0].chain.meter.counts
    assert [each.watermark_ms for each in counts] == [None] * 3
    rig.settle()
    assert [(each.watermarks, each.watermark_ms) for each in counts] == [(2, 9)] * 3


# -- what a vertex hands to its operators ------------------------------------------------------------------------------


def test_W11_the_lowest_of_the_channels_reaches_the_operators_after_the_rows_before_it() -> None:
    rig, noted = noting()
    slot = rig.slots[0]
    push(slot, 0, batch((1, 1)), Watermark(5), batch((1, 2)), Watermark(8))
    rig.settle()
    assert noted.notes == [(1, 1), (1, 2)]
    push(slot, 1, batch((1, 3)), Watermark(6))
    rig.settle()
    assert noted.notes == [(1, 1), (1, 2), (1, 3), Watermark(6)]
    push(slot, 1, IDLE)
    rig.settle()
    assert noted.notes[4:] == []
    push(slot, 1, StillIdle(1))
    rig.settle()
    assert noted.notes[4:] == [Watermark(8)]
    push(slot, 0, IDLE)
    rig.settle()
    assert noted.notes[5:] == [IDLE]


def test_W19_every_input_of_an_operator_has_a_valve_and_the_lowest_of_them_counts() -> None:
    noted = Noted()
    left, right = vertex(source_node("left", edges=(0,))), vertex(source_node("right", edges=(1,)))
    into = edge(1, "right", "join", "k")
    edges = [edge(0, "left", "join", "k"), Edge(1, into.upstream, into.downstream, into.keys, into.columns, port=1)]
    plan = plan_of(1, [left, right, vertex(filter_node("join"))], edges)
    rig = Rig(plan, operators={"join": lambda: noted})
    slot = rig.slots[0]
    push(slot, 0, Watermark(5), to=0)
    rig.settle()
    push(slot, 0, Watermark(9), to=1)
    rig.settle()
    assert noted.notes == [Watermark(5)]
    push(slot, 0, IDLE, to=0)
    rig.settle()
    assert noted.notes[1:] == [], "an idle port is asked before a watermark passes it"
    push(slot, 0, StillIdle(1), to=0)
    rig.settle()
    assert noted.notes[1:] == [Watermark(9)]


def test_a_watermark_waits_for_room_and_a_barrier_does_not() -> None:
    rig, noted = noting()
    slot = rig.slots[0]
    noted.free = 0
    push(slot, 0, barrier(1), Watermark(5))
    push(slot, 1, Watermark(5))
    rig.settle()
    assert noted.notes == []
    inputs = slot.loop.tasks[1].inputs
    assert inputs is not None
    assert inputs.handler.is_blocked(0)
    noted.free = 1
    push(slot, 1, barrier(1))
    rig.settle()
    assert noted.notes == ["snapshot", Watermark(5)]


def test_what_follows_a_barrier_that_aligns_is_not_seen_before_the_snapshot() -> None:
    rig, noted = noting()
    push(rig.slots[0], 0, Watermark(5), barrier(1), Watermark(9))
    push(rig.slots[0], 1, Watermark(9))
    rig.settle()
    assert noted.notes == [Watermark(5)]
    push(rig.slots[0], 1, barrier(1))
    rig.settle()
    assert noted.notes == [Watermark(5), "snapshot", Watermark(9)]


def test_a_barrier_that_overtakes_a_watermark_is_followed_by_it() -> None:
    rig, noted = noting(unaligned=True)
    noted.free = 0
    for sender in (0, 1):
        push(rig.slots[0], sender, batch((1, sender)), Watermark(5), overtaking(1))
    rig.settle()
    assert noted.notes == ["snapshot"]
    noted.free = 1 << 31
    rig.settle()
    assert sorted(noted.notes[1:3], key=str) == [(1, 0), (1, 1)]
    assert noted.notes[3:] == [Watermark(5)]


def test_rows_in_flight_of_the_checkpoint_come_before_any_watermark() -> None:
    replay = [(0, batch((1, 1), (1, 2))), (0, batch((1, 3)))]
    rig, noted = noting(1, unaligned=True, restored=FromSource(Watermark(5), replay=replay))
    noted.free = 1
    rig.settle()
    assert noted.notes == [(1, 1), (1, 2), (1, 3), Watermark(5)]


def test_F16_states_are_captured_after_before_snapshot_and_rows_come_not_between() -> None:
    class Holding(FakeTotals):
        def before_snapshot(self) -> None:
            self.seen.append((0, 0))

    rig = Rig(shuffle_plan(1), operators={"total": lambda: Holding(Trace())})
    push(rig.slots[0], 0, batch((1, 1)), barrier(1), batch((1, 2)))
    rig.settle()
    assert rig.rows_in_state(1) == {(1, 1): 1, (0, 0): 1}


# -- the end -----------------------------------------------------------------------------------------------------------


class Closing(OperatorRuntime):
    """Keeps its rows until the end of time, and then emits one a turn."""

    def __init__(self) -> None:
        self.kept: deque[Row] = deque()
        self.until_ms = LOWEST

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        self.kept += batch.select("k", "n").rows()

    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        self.until_ms = watermark_ms

    def poll(self, rows_max: int, out: Out) -> bool:
        if self.until_ms != END_OF_TIME or not self.kept:
            return False
        out.emit(frame_of([self.kept.popleft()]))
        if not self.kept:
            out.watermark(END_OF_TIME)
        return True

    @property
    def settled(self) -> bool:
        return self.until_ms != END_OF_TIME or not self.kept


ROWS: list[Row] = [(1, 1), (1, 2), (1, 3)]


def test_a_final_barrier_waits_until_what_the_end_of_time_makes_due_is_emitted() -> None:
    rig = Rig(shuffle_plan(1), operators={"total": Closing})
    slot = rig.slots[0]
    push(slot, 0, batch(*ROWS), Watermark(END_OF_TIME), barrier(1, final=True))
    rig.settle()
    assert rig.rows_in_transactions(1) == dict.fromkeys(ROWS, 1)


def test_a_final_barrier_that_ends_nothing_waits_for_nothing() -> None:
    rig = Rig(shuffle_plan(1), operators={"total": Closing})
    push(rig.slots[0], 0, batch(*ROWS), Watermark(9), barrier(1, final=True))
    rig.settle()
    assert rig.rows_in_transactions(1) == {}
    assert rig.acks(1)


def test_W02_a_bounded_source_ends_event_time_whether_its_rows_have_one_or_not() -> None:
    rig, noted = chain(*ROWS, bounded=True)
    rig.settle()
    assert noted.notes == [*ROWS, Watermark(END_OF_TIME)]
    rig, noted = chain((1, 1), Watermark(END_OF_TIME), bounded=True)
    rig.settle()
    assert noted.notes == [(1, 1), Watermark(END_OF_TIME)]


def test_W02_the_end_of_event_time_reaches_the_next_vertex_although_nothing_else_moves() -> None:
    rig, noted = noting(1, restored=FromSource(bounded=True))
    rig.settle()
    assert noted.notes == [Watermark(END_OF_TIME)]


def test_W02_a_bounded_source_has_finished_when_what_is_chained_to_it_has_emitted_all() -> None:
    rig, noted = chain(*ROWS, middle=Closing(), bounded=True)
    turn(rig, 5)
    assert rig.finished_sources() == []
    rig.settle()
    assert rig.finished_sources() == ["read"]
    assert noted.notes == [*ROWS, Watermark(END_OF_TIME)]
