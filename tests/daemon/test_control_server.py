"""Control connections over real sockets: who is admitted, who is lost, and what a slot does without its daemon."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest

from tests.support.certificates import make_channel_key
from tidegate import __version__
from tidegate.daemon.control_server import LOOP_STUCK_MS, ControlServer, Listener, SlotConnection, SlotLost
from tidegate.errors import AttemptFailed
from tidegate.ids import Attempt, CheckpointId, SlotIndex
from tidegate.slot.channel_sockets import accepting_context, dialling_context
from tidegate.slot.control_link import LEASE_EXIT_CODE, ControlLink, ControlLost
from tidegate.task.messages import (
    LENGTH,
    Completed,
    DriverMessage,
    Heartbeat,
    Hello,
    Ping,
    Running,
    SlotMessage,
    Stop,
    Stopped,
    decode_driver_message,
    encode_message,
)
from tidegate.task.report import SlotReport

ATTEMPT = Attempt(7)
TOKEN = "right"
INTERVAL_S = 0.05
TIMEOUT_S = 0.3
DEADLINE_S = 60.0


def hello(attempt: int = ATTEMPT, token: str = TOKEN, version: str = __version__) -> Hello:
    return Hello(Attempt(attempt), token, 0, 4711, "127.0.0.1", 1, version, "3.11")


class Heard:
    """What the server reported."""

    def __init__(self) -> None:
        self.slots: list[SlotConnection] = []
        self.messages: list[SlotMessage] = []
        self.lost: list[SlotLost] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.changed = asyncio.Event()

    def listener(self) -> Listener:
        return Listener(
            lambda slot: self._note(self.slots, slot),
            lambda _, message: self._note(self.messages, message),
            lambda error: self._note(self.lost, error),
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def _note(self, where: list[object] | object, what: object) -> None:
        assert isinstance(where, list)
        where.append(what)
        self.changed.set()


def serve(scenario: Callable[[ControlServer, Heard], Awaitable[None]], timeout_s: float = 30.0) -> None:
    async def run() -> None:
        server, heard = ControlServer("127.0.0.1", INTERVAL_S, timeout_s), Heard()
        await server.start()
        server.admit(ATTEMPT, TOKEN, heard.listener())
        try:
            await scenario(server, heard)
        finally:
            await server.stop()
            for writer in heard.writers:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    asyncio.run(run())


async def connect(
    server: ControlServer, heard: Heard, first: SlotMessage
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    heard.writers.append(writer)
    writer.write(encode_message(first))
    return reader, writer


async def read_order(reader: asyncio.StreamReader) -> DriverMessage:
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    return decode_driver_message(await reader.readexactly(length))


@pytest.mark.parametrize(
    "stranger", [hello(attempt=6), hello(token="wrong"), hello(version="0.0.0"), Running()], ids=str
)
def test_C37_a_slot_of_another_attempt_token_or_version_is_turned_away(stranger: SlotMessage) -> None:
    async def scenario(server: ControlServer, heard: Heard) -> None:
        reader, _ = await connect(server, heard, stranger)
        assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""
        assert not heard.slots

    serve(scenario)


def test_messages_of_an_admitted_slot_arrive_and_pings_go_out() -> None:
    async def scenario(server: ControlServer, heard: Heard) -> None:
        reader, writer = await connect(server, heard, hello())
        writer.write(encode_message(Running()))
        await heard.until(lambda: heard.messages == [Running()])
        assert await read_order(reader) == Ping()

    serve(scenario)


def test_a_connection_that_ends_is_a_lost_slot() -> None:
    async def scenario(server: ControlServer, heard: Heard) -> None:
        _, writer = await connect(server, heard, hello())
        await heard.until(lambda: bool(heard.slots))
        writer.close()
        await heard.until(lambda: bool(heard.lost))
        assert "process 4711" in heard.lost[0].message
        await asyncio.wait_for(server.wait_closed(heard.slots), DEADLINE_S)

    serve(scenario)


@pytest.mark.parametrize(
    "error", [AttemptFailed("sent an unexpected hello"), KeyError("a mistake of the daemon's own")]
)
def test_whatever_a_message_brings_about_ends_the_attempt_with_that_reason(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in silence, and not as a slot that is lost for a reason nobody knows."""

    async def scenario(server: ControlServer, heard: Heard) -> None:
        def refuse(_slot: SlotConnection, _message: SlotMessage) -> None:
            raise error

        listener = heard.listener()
        server.admit(ATTEMPT, TOKEN, Listener(listener.registered, refuse, listener.lost))
        _, writer = await connect(server, heard, hello())
        writer.write(encode_message(Running()))
        await heard.until(lambda: bool(heard.lost))
        (lost,) = heard.lost
        assert "process 4711" in lost.message
        assert str(error) in lost.message
        assert ("Traceback" in caplog.text) is not isinstance(error, AttemptFailed)

    serve(scenario)


