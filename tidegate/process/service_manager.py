"""Notifies a service manager such as systemd (sd_notify): ready, stopping, the state, and watchdog signals.

Notifications are datagrams to the socket in `NOTIFY_SOCKET`. Without the variable nothing is sent, and a manager that
no longer listens is not an error.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, MutableMapping
from typing import Final

from tidegate.process.logs import redact

logger = logging.getLogger(__name__)

SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG: Final = "WATCHDOG_USEC"
ABSTRACT: Final = "@"
STATUS_CHARACTERS_MAX: Final = 200


class ServiceManager:
    """Sends changes to a service manager. `look` is called periodically with the state. See `open_service_manager`."""

    def __init__(self, send: Callable[[str], None], watchdog_s: float | None) -> None:
        self._send = send
        self._pause_s = None if watchdog_s is None else watchdog_s / 3
        self._alive_at: float | None = None
        self._status = ""
        self._ready = False
        self._stopping = False

    def look(self, now_s: float, text: str, *, ready: bool, stopping: bool) -> None:
        """Sends what has changed.

        `text` describes the state; `ready` and `stopping` are sent once, ready before stopping.
        """
        lines = []
        if (ready or stopping) and not self._ready:
            self._ready = True
            lines.append("READY=1")
        if stopping and not self._stopping:
            self._stopping = True
            lines.append("STOPPING=1")
        status = " ".join(redact(text).split())[:STATUS_CHARACTERS_MAX]
        if status != self._status:
            self._status = status
            lines.append(f"STATUS={status}")
        if self._pause_s is not None and (self._alive_at is None or now_s - self._alive_at >= self._pause_s):
            self._alive_at = now_s
            lines.append("WATCHDOG=1")
        if lines:
            self._send("\n".join(lines))


def open_service_manager(environ: MutableMapping[str, str]) -> ServiceManager | None:
    """Opens the notification socket; None if there is none. Its variables are removed, so that no child uses them."""
    address, limit = environ.pop(SOCKET, ""), environ.pop(WATCHDOG, "")
    environ.pop("WATCHDOG_PID", None)
    if not address.startswith((ABSTRACT, "/")):
        return None
    target = "\0" + address[1:] if address.startswith(ABSTRACT) else address

    def send(message: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as one:
                one.sendto(message.encode(errors="replace"), target)
        except OSError as error:
            logger.debug("the service manager cannot be notified at %s: %s", address, error)

    return ServiceManager(send, int(limit) / 1_000_000 if limit.isdigit() else None)
