"""Checks whether a standalone Spark master can be reached before a JVM is started for it.

Spark itself tries for a minute, in three steps that cannot be shortened, and its driver takes another minute to end.
The module also finds the address by which executors reach the daemon.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Mapping
from typing import Final

from tidegate.errors import PipelineStopped

logger = logging.getLogger(__name__)

DRIVER_HOST: Final = "spark.driver.host"
LOOPBACK: Final = "127.0.0.1"
SCHEME: Final = "spark://"
DEFAULT_PORT: Final = 7077
MASTER_TIMEOUT_S: Final = 60.0
"""As long as Spark would try."""
CONNECT_S: Final = 3.0
PAUSE_S: Final = 0.5


class SparkUnavailable(PipelineStopped):
    """The Spark session could not be started. Nothing has been changed, so a supervisor may start the daemon again."""

    code = "spark-unavailable"
    exit_code = 1


def find_driver_host(
    master: str, properties: Mapping[str, str], resolve: Callable[[str], str] = socket.gethostbyname
) -> str:
    """Returns the address by which executors reach the daemon: loopback for local masters, else that of Spark's driver.

    It is also loopback if this machine's name does not resolve, or resolves to loopback.
    """
    if master.startswith("local"):
        return LOOPBACK
    try:
        return properties.get(DRIVER_HOST) or resolve(socket.gethostname())
    except (OSError, UnicodeError):  # UnicodeError: not a valid host name
        return LOOPBACK


def derive_addresses(master: str) -> list[tuple[str, int]]:
    """Returns host and port of every master of a standalone cluster; empty for every other kind of master. Pure."""
    if not master.startswith(SCHEME):
        return []
    found = []
    for address in master.removeprefix(SCHEME).split(","):
        host, _, port = address.strip().rpartition(":")
        found.append((host.strip("[]"), int(port)) if port.isdigit() else (address.strip(), DEFAULT_PORT))
    return found


def wait_for_master(master: str, timeout_s: float) -> None:
    """Returns when one of the masters accepts a connection, or if there is none to check. Raises SparkUnavailable."""
    addresses = derive_addresses(master)
    deadline, told = time.monotonic() + timeout_s, False
    while addresses:
        problems = [_connect(host, port) for host, port in addresses]
        if not all(problems):
            return
        if time.monotonic() + PAUSE_S >= deadline:
            raise SparkUnavailable(
                f"no Spark master answers at {master} in {timeout_s:g} s ({'; '.join(problems)}): start it, or correct "
                "`spark.master`",
                master=master,
            )
        if not told:
            told = True
            logger.warning("no Spark master answers at %s yet (%s): waiting", master, "; ".join(problems))
        time.sleep(PAUSE_S)


def _connect(host: str, port: int) -> str:
    """Describes the failure to connect; empty if the connection is accepted."""
    try:
        with socket.create_connection((host, port), CONNECT_S):
            return ""
    except (OSError, UnicodeError) as error:  # UnicodeError: not a valid host name
        return f"{host}:{port}: {getattr(error, 'strerror', None) or error}"
