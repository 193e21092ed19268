"""Probes the brokers once a second; reports once when none responds, and once when they respond again.

All other Kafka clients of the daemon wait, retry and log nothing for a while. Their own errors come late, or not at all
when a broker hangs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.errors import TidegateError

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
ANSWER_S: Final = 2.5
"""A broker that takes longer counts as unavailable."""
RETELL_S: Final = 10.0
"""How long after the last report another cause is reported, such as brokers that now reject the password."""


class ProbeResult(msgspec.Struct, frozen=True):
    """The result of one probe."""

    unavailable_s: float | None
    """How long ago a broker last responded, in seconds; None if one has responded to this probe."""
    why: str
    took_s: float
    """Duration of the probe so far, in seconds."""


class BrokerWatch:
    """Probes the brokers. `ask` returns when a broker responds within this many seconds, or raises.

    `tell` is called with the result of every probe.
    """

    def __init__(
        self,
        place: str,
        ask: Callable[[float], Awaitable[object]],
        tell: Callable[[ProbeResult], None],
        clock: Clock,
    ) -> None:
        self._place = place
        self._ask = ask
        self._tell = tell
        self._clock = clock
        self._answered: float | None = None
        """When a broker last responded."""
        self._since: float | None = None
        """When the current outage began; it counts from the last response."""
        self._causes: set[str] = set()
        """The causes of this outage that were reported."""
        self._told = 0.0
        self._baffled = False

    async def run(self) -> None:
        """Probes once a second until it is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Probes once."""
        asked = self._clock.monotonic()
        try:
            await self._ask(ANSWER_S)
        except TidegateError as error:
            self._on_silence(asked, error)
        except Exception:
            if not self._baffled:
                logger.exception("internal error while probing the brokers, retrying")
            self._baffled = True
        else:
            self._on_answer(asked)

    def _on_silence(self, asked: float, error: TidegateError) -> None:
        cause, now = str(error.fields.get("text", "")), self._clock.monotonic()
        if self._since is not None and cause and cause not in self._causes and now - self._told >= RETELL_S:
            self._causes.add(cause)
            self._told = now
            logger.warning("still no broker answers at %s: %s", self._place, error.message)
        if self._since is None:
            self._since, self._causes, self._told = asked if self._answered is None else self._answered, {cause}, now
            logger.warning(
                "no broker answers at %s: %s. Nothing is lost: records and checkpoints wait until a broker answers. "
                "Transactions must be committed within `checkpoints.transaction_timeout`",
                self._place,
                error.message,
            )
        why = f"no broker answers at {self._place}: {cause or error.message}"
        self._tell(ProbeResult(now - self._since, why, now - asked))

    def _on_answer(self, asked: float) -> None:
        now = self._clock.monotonic()
        if self._since is not None:
            logger.warning("the brokers at %s answer again, after %.0f s", self._place, now - self._since)
            self._since = None
        self._answered = now
        self._tell(ProbeResult(None, "", now - asked))
