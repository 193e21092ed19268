"""Frames on a TCP connection between two slots: one header, then the body.

    length u32 | kind u8 | channel u32 | sequence u64 | body        (big endian; length counts the body)

`channel` is the index of an edge of the plan; sender and receiver of the connection determine which subtasks it joins.
Sequence numbers start at 0 on every channel of a connection and grow by one; a gap or a repeat is an error and is never
ignored. Credit and question frames flow the other way; their sequence number is the credit granted or the question.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

import msgspec

from tidegate.errors import UNDECODABLE, AttemptFailed
from tidegate.formats.arrow import decode_frame, encode_frame
from tidegate.task.elements import Batch, Control, Element

HEADER: Final = struct.Struct("!IBIQ")
BODY_BYTES_MAX: Final = 1 << 30
"""A longer body means that the stream is foreign or out of sync."""


class FrameKind(IntEnum):
    """The content of a frame."""

    HELLO = 0
    BATCH = 1
    CONTROL = 2
    CREDIT = 3
    QUESTION = 4


class ChannelBroken(AttemptFailed):
    """A data connection delivered something invalid: the attempt ends and another one is started."""

    code = "channel-broken"


class ChannelHello(msgspec.Struct, frozen=True):
    """First frame of a data connection: identifies the sender. Another attempt or token is rejected."""

    attempt: int
    token: str
    sender: int


class Frame(msgspec.Struct, frozen=True):
    """One frame as read from a connection."""

    kind: FrameKind
    channel: int
    sequence: int
    body: bytes


_encode_control = msgspec.msgpack.Encoder().encode
_decode_control = msgspec.msgpack.Decoder(Control).decode


class EncodedBatch(msgspec.Struct, frozen=True):
    """A batch encoded for the wire, and its number of rows."""

    body: bytes
    rows: int


def write_frame(kind: FrameKind, channel: int, sequence: int, body: bytes) -> list[bytes]:
    """Returns the parts of a frame, header first, ready for `sendmsg`."""
    return [HEADER.pack(len(body), kind, channel, sequence), body]


def encode_element(element: Element) -> tuple[FrameKind, bytes]:
    """Encodes batches as an Arrow IPC stream, control elements as msgpack."""
    if not isinstance(element, Batch):
        return FrameKind.CONTROL, _encode_control(element)
    return FrameKind.BATCH, encode_frame(element.frame)


def decode_element(frame: Frame) -> Element:
    """Decodes an element. Raises ChannelBroken for a kind that is not an element and for a corrupt body."""
    if frame.kind is FrameKind.BATCH:
        import polars as pl

        try:
            return Batch(decode_frame(frame.body), len(frame.body))
        except (pl.exceptions.PolarsError, OSError) as error:
            raise _spoilt(frame, error) from error
    if frame.kind is FrameKind.CONTROL:
        try:
            control: Control = _decode_control(frame.body)
        except UNDECODABLE as error:
            raise _spoilt(frame, error) from error
        return control
    raise ChannelBroken(f"frame of kind {frame.kind.name} where an element was expected")


def _spoilt(frame: Frame, error: Exception) -> ChannelBroken:
    what = f"a {frame.kind.name} frame of {len(frame.body)} bytes"
    return ChannelBroken(f"edge {frame.channel}: {what} cannot be decoded: {error}", edge=frame.channel)


class FrameReader:
    """A parser that cuts a byte stream into frames. Feed it what the socket returned; it keeps an incomplete frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def pending_bytes(self) -> int:
        """Size of the incomplete frame."""
        return len(self._buffer)

    def feed(self, data: bytes | memoryview) -> Iterator[Frame]:
        """Yields the complete frames. Raises ChannelBroken on an impossible header."""
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= HEADER.size:
            length, kind, channel, sequence = HEADER.unpack_from(self._buffer, at)
            if length > BODY_BYTES_MAX or kind > FrameKind.QUESTION:
                raise ChannelBroken(f"impossible frame header: kind {kind}, {length} bytes")
            end = at + HEADER.size + length
            if len(self._buffer) < end:
                break
            with memoryview(self._buffer) as whole:  # one copy instead of two: bodies are large
                body = bytes(whole[at + HEADER.size : end])
            yield Frame(FrameKind(kind), channel, sequence, body)
            at = end
        del self._buffer[:at]


class SequenceCheck:
    """A check for the sequence numbers 0, 1, 2 ... on each channel of one connection."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}

    def check(self, frame: Frame) -> None:
        """Raises ChannelBroken on a gap or a repeat."""
        expected = self._next.get(frame.channel, 0)
        if frame.sequence != expected:
            what = "repeat" if frame.sequence < expected else "gap"
            raise ChannelBroken(
                f"{what} on edge {frame.channel}: frame {frame.sequence} where {expected} was expected",
                edge=frame.channel,
            )
        self._next[frame.channel] = expected + 1
