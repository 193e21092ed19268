"""Barriers that overtake rows at the sender, and rows that a subtask records (contract B45-B49, F05, F13)."""

from __future__ import annotations

from tests.task.small_rigs import batch
from tidegate.ids import CheckpointId
from tidegate.task import channels
from tidegate.task.channels import InputChannel, LocalOutput, RemoteOutput
from tidegate.task.elements import (
    Barrier,
    Batch,
    CancelMarker,
    CatchUpMarker,
    Element,
    StillIdle,
    StreamStatus,
    Watermark,
)
from tidegate.task.wire import Frame, FrameKind, decode_element

ALIGNED, UNALIGNED = None, 0


def barrier(checkpoint: int, after_ms: int | None = UNALIGNED) -> Barrier:
    return Barrier(CheckpointId(checkpoint), 0, unaligned_after_ms=after_ms)


def output_with(*elements: Element | int) -> RemoteOutput:
    """Numbers stand for batches of one row."""
    output = RemoteOutput(0)
    for element in elements:
        output.emit(batch((1, element)) if isinstance(element, int) else element)
    return output


def named(element: Element) -> object:
    match element:
        case Batch():
            return element.frame["n"][0]
        case Barrier():
            return f"{'unaligned' if element.is_unaligned else 'barrier'} {element.checkpoint}"
        case CancelMarker():
            return f"cancel {element.checkpoint}"
        case Watermark():
            return f"watermark {element.time_ms}"
        case StreamStatus():
            return "idle" if element.idle else "active"
        case StillIdle():
            return f"still idle {element.question}"
        case CatchUpMarker():
            return "caught up"


def sent(output: RemoteOutput) -> list[object]:
    taken: list[object] = []
    while (item := output.take()) is not None:
        kind, sequence, body = item
        assert sequence == len(taken)
        taken.append(named(decode_element(Frame(kind, 0, sequence, body))))
    assert output.queued_bytes == 0
    return taken


def overtaken(output: RemoteOutput, checkpoint: int) -> list[object] | None:
    batches = output.take_overtaken(CheckpointId(checkpoint))
    if batches is None:
        return None
    assert all(batch.rows == 1 for batch in batches)
    return [named(decode_element(Frame(FrameKind.BATCH, 0, 0, batch.body))) for batch in batches]


def test_F05_an_aligned_barrier_overtakes_nothing() -> None:
    output = output_with(1, barrier(1, ALIGNED), 2)
    assert overtaken(output, 1) == []
    assert sent(output) == [1, "barrier 1", 2]


def test_an_unaligned_barrier_leaves_before_the_rows_that_wait_and_they_are_told() -> None:
    output = output_with(1, 2, barrier(1), 3)
    assert overtaken(output, 1) == [1, 2]
    assert sent(output) == ["unaligned 1", 1, 2, 3]


def test_rows_that_have_left_are_the_receivers() -> None:
    output = output_with(1, 2)
    output.take()
    output.emit(barrier(1))
    assert overtaken(output, 1) == [2]


def test_overtaken_rows_are_told_once() -> None:
    output = output_with(1, barrier(1))
    assert (overtaken(output, 1), overtaken(output, 1)) == ([1], [])


def test_an_unaligned_barrier_needs_no_credit() -> None:
    output = output_with()
    output.grant(-channels.CREDIT_BYTES)
    for element in (batch((1, 1)), barrier(1)):
        output.emit(element)
    assert sent_now(output) == ["unaligned 1"]


def sent_now(output: RemoteOutput) -> list[object]:
    taken: list[object] = []
    while (item := output.take()) is not None:
        kind, sequence, body = item
        taken.append(named(decode_element(Frame(kind, 0, sequence, body))))
    return taken


def test_barriers_never_overtake_each_other() -> None:
    output = output_with(1, barrier(1), 2, barrier(2))
    assert (overtaken(output, 1), overtaken(output, 2)) == ([1], [1, 2])
    assert sent(output) == ["unaligned 1", "unaligned 2", 1, 2]


def test_an_aligned_barrier_is_not_overtaken_and_what_waits_behind_it_is() -> None:
    output = output_with(1, barrier(1, ALIGNED), 2, barrier(2))
    assert overtaken(output, 2) == [2]
    assert sent(output) == [1, "barrier 1", "unaligned 2", 2]


def test_a_barrier_that_has_its_place_keeps_it_when_the_one_before_it_is_forgotten() -> None:
    """Rows in front of it are in nobody's recording: it must not overtake them later."""
    output = output_with(1, barrier(1, ALIGNED), 2, barrier(2))
    assert overtaken(output, 2) == [2]
    output.forget(CheckpointId(1))
    output.emit(barrier(3))
    assert (overtaken(output, 2), overtaken(output, 3)) == ([], [2])
    assert sent(output) == [1, "barrier 1", "unaligned 2", "unaligned 3", 2]


