"""Data connections between slots over real sockets: two or three transports in one thread."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
from collections.abc import Callable, Iterator, Sequence

import msgspec
import polars as pl
import pytest

from tests.support.certificates import make_channel_key
from tests.support.descriptors import no_descriptors_left
from tests.waiting import wait_until
from tidegate.dev.broker.server import reserve_ports
from tidegate.errors import AttemptFailed
from tidegate.ids import Attempt, CheckpointId, SlotIndex
from tidegate.slot.channel_sockets import DataSocket, EncryptedSockets, Listening, Sockets
from tidegate.slot.transport import (
    ACCEPT_PAUSE_S,
    HELLO_BYTES_MAX,
    HELLO_TIMEOUT_S,
    SOCKETS,
    UNAUTHENTICATED_MAX,
    DataTransport,
    PeerLost,
)
from tidegate.task.channels import CREDIT_BYTES, InputChannel, RemoteOutput
from tidegate.task.elements import Barrier, Batch, CancelMarker, Element
from tidegate.task.messages import PeerAddress
from tidegate.task.wire import ChannelBroken, ChannelHello, FrameKind, write_frame

ATTEMPT = Attempt(3)
TOKEN = "of this attempt"
EDGE = 0
LOOPBACK = "127.0.0.1"


class Slot:
    """A transport with its selector and the channels of one edge to and from every other slot."""

    def __init__(self, index: int, sockets: Sockets = SOCKETS) -> None:
        self.index = index
        self.selector = selectors.DefaultSelector()
        self.transport = DataTransport(self.selector, LOOPBACK, ATTEMPT, TOKEN, sockets)
        self.inputs: dict[int, InputChannel] = {}
        self.outputs: dict[int, RemoteOutput] = {}
        self.closed = False

    @property
    def address(self) -> PeerAddress:
        return PeerAddress(LOOPBACK, self.transport.port)

    def open(self, peers: Sequence[PeerAddress], others: Sequence[int]) -> None:
        self.inputs = {other: InputChannel() for other in others}
        self.outputs = {other: RemoteOutput(EDGE) for other in others}
        self.transport.open(
            SlotIndex(self.index),
            tuple(peers),
            {(other, EDGE): channel for other, channel in self.inputs.items()},
            {other: {EDGE: output} for other, output in self.outputs.items()},
        )

    def turn(self) -> None:
        """What the slot process does between two turns of its loop."""
        self.transport.pump()
        for key, mask in self.selector.select(0):
            key.data(mask)

    def turn_until(self, condition: Callable[[], bool], what: str) -> None:
        def turned() -> bool:
            self.turn()
            return condition()

        wait_until(turned, what)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.transport.close()
            self.selector.close()


class Cluster:
    """Slots that are all connected with one another."""

    def __init__(self, count: int, sockets: Sockets) -> None:
        self.slots = [Slot(index, sockets) for index in range(count)]

    def open(self) -> Cluster:
        addresses = [slot.address for slot in self.slots]
        for slot in self.slots:
            slot.open(addresses, [other.index for other in self.slots if other is not slot])
        return self

    def turn_until(self, condition: Callable[[], bool], what: str) -> None:
        def turned() -> bool:
            for slot in self.slots:
                if not slot.closed:
                    slot.turn()
            return condition()

        wait_until(turned, what)

    def close(self) -> None:
        for slot in self.slots:
            slot.close()


@pytest.fixture(params=["plain", "encrypted"])
def sockets(request: pytest.FixtureRequest) -> Sockets:
    return SOCKETS if request.param == "plain" else EncryptedSockets(make_channel_key())


@pytest.fixture
def cluster(sockets: Sockets) -> Iterator[Callable[[int], Cluster]]:
    made: list[Cluster] = []

    def make(count: int) -> Cluster:
        made.append(Cluster(count, sockets))
        return made[-1].open()

    yield make
    for each in made:
        each.close()


def rows(first: int, count: int) -> Batch:
    frame = pl.DataFrame({"n": pl.int_range(first, first + count, eager=True)})
    return Batch(frame, int(frame.estimated_size()))


def drain(channel: InputChannel) -> list[int | Element]:
    """Numbers of the rows and the control elements, in order."""
    result: list[int | Element] = []
    while len(channel):
        element = channel.pop()
        result += element.frame["n"].to_list() if isinstance(element, Batch) else [element]
    return result


def hello(attempt: int = ATTEMPT, token: str = TOKEN, sender: int = 1) -> bytes:
    return b"".join(write_frame(FrameKind.HELLO, 0, 0, msgspec.json.encode(ChannelHello(attempt, token, sender))))


def frame_bytes(kind: FrameKind, channel: int, sequence: int, body: bytes = b"") -> bytes:
    return b"".join(write_frame(kind, channel, sequence, body))


# -- what moves --------------------------------------------------------------------------------------------------------


def test_elements_arrive_in_order_in_both_directions(cluster: Callable[[int], Cluster]) -> None:
    slots = (both := cluster(2)).slots
    for sender, receiver in [(0, 1), (1, 0)]:
        for element in (
            rows(sender, 2),
            Barrier(CheckpointId(1), 5),
            rows(10 + sender, 1),
            CancelMarker(CheckpointId(2)),
        ):
            slots[sender].outputs[receiver].emit(element)
    both.turn_until(lambda: len(slots[0].inputs[1]) == len(slots[1].inputs[0]) == 4, "four elements on each side")
    assert drain(slots[1].inputs[0]) == [0, 1, Barrier(CheckpointId(1), 5), 10, CancelMarker(CheckpointId(2))]
    assert drain(slots[0].inputs[1]) == [1, 2, Barrier(CheckpointId(1), 5), 11, CancelMarker(CheckpointId(2))]


def test_three_slots_keep_their_channels_apart(cluster: Callable[[int], Cluster]) -> None:
    slots = (three := cluster(3)).slots
    for slot in slots:
        for receiver, output in slot.outputs.items():
            output.emit(rows(100 * slot.index + receiver, 1))
    three.turn_until(lambda: all(len(c) for slot in slots for c in slot.inputs.values()), "a batch on every channel")
    for slot in slots:
        for sender, channel in slot.inputs.items():
            assert drain(channel) == [100 * sender + slot.index]


@pytest.mark.slow
def test_many_small_frames_keep_their_order(cluster: Callable[[int], Cluster]) -> None:
    slots = (both := cluster(2)).slots
    count = 3000
    for number in range(count):
        slots[0].outputs[1].emit(rows(number, 1))
    received: list[int | Element] = []

    def done() -> bool:
        received.extend(drain(slots[1].inputs[0]))
        return len(received) >= count

    both.turn_until(done, f"{count} frames")
    assert received == list(range(count))


@pytest.mark.slow
def test_batches_larger_than_the_credit_and_any_socket_buffer_arrive_whole(cluster: Callable[[int], Cluster]) -> None:
    slots = (both := cluster(2)).slots
    size = 1_300_000  # 10.4 MB
    for number in range(4):
        slots[0].outputs[1].emit(rows(number * size, size))
    slots[0].outputs[1].emit(CancelMarker(CheckpointId(2)))
    total = 0
    finished = False

    def done() -> bool:
        nonlocal total, finished
        while len(slots[1].inputs[0]):
            element = slots[1].inputs[0].pop()
            if isinstance(element, Batch):
                assert element.frame["n"].to_list()[:: size - 1] == [total, total + size - 1]
                total += element.frame.height
            else:
                finished = True
        return finished

    both.turn_until(done, "four large batches and what was sent after them")
    assert total == 4 * size


@pytest.mark.slow
def test_C35_credit_holds_a_sender_back_until_the_receiver_consumes(cluster: Callable[[int], Cluster]) -> None:
    slots = (both := cluster(2)).slots
    output, channel = slots[0].outputs[1], slots[1].inputs[0]
    batches = 40
    for number in range(batches):
        output.emit(rows(number * 16_000, 16_000))
    both.turn_until(lambda: channel.queued_bytes >= CREDIT_BYTES, "as much as the credit allows")
    for _ in range(20):
        for slot in slots:
            slot.turn()
    assert CREDIT_BYTES <= channel.queued_bytes < CREDIT_BYTES + 140_000
    assert output.queued_bytes > 0
    assert not output.writable
    received: list[int | Element] = []

    def done() -> bool:
        received.extend(drain(channel))
        return len(received) == batches * 16_000

    both.turn_until(done, "all rows")
    assert received == list(range(batches * 16_000))
    assert output.writable


def test_C35_a_channel_that_nobody_reads_does_not_hold_back_the_others(cluster: Callable[[int], Cluster]) -> None:
    slots = (three := cluster(3)).slots
    for number in range(25):
        slots[0].outputs[1].emit(rows(number * 16_000, 16_000))
    three.turn_until(lambda: slots[1].inputs[0].queued_bytes >= CREDIT_BYTES, "a full channel")
    slots[0].outputs[2].emit(rows(7, 1))
    slots[2].outputs[1].emit(rows(8, 1))
    three.turn_until(lambda: bool(len(slots[2].inputs[0]) and len(slots[1].inputs[2])), "rows on the other channels")
    assert drain(slots[2].inputs[0]) == [7]
    assert drain(slots[1].inputs[2]) == [8]


# -- peers that go -----------------------------------------------------------------------------------------------------


def test_a_peer_that_closes_is_lost(cluster: Callable[[int], Cluster]) -> None:
    slots = (three := cluster(3)).slots
    slots[0].outputs[1].emit(rows(1, 1))
    slots[1].outputs[0].emit(rows(1, 1))
    three.turn_until(lambda: len(slots[0].inputs[1]) == len(slots[1].inputs[0]) == 1, "acquaintance")
    slots[1].close()
    with pytest.raises(PeerLost, match="data connection to slot 1"):
        three.turn_until(lambda: False, "an error")
    assert issubclass(PeerLost, AttemptFailed)


def test_a_peer_that_is_reset_is_lost(cluster: Callable[[int], Cluster]) -> None:
    slots = (both := cluster(2)).slots
    slots[0].outputs[1].emit(rows(1, 1))
    both.turn_until(lambda: len(slots[1].inputs[0]) == 1, "acquaintance")
    for connection in slots[1].transport._connections:
        with socket.socket(fileno=os.dup(connection.sock.fileno())) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    slots[1].close()
    with pytest.raises(PeerLost, match="slot 1"):
        both.turn_until(lambda: False, "an error")


def test_a_peer_that_does_not_listen_is_lost_with_its_address() -> None:
    slot = Slot(0)
    (port,) = reserve_ports(1)
    try:
        with pytest.raises(PeerLost, match=f"slot 1 at {LOOPBACK}:{port} cannot be reached"):
            slot.open([slot.address, PeerAddress(LOOPBACK, port)], [1])
    finally:
        slot.close()


# -- strangers ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def dialled(slot: Slot) -> Iterator[socket.socket]:
    with socket.create_connection((LOOPBACK, slot.transport.port), 10) as connection:
        connection.setblocking(False)
        yield connection


def turn_until_error(slot: Slot) -> None:
    slot.turn_until(lambda: False, "an error")


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


STRANGERS = {
    "another token": hello(token="of another pipeline"),
    "an older attempt": hello(attempt=ATTEMPT - 1),
    "an older attempt that sends on": hello(attempt=ATTEMPT - 1) + frame_bytes(FrameKind.BATCH, EDGE, 0, b"rows") * 3,
    "a second hello after a wrong one": hello(token="wrong") + hello(),
    "no hello": frame_bytes(FrameKind.CONTROL, EDGE, 0, b""),
    "a hello that is none": frame_bytes(FrameKind.HELLO, 0, 0, b"{}"),
    "a hello in another language": frame_bytes(FrameKind.HELLO, 0, 0, b"\xff\xfe"),
    "a hello with a text that is none": hello(token="of another pipeline").replace(b"another", b"\xff" * 7),
    "a browser": b"GET / HTTP/1.1\r\nHost: slot\r\nAccept: */*\r\n\r\n",
    "a long story": frame_bytes(FrameKind.HELLO, 0, 0, b"x" * (1 << 20))[: HELLO_BYTES_MAX + 1],
}


@pytest.mark.parametrize("greeting", STRANGERS.values(), ids=STRANGERS)
def test_C37_a_stranger_is_refused_and_the_slot_goes_on(cluster: Callable[[int], Cluster], greeting: bytes) -> None:
    slots = (both := cluster(2)).slots
    with dialled(slots[0]) as stranger:
        stranger.sendall(greeting)
        both.turn_until(lambda: is_closed(stranger), "the stranger's connection is closed")
    slots[1].outputs[0].emit(rows(5, 1))
    both.turn_until(lambda: len(slots[0].inputs[1]) == 1, "the peer's rows")
    assert drain(slots[0].inputs[1]) == [5]


def test_a_stranger_that_hangs_up_without_a_word_is_forgotten(cluster: Callable[[int], Cluster]) -> None:
    slots = (both := cluster(2)).slots
    with dialled(slots[0]):
        both.turn_until(lambda: len(slots[0].transport._unauthenticated) == 1, "the stranger is there")
    both.turn_until(lambda: not slots[0].transport._unauthenticated, "the stranger is gone")
    assert len(slots[0].transport._connections) == 2


def test_X32_a_stranger_that_says_nothing_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    slot, now = Slot(0), [0.0]
    slot.transport._elapsed = lambda: now[0]
    try:
        with dialled(slot) as silent, dialled(slot) as slow:
            slow.sendall(hello()[:20])
            slot.turn_until(lambda: len(slot.transport._unauthenticated) == 2, "two strangers")
            now[0] = HELLO_TIMEOUT_S - 0.1
            slot.turn()
            assert len(slot.transport._unauthenticated) == 2
            now[0] = HELLO_TIMEOUT_S
            slot.turn()
            assert is_closed(silent)
            assert is_closed(slow)
    finally:
        slot.close()
    assert [text for text in caplog.messages if "refused" in text] == [
        "a data connection was refused (no hello within 10 s)"
    ], "one line for both"


@pytest.mark.slow
def test_X32_strangers_are_few_and_slots_come_in_next_to_them() -> None:
    slot = Slot(0)
    with contextlib.closing(slot), contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(dialled(slot)) for _ in range(UNAUTHENTICATED_MAX + 36)]
        late = stack.enter_context(dialled(slot))
        late.sendall(hello())
        slot.turn_until(lambda: len(slot.transport._connections) == 1, "the hello is read")
        assert len(slot.transport._unauthenticated) <= UNAUTHENTICATED_MAX
        assert all(is_closed(stranger) for stranger in strangers[:36])


def test_X34_who_has_not_the_key_is_a_stranger_whatever_else_it_knows() -> None:
    slot, other = Slot(0, EncryptedSockets(make_channel_key())), EncryptedSockets(make_channel_key("another"))
    with contextlib.closing(slot), contextlib.closing(other.connect(LOOPBACK, slot.transport.port)) as stranger:
        data, refused = [memoryview(hello())], False

        def knock() -> bool:
            nonlocal refused
            try:
                stranger.sendmsg(data)
                refused = stranger.recv(1) == b""
            except BlockingIOError:
                pass
            except OSError:
                refused = True
            return refused

        slot.turn_until(knock, "it is refused")
        assert not slot.transport._connections


def test_X32_no_descriptor_left_is_waited_out_without_turning_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    slot, now = Slot(0), [0.0]
    slot.transport._elapsed = lambda: now[0]
    try:
        with dialled(slot) as peer:
            peer.sendall(hello())
            with no_descriptors_left():
                assert len(slot.selector.select(10)) == 1
                slot.turn()
                assert slot.selector.select(0) == [], "the listener is left alone for a while"
                slot.turn()
            assert not slot.transport._connections
            now[0] = ACCEPT_PAUSE_S
            slot.turn_until(lambda: len(slot.transport._connections) == 1, "the peer is in")
    finally:
        slot.close()
    assert caplog.messages == ["a data connection cannot be accepted (Too many open files)"]


def test_X32_a_connection_that_is_gone_before_it_is_accepted_ends_nothing() -> None:
    class Aborted(Sockets):
        def accept(self, listening: Listening) -> DataSocket:
            super().accept(listening).close()
            raise ConnectionAbortedError(errno.ECONNABORTED, "aborted")

    selector = selectors.DefaultSelector()
    transport = DataTransport(selector, LOOPBACK, ATTEMPT, TOKEN, Aborted())
    with socket.create_connection((LOOPBACK, transport.port), 10):
        for key, mask in selector.select(10):
            key.data(mask)
    transport.close()
    selector.close()


BROKEN = {
    "a gap": (frame_bytes(FrameKind.CONTROL, EDGE, 1), "gap on edge 0"),
    "an edge that leads elsewhere": (frame_bytes(FrameKind.CONTROL, 9, 0), "slot 1 sends on edge 9"),
    "a spoilt body": (frame_bytes(FrameKind.CONTROL, EDGE, 0, b"\xc1"), "cannot be decoded"),
    "an impossible header": (b"\xff" * 17, "impossible frame header"),
}


@pytest.mark.parametrize(("stream", "message"), BROKEN.values(), ids=BROKEN)
def test_what_a_known_slot_cannot_have_sent_ends_the_attempt(stream: bytes, message: str) -> None:
    slot = Slot(0)
    slot.inputs = {1: InputChannel()}
    slot.transport.open(SlotIndex(0), (), {(1, EDGE): slot.inputs[1]}, {})
    try:
        with dialled(slot) as peer, pytest.raises(ChannelBroken, match=message):
            peer.sendall(hello() + stream)
            turn_until_error(slot)
    finally:
        slot.close()


def test_a_receiver_that_answers_with_anything_but_credit_breaks_the_channel() -> None:
    slot = Slot(0)
    try:
        with socket.create_server((LOOPBACK, 0)) as server:
            slot.open([slot.address, PeerAddress(LOOPBACK, server.getsockname()[1])], [1])
            peer, _ = server.accept()
            with peer, pytest.raises(ChannelBroken, match="slot 1 answered with CONTROL"):
                peer.sendall(frame_bytes(FrameKind.CONTROL, EDGE, 0))
                turn_until_error(slot)
    finally:
        slot.close()


def test_close_closes_every_socket(cluster: Callable[[int], Cluster]) -> None:
    slots = (both := cluster(2)).slots
    both.turn_until(lambda: all(len(slot.transport._connections) == 2 for slot in slots), "two connections each")
    sockets = [connection.sock for connection in slots[0].transport._connections]
    slots[0].close()
    assert [sock.fileno() for sock in sockets] == [-1, -1]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, slots[0].transport.port), 1)
