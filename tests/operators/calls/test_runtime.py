"""An asynchronous step as the slot loop drives it: what leaves when, what fails, and what a checkpoint holds."""

from __future__ import annotations

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.calls.manual import INPUT, ManualStep, rows_of, spec_of
from tidegate.datatypes import STRING
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.row_kinds import ROW_KIND, UPDATE_AFTER, UPDATE_BEFORE
from tidegate.ids import CheckpointId
from tidegate.operators.spec import Planned, Requirement
from tidegate.state.base import Share
from tidegate.state.errors import StateUnreadable
from tidegate.task.elements import CatchUpMarker, StreamStatus, Watermark

BOTH = pytest.mark.parametrize("ordered", [True, False])


def test_rows_leave_with_their_answers_and_their_columns() -> None:
    step = ManualStep()
    step.process(1, 2)
    assert not step.poll()
    step.caller.answer(2, 1)
    assert step.poll()
    (batch,) = step.out.batches
    assert batch.columns == ["k", "n", "text", "__tidegate_partition", "__tidegate_offset"]
    assert batch.rows() == [(0, 1, "of 1", 0, 1), (0, 2, "of 2", 0, 2)]


def test_rows_of_several_batches_leave_as_one() -> None:
    step = ManualStep(ordered=False)
    step.process(1, 2, 3)
    step.process(4, 5)
    step.caller.answer(5, 1, 3, 2)
    step.poll()
    (batch,) = step.out.batches
    assert batch["n"].to_list() == [5, 1, 3, 2]
    assert batch["text"].to_list() == ["of 5", "of 1", "of 3", "of 2"]


@BOTH
def test_long_answers_leave_in_parts_that_have_room_downstream(ordered: bool) -> None:
    """A watermark brings out a thousand rows: with long answers more than a connection takes in one frame."""
    step = ManualStep(ordered=ordered, bytes_max=250)
    step.process(*range(5))
    step.caller.answer(*range(5), answer=lambda number: {"text": str(number) * 100})
    step.runtime.on_watermark(10, step.out)
    assert [batch.height for batch in step.out.batches] == [2, 2, 1]
    assert step.left == [0, 1, 2, 3, 4, Watermark(10)]


@BOTH
def test_W26_a_watermark_brings_out_at_once_what_may_leave_and_itself(ordered: bool) -> None:
    step = ManualStep(ordered=ordered)
    step.process(1, 2)
    step.caller.answer(1, 2)
    step.runtime.on_watermark(10, step.out)
    assert step.left == [1, 2, Watermark(10)], "no poll was needed"
    step.runtime.on_watermark(20, step.out)
    assert step.left[-1] == Watermark(20), "nothing waits: it does not, either"


@BOTH
def test_W26_a_watermark_waits_for_the_rows_before_it_and_leaves_with_the_last(ordered: bool) -> None:
    step = ManualStep(ordered=ordered)
    step.process(1)
    step.runtime.on_watermark(10, step.out)
    step.process(2)
    step.caller.answer(2)
    step.poll()
    assert step.left == []
    step.caller.answer(1)
    step.poll()
    assert step.left == [1, Watermark(10)]
    step.poll()
    assert step.left == [1, Watermark(10), 2]


def test_a_status_keeps_its_place_among_the_rows() -> None:
    step = ManualStep()
    step.process(1)
    step.runtime.on_status(True, step.out)
    assert step.left == []
    step.caller.answer(1)
    step.poll()
    assert step.left == [1, StreamStatus(idle=True)]


@BOTH
def test_a_step_has_caught_up_when_the_rows_before_have_left_whatever_comes_after(ordered: bool) -> None:
    step = ManualStep(ordered=ordered)
    step.process(1)
    for time_ms in range(5):
        step.runtime.on_watermark(time_ms, step.out)
        step.runtime.on_status(True, step.out)
        step.runtime.on_status(False, step.out)
    step.runtime.on_caught_up(step.out)
    step.runtime.on_watermark(9, step.out)
    step.process(2)
    step.caller.answer(2)
    step.poll()
    assert step.left == []
    step.caller.answer(1)
    while step.poll():
        pass
    assert [one for one in step.left if not isinstance(one, StreamStatus)] == [
        1,
        Watermark(4),
        CatchUpMarker(),
        Watermark(9),
        2,
    ]


@BOTH
def test_W27_a_full_step_has_no_room_and_drops_nothing(ordered: bool) -> None:
    step = ManualStep(ordered=ordered, capacity=3)
    step.process(1, 2)
    assert step.runtime.room == 1
    step.process(3, 4, 5)
    assert step.runtime.room == 0
    assert step.caller.order == [1, 2, 3], "no more than the capacity are asked for at a time"
    for number in (1, 2, 3, 4, 5):
        step.caller.answer(number)
        step.poll()
    assert step.left == [1, 2, 3, 4, 5]
    assert step.runtime.room == 3


