"""What a slot knows of schemas, and what it asks for."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, cast

import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.support.loopback_slot import LoopParts
from tests.task.fakes import ATTEMPT, FakeSink, Trace, frame_of
from tests.task.restarts import SETTINGS
from tests.task.topologies import filter_node, plan_of, sink_node, source_node, vertex
from tidegate.clock import SYSTEM_CLOCK, SteadyClock
from tidegate.coordinator.types import SourcePositions
from tidegate.formats.failures import BadRecordPolicy, FailureKind
from tidegate.formats.schemas import SchemaKind, SchemaText, UnknownSchema
from tidegate.ids import OperatorName, SlotIndex, StateId, StateName, TopicPartition
from tidegate.operators.builtin.kafka_source import EventTime, SourceOperator
from tidegate.operators.runtime import OperatorRuntime
from tidegate.plan.graph import Node
from tidegate.plan.growth import BatchLimits
from tidegate.sinks.runtime import SinkRuntime
from tidegate.slot.deployment import ID_MAX, UNKNOWN_MAX, UNKNOWN_S, WAITING_MAX, Deployment, SlotSchemas
from tidegate.slot.parts import SlotParts
from tidegate.sources.kafka import SourceBatch
from tidegate.sources.runtime import SourceRuntime
from tidegate.sources.watermarks import SourceWatermarks
from tidegate.task.messages import Deploy, SchemaAnswer, SchemasWanted, SchemaUnfit, SlotMessage
from tidegate.task.ports import OperatorState
from tidegate.task.report import OperatorCounts, SlotReport

FIRST = SchemaText(SchemaKind.AVRO, '"int"', id=1)


class Asking:
    """A slot that has the first schema; what it asks is in `sent`."""

    def __init__(self) -> None:
        self.sent: list[SlotMessage] = []
        self.now = 0.0
        self.schemas = SlotSchemas([FIRST, SchemaText(SchemaKind.AVRO, "file")], self.sent.append, lambda: self.now)


def test_what_the_plan_has_is_there_at_once() -> None:
    one = Asking()
    assert one.schemas.get(1) is FIRST
    assert one.sent == []


def test_another_is_asked_for_once_and_there_after_the_answer() -> None:
    one = Asking()
    assert [one.schemas.get(2), one.schemas.get(2)] == [None, None]
    assert one.sent == [SchemasWanted((2,))]
    second = SchemaText(SchemaKind.AVRO, '"long"', id=2)
    one.schemas.on_answer(SchemaAnswer(2, second))
    assert one.schemas.get(2) is second
    assert len(one.sent) == 1


def test_one_that_the_registry_does_not_have_is_unknown_for_a_while() -> None:
    one = Asking()
    one.schemas.get(2)
    one.schemas.on_answer(SchemaAnswer(2, None))
    with pytest.raises(UnknownSchema, match="no schema with the id 2"):
        one.schemas.get(2)
    one.now = UNKNOWN_S
    assert one.schemas.get(2) is None
    assert one.sent == [SchemasWanted((2,))] * 2


def test_records_of_many_unknown_ids_are_judged_together_however_long_the_registry_takes() -> None:
    """A batch is decoded when nothing of it is waited for; until then its records are offered again and again."""
    one = Asking()
    batch = range(2, 20 * WAITING_MAX)

    def offer() -> int:
        waiting = 0
        for number in batch:
            with suppress(UnknownSchema):
                waiting += one.schemas.get(number) is None
        return waiting

    for _ in range(20):
        offer()
        one.now += UNKNOWN_S / 6
        offer()
        asked = one.sent.copy()
        one.sent.clear()
        for message in asked:
            assert isinstance(message, SchemasWanted)
            one.schemas.on_answer(SchemaAnswer(message.ids[0], None))
    assert offer() == 0
    one.now += UNKNOWN_S
    assert offer() == len(batch), "each is asked for again after a while, nevertheless"


def test_a_schema_that_cannot_be_read_is_reported_once() -> None:
    one = Asking()
    for number in (2, 3, 2):
        one.schemas.refuse(number, "why")
    assert one.sent == [SchemaUnfit(2, "why"), SchemaUnfit(3, "why")]


@pytest.mark.parametrize("number", [0, -1, ID_MAX + 1, 2**32 - 1])
def test_what_is_no_id_is_not_asked_for(number: int) -> None:
    one = Asking()
    with pytest.raises(UnknownSchema):
        one.schemas.get(number)
    assert one.sent == []


def test_records_that_name_any_number_of_ids_fill_no_memory() -> None:
    one = Asking()
    for number in range(2, 3 * WAITING_MAX):
        one.schemas.get(number)
    assert len(one.sent) == WAITING_MAX
    for number in range(2, UNKNOWN_MAX + 100):
        one.schemas.on_answer(SchemaAnswer(number, None))
    assert len(one.schemas._unknown) == UNKNOWN_MAX
    assert one.schemas.get(3) is None  # the oldest are asked for again


READ = OperatorName("read")
PLAN = plan_of(1, [vertex(source_node("read", children=(1,)), filter_node("pass", children=(2,)), sink_node("write"))])


class OneBatch(SourceRuntime):
    """Returns what it was given."""

    batches: list[SourceBatch]

    def take(self, rows_max: int) -> SourceBatch | None:
        return self.batches.pop() if self.batches else None


class Parts(LoopParts):
    """The source returns one batch: three rows of five records."""

    def make_source(self, spec: SourceOperator, deploy: Deploy, *arguments: Any) -> SourceRuntime:
        source = OneBatch(spec, (), SourcePositions(spec.name, ()), deploy.settings.group_id, *arguments[:2])
        source.batches = [SourceBatch(frame_of([(1, 1), (1, 2), (2, 3)]), 5, 50, [])]
        return source


class Asked(Deployment):
    """It is asked for a report between its source and the rest."""

    asked: SlotReport


def make_deployment() -> Asked:
    deploy = Deploy(ATTEMPT, SlotIndex(0), "", PLAN, (), SETTINGS, {}, (), ())
    parts = Parts(FakeStorage)
    made = Asked(deploy, SteadyClock(SYSTEM_CLOCK), lambda _message: None, lambda: None, parts)
    build_operator = made.subtasks._build_operator

    def asking(node: Node, limits: BatchLimits) -> OperatorRuntime:
        made.asked = made.reporter.report()
        return build_operator(node, limits)

    made.subtasks._build_operator = asking  # type: ignore[method-assign]  # of this one only
    sink = cast("SinkRuntime", FakeSink("write", 0, Trace()))
    made.subtasks._build_sink = lambda spec: sink  # type: ignore[method-assign]  # of this one only
    (only,) = PLAN.vertices
    made.loop.tasks.append(made.subtasks.build(only))
    return made


def test_a_slot_whose_source_has_no_subtask_yet_reports_no_operators() -> None:
    """Without a report there is no heartbeat, and the slot is taken for dead."""
    assert make_deployment().asked.operators == {}


def test_a_source_reports_records_that_the_loop_never_sees() -> None:
    made = make_deployment()
    made.loop.turn()
    made.loop.counters.bad_records[READ, FailureKind.WRONG_TYPE] = 2
    found = {name: (one.rows_in, one.rows_out, one.failed) for name, one in made.reporter.report().operators.items()}
    assert found == {"read": (5, 3, 2), "pass": (3, 3, 0), "write": (3, 3, 0)}


def test_W25_an_operator_reports_late_rows_and_what_it_holds_and_a_source_whom_it_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = make_deployment()
    (task,) = made.loop.tasks
    monkeypatch.setattr(type(task.chain.operators[1]), "late_rows", 3)
    monkeypatch.setattr(type(task.chain.operators[1]), "gauges", {"timers": 2})
    monkeypatch.setattr(OneBatch, "held_back_by", TopicPartition("in", 4))
    operators = made.reporter.report().operators
    found = {name: (one.late, one.gauges, one.held_back_by) for name, one in operators.items()}
    assert found == {"read": (0, {}, "in[4]"), "pass": (3, {"timers": 2}, ""), "write": (0, {}, "")}


def test_a_report_says_where_each_source_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_deployment()
    part = TopicPartition("in", 4)
    monkeypatch.setattr(OneBatch, "reached", {part: 7})
    assert made.reporter.report().positions == (SourcePositions(READ, ((part, 7),)),)


def test_a_report_holds_copies() -> None:
    made = make_deployment()
    before = made.reporter.report().operators
    made.loop.turn()
    assert before[READ] == OperatorCounts()


def test_a_slot_that_is_being_built_reports_while_states_are_added() -> None:
    """The control thread may be anywhere in its loops when the other one adds something."""
    made = make_deployment()
    states = made.subtasks.states

    class GrowingState:
        def __len__(self) -> int:
            states[StateId(OperatorName("count"), StateName(f"state-{len(states)}"))] = cast("OperatorState", [])
            return 3

    states[StateId(OperatorName("total"), StateName("groups"))] = cast("OperatorState", GrowingState())
    report = made.reporter.report()
    assert (report.queued_batches, report.state_keys) == (0, {"total": 3})


def test_the_log_says_whether_a_bad_record_has_a_letter_and_does_not_repeat_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for count in range(1, 101):
        SlotParts().log_bad_record(BadRecordPolicy.DEAD_LETTER, "step check: offset 7", count)
    SlotParts().log_bad_record(BadRecordPolicy.SKIP, "step check: offset 9", 1)
    assert caplog.messages == [
        *(f"dead letter: step check: offset 7 ({count} so far for this reason)" for count in (*range(1, 11), 100)),
        "skipped: step check: offset 9 (1 so far for this reason)",
    ]


def test_a_source_reports_the_watermarks_of_its_partitions_and_which_are_idle() -> None:
    made = make_deployment()
    (source,) = made.subtasks.sources
    first, second = (TopicPartition("read", number) for number in range(2))
    assert (made.reporter.report().positions, made.reporter.report().idle) == ((SourcePositions(READ, ()),), {})
    source.watermarks = SourceWatermarks(EventTime(), [first, second], {second: 7}, bounded=False)
    source.watermarks.on_caught_up(second)
    report = made.reporter.report()
    assert report.positions == (SourcePositions(READ, (), watermarks=((second, 7),)),)
    assert report.idle == {READ: (second,)}
