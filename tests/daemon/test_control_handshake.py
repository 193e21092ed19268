"""Strangers at the control port, over real sockets: what they may cost, and that slots come in next to them."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Awaitable, Callable

import pytest

from tests.support.descriptors import no_descriptors_left
from tests.waiting import PATIENCE_S, wait_until
from tidegate import __version__
from tidegate.daemon import control_server as control_door
from tidegate.daemon.control_server import HELLO_BYTES_MAX, ControlHandshake
from tidegate.ids import Attempt
from tidegate.task.messages import LENGTH, Hello, Running, encode_message

HELLO = Hello(Attempt(7), "right", 0, 4711, "127.0.0.1", 1, __version__, "3.11")
Scenario = Callable[[ControlHandshake, asyncio.Queue[Hello]], Awaitable[None]]


def serve(scenario: Scenario, unauthenticated_max: int = 8) -> None:
    """A door; those who have said hello are put into the queue and kept."""

    async def run() -> None:
        said: asyncio.Queue[Hello] = asyncio.Queue()
        writers: list[asyncio.StreamWriter] = []

        async def greeted(hello: Hello, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            said.put_nowait(hello)

        door = ControlHandshake("127.0.0.1", unauthenticated_max, greeted)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await scenario(door, said)
        finally:
            door.close()
            for writer in writers:
                writer.close()
            await asyncio.sleep(0)  # what was cancelled closes its sockets

    asyncio.run(run())


async def dial(door: ControlHandshake, data: bytes = b"") -> socket.socket:
    """A connection that has sent something."""
    sock = socket.socket()
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", door.port))
    await loop.sock_sendall(sock, data)
    return sock


async def is_closed(sock: socket.socket) -> bool:
    """The other end has hung up."""
    try:
        return await asyncio.get_running_loop().sock_recv(sock, 1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("length", [HELLO_BYTES_MAX + 1, 250 << 20, 0xFFFFFFFF])
def test_X31_a_stranger_that_announces_much_is_turned_away_before_it_has_sent_it(length: int) -> None:
    async def scenario(door: ControlHandshake, said: asyncio.Queue[Hello]) -> None:
        with await dial(door, LENGTH.pack(length)) as stranger:
            assert await is_closed(stranger)
        with pytest.raises(ConnectionError), await dial(door) as pushing:
            await asyncio.get_running_loop().sock_sendall(pushing, LENGTH.pack(length) + bytes(64 << 20))
        assert said.empty()

    serve(scenario)


@pytest.mark.parametrize(
    "data",
    [
        encode_message(Running()),
        LENGTH.pack(0),
        LENGTH.pack(5) + b"\xc1\xc1\xc1\xc1\xc1",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_X31_who_says_something_else_than_hello_is_turned_away(data: bytes) -> None:
    async def scenario(door: ControlHandshake, said: asyncio.Queue[Hello]) -> None:
        with await dial(door, data) as stranger:
            assert await is_closed(stranger)
        assert said.empty()

    serve(scenario)


def test_X31_a_stranger_that_says_nothing_or_only_half_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_door, "HELLO_TIMEOUT_S", 0.05)

    async def scenario(door: ControlHandshake, said: asyncio.Queue[Hello]) -> None:
        for data in (b"", LENGTH.pack(100) + b"x"):
            with await dial(door, data) as stranger:
                assert await is_closed(stranger)
        assert said.empty()

    serve(scenario)


def test_X31_strangers_are_few_at_a_time_and_a_slot_comes_in_next_to_them() -> None:
    async def scenario(door: ControlHandshake, said: asyncio.Queue[Hello]) -> None:
        strangers = [await dial(door) for _ in range(20)]
        with await dial(door, encode_message(HELLO)):
            assert await said.get() == HELLO
            for stranger in strangers[:17]:
                assert await is_closed(stranger)
        for stranger in strangers:
            stranger.close()

    serve(scenario, unauthenticated_max=4)


def test_X31_a_hundred_strangers_are_a_few_lines_of_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tidegate")

    async def scenario(door: ControlHandshake, _said: asyncio.Queue[Hello]) -> None:
        for _ in range(100):
            with await dial(door, LENGTH.pack(0)) as stranger:
                assert await is_closed(stranger)

    serve(scenario)
    (told,) = caplog.messages
    assert told == "a connection to the control port did not authenticate (DecodeError) (127.0.0.1)"


def test_X31_what_a_slot_sends_after_its_hello_is_not_lost() -> None:
    """The door reads the hello and nothing else."""

    async def run() -> None:
        read: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def greeted(_hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            read.set_result(await reader.readexactly(5))
            writer.close()

        door = ControlHandshake("127.0.0.1", 8, greeted)
        with await dial(door, encode_message(HELLO) + b"after"):
            async with asyncio.timeout(PATIENCE_S):
                assert await read == b"after"
        door.close()

    asyncio.run(run())


def test_X30_no_descriptor_left_is_waited_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(control_door, "ACCEPT_PAUSE_S", 0.01)
    caplog.set_level(logging.WARNING, "tidegate")

    async def scenario(door: ControlHandshake, said: asyncio.Queue[Hello]) -> None:
        slot = socket.socket()
        slot.setblocking(False)
        loop = asyncio.get_running_loop()
        with slot, no_descriptors_left():
            await loop.sock_connect(slot, ("127.0.0.1", door.port))
            await loop.sock_sendall(slot, encode_message(HELLO))
            await asyncio.to_thread(wait_until, lambda: bool(caplog.messages), "it is reported")
            assert said.empty()
        assert await said.get() == HELLO

    serve(scenario)
    assert caplog.messages == ["the control port cannot accept connections: Too many open files"]


def test_spoilt_greetings_open_nothing_and_a_slot_comes_in_next_to_them() -> None:
    async def scenario(door: ControlHandshake, said: asyncio.Queue[Hello]) -> None:
        dice, whole = random.Random(20261123), encode_message(HELLO)
        for _ in range(200):
            data = bytearray(whole)
            at = dice.randrange(len(data))
            match dice.randrange(3):
                case 0:
                    data[at] ^= 1 << dice.randrange(8)
                case 1:
                    del data[at:]
                case _:
                    data[at:at] = dice.randbytes(dice.randint(1, 64))
            (await dial(door, bytes(data))).close()
        slot = await dial(door, whole)
        while (await said.get()) != HELLO:
            pass  # a changed bit can be that of another greeting: who it is, and its token, is judged later
        slot.close()

    serve(scenario)
