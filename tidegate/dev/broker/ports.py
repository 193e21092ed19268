"""Picks free ports for the development broker."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

from tidegate.dev.broker.errors import BrokerFailed

_FIRST = 15_000
_EPHEMERAL_FIRST_DEFAULT = 32_768
_TRIES_MAX = 200


reserved: list[int] = []
"""Descriptors of sockets that are bound and never listen, until the process ends: other processes that look for a port
pass these by, also while their broker is down."""


def reserve_ports(count: int) -> list[int]:
    """`count` different ports of 127.0.0.1, free and from now on kept for brokers of this process.

    Below the range that the kernel gives to outgoing connections: a broker that is restarted on its old port would
    otherwise find it, now and then, in use by a client. Raises BrokerFailed.
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
    """Taken without SO_REUSEADDR, so refused where anybody has it; then shared with a broker, which sets it."""
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
    """Whether a broker could listen on this port of 127.0.0.1 now."""
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