@BOTH
def test_W28_one_batch_leaves_a_turn(ordered: bool) -> None:
    step = ManualStep(ordered=ordered)
    step.process(*range(10))
    step.caller.answer(*range(10))
    turns = []
    while step.poll(rows_max=4):
        turns.append(len(step.left))
    assert turns == [4, 8, 10]


def test_rows_without_an_answer_fail_by_themselves() -> None:
    step = ManualStep()
    step.process(1, 2, 3)
    step.caller.fail(2, FailureKind.CALL_TIMED_OUT)
    step.caller.answer(1, 3)
    step.poll()
    assert step.left == [1, 3]
    assert step.out.failures == [RecordFailure(1, FailureKind.CALL_TIMED_OUT, "it is down")]


def test_answers_that_do_not_fit_are_failures_with_column_value_and_remedy() -> None:
    answers: dict[int, object] = {1: {"text": 7}, 2: "of 2", 3: {}, 4: None, 5: {"text": "5", "more": 1}}
    step = ManualStep()
    step.process(*answers)
    step.caller.answer(*answers, answer=answers.__getitem__)
    step.poll()
    (batch,) = step.out.batches
    assert batch.select("n", "text").rows() == [(4, None), (5, "5")]
    name, seen = "tests.operators.calls.manual:resolve", "(Expected `string | null`, got `integer`)"
    remedy = "return a value of that type, or change `output`"
    assert [(one.row, one.kind, one.message) for one in step.out.failures] == [
        (
            0,
            FailureKind.WRONG_TYPE,
            f"`text` of the answer of {name} is string, and 7 is not {seen}: {remedy}",
        ),
        (1, FailureKind.WRONG_TYPE, f"{name} returned 'of 2': return a dict, or None for NULLs"),
        (
            2,
            FailureKind.WRONG_TYPE,
            f"the answer of {name} has no `text`: give every column, None for NULL",
        ),
    ]


def test_an_answer_that_nobody_reads_is_checked_all_the_same() -> None:
    step = ManualStep(output=INPUT)
    step.process(1, 2)
    step.caller.answer(1, answer=lambda number: {"text": number})
    step.caller.answer(2)
    step.poll()
    assert [batch.columns for batch in step.out.batches] == [["k", "n", "__tidegate_partition", "__tidegate_offset"]]
    assert [one.row for one in step.out.failures] == [0]


# -- checkpoints -------------------------------------------------------------------------------------------------------


def capture(step: ManualStep) -> list[bytes]:
    """Its part of a checkpoint, as the slot loop takes it."""
    step.runtime.before_snapshot()
    (state,) = step.runtime.states.values()
    taken = state.capture(CheckpointId(1), full=True)
    return [] if taken.encode is None else list(taken.encode())


def restore(step: ManualStep, files: list[bytes], subtask: int = 0, parallelism: int = 1) -> ManualStep:
    (state,) = step.runtime.states.values()
    state.restore(files, Share(range(128), subtask, parallelism))
    return step


@BOTH
def test_what_is_in_flight_is_called_again_after_a_restore_before_anything_new(ordered: bool) -> None:
    step = ManualStep(ordered=ordered)
    step.process(1, 2, 3, 4)
    step.caller.answer(1, 3)
    step.poll()
    left = step.left
    again = restore(ManualStep(ordered=ordered), capture(step))
    assert not again.runtime.settled
    again.process(5)
    in_flight = [number for number in (1, 2, 3, 4) if number not in left]
    assert again.caller.order == [*in_flight, 5]
    again.caller.answer(*again.caller.order)
    again.poll()
    assert again.left == [*in_flight, 5]
    assert again.out.batches[0].columns == ["k", "n", "text", "__tidegate_partition", "__tidegate_offset"]
    assert again.out.batches[0]["__tidegate_offset"].to_list() == [*in_flight, 5]
    assert again.runtime.settled


def test_restored_rows_are_asked_for_without_anything_new() -> None:
    step = ManualStep()
    step.process(1)
    again = restore(ManualStep(), capture(step))
    assert again.poll()
    assert again.caller.order == [1]


def test_restored_rows_are_in_the_next_checkpoint_although_no_turn_came_between() -> None:
    step = ManualStep()
    step.process(1, 2)
    again = restore(ManualStep(), capture(step))
    third = restore(ManualStep(), capture(again))
    third.poll()
    assert third.caller.order == [1, 2]


