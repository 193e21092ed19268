"""The daemon's end of the control connections: an asyncio server that admits the slots of the running attempt.

It pings every slot (which renews the slot's lease), listens for heartbeats, and reports a slot as lost when its
connection ends, its process falls silent behind its deployment, or its loop stops turning. Spark notices none of the
last two.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from tidegate import __version__
from tidegate.errors import AttemptFailed
from tidegate.ids import Attempt, SlotIndex
from tidegate.task.messages import (
    LENGTH,
    MESSAGE_BYTES_MAX,
    DriverMessage,
    Heartbeat,
    Hello,
    Ping,
    SlotMessage,
    decode_slot_message,
    encode_message,
)

logger = logging.getLogger(__name__)

HELLO_TIMEOUT_S: Final = 10.0
LOOP_STUCK_MS: Final = 120_000
"""A loop that has not turned for this long is stuck in an operator, even though its process answers."""


class SlotLost(AttemptFailed):
    """A slot's process is gone, silent or stuck."""

    code = "slot-lost"


class SlotConnection:
    """One admitted slot."""

    def __init__(self, hello: Hello, writer: asyncio.StreamWriter) -> None:
        self.hello = hello
        self.index: SlotIndex | None = None
        self.heard_at: float | None = None
        """None: it waits for its deployment and sends nothing."""
        self.stopped = False
        self.closed = asyncio.Event()
        """The connection has ended: the process is gone or about to be."""
        self._writer = writer

    def __str__(self) -> str:
        index = "?" if self.index is None else self.index
        return f"slot {index} (process {self.hello.process} on {self.hello.host})"

    def send(self, message: DriverMessage) -> bool:
        """Queue a message. False for a connection that ends or has ended, which is reported separately."""
        if self._writer.is_closing():
            return False
        self._writer.write(encode_message(message))
        return True

    def begin_watch(self, now: float) -> None:
        """It has been deployed, so from now on it sends heartbeats."""
        self.heard_at = now

    def close(self) -> None:
        """End the connection."""
        self._writer.close()


class Listener:
    """What the server reports, as callbacks of the running attempt."""

    def __init__(
        self,
        registered: Callable[[SlotConnection], None],
        message: Callable[[SlotConnection, SlotMessage], None],
        lost: Callable[[SlotLost], None],
    ) -> None:
        self.registered = registered
        self.message = message
        self.lost = lost


class ControlServer:
    """Serves one attempt at a time; slots of any other attempt are turned away."""

    def __init__(self, host: str, interval_s: float, timeout_s: float) -> None:
        self._host = host
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._server: asyncio.Server | None = None
        self._attempt: Attempt | None = None
        self._token = ""
        self._listener: Listener | None = None
        self._slots: dict[SlotConnection, None] = {}
        """In the order in which they came."""
        self._watch: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        """Bind to a free port."""
        self._server = await asyncio.start_server(self._serve, self._host, 0, limit=1 << 20)
        self.port = self._server.sockets[0].getsockname()[1]
        self._watch = asyncio.get_running_loop().create_task(self._watch_slots())

    def admit(self, attempt: Attempt, token: str, listener: Listener) -> None:
        """From now on slots of this attempt are admitted, and only those."""
        self._attempt, self._token, self._listener = attempt, token, listener

    def dismiss(self) -> None:
        """The attempt is over: close what is left and admit nobody."""
        self._attempt, self._listener = None, None
        for slot in list(self._slots):
            slot.close()
        self._slots.clear()

    @staticmethod
    async def wait_closed(slots: Iterable[SlotConnection]) -> None:
        """Until the connections of these slots have ended."""
        for slot in slots:
            await slot.closed.wait()

    async def stop(self) -> None:
        """Close everything."""
        self.dismiss()
        if self._watch is not None:
            self._watch.cancel()
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        slot: SlotConnection | None = None
        try:
            hello = await asyncio.wait_for(_read(reader), HELLO_TIMEOUT_S)
            if not isinstance(hello, Hello) or not self._admits(hello):
                return
            slot = SlotConnection(hello, writer)
            self._slots[slot] = None
            assert self._listener is not None
            self._listener.registered(slot)
            while True:
                message = await _read(reader)
                slot.heard_at = _now()
                if slot not in self._slots:
                    return
                self._check_loop(slot, message)
                self._listener.message(slot, message)
        except (asyncio.IncompleteReadError, OSError, TimeoutError, msgspec.DecodeError) as error:
            if slot is not None:
                self._report_lost(slot, f"its control connection ended ({type(error).__name__})")
        finally:
            if slot is not None:
                slot.closed.set()
            writer.close()

    def _admits(self, hello: Hello) -> bool:
        if hello.attempt != self._attempt or hello.token != self._token:
            logger.warning("slot of attempt %s turned away: the running attempt is %s", hello.attempt, self._attempt)
            return False
        if hello.version != __version__:
            logger.error("slot on %s has tidegate %s, the daemon %s", hello.host, hello.version, __version__)
            return False
        return True

    def _check_loop(self, slot: SlotConnection, message: SlotMessage) -> None:
        if isinstance(message, Heartbeat) and message.loop_age_ms > LOOP_STUCK_MS:
            self._report_lost(slot, f"its loop has not turned for {message.loop_age_ms / 1000:.0f} s")

    def _report_lost(self, slot: SlotConnection, reason: str) -> None:
        if slot not in self._slots:
            return
        del self._slots[slot]
        if self._listener is not None and not slot.stopped:
            self._listener.lost(SlotLost(f"{slot} was lost: {reason}", slot=str(slot)))

    async def _watch_slots(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            for slot in list(self._slots):
                silent_s = 0.0 if slot.heard_at is None else _now() - slot.heard_at
                if silent_s > self._timeout_s:
                    self._report_lost(slot, f"no heartbeat for {silent_s:.1f} s")
                    slot.close()
                else:
                    slot.send(Ping())


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _read(reader: asyncio.StreamReader) -> SlotMessage:
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if length > MESSAGE_BYTES_MAX:
        raise msgspec.DecodeError(f"message of {length} bytes")
    return decode_slot_message(await reader.readexactly(length))