def test_a_cancellation_is_overtaken_like_a_row_but_is_none() -> None:
    output = output_with(CancelMarker(CheckpointId(1)), 1, barrier(2))
    assert overtaken(output, 2) == [1]
    assert sent(output) == ["unaligned 2", "cancel 1", 1]


def test_B48_with_a_limit_a_barrier_that_leaves_in_time_has_overtaken_nothing() -> None:
    output = output_with(1, barrier(1, 50))
    output.on_time(1000)
    assert (output.next_deadline_ms, overtaken(output, 1)) == (1050, None)
    assert sent(output) == [1, "barrier 1"]
    assert (output.next_deadline_ms, overtaken(output, 1)) == (None, [])


def test_B49_with_a_limit_a_barrier_that_waits_too_long_overtakes_and_says_so_on_the_wire() -> None:
    output = output_with(1, barrier(1, 50), 2)
    assert output.next_deadline_ms == 0
    output.on_time(1000)
    output.on_time(1049)
    assert overtaken(output, 1) is None
    output.on_time(1050)
    assert overtaken(output, 1) == [1]
    assert sent(output) == ["unaligned 1", 1, 2]


def test_an_unaligned_barrier_takes_older_ones_with_a_limit_along() -> None:
    output = output_with(1, barrier(1, 50), 2, barrier(2))
    assert (overtaken(output, 1), overtaken(output, 2)) == ([1], [1, 2])
    assert sent(output) == ["unaligned 1", "unaligned 2", 1, 2]


def test_a_barrier_that_is_due_leaves_younger_ones_their_time() -> None:
    output = output_with(1, barrier(1, 50))
    output.on_time(1000)
    output.emit(batch((1, 2)))
    output.emit(barrier(2, 50))
    output.on_time(1030)
    output.on_time(1050)
    assert (overtaken(output, 1), overtaken(output, 2)) == ([1], None)
    assert output.next_deadline_ms == 1080
    assert sent(output) == ["unaligned 1", 1, 2, "barrier 2"]


def test_a_forgotten_barrier_overtakes_nothing_and_leaves_nothing_behind() -> None:
    output = output_with(1, barrier(1, 50))
    output.on_time(1000)
    output.forget(CheckpointId(1))
    output.on_time(2000)
    assert (output.next_deadline_ms, overtaken(output, 1)) == (None, [])
    assert sent(output) == [1, "barrier 1"]


def test_a_local_barrier_takes_its_place_in_the_receivers_queue() -> None:
    channel = InputChannel()
    output = LocalOutput(channel)
    for element in (batch((1, 1)), barrier(1), batch((1, 2))):
        output.emit(element)
    assert output.take_overtaken(CheckpointId(1)) == ()
    assert [named(element) for element in channel.batches_ahead_of(CheckpointId(1))] == [1]
    assert [named(channel.pop()) for _ in range(3)] == [1, "unaligned 1", 2]


def test_B45_ahead_of_a_barrier_that_is_not_here_is_everything_up_to_a_newer_one() -> None:
    channel = InputChannel()
    for element in (batch((1, 1)), barrier(1), batch((1, 2)), barrier(3), batch((1, 3))):
        channel.push(element)
    ahead = [[named(each) for each in channel.batches_ahead_of(CheckpointId(n))] for n in (1, 2, 3, 4)]
    assert ahead == [[1], [1, 2], [1, 2], [1, 2, 3]]


def test_B47_arrivals_are_told_in_order_when_they_are_in_the_queue() -> None:
    channel = InputChannel()
    told: list[tuple[object, int]] = []
    channel.watch(lambda element: told.append((named(element), len(channel))))
    for element in (batch((1, 1)), barrier(1)):
        channel.push(element)
    assert told == [(1, 1), ("unaligned 1", 2)]


def test_B49_barriers_with_limits_overtake_one_after_the_other_and_none_is_waited_for_any_more() -> None:
    output = output_with(1, barrier(1, 10), 2, barrier(2, 100))
    output.on_time(1000)
    assert (overtaken(output, 1), output.next_deadline_ms) == (None, 1010)
    output.on_time(1010)
    assert (overtaken(output, 1), overtaken(output, 2), output.next_deadline_ms) == ([1], None, 1100)
    output.on_time(1100)
    assert (overtaken(output, 2), output.next_deadline_ms) == ([1, 2], None)
    assert sent(output) == ["unaligned 1", "unaligned 2", 1, 2]


def test_B49_a_barrier_that_has_left_in_time_has_no_deadline_any_more() -> None:
    output = output_with(barrier(1, 10))
    deadlines = [output.next_deadline_ms]
    assert sent(output) == ["barrier 1"]
    assert overtaken(output, 1) == []
    assert [*deadlines, output.next_deadline_ms] == [0, None]