def test_more_restored_rows_than_the_capacity_wait_for_their_turn() -> None:
    step = ManualStep(capacity=5)
    step.process(1, 2, 3, 4, 5)
    again = restore(ManualStep(capacity=2), capture(step))
    again.poll()
    assert (again.caller.order, again.runtime.room) == ([1, 2], 0)
    assert again.runtime.gauges == {"calls": 2}
    again.caller.answer(1)
    again.poll()
    assert again.caller.order == [1, 2, 3]


def test_a_step_that_has_caught_up_has_an_empty_checkpoint() -> None:
    step = ManualStep()
    step.process(1)
    full = capture(step)
    step.caller.answer(1)
    step.poll()
    assert step.runtime.settled
    assert capture(step) == [], "the step may be removed"
    assert restore(ManualStep(), full).poll()


@given(parallelism=st.integers(1, 5), new=st.integers(1, 5), counts=st.lists(st.integers(0, 4), min_size=5, max_size=5))
def test_rows_in_flight_stay_with_their_subtask_or_move_together(parallelism: int, new: int, counts: list[int]) -> None:
    files: list[bytes] = []
    held: list[list[int]] = []
    for subtask in range(parallelism):
        numbers = [100 * subtask + row for row in range(counts[subtask])]
        step = ManualStep(subtask=subtask, parallelism=parallelism)
        step.process(*numbers)
        files += capture(step)
        held.append(numbers)
    found: list[list[int]] = []
    for subtask in range(new):
        again = ManualStep(subtask=subtask, parallelism=new)
        restore(again, files, subtask, new).poll()
        found.append(again.caller.order)
    expected = [[number for own in held[subtask::new] for number in own] for subtask in range(new)]
    assert found == expected
    if new == parallelism:
        assert found == held


def test_rows_in_flight_that_lack_a_column_are_refused() -> None:
    step = ManualStep()
    step.process(1)
    other = ManualStep()
    spec = spec_of()
    other.runtime._operator = msgspec.structs.replace(spec, input=(*spec.input, ("city", STRING)))
    with pytest.raises(StateUnreadable, match="1 rows in flight of look have no column city string"):
        restore(other, capture(step)).poll()


def test_rows_in_flight_without_event_time_are_refused_where_a_step_downstream_needs_it_now() -> None:
    step, other = ManualStep(), ManualStep()
    step.process(1)
    other.runtime._operator = msgspec.structs.replace(spec_of(), planned=Planned(carries=(Requirement.EVENT_TIME,)))
    with pytest.raises(StateUnreadable, match="1 rows in flight of look have no event time"):
        restore(other, capture(step)).poll()


@pytest.mark.parametrize(
    ("held", "changes", "reason"),
    [
        (None, True, "1 rows in flight of look have no row kind"),
        (None, None, ""),  # of another source in a union, or with totals next to the step only
        (UPDATE_BEFORE, False, "1 rows in flight of look contain retractions"),
        (UPDATE_BEFORE, None, ""),
        (UPDATE_BEFORE, True, ""),
        (UPDATE_AFTER, False, ""),  # a row like any other
    ],
)
def test_rows_in_flight_are_refused_where_others_take_rows_back_now(
    held: int | None, changes: bool | None, reason: str
) -> None:
    step, other = ManualStep(), ManualStep()
    rows = rows_of([1])
    step.runtime.process(0, rows if held is None else rows.with_columns(pl.lit(held).alias(ROW_KIND)), step.out)
    planned = Planned(carries=(Requirement.ROW_KIND,) if changes else (), some_kinds=changes is not False)
    other.runtime._operator = msgspec.structs.replace(spec_of(), planned=planned)
    again = restore(other, capture(step))
    if reason:
        with pytest.raises(StateUnreadable, match=reason):
            again.poll()
    else:
        assert again.poll()


def test_rows_with_and_without_a_column_of_the_engine_leave_in_parts() -> None:
    step = ManualStep()
    step.process(1)
    step.runtime.process(0, rows_of([2]).with_columns(pl.lit(5).alias("__tidegate_time")), step.out)
    step.caller.answer(1, 2)
    step.poll()
    assert step.left == [1, 2]
    assert [batch.columns[3:] for batch in step.out.batches] == [
        ["__tidegate_partition", "__tidegate_offset"],
        ["__tidegate_partition", "__tidegate_offset", "__tidegate_time"],
    ]


def test_closing_closes_the_calls() -> None:
    step = ManualStep()
    step.process(1)
    step.runtime.close()
    assert step.caller.closed
