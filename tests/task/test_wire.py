"""Frames and the encoding of elements (contract F05 as far as the wire carries it, C34)."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import DEPTH
from tests.task.frames import ALL_TYPES, batch_of, ipc_bytes, numbers
from tidegate.errors import AttemptFailed
from tidegate.ids import CheckpointId
from tidegate.task.elements import Barrier, Batch, CancelMarker, Control
from tidegate.task.wire import (
    BODY_BYTES_MAX,
    HEADER,
    ChannelBroken,
    Frame,
    FrameKind,
    FrameReader,
    SequenceCheck,
    decode_element,
    encode_element,
    write_frame,
)


def round_trip(element: Batch | Control) -> Batch | Control:
    kind, body = encode_element(element)
    (frame,) = FrameReader().feed(b"".join(write_frame(kind, 3, 0, body)))
    return decode_element(frame)


# -- elements ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "control",
    [
        Barrier(CheckpointId(1), 0),
        Barrier(CheckpointId(2**62), 1_800_000_000_123, final=True),
        CancelMarker(CheckpointId(9)),
    ],
    ids=repr,
)
def test_C34_control_elements_survive_the_wire(control: Control) -> None:
    assert round_trip(control) == control


@pytest.mark.parametrize("name", ALL_TYPES)
def test_a_column_of_every_type_survives_the_wire(name: str) -> None:
    frame = pl.DataFrame({name: ALL_TYPES[name]()})
    received = round_trip(batch_of(frame))
    assert isinstance(received, Batch)
    assert received.frame.schema == frame.schema
    assert ipc_bytes(received.frame) == ipc_bytes(frame)


@pytest.mark.parametrize("rows", [0, 1, 2, 3])
def test_a_batch_of_all_types_survives_the_wire(rows: int) -> None:
    frame = pl.DataFrame({name: make() for name, make in ALL_TYPES.items()}).head(rows)
    received = round_trip(batch_of(frame))
    assert isinstance(received, Batch)
    assert received.frame.schema == frame.schema
    assert received.frame.rows() == frame.rows() or rows  # NaN is unequal to itself, so bytes decide below
    assert ipc_bytes(received.frame) == ipc_bytes(frame)


def test_a_sliced_and_a_chunked_frame_survive_the_wire() -> None:
    frame = pl.concat([numbers(1, 2, 3), numbers(4, 5)], rechunk=False).slice(1, 3)
    received = round_trip(batch_of(frame))
    assert isinstance(received, Batch)
    assert received.frame["n"].to_list() == [2, 3, 4]


def test_a_received_batch_weighs_what_its_body_weighed() -> None:
    kind, body = encode_element(batch_of(numbers(*range(1000))))
    received = decode_element(Frame(kind, 0, 0, body))
    assert isinstance(received, Batch)
    assert received.size_bytes == len(body)


@pytest.mark.parametrize("kind", [FrameKind.HELLO, FrameKind.CREDIT])
def test_a_frame_that_is_no_element_is_refused(kind: FrameKind) -> None:
    with pytest.raises(ChannelBroken, match=f"kind {kind.name}"):
        decode_element(Frame(kind, 0, 0, b""))


@pytest.mark.parametrize("kind", [FrameKind.BATCH, FrameKind.CONTROL])
@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x81\xa4type\xa5other", b"ARROW1\x00\x00"])
def test_a_body_that_cannot_be_decoded_breaks_the_channel(kind: FrameKind, body: bytes) -> None:
    with pytest.raises(ChannelBroken, match=f"edge 5: a {kind.name} frame"):
        decode_element(Frame(kind, 5, 0, body))


# -- frames ------------------------------------------------------------------------------------------------------------


def test_a_frame_is_a_header_of_17_bytes_and_its_body() -> None:
    header, body = write_frame(FrameKind.CONTROL, 258, 3, b"abc")
    assert header.hex(" ") == "00 00 00 03 02 00 00 01 02 00 00 00 00 00 00 00 03"
    assert body == b"abc"


FRAMES = st.lists(
    st.builds(
        Frame, st.sampled_from(FrameKind), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.binary(max_size=300)
    ),
    max_size=8,
)


@pytest.mark.slow
@settings(max_examples=70 * DEPTH, deadline=None)
@given(frames=FRAMES, cuts=st.lists(st.integers(1, 64), min_size=1, max_size=40))
def test_frames_come_out_whole_and_in_order_however_the_bytes_are_cut(frames: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(part for f in frames for part in write_frame(f.kind, f.channel, f.sequence, f.body))
    reader, received, at, turn = FrameReader(), [], 0, 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        received += list(reader.feed(memoryview(stream)[at : at + step]))
        at, turn = at + step, turn + 1
    assert received == frames


@pytest.mark.parametrize("kind", FrameKind)
def test_frames_of_every_kind_are_read(kind: FrameKind) -> None:
    (frame,) = FrameReader().feed(b"".join(write_frame(kind, 3, 4, b"body")))
    assert (frame.kind, frame.channel, frame.sequence, frame.body) == (kind, 3, 4, b"body")


def test_an_unfinished_frame_yields_nothing() -> None:
    stream = b"".join(write_frame(FrameKind.BATCH, 0, 0, b"body"))
    reader = FrameReader()
    assert [list(reader.feed(stream[i : i + 1])) for i in range(len(stream) - 1)] == [[]] * (len(stream) - 1)
    assert [frame.body for frame in reader.feed(stream[-1:])] == [b"body"]


@pytest.mark.parametrize(
    "header",
    [
        HEADER.pack(0, max(FrameKind) + 1, 0, 0),
        HEADER.pack(BODY_BYTES_MAX + 1, FrameKind.BATCH, 0, 0),
        b"GET / HTTP/1.1\r\nHost: slot\r\n",
    ],
    ids=["kind", "length", "http"],
)
def test_an_impossible_header_breaks_the_channel(header: bytes) -> None:
    with pytest.raises(ChannelBroken, match="impossible frame header"):
        list(FrameReader().feed(header))


def test_an_impossible_header_is_found_behind_good_frames() -> None:
    good = b"".join(write_frame(FrameKind.BATCH, 0, 0, b"x"))
    frames = FrameReader().feed(good + HEADER.pack(0, 200, 0, 0))
    assert next(frames).body == b"x"
    with pytest.raises(ChannelBroken, match="kind 200"):
        next(frames)


def test_a_broken_channel_ends_the_attempt_and_another_may_be_tried() -> None:
    assert issubclass(ChannelBroken, AttemptFailed)
    assert ChannelBroken.retriable


# -- sequence numbers --------------------------------------------------------------------------------------------------


def numbered(sequence: int, channel: int = 0) -> Frame:
    return Frame(FrameKind.CONTROL, channel, sequence, b"")


def test_every_channel_of_a_connection_counts_from_zero() -> None:
    check = SequenceCheck()
    for channel, sequence in [(0, 0), (4, 0), (0, 1), (0, 2), (4, 1)]:
        check.check(numbered(sequence, channel))


@pytest.mark.parametrize(("sequence", "what"), [(3, "gap"), (1, "repeat"), (0, "repeat")])
def test_a_gap_or_a_repeat_breaks_the_channel(sequence: int, what: str) -> None:
    check = SequenceCheck()
    check.check(numbered(0, channel=7))
    check.check(numbered(1, channel=7))
    with pytest.raises(ChannelBroken, match=f"{what} on edge 7: frame {sequence} where 2 was expected") as caught:
        check.check(numbered(sequence, channel=7))
    assert caught.value.fields == {"edge": 7}


def test_the_first_frame_must_be_number_zero() -> None:
    with pytest.raises(ChannelBroken, match="gap"):
        SequenceCheck().check(numbered(1))


# -- barriers of three kinds -------------------------------------------------------------------------------------------

GOLDEN_BARRIER = (
    b"\x86\xa4type\xa7barrier\xaacheckpoint\x07\xactimestamp_ms\xcd\x03\xe8\xa5final\xc2\xb2unaligned_after_ms"
)


@pytest.mark.parametrize(("after_ms", "ending"), [(None, b"\xc0"), (0, b"\x00"), (5000, b"\xcd\x13\x88")])
def test_B48_a_barrier_says_on_the_wire_whether_and_when_it_overtakes(after_ms: int | None, ending: bytes) -> None:
    barrier = Barrier(CheckpointId(7), 1000, unaligned_after_ms=after_ms)
    assert encode_element(barrier) == (FrameKind.CONTROL, GOLDEN_BARRIER + ending + b"\xa9savepoint\xc2")
    assert round_trip(barrier) == barrier


def test_a_barrier_without_the_field_is_aligned() -> None:
    body = GOLDEN_BARRIER.replace(b"\x86", b"\x84").removesuffix(b"\xb2unaligned_after_ms")
    assert decode_element(Frame(FrameKind.CONTROL, 0, 0, body)) == Barrier(CheckpointId(7), 1000)
