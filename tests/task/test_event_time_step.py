"""The step `event_time` in real slot loops: its watermarks take the place of those that arrive (contract W06, W23)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import polars as pl
import pytest

from tests.task.fakes import FakeSource, frame_of
from tests.task.fakes import Row as KeyedRow
from tests.task.rig import Rig
from tests.task.test_event_time import ACTIVE, IDLE, Noted
from tests.task.topologies import KEYED, edge, filter_node, plan_of, source_node, vertex
from tidegate.config.fields.records import Idle
from tidegate.expressions.parse import parse_expression
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName, VertexId
from tidegate.operators.kinds.event_time import EventTimeOperator
from tidegate.operators.kinds.event_time.runtime import EventTimeRuntime
from tidegate.operators.runtime import END_OF_TIME, Out
from tidegate.operators.spec import Slot
from tidegate.state.backends import choose_backend
from tidegate.task.elements import Batch, StreamStatus, TimeControl, Watermark

DELAY = 5
Given = tuple[int, int, int] | TimeControl
"""Key, event time in the step, event time before; or event time as a source sends it."""


def timed() -> EventTimeRuntime:
    expression = parse_expression("n", dict(KEYED))
    name, policy = OperatorName("timed"), BadRecordPolicy.FAIL
    operator = EventTimeOperator(name, expression, "n", KEYED, policy, DELAY, Idle.CAUGHT_UP, None, ())
    return EventTimeRuntime(operator, Slot(1, choose_backend("memory", 1)))


class Stamped(FakeSource):
    """Emits what it is given."""

    def __init__(self, slot: int, script: Sequence[Given]) -> None:
        super().__init__("read", slot)
        self.script = deque(script)

    def poll(self, rows_max: int, out: Out) -> bool:
        if not self.script:
            return False
        match self.script.popleft():
            case Watermark(time_ms):
                out.watermark(time_ms)
            case StreamStatus(idle):
                out.status(idle)
            case (key, time_ms, before_ms):
                stamps = [pl.lit(before_ms).alias("__tidegate_time"), pl.lit(0).alias("__tidegate_behind")]
                out.emit(frame_of([(key, time_ms)]).with_columns(stamps))
        return True


class Scripts:
    """What the source of each slot emits."""

    def __init__(self, *scripts: Sequence[Given]) -> None:
        self._scripts = scripts

    def source(self, name: str, slot: int) -> FakeSource:
        return Stamped(slot, self._scripts[slot])

    def rows(self, operator: str, slot: int) -> list[KeyedRow]:
        return []

    def replay(self, task: VertexId, slot: int) -> list[tuple[int, Batch]]:
        return []


def chain(*script: Given) -> tuple[Rig, Noted]:
    """A source, the step, and what notes, in one vertex of one slot."""
    noted = Noted()
    nodes = (source_node("read", children=(1,)), filter_node("timed", children=(2,)), filter_node("note"))
    plan = plan_of(1, [vertex(*nodes)])
    return Rig(plan, operators={"timed": timed, "note": lambda: noted}, restored=Scripts(script)), noted


def exchange(*scripts: Sequence[Given]) -> tuple[Rig, list[Noted]]:
    """In each slot a source, the step in a vertex of its own, and behind an exchange what notes."""
    noted: list[Noted] = []

    def make() -> Noted:
        noted.append(Noted())
        return noted[-1]

    vertices = [
        vertex(source_node("read", edges=(0,))),
        vertex(filter_node("timed", edges=(1,))),
        vertex(filter_node("note")),
    ]
    plan = plan_of(len(scripts), vertices, [edge(0, "read", "timed"), edge(1, "timed", "note", "k")])
    return Rig(plan, operators={"timed": timed, "note": make}, restored=Scripts(*scripts)), noted


def source(rig: Rig, slot: int = 0) -> Stamped:
    found = rig.slots[slot].sources["read"]
    assert isinstance(found, Stamped)
    return found


def own(time_ms: int) -> Watermark:
    """The watermark of the step when this is the highest event time."""
    return Watermark(time_ms - DELAY - 1)


@pytest.mark.parametrize("arriving", [20, 1_000_000])
def test_W23_watermarks_that_arrive_are_replaced_by_those_of_the_rows(arriving: int) -> None:
    rig, noted = chain((1, 300, 10), Watermark(arriving), (1, 290, 21), (1, 310, 22), Watermark(arriving + 1))
    rig.settle()
    assert noted.notes == [(1, 300), own(300), (1, 290), (1, 310), own(310)]


def test_W23_a_watermark_without_rows_is_not_passed_on() -> None:
    rig, noted = chain(Watermark(20), (1, 300, 50), Watermark(30), Watermark(50))
    rig.settle()
    assert noted.notes == [(1, 300), own(300)]


def test_W01_the_end_of_time_is_passed_on() -> None:
    rig, noted = chain((1, 300, 10), Watermark(END_OF_TIME))
    rig.settle()
    assert noted.notes == [(1, 300), Watermark(END_OF_TIME)]


def test_W06_no_watermark_leaves_while_the_input_is_idle() -> None:
    rig, noted = chain((1, 300, 10), Watermark(20), IDLE)
    rig.settle()
    rig.clock.ms += 1_000_000
    rig.settle()
    assert noted.notes == [(1, 300), own(300), IDLE]
    source(rig).script.extend([ACTIVE, (1, 320, 25), Watermark(40)])
    rig.settle()
    assert noted.notes[3:] == [ACTIVE, (1, 320), own(320)]


def test_a_step_whose_input_is_active_again_says_where_it_is() -> None:
    rig, noted = chain((1, 300, 10), Watermark(20), IDLE, ACTIVE, (1, 200, 25), Watermark(30), Watermark(31))
    rig.settle()
    assert noted.notes == [(1, 300), own(300), IDLE, ACTIVE, (1, 200), own(300)]


def test_W06_the_watermark_of_an_idle_subtask_holds_no_other_back() -> None:
    rig, noted = exchange(
        [(1, 100, 10), Watermark(10), (2, 500, 20), Watermark(20)],
        [(1, 90, 10), Watermark(10), IDLE],
    )
    rig.settle()
    for one in noted:
        assert one.notes[-1] == own(500)
    source(rig, 1).script.extend([ACTIVE, (1, 550, 20), Watermark(20)])
    source(rig, 0).script.extend([(2, 600, 30), Watermark(30)])
    rig.settle()
    for one in noted:
        assert own(600) not in one.notes, "the subtask that is active again is waited for"
    source(rig, 1).script.extend([(1, 610, 40), Watermark(40)])
    rig.settle()
    for one in noted:
        assert one.notes[-1] == own(600)
