"""Free ports for the development broker."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

from tidegate.errors import TidegateError

_FIRST = 15_000
_EPHEMERAL_FIRST_DEFAULT = 32_768
_TRIES_MAX = 200


class BrokerFailed(TidegateError):
    """The broker could not be formatted or started, or it ended unexpectedly."""

    code = "broker-failed"
    exit_code = 1
    retriable = False


reserved: list[int] = []
"""Descriptors of sockets that stay bound but never listen until the process ends. Other processes that look for a free
port skip these ports, even while their broker is down.
"""


def reserve_ports(count: int) -> list[int]:
    """Returns `count` different free ports of 127.0.0.1 and reserves them for brokers of this process.

    The ports are below the range that the kernel uses for outgoing connections. Otherwise a broker that restarts on its
    old port would occasionally find it in use by a client. Raises BrokerFailed.
    """
    found: list[int] = []
    last = _read_ephemeral_first() - 1
    for _ in range(_TRIES_MAX):
        port = _FIRST + secrets.randbelow(max(1, last - _FIRST))
        if _reserve(port):
            found.append(port)
        if len(found) == count:
            return found
    raise BrokerFailed(
        f"no {count} free ports between {_FIRST} and {last} in {_TRIES_MAX} tries; choose one with --port"
    )


def _reserve(port: int) -> bool:
    """Reserves a port if it is free.

    The socket binds without SO_REUSEADDR, which fails if the port is in use, and then sets it to share the port with a
    broker.
    """
    held = socket.socket()
    try:
        held.bind(("127.0.0.1", port))
    except OSError:
        held.close()
        return False
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.append(held.detach())
    return True


def is_free(port: int) -> bool:
    """Returns whether a broker could listen on this port of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the broker does
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _read_ephemeral_first() -> int:
    setting = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not setting.is_file():
        return _EPHEMERAL_FIRST_DEFAULT
    return max(_FIRST + 1000, int(setting.read_text(encoding="ascii").split()[0]))
