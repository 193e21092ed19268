"""Input channels, credits, local and remote outputs (contract C35, F05, F14)."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.task.frames import batch_of, ipc_bytes, numbers
from tidegate.ids import CheckpointId
from tidegate.task.channels import CREDIT_BYTES, QUEUE_BYTES_MAX, InputChannel, LocalOutput, OutputChannel, RemoteOutput
from tidegate.task.elements import Barrier, Batch, CancelMarker, Element
from tidegate.task.wire import Frame, FrameKind, SequenceCheck, decode_element

BARRIER = Barrier(CheckpointId(1), 0)
ROWS_OF_300_KB = 37_500


def big_batch(tag: int = 0) -> Batch:
    """About 300 KB."""
    return batch_of(numbers(*range(tag, tag + ROWS_OF_300_KB)))


class Link:
    """A remote output, a connection in flight, an input channel; nothing moves by itself."""

    def __init__(self) -> None:
        self.output = RemoteOutput(0)
        self.input = InputChannel()
        self.in_flight: deque[Frame] = deque()
        self.sent_bytes = 0
        self.granted_bytes = CREDIT_BYTES
        self.sequence = SequenceCheck()

    def send(self) -> bool:
        taken = self.output.take()
        if taken is None:
            return False
        kind, sequence, body = taken
        if kind is FrameKind.BATCH:
            assert self.sent_bytes < self.granted_bytes, "sent without credit"
            self.sent_bytes += len(body)
        self.in_flight.append(Frame(kind, 0, sequence, body))
        return True

    def receive(self) -> bool:
        if not self.in_flight:
            return False
        frame = self.in_flight.popleft()
        self.sequence.check(frame)
        self.input.push(decode_element(frame))
        return True

    def grant(self) -> bool:
        credit = self.input.take_credit()
        if credit:
            self.granted_bytes += credit
            self.output.grant(credit)
        return credit > 0


def same(first: Element, second: Element) -> bool:
    if isinstance(first, Batch) and isinstance(second, Batch):
        return ipc_bytes(first.frame) == ipc_bytes(second.frame)
    return not isinstance(first, Batch) and first == second


# -- the receiving end -------------------------------------------------------------------------------------------------


def test_F05_elements_come_out_in_the_order_in_which_they_came() -> None:
    channel = InputChannel()
    elements: list[Element] = [batch_of(numbers(1)), BARRIER, batch_of(numbers(2)), CancelMarker(CheckpointId(3))]
    for element in elements:
        channel.push(element)
    assert (channel.head, len(channel)) == (elements[0], 4)
    assert [channel.pop() for _ in elements] == elements
    assert len(channel) == 0


def test_queued_bytes_count_what_waits() -> None:
    channel = InputChannel()
    channel.push(Batch(numbers(1), 100))
    channel.push(BARRIER)
    channel.push(Batch(numbers(2), 50))
    sizes = [channel.queued_bytes]
    for _ in range(3):
        channel.pop()
        sizes.append(channel.queued_bytes)
    assert sizes == [150, 50, 50, 0]


def test_credit_is_granted_anew_from_a_quarter_on() -> None:
    channel = InputChannel()
    quarter = CREDIT_BYTES // 4
    for size in (quarter - 1, 1):
        channel.push(Batch(numbers(1), size))
    channel.pop()
    assert channel.take_credit() == 0
    channel.pop()
    assert [channel.take_credit(), channel.take_credit()] == [quarter, 0]
    channel.push(Batch(numbers(1), quarter - 1))
    channel.pop()
    assert channel.take_credit() == 0, "what was granted is not granted again"


@pytest.mark.parametrize("size", [5, 1000])
def test_a_batch_taken_in_parts_loses_no_row_and_no_credit(size: int) -> None:
    channel = InputChannel()
    channel.push(Batch(numbers(*range(7)), size))
    channel.push(BARRIER)
    parts = [channel.pop(3), channel.pop(3), channel.pop(3)]
    assert [part.frame["n"].to_list() for part in parts if isinstance(part, Batch)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert sum(part.size_bytes for part in parts if isinstance(part, Batch)) == size
    assert (channel.queued_bytes, channel.pop(3)) == (0, BARRIER)


def test_what_only_waits_gives_no_credit() -> None:
    channel = InputChannel()
    channel.push(Batch(numbers(1), CREDIT_BYTES))
    assert channel.take_credit() == 0


# -- the sending end ---------------------------------------------------------------------------------------------------


def test_frames_of_an_output_are_numbered_from_zero() -> None:
    output = RemoteOutput(4)
    for element in (batch_of(numbers(1)), BARRIER, batch_of(numbers(2))):
        output.emit(element)
    taken = [output.take() for _ in range(4)]
    assert [item and (item[0], item[1]) for item in taken] == [
        (FrameKind.BATCH, 0),
        (FrameKind.CONTROL, 1),
        (FrameKind.BATCH, 2),
        None,
    ]


def test_a_sender_without_credit_waits_until_it_is_granted_some() -> None:
    link = Link()
    for tag in range(12):
        link.output.emit(big_batch(tag))
    while link.send():
        pass
    assert link.output.queued_bytes > 0
    assert link.sent_bytes >= link.granted_bytes
    link.output.grant(link.sent_bytes)
    assert link.output.take() is not None


def test_credit_that_is_granted_in_parts_adds_up() -> None:
    output = RemoteOutput(0, credit_bytes=1)
    for tag in range(2):
        output.emit(batch_of(numbers(tag)))
    first = output.take()
    assert first is not None
    overdraft = len(first[2]) - 1
    output.grant(overdraft)
    assert output.take() is None
    output.grant(1)
    assert output.take() is not None


def test_a_sender_exceeds_its_credit_by_less_than_one_frame() -> None:
    link = Link()
    for tag in range(20):
        link.output.emit(big_batch(tag))
    sizes = []
    while link.send():
        sizes.append(len(link.in_flight[-1].body))
    assert CREDIT_BYTES <= sum(sizes) < CREDIT_BYTES + max(sizes)


def test_a_frame_larger_than_the_whole_credit_passes() -> None:
    link = Link()
    link.output.emit(batch_of(numbers(*range(CREDIT_BYTES // 4))))
    link.output.emit(BARRIER)
    assert link.send()
    assert link.sent_bytes > CREDIT_BYTES
    assert link.send()
    assert link.receive()
    link.input.pop()
    assert link.grant()


def test_control_elements_cost_no_credit_but_keep_their_place() -> None:
    link = Link()
    for tag in range(12):
        link.output.emit(big_batch(tag))
    link.output.emit(BARRIER)
    while link.send():
        pass
    assert all(frame.kind is FrameKind.BATCH for frame in link.in_flight), "the barrier overtook data"
    spent = RemoteOutput(0)
    spent.emit(batch_of(numbers(*range(CREDIT_BYTES // 4))))
    spent.emit(BARRIER)
    spent.emit(batch_of(numbers(1)))
    taken = [spent.take() for _ in range(3)]
    assert [item and item[0] for item in taken] == [FrameKind.BATCH, FrameKind.CONTROL, None]


def emitted_until_full(output: OutputChannel) -> int:
    """Batches that went in before the output stopped being writable."""
    for count in range(20):
        if not output.writable:
            return count
        output.emit(big_batch())
    raise AssertionError("takes everything")


def test_a_remote_output_with_much_waiting_takes_no_more_input() -> None:
    output = RemoteOutput(0)
    assert emitted_until_full(output) == 4
    assert output.queued_bytes >= QUEUE_BYTES_MAX
    output.take()
    assert output.writable


def test_a_local_output_whose_receiver_lags_takes_no_more_input() -> None:
    channel = InputChannel()
    output = LocalOutput(channel)
    assert emitted_until_full(output) == 7
    assert channel.queued_bytes >= CREDIT_BYTES
    channel.pop()
    assert output.writable


@pytest.mark.parametrize("remote", [False, True])
def test_local_and_remote_outputs_deliver_the_same_elements(remote: bool) -> None:
    link = Link()
    output: OutputChannel = link.output if remote else LocalOutput(link.input)
    elements: list[Element] = [
        batch_of(numbers(1, 2)),
        BARRIER,
        CancelMarker(CheckpointId(2)),
        batch_of(numbers()),
        batch_of(numbers(3)),
        CancelMarker(CheckpointId(3)),
    ]
    for element in elements:
        output.emit(element)
    while link.send():
        link.receive()
    assert len(link.input) == len(elements)
    assert all(same(link.input.pop(), element) for element in elements)


# -- interleavings -----------------------------------------------------------------------------------------------------


def test_C35_a_blocked_channel_goes_on_receiving_up_to_its_credit() -> None:
    link = Link()
    for tag in range(12):
        link.output.emit(big_batch(tag))
    while link.send():
        pass
    while link.receive():
        pass
    assert link.input.queued_bytes >= CREDIT_BYTES
    assert len(link.input) > 1


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 10, 20_000, 60_000, 300_000]), min_size=1, max_size=30),
    turns=st.lists(st.sampled_from(["emit", "send", "receive", "consume", "grant"]), max_size=150),
)
def test_credits_never_deadlock_and_nothing_is_lost_under_any_interleaving(sizes: list[int], turns: list[str]) -> None:
    link = Link()
    waiting = deque(
        [element for n in sizes for element in (batch_of(numbers(*range(n))), Barrier(CheckpointId(n + 1), 0))]
    )
    expected = list(waiting)
    consumed: list[Element] = []

    def step(turn: str) -> bool:
        if turn == "emit":
            if waiting and link.output.writable:
                link.output.emit(waiting.popleft())
                return True
            return False
        if turn == "consume":
            if len(link.input):
                consumed.append(link.input.pop())
                return True
            return False
        return {"send": link.send, "receive": link.receive, "grant": link.grant}[turn]()

    for turn in turns:
        step(turn)
    while len(consumed) < len(expected):
        progress = [step(turn) for turn in ("emit", "send", "receive", "consume", "grant")]
        assert any(progress), "deadlock"
    assert all(same(got, sent) for got, sent in zip(consumed, expected, strict=True))
