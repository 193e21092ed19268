"""Records that fail in a subtask: the pipeline stops, they are left out, or letters about them leave."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import msgspec
import polars as pl
import pytest

from tests.task.fakes import FakeFilter, Row, frame_of, overflow
from tests.task.rig import Rig
from tests.task.topologies import filter_node, plan_of, sink_node, source_node, vertex
from tidegate.formats.dead_letters import DEAD_LETTER_COLUMNS
from tidegate.formats.failures import BadRecordPolicy, FailureKind, RecordPlace
from tidegate.ids import MAIN_CLUSTER, SourceTopic, VertexId
from tidegate.operators.spec import DEAD, Operator
from tidegate.plan.graph import Edge, OutputPath
from tidegate.task.bad_records import BadRecord, DeadLetterCount, FatalRecords, TooManyDeadLetters
from tidegate.task.elements import Batch


def with_bad_records(policy: BadRecordPolicy) -> Rig:
    check = filter_node("check", policy, children=(2,))
    return Rig(
        plan_of(1, [vertex(source_node("read", children=(1,)), check, sink_node("write"))]),
        batches=lambda name, slot: [[(1, 1), (1, 2)], [(1, 3), (1, 4)]],
        operators={"check": lambda: FakeFilter(bad=[2, 3])},
    )


def fail(rig: Rig, operator: Operator, frame: pl.DataFrame) -> None:
    """The first row fails, and a barrier follows."""
    assert rig.slots[0].loop.failed_records(operator, frame, [overflow(0, 2)]) is None
    rig.trigger(1)


def test_bad_records_fail_stops_the_pipeline_with_place_and_remedy() -> None:
    rig = with_bad_records(BadRecordPolicy.FAIL)
    with pytest.raises(
        BadRecord, match="step check: record of its source, partition 0, offset 1: ARITHMETIC_OVERFLOW: of 2"
    ) as caught:
        rig.settle()
    assert "bad_records: skip" in caught.value.message
    assert not caught.value.retriable


def test_bad_records_skip_leaves_them_out_and_counts_them_by_kind() -> None:
    rig = with_bad_records(BadRecordPolicy.SKIP)
    rig.settle()
    slot = rig.slots[0]
    assert slot.sinks["write"].open == [(1, 1), (1, 4)]
    assert slot.loop.counters.bad_records == {("check", FailureKind.ARITHMETIC_OVERFLOW): 2}
    assert [count for _, count in slot.bad] == [1, 2]
    assert "step check" in slot.bad[1][0]
    assert "offset 2" in slot.bad[1][0]


def test_a_bad_row_that_was_in_flight_before_anything_could_fail_is_told_without_a_place() -> None:
    """A checkpoint of the former definition has its rows without partition and offset."""
    rig = with_bad_records(BadRecordPolicy.FAIL)
    operator = rig.plan.vertices[0].nodes[1].operator
    with pytest.raises(
        BadRecord, match=r"record of its source, partition and offset unknown \(.*: ARITHMETIC_OVERFLOW: of 2; "
    ):
        fail(rig, operator, frame_of([(1, 2)]))


def test_a_bad_row_of_one_of_several_topics_is_told_with_its_own() -> None:
    rig = with_bad_records(BadRecordPolicy.FAIL)
    operator = rig.plan.vertices[0].nodes[1].operator
    loop = rig.slots[0].loop
    loop.origins = {operator.name: tuple(SourceTopic(MAIN_CLUSTER, name) for name in ("orders", "returns"))}
    frame = frame_of([(1, 2)])
    with pytest.raises(BadRecord, match="step check: record of orders or returns, partition"):
        fail(rig, operator, frame)
    rig = with_bad_records(BadRecordPolicy.FAIL)
    topic = pl.Series("__tidegate_topic", ["returns"])
    with pytest.raises(BadRecord, match="step check: record of returns, partition"):
        fail(rig, operator, frame.with_columns(topic))


@pytest.mark.parametrize(
    ("end_ms", "told"),
    [
        (1_767_225_600_000, "2026-01-01T00:00:00.000Z"),
        (10**15, "1000000000000000 ms since 1970"),
        (None, "None"),
    ],
)
def test_a_bad_result_of_several_records_is_told_with_the_end_of_its_window(end_ms: int | None, told: str) -> None:
    rig = with_bad_records(BadRecordPolicy.FAIL)
    operator = rig.plan.vertices[0].nodes[1].operator
    end = pl.Series("window_end", [end_ms, None], pl.Int64).cast(pl.Datetime("ms", "UTC"))
    with pytest.raises(BadRecord, match=f"a result of several records: the window that ends at {told}: ARITHMETIC"):
        fail(rig, operator, frame_of([(1, 2), (1, 3)]).with_columns(end))


def test_a_window_end_that_is_no_time_any_more_is_told_as_it_is() -> None:
    rig = with_bad_records(BadRecordPolicy.FAIL)
    operator = rig.plan.vertices[0].nodes[1].operator
    frame = frame_of([(1, 2)]).with_columns(pl.Series("window_end", ["noon"]))
    with pytest.raises(BadRecord, match="the window that ends at noon: "):
        fail(rig, operator, frame)


def with_letters(*batches: list[Row]) -> Rig:
    """1 and 3 fail; letters about them go to a subtask of their own."""
    plain = filter_node("check", BadRecordPolicy.DEAD_LETTER, children=(2,))
    check = msgspec.structs.replace(plain, sides={DEAD: OutputPath(edges=(0,))})
    reader = vertex(source_node("read", children=(1,)), check, sink_node("write"))
    way = Edge(0, reader.id, VertexId("letters"), (), DEAD_LETTER_COLUMNS)
    return Rig(
        plan_of(1, [reader, vertex(filter_node("letters"))], [way]),
        batches=lambda name, slot: batches,
        operators={"check": lambda: FakeFilter(bad=[1, 3])},
    )


def test_bad_records_dead_letter_leave_as_letters_by_their_own_way_and_are_counted_twice() -> None:
    """Among the bad records of their kind, and as letters."""
    rig = with_letters([(1, 1), (1, 2), (1, 3), (1, 4)])
    slot = rig.slots[0]
    slot.loop.tasks[0].turn()
    element = slot.inputs[0, 0].pop()
    assert isinstance(element, Batch)
    assert element.frame.select("partition", "offset", "step", "kind", "message").rows() == [
        (0, 0, "check", "ARITHMETIC_OVERFLOW", "of 1"),
        (0, 2, "check", "ARITHMETIC_OVERFLOW", "of 3"),
    ]
    assert slot.sinks["write"].open == [(1, 2), (1, 4)]
    both = {("check", FailureKind.ARITHMETIC_OVERFLOW): 2}
    assert (slot.loop.counters.bad_records, slot.loop.counters.dead_letters) == (both, both)


def test_bad_records_skip_make_no_letters() -> None:
    rig = with_bad_records(BadRecordPolicy.SKIP)
    operator = rig.plan.vertices[0].nodes[1].operator
    assert rig.slots[0].loop.failed_records(operator, frame_of([(1, 2)]), [overflow(0, 2)]) is None
    assert rig.slots[0].loop.counters.dead_letters == {}


def test_more_letters_of_a_slot_than_the_limit_stop_the_pipeline_and_records_that_are_skipped_do_not() -> None:
    rig = with_bad_records(BadRecordPolicy.SKIP)
    rig.slots[0].loop.letters = DeadLetterCount(1)
    rig.settle()
    rig = with_letters([(1, 1)], [(1, 3)])
    rig.slots[0].loop.letters = DeadLetterCount(1)
    task = rig.slots[0].loop.tasks[0]
    task.turn()
    with pytest.raises(TooManyDeadLetters, match="2 ARITHMETIC_OVERFLOW in check"):
        task.turn()


def place(partition: int, offset: int, topic: str = "orders") -> RecordPlace:
    return RecordPlace(topic, partition, offset)


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_the_first_bad_record_of_the_lowest_partition_is_named_whichever_came_first(order: Sequence[int]) -> None:
    found = [(place(1, 0), "b"), (place(0, 7), "a"), (None, "w"), (place(0, 9), "c")]
    fatal = FatalRecords()
    fatal.raise_first()
    for index in order:
        fatal.add(*found[index], overflow(0, index))
    with pytest.raises(
        BadRecord, match=r"^a: ARITHMETIC_OVERFLOW: of 1; its batch has 3 more bad records; nothing"
    ) as it:
        fatal.raise_first()
    assert it.value.fields == {"place": place(0, 7)}


def test_of_a_record_that_fails_twice_the_first_failure_is_told_and_it_is_one_record() -> None:
    fatal = FatalRecords()
    fatal.add(place(0, 1), "step a", overflow(0, 1))
    fatal.add(place(0, 1), "step b", overflow(0, 2))
    with pytest.raises(BadRecord, match=r"^step a: ARITHMETIC_OVERFLOW: of 1; nothing was lost"):
        fatal.raise_first()
    fatal.add(place(0, 2), "step b", overflow(0, 2))
    with pytest.raises(BadRecord, match=r"^step a: .*; its batch has 1 more bad record; "):
        fatal.raise_first()


def test_a_record_that_fails_further_down_the_pipeline_is_named_before_a_later_one() -> None:
    """The source refuses the third record, and a step then fails for the second."""
    early = filter_node("early", children=(2,))
    late = filter_node("late", children=(3,))
    rig = Rig(
        plan_of(1, [vertex(source_node("read", children=(1,)), early, late, sink_node("write"))]),
        batches=lambda name, slot: [[(1, 1), (1, 2), (1, 3), (1, 4)]],
        operators={"early": lambda: FakeFilter(bad=[3, 4]), "late": lambda: FakeFilter(bad=[2])},
    )
    with pytest.raises(BadRecord, match=r"step late: .* offset 1: .*; its batch has 2 more bad records; "):
        rig.settle()
    assert rig.slots[0].sinks["write"].open == [(1, 1)]  # not handed to a client: see SlotLoop.turn


def test_no_checkpoint_holds_a_batch_with_a_record_that_ends_the_pipeline() -> None:
    rig = with_bad_records(BadRecordPolicy.FAIL)
    rig.slots[0].loop.tasks[0].turn()
    with pytest.raises(BadRecord, match="offset 1"):
        rig.trigger(1)
    assert (rig.slots[0].sent, rig.slots[0].jobs) == ([], [])