def test_C41_a_connection_that_has_ended_takes_nothing_and_says_so() -> None:
    async def scenario(server: ControlServer, heard: Heard) -> None:
        _, writer = await connect(server, heard, hello())
        await heard.until(lambda: bool(heard.slots))
        (slot,) = heard.slots
        assert slot.send(Ping())
        writer.close()
        await asyncio.wait_for(slot.closed.wait(), DEADLINE_S)
        assert not slot.send(Ping())

    serve(scenario)


def test_a_slot_that_said_stopped_is_not_lost() -> None:
    async def scenario(server: ControlServer, heard: Heard) -> None:
        _, writer = await connect(server, heard, hello())
        writer.write(encode_message(Stopped()))
        await heard.until(lambda: heard.messages == [Stopped()])
        heard.slots[0].stopped = True
        writer.close()
        await asyncio.wait_for(server.wait_closed(heard.slots), DEADLINE_S)
        assert not heard.lost

    serve(scenario)


@pytest.mark.slow
def test_a_silent_slot_is_lost_after_the_timeout() -> None:
    async def scenario(server: ControlServer, heard: Heard) -> None:
        await connect(server, heard, hello())
        await heard.until(lambda: bool(heard.slots))
        heard.slots[0].index = SlotIndex(3)
        heard.slots[0].begin_watch(asyncio.get_running_loop().time())
        await heard.until(lambda: bool(heard.lost))
        assert "slot 3" in heard.lost[0].message
        assert "no heartbeat" in heard.lost[0].message

    serve(scenario, timeout_s=TIMEOUT_S)


