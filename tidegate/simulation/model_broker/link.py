"""How a client of the model reaches it: the one place where latency, faults and crashes come in.

The simulation implements it for each process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from tidegate.clock import Clock

T = TypeVar("T")


class LinkLost(Exception):
    """No answer came: the request had its effect, or it had not."""


class LinkSilent(LinkLost):
    """No answer came in time: the request may have its effect later on."""


class Link(Protocol):
    """One process's way to the broker."""

    @property
    def clock(self) -> Clock:
        """Of the process, and of the broker; `sleep` waits on the caller's (virtual) thread."""

    def call(self, name: str, request: Callable[[], T], timeout_s: float = ...) -> T:
        """Run `request` at the broker and wait for its answer, which may be the exception that it raised.

        Raises LinkLost, with or without the effect, and LinkSilent when the time is over.
        """

    def post(
        self, name: str, request: Callable[[], T], answered: Callable[[T], None], lost: Callable[[], None]
    ) -> None:
        """Send `request`, which raises nothing, and go on. It may arrive even when the process ends meanwhile.

        Requests of one process arrive in their order, or are lost with all that were behind them on their connection.
        Later, on the process's time, either `answered` or `lost` is called once; when the process has ended, neither.
        """

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` later on, unless the process has ended."""
