"""Questions to idle subtasks and their answers, through slot loops (ADR 52)."""

from __future__ import annotations

import pytest

from tests.task.fakes import FakeSource, Row
from tests.task.rig import Rig
from tests.task.test_contract_of_operators import Alarm
from tests.task.test_event_time import FromSource, Noted, Timed, noting
from tests.task.topologies import edge, filter_node, plan_of, source_node, totals_node, vertex
from tidegate.task.elements import StreamStatus, TimeControl, Watermark

ACTIVE = StreamStatus(idle=False)
IDLE = StreamStatus(idle=True)


class OneIdle(FromSource):
    """Slot 0 goes on, the others are idle."""

    def __init__(self, *script: Row | TimeControl) -> None:
        super().__init__(*script)
        self.made: list[Timed] = []

    def source(self, name: str, slot: int) -> FakeSource:
        script = self._script if slot == 0 else [IDLE]
        self.made.append(Timed(script, bounded=False))
        return self.made[-1]


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_watermark_passes_subtasks_that_have_been_asked_whether_they_are_still_idle(parallelism: int) -> None:
    sources = OneIdle(Watermark(5), Watermark(9))
    rig, noted = noting(parallelism, restored=sources)
    rig.settle()
    assert Watermark(9) in noted.notes
    assert not any(one.asked_still_idle for one in sources.made), "each question is answered"


def test_a_question_is_answered_although_nothing_else_moves() -> None:
    rig, _ = noting(1, restored=FromSource(IDLE))
    rig.settle()
    slot = rig.slots[0]
    slot.inputs[0, 0].ask(1)
    rig.settle()
    assert ("StillIdle", None) in slot.trace.events
    assert len(slot.inputs[0, 0]) == 0, "and the answer has arrived"


def test_a_question_that_waits_for_its_answer_does_not_hold_up_what_else_is_to_do() -> None:
    alarm = Alarm()
    head = vertex(source_node("read", children=(1,)), filter_node("wait", edges=(0,)))
    plan = plan_of(1, [head, vertex(totals_node("total"))], [edge(0, "read", "total", "k")])
    rig = Rig(plan, operators={"wait": lambda: alarm}, restored=FromSource())
    slot = rig.slots[0]
    slot.sources["read"].take_still_idle = lambda: False  # type: ignore[method-assign]  # of this one only
    alarm.kept += [(1, 1), (1, 2)]
    slot.inputs[0, 0].ask(1)
    rig.clock.ms = 1_000_500
    assert slot.loop.tasks[0].turn(), "one more is due"


def test_a_subtask_that_cannot_say_that_it_is_still_idle_holds_the_watermark_back() -> None:
    """Its records are on their way to it, or its broker is away."""
    sources = OneIdle(Watermark(5))
    rig, noted = noting(restored=sources)
    silent = sources.made[1]
    silent.take_still_idle = lambda: False  # type: ignore[method-assign]  # of this one only
    rig.settle()
    assert silent.asked_still_idle
    assert Watermark(5) not in noted.notes
    rows = [(key, 7) for key in range(1, 6)]
    silent.script += [ACTIVE, *rows, Watermark(4)]
    rig.settle()
    assert noted.notes[-1] == Watermark(4)
    assert any(row in noted.notes for row in rows)


def test_a_vertex_that_is_asked_asks_what_it_reads_from() -> None:
    """source -> total -> last, two exchanges: the question of the last one goes up to the sources, the answer down."""
    kept: list[Noted] = []

    def make() -> Noted:
        kept.append(Noted())
        return kept[-1]

    plan = plan_of(
        2,
        [
            vertex(source_node("read", edges=(0,))),
            vertex(totals_node("total", edges=(1,))),
            vertex(totals_node("last")),
        ],
        [edge(0, "read", "total", "k"), edge(1, "total", "last", "k")],
    )
    sources = OneIdle(Watermark(5), IDLE, ACTIVE, (1, 7), IDLE)
    rig = Rig(plan, operators={"last": make, "total": Noted}, restored=sources)
    rig.settle()
    for one in kept:
        assert one.notes[-2:] == [Watermark(5), IDLE]
    sources.made[0].script += [ACTIVE, Watermark(8)]
    rig.settle()
    for one in kept:
        assert one.notes[-1] == Watermark(8)