def test_a_daemon_that_has_stood_still_itself_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGSTOP, a laptop that sleeps: whoever reads the line would look for the reason in the slot."""
    asleep_s = [0.0]
    monkeypatch.setattr("tidegate.daemon.control_server._now", lambda: asyncio.get_running_loop().time() + asleep_s[0])

    async def scenario(server: ControlServer, heard: Heard) -> None:
        reader, _ = await connect(server, heard, hello())
        await heard.until(lambda: bool(heard.slots))
        heard.slots[0].begin_watch(asyncio.get_running_loop().time())
        assert await asyncio.wait_for(read_order(reader), DEADLINE_S) == Ping()
        asleep_s[0] = 100.0
        await heard.until(lambda: bool(heard.lost))
        said = r"s; this daemon itself did not run for 1\d\d s of that time: it was paused, or its"
        assert re.search(said, str(heard.lost[0])), "longer than it slept where the machine is busy"

    serve(scenario)


@pytest.mark.slow
def test_a_slot_that_waits_for_its_deployment_may_be_silent() -> None:
    async def scenario(server: ControlServer, heard: Heard) -> None:
        reader, _ = await connect(server, heard, hello())
        await heard.until(lambda: bool(heard.slots))
        heard.slots[0].index = SlotIndex(3)
        for _ in range(2 * round(TIMEOUT_S / INTERVAL_S)):  # each is a turn of the watch, one interval after the last
            assert await asyncio.wait_for(read_order(reader), DEADLINE_S) == Ping()
        assert not heard.lost
        deployed_at = asyncio.get_running_loop().time()
        heard.slots[0].begin_watch(deployed_at)
        await heard.until(lambda: bool(heard.lost))
        assert asyncio.get_running_loop().time() > deployed_at + TIMEOUT_S, "its silence counts from its deployment on"

    serve(scenario, timeout_s=TIMEOUT_S)


def test_a_slot_whose_loop_is_stuck_is_lost_although_it_answers() -> None:
    async def scenario(server: ControlServer, heard: Heard) -> None:
        _, writer = await connect(server, heard, hello())
        writer.write(encode_message(Heartbeat(LOOP_STUCK_MS + 1, SlotReport(), {})))
        await heard.until(lambda: bool(heard.lost))
        assert "has been stuck" in heard.lost[0].message

    serve(scenario)


@pytest.mark.parametrize(
    ("user_code", "ending"),
    [
        (
            "visits (visits.py:14 in process)",
            "; at its last heartbeat it ran the code of visits (visits.py:14 in process)",
        ),
        ("", "; it ran the code of visits, scored"),
    ],
)
def test_a_lost_slot_is_reported_with_the_user_code_that_it_ran(user_code: str, ending: str) -> None:
    """That may be why the process has ended: memory, a crash of a library, `os._exit`."""

    async def scenario(server: ControlServer, heard: Heard) -> None:
        _, writer = await connect(server, heard, hello())
        await heard.until(lambda: bool(heard.slots))
        heard.slots[0].code_steps = ("visits", "scored")
        writer.write(encode_message(Heartbeat(500, SlotReport(), {}, user_code)))
        await heard.until(lambda: bool(heard.messages))
        writer.close()
        await heard.until(lambda: bool(heard.lost))
        assert heard.lost[0].message.endswith(f"was lost: its control connection ended (IncompleteReadError){ending}")

    serve(scenario)


def test_X34_with_a_key_of_the_daemon_control_connections_are_encrypted_and_others_turned_away() -> None:
    """Several orders may come in one record, which the system's readiness does not show."""
    key, orders = make_channel_key(), [Completed(ATTEMPT, CheckpointId(n), frozenset()) for n in range(1, 6)]

    async def scenario(server: ControlServer, heard: Heard) -> None:
        server.encrypt(accepting_context(key))
        reader, _ = await connect(server, heard, hello())
        await asyncio.wait_for(reader.read(), DEADLINE_S)  # in clear: until it is closed
        with pytest.raises(ControlLost, match=r"cannot be reached|no deployment|closed"):
            other = await asyncio.to_thread(dial, server.port, make_channel_key("another"))
            try:
                await asyncio.to_thread(other.exchange, hello(), 60)
            finally:
                other.close(0)
        assert not heard.slots
        link = await asyncio.to_thread(dial, server.port, key)
        exchanged = asyncio.create_task(asyncio.to_thread(link.exchange, hello(), 60))
        await heard.until(lambda: bool(heard.slots))
        heard.slots[0].send(Stop())
        for order in orders:
            heard.slots[0].send(order)
        assert await exchanged == Stop()
        link.start(lambda: Heartbeat(0, SlotReport(), {}), 0.02, 60)
        got = [await asyncio.to_thread(link.orders.get, True, DEADLINE_S) for _ in orders]
        assert got == orders
        await heard.until(lambda: len(heard.messages) > 2)
        await asyncio.to_thread(link.close, 5)

    serve(scenario)


def dial(port: int, key: str) -> ControlLink:
    return ControlLink("127.0.0.1", port, lambda: None, 60, dialling_context(key))


SLOT = """
import sys
from tidegate.slot.control_link import ControlLink
from tidegate.task.messages import Heartbeat, Hello, Stop
from tidegate.task.report import SlotReport
link = ControlLink("127.0.0.1", int(sys.argv[1]), lambda: None, 60)
order = link.exchange(Hello(7, "right", 0, 4711, "127.0.0.1", 1, sys.argv[2], "3"), 60)
assert isinstance(order, Stop), order
link.start(lambda: Heartbeat(0, SlotReport(), {}), 0.1, float(sys.argv[3]))
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "lease_s", "why"),
    [("silence", "0.5", b"nothing heard from the daemon"), ("close", "600", b"control connection lost")],
)
def test_a_slot_without_its_daemon_ends_itself(
    how: str, lease_s: str, why: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease: neither a hung nor a vanished daemon leaves a slot that goes on writing."""

    async def scenario(server: ControlServer, heard: Heard) -> None:
        command = [sys.executable, "-c", SLOT, str(server.port), __version__, lease_s]
        slot = await asyncio.to_thread(lambda: subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE))
        try:
            await heard.until(lambda: bool(heard.slots))
            heard.slots[0].send(Stop())
            await heard.until(lambda: any(isinstance(message, Heartbeat) for message in heard.messages))
            if how == "close":
                heard.slots[0].close()
            else:  # the connection stays and the slot's heartbeats are read, but there are no more pings
                monkeypatch.setattr(heard.slots[0], "send", lambda _message: None)
            code = await asyncio.wait_for(asyncio.to_thread(slot.wait), DEADLINE_S)
        finally:
            slot.kill()
            _, told = await asyncio.to_thread(slot.communicate)
        assert code == LEASE_EXIT_CODE
        assert b"exits: " + why in told

    serve(scenario)
